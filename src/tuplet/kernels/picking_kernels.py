"""Kernels that find the rows of some graphs among those of all, and the tuples of graphs of some sizes."""

# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from tuplet.kernels.sizes import COUNTS


@triton.jit
def _place(Ptr, Owner, end, number, graphs, rows, ROWS: tl.constexpr):
    """This program's places of a batch, and the graph of each, which is written down; so is Ptr (graphs + 2,): where each
    graph begins, then padding, then the number of places."""
    there = number < graphs
    place = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    owner = tl.sum((there[None, :] & (end[None, :] <= place[:, None])).to(tl.int32), 1)
    tl.store(Owner + place, owner.to(tl.int64), mask=place < rows)
    if tl.program_id(0) == 0:
        tl.store(Ptr + number + 1, end, mask=there)
        tl.store(Ptr, 0)
        tl.store(Ptr + graphs + 1, rows)
    return place, owner


@triton.jit
def _of_owner(values, number, owner):
    """For each place the value of its graph; 0 for padding."""
    return tl.sum(tl.where(number[None, :] == owner[:, None], values[None, :], 0), 1)


@triton.jit(do_not_specialize=COUNTS)
def pick(
    Ids, Counts, First, Ptr, Owner, Source, graphs, rows, last, ROWS: tl.constexpr, GRAPHS: tl.constexpr
):  # fmt: skip
    """For each place of a batch the graph that it belongs to and the row that stands there; padding is row ``last``."""
    number = tl.arange(0, GRAPHS)
    there = number < graphs
    graph = tl.load(Ids + number, mask=there, other=0)
    count = tl.load(Counts + graph, mask=there, other=0)
    end = tl.cumsum(count, 0)
    shift = tl.load(First + graph, mask=there, other=0) - (end - count)
    place, owner = _place(Ptr, Owner, end, number, graphs, rows, ROWS)
    source = tl.where(owner < graphs, place + _of_owner(shift, number, owner), last)
    tl.store(Source + place, source, mask=place < rows)


@triton.jit(do_not_specialize=COUNTS)
def lay_out(
    Sizes, Ptr, Owner, Place, graphs, rows, ORDER: tl.constexpr, ROWS: tl.constexpr, GRAPHS: tl.constexpr
):  # fmt: skip
    """For each place of a batch of all tuples its graph, and the tuple's number within it; 0 for padding."""
    number = tl.arange(0, GRAPHS)
    size = tl.load(Sizes + number, mask=number < graphs, other=0)
    count = (number < graphs).to(tl.int64)
    for _ in tl.static_range(ORDER):
        count = count * size
    end = tl.cumsum(count, 0)
    place, owner = _place(Ptr, Owner, end, number, graphs, rows, ROWS)
    within = place - _of_owner(end - count, number, owner)
    tl.store(Place + place, tl.where(owner < graphs, within, 0), mask=place < rows)
