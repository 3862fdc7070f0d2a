"""A batch of fixed shapes: real graphs, then one graph of padding that takes up the rest."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from tuplet.graphs.batch import GraphBatch
from tuplet.graphs.memory import remembered


@dataclass(frozen=True)
class PaddedBatch(GraphBatch):
    """A batch whose tensors have shapes that do not depend on its graphs, so that one recording of a step fits many batches.

    The last graph is padding. It counts as a graph with one node, whatever its share of the nodes and tuples: every tuple of
    it stands for its first node, as does every simplex of it; its edges belong to its last node. Nothing of it reaches another graph,
    and batch norms leave it out (``Tokens.live``). ``sizes`` is empty: the host does not know them.

    Args:
        room: for k = 0, 1, .. how many k-tuples there are, padding included; ``room[0]`` is the number of graphs.
        bound: no graph has more nodes.
        edge_simplex: (E,) 1-simplex of each edge, where 1-simplices came with the batch and a model reads it.
    """

    room: tuple[int, ...] = ()
    bound: int = 1
    edge_simplex: Tensor | None = None

    @property
    def padded(self) -> bool:
        return True

    @property
    def largest(self) -> int:
        return self.bound

    @cached_property
    def n(self) -> Tensor:
        return torch.cat([self.ptr[:-1].diff(), self.ptr.new_ones(1)])

    def total(self, order: int) -> int:
        return self.room[order]

    @remembered
    def offsets(self, order: int) -> Tensor:
        ends = (self.n[:-1] ** order).cumsum(0)
        return torch.cat([ends.new_zeros(1), ends, ends.new_full((1,), self.room[order])])

    @cached_property
    def place_of_node(self) -> Tensor:
        owner = self.graph_of_node
        place = torch.arange(self.num_nodes, device=self.device) - self.ptr[owner]
        return torch.where(owner < self.num_graphs - 1, place, 0)
