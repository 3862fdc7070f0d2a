"""Kernels that take rows, and that add rows up: over lists of rows, and by a small number that each row carries. No atomics."""

# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from tuplet.kernels.sizes import COUNTS


@triton.jit(do_not_specialize=COUNTS)
def add_up(X, Order, Begin, End, Out, width, stride, ORDERED: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Out[s] = the sum of the rows of X that list s names."""
    segment = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    begin, end = tl.load(Begin + segment), tl.load(End + segment)
    total = tl.zeros((WIDTH,), tl.float32)
    for first in range(begin, end, ROWS):
        place = first + tl.arange(0, ROWS)
        row = place
        if ORDERED:
            row = tl.load(Order + place, mask=place < end, other=0)
        on = (place < end)[:, None] & (column < width)[None, :]
        x = tl.load(X + row[:, None].to(tl.int64) * width + column[None, :], mask=on, other=0.0)
        total += tl.sum(x.to(tl.float32), 0)
    tl.store(Out + segment * stride + column, total.to(Out.dtype.element_ty), mask=column < width)


@triton.jit(do_not_specialize=COUNTS)
def add_by_kind(
    X, Kind, Share, rows, width, kinds, parts,
    PRECISION: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, KINDS: tl.constexpr,
):  # fmt: skip
    """Share (parts, kinds, width): one program's sums of the rows of each kind; rows of a higher kind are left out."""
    part = tl.program_id(0)
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    number = tl.arange(0, KINDS)
    total = tl.zeros((KINDS, WIDTH), tl.float32)
    for first in range(part * ROWS, rows, parts * ROWS):
        row = first + tl.arange(0, ROWS)
        kind = tl.load(Kind + row, mask=row < rows, other=KINDS)
        on = (row < rows)[:, None] & (column < width)[None, :]
        x = tl.load(X + row[:, None].to(tl.int64) * width + column[None, :], mask=on, other=0.0).to(tl.float32)
        same = (number[:, None] == kind[None, :]).to(tl.float32)
        total += tl.dot(same, x, input_precision=PRECISION)
    on = (number < kinds)[:, None] & (column < width)[None, :]
    tl.store(Share + (part * kinds + number[:, None]) * width + column[None, :], total, mask=on)


@triton.jit(do_not_specialize=COUNTS)
def take(Table, Rows, Out, rows, width, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Out = the row that each token takes of a table."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    on = (row < rows)[:, None] & (column < width)[None, :]
    taken = tl.load(Rows + row, mask=row < rows, other=0).to(tl.int64)
    values = tl.load(Table + taken[:, None] * width + column[None, :], mask=on, other=0.0)
    tl.store(Out + row[:, None] * width + column[None, :], values, mask=on)


@triton.jit(do_not_specialize=COUNTS)
def take_sum(
    First, A, RowsA, B, RowsB, C, RowsC, Out, rows, width, COUNT: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr
):  # fmt: skip
    """Out = First and the rows that each token takes of up to three tables."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    on = (row < rows)[:, None] & (column < width)[None, :]
    at = row[:, None] * width + column[None, :]
    total = tl.load(First + at, mask=on, other=0.0).to(tl.float32)
    taken = tl.load(RowsA + row, mask=row < rows, other=0)
    total += tl.load(A + taken[:, None] * width + column[None, :], mask=on, other=0.0).to(tl.float32)
    if COUNT > 1:
        taken = tl.load(RowsB + row, mask=row < rows, other=0)
        total += tl.load(B + taken[:, None] * width + column[None, :], mask=on, other=0.0).to(tl.float32)
    if COUNT > 2:
        taken = tl.load(RowsC + row, mask=row < rows, other=0)
        total += tl.load(C + taken[:, None] * width + column[None, :], mask=on, other=0.0).to(tl.float32)
    tl.store(Out + at, total.to(Out.dtype.element_ty), mask=on)
