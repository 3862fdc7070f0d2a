"""What all kinds of tokens have in common: numbers, graph by graph."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from tuplet.graphs import GraphBatch, repeat


@dataclass(frozen=True)
class Tokens(ABC):
    """T tokens of a batch of graphs.

    Args:
        graph: the batch they are taken from.
        ptr: (G+1,) place of each graph's first token, when tokens stand graph after graph.
        total: T, the number of tokens in the batch.
        longest: no graph has more tokens.
    """

    graph: GraphBatch
    ptr: Tensor
    total: int
    longest: int

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Tokens of each graph, on the host."""
        return tuple(self.ptr.diff().tolist())

    @property
    def device(self) -> torch.device:
        return self.ptr.device

    @cached_property
    def by_graph(self) -> Tensor:
        """(T,) the token at each place when tokens stand graph after graph; empty where token and place are the same."""
        return self.ptr.new_empty(0)

    @cached_property
    def graph_of_token(self) -> Tensor:
        """(T,) graph of each token."""
        graphs = torch.arange(len(self.ptr) - 1, device=self.device)
        return repeat(graphs, self.ptr.diff(), self.total)

    @cached_property
    def live(self) -> Tensor | None:
        """(T,) which tokens are not padding; None where none is."""
        return self.graph_of_token < self.graph.num_graphs - 1 if self.graph.padded else None

    @abstractmethod
    def tolist(self) -> list[tuple[int, tuple[int, ...]]]:
        """For each token its graph and its nodes, numbered within the graph."""
