"""GatedGCN: message passing with a gate a channel, in which edges have a state of their own."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tuplet.models.baselines.config import BaselineConfig
from tuplet.models.baselines.prepared import PreparedGraphs
from tuplet.models.block import make_activation, make_norm
from tuplet.models.pooling import pool

EPSILON = 1e-6
"""Added to the sum of gates, which is 0 at a node without edges."""


class GatedGCNLayer(nn.Module):
    r"""Bresson and Laurent 2017, as in Dwivedi et al., "Benchmarking graph neural networks" (2023).

        ê_uv = D x_u + E x_v + C e_uv                                        for an edge from u to v
        x_v ← x_v + D(σ(N(A x_v + Σ_u s(ê_uv) ⊙ B x_u / (Σ_u s(ê_uv) + ε))))      s the sigmoid
        e_uv ← e_uv + D(σ(N(ê_uv)))

    Nothing reads the edges after the last layer, so it does not update them.

    Args:
        config: the options.
        last: whether this is the last layer.
    """

    def __init__(self, config: BaselineConfig, last: bool) -> None:
        super().__init__()
        dim = config.dim
        self.root, self.value, self.source, self.target, self.edge = (nn.Linear(dim, dim) for _ in range(5))
        self.norm = make_norm(config.norm or "none", dim)
        self.edge_norm = None if last else make_norm(config.norm or "none", dim)
        self.activation = make_activation(config.activation)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, e: Tensor | None, prepared: PreparedGraphs) -> tuple[Tensor, Tensor | None]:
        """Nodes (N, d) and edges (E, d) after the layer."""
        assert e is not None
        source, target = prepared.edge_index
        raw = F.embedding(source, self.source(x)) + F.embedding(target, self.target(x)) + self.edge(e)
        gate = torch.sigmoid(raw)
        messages = pool(gate * F.embedding(source, self.value(x)), target, len(x), "add")
        message = self.root(x) + messages / (pool(gate, target, len(x), "add") + EPSILON)
        x = x + self.dropout(self.activation(self.norm(message.to(x.dtype))))
        if self.edge_norm is None:
            return x, None
        return x, e + self.dropout(self.activation(self.edge_norm(raw)))
