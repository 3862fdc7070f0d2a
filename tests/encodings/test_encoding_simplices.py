"""Encodings of simplices against walks and projectors written out cell by cell."""

from itertools import combinations

import networkx as nx
import numpy as np
import pytest
import torch
from encoding_cases import GRAPHS

from tuplet.encodings import RWSE, EdgeRWSE, Hodge1Lap, HodgeRW
from tuplet.encodings.rings import induced_cycles
from tuplet.graphs import read
from tuplet.graphs.door import as_data
from tuplet.topology import Complex, betti_numbers, clique_complex, hodge_laplacian

STEPS = 6


def returns(weights):
    """Diagonals of powers of the walk along a symmetric matrix of weights."""
    np.fill_diagonal(weights, 0)
    total = weights.sum(1, keepdims=True)
    step = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
    return np.stack([np.diag(np.linalg.matrix_power(step, s)) for s in range(1, STEPS + 1)], axis=1)


def simplices(graph, dim):
    """Cliques of each dimension, in lexicographic order."""
    known = [tuple(sorted(each)) for each in nx.enumerate_all_cliques(nx.Graph(e for e in graph.edges if e[0] != e[1]))]
    levels = [[(v,) for v in sorted(graph)]]
    return levels + [sorted(each for each in known if len(each) == k + 1) for k in range(1, dim + 1)]


def plain(graph):
    return nx.convert_node_labels_to_integers(graph)


@pytest.mark.parametrize("graph", GRAPHS)
def test_the_undirected_edge_walk_is_the_walk_on_the_line_graph(graph):
    edges = simplices(plain(GRAPHS[graph]), 1)[1]
    weights = np.array([[float(bool(set(e) & set(f))) for f in edges] for e in edges]).reshape(len(edges), len(edges))
    came = EdgeRWSE(STEPS).compute(read(GRAPHS[graph]), torch.float64)["pe_walk1_undirected_6"]
    assert np.abs(came.numpy() - returns(weights)).max(initial=0) <= 1e-12


@pytest.mark.parametrize("graph", GRAPHS)
def test_the_directed_edge_walk_goes_through_an_end(graph):
    edges = simplices(plain(GRAPHS[graph]), 1)[1]
    step = np.zeros((len(edges), len(edges)))
    for i, e in enumerate(edges):
        at = [[j for j, f in enumerate(edges) if v in f and j != i] for v in e]
        ways = [others for others in at if others]
        for others in ways:
            step[i, others] += 1 / len(ways) / len(others)
    expected = [np.diag(np.linalg.matrix_power(step, s)) for s in range(1, STEPS + 1)]
    came = EdgeRWSE(STEPS, directed=True).compute(read(GRAPHS[graph]), torch.float64)["pe_walk1_directed_6"]
    assert np.abs(came.numpy() - np.stack(expected, axis=1)).max(initial=0) <= 1e-12


def test_the_two_edge_walks_differ():
    batch = read(GRAPHS["isolated node"])
    first = EdgeRWSE(STEPS).compute(batch)["pe_walk1_undirected_6"]
    assert not torch.allclose(first, EdgeRWSE(STEPS, directed=True).compute(batch)["pe_walk1_directed_6"])


@pytest.mark.parametrize("graph", GRAPHS)
def test_the_walk_on_nodes_alone_is_rwse(graph):
    batch = read(GRAPHS[graph])
    came = HodgeRW(STEPS, dim=0).compute(batch, torch.float64)["pe_hodgerw0_0_6"]
    assert torch.allclose(came, RWSE(STEPS).compute(batch, torch.float64)["pe_rwse_6"], atol=1e-12)


def cells_with_rings(graph, dim, lengths):
    """Cells of dimensions 0..dim+1 as sets of nodes and, for each, its faces; rings follow the triangles."""
    levels = simplices(graph, dim + 1)
    cells = [(k, frozenset(each)) for k, level in enumerate(levels) for each in level]
    faces = {cell: {(cell[0] - 1, frozenset(f)) for f in combinations(cell[1], cell[0])} for cell in cells if cell[0]}
    for cycle in nx.chordless_cycles(graph):
        if len(cycle) in lengths:
            ring = (2, frozenset(cycle))
            cells.append(ring)
            faces[ring] = {(1, frozenset(pair)) for pair in zip(cycle, cycle[1:] + cycle[:1], strict=True)}
    return cells, faces


