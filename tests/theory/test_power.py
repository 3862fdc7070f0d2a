"""Which graphs a model tells apart: verdicts beside the matching test, files of pairs, contradictions."""

import networkx as nx
import pytest
import torch
from torch_geometric.data import Data

from tuplet import wl
from tuplet.errors import InputError, OptionError
from tuplet.graphs.door import as_data
from tuplet.models import ModelConfig
from tuplet.models.baselines import NAMES
from tuplet.theory import expressivity, read_pairs
from tuplet.theory.bank import classes, hard_graphs, largest_gaps, small_graphs
from tuplet.theory.power import bound_of, with_distances
from tuplet.theory.separation import MARGIN, draw
from tuplet.wl.bank import Pair, hard_pairs


def pair(name, g, h, category="small"):
    return Pair(name, category, as_data(g), as_data(h))


SMALL = [
    pair("C4 / paw", nx.cycle_graph(4), nx.Graph([(0, 1), (1, 2), (2, 0), (2, 3)])),
    pair("P4 / star", nx.path_graph(4), nx.star_graph(3)),
    pair("C6 / 2 C3", nx.cycle_graph(6), nx.disjoint_union(nx.cycle_graph(3), nx.cycle_graph(3)), "regular"),
    pair("relabelled", nx.path_graph(5), nx.relabel_nodes(nx.path_graph(5), {0: 3, 3: 0}), "isomorphic"),
]

SEPARATED = {
    "A1": (),
    "A2": ("P4 / star",),
    "A2^Ngbh": ("C4 / paw", "P4 / star"),
    "A2^LN": ("C4 / paw", "P4 / star", "C6 / 2 C3"),
    "A1-ReLU^LN": ("C4 / paw", "P4 / star"),
    "A1^LN": (),
    "AS0:1-ReLU^SN": ("C4 / paw", "P4 / star", "C6 / 2 C3"),
    "GIN": ("C4 / paw", "P4 / star"),
    "GAT": (),
    "2-IGN": ("C4 / paw", "P4 / star"),
    "PPGN": ("C4 / paw", "P4 / star", "C6 / 2 C3"),
    "Graphormer": ("C4 / paw", "P4 / star"),
}


@pytest.mark.parametrize("name", [name for name in SEPARATED if name != "A2"])
def test_small_pairs(name):
    found = expressivity(name, SMALL)
    assert tuple(v.pair.name for v in found.verdicts if v.separated) == SEPARATED[name]
    assert found.contradictions == ()
    assert all(verdict.gap < 0.5 or verdict.gap > 2 for verdict in found.verdicts)


def test_the_table_counts_by_category():
    found = expressivity("A2^LN", SMALL)
    assert found.by_category() == [("small", 2, 2, 2), ("regular", 1, 1, 1), ("isomorphic", 1, 0, 0)]
    assert str(found.bound) == "delta-2-LWL"


def test_the_built_in_bank():
    found = expressivity("A2^Ngbh", draws=1)
    assert len(found.verdicts) == len(hard_pairs()) == 49
    assert found.contradictions == ()


def test_a_model_that_goes_beyond_its_bound_is_a_contradiction(monkeypatch):
    """Outputs that depend on the numbering would raise the noise; outputs that know too much raise the gap alone."""
    real = draw

    def knows_too_much(name, graphs, seed, **options):
        return real("A2^LN", graphs, seed)

    monkeypatch.setattr("tuplet.theory.power.draw", knows_too_much)
    found = expressivity("A2^Ngbh", SMALL)
    assert [verdict.pair.name for verdict in found.contradictions] == ["C6 / 2 C3"]


def test_a_model_that_misses_what_it_must_see_is_one_too(monkeypatch):
    real = draw
    monkeypatch.setattr("tuplet.theory.power.draw", lambda name, graphs, seed, **options: real("A1", graphs, seed))
    found = expressivity("A2^Ngbh", SMALL)
    assert [verdict.pair.name for verdict in found.contradictions] == ["C4 / paw", "P4 / star"]


def test_the_threshold_comes_from_relabelled_copies():
    one = draw("A2^LN", [pair.g for pair in SMALL], 0)
    assert 0 < one.noise < 1e-12
    assert one.threshold == MARGIN * max(one.noise, 2.0**-52)


