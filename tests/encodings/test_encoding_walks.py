"""Random walks and distances of nodes and pairs against their definitions."""

import networkx as nx
import numpy as np
import pytest
import torch
from encoding_cases import GRAPHS

from tuplet.encodings import DEG, RD, RRWP, RWSE, SPD
from tuplet.graphs import read

DIRECTED = {
    "sink": nx.DiGraph([(0, 1), (1, 2), (2, 0), (2, 3)]),
    "one way": nx.DiGraph([(0, 1), (1, 2), (2, 3)]),
    "both ways": nx.DiGraph([(0, 1), (1, 0), (1, 2), (3, 3), (3, 0)]),
}
ALL = GRAPHS | DIRECTED


def matrices(graph):
    """Adjacency without loops, and one step of the walk: zero rows where no edge leaves."""
    adjacency = nx.to_numpy_array(graph)
    np.fill_diagonal(adjacency, 0)
    out = adjacency.sum(1, keepdims=True)
    return adjacency, np.divide(adjacency, out, out=np.zeros_like(adjacency), where=out > 0)


def batch_of(graph):
    return read(graph, directed=graph.is_directed())


@pytest.mark.parametrize("graph", ALL)
def test_rwse_is_the_diagonal_of_powers(graph):
    _, step = matrices(ALL[graph])
    for steps in (1, 2, 7, 20):
        expected = np.stack([np.diag(np.linalg.matrix_power(step, s)) for s in range(1, steps + 1)], axis=1)
        came = RWSE(steps).compute(batch_of(ALL[graph]), torch.float64)[f"pe_rwse_{steps}"]
        assert np.abs(came.numpy() - expected).max() <= 1e-12


@pytest.mark.parametrize("graph", ALL)
def test_rrwp_slot_s_holds_the_s_th_power(graph):
    _, step = matrices(ALL[graph])
    came = RRWP(9).compute(batch_of(ALL[graph]), torch.float64)["pe_rrwp_9"].reshape(*step.shape, 9)
    for s in range(9):
        assert np.abs(came[..., s].numpy() - np.linalg.matrix_power(step, s)).max() <= 1e-12


@pytest.mark.parametrize("graph", ALL)
def test_shortest_paths(graph):
    expected = np.full((len(ALL[graph]),) * 2, -1)
    for u, lengths in nx.all_pairs_shortest_path_length(ALL[graph]):
        for v, length in lengths.items():
            expected[list(ALL[graph]).index(u), list(ALL[graph]).index(v)] = length
    came = SPD().compute(batch_of(ALL[graph]))["pe_spd"]
    assert not came.is_floating_point()
    assert (came.reshape(expected.shape).numpy() == expected).all()


def test_unreachable_and_far_pairs_have_vectors_of_their_own():
    batch = read(nx.disjoint_union(nx.path_graph(6), nx.path_graph(2)))
    encoder = SPD(limit=3, width=4).encoder()
    table = encoder(SPD().compute(batch), batch).reshape(8, 8, 4)
    assert len({tuple(table[0, v].tolist()) for v in range(8)}) == 6  # distances 0, 1, 2, 3, further, no path
    assert torch.equal(table[0, 4], table[0, 5])
    assert torch.equal(table[0, 6], table[1, 7])
    assert not torch.equal(table[0, 6], table[0, 5])


@pytest.mark.parametrize("graph", GRAPHS)
def test_resistance_is_that_of_the_pseudoinverse_within_components(graph):
    adjacency, _ = matrices(GRAPHS[graph])
    n = len(adjacency)
    inverse = np.linalg.pinv(np.diag(adjacency.sum(1)) - adjacency)
    reached = np.zeros((n, n))
    for component in nx.connected_components(GRAPHS[graph]):
        places = [list(GRAPHS[graph]).index(v) for v in component]
        reached[np.ix_(places, places)] = 1
    expected = (np.diag(inverse)[:, None] + np.diag(inverse)[None, :] - 2 * inverse) * reached
    came = RD().compute(read(GRAPHS[graph]), torch.float64)["pe_resistance"].reshape(n, n, 2).numpy()
    assert np.abs(came[..., 0] - expected).max() <= 1e-10
    assert (came[..., 1] == reached).all()
    assert (came[..., 0] >= 0).all()


def test_resistance_of_a_tree_is_its_distance_and_ignores_directions():
    tree = nx.random_labeled_tree(12, seed=0)
    one_way = nx.empty_graph(12, create_using=nx.DiGraph)
    one_way.add_edges_from(tree.edges)
    distance = SPD().compute(read(tree))["pe_spd"]
    for batch in (read(tree), read(one_way, directed=True)):
        resistance = RD().compute(batch, torch.float64)["pe_resistance"][:, :1]
        assert torch.allclose(resistance, distance.double(), atol=1e-10)


def test_degrees():
    assert DEG().compute(read(GRAPHS["self loops"]))["pe_degree"].tolist() == [[2, 2], [2, 2], [3, 3], [1, 1]]
    assert DEG().compute(batch_of(DIRECTED["sink"]))["pe_degree"].tolist() == [[1, 1], [1, 1], [2, 1], [0, 1]]


def test_stored_numbers_follow_the_default_dtype_or_the_option():
    batch = read(nx.path_graph(3))
    assert RWSE(3).compute(batch)["pe_rwse_3"].dtype == torch.float32
    assert RWSE(3).compute(batch, torch.float64)["pe_rwse_3"].dtype == torch.float64
    torch.set_default_dtype(torch.float64)
    try:
        assert RWSE(3).compute(batch)["pe_rwse_3"].dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
