"""From tokens to graphs, nodes and pairs (appendix "Pooling")."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch_geometric.utils import scatter

from tuplet.models.block import make_activation
from tuplet.models.config import ModelConfig
from tuplet.tokens import Tuples


def pool(x: Tensor, rows: Tensor, count: int, how: str) -> Tensor:
    """Add, mean or max of the rows of ``x`` that go to each of ``count`` places, zero where none goes; sums in float32 or more."""
    wide = x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
    return scatter(wide, rows, dim=0, dim_size=count, reduce="sum" if how == "add" else how).to(x.dtype)


@dataclass(frozen=True)
class Prefixes:
    """How tuples fold into shorter ones, last entry first.

    Args:
        rows: for each fold t -> t - 1 the shorter tuple of each tuple.
        counts: how many shorter tuples there are.
        node: node of each tuple of length 1.
    """

    rows: tuple[Tensor, ...]
    counts: tuple[int, ...]
    node: Tensor

    @classmethod
    def prepare(cls, tuples: Tuples) -> Prefixes:
        graph = tuples.graph
        current = tuples.code(tuple(range(tuples.order)))
        rows, counts = [], []
        for length in range(tuples.order - 1, 0, -1):
            longer, shorter = Tuples.all(graph, length + 1).ptr, Tuples.all(graph, length).ptr
            owner = torch.searchsorted(longer, current, right=True) - 1
            prefix = shorter[owner] + (current - longer[owner]) // graph.n[owner]
            current, inverse = torch.unique(prefix, return_inverse=True)
            rows.append(inverse)
            counts.append(len(current))
        return cls(tuple(rows), tuple(counts), current)


class NodePooling(nn.Module):
    """Hierarchical pooling n^k -> n^(k-1) -> .. -> n over the last entry; the first entry is the node that remains.

    Each step maps tokens through a linear layer and an activation and pools them. A node that begins no sampled tuple
    keeps its first embedding.
    """

    def __init__(self, config: ModelConfig, order: int) -> None:
        super().__init__()
        self.how = config.pool
        self.steps = nn.ModuleList(
            nn.Sequential(nn.Linear(config.dim, config.dim), make_activation(config.activation))
            for _ in range(order - 1)
        )

    def forward(self, x: Tensor, first: Tensor, prefixes: Prefixes) -> Tensor:
        """(N, d) from tokens (T, d) and the nodes' first embeddings (N, d)."""
        for step, rows, count in zip(self.steps, prefixes.rows, prefixes.counts, strict=True):
            x = pool(step(x), rows, count, self.how)
        return first.index_copy(0, prefixes.node, x.to(first.dtype))


def make_head(config: ModelConfig, width: int) -> nn.Sequential:
    """width -> d/2 -> d/4 -> outputs."""
    half, quarter = max(1, config.dim // 2), max(1, config.dim // 4)
    return nn.Sequential(
        nn.Linear(width, half),
        make_activation(config.activation),
        nn.Linear(half, quarter),
        make_activation(config.activation),
        nn.Linear(quarter, config.outputs),
    )
