"""Neighbour attention A_k^Ngbh and A_k^Ngbh+ (section 4.2, equation of neighbour attention, and δ-k-WL)."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from tuplet.patterns.base import Pattern, PlainGraph, Tuple
from tuplet.patterns.relation import (
    ADJACENT,
    BOTH_WAYS,
    NOT_ADJACENT,
    ONE_KIND,
    ONLY_IN,
    SELF,
    EdgeKinds,
    TypeMatrix,
    adjacency_matrix,
    adjacency_types,
)
from tuplet.patterns.structure import Lines, Side
from tuplet.tokens import Tuples


class Neighbour(Pattern[Tuples]):
    """Group j of the tuple i: ψ_j(i, u) for all nodes u, where ψ_j replaces the j-th entry.

    Args:
        order: k.
        adjacency: Ngbh+, whose relation is adj(i_j, u); otherwise a pair's type says only whether it is the tuple itself.
        directed: tell i_j -> u from u -> i_j.
        kinds: of edges, which the types of adjacent pairs tell apart; one kind of all, as in the paper, unless others are named.
    """

    shared_self = True

    def __init__(
        self, order: int, adjacency: bool = False, directed: bool = False, kinds: EdgeKinds = ONE_KIND
    ) -> None:
        self.groups = order
        self.adjacency = adjacency
        self.directed = directed
        self.kinds = kinds
        self.types = adjacency_types(directed, kinds.count) if adjacency else 2
        self.edge_types = tuple(range(ADJACENT, self.types))

    def keys(self, query: Tuple, group: int, graph: PlainGraph) -> Iterator[tuple[Tuple, int]]:
        for u in range(graph.n):
            yield (*query[:group], u, *query[group + 1 :]), self._type(query[group], u, graph)

    def _type(self, a: int, u: int, graph: PlainGraph) -> int:
        if a == u:
            return SELF
        if not self.adjacency:
            return NOT_ADJACENT
        forth, back = u in graph.out[a], a in graph.out[u]
        if not forth and not back:
            return NOT_ADJACENT
        one = ADJACENT if not self.directed or not back else BOTH_WAYS if forth else ONLY_IN
        edge = (a, u) if forth else (u, a)
        return ADJACENT + (one - ADJACENT) * self.kinds.count + self.kinds.number(graph.features.get(edge, ()))

    def layout(self, queries: Tuples, keys: Tuples, group: int, typed: bool, skip_self: bool = False) -> Lines:
        side, owner = lines_along(queries, group)
        relation = None
        if typed:
            matrix, start = adjacency_matrix(queries, self.kinds if self.adjacency else None)
            entry = matrix.new_empty(0) if queries.nodes is None else queries.entry(group)
            relation = TypeMatrix(matrix, start[owner], queries.graph.n[owner], entry)
        return Lines(side, side, (queries.graph.largest,) * 2, relation, skip_self)

    def count_pairs(self, queries: Tuples, keys: Tuples) -> int:
        sizes = zip(queries.counts, queries.graph.sizes, strict=True)
        return self.groups * sum(tokens * min(n, tokens) for tokens, n in sizes)


def lines_along(tuples: Tuples, axis: int) -> tuple[Side, torch.Tensor]:
    """Lines of tuples that differ at ``axis`` alone, and the graph of each line.

    For all tuples a line is a stride; in a sample the lines are found by sorting.
    """
    graph = tuples.graph
    empty = graph.ptr.new_empty(0)
    if tuples.nodes is None:
        shorter = tuples.order - 1
        owner, line = graph.spread(shorter)
        stride, n = tuples.stride(axis)[owner], graph.n[owner]
        start = tuples.ptr[owner] + line // stride * stride * n + line % stride
        length = n * (owner < graph.num_graphs - 1) if graph.padded else n
        return Side(start, stride, length, empty), owner
    rest = tuple(place for place in range(tuples.order) if place != axis)
    codes, order = torch.sort(tuples.code(rest), stable=True)
    _, lengths = torch.unique_consecutive(codes, return_counts=True)
    start = lengths.cumsum(0) - lengths
    return Side(start, torch.ones_like(start), lengths, order), tuples.graph_of_token[order[start]]
