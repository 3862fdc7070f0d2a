"""Pairs as compressed sparse rows over (token, head), and the two products that attention over them is made of.

Row t·h + j is head j of query t; its entries are the keys that this head of this query sees. Heads may belong to different
groups of keys, so several structures are one matrix (``listing.py``). Where all heads see the same keys, pairs are listed once: row t
is query t. ``dots`` multiplies vectors pair by pair, ``sums`` adds vectors up with weights. On a CPU they are a sampled matrix product
and an embedding bag, and nothing of the size of the pairs times c exists.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from tuplet.attention.compiled import KERNELS
from tuplet.attention.weights import Rule
from tuplet.graphs import repeat
from tuplet.native import Library, in_order, load


@dataclass(frozen=True)
class Bags:
    """The pairs of consecutive queries.

    Args:
        heads: rows of each query: h, or 1 where all heads see the same keys (``apart`` has rows for each).
        offsets: (T1·h + 1,) first pair of each row.
        row: (P,) row of each pair.
        column: (P,) key · h + head of each pair.
        kind: (P,) type · h + head of each pair.
    """

    heads: int
    offsets: Tensor
    row: Tensor
    column: Tensor
    kind: Tensor

    def transposed(self, keys: int) -> Turned:
        """The same pairs in rows of the keys; their columns are rows of the queries."""
        offsets, pair = in_order(self.column, keys * self.heads)
        return Turned(offsets, self.row.index_select(0, pair), pair)

    def library(self, q: Tensor, k: Tensor, v: Tensor, table: Tensor, rule: Rule) -> Library | None:
        """Compiled functions for attention over these pairs, if there are any. What does not fit is left to torch, which says why."""
        one_type = len({x.dtype for x in (q, k, v, table)}) == 1
        if self.offsets.dtype != torch.int32 or rule.kernel not in KERNELS or not one_type:
            return None
        column, kind = self.most
        alike = q.shape[1:] == k.shape[1:] and k.shape[:2] == v.shape[:2] and self.heads in (1, q.shape[1])
        known = table.numel() * self.heads // q.shape[1]
        within = column < len(k) * self.heads and (rule.relation == "none" or kind < known)
        return load(q) if alike and within and len(q) * self.heads == len(self.offsets) - 1 else None

    def apart(self, heads: int) -> Bags:
        """Rows for each head, where there was one for all."""
        count = self.offsets.diff().long().repeat_interleave(heads)
        sums = torch.cat([count.new_zeros(1), count.cumsum(0)])
        row = repeat(torch.arange(len(count), device=count.device), count, len(self.row) * heads)
        first = self.offsets[:-1].long().repeat_interleave(heads) - sums[:-1]
        place, head = torch.arange(len(row), device=count.device) + first[row], row % heads
        found = sums, row, self.column[place] * heads + head, self.kind[place] * heads + head
        return Bags(heads, *(x.to(self.row.dtype) for x in found))

    @cached_property
    def most(self) -> tuple[int, int]:
        """The largest column and kind, -1 where there is no pair."""
        return (int(self.column.max()), int(self.kind.max())) if len(self.column) else (-1, -1)

    def dots(self, queries: Tensor, keys: Tensor) -> Tensor:
        """(P,) products of a query's and a key's vector, (T1, h, c) and (T2, h, c), for each pair."""
        left, right = queries.flatten(0, 1), keys.flatten(0, 1)
        if left.device.type != "cpu":
            return (left.index_select(0, self.row) * right.index_select(0, self.column)).sum(-1)
        values = left.new_zeros(len(self.column))
        if len(values):
            product = _sparse(self.offsets, self.column, values, (len(left), len(right)))
            torch.sparse.sampled_addmm(product, left, right.t(), beta=0.0, out=product)
        return values

    def sums(self, weights: Tensor, keys: Tensor) -> Tensor:
        """(T1, h, c) sums of the keys' vectors (T2, h, c), weighted by (P,) numbers."""
        return _sums(self.offsets, self.column, weights, keys)

    def row_sums(self, x: Tensor) -> Tensor:
        """(T1·h,) sums of (P,) numbers over the pairs of each row."""
        return x.new_zeros(len(self.offsets) - 1).index_add_(0, self.row, x)

    def row_maxima(self, x: Tensor) -> Tensor:
        """(T1·h,) largest of (P,) numbers of each row, -inf where it has none."""
        return torch.segment_reduce(x, "max", offsets=self.offsets, unsafe=True, initial=-torch.inf)


@dataclass(frozen=True)
class Turned:
    """Bags transposed.

    Args:
        offsets: (T2·h + 1,) first pair of each key and head.
        column: (P,) row of each pair in the bags.
        pair: (P,) where each pair stands in the bags.
    """

    offsets: Tensor
    column: Tensor
    pair: Tensor

    def sums(self, weights: Tensor, queries: Tensor) -> Tensor:
        """(T2, h, c) sums of the queries' vectors (T1, h, c), weighted by the (P,) numbers of the bags."""
        return _sums(self.offsets, self.column, weights.index_select(0, self.pair), queries)


def stacked(several: list[Bags]) -> Bags:
    """The rows of several bags, one after another."""
    first, *others = several
    for bags in others:
        pairs, rows = len(first.row), len(first.offsets) - 1
        wide = max(pairs + len(bags.row), rows + len(bags.offsets)) >= 1 << 31
        above = [x.long() if wide else x for x in (first.offsets, first.row, first.column, first.kind)]
        below = bags.offsets[1:] + pairs, bags.row + rows, bags.column, bags.kind
        first = Bags(first.heads, *map(torch.cat, zip(above, below, strict=True)))
    return first


def _sums(offsets: Tensor, column: Tensor, weights: Tensor, vectors: Tensor) -> Tensor:
    table = vectors.flatten(0, 1)
    return torch.embedding_bag(table, column, offsets, False, 0, False, weights, True)[0].view(-1, *vectors.shape[1:])


def _sparse(offsets: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    return torch.sparse_csr_tensor(offsets, columns, values, shape, check_invariants=False)


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch says once in a process that compressed sparse rows are in beta
    _sparse(torch.zeros(2, dtype=torch.int32), torch.zeros(0, dtype=torch.int32), torch.zeros(0), (1, 1))
