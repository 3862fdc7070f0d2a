"""Circular skip links (Table 2 of the paper): ten graphs that 1-WL cannot tell apart, fifteen copies each.

A class is the circulant graph C41(1, s): a circle of 41 nodes whose node i is also linked to i + s and i - s. Every
graph is 4-regular, so the classes differ only in how far a link leaps. The copies of a class are the same graph with
its nodes renumbered at random.

From Murphy et al., "Relational Pooling for Graph Representations" (ICML 2019); split into five folds as in Dwivedi et
al., "Benchmarking Graph Neural Networks" (JMLR 2023). The graphs are generated; nothing is downloaded.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data

CSL_NODES = 41
CSL_SKIPS = (2, 3, 4, 5, 6, 9, 11, 12, 13, 16)
COPIES = 15
FOLDS = 5


@dataclass(frozen=True)
class Fold:
    """One split of a data set: positions of its graphs for training, validation and test."""

    train: list[int]
    val: list[int]
    test: list[int]


def csl(seed: int = 0) -> list[Data]:
    """150 graphs of 41 nodes, ordered by class; ``y`` is the class 0..9, that is the place of its skip in ``CSL_SKIPS``.

    Args:
        seed: of the random numberings of the nodes.
    """
    generator = torch.Generator().manual_seed(seed)
    graphs = []
    for label, skip in enumerate(CSL_SKIPS):
        circulant = _circulant(skip)
        for _ in range(COPIES):
            names = torch.randperm(CSL_NODES, generator=generator)
            graphs.append(Data(edge_index=names[circulant], y=torch.tensor([label]), num_nodes=CSL_NODES))
    return graphs


def _circulant(skip: int) -> Tensor:
    """(2, 164) edges of C41(1, skip), both directions."""
    node = torch.arange(CSL_NODES)
    ends = [(node + step) % CSL_NODES for step in (1, -1, skip, -skip)]
    return torch.stack([node.repeat(len(ends)), torch.cat(ends)])


def csl_folds(seed: int = 0) -> list[Fold]:
    """Five stratified folds, 9/3/3 graphs of every class for training, validation and test; the tests partition the set.

    Args:
        seed: of the order in which the copies of a class are dealt out to the folds.
    """
    generator = torch.Generator().manual_seed(seed)
    orders = [
        (label * COPIES + torch.randperm(COPIES, generator=generator)).view(FOLDS, -1)
        for label in range(len(CSL_SKIPS))
    ]
    parts = [sorted(torch.cat([order[part] for order in orders]).tolist()) for part in range(FOLDS)]
    folds = []
    for test in range(FOLDS):
        val = (test + 1) % FOLDS
        train = sorted(graph for part in range(FOLDS) if part not in (test, val) for graph in parts[part])
        folds.append(Fold(train, parts[val], parts[test]))
    return folds
