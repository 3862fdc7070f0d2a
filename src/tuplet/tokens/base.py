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
        counts: tokens of each graph, on the host.
        ptr: (G+1,) place of each graph's first token, when tokens stand graph after graph.
    """

    graph: GraphBatch
    counts: tuple[int, ...]
    ptr: Tensor

    @property
    def total(self) -> int:
        """T, the number of tokens in the batch."""
        return sum(self.counts)

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
        graphs = torch.arange(len(self.counts), device=self.device)
        return repeat(graphs, self.ptr[1:] - self.ptr[:-1], self.total)

    @abstractmethod
    def tolist(self) -> list[tuple[int, tuple[int, ...]]]:
        """For each token its graph and its nodes, numbered within the graph."""
