"""A batch of fixed shapes: real graphs, then one graph of padding that takes up the rest."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from tuplet.graphs.batch import GraphBatch
from tuplet.graphs.memory import remembered
from tuplet.kernels import lay_out


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
        sizes = self.ptr.diff()
        sizes[-1:] = 1
        return sizes

    def total(self, order: int) -> int:
        return self.room[order]

    @remembered
    def _laid_out(self, order: int) -> tuple[Tensor, Tensor, Tensor]:
        """Where the tuples of each graph begin; of each tuple the graph, and the number within it, 0 for padding."""
        return lay_out(self.n[:-1], order, self.room[order])

    def offsets(self, order: int) -> Tensor:
        return self.ptr if order == 1 else self._laid_out(order)[0]

    def spread(self, order: int) -> tuple[Tensor, Tensor]:
        if order == 1:
            return self.graph_of_node, self.place_of_node
        return self._laid_out(order)[1:]

    @cached_property
    def place_of_node(self) -> Tensor:
        owner = self.graph_of_node
        place = torch.arange(self.num_nodes, device=self.device) - self.ptr[owner]
        return torch.where(owner < self.num_graphs - 1, place, 0)
