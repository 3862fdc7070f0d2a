"""Degrees of nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from tuplet.encodings.base import Encoding, Level, expect_positive
from tuplet.graphs import GraphBatch
from tuplet.kernels import take


@dataclass(frozen=True)
class DEG(Encoding):
    """Degree of a node: z_v = E⁺[deg⁺(v)] + E⁻[deg⁻(v)], two learned tables for out- and in-degree.

    Ying et al., "Do Transformers Really Perform Bad for Graph Representation?" (NeurIPS 2021), centrality encoding. In an
    undirected graph both degrees are the degree. Self loops do not count.

    Args:
        limit: degrees from here on share one entry.
        width: of the encoded vector.
    """

    limit: int = 64
    width: int = 16
    level: ClassVar[Level] = "node"
    matrices: ClassVar[int] = 0

    def __post_init__(self) -> None:
        expect_positive(limit=self.limit, width=self.width)

    @property
    def fields(self) -> tuple[str, ...]:
        return ("pe_degree",)

    def rows(self, graph: GraphBatch) -> dict[str, tuple[int, ...]]:
        return {"pe_degree": graph.sizes}

    def compute(self, graph: GraphBatch, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
        """(N, 2) out- and in-degrees, int64."""
        return {"pe_degree": graph.degrees().expand(-1, 2).contiguous()}

    def encoder(self) -> nn.Module:
        return DegreeEncoder(self)


class DegreeEncoder(nn.Module):
    """(N, width) from (N, 2) degrees."""

    by_rows = True

    def __init__(self, encoding: DEG) -> None:
        super().__init__()
        self.limit = encoding.limit
        self.tables = nn.ModuleList(nn.Embedding(encoding.limit + 1, encoding.width) for _ in range(2))

    def forward(self, raw: Mapping[str, Tensor], graph: GraphBatch) -> Tensor:
        degrees = raw["pe_degree"].long().clamp(0, self.limit)
        out, into = (table.weight for table in self.tables if isinstance(table, nn.Embedding))
        return take(out, degrees[:, 0]) + take(into, degrees[:, 1])
