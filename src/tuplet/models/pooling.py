"""From tokens to graphs, nodes and pairs (appendix "Pooling")."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.utils import scatter

from tuplet.attention.weights import narrow, own_precision, wide
from tuplet.kernels import Lists, add_up, listed, take
from tuplet.models.block import make_activation
from tuplet.models.config import ModelConfig
from tuplet.tokens import Simplices, Tuples


def pool(x: Tensor, rows: Tensor | Lists, count: int, how: str) -> Tensor:
    """Add, mean or max of the rows of ``x`` that go to each of ``count`` places, zero where none goes; in float32 or more."""
    if isinstance(rows, Lists):
        if how != "max":
            sums = add_up(x.to(wide(x.dtype)), rows)
            return sums if how == "add" else sums / (rows.end - rows.begin).clamp_min(1).to(sums.dtype)[:, None]
        rows = rows.rows
    return scatter(x.to(wide(x.dtype)), rows, dim=0, dim_size=count, reduce="sum" if how == "add" else how)


@dataclass(frozen=True)
class Prefixes:
    """How tuples fold into shorter ones, last entry first.

    Args:
        rows: for each fold t -> t - 1 the shorter tuple of each tuple; on a GPU with lists, so that sums repeat.
        counts: how many shorter tuples there are.
        node: node of each tuple of length 1.
    """

    rows: tuple[Tensor | Lists, ...]
    counts: tuple[int, ...]
    node: Tensor

    @classmethod
    def prepare(cls, tuples: Tuples) -> Prefixes:
        graph = tuples.graph
        current = tuples.code(tuple(range(tuples.order)))
        rows: list[Tensor | Lists] = []
        counts = []
        for length in range(tuples.order - 1, 0, -1):
            longer, shorter = Tuples.all(graph, length + 1).ptr, Tuples.all(graph, length).ptr
            owner = torch.searchsorted(longer, current, right=True) - 1
            prefix = shorter[owner] + (current - longer[owner]) // graph.n[owner]
            current, inverse = torch.unique(prefix, return_inverse=True)
            rows.append(listed(inverse, len(current)))
            counts.append(len(current))
        return cls(tuple(rows), tuple(counts), current)


@dataclass(frozen=True)
class Incidence:
    """Which simplices a node lies in.

    Args:
        token, node: (M,) each, one entry for each node of each simplex; on a GPU with lists, so that sums repeat.
    """

    token: Tensor | Lists
    node: Tensor | Lists

    @classmethod
    def prepare(cls, tokens: Simplices) -> Incidence:
        token, node = [], []
        for k in range(tokens.low, tokens.high + 1):
            rows = tokens.complex.simplices[k]
            first = tokens.first(k)
            numbers = torch.arange(first, first + len(rows), device=rows.device)
            token.append(numbers.repeat_interleave(k + 1))
            node.append(rows.reshape(-1))
        return cls(listed(torch.cat(token), tokens.total), listed(torch.cat(node), tokens.graph.num_nodes))


class SimplexPooling(nn.Module):
    """Nodes where none of the tokens is a node: their first embedding plus what is pooled of the simplices they lie in.

    A linear layer and an activation come before the pooling. A node in no simplex keeps its first embedding.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.how = config.pool
        self.step = nn.Sequential(nn.Linear(config.dim, config.dim), make_activation(config.activation))

    def forward(self, x: Tensor, first: Tensor, incidence: Incidence) -> Tensor:
        """(N, d) from tokens (T, d) and the nodes' first embeddings (N, d)."""
        inside = take(self.step(x), incidence.token)
        pooled = narrow(pool(inside, incidence.node, len(first), self.how), first.dtype)
        return first + pooled


class NodePooling(nn.Module):
    """Hierarchical pooling n^k -> n^(k-1) -> .. -> n over the last entry; the first entry is the node that remains.

    Each step maps tokens through a linear layer and an activation and pools them. A node that begins no sampled tuple
    keeps its first embedding, even if it stands at a later place of one.
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
            x = narrow(pool(step(x), rows, count, self.how), x.dtype)
        return first.index_copy(0, prefixes.node, x.to(first.dtype))


class Head(nn.Module):
    """width -> d/2 -> d/4 -> outputs, in float32 or more: a pooled sum may exceed what a narrow type holds.

    Sums over the tokens of a graph come in units of ``config.pool_unit``.
    """

    def __init__(self, config: ModelConfig, width: int) -> None:
        super().__init__()
        widths = [width, max(1, config.dim // 2), max(1, config.dim // 4), config.outputs]
        self.layers = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(widths))
        self.activation = make_activation(config.activation)
        self.unit = config.pool_unit if config.task == "graph" and config.pool == "add" else 1.0

    def forward(self, x: Tensor) -> Tensor:
        linears = [layer for layer in self.layers if isinstance(layer, nn.Linear)]
        with own_precision(x):
            x = x.to(wide(x.dtype)) if self.unit == 1 else x.to(wide(x.dtype)) / self.unit
            for number, layer in enumerate(linears):
                x = F.linear(self.activation(x) if number else x, layer.weight.to(x.dtype), layer.bias.to(x.dtype))
        return narrow(x, linears[0].weight.dtype)
