"""The one interface of attention patterns: who sees whom, once as a definition and once as a layout."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from tuplet.graphs import GraphBatch
from tuplet.patterns.structure import Structure
from tuplet.tokens import Tuples

Tuple = tuple[int, ...]


@dataclass(frozen=True)
class PlainGraph:
    """One graph as Python sets, for definitions that are read rather than run fast."""

    n: int
    out: tuple[frozenset[int], ...]

    @classmethod
    def split(cls, graph: GraphBatch) -> list[PlainGraph]:
        rowptr, col, ptr = graph.rowptr.tolist(), graph.col.tolist(), graph.ptr.tolist()
        return [
            cls(n, tuple(frozenset(u - first for u in col[rowptr[v] : rowptr[v + 1]]) for v in range(first, first + n)))
            for n, first in zip(graph.sizes, ptr, strict=False)
        ]


class Pattern(ABC):
    """Who attends to whom, in one or several groups of keys.

    A query has one set of keys a group; each key carries the type of its pair. ``keys`` is the definition;
    ``layout`` says the same thing to the fast backends.
    """

    groups: int
    """How many sets of keys a query has."""
    types: int
    """How many types a pair within one group can have."""
    edge_types: tuple[int, ...] = ()
    """Which of the types say that an edge joins the nodes exchanged."""
    shared_self: bool = False
    """Whether the query itself is a key in every group, with type 0."""

    @abstractmethod
    def keys(self, query: Tuple, group: int, graph: PlainGraph) -> Iterator[tuple[Tuple, int]]:
        """The keys of ``query`` in ``group`` and the types of the pairs, straight from the definition."""

    @abstractmethod
    def layout(self, queries: Tuples, keys: Tuples, group: int, typed: bool, skip_self: bool = False) -> Structure:
        """The same for a whole batch. ``typed``: types are wanted. ``skip_self``: leave out the pair of a tuple with itself."""

    @abstractmethod
    def count_pairs(self, queries: tuple[int, ...], keys: tuple[int, ...], graph: GraphBatch, sampled: bool) -> int:
        """Pairs in all groups, from the numbers of tokens alone; an upper bound for samples."""


@dataclass(frozen=True)
class DefinedPairs:
    """The pairs of one group as lists: what ``reference`` works on.

    Args:
        query, key, type: (P,) each.
        queries, keys: numbers of tokens.
    """

    query: Tensor
    key: Tensor
    type: Tensor
    queries: int
    keys: int

    def pairs(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.query, self.key, self.type


def define(pattern: Pattern, queries: Tuples, keys: Tuples, group: int, skip_self: bool = False) -> DefinedPairs:
    """Walk through all queries and write down their keys; keys outside a sample do not exist."""
    rows: list[tuple[int, int, int]] = []
    first_query = first_key = 0
    for plain, some, others in zip(PlainGraph.split(queries.graph), queries.tolist(), keys.tolist(), strict=True):
        number = {key: first_key + position for position, key in enumerate(others)}
        for position, query in enumerate(some):
            for key, kind in pattern.keys(query, group, plain):
                if key in number and not (skip_self and key == query):
                    rows.append((first_query + position, number[key], kind))
        first_query, first_key = first_query + len(some), first_key + len(others)
    table = torch.tensor(rows, dtype=torch.long, device=queries.device).reshape(-1, 3)
    return DefinedPairs(table[:, 0], table[:, 1], table[:, 2], queries.total, keys.total)
