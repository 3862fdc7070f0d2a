"""CFI pairs and the two strongly regular graphs: sizes, degrees, isomorphism by brute force."""

import networkx as nx
import pytest
from torch_geometric.utils import to_networkx

from tuplet.datasets import cfi, rook, shrikhande
from tuplet.errors import InputError, OptionError, TooLargeError

SUN = nx.Graph([(0, 1), (1, 2), (2, 0), (0, 3), (3, 1), (1, 4), (4, 2), (2, 5), (5, 0)])
BASES = {
    "K4": (nx.complete_graph(4), 16),
    "3-sun": (SUN, 30),
    "triangle": (nx.cycle_graph(3), 6),
    "K4 and an isolated node": (nx.disjoint_union(nx.complete_graph(4), nx.empty_graph(1)), 17),
}


def plain(data):
    assert data.is_undirected()
    assert not data.has_self_loops()
    return to_networkx(data, to_undirected=True)


@pytest.mark.parametrize("name", BASES)
def test_sizes_and_isomorphism(name):
    base, nodes = BASES[name]
    straight, twisted = map(plain, cfi(base))
    assert len(straight) == len(twisted) == nodes
    assert sorted(dict(straight.degree).values()) == sorted(dict(twisted.degree).values())
    if name != "3-sun":  # minutes of search; 2-FWL tells the two apart in tests/wl/test_facts.py
        assert not nx.is_isomorphic(straight, twisted)


@pytest.mark.parametrize("n, nodes", [(4, 16), (5, 40)])
def test_only_the_untwisted_graph_of_a_clique_has_a_clique_as_large(n, nodes):
    """The empty sets agree everywhere. A twist in one place leaves no choice of sets that agree everywhere."""
    straight, twisted = map(plain, cfi(nx.complete_graph(n)))
    assert len(straight) == len(twisted) == nodes
    assert max(map(len, nx.find_cliques(straight))) == n
    assert max(map(len, nx.find_cliques(twisted))) == n - 1


def test_a_triangle_becomes_two_triangles_or_a_circle_of_six():
    straight, twisted = map(plain, cfi(nx.cycle_graph(3)))
    assert nx.is_isomorphic(straight, nx.disjoint_union(nx.cycle_graph(3), nx.cycle_graph(3)))
    assert nx.is_isomorphic(twisted, nx.cycle_graph(6))


def test_which_edge_is_twisted_does_not_matter():
    """Renumbering the base puts another edge first: here one of the square, there the diagonal."""
    square = nx.Graph([(0, 1), (1, 2), (2, 3), (3, 0), (1, 3)])
    _, one = cfi(square)
    _, other = cfi(nx.Graph([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3)]))
    assert nx.is_isomorphic(plain(one), plain(other))


def test_an_edge_becomes_an_edge_or_none():
    straight, twisted = map(plain, cfi(nx.path_graph(2)))
    assert list(straight.edges) == [(0, 1)]
    assert len(twisted) == 2
    assert not twisted.edges


def test_every_door_is_open():
    for base in ("C~", nx.complete_graph(4), cfi("C~")[0]):
        assert cfi(base)[0].num_nodes >= 16


@pytest.mark.parametrize("base", [nx.empty_graph(3), nx.Graph([(0, 0), (0, 1)]), ["C~", "C~"]])
def test_bad_bases(base):
    with pytest.raises(InputError, match="base: expected"):
        cfi(base)


def test_too_many_edges():
    with pytest.raises(TooLargeError, match="degrees up to 29"):
        cfi(nx.complete_graph(30))


def test_strongly_regular():
    graphs = [plain(rook()), plain(shrikhande())]
    for graph in graphs:
        assert len(graph) == 16
        assert set(dict(graph.degree).values()) == {6}
        common = {len(set(graph[u]) & set(graph[v])) for u in graph for v in graph if u != v}
        assert common == {2}
    assert not nx.is_isomorphic(*graphs)
    assert [max(map(len, nx.find_cliques(graph))) for graph in graphs] == [4, 3]


def test_rooks_of_other_boards():
    assert nx.is_isomorphic(plain(rook(3)), nx.line_graph(nx.complete_bipartite_graph(3, 3)))
    with pytest.raises(OptionError, match="side"):
        rook(1)
