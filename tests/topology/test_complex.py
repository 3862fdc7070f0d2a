"""Simplicial complexes: cliques against two independent enumerations, closure, batching, guards."""

from itertools import combinations

import gudhi
import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Batch, Data

import tuplet
from tuplet import testing
from tuplet.errors import InputError, OptionError, TooLargeError
from tuplet.graphs.door import as_data
from tuplet.topology import CliqueComplex, Complex, block_laplacian, clique_complex, complex_of, inter_order_laplacian


def by_gudhi(graph: nx.Graph, dim: int) -> list[list[tuple[int, ...]]]:
    """The flag complex of an independent library."""
    tree = gudhi.SimplexTree()
    for node in graph:
        tree.insert([node])
    for edge in graph.edges:
        tree.insert(list(edge))
    tree.expansion(dim)
    levels = [[] for _ in range(dim + 1)]
    for simplex, _ in tree.get_skeleton(dim):
        levels[len(simplex) - 1].append(tuple(sorted(simplex)))
    return [sorted(level) for level in levels]


@pytest.mark.parametrize("dim", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("n, density", [(1, 0.0), (6, 0.0), (7, 1.0), (12, 0.5), (30, 0.2)])
def test_cliques_are_those_of_gudhi(n, density, dim):
    graph = nx.gnp_random_graph(n, density, seed=3)
    (levels,) = clique_complex(graph, dim).tolist()
    assert levels == by_gudhi(graph, dim)


@settings(max_examples=40)
@given(graphs=st.lists(testing.graphs(max_nodes=7), min_size=1, max_size=4))
def test_a_batch_of_complexes_is_the_complexes_of_its_graphs(graphs):
    together = clique_complex(graphs, 3).tolist()
    for graph, levels in zip(graphs, together, strict=True):
        pairs = {frozenset(pair) for pair in graph.edge_index.t().tolist()}
        for k, level in enumerate(levels):
            cliques = [
                nodes
                for nodes in combinations(range(graph.num_nodes), k + 1)
                if all(frozenset(pair) in pairs for pair in combinations(nodes, 2))
            ]
            assert level == cliques


def test_faces_are_numbered_in_the_dimension_below():
    known = clique_complex([nx.complete_graph(5), nx.path_graph(3), nx.complete_graph(4)], 3)
    for k in range(1, 4):
        for simplex, faces in zip(known.simplices[k], known.faces[k], strict=True):
            for place, face in enumerate(faces.tolist()):
                expected = torch.cat([simplex[:place], simplex[place + 1 :]])
                assert torch.equal(known.simplices[k - 1][face], expected)
    assert known.cofaces(0).tolist() == [4] * 5 + [1, 2, 1] + [3] * 4
    assert known.cofaces(2).tolist() == [2] * 10 + [1] * 4
    assert known.cofaces(3).tolist() == [0] * 6
    assert known.truncate(1).counts == (12, 18)


def test_simplices_are_found_by_their_nodes():
    known = clique_complex([nx.complete_graph(4), nx.cycle_graph(4)], 2)
    for k in (0, 1, 2):
        assert torch.equal(known.find(known.simplices[k]), torch.arange(known.counts[k]))
    assert known.find(torch.tensor([[4, 6], [0, 4]])).tolist() == [-1, -1]
    assert known.find(torch.tensor([[4, 5, 6], [0, 1, 3]])).tolist() == [-1, 1]


@pytest.mark.parametrize("candidates", [1, 5, 64])
def test_small_portions_change_nothing(candidates, monkeypatch):
    graph = nx.gnp_random_graph(14, 0.6, seed=1)
    expected = clique_complex(graph, 4).tolist()
    monkeypatch.setattr("tuplet.topology.cliques._CANDIDATES", candidates)
    assert clique_complex(graph, 4).tolist() == expected


def test_direction_and_self_loops_have_no_say():
    """A directed graph, as in WebKB: u and v are adjacent if there is an edge either way, once."""
    edges = torch.tensor([[0, 1, 2, 0, 2, 3], [1, 2, 0, 2, 2, 0]])
    assert clique_complex(Data(edge_index=edges, num_nodes=4), 2).counts == (4, 4, 1)


def test_explicit_simplices_are_closed_or_completed():
    sphere = list(combinations(range(4), 3))
    with pytest.raises(InputError, match=r"\(0, 1, 2\) without its face \(0, 1\)"):
        Complex.from_simplices(sphere)
    closed = Complex.from_simplices(sphere, close=True)
    assert closed.counts == (4, 6, 4)
    assert Complex.from_simplices([*sphere, *combinations(range(4), 2)]).counts == closed.counts
    assert Complex.from_simplices([(2, 1), (1, 2), (0, 1)], num_nodes=5).counts == (5, 2)
    assert Complex.from_simplices([], num_nodes=2).counts == (2,)


@pytest.mark.parametrize(
    "simplices, nodes, message",
    [
        ([(0, 0)], None, "2 different nodes"),
        ([(0, -1)], None, "sets of nodes"),
        ([()], None, "non-empty"),
        ([(0, 5)], 3, "nodes 0..2"),
        ([(0, 1.5)], None, "sets of node numbers"),
        ([], None, "num_nodes: expected at least one"),
        ([], 0, "num_nodes: expected at least one"),
        ([(0, 1, 2)], None, "simplices: expected a complex closed"),
    ],
)
def test_bad_simplices_are_refused(simplices, nodes, message):
    with pytest.raises(InputError, match=message):
        Complex.from_simplices(simplices, nodes)


@pytest.mark.parametrize("dim", [-1, 1.5, True])
def test_bad_dimensions_are_refused(dim):
    with pytest.raises(OptionError, match="dim: expected an int"):
        clique_complex("C~", dim)


def test_numbers_of_other_libraries_are_numbers():
    for simplices in (np.array([[0, 1], [1, 2]]), torch.tensor([[0, 1], [1, 2]])):
        assert Complex.from_simplices(simplices).counts == (3, 2)
    assert clique_complex(nx.complete_graph(4), np.int64(2)).counts == (4, 6, 4)


def test_dimensions_that_a_complex_lacks_are_refused():
    known = clique_complex(nx.complete_graph(3), 1)
    for ask in (
        lambda: known.cofaces(2),
        lambda: known.find(torch.tensor([[0, 1, 2]])),
        lambda: known.truncate(-1),
        lambda: inter_order_laplacian(known, 5),
        lambda: block_laplacian(known, 5),
    ):
        with pytest.raises(OptionError, match=r"dimension: expected 0\.\.1"):
            ask()


def test_limits_are_passed_on():
    with pytest.raises(TooLargeError, match="above the limit of 30"):
        CliqueComplex(2, limit=30)(as_data(nx.complete_graph(6)))
    with pytest.raises(TooLargeError, match="above the limit of 30"):
        complex_of(tuplet.read(nx.complete_graph(6)), 2, limit=30)


def test_an_exploding_complex_is_refused_with_its_numbers():
    with pytest.raises(TooLargeError) as error:
        clique_complex(nx.complete_graph(60), 59, limit=100_000)
    message = str(error.value)
    for part in (
        "above the limit of 100,000",
        "explodes at dimension 3",
        "1,770 of dimension 1",
        "34,220 of dimension 2",
    ):
        assert part in message


class TestPreparedComplexes:
    """The transform that computes complexes once, and PyG's own collation of what it wrote."""

    graphs = (nx.complete_graph(4), nx.path_graph(1), nx.cycle_graph(5), nx.empty_graph(2))

    def test_collation_joins_complexes_of_different_sizes(self):
        data = [CliqueComplex(3)(as_data(graph)) for graph in self.graphs]
        batch = Batch.from_data_list(data)
        read = complex_of(tuplet.read(batch), 3)
        assert read.tolist() == clique_complex(list(self.graphs), 3).tolist()
        assert complex_of(tuplet.read(data), 2).tolist() == clique_complex(list(self.graphs), 2).tolist()

    def test_the_transform_leaves_its_input_alone(self):
        data = as_data(self.graphs[0])
        before = set(data.keys())
        again = CliqueComplex(2)(data)
        assert set(data.keys()) == before
        assert set(again.keys()) == before | {"simplex_index_1", "simplex_index_2"}
        assert repr(CliqueComplex(2)) == "CliqueComplex(2)"

    def test_a_model_uses_what_came_and_not_its_own_cliques(self, monkeypatch):
        model = tuplet.build("AS0:2^SN", dim=8, heads=2).double().eval()
        data = [CliqueComplex(3)(as_data(graph)) for graph in self.graphs]
        expected = model(list(self.graphs))
        monkeypatch.setattr("tuplet.topology.prepared.clique_complex", None)
        torch.testing.assert_close(model(Batch.from_data_list(data)), expected)

    def test_an_explicit_complex_is_read(self):
        """A hollow triangle and a filled one differ for AS0:1, which sees upper adjacency, and not without it."""
        data = as_data(nx.cycle_graph(3))
        hollow = Complex.from_simplices([(0, 1), (1, 2), (0, 2)])
        filled = Complex.from_simplices([(0, 1, 2)], close=True)
        for truncate, same in ((False, False), (True, True)):
            model = tuplet.build("AS0:1^SN", dim=8, heads=2, truncate=truncate).double().eval()
            outputs = [model(known.attach(data, dim=2)) for known in (hollow, filled)]
            assert torch.allclose(*outputs, rtol=1e-9) == same

    def test_an_attached_complex_replaces_an_older_one(self):
        """Also where it does not reach as high: what is left of the old one would be read."""
        filled = CliqueComplex(3)(as_data(nx.complete_graph(4)))
        hollow = Complex.from_simplices(list(combinations(range(4), 3)), close=True)
        assert "simplex_index_3" not in hollow.attach(filled)
        model = tuplet.build("AS0:2^SN", dim=8, heads=2).double().eval()
        fresh = hollow.attach(as_data(nx.complete_graph(4)), dim=3)
        torch.testing.assert_close(model(hollow.attach(filled, dim=3)), model(fresh))

    def test_what_moves_with_a_batch(self):
        batch = tuplet.read([CliqueComplex(2)(as_data(graph)) for graph in self.graphs])
        assert [rows.device.type for rows in batch.to("meta").simplices] == ["meta", "meta"]

    @pytest.mark.parametrize(
        "wrong", [nx.path_graph(2), Batch.from_data_list([as_data(nx.path_graph(2))])], ids=["nx", "batch"]
    )
    def test_a_transform_takes_one_graph(self, wrong):
        with pytest.raises(InputError, match="one graph as torch_geometric Data"):
            CliqueComplex(1)(wrong)
        with pytest.raises(InputError, match="one graph as torch_geometric Data"):
            Complex.from_simplices([(0, 1)]).attach(wrong)
        with pytest.raises(OptionError, match="dim: expected an int"):
            CliqueComplex(-1)

    def test_what_is_missing_is_said(self):
        data = as_data(nx.cycle_graph(3))
        model = tuplet.build("AS0:1^SN", dim=8, heads=2)
        with pytest.raises(InputError, match=r"simplex_index_2: expected simplices up to dimension 2.*attach"):
            model(CliqueComplex(1)(data))
        with pytest.raises(InputError, match=r"the edge \(0, 1\) of graph 0 in edge_index only"):
            model(Complex.from_simplices([(0, 2)], num_nodes=3).attach(data, dim=2))
        gap = CliqueComplex(2)(data)
        del gap["simplex_index_1"]
        with pytest.raises(InputError, match="simplex_index_2 without it"):
            tuplet.read(gap)
        torn = CliqueComplex(2)(data)
        torn.simplex_index_2 = torch.tensor([[0], [1], [7]])
        with pytest.raises(
            InputError, match=r"simplex_index_2: expected node numbers 0\.\.2 .* the simplex \(0, 1, 7\)"
        ):
            tuplet.read(torn)
        flat = CliqueComplex(2)(data)
        flat.simplex_index_2 = torch.tensor([[0], [1]])
        with pytest.raises(InputError, match=r"simplex_index_2: expected shape \(3, S\)"):
            tuplet.read(flat)
        with pytest.raises(InputError, match="in every graph of a list or in none"):
            tuplet.read([CliqueComplex(1)(data), data])
        with pytest.raises(InputError, match="3 nodes"):
            Complex.from_simplices([(0, 2)]).attach(as_data(nx.path_graph(2)))
        with pytest.raises(OptionError, match="dim: expected at least 1"):
            Complex.from_simplices([(0, 2)]).attach(data, dim=0)
