"""What is known about the tests, on all graphs with at most seven nodes and on pairs that are hard to tell apart."""

from collections import Counter
from itertools import combinations

import networkx as nx
import numpy as np
import pytest
from random_graphs import SETTINGS, permute, random_graph

from tuplet import wl
from tuplet.graphs.door import as_data
from tuplet.wl.bank import Pair, atlas, hard_pairs, witnesses

DELTA = ["delta-2-WL", "delta-2-LWL", "delta-2-LWL+"]
TESTS = ["1-WL", "2-WL", "3-WL", "2-FWL", "3-FWL", "delta-1-WL", "delta-1-LWL", "delta-1-LWL+", *DELTA]


@pytest.fixture(scope="module")
def small():
    return atlas()


@pytest.fixture(scope="module")
def pairs():
    return hard_pairs()


def confused(classes):
    """How many pairs of graphs share a class."""
    return sum(count * (count - 1) // 2 for count in Counter(classes.tolist()).values())


def same_partition(one, other):
    return len(set(zip(one.tolist(), other.tolist(), strict=True))) == one.max() + 1 == other.max() + 1


def apart(test, pairs):
    return {pair.name: wl.distinguishes(test, pair.g, pair.h) for pair in pairs}


def test_the_bank_holds_what_it_says(small, pairs):
    """That the pairs are not isomorphic is tested where they are made, in tests/datasets."""
    assert len(small) == 1252
    assert Counter(pair.category for pair in pairs) == {"strongly regular": 1, "CFI": 3, "CSL": 45}
    assert len({pair.name for pair in pairs}) == 49
    sizes = {pair.name: pair.g.num_nodes for pair in pairs if pair.category == "CFI"}
    assert sizes == {"CFI(K4)": 16, "CFI(3-sun)": 30, "CFI(K5)": 40}


@pytest.mark.parametrize("test", [*TESTS, "SWL"])
def test_isomorphic_graphs_are_never_told_apart(small, test):
    """Each graph of the atlas and a renumbered copy: 1,252 pairs that must not be told apart, and many that must."""
    rng = np.random.default_rng(0)
    chosen = [as_data(graph) for graph in small[::4]]
    copies = [permute(graph, rng.permutation(graph.num_nodes)) for graph in chosen]
    classes = wl.partition(test, chosen + copies, dim=2 if test == "SWL" else None)
    assert np.array_equal(classes[: len(chosen)], classes[len(chosen) :])
    assert len(chosen) > 300
    assert classes.max() > 200


@pytest.mark.parametrize(
    "test, pairs_confused", [("1-WL", 26), ("2-WL", 26), ("2-FWL", 0), ("3-WL", 0), *((test, 0) for test in DELTA)]
)
def test_atlas(small, test, pairs_confused):
    """No two graphs of the atlas are isomorphic: a perfect test has 1,252 classes."""
    classes = wl.partition(test, small)
    assert confused(classes) == pairs_confused
    assert (classes.max() + 1 == len(small)) == (pairs_confused == 0)


EQUAL = [("1-WL", "2-WL"), ("2-FWL", "3-WL"), ("1-WL", "delta-1-LWL"), ("1-WL", "1-FWL")]


@pytest.mark.parametrize("one, other", EQUAL)
def test_equal_power(small, pairs, one, other):
    classes = wl.partition(one, small)
    assert same_partition(classes, wl.partition(other, small))
    verdicts = apart(one, pairs)
    assert verdicts == apart(other, pairs)
    assert classes.max() > 1000
    assert confused(classes) + list(verdicts.values()).count(False) > 0


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("one, other", [*EQUAL, ("3-FWL", "4-WL")])
def test_equal_power_on_random_graphs(one, other, setting):
    """Sparse graphs and their copies, many of them alike, with labels and directions."""
    options = SETTINGS[setting]
    rng = np.random.default_rng(5)
    graphs = [random_graph(rng, 4, 0.15 if options.get("directed") else 0.3, **options) for _ in range(150)]
    directed = options.get("directed", False)
    first, second = (wl.partition(test, graphs, directed=directed) for test in (one, other))
    assert same_partition(first, second)
    assert confused(first) > 0
    assert first.max() > 10


def test_the_local_test_with_counts_is_the_full_one_on_connected_graphs(small, pairs):
    """Theorem of Morris et al. It speaks of connected graphs; on those of the bank that are not, both agree as well."""
    connected = [graph for graph in small if nx.is_connected(graph)]
    assert len(connected) == 996
    for graphs in (connected, small):
        full, local = (wl.partition(test, graphs) for test in ("delta-2-WL", "delta-2-LWL+"))
        assert same_partition(full, local)
    verdicts = apart("delta-2-WL", pairs)
    assert verdicts == apart("delta-2-LWL+", pairs)
    assert set(verdicts.values()) == {True, False}


STRICT = [
    ("2-WL", "delta-2-LWL", "CSL(2) / CSL(3)"),
    ("2-WL", "delta-2-WL", "CSL(2) / CSL(3)"),
    ("delta-2-WL", "2-FWL", "CFI(3-sun)"),
    ("2-FWL", "3-FWL", "Rook 4x4 / Shrikhande"),
    ("2-FWL", "3-FWL", "CFI(K4)"),
]


@pytest.mark.parametrize("weaker, stronger, witness", STRICT)
def test_strictly_stronger(pairs, weaker, stronger, witness):
    """A witness, and no pair the other way round."""
    chosen = [pair for pair in pairs if pair.category != "CSL" or pair.name == "CSL(2) / CSL(3)"]
    assert witness in witnesses(stronger, weaker, chosen)
    assert witnesses(weaker, stronger, chosen) == []


def test_what_must_not_be_told_apart(pairs):
    by_name = {pair.name: pair for pair in pairs}
    for name in ("Rook 4x4 / Shrikhande", "CFI(K4)", "CFI(K5)"):
        assert not any(apart(test, [by_name[name]])[name] for test in ["1-WL", "2-WL", "2-FWL", "3-WL", *DELTA])
    assert not any(apart(test, [by_name["CFI(3-sun)"]])["CFI(3-sun)"] for test in ["2-WL", *DELTA])
    assert not apart("3-FWL", [by_name["CFI(K5)"]])["CFI(K5)"]


def test_csl(pairs):
    csl = [pair for pair in pairs if pair.category == "CSL"]
    for test in ("1-WL", "2-WL"):
        assert not any(apart(test, csl).values())
    for test in ("2-FWL", *DELTA):
        assert all(apart(test, csl).values())


def test_no_witness_in_the_bank_for_the_local_against_the_full_delta_test(small, pairs):
    assert witnesses("delta-2-WL", "delta-2-LWL", pairs) == witnesses("delta-2-LWL", "delta-2-WL", pairs) == []
    assert confused(wl.partition("delta-2-LWL", small)) == confused(wl.partition("delta-2-WL", small)) == 0


def test_simplices_see_cliques():
    """Rook 4x4 has cliques of four nodes and the Shrikhande graph has none (Bodnar et al., section 3)."""
    rook = [pair for pair in hard_pairs() if pair.category == "strongly regular"]
    assert witnesses("SWL", "2-FWL", rook, dim=3) == [rook[0].name]
    assert not wl.distinguishes("SWL", rook[0].g, rook[0].h, dim=1)


def test_simplices_up_to_edges_are_colour_refinement(small):
    assert same_partition(wl.partition("SWL", small, dim=1), wl.partition("1-WL", small))
    assert confused(wl.partition("SWL", small, dim=2)) == 0


def test_witnesses_point_the_right_way():
    """Two triangles and a circle of six: equal to 1-WL, apart by triangles."""
    pair = Pair("hexagon", "CFI", as_data(nx.disjoint_union(nx.cycle_graph(3), nx.cycle_graph(3))), as_data("EhEG"))
    assert witnesses("2-FWL", "1-WL", [pair]) == ["hexagon"]
    assert witnesses("1-WL", "2-FWL", [pair]) == []


def test_higher_orders_are_never_weaker(small):
    """Classes of a stronger test lie within those of a weaker one."""
    chain = [wl.partition(test, small[::5]) for test in ("1-WL", "delta-2-LWL", "delta-2-WL", "2-FWL", "3-FWL")]
    for weaker, stronger in combinations(chain, 2):
        assert len(set(zip(weaker.tolist(), stronger.tolist(), strict=True))) == stronger.max() + 1
