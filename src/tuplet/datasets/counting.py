"""Substructure counting: how many triangles, tailed triangles, stars, 4-cycles and chordal 4-cycles a random graph has.

The graphs of Chen et al., "Can graph neural networks count substructures?" (NeurIPS 2020), their random regular ones: n and the
degree d are one of (10, 6), (15, 6), (20, 5), (30, 5), a random d-regular graph is drawn, and n of its edges are removed. 5,000
graphs, 1,500 / 1,000 / 2,500 for training, validation and test. All counts are of subgraphs that need not be induced.

``random_graphs`` follows that recipe; the published graphs are read from the packed folder. The fourth column of the paper's table
is headed "chordal cycle", but its code counts 4-cycles there: both are targets here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

RECIPE = ((10, 6), (15, 6), (20, 5), (30, 5))
"""Nodes and degree of the regular graphs; as many edges as nodes are then removed."""
COUNT = 5000
SPLIT = {"train": 1500, "val": 1000, "test": 2500}
TARGETS = ("triangle", "tailed_triangle", "star", "cycle4", "chordal4")


def random_graphs(count: int = COUNT, seed: int = 0) -> list[np.ndarray]:
    """(n, n) adjacency matrices of ``count`` graphs."""
    generator = np.random.default_rng(seed)
    graphs = []
    for choice in generator.integers(len(RECIPE), size=count):
        nodes, degree = RECIPE[choice]
        adjacency = random_regular(nodes, degree, generator)
        edges = np.argwhere(np.triu(adjacency))
        removed = edges[generator.permutation(len(edges))[:nodes]]
        adjacency[removed[:, 0], removed[:, 1]] = adjacency[removed[:, 1], removed[:, 0]] = False
        graphs.append(adjacency)
    return graphs


def random_regular(nodes: int, degree: int, generator: np.random.Generator) -> np.ndarray:
    """(n, n) adjacency of a random regular graph, by pairing stubs.

    Every node has ``degree`` stubs; stubs are shuffled and paired, pairs that would make a loop or a repeated edge go back into
    the next shuffle, and the whole graph is begun anew when no remaining pair could be joined (Steger and Wormald 1999).
    """
    while True:
        adjacency = np.zeros((nodes, nodes), dtype=bool)
        stubs = np.repeat(np.arange(nodes), degree)
        while len(stubs):
            left = []
            for u, v in generator.permutation(stubs).reshape(-1, 2).tolist():
                if u == v or adjacency[u, v]:
                    left += [u, v]
                else:
                    adjacency[u, v] = adjacency[v, u] = True
            ends = np.unique(left)
            if len(ends) and (adjacency[np.ix_(ends, ends)] | np.eye(len(ends), dtype=bool)).all():
                break
            stubs = np.array(left, dtype=np.int64)
        if not len(stubs):
            return adjacency


def count_substructures(graphs: Sequence[np.ndarray]) -> np.ndarray:
    """(G, 5) counts in the order of ``TARGETS``, of graphs given by their adjacency; by closed formulas.

    With t(v) triangles at v, degrees d and c(u, v) common neighbours: triangles are Σ t / 3, tailed triangles Σ t (d - 2), stars
    Σ C(d, 3), 4-cycles (tr A⁴ - 4 Σ C(d, 2) - Σ d) / 8, chordal 4-cycles the sum over edges of C(c, 2).
    """
    counts = np.empty((len(graphs), len(TARGETS)), dtype=np.int64)
    sizes = np.array([len(adjacency) for adjacency in graphs])
    for size in np.unique(sizes):
        places = np.flatnonzero(sizes == size)
        a = np.stack([graphs[place] for place in places.tolist()]).astype(np.float64)
        common = a @ a
        degree = a.sum(2)
        triangles = (common * a).sum(2) / 2
        walks = (common**2).sum((1, 2))
        cycles = (walks - 2 * (degree * (degree - 1)).sum(1) - degree.sum(1)) / 8
        columns = (
            triangles.sum(1) / 3,
            (triangles * (degree - 2)).sum(1),
            (degree * (degree - 1) * (degree - 2) / 6).sum(1),
            cycles,
            (a * common * (common - 1) / 2).sum((1, 2)) / 2,
        )
        counts[places] = np.rint(np.stack(columns, axis=1)).astype(np.int64)
    return counts
