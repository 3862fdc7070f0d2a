"""Kernels for the residual and its batch norm: s = x + r, y = BN(s), over the rows that are live, without atomics.

Statistics are merged from those of ``PARTS`` programs, each a count, a mean and a sum of squared distances from it (Chan et
al.), so that nothing cancels.
"""

# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _tile(X, row, column, rows, width, other):
    on = (row < rows)[:, None] & (column < width)[None, :]
    return tl.load(X + row[:, None] * width + column[None, :], mask=on, other=other).to(tl.float32)


@triton.jit
def _store(X, row, column, rows, width, values):
    on = (row < rows)[:, None] & (column < width)[None, :]
    tl.store(X + row[:, None] * width + column[None, :], values.to(X.dtype.element_ty), mask=on)


@triton.jit
def _live(Live, row, rows, MASKED: tl.constexpr):
    live = row < rows
    if MASKED:
        live = live & (tl.load(Live + row, mask=live, other=0) != 0)
    return live


@triton.jit
def add_and_measure(
    X, R, Live, S, Counts, Means, Squares, rows, width, parts,
    MASKED: tl.constexpr, ADD: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    part = tl.program_id(0)
    column = tl.arange(0, WIDTH)
    count = 0.0
    mean = tl.zeros((WIDTH,), tl.float32)
    square = tl.zeros((WIDTH,), tl.float32)
    for first in range(part * ROWS, rows, parts * ROWS):
        row = (first + tl.arange(0, ROWS)).to(tl.int64)
        s = _tile(X, row, column, rows, width, 0.0)
        if ADD:
            s += _tile(R, row, column, rows, width, 0.0)
            _store(S, row, column, rows, width, s)
            s = s.to(S.dtype.element_ty).to(tl.float32)  # what is measured is what will be normalised
        live = _live(Live, row, rows, MASKED)
        here = tl.sum(live.to(tl.float32), 0)
        some = tl.maximum(here, 1.0)
        own = tl.sum(tl.where(live[:, None], s, 0.0), 0) / some
        spread = tl.where(live[:, None], s - own[None, :], 0.0)
        total = tl.maximum(count + here, 1.0)
        away = own - mean
        square += tl.sum(spread * spread, 0) + away * away * (count * here / total)
        mean += away * (here / total)
        count += here
    on = column < width
    tl.store(Counts + part, count)
    tl.store(Means + part * width + column, mean, mask=on)
    tl.store(Squares + part * width + column, square, mask=on)


@triton.jit
def normalise(
    S, Counts, Means, Squares, Weight, Bias, Y, Mean, Scale, Variance, rows, width, parts, eps,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    column = tl.arange(0, WIDTH)
    part = tl.arange(0, PARTS)
    on = column < width
    both = (part < parts)[:, None] & on[None, :]
    count = tl.load(Counts + part, mask=part < parts, other=0.0)
    means = tl.load(Means + part[:, None] * width + column[None, :], mask=both, other=0.0)
    squares = tl.load(Squares + part[:, None] * width + column[None, :], mask=both, other=0.0)
    total = tl.maximum(tl.sum(count, 0), 1.0)
    mean = tl.sum(means * count[:, None], 0) / total
    away = means - mean[None, :]
    variance = tl.sum(squares + away * away * count[:, None], 0) / total
    scale = 1.0 / tl.sqrt(variance + eps)
    if tl.program_id(0) == 0:
        tl.store(Mean + column, mean, mask=on)
        tl.store(Scale + column, scale, mask=on)
        tl.store(Variance + column, variance * total / tl.maximum(total - 1.0, 1.0), mask=on)
    weight = tl.load(Weight + column, mask=on, other=0.0).to(tl.float32) * scale
    bias = tl.load(Bias + column, mask=on, other=0.0).to(tl.float32)
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    s = _tile(S, row, column, rows, width, 0.0)
    _store(Y, row, column, rows, width, (s - mean[None, :]) * weight[None, :] + bias[None, :])


@triton.jit
def measure_gradient(
    G, S, Live, Mean, Scale, Counts, Sums, Products, rows, width, parts,
    MASKED: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    part = tl.program_id(0)
    column = tl.arange(0, WIDTH)
    on = column < width
    mean = tl.load(Mean + column, mask=on, other=0.0)
    scale = tl.load(Scale + column, mask=on, other=0.0)
    count = 0.0
    total = tl.zeros((WIDTH,), tl.float32)
    product = tl.zeros((WIDTH,), tl.float32)
    for first in range(part * ROWS, rows, parts * ROWS):
        row = (first + tl.arange(0, ROWS)).to(tl.int64)
        live = _live(Live, row, rows, MASKED)
        grad = tl.where(live[:, None], _tile(G, row, column, rows, width, 0.0), 0.0)
        unit = (_tile(S, row, column, rows, width, 0.0) - mean[None, :]) * scale[None, :]
        count += tl.sum(live.to(tl.float32), 0)
        total += tl.sum(grad, 0)
        product += tl.sum(grad * unit, 0)
    tl.store(Counts + part, count)
    tl.store(Sums + part * width + column, total, mask=on)
    tl.store(Products + part * width + column, product, mask=on)


@triton.jit
def normalise_gradient(
    G, S, Live, Mean, Scale, Weight, Counts, Sums, Products, GradS, GradWeight, GradBias, rows, width, parts,
    MASKED: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    column = tl.arange(0, WIDTH)
    part = tl.arange(0, PARTS)
    on = column < width
    both = (part < parts)[:, None] & on[None, :]
    count = tl.maximum(tl.sum(tl.load(Counts + part, mask=part < parts, other=0.0), 0), 1.0)
    total = tl.sum(tl.load(Sums + part[:, None] * width + column[None, :], mask=both, other=0.0), 0)
    product = tl.sum(tl.load(Products + part[:, None] * width + column[None, :], mask=both, other=0.0), 0)
    if tl.program_id(0) == 0:
        tl.store(GradWeight + column, product, mask=on)
        tl.store(GradBias + column, total, mask=on)
    mean = tl.load(Mean + column, mask=on, other=0.0)
    scale = tl.load(Scale + column, mask=on, other=0.0)
    weight = tl.load(Weight + column, mask=on, other=0.0).to(tl.float32)
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    live = _live(Live, row, rows, MASKED)
    grad = _tile(G, row, column, rows, width, 0.0)
    unit = (_tile(S, row, column, rows, width, 0.0) - mean[None, :]) * scale[None, :]
    grad = (grad - total[None, :] / count - unit * product[None, :] / count) * (weight * scale)[None, :]
    _store(GradS, row, column, rows, width, tl.where(live[:, None], grad, 0.0))


@triton.jit
def follow(Running, RunningVar, Mean, Variance, width, momentum, WIDTH: tl.constexpr):
    """Move the running statistics towards those of a batch."""
    column = tl.arange(0, WIDTH)
    on = column < width
    for_mean = tl.load(Running + column, mask=on, other=0.0)
    for_var = tl.load(RunningVar + column, mask=on, other=0.0)
    mean = tl.load(Mean + column, mask=on, other=0.0)
    variance = tl.load(Variance + column, mask=on, other=0.0)
    tl.store(Running + column, for_mean + momentum * (mean - for_mean), mask=on)
    tl.store(RunningVar + column, for_var + momentum * (variance - for_var), mask=on)
