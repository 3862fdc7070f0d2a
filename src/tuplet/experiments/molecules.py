"""Random graphs with the sizes and degrees of ZINC's molecules, for measurements without any data."""

from __future__ import annotations

import torch
from torch_geometric.data import Data

from tuplet.datasets.packed import PackedGraphs
from tuplet.datasets.task import Task

SMALLEST, LARGEST, MEAN, DEVIATION = 9, 37, 23.2, 4.5
NODE_TYPES, EDGE_TYPES, MOST_BONDS = 28, 4, 4


def molecules(count: int, seed: int = 0) -> Task:
    """A regression task on ``count`` random molecules: trees of degree at most 4, with a ring closed for every eighth atom."""
    generator = torch.Generator().manual_seed(seed)
    return noise([_molecule(generator) for _ in range(count)])


def noise(graphs: list[Data]) -> Task:
    """The regression task on random molecules, whose targets are noise; they are packed, as those of data sets are."""
    every = torch.arange(len(graphs))
    split = {"train": every, "val": every[:1], "test": every[:1]}
    return Task(
        "random molecules", PackedGraphs.from_graphs(graphs), (split,), "graph", "regression", 1, "l1", "mae",
        node_types=(NODE_TYPES,), edge_types=(EDGE_TYPES,), targets=("noise",), origin="drawn at random",
    )  # fmt: skip


def _molecule(generator: torch.Generator) -> Data:
    size = MEAN + DEVIATION * float(torch.randn((), generator=generator))
    return molecule(int(min(LARGEST, max(SMALLEST, round(size)))), generator)


def molecule(n: int, generator: torch.Generator) -> Data:
    """One random molecule of n >= 2 atoms."""
    bonds: set[tuple[int, int]] = set()
    degree = [0] * n

    def join(u: int, v: int) -> None:
        if u != v and (min(u, v), max(u, v)) not in bonds and max(degree[u], degree[v]) < MOST_BONDS:
            bonds.add((min(u, v), max(u, v)))
            degree[u] += 1
            degree[v] += 1

    for v in range(1, n):
        open_atoms = [u for u in range(max(0, v - 4), v) if degree[u] < MOST_BONDS]
        join(open_atoms[int(torch.randint(len(open_atoms), (), generator=generator))], v)
    for _ in range(n // 8):
        first = int(torch.randint(max(1, n - 5), (), generator=generator))
        join(first, first + 5)
    pairs = torch.tensor(sorted(bonds)).t()
    kinds = torch.randint(EDGE_TYPES, (pairs.shape[1], 1), generator=generator)
    return Data(
        x=torch.randint(NODE_TYPES, (n, 1), generator=generator),
        edge_index=torch.cat([pairs, pairs.flip(0)], dim=1),
        edge_attr=torch.cat([kinds, kinds]),
        y=torch.randn(1, 1, generator=generator),
        num_nodes=n,
    )
