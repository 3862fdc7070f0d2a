"""What a pair of tokens itself says: small integers, computed for the pairs at hand and never stored for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import prod

import torch
from torch import Tensor

from tuplet.graphs import GraphBatch
from tuplet.graphs.memory import remembered
from tuplet.tokens import Tokens

SELF, NOT_ADJACENT, ADJACENT, ONLY_IN, BOTH_WAYS = range(5)
"""Types of the pair (i_j, u) in Ngbh+; the last two occur in directed graphs, where ADJACENT means i_j -> u alone."""


@dataclass(frozen=True)
class EdgeKinds:
    """What kinds of edges there are: the combinations of some of their categorical features, or one kind of all.

    Args:
        types: number of values of each feature that counts.
        columns: where these stand among all features of an edge.
    """

    types: tuple[int, ...] = ()
    columns: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        return prod(self.types)

    def number(self, features: Sequence[int]) -> int:
        """The kind of an edge with these features."""
        kind = 0
        for column, count in zip(self.columns, self.types, strict=True):
            kind = kind * count + features[column]
        return kind

    def of_edges(self, graph: GraphBatch) -> Tensor:
        """(E,) int8 kinds of the edges of a batch."""
        kinds = torch.zeros(graph.num_edges, dtype=torch.int8, device=graph.device)
        if graph.edge_attr is not None:
            for column, count in zip(self.columns, self.types, strict=True):
                kinds = kinds * count + graph.edge_attr[: graph.num_edges, column].to(torch.int8)
        return kinds


ONE_KIND = EdgeKinds()
"""Edges that are all alike, whatever their features."""


def adjacency_types(directed: bool, kinds: int) -> int:
    """How many types ``adjacency_matrix`` uses: adjacent pairs have as many as there are kinds of edges, for each direction."""
    return ADJACENT + kinds * (3 if directed else 1)


@remembered
def adjacency_matrix(tokens: Tokens, kinds: EdgeKinds | None) -> tuple[Tensor, Tensor]:
    """The types of all ordered pairs of nodes, graph after graph: (sum of n², ) int8, and (G,) where each graph begins.

    With B kinds of edges those of ADJACENT are followed by those of ONLY_IN and of BOTH_WAYS, whose edge is the one from i_j;
    with None edges have no say. There is one matrix for all groups that ask, and it lives as long as the tokens do.
    """
    graph = tokens.graph
    start = graph.offsets(2)[:-1]
    matrix = torch.full((graph.total(2),), NOT_ADJACENT, dtype=torch.int8, device=graph.device)
    if kinds is not None:
        _write_edges(matrix, graph, kinds)
    return matrix.index_fill_(0, graph.node_pairs, SELF), start


def _write_edges(matrix: Tensor, graph: GraphBatch, kinds: EdgeKinds) -> None:
    own, count = ADJACENT + kinds.of_edges(graph), kinds.count
    if graph.directed:
        matrix[graph.pair_number(graph.col, graph.row)] = own + (ONLY_IN - ADJACENT) * count
        both = graph.edge_number(graph.col, graph.row) >= 0
        own = torch.where(both, own + (BOTH_WAYS - ADJACENT) * count, own)
    matrix[graph.edge_pairs] = own


@dataclass(frozen=True)
class TypeMatrix:
    """Types kept for all ordered pairs of something that a token has one of.

    In a line along axis j that is the node i_j, and the type of (i, ψ_j(i, u)) is adj(i_j, u) (δ-k-WL, section 4.2); in a
    line of all simplices of a graph it is the simplex itself.

    Args:
        matrix: types of all ordered pairs, graph after graph, flat.
        start: (L,) where the matrix of the line's graph begins.
        size: (L,) rows of that matrix.
        entry: (T,) row of each token; empty where that is its place in the line.
    """

    matrix: Tensor
    start: Tensor
    size: Tensor
    entry: Tensor

    def types(self, lines: slice, query: Tensor, key: Tensor, query_place: Tensor, key_place: Tensor) -> Tensor:
        """(B, q, k) types for tokens ``query`` (B, q) and ``key`` (B, k) at the given places of their lines."""
        a = self.entry[query] if self.entry.numel() else query_place[None]
        u = self.entry[key] if self.entry.numel() else key_place[None]
        size = self.size[lines, None, None]
        limit = size - 1  # padded places read some pair of the graph; their scores are masked
        row = torch.minimum(a[:, :, None], limit)
        return self.matrix[self.start[lines, None, None] + row * size + torch.minimum(u[:, None, :], limit)].long()


@dataclass(frozen=True)
class Equality:
    """The equality pattern of query and key: which of their k1 + k2 entries are the same node (the basis of k-IGN).

    There are bell(k1 + k2) of them. A line is a whole graph.

    Args:
        codes: sorted codes of all patterns.
        size: (L,) n of the line's graph.
        query_nodes: (T1, k1) entries of the queries, empty for all tuples.
        key_nodes: (T2, k2) entries of the keys, empty for all tuples.
        orders: k1 and k2.
    """

    codes: Tensor
    size: Tensor
    query_nodes: Tensor
    key_nodes: Tensor
    orders: tuple[int, int]

    def types(self, lines: slice, query: Tensor, key: Tensor, query_place: Tensor, key_place: Tensor) -> Tensor:
        """(B, q, k) types, as ``TypeMatrix.types``."""
        left = self._entries(self.query_nodes, self.orders[0], query, query_place, lines)
        right = self._entries(self.key_nodes, self.orders[1], key, key_place, lines)
        values = [value[:, :, None] for value in left] + [value[:, None, :] for value in right]
        code = torch.zeros((), dtype=torch.long, device=query.device)
        for place, value in enumerate(values):
            first = torch.full((), place, device=query.device)
            for earlier in range(place - 1, -1, -1):
                first = torch.where(value == values[earlier], earlier, first)
            code = code * (place + 1) + first
        return torch.searchsorted(self.codes, code.expand(query.shape[0], query.shape[1], key.shape[1]).contiguous())

    def _entries(self, nodes: Tensor, order: int, token: Tensor, place: Tensor, lines: slice) -> list[Tensor]:
        if nodes.numel():
            return [nodes[token, axis] for axis in range(order)]
        size = self.size[lines, None]
        return [place[None] // size ** (order - 1 - axis) % size for axis in range(order)]


def bell(places: int) -> int:
    """How many partitions a set of so many elements has, by the Bell triangle: equality patterns of so many places."""
    row = [1]
    for _ in range(places):
        row = list(accumulate([row[-1], *row]))
    return row[0]


@lru_cache(maxsize=16)
def equality_patterns(places: int) -> tuple[tuple[int, ...], ...]:
    """All bell(places) equality patterns, each as the first place that holds the same value as each place."""
    patterns: list[tuple[int, ...]] = [()]
    for place in range(places):
        patterns = [
            (*pattern, first)
            for pattern in patterns
            for first in [*(p for p in range(place) if pattern[p] == p), place]
        ]
    return tuple(patterns)


def equality_code(pattern: tuple[int, ...]) -> int:
    """The number of an equality pattern: ``Equality`` computes the same one for all pairs of a tile at once."""
    code = 0
    for place, first in enumerate(pattern):
        code = code * (place + 1) + first
    return code


@lru_cache(maxsize=16)
def equality_codes(places: int) -> tuple[int, ...]:
    """Sorted codes of the equality patterns; a pattern's type is the position of its code."""
    return tuple(sorted(equality_code(pattern) for pattern in equality_patterns(places)))
