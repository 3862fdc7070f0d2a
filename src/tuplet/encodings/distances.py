"""Distances of ordered pairs of nodes: shortest paths and effective resistance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from torch import Tensor, nn

from tuplet.encodings.base import Encoding, Level, expect_positive, resolve
from tuplet.encodings.blocks import adjacency_blocks, pair_counts, pair_rows, room_for
from tuplet.encodings.layers import mlp
from tuplet.graphs import GraphBatch
from tuplet.kernels import take

UNREACHABLE = -1
"""What a shortest-path distance is where there is no path."""


@dataclass(frozen=True)
class SPD(Encoding):
    """Shortest-path distance d(i, j) of an ordered pair, as a learned vector a distance.

    Ying et al., "Do Transformers Really Perform Bad for Graph Representation?" (NeurIPS 2021), spatial encoding. Distances
    0..limit have a vector each, larger ones share one, and a pair without a path has one of its own. In a directed graph
    paths follow the edges.

    Args:
        limit: largest distance with a vector of its own.
        width: of the encoded vector.
    """

    limit: int = 20
    width: int = 16
    level: ClassVar[Level] = "pair"

    def __post_init__(self) -> None:
        expect_positive(limit=self.limit, width=self.width)

    @property
    def fields(self) -> tuple[str, ...]:
        return ("pe_spd",)

    def rows(self, graph: GraphBatch) -> dict[str, tuple[int, ...]]:
        return {"pe_spd": pair_counts(graph)}

    def compute(self, graph: GraphBatch, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
        """(Σ n², 1) distances, int32, -1 where there is no path."""
        out = room_for(self, (sum(pair_counts(graph)), 1), graph.sizes, torch.int32, graph.device)
        for graphs, nodes, adjacency in adjacency_blocks(graph, directed=True):
            n = nodes.shape[1]
            step = adjacency.float()  # sums of ones below 2^24 are exact
            front = torch.eye(n, dtype=torch.bool, device=graph.device).expand(step.shape).clone()
            distance = torch.where(front, 0, UNREACHABLE).int()
            for length in range(1, n):
                front = ((front.float() @ step) > 0) & (distance == UNREACHABLE)
                if not bool(front.any()):
                    break
                distance[front] = length
            out[pair_rows(graph, graphs, n)] = distance.flatten(1)[..., None]
        return {"pe_spd": out}

    def encoder(self) -> nn.Module:
        return DistanceEncoder(self)

    def held(self, graph: GraphBatch) -> tuple[int, int]:
        return (graph.total(2) * 2,) * 2  # rows of the table are integers of 8 bytes


class DistanceEncoder(nn.Module):
    """(Σ n², width): a row of a table for 0..limit, one for "further", one for "no path"."""

    by_rows = True

    def __init__(self, encoding: SPD) -> None:
        super().__init__()
        self.limit = encoding.limit
        self.table = nn.Embedding(encoding.limit + 3, encoding.width)

    def forward(self, raw: Mapping[str, Tensor], graph: GraphBatch) -> Tensor:
        distance = raw["pe_spd"][:, 0].long()
        rows = torch.where(distance == UNREACHABLE, self.limit + 2, distance.clamp(max=self.limit + 1))
        return take(self.table.weight, rows)


@dataclass(frozen=True)
class RD(Encoding):
    """Resistance distance R_ij = L⁺_ii + L⁺_jj - 2 L⁺_ij of a pair, through an MLP.

    Zhang et al., "Rethinking the Expressive Power of GNNs via Graph Biconnectivity" (ICLR 2023). L is the Laplacian of the
    underlying undirected graph. Between two components there is no current: such a pair has R = 0 and a flag that says so.

    Args:
        width: of the encoded vector.
    """

    width: int = 16
    level: ClassVar[Level] = "pair"
    positional: ClassVar[int] = 1
    matrices: ClassVar[int] = 9

    def __post_init__(self) -> None:
        expect_positive(width=self.width)

    @property
    def fields(self) -> tuple[str, ...]:
        return ("pe_resistance",)

    def rows(self, graph: GraphBatch) -> dict[str, tuple[int, ...]]:
        return {"pe_resistance": pair_counts(graph)}

    def compute(self, graph: GraphBatch, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
        """(Σ n², 2): resistance, and 1 where the pair is connected, 0 where it is not."""
        out = room_for(self, (sum(pair_counts(graph)), 2), graph.sizes, resolve(dtype), graph.device)
        component = _components(graph)
        for graphs, nodes, adjacency in adjacency_blocks(graph):
            label = component[nodes]
            together = (label[:, :, None] == label[:, None, :]).to(adjacency.dtype)
            # L + J, with J the projector onto the kernel of L (constants on components), inverts to L⁺ + J; J cancels in R
            matrix = torch.diag_embed(adjacency.sum(2)) - adjacency + together / together.sum(2, keepdim=True)
            inverse = torch.linalg.inv(matrix)
            diagonal = inverse.diagonal(dim1=1, dim2=2)
            resistance = diagonal[:, :, None] + diagonal[:, None, :] - inverse - inverse.mT
            resistance = (resistance * together).clamp_min(0)
            resistance.diagonal(dim1=1, dim2=2).zero_()
            rows = pair_rows(graph, graphs, nodes.shape[1])
            out[rows] = torch.stack([resistance, together], dim=3).flatten(1, 2).to(out.dtype)
        return {"pe_resistance": out}

    def encoder(self) -> nn.Module:
        return ResistanceEncoder(self)

    def held(self, graph: GraphBatch) -> tuple[int, int]:
        # what the MLP reads, and its hidden layer before and after the activation
        return (graph.total(2) * (2 + 4 * self.width),) * 2


class ResistanceEncoder(nn.Module):
    """(Σ n², width) from log(1 + R) and the flag."""

    by_rows = True

    def __init__(self, encoding: RD) -> None:
        super().__init__()
        self.mlp = mlp(2, 2 * encoding.width, encoding.width)

    def forward(self, raw: Mapping[str, Tensor], graph: GraphBatch) -> Tensor:
        x = raw["pe_resistance"].to(next(self.mlp.parameters()).dtype)
        return self.mlp(torch.stack([torch.log1p(x[:, 0]), x[:, 1]], dim=1))


def _components(graph: GraphBatch) -> Tensor:
    """(N,) number of each node's connected component, directions ignored."""
    row, col = graph.row.cpu().numpy(), graph.col.cpu().numpy()
    matrix = sparse.csr_array((np.ones(len(row), dtype=np.int8), (row, col)), shape=(graph.num_nodes, graph.num_nodes))
    return torch.from_numpy(connected_components(matrix, directed=False)[1]).to(graph.device)
