"""Cross neighbour attention A_{k1,k2}^Ngbh (appendix "Cross Attention"), for any two orders."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product

import torch
from torch import Tensor

from tuplet.patterns.base import Pattern, PlainGraph, Tuple
from tuplet.patterns.fused import Fused, FusedRows
from tuplet.patterns.structure import Lines, Rows, Side, Structure
from tuplet.tokens import Tuples

LONGEST = 256
"""Keys of a node up to which a kernel walks through them one query at a time; longer lines are cut into portions."""


class CrossNeighbour(Pattern[Tuples]):
    """Keys that contain the query, or are contained in it; one group a choice of places.

    k1 <= k2: the keys are the query with k2 - k1 nodes inserted, and group S is the choice of the k1 places where the
    query's entries sit. k1 > k2: the one key of group S is the query's sub-tuple at the k2 places S.
    """

    types = 1

    def __init__(self, query_order: int, key_order: int) -> None:
        self.query_order = query_order
        self.key_order = key_order
        longer, shorter = max(query_order, key_order), min(query_order, key_order)
        self.places = tuple(combinations(range(longer), shorter))
        self.groups = len(self.places)

    def keys(self, query: Tuple, group: int, graph: PlainGraph) -> Iterator[tuple[Tuple, int]]:
        places = self.places[group]
        if self.query_order > self.key_order:
            yield tuple(query[place] for place in places), 0
            return
        for free in product(range(graph.n), repeat=self.key_order - self.query_order):
            inserted, kept = iter(free), iter(query)
            yield tuple(next(kept if place in places else inserted) for place in range(self.key_order)), 0

    def layout(self, queries: Tuples, keys: Tuples, group: int, typed: bool, skip_self: bool = False) -> Lines | Rows:
        places = self.places[group]
        if self.query_order > self.key_order:
            query = torch.arange(queries.total, device=queries.device)
            return Rows.of(query, queries.code(places), queries.total)
        bounds, order = self._sorted_keys(queries, keys, places)
        start, lengths = bounds[:-1], bounds.diff()
        one, empty = torch.ones_like(start), start.new_empty(0)
        query_side = Side(torch.arange(queries.total, device=queries.device), one, one, empty)
        longest = queries.graph.largest ** (self.key_order - self.query_order)
        return Lines(query_side, Side(start, one, lengths, order), (1, longest))

    def fused(self, queries: Tuples, keys: Tuples, typed: bool, joint: bool) -> tuple[Structure | Fused, ...]:
        longest = queries.graph.largest ** (self.key_order - self.query_order)
        every = queries.nodes is None and keys.nodes is None
        if self.query_order > 1 or self.key_order < 2 or not every or longest > LONGEST:
            return super().fused(queries, keys, typed, joint)
        number, empty = torch.arange(keys.total, device=keys.device), keys.ptr.new_empty(0)
        last = number + 1 if keys.live is None else number + keys.live
        first = keys.total * torch.arange(self.groups, device=keys.device)[:, None]
        order = torch.cat([keys.by_entry(group) if group else number for group in range(self.groups)])
        owner = torch.cat([keys.node(group) for group in range(self.groups)])
        begin, end = keys.node_bounds
        ways = (first + begin, first + end, order, empty), (first + number, first + last, owner, empty)
        return (FusedRows(*ways[0], *ways[1], empty, empty, self.groups, (longest, 1), joint),)

    @staticmethod
    def _sorted_keys(queries: Tuples, keys: Tuples, places: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Bounds of each query's keys, and the keys by the query they contain, so that these are one stretch.

        Padding, which by arithmetic is nowhere, belongs to the last query.
        """
        if len(places) == 1 and keys.nodes is None and queries.nodes is None:
            order = torch.arange(keys.total, device=keys.device)
            if places[0]:
                moved = keys.by_entry(places[0])
                order = moved if keys.live is None else torch.where(keys.live, moved, order)
            return torch.cat([keys.node_bounds[0], keys.ptr[-1:]]), order
        codes, order = torch.sort(keys.code(places), stable=True)
        return torch.searchsorted(codes, torch.arange(queries.total + 1, device=queries.device)), order

    def count_pairs(self, queries: Tuples, keys: Tuples) -> int:
        return self.groups * max(queries.total, keys.total)
