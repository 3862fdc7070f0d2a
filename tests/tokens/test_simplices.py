"""First features of simplices: right features at the right simplex, whatever the order of edges, nodes and vertices."""

import networkx as nx
import pytest
import torch
from torch_geometric.data import Data

import tuplet
from tuplet import testing
from tuplet.graphs import read
from tuplet.graphs.door import as_data
from tuplet.tokens import Simplices
from tuplet.topology import Complex, clique_complex


def labelled(graph: nx.Graph, seed: int = 0) -> Data:
    """The graph with random node and edge types, edges in random order."""
    generator = torch.Generator().manual_seed(seed)
    data = as_data(graph)
    data.x = torch.randint(3, (data.num_nodes,), generator=generator)
    low, high = data.edge_index.sort(dim=0).values
    data.edge_attr = torch.randint(2, (100,), generator=generator)[low * 10 + high]
    order = torch.randperm(data.num_edges, generator=generator)
    data.edge_index, data.edge_attr = data.edge_index[:, order], data.edge_attr[order]
    return data


def first_features(model, data):
    """For each simplex its first features."""
    prepared = model.prepare(data)
    rows = model.embed(prepared)[1]
    return {simplex: row for (_, simplex), row in zip(prepared.queries.tolist(), rows, strict=True)}


def build(name="AS0:3", **options):
    torch.manual_seed(0)
    return tuplet.build(name, **{"dim": 16, "heads": 4, "node_types": 3, "edge_types": 2, **options}).double().eval()


def test_tokens_are_numbered_dimension_after_dimension():
    graph = read([nx.complete_graph(3), nx.path_graph(2)])
    tokens = Simplices.take(graph, clique_complex(graph, 2), 0, 1)
    assert tokens.counts == (6, 3)
    assert tokens.sizes == (5, 4)
    assert tokens.tolist() == [
        *[(0, (0,)), (0, (1,)), (0, (2,)), (1, (0,)), (1, (1,))],
        *[(0, (0, 1)), (0, (0, 2)), (0, (1, 2)), (1, (0, 1))],
    ]
    assert tokens.by_graph.tolist() == [0, 1, 2, 5, 6, 7, 3, 4, 8]
    assert tokens.place.tolist() == [0, 1, 2, 0, 1, 3, 4, 5, 2]


@pytest.mark.parametrize(("low", "high"), [(0, 0), (1, 1), (0, 2), (1, 3)])
def test_the_order_by_graph_is_a_stable_sort(low, high):
    sizes = [(5, 0.9), (1, 0.0), (4, 0.0), (7, 0.5), (3, 1.0)]
    graph = read([nx.gnp_random_graph(n, p, seed=n) for n, p in sizes])
    tokens = Simplices.take(graph, clique_complex(graph, 3), low, high)
    assert torch.equal(tokens.by_graph, torch.argsort(tokens.graph_of_token, stable=True))
    assert torch.equal(tokens.by_graph[tokens.position], torch.arange(tokens.total))


@pytest.mark.parametrize("init", ["concat", "sum"])
@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_edges_has_no_say(init, seed):
    """The released code gave edge features to wrong 1-simplices unless edge_index was sorted."""
    data, model = labelled(nx.gnp_random_graph(7, 0.6, seed=seed), seed), build(init=init)
    expected = first_features(model, data)
    order = torch.randperm(data.num_edges, generator=torch.Generator().manual_seed(seed))
    shuffled = Data(x=data.x, edge_index=data.edge_index[:, order], edge_attr=data.edge_attr[order])
    for simplex, row in first_features(model, shuffled).items():
        assert torch.equal(row, expected[simplex])


@pytest.mark.parametrize("init", ["concat", "sum"])
def test_edge_features_reach_their_simplex_and_those_above(init):
    data, model = labelled(nx.complete_graph(5)), build(init=init)
    before = first_features(model, data)
    changed = data.clone()
    edge = (data.edge_index == torch.tensor([[1], [3]])).all(0) | (data.edge_index == torch.tensor([[3], [1]])).all(0)
    changed.edge_attr[edge] = 1 - changed.edge_attr[edge]
    for simplex, row in first_features(model, changed).items():
        assert torch.allclose(row, before[simplex]) == (not {1, 3} <= set(simplex)), simplex