@pytest.mark.parametrize("dim, lengths", [(1, ()), (2, ()), (3, ()), (1, (4, 5)), (2, (4, 5)), (2, (8,)), (3, (4,))])
@pytest.mark.parametrize(
    "graph", ["path", "cycle", "complete", "two components", "isolated node", "petersen", "random"]
)
def test_the_walk_on_all_simplices_follows_faces_cofaces_and_what_shares_them(graph, dim, lengths):
    cells, faces = cells_with_rings(plain(GRAPHS[graph]), dim, lengths)
    cofaces = {cell: {other for other in cells if cell in faces.get(other, ())} for cell in cells}
    walked = [cell for cell in cells if cell[0] <= dim]
    weights = np.zeros((len(walked), len(walked)))
    for i, a in enumerate(walked):
        for j, b in enumerate(walked):
            if a[0] == b[0]:
                weights[i, j] = len(faces.get(a, set()) & faces.get(b, set())) + len(cofaces[a] & cofaces[b])
            else:
                weights[i, j] = (a in faces.get(b, ())) + (b in faces.get(a, ()))
    expected = dict(zip(walked, returns(weights), strict=True))
    encoding = HodgeRW(STEPS, dim=dim, rings=lengths)
    raw = encoding.compute(read(GRAPHS[graph]), torch.float64)
    for k, field in enumerate(encoding.fields):
        rows = [expected[k, frozenset(each)] for each in simplices(plain(GRAPHS[graph]), dim)[k]]
        assert np.abs(raw[field].numpy() - np.array(rows).reshape(-1, STEPS)).max(initial=0) <= 1e-12


def test_rings_are_induced_cycles():
    for seed in range(6):
        graph = nx.gnp_random_graph(10, 0.3, seed=seed)
        batch = read(graph)
        found = induced_cycles(batch.row, batch.col, 10, (3, 4, 5, 6, 7))
        expected = [sorted(cycle) for cycle in nx.chordless_cycles(graph) if 3 <= len(cycle) <= 7]
        assert sorted(sorted(cycle) for part in found for cycle in part.tolist()) == sorted(expected)
        for part in found:
            for cycle in part.tolist():
                assert all(graph.has_edge(u, v) for u, v in zip(cycle, cycle[1:] + cycle[:1], strict=True))


@pytest.mark.parametrize("graph", GRAPHS)
def test_hodge1lap_holds_the_projectors_of_the_hodge_laplacian(graph):
    batch = read(GRAPHS[graph])
    complex_ = clique_complex(batch, 2)
    matrix = hodge_laplacian(complex_, 1).toarray().astype(float)
    values, vectors = np.linalg.eigh(matrix)
    raw = Hodge1Lap(30).compute(batch, torch.float64)["pe_hodge1_30"].numpy()
    levels = [value for i, value in enumerate(values) if i == 0 or value - values[i - 1] > 1e-8]
    for s, level in enumerate(levels):
        members = vectors[:, np.abs(values - level) < 1e-6]
        projector = members @ members.T
        expected = np.stack([np.diag(projector), np.abs(projector).sum(1)], axis=1)
        assert np.abs(raw[:, s, 0] - level).max() <= 1e-10
        assert (raw[:, s, 1] == members.shape[1]).all()
        assert np.abs(raw[:, s, 2:] - expected).max() <= 1e-10
    assert (raw[:, len(levels) :] == 0).all()


def test_the_harmonic_space_counts_holes():
    graph = nx.disjoint_union(nx.cycle_graph(5), nx.complete_graph(4))
    batch = read(graph)
    raw = Hodge1Lap(4).compute(batch, torch.float64)["pe_hodge1_4"]
    assert (raw[:, 0, 0] == 0).all()
    assert (raw[:, 0, 1] == betti_numbers(clique_complex(batch, 3))[1]).all()
    assert torch.allclose(raw[:5, 0, 2], torch.full((5,), 0.2, dtype=torch.float64))  # the hole goes around the cycle
    assert torch.allclose(raw[5:, 0, 2], torch.zeros(6, dtype=torch.float64), atol=1e-12)


def test_the_complex_that_comes_with_a_batch_is_the_one_that_is_walked():
    """A triangle that is not filled: its edges are not upper adjacent, and there is a hole."""
    hollow = Complex.from_simplices([(0, 1), (0, 2), (1, 2)], close=True)
    filled = Complex.from_simplices([(0, 1, 2)], close=True)
    data = as_data(nx.cycle_graph(3))
    batches = read(hollow.attach(data, dim=2)), read(filled.attach(data))
    walks = [HodgeRW(STEPS, dim=1).compute(batch, torch.float64)["pe_hodgerw1_1_6"] for batch in batches]
    assert not torch.allclose(*walks)
    holes = [Hodge1Lap(3).compute(batch, torch.float64)["pe_hodge1_3"] for batch in batches]
    assert (holes[0][:, 0, 0] == 0).all()
    assert (holes[1][:, 0, 0] > 0).all()


def test_simplex_encodings_ignore_directions():
    directed = nx.DiGraph([(0, 1), (1, 2), (2, 0), (2, 3)])
    for encoding in (EdgeRWSE(4), HodgeRW(4, dim=2), Hodge1Lap(4)):
        came = encoding.compute(read(directed, directed=True), torch.float64)
        expected = encoding.compute(read(directed.to_undirected()), torch.float64)
        assert all(torch.equal(came[field], expected[field]) for field in encoding.fields)
