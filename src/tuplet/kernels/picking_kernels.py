"""A kernel that finds the rows of some graphs among those of all."""

# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def pick(
    Ids, Counts, First, Ptr, Owner, Source, graphs, rows, last, ROWS: tl.constexpr, GRAPHS: tl.constexpr
):  # fmt: skip
    """For each place of a batch the graph that it belongs to and the row that stands there; padding is row ``last``.

    Ptr (graphs + 2,): where each graph begins, then padding, then the number of places.
    """
    number = tl.arange(0, GRAPHS)
    there = number < graphs
    graph = tl.load(Ids + number, mask=there, other=0)
    count = tl.load(Counts + graph, mask=there, other=0)
    end = tl.cumsum(count, 0)
    shift = tl.load(First + graph, mask=there, other=0) - (end - count)
    place = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    owner = tl.sum((there[None, :] & (end[None, :] <= place[:, None])).to(tl.int32), 1)
    own = tl.sum(tl.where(number[None, :] == owner[:, None], shift[None, :], 0), 1)
    tl.store(Owner + place, owner.to(tl.int64), mask=place < rows)
    tl.store(Source + place, tl.where(owner < graphs, place + own, last), mask=place < rows)
    if tl.program_id(0) == 0:
        tl.store(Ptr + number + 1, end, mask=there)
        tl.store(Ptr, 0)
        tl.store(Ptr + graphs + 1, rows)
