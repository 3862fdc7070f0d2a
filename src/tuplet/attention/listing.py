"""Which pairs there are: of groups of keys that heads see, the keys of each query, listed in portions of bounded size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import torch
from torch import Tensor

from tuplet.attention.bags import Bags, Turned, stacked
from tuplet.attention.compiled import KERNELS
from tuplet.attention.known import notes_on
from tuplet.graphs import repeat
from tuplet.native import Library, library_of, load
from tuplet.patterns.structure import Lines, Rows, Side, Structure, Walk

PAIRS_AT_ONCE = 1 << 18
"""Pairs, counted for each head, that are worked on at once; more if they are few for each query."""
PAIRS_A_ROW = 4
"""How many pairs of a row are few: their indices take no more memory than a few vectors."""
PAIRS_A_LINE = 512
"""Tokens on the longer side of lines that are read as rows, at most, where rows are not compiled."""
PAIRS_COMPILED, LINE_COMPILED = 16, 1 << 22
"""The same where they are."""


@dataclass(frozen=True)
class Keyed:
    """Several groups of keys, and which of them a head sees.

    Args:
        groups: their structures.
        keys: keys in all.
        joint: every head sees all groups; otherwise head j sees group j mod groups.
        first_keys, first_types: where each group's keys and types begin among those of all.
        queries: how many queries see them, all if None.
        then: what the queries after these see.
    """

    groups: tuple[Structure, ...]
    keys: int
    joint: bool
    first_keys: tuple[int, ...]
    first_types: tuple[int, ...]
    queries: int | None = None
    then: Keyed | None = None

    @classmethod
    def apart(cls, groups: tuple[Structure, ...], keys: int) -> Keyed:
        """Groups of the same keys, dealt to heads."""
        none = (0,) * len(groups)
        return cls(groups, keys, False, none, none)

    @classmethod
    def joined(cls, groups: tuple[Structure, ...], keys: list[int], types: list[int]) -> Keyed:
        """Groups that every head sees, with their keys one after another, and so their types."""
        firsts = [tuple(accumulate(sizes[:-1], initial=0)) for sizes in (keys, types)]
        return cls(groups, sum(keys), True, firsts[0], firsts[1])

    def parts(self, queries: int) -> list[tuple[int, Keyed]]:
        """How many queries see the same groups, and which, for ``queries`` in all."""
        if self.then is None or self.queries is None:
            return [(queries, self)]
        return [(self.queries, self), *self.then.parts(queries - self.queries)]

    @property
    def is_alike(self) -> bool:
        """Whether all heads see the same keys."""
        return self.joint or len(self.groups) == 1

    def seen_by(self, head: int) -> list[int]:
        return list(range(len(self.groups))) if self.joint else [head % len(self.groups)]


@dataclass(frozen=True)
class Portion:
    """Bags of the queries in ``span``, which have so many heads, and the same pairs seen from all keys."""

    span: slice
    bags: Bags
    keys: int
    heads: int

    @cached_property
    def apart(self) -> Portion:
        """The same with rows for each head."""
        if self.bags.heads == self.heads:
            return self
        return Portion(self.span, self.bags.apart(self.heads), self.keys, self.heads)

    @cached_property
    def back(self) -> Turned:
        return self.bags.transposed(self.keys)


def portions(keyed: Keyed, q: Tensor) -> Iterator[Portion]:
    """The pairs in portions of bounded size."""
    one = single_portion(keyed, q)
    if one is not None:
        yield one
    else:
        yield from _made(keyed, q, _cut_up(keyed, q))


def single_portion(keyed: Keyed, q: Tensor) -> Portion | None:
    """All pairs as one portion, kept for other layers while the structures live; None where there are too many for one."""
    queries, heads = q.shape[:2]
    parts = keyed.parts(queries)
    known = notes_on(tuple(group for _, part in parts for group in part.groups))
    name = (heads, *((count, part.joint, part.first_keys, part.first_types) for count, part in parts))
    if name not in known:
        cut, known[name] = _cut_up(keyed, q), None
        if all(len(spans) == 1 for _, spans in cut):
            bags = stacked([portion.bags for portion in _made(keyed, q, cut)])
            known[name] = Portion(slice(0, queries), bags, keyed.keys, heads)
    found: Portion | None = known[name]
    return found


def _cut_up(keyed: Keyed, q: Tensor) -> list[tuple[list[_Reach], list[slice]]]:
    """For queries that see the same groups, one after another, which keys they have and the portions that they come in."""
    few, found = PAIRS_A_ROW if load(q) is None else PAIRS_COMPILED, []
    for count, part in keyed.parts(len(q)):
        reaches = [_reach(group, count) for group in part.groups]
        found.append((reaches, _cut(reaches, q.shape[1], part, few)))
    return found


def _made(keyed: Keyed, q: Tensor, cut: list[tuple[list[_Reach], list[slice]]]) -> Iterator[Portion]:
    parts, heads, first = keyed.parts(len(q)), q.shape[1], 0
    rows = 1 if all(part.is_alike for _, part in parts) else heads
    for (count, part), (reaches, spans) in zip(parts, cut, strict=True):
        for span in spans:
            own = slice(first + span.start, first + span.stop)
            yield Portion(own, _bags(reaches, rows, span, part), keyed.keys, heads)
        first += count


def are_rows(group: Structure, q: Tensor, kernel: str) -> bool:
    """Whether pairs are better read as rows: lists of keys, and lines too narrow and short for matrix products to pay."""
    if not isinstance(group, Lines):
        return True
    narrow, wide = min(group.longest), max(group.longest)
    short = narrow <= PAIRS_A_ROW and wide <= PAIRS_A_LINE
    compiled = narrow <= PAIRS_COMPILED and wide <= LINE_COMPILED and kernel in KERNELS and load(q) is not None
    return group.relation is None and not group.skip_self and (short or compiled)


@dataclass(frozen=True)
class _Reach:
    """Which keys each query has: ``base + step * target[first + i]`` for i < count.

    Args:
        first, count, base, step: (T1,) each.
        target: (M,) what the keys are counted in: nodes or tokens.
        kind: (M,) type of the pair with that target; empty where all pairs have type 0.
    """

    first: Tensor
    count: Tensor
    base: Tensor
    step: Tensor
    target: Tensor
    kind: Tensor

    @cached_property
    def within(self) -> bool:
        """Whether all places are among the targets, each with a type where there are types."""
        if len(self.count) == 0:
            return True
        least, most = int(torch.minimum(self.first, self.count).min()), int((self.first + self.count).max())
        return least >= 0 and most <= len(self.target) and len(self.kind) in (0, len(self.target))


def _reach(group: Structure, queries: int) -> _Reach:
    if isinstance(group, Walk):
        token, node, step = group.places()
        first = group.rowptr[node]
        return _Reach(first, group.rowptr[node + 1] - first, token - node * step, step, group.col, group.type)
    if isinstance(group, Rows):
        none = torch.zeros_like(group.rowptr[1:])
        return _Reach(group.rowptr[:-1], group.rowptr.diff(), none, none + 1, group.key, group.type)
    return _reach_in_lines(group.query, group.key, queries)


def _reach_in_lines(query: Side, key: Side, queries: int) -> _Reach:
    count = len(query.length)
    total = int(query.length.sum())
    line = repeat(torch.arange(count, device=query.length.device), query.length, total)
    place = torch.arange(total, device=line.device) - (query.length.cumsum(0) - query.length)[line]
    token = query.start[line] + place * query.stride[line]
    token = query.order[token] if query.order.numel() else token

    def of_tokens(values: Tensor) -> Tensor:
        return values.new_zeros(queries).index_copy_(0, token, values[line])

    longest = int(key.length.max()) if count else 0
    places = torch.arange(longest, device=line.device)
    start, length, step = of_tokens(key.start), of_tokens(key.length), of_tokens(key.stride)
    if key.order.numel():  # positions in the order then lie side by side
        return _Reach(start, length, torch.zeros_like(start), torch.ones_like(start), key.order, line[:0])
    return _Reach(torch.zeros_like(start), length, start, step, places, line[:0])


def _cut(reaches: list[_Reach], heads: int, keyed: Keyed, few: int) -> list[slice]:
    """Portions of queries with a bounded number of pairs."""
    tokens = len(reaches[0].count)
    seen = [group for head in range(heads) for group in keyed.seen_by(head)]
    sums = torch.stack([reaches[group].count for group in seen]).sum(0).cumsum(0)
    total = int(sums[-1]) if tokens else 0
    limit = max(PAIRS_AT_ONCE, few * max(tokens, keyed.keys) * heads)
    if total <= limit:
        return [slice(0, tokens)]
    marks = torch.arange(1, total // limit + 1, device=sums.device) * limit
    ends = sorted({*torch.searchsorted(sums, marks).add_(1).clamp_(max=tokens).tolist(), tokens})
    return [slice(*span) for span in zip([0, *ends[:-1]], ends, strict=True)]


def _bags(reaches: list[_Reach], heads: int, span: slice, keyed: Keyed) -> Bags:
    """The bags of the queries in a span."""
    seen, rows = [keyed.seen_by(head) for head in range(heads)], heads * (span.stop - span.start)
    library = library_of(reaches[0].target)
    if library is not None and all(reach.within for reach in reaches):  # what lies beyond is for torch to refuse
        numbers = [int(reach.count[span].sum()) for reach in reaches]
        pairs = sum(numbers[group] for groups in seen for group in groups)
        if max(pairs, keyed.keys * heads, rows) < 1 << 31:
            return _listed_by(library, reaches, seen, span, keyed, pairs)
    found = _listed(reaches, seen, span, keyed)
    small = max(len(found[1]), keyed.keys * heads, rows) < 1 << 31
    return Bags(heads, *(x.to(torch.int32) if small else x for x in found))


def _listed_by(
    library: Library, reaches: list[_Reach], seen: list[list[int]], span: slice, keyed: Keyed, pairs: int
) -> Bags:
    """The bags, of so many pairs, in which the heads see these groups."""
    heads, tokens = len(seen), span.stop - span.start
    sizes = heads * tokens + 1, pairs, pairs, pairs
    bags = Bags(heads, *(torch.empty(size, dtype=torch.int32) for size in sizes))
    counted = [[part[span].long().contiguous() for part in (r.first, r.count, r.base, r.step)] for r in reaches]
    targets = [reach.target.long().contiguous() for reach in reaches]
    kinds = [reach.kind.long().contiguous() if reach.kind.numel() else None for reach in reaches]
    places = *(list(parts) for parts in zip(*counted, strict=True)), targets, kinds
    slots, firsts = [group for groups in seen for group in groups], (list(keyed.first_keys), list(keyed.first_types))
    found = bags.offsets, bags.row, bags.column, bags.kind
    library.run("list_pairs", tokens, heads, len(seen[0]), slots, *places, *firsts, *found)
    return bags


def _listed(reaches: list[_Reach], seen: list[list[int]], span: slice, keyed: Keyed) -> tuple[Tensor, ...]:
    """Offsets, rows, columns and kinds of the same by torch."""
    heads, starts = len(seen), [0] * len(reaches)
    target, kinds = reaches[0].target, reaches[0].kind
    if any(reach.target is not target for reach in reaches):
        sizes = [len(reach.target) for reach in reaches]
        starts = [sum(sizes[:group]) for group in range(len(reaches))]
        target = torch.cat([reach.target for reach in reaches])
    if any(reach.kind.numel() for reach in reaches):
        typed = [reach.kind if reach.kind.numel() else reach.target.new_zeros(len(reach.target)) for reach in reaches]
        kinds = torch.cat([kind.long() for kind in typed]) if starts[-1] or len(reaches) > 1 else kinds.long()
    width = len(seen[0])  # groups that a row sees, whose keys stand one after another
    slots = [group for groups in seen for group in groups]

    def spread(parts: list[Tensor]) -> Tensor:
        return torch.stack([parts[group] for group in slots], dim=1).view(-1)

    count = spread([reach.count[span] for reach in reaches])  # (T1·h·width,)
    sums = torch.cat([count.new_zeros(1), count.cumsum(0)])
    pairs, rows = int(sums[-1]), len(count) // width
    slot = repeat(torch.arange(len(count), device=count.device), count, pairs)
    head = torch.arange(heads, device=count.device).repeat_interleave(width).repeat(rows // heads)
    first = spread([reach.first[span] + start for reach, start in zip(reaches, starts, strict=True)])
    place = torch.arange(pairs, device=count.device) + (first - sums[:-1]).index_select(0, slot)
    base = spread([reach.base[span] + start for reach, start in zip(reaches, keyed.first_keys, strict=True)])
    step = spread([reach.step[span] for reach in reaches])
    column = target.index_select(0, place) * (step * heads).index_select(0, slot)
    column += (base * heads + head).index_select(0, slot)
    kind = head
    if any(keyed.first_types):
        kind = head + heads * spread(
            [torch.full_like(r.count[span], t) for r, t in zip(reaches, keyed.first_types, strict=True)]
        )
    kind = kind.index_select(0, slot)
    if kinds.numel():
        kind += kinds.index_select(0, place) * heads
    row = slot if width == 1 else torch.arange(rows, device=count.device).repeat_interleave(width).index_select(0, slot)
    return sums[::width].contiguous(), row, column, kind