@pytest.mark.parametrize("init", ["concat", "sum"])
@pytest.mark.parametrize("seed", range(3))
def test_neither_vertex_order_nor_orientation_has_a_say(init, seed):
    data, model = labelled(nx.gnp_random_graph(7, 0.7, seed=seed), seed), build(init=init)
    expected = first_features(model, data)
    permutation = torch.randperm(7, generator=torch.Generator().manual_seed(seed))
    renamed = first_features(model, testing.permute(data, permutation))
    assert len(renamed) == len(expected)
    for simplex, row in expected.items():
        image = tuple(sorted(permutation[list(simplex)].tolist()))
        torch.testing.assert_close(renamed[image], row, rtol=1e-12, atol=1e-12)


def test_equal_labels_mean_equal_features_and_only_then():
    """Up to dimension 2, where the faces tell labelled simplices apart."""
    data, model = labelled(nx.complete_graph(7), 5), build("AS0:2")
    edges = zip(data.edge_index.t().tolist(), data.edge_attr.tolist(), strict=True)
    kinds = {frozenset(pair): kind for pair, kind in edges}

    def isomorphism_type(simplex):
        pairs = [
            (tuple(sorted(data.x[[u, v]].tolist())), kinds[frozenset((u, v))])
            for u in simplex
            for v in simplex
            if u < v
        ]
        return len(simplex), tuple(sorted(data.x[list(simplex)].tolist())), tuple(sorted(pairs))

    rows = first_features(model, data)
    types = {simplex: isomorphism_type(simplex) for simplex in rows}
    same = different = 0
    for a in rows:
        for b in rows:
            if len(a) == len(b):
                equal = types[a] == types[b]
                same, different = same + equal, different + (not equal)
                assert torch.allclose(rows[a], rows[b], rtol=1e-9, atol=1e-9) == equal
    assert same > 50
    assert different > 500


def test_the_dimension_is_embedded():
    """Without any features, and in the sum form, nodes, edges and triangles still begin differently."""
    rows = first_features(build("AS0:2", node_types=None, edge_types=None, init="sum"), nx.complete_graph(3))
    assert not torch.allclose(rows[0,], rows[0, 1])
    assert torch.allclose(rows[0, 1], rows[1, 2])
    model = build("AS0:2", node_types=None, edge_types=None, init="sum")
    with torch.no_grad():
        model.tokens.dimension[1] += 1
    moved = first_features(model, nx.complete_graph(3))
    assert torch.allclose(moved[0,], rows[0,])
    assert not torch.allclose(moved[0, 1], rows[0, 1])


def test_direction_is_a_feature():
    """0 -> 1 between nodes of different types is not 1 -> 0; undirected edges have no such thing."""

    def row(edges, x=(0, 1)):
        data = Data(x=torch.tensor(x), edge_index=torch.tensor(edges).t().reshape(2, -1), num_nodes=2)
        return first_features(build("AS0:1", edge_types=None, directed=True), data)[0, 1]

    forth, back, both = row([(0, 1)]), row([(1, 0)]), row([(0, 1), (1, 0)])
    assert not torch.allclose(forth, back)
    assert not torch.allclose(forth, both)
    torch.testing.assert_close(row([(0, 1)], (1, 0)), back)


def test_a_simplex_that_is_no_edge_of_the_graph_begins_as_such():
    data = labelled(nx.path_graph(3))
    data.x[:] = 0
    data.edge_attr[:] = 0
    known = Complex.from_simplices([(0, 1, 2)], close=True)
    rows = first_features(build("AS0:2"), known.attach(data, dim=3))
    torch.testing.assert_close(rows[0, 1], rows[1, 2])
    assert not torch.allclose(rows[0, 1], rows[0, 2])


def test_degrees_of_simplices_are_their_cofaces():
    graph = nx.Graph([(0, 1), (1, 2), (0, 2), (2, 3)])  # a triangle with a tail: (2, 3) lies in no triangle
    plain, counted = (
        first_features(build("AS0:1", node_types=None, edge_types=None, degree=degree), graph)
        for degree in (False, True)
    )
    torch.testing.assert_close(plain[0, 1], plain[2, 3])
    torch.testing.assert_close(plain[0,], plain[3,])
    assert not torch.allclose(counted[0, 1], counted[2, 3])
    assert not torch.allclose(counted[0,], counted[3,])
