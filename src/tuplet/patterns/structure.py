"""How a pattern is laid out for the fast backends: lines of tokens that see each other, or rows of keys.

Everything here is a few integers a line or a graph. ``pack`` turns a structure into plain tensors and integers, the
form in which it crosses into an attention operator; ``unpack`` is its inverse.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tuplet.graphs import repeat
from tuplet.native import in_order
from tuplet.patterns.relation import Equality, TypeMatrix


def block_size(device: torch.device) -> int:
    """Numbers a head that lines work on at once (pairs, and vectors gathered for them): small enough for a CPU's cache."""
    return 1 << (16 if device.type == "cpu" else 21)


QUERIES_A_TILE = 16
"""Queries of a line that are worked on at once at least: each time, all keys of the line are read again."""


def load(queries: int, keys: int, keys_held: bool = False) -> int:
    """Numbers a head that a line needs at once: its pairs, and its queries and keys at a typical head size of 16."""
    return queries * keys + 16 * (queries if keys_held else queries + keys)


@dataclass(frozen=True)
class Side:
    """The queries or the keys of L lines: the token at place p of line l is ``start[l] + p * stride[l]``.

    With a non-empty ``order`` that number is a position in ``order``, which holds the token.
    """

    start: Tensor
    stride: Tensor
    length: Tensor
    order: Tensor

    def tokens(self, lines: slice, place: Tensor) -> tuple[Tensor, Tensor]:
        """(B, width) tokens at the given places, and which of the places exist; others repeat the line's first token."""
        exists = place[None] < self.length[lines, None]
        token = self.start[lines, None] + torch.where(exists, place[None], 0) * self.stride[lines, None]
        return (self.order[token] if self.order.numel() else token), exists

    def take(self, lines: Tensor) -> Side:
        """The same side with its lines in another order."""
        return Side(self.start[lines], self.stride[lines], self.length[lines], self.order)


