"""The one interface of attention patterns: who sees whom, once as a definition and once as a layout."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import torch
from torch import Tensor

from tuplet.patterns.fused import Fused, fuse
from tuplet.patterns.structure import Rows, Structure
from tuplet.tokens import Simplices, Tokens

Tuple = tuple[int, ...]
T = TypeVar("T", bound=Tokens)


@dataclass(frozen=True)
class PlainGraph:
    """One graph as Python sets, for definitions that are read rather than run fast."""

    n: int
    out: tuple[frozenset[int], ...]
    simplices: frozenset[Tuple] = frozenset()
    features: dict[tuple[int, int], Tuple] = field(default_factory=dict)
    """Categorical features of each edge, where edges have some."""

    @classmethod
    def split(cls, tokens: Tokens) -> list[PlainGraph]:
        """The graphs that tokens are taken from, with their complexes if the tokens are simplices."""
        graph = tokens.graph
        rowptr, col, ptr = graph.rowptr.tolist(), graph.col.tolist(), graph.ptr.tolist()
        complexes = tokens.complex.tolist() if isinstance(tokens, Simplices) else [[] for _ in graph.sizes]
        features: list[list[int]] = [[]] * graph.num_edges
        if graph.edge_attr is not None and not graph.edge_attr.is_floating_point():
            features = graph.edge_attr[: graph.num_edges].tolist()
        return [
            cls(
                n,
                tuple(frozenset(u - first for u in col[rowptr[v] : rowptr[v + 1]]) for v in range(first, first + n)),
                frozenset(simplex for level in levels for simplex in level),
                {
                    (v - first, col[edge] - first): tuple(features[edge])
                    for v in range(first, first + n)
                    for edge in range(rowptr[v], rowptr[v + 1])
                },
            )
            for n, first, levels in zip(graph.sizes, ptr, complexes, strict=False)
        ]


@dataclass(frozen=True)
class Kept:
    """What a pattern has found out about the tokens of many graphs, each for itself: no number refers to another graph.

    Args:
        counts: (G,) rows of each graph.
        rows: columns of the rows, which stand graph after graph.
        tokens: columns of the tokens.
    """

    counts: Tensor
    rows: dict[str, Tensor]
    tokens: dict[str, Tensor]


class Pattern(ABC, Generic[T]):
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
    def layout(self, queries: T, keys: T, group: int, typed: bool, skip_self: bool = False) -> Structure:
        """The same for a whole batch. ``typed``: types are wanted. ``skip_self``: leave out the pair of a token with itself."""

    def layouts(self, queries: T, keys: T, typed: bool, joint: bool) -> tuple[Structure, ...]:
        """The layouts of all groups. ``joint``: in one softmax the token itself is one key, not one key a group."""
        return tuple(
            self.layout(queries, keys, group, typed, joint and self.shared_self and group > 0)
            for group in range(self.groups)
        )

    def fused(self, queries: T, keys: T, typed: bool, joint: bool) -> tuple[Structure | Fused, ...]:
        """The layouts for fused kernels: all groups in one structure; where they share a softmax lists of keys, each with types of its
        own, are one structure too, and all else is one a group."""
        groups = self.layouts(queries, keys, typed, joint)
        lists = not self.shared_self and all(isinstance(group, Rows) for group in groups)
        if joint and not lists:
            return tuple(part for group in groups for part in fuse((group,), keys.total))
        return fuse(groups, keys.total, joint)

    def keep(self, tokens: T, typed: bool) -> Kept | None:
        """What ``fused`` would find out about tokens by way of the host, to be kept; None where there is nothing of the kind.

        Tokens of some of these graphs have it in ``Simplices.kept``: the columns of rows and tokens, "owner" (the graph of
        each row) and "start" (the first row of each graph).
        """
        return None

    def name(self, group: int) -> str:
        """What a group is called where people read it."""
        return f"{type(self).__name__} {group}"

    @abstractmethod
    def count_pairs(self, queries: T, keys: T) -> int:
        """Pairs in all groups, without making them; an upper bound for samples."""

    def values(self, tokens: T) -> Tensor | None:
        """The numbers that types stand for, where they stand for numbers; None where each type has a learned one."""
        return None


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


def define(pattern: Pattern[T], queries: T, keys: T, group: int, skip_self: bool = False) -> DefinedPairs:
    """Walk through all queries and write down their keys; keys that are no tokens (outside a sample) do not exist."""
    plain = PlainGraph.split(queries)
    number = {key: token for token, key in enumerate(keys.tolist())}
    rows = [
        (token, number[graph, key], kind)
        for token, (graph, query) in enumerate(queries.tolist())
        for key, kind in pattern.keys(query, group, plain[graph])
        if (graph, key) in number and not (skip_self and key == query)
    ]
    table = torch.tensor(rows, dtype=torch.long, device=queries.device).reshape(-1, 3)
    return DefinedPairs(table[:, 0], table[:, 1], table[:, 2], queries.total, keys.total)
