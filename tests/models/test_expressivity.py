"""What must not be told apart is not, and what must be, is (Theorems 3.2, 4.2, 4.3; random weights, float64)."""

import networkx as nx
import pytest
import torch

import tuplet

SAME = 1e-10
"""Two outputs whose relative difference is below this are equal up to rounding."""
DIFFERENT = 1e-6

C4, PAW = nx.cycle_graph(4), nx.Graph([(0, 1), (1, 2), (2, 0), (2, 3)])
CSL = [nx.circulant_graph(41, [1, skip]) for skip in (2, 3, 4, 5, 6, 9, 11, 12, 13, 16)]
DECALIN = nx.Graph([(i, (i + 1) % 10) for i in range(10)] + [(0, 5)])
BICYCLOPENTYL = nx.Graph([(i, (i + 1) % 5) for i in range(5)] + [(5 + i, 5 + (i + 1) % 5) for i in range(5)] + [(0, 5)])
ONE_WL_TWINS = {
    "C6 / 2 C3": (nx.cycle_graph(6), nx.disjoint_union(nx.cycle_graph(3), nx.cycle_graph(3))),
    "decalin / bicyclopentyl": (DECALIN, BICYCLOPENTYL),
    "prism / K33": (nx.circular_ladder_graph(3), nx.complete_bipartite_graph(3, 3)),
    "rook / Shrikhande": (nx.line_graph(nx.complete_bipartite_graph(4, 4)), nx.Graph(
        [((i, j), ((i + a) % 4, (j + b) % 4)) for i in range(4) for j in range(4) for a, b in ((0, 1), (1, 0), (1, 1))]
    )),
    "CSL 2 / CSL 3": (CSL[0], CSL[1]),
    "CSL 12 / CSL 16": (CSL[7], CSL[9]),
}  # fmt: skip


def outputs(name, graphs, seed, **options):
    torch.manual_seed(seed)
    model = tuplet.build(name, **{"dim": 32, "depth": 3, "heads": 4, "outputs": 4, **options})
    with torch.no_grad():
        return model.double().eval()([nx.convert_node_labels_to_integers(graph) for graph in graphs])


def gap(first, second):
    """Relative difference of two outputs."""
    return float((first - second).abs().max() / first.abs().max())


def gaps(name, pair, **options):
    """Relative differences over five draws of weights."""
    return [gap(*outputs(name, pair, seed, **options)) for seed in range(5)]


@pytest.mark.parametrize("name", ["A1", "A2", "A1-Performer", "A2-Performer", "A2-Linear", "A2-ReLU", "A2^VT", "A1^VT"])
def test_dense_and_virtual_attention_cannot_separate_c4_from_the_paw(name):
    """Figure 2: equal histograms of first features stay equal."""
    assert max(gaps(name, (C4, PAW))) < SAME


@pytest.mark.parametrize(
    "name",
    [
        "A2^Ngbh",
        "A2^Ngbh+",
        "A3",
        "A3^Ngbh",
        "A1-ReLU^Ngbh+",
        "A1^Ngbh++reweight",
        "A2+basis",
        "A2^Ngbh+VT",
        "A3-Performer",
        "A2-ReLU^LN",
        "A3(connected)",
    ],
)
def test_these_separate_c4_from_the_paw(name):
    assert min(gaps(name, (C4, PAW))) > DIFFERENT


def test_degrees_let_local_neighbours_count():
    """A1^LN takes means, so P4 and K_{1,3} look alike; degrees as input, or the sum form, tell them apart."""
    pair = (nx.path_graph(4), nx.star_graph(3))
    assert max(gaps("A1^LN", pair)) < SAME
    assert min(gaps("A1^LN", pair, degree=True)) > DIFFERENT
    assert min(gaps("A1-ReLU^LN", pair)) > DIFFERENT


@pytest.mark.parametrize("pair", ONE_WL_TWINS)
@pytest.mark.parametrize("name", ["A2^Ngbh", "A2^Ngbh+VT", "A1^LN", "A1^Ngbh+", "A2-ReLU^Ngbh", "A2^VT"])
def test_what_1_wl_cannot_separate_stays_together(name, pair):
    assert max(gaps(name, ONE_WL_TWINS[pair], depth=2)) < SAME


@pytest.mark.parametrize("pair", [pair for pair in ONE_WL_TWINS if "rook" not in pair and "CSL" not in pair])
@pytest.mark.parametrize("name", ["A2^LN", "A2^Ngbh+"])
def test_local_neighbours_go_beyond_1_wl(name, pair):
    assert min(gaps(name, ONE_WL_TWINS[pair])) > DIFFERENT


@pytest.mark.parametrize("name", ["A2^LN", "A2^Ngbh+"])
def test_order_two_cannot_separate_rook_from_shrikhande(name):
    """No delta-2 test does: the pair is strongly regular with equal parameters."""
    assert max(gaps(name, ONE_WL_TWINS["rook / Shrikhande"])) < SAME


@pytest.mark.parametrize("name", ["A2^LN", "A2^Ngbh+"])
def test_all_csl_classes_are_separated(name):
    out = outputs(name, CSL, seed=0)
    assert min(gap(out[i], out[j]) for i in range(10) for j in range(i)) > 100 * SAME


def test_dense_attention_separates_no_csl_classes():
    out = outputs("A2", CSL, seed=0, depth=2, dim=16)
    assert max(gap(out[i], out[j]) for i in range(10) for j in range(i)) < SAME