@dataclass(frozen=True)
class Lines:
    """Every query of a line sees every key of the line: dense, neighbour, virtual and cross attention.

    Args:
        query, key: the two sides.
        longest: no query side and no key side is longer.
        relation: types of the pairs, or None.
        skip_self: a query does not see the key with its own number.
        blocks: (M, 5) on the host: first line, end line, longest query side, longest key side, whether key sides differ;
            None before ``planned``.
    """

    query: Side
    key: Side
    longest: tuple[int, int]
    relation: TypeMatrix | Equality | None = None
    skip_self: bool = False
    blocks: Tensor | None = None

    def planned(self) -> Lines:
        """The lines sorted by length and cut into blocks that hold little padding and few pairs."""
        query, key, relation = self.query, self.key, self.relation
        widest = int(query.length.max()) + 1 if query.length.numel() else 1
        lengths, order = torch.sort(key.length * widest + query.length, stable=True)
        values, counts = torch.unique_consecutive(lengths, return_counts=True)
        runs = [
            (value % widest, value // widest, count)
            for value, count in zip(values.tolist(), counts.tolist(), strict=True)
        ]
        blocks = torch.tensor(_cut(runs, block_size(query.start.device)), dtype=torch.long).reshape(-1, 5)
        if isinstance(relation, TypeMatrix):
            relation = TypeMatrix(relation.matrix, relation.start[order], relation.size[order], relation.entry)
        elif relation is not None:
            relation = Equality(
                relation.codes, relation.size[order], relation.query_nodes, relation.key_nodes, relation.orders
            )
        return Lines(query.take(order), key.take(order), self.longest, relation, self.skip_self, blocks)

    def steps(self) -> list[list[int]]:
        """The blocks, one after another."""
        assert self.blocks is not None, "lines are planned before they are used"
        found: list[list[int]] = self.blocks.tolist()
        return found

    def pairs(self) -> tuple[Tensor, Tensor, Tensor]:
        """All (query, key, type), explicitly: for inspection only."""
        if self.blocks is None:
            return self.planned().pairs()
        parts = []
        for first, end, queries, keys, _ in self.steps():
            lines = slice(first, end)
            query_place = torch.arange(queries, device=self.query.start.device)
            key_place = torch.arange(keys, device=self.query.start.device)
            query, query_exists = self.query.tokens(lines, query_place)
            key, key_exists = self.key.tokens(lines, key_place)
            keep = query_exists[:, :, None] & key_exists[:, None, :]
            if self.skip_self:
                keep &= query[:, :, None] != key[:, None, :]
            types = torch.zeros_like(keep, dtype=torch.long)
            if self.relation is not None:
                types = self.relation.types(lines, query, key, query_place, key_place)
            parts.append([t.expand_as(keep)[keep] for t in (query[:, :, None], key[:, None, :], types)])
        return _concatenate(parts, self.query.start.device)

    def pack(self) -> tuple[list[Tensor], list[int]]:
        sides = [t for side in (self.query, self.key) for t in (side.start, side.stride, side.length, side.order)]
        relation: list[Tensor] = []
        integers = [_LINES, int(self.skip_self), *self.longest]
        assert self.blocks is not None, "lines are planned before they are used"
        if isinstance(self.relation, TypeMatrix):
            relation = [self.relation.matrix, self.relation.start, self.relation.size, self.relation.entry]
        elif self.relation is not None:
            relation = [self.relation.codes, self.relation.size, self.relation.query_nodes, self.relation.key_nodes]
            integers += self.relation.orders
        return [self.blocks, *sides, *relation], integers

    @classmethod
    def unpack(cls, tensors: list[Tensor], integers: list[int]) -> Lines:
        relation: TypeMatrix | Equality | None = None
        if len(tensors) > 9:
            a, b, c, d = tensors[9:]
            relation = Equality(a, b, c, d, (integers[4], integers[5])) if len(integers) > 4 else TypeMatrix(a, b, c, d)
        longest = (integers[2], integers[3])
        return cls(Side(*tensors[1:5]), Side(*tensors[5:9]), longest, relation, bool(integers[1]), tensors[0])


def _cut(runs: list[tuple[int, int, int]], block: int) -> list[tuple[int, int, int, int, int]]:
    """Blocks of consecutive lines from runs (queries, keys, count) of equal lines; empty lines are left out."""
    blocks: list[tuple[int, int, int, int, int]] = []
    line = 0
    for queries, keys, count in runs:
        first, end = line, line + count
        line = end
        if queries == 0 or keys == 0:
            continue
        if blocks and blocks[-1][1] == first:
            start, _, longest_queries, longest_keys, ragged = blocks[-1]
            exact = (first - start) * load(longest_queries, longest_keys) + count * load(queries, keys)
            ragged = int(ragged or keys != longest_keys)
            longest_queries, longest_keys = max(longest_queries, queries), max(longest_keys, keys)
            padded = (end - start) * load(longest_queries, longest_keys)
            if padded <= block and (padded <= 1.25 * exact or padded <= block // 64):
                blocks[-1] = (start, end, longest_queries, longest_keys, ragged)
                continue
        step = max(1, block // load(queries, keys))
        blocks += [(at, min(at + step, end), queries, keys, 0) for at in range(first, end, step)]
    return blocks


@dataclass(frozen=True)
class Rows:
    """Every query has its own list of keys, given in compressed sparse rows: simplex neighbours, samples, sub-tuples.

    Args:
        rowptr: (T1+1,) first pair of each query.
        key: (P,) key of each pair.
        type: (P,) int8 type of each pair; empty where all pairs have type 0.
    """

    rowptr: Tensor
    key: Tensor
    type: Tensor

    @classmethod
    def of(cls, query: Tensor, key: Tensor, queries: int, kind: Tensor | None = None) -> Rows:
        """From pairs (query, key), and their types if they have several, in any order."""
        rowptr, order = in_order(query, queries)
        return cls(
            rowptr, key.index_select(0, order), key.new_empty(0) if kind is None else kind.index_select(0, order)
        )

    def planned(self) -> Rows:
        """The rows themselves: only lines are cut into blocks."""
        return self

    def transposed(self, keys: int) -> Rows:
        """The same pairs as rows of the keys, whose entries are queries."""
        queries = torch.arange(len(self.rowptr) - 1, device=self.key.device)
        query = repeat(queries, self.rowptr.diff(), len(self.key))
        return Rows.of(self.key, query, keys, self.type if self.type.numel() else None)

    def pairs(self) -> tuple[Tensor, Tensor, Tensor]:
        """All (query, key, type), explicitly."""
        query = repeat(torch.arange(len(self.rowptr) - 1, device=self.key.device), self.rowptr.diff(), len(self.key))
        return query, self.key, self.type.long() if self.type.numel() else torch.zeros_like(self.key)

    def pack(self) -> tuple[list[Tensor], list[int]]:
        return [self.rowptr, self.key, self.type], [_ROWS]


@dataclass(frozen=True)
class Walk:
    """Local neighbours of all k-tuples along one axis: the graph's own rows, walked with the axis' stride.

    The keys of the tuple t with entry a at the axis are t + (u - a) * stride for u in N(a): no list of them exists.

    Args:
        ptr: (G+1,) first token of each graph.
        stride, n: (G,) of the axis and the graph.
        first_node: (G,) first node of each graph.
        rowptr, col: the graph's compressed sparse rows.
        type: (E,) type of a pair by the edge that is walked; empty where all pairs have type 0.
        tokens: T.
    """

    ptr: Tensor
    stride: Tensor
    n: Tensor
    first_node: Tensor
    rowptr: Tensor
    col: Tensor
    type: Tensor
    tokens: int

    def planned(self) -> Walk:
        """As ``Rows.planned``."""
        return self

    def places(self) -> tuple[Tensor, Tensor, Tensor]:
        """(T,) all tokens, the node of each at the axis, and the axis' stride there."""
        token = torch.arange(self.tokens, device=self.col.device)
        graph = torch.searchsorted(self.ptr, token, right=True) - 1
        stride = self.stride[graph]
        return token, self.first_node[graph] + (token - self.ptr[graph]) // stride % self.n[graph], stride

    def pairs(self) -> tuple[Tensor, Tensor, Tensor]:
        """All (query, key, type), explicitly."""
        token, node, stride = self.places()
        begin = self.rowptr[node]
        count = self.rowptr[node + 1] - begin
        total = int(count.sum())
        query = repeat(token, count, total)
        edge = torch.arange(total, device=self.col.device) + (begin - count.cumsum(0) + count)[query]
        key = (token - node * stride)[query] + self.col[edge] * stride[query]
        return query, key, self.type[edge].long() if self.type.numel() else torch.zeros_like(key)

    def pack(self) -> tuple[list[Tensor], list[int]]:
        parts = [self.ptr, self.stride, self.n, self.first_node, self.rowptr, self.col, self.type]
        return parts, [_WALK, self.tokens]


Structure = Lines | Rows | Walk
_LINES, _ROWS, _WALK = range(3)


def unpack(tensors: list[Tensor], integers: list[int]) -> Structure:
    """The structure that ``pack`` took apart."""
    if integers[0] == _LINES:
        return Lines.unpack(tensors, integers)
    if integers[0] == _ROWS:
        return Rows(*tensors)
    ptr, stride, n, first_node, rowptr, col, kind = tensors
    return Walk(ptr, stride, n, first_node, rowptr, col, kind, integers[1])


def _concatenate(parts: list[list[Tensor]], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    if not parts:
        empty = torch.empty(0, dtype=torch.long, device=device)
        return empty, empty, empty
    query, key, types = (torch.cat(column) for column in zip(*parts, strict=True))
    return query, key, types
