"""The generator of random graphs, the closed formulas against brute force, and the strongly regular graphs."""

from itertools import combinations

import networkx as nx
import numpy as np
import pytest
from torch_geometric.utils import to_networkx

from tuplet.datasets import chang, rook, shrikhande, triangular
from tuplet.datasets.counting import RECIPE, TARGETS, count_substructures, random_graphs, random_regular
from tuplet.errors import OptionError


def brute_force(adjacency):
    """All five counts by looking at every set of nodes."""
    graph = nx.from_numpy_array(adjacency)
    triangle = sum(1 for trio in combinations(graph, 3) if graph.subgraph(trio).size() == 3)
    tailed = sum(
        len(set(graph[node]) - set(trio))
        for trio in combinations(graph, 3)
        if graph.subgraph(trio).size() == 3
        for node in trio
    )
    star = sum(1 for node in graph for _ in combinations(graph[node], 3))
    cycle = chordal = 0
    for a, b, c, d in combinations(graph, 4):
        for one, two, three, four in ((a, b, c, d), (a, b, d, c), (a, c, b, d)):
            closed = all(graph.has_edge(u, v) for u, v in ((one, two), (two, three), (three, four), (four, one)))
            cycle += closed
            chordal += closed * (graph.has_edge(one, three) + graph.has_edge(two, four))
    return [triangle, tailed, star, cycle, chordal]


@pytest.mark.parametrize("seed", range(6))
def test_formulas_count(seed):
    generator = np.random.default_rng(seed)
    sizes = (1, 4, 7, 9)
    graphs = []
    for size in sizes:
        upper = np.triu(generator.random((size, size)) < 0.5, 1)
        graphs.append(upper | upper.T)
    assert count_substructures(graphs).tolist() == [brute_force(graph) for graph in graphs]


def test_regular_graphs_are_regular_and_random():
    generator = np.random.default_rng(0)
    seen = set()
    for nodes, degree in RECIPE * 5:
        adjacency = random_regular(nodes, degree, generator)
        assert (adjacency.sum(0) == degree).all()
        assert (adjacency == adjacency.T).all()
        assert not adjacency.diagonal().any()
        seen.add(adjacency.tobytes())
    assert len(seen) == 20


def test_recipe():
    graphs = random_graphs(400, seed=3)
    edges = {nodes: nodes * degree // 2 - nodes for nodes, degree in RECIPE}
    assert {len(graph) for graph in graphs} == set(edges)
    for graph in graphs:
        assert graph.sum() == 2 * edges[len(graph)]
        assert graph.sum(0).max() <= dict(RECIPE)[len(graph)]
    again, other = random_graphs(400, seed=3), random_graphs(400, seed=4)
    assert all((one == two).all() for one, two in zip(graphs, again, strict=True))
    assert any(one.shape != two.shape or (one != two).any() for one, two in zip(again, other, strict=True))


def test_generated_graphs_are_like_the_published_ones(packed):
    arrays = np.load(packed / "substructure_counting" / "graphs.npz", allow_pickle=False)
    counts = count_substructures(random_graphs(1000))
    for column, name in enumerate(TARGETS):
        error = arrays[name].std() / np.sqrt(1000)
        assert abs(counts[:, column].mean() - arrays[name].mean()) < 4 * error


def parameters(data):
    graph = to_networkx(data, to_undirected=True)
    degrees = set(dict(graph.degree).values())
    adjacent = {len(set(graph[u]) & set(graph[v])) for u, v in graph.edges}
    apart = {len(set(graph[u]) & set(graph[v])) for u, v in nx.non_edges(graph)}
    assert len(degrees) == len(adjacent) == len(apart) == 1
    return len(graph), degrees.pop(), adjacent.pop(), apart.pop()


def test_chang_graphs_are_strongly_regular_and_different():
    graphs = [triangular(8), *map(chang, (1, 2, 3))]
    assert {parameters(data) for data in graphs} == {(28, 12, 6, 4)}
    cliques = [sorted(map(len, nx.find_cliques(to_networkx(data, to_undirected=True)))) for data in graphs]
    assert all(one != other for one, other in combinations(cliques, 2))
    assert {parameters(data) for data in (rook(), shrikhande())} == {(16, 6, 2, 2)}


def test_bad_choices():
    with pytest.raises(OptionError, match="number: expected 1, 2 or 3; came 4"):
        chang(4)
    with pytest.raises(OptionError, match="points: expected an int of at least 3"):
        triangular(2)