BOUNDS = {
    "A1": ("1-WL", 0, None, True),
    "A3": ("3-WL", 0, None, True),
    "A2+basis": ("2-WL", None, None, True),
    "A1^Ngbh": ("1-WL", 0, None, True),
    "A2^Ngbh": ("2-WL", None, None, True),
    "A2^Ngbh+": ("delta-2-WL", None, None, True),
    "A1^Ngbh+": ("1-WL", None, None, False),
    "A2^LN+VT": ("delta-2-LWL", None, None, False),
    "A2-ReLU^LN": ("delta-2-LWL", None, None, True),
    "A2^VT": ("2-WL", 0, None, True),
    "AS0:2": ("SWL", 0, 2, True),
    "AS0:1^SN": ("SWL", None, 1, False),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_bounds(name):
    bound = bound_of(ModelConfig(name))
    assert (bound.test, bound.rounds, bound.dim, bound.reached) == BOUNDS[name]


BASELINE_BOUNDS = {
    "GCN": ("1-WL", False),
    "GAT": ("1-WL", False),
    "GIN": ("1-WL", True),
    "GINE": ("1-WL", True),
    "GatedGCN": ("1-WL", False),
    "PNA": ("1-WL", True),
    "GPS": ("1-WL", True),
    "Graphormer": ("1-WL with distances", False),
    "PPGN": ("2-FWL", True),
    "2-IGN": ("2-WL", True),
}


@pytest.mark.parametrize("name", NAMES)
def test_baselines_are_bounded_on_the_built_in_bank(name):
    found = expressivity(name, draws=2)
    assert (str(found.bound), found.bound.reached) == BASELINE_BOUNDS[name]
    assert len(found.verdicts) == len(hard_pairs())
    assert found.contradictions == ()


class TestDistances:
    def test_they_lie_between_1_wl_and_2_fwl(self):
        graphs = (*small_graphs(6), *hard_graphs())
        low, high = classes("1-WL", graphs), classes("2-FWL", graphs)
        between = classes("1-WL", [with_distances(graph) for graph in graphs])
        for coarse, fine in ((low, between), (between, high)):
            assert len(set(zip(coarse, fine, strict=True))) == len(set(fine)) > len(set(coarse))

    @pytest.mark.parametrize("graphs", [small_graphs(6), hard_graphs()], ids=["atlas", "hard"])
    def test_graphormer_sees_nothing_beyond_them(self, graphs):
        number = torch.from_numpy(classes("1-WL", [with_distances(graph) for graph in graphs]))
        gaps = largest_gaps("Graphormer", graphs)
        assert not (gaps[number[:, None] == number] >= 1).any()
        assert (gaps[number[:, None] != number] >= 1).any()

    def test_labels_and_loops_are_kept(self):
        path = Data(edge_index=torch.tensor([[0, 1, 1], [1, 0, 1]]), x=torch.tensor([5, 6, 7]), num_nodes=3)
        known = with_distances(path)
        assert known.x.tolist() == [[5, 0], [6, 1], [7, 0]]
        assert known.edge_index.tolist() == [[0, 0, 1, 1, 2, 2], [1, 2, 0, 2, 0, 1]]
        assert known.edge_attr.flatten().tolist() == [1, -1, 1, -1, -1, -1]


@pytest.mark.parametrize("name", ["GIN", "A1^LN"])
def test_encodings_have_no_bound(name):
    found = expressivity(name, SMALL, encodings=["RWSE:4:4"])
    assert found.bound is None
    assert found.verdicts[2].separated  # C6 and two triangles, by the walks that return


@pytest.mark.parametrize("name", ["A1,2^Ngbh", "A3(connected)^LN", "A2+index", "AS0:1+bias", "AS1"])
def test_where_theory_has_no_bound(name):
    assert bound_of(ModelConfig(name)) is None
    assert expressivity(name, SMALL[:1], draws=1).contradictions == ()


def test_options_reach_the_model():
    assert not expressivity("A1^LN", SMALL[1:2]).verdicts[0].separated
    found = expressivity("A1^LN", SMALL[1:2], degree=True)
    assert found.verdicts[0].separated
    assert found.bound.reached


class TestFiles:
    def test_pairs_and_categories_are_read(self, tmp_path):
        path = tmp_path / "pairs.tsv"
        path.write_text("# two pairs\nCh\tCs\ttrees\n\nCl\tCN\n")
        pairs = read_pairs(path)
        assert [(pair.name, pair.category) for pair in pairs] == [("line 2", "trees"), ("line 4", "all")]
        assert wl.distinguishes("1-WL", pairs[0].g, pairs[0].h)
        assert expressivity("A2^LN", path, draws=1).by_category()[0][:2] == ("trees", 1)

    @pytest.mark.parametrize(
        "text, message",
        [
            ("Ch\n", "line 1: 'Ch'"),
            ("Ch\tCs\ta\tb\n", "line 1"),
            ("Ch\tnot graph6\n", "line 1: graph6"),
            ("# nothing\n", "at least one pair"),
        ],
    )
    def test_bad_files_are_refused(self, tmp_path, text, message):
        path = tmp_path / "pairs.tsv"
        path.write_text(text)
        with pytest.raises(InputError, match=message):
            expressivity("A1", path)

    def test_a_missing_file_is_named(self, tmp_path):
        with pytest.raises(InputError, match=r"nowhere\.tsv"):
            read_pairs(tmp_path / "nowhere.tsv")


def test_bad_options_are_refused():
    with pytest.raises(OptionError, match="draws: expected a positive int"):
        expressivity("A1", SMALL, draws=0)
