"""Random walks on nodes: return probabilities (RWSE) and relative probabilities of pairs (RRWP).

One step is P = D⁻¹ A. In a directed graph the walk follows the edges; where none leaves, it ends (a row of zeros in P). So
an isolated node, and a graph without edges, has zero probability of being anywhere after one step or more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from tuplet.encodings.base import Encoding, Level, expect_flag, expect_positive, resolve
from tuplet.encodings.blocks import (
    adjacency_blocks,
    pair_counts,
    pair_rows,
    return_probabilities,
    room_for,
    walk_matrix,
)
from tuplet.encodings.layers import RowEncoder
from tuplet.graphs import GraphBatch


@dataclass(frozen=True)
class RWSE(Encoding):
    """Random-walk structural encoding: (P_vv, (P²)_vv, .., (P^S)_vv), batch norm and a linear map.

    Dwivedi et al., "Graph Neural Networks with Learnable Structural and Positional Representations" (ICLR 2022).

    Args:
        steps: S.
        width: of the encoded vector.
        norm: batch norm of the raw probabilities, as in GPS.
    """

    steps: int = 20
    width: int = 28
    norm: bool = True
    level: ClassVar[Level] = "node"

    def __post_init__(self) -> None:
        expect_positive(steps=self.steps, width=self.width)
        expect_flag(norm=self.norm)

    @property
    def fields(self) -> tuple[str, ...]:
        return (f"pe_rwse_{self.steps}",)

    def rows(self, graph: GraphBatch) -> dict[str, tuple[int, ...]]:
        return {self.fields[0]: graph.sizes}

    def compute(self, graph: GraphBatch, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
        """(N, S): column s - 1 is the diagonal of P^s."""
        out = room_for(self, (graph.num_nodes, self.steps), graph.sizes, resolve(dtype), graph.device)
        for _, nodes, adjacency in adjacency_blocks(graph, directed=True):
            out[nodes] = return_probabilities(walk_matrix(adjacency), self.steps).to(out.dtype)
        return {self.fields[0]: out}

    def encoder(self) -> nn.Module:
        return RowEncoder(self.fields[0], self.steps, self.width, self.norm, order=1)


@dataclass(frozen=True)
class RRWP(Encoding):
    """Relative random-walk probabilities of ordered pairs: (I, P, P², .., P^(slots-1))_ij and a linear map.

    Ma et al., "Graph Inductive Biases in Transformers without Message Passing" (GRIT, ICML 2023). Slot s holds P^s.

    Args:
        slots: how many powers, the zeroth included.
        width: of the encoded vector.
        norm: batch norm of the raw probabilities.
    """

    slots: int = 21
    width: int = 21
    norm: bool = False
    level: ClassVar[Level] = "pair"

    def __post_init__(self) -> None:
        expect_positive(slots=self.slots, width=self.width)
        expect_flag(norm=self.norm)

    @property
    def fields(self) -> tuple[str, ...]:
        return (f"pe_rrwp_{self.slots}",)

    def rows(self, graph: GraphBatch) -> dict[str, tuple[int, ...]]:
        return {self.fields[0]: pair_counts(graph)}

    def compute(self, graph: GraphBatch, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
        """(Σ n², slots)."""
        out = room_for(self, (sum(pair_counts(graph)), self.slots), graph.sizes, resolve(dtype), graph.device)
        for graphs, nodes, adjacency in adjacency_blocks(graph, directed=True):
            n = nodes.shape[1]
            step, rows = walk_matrix(adjacency), pair_rows(graph, graphs, n)
            power = torch.eye(n, dtype=step.dtype, device=step.device).expand_as(step)
            for slot in range(self.slots):  # one after another: all powers in float64 are twice the result
                power = power @ step if slot else power
                out[rows, slot] = power.flatten(1).to(out.dtype)
        return {self.fields[0]: out}

    def encoder(self) -> nn.Module:
        return RowEncoder(self.fields[0], self.slots, self.width, self.norm, order=2)

    def held(self, graph: GraphBatch) -> tuple[int, int]:
        # a norm keeps rows before and after its scale, and which of them count
        return (graph.total(2) * (2 * self.slots + 2) * self.norm,) * 2
