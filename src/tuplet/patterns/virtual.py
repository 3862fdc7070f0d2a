"""Virtual tuple and virtual simplex attention, A_k^VT and AS^VS (section 4.2): m tokens a graph that see all and are seen by all."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from tuplet.graphs import GraphBatch
from tuplet.patterns.base import DefinedPairs
from tuplet.patterns.dense import whole_graphs
from tuplet.patterns.structure import Lines
from tuplet.tokens import Tokens


@dataclass(frozen=True)
class Virtual(Tokens):
    """m virtual tokens for each graph; they stand for no nodes."""

    @classmethod
    def make(cls, graph: GraphBatch, virtual: int) -> Virtual:
        ptr = virtual * torch.arange(graph.num_graphs + 1, device=graph.device)
        return cls(graph, ptr, virtual * graph.num_graphs, virtual)

    @cached_property
    def graph_of_token(self) -> Tensor:
        return torch.arange(self.total, device=self.device) // max(self.longest, 1)

    def tolist(self) -> list[tuple[int, tuple[int, ...]]]:
        return [(owner, ()) for owner in self.graph_of_token.tolist()]


def virtual_layout(queries: Tokens, keys: Tokens) -> Lines:
    """Lines in which the tokens of a graph see those of another kind; one of the two kinds is virtual."""
    return Lines(whole_graphs(queries), whole_graphs(keys), (queries.longest, keys.longest))


def virtual_pairs(queries: Tokens, keys: Tokens) -> DefinedPairs:
    """The definition of ``virtual_layout``, pair by pair."""
    together: Tensor = queries.graph_of_token[:, None] == keys.graph_of_token[None]
    query, key = together.nonzero().unbind(1)
    return DefinedPairs(query, key, torch.zeros_like(query), queries.total, keys.total)
