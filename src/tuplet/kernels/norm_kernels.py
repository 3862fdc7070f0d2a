"""Kernels for the residual and its batch norm: s = x + r, y = BN(s), over the rows that are live, without atomics.

Statistics are merged from those of ``PARTS`` programs, each a count, a mean and a sum of squared distances from it (Chan et
al.), so that nothing cancels.
"""

# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from tuplet.kernels.sizes import COUNTS

PORTION = tl.constexpr(8192)
"""Numbers of the shares that a program reads at once: more than that leave the registers."""


@triton.jit
def load_tile(X, row, column, rows, width):
    """Some rows and columns of a matrix in float32; zero where there are none."""
    on = (row < rows)[:, None] & (column < width)[None, :]
    return tl.load(X + row[:, None] * width + column[None, :], mask=on, other=0.0).to(tl.float32)


@triton.jit
def store_tile(X, row, column, rows, width, values):
    on = (row < rows)[:, None] & (column < width)[None, :]
    tl.store(X + row[:, None] * width + column[None, :], values.to(X.dtype.element_ty), mask=on)


@triton.jit
def store_rounded(X, row, column, rows, width, values):
    """Store a tile; the values as they will be read again, so that what is measured is what will be normalised."""
    store_tile(X, row, column, rows, width, values)
    return values.to(X.dtype.element_ty).to(tl.float32)


@triton.jit
def load_vector(X, column, width):
    return tl.load(X + column, mask=column < width, other=0.0).to(tl.float32)


@triton.jit
def store_vector(X, column, width, values):
    tl.store(X + column, values, mask=column < width)


@triton.jit
def affine(t, mean, slope, bias):
    """(t - mean) · slope + bias, with one rounding less than in two steps, wherever it is worked out."""
    away = t - mean[None, :]
    return tl.fma(away, tl.broadcast_to(slope[None, :], away.shape), tl.broadcast_to(bias[None, :], away.shape))


@triton.jit
def normed_tile(T, row, column, rows, width, Found, Weight, Bias):
    """A tile of what a norm made of T, as it was stored; Found (2, width) are mean and scale."""
    t, slope = load_tile(T, row, column, rows, width), load_vector(Weight, column, width)
    slope = slope * load_vector(Found + width, column, width)
    made = affine(t, load_vector(Found, column, width), slope, load_vector(Bias, column, width))
    return made.to(T.dtype.element_ty).to(tl.float32)


@triton.jit
def rows_alive(Live, row, rows, MASKED: tl.constexpr):
    """Which rows exist and are not padding."""
    live = row < rows
    if MASKED:
        live = live & (tl.load(Live + row, mask=live, other=0) != 0)
    return live


@triton.jit
def joined(count, mean, square, new_count, new_mean, new_square):
    """Count, mean and sum of squared distances of two sets of rows."""
    total = tl.maximum(count + new_count, 1.0)
    away = new_mean - mean
    square += new_square + away * away * (count * new_count / total)
    return count + new_count, mean + away * (new_count / total), square


@triton.jit
def grow(count, mean, square, values, live):
    """Count, mean and sum of squared distances of what was seen, with some more rows."""
    here = tl.sum(live.to(tl.float32), 0)
    own = tl.sum(tl.where(live[:, None], values, 0.0), 0) / tl.maximum(here, 1.0)
    spread = tl.where(live[:, None], values - own[None, :], 0.0)
    return joined(count, mean, square, here, own, tl.sum(spread * spread, 0))


@triton.jit
def _shares(X, part, column, width, parts):
    """(parts, columns) what some of the programs found, a row each."""
    on = (part < parts)[:, None] & (column < width)[None, :]
    return tl.load(X + part[:, None] * width + column[None, :], mask=on, other=0.0)


@triton.jit
def _counts(Counts, part, parts):
    return tl.load(Counts + part, mask=part < parts, other=0.0)


@triton.jit
def store_share(Counts, First, Second, part, column, width, count, first, second):
    """What one program found: a count, and two numbers a column."""
    tl.store(Counts + part, count)
    store_vector(First + part * width, column, width, first)
    store_vector(Second + part * width, column, width, second)


@triton.jit
def merged(Counts, Means, Squares, column, width, parts, PARTS: tl.constexpr):
    """Mean, variance and number of rows from the shares of all programs."""
    SOME: tl.constexpr = max(1, min(PARTS, PORTION // column.shape[0]))
    count = 0.0
    mean, square = tl.zeros(column.shape, tl.float32), tl.zeros(column.shape, tl.float32)
    for first in range(0, PARTS, SOME):
        part = first + tl.arange(0, SOME)
        counts, means = _counts(Counts, part, parts), _shares(Means, part, column, width, parts)
        here = tl.sum(counts, 0)
        own = tl.sum(means * counts[:, None], 0) / tl.maximum(here, 1.0)
        away = means - own[None, :]
        squares = _shares(Squares, part, column, width, parts) + away * away * counts[:, None]
        count, mean, square = joined(count, mean, square, here, own, tl.sum(squares, 0))
    total = tl.maximum(count, 1.0)
    return mean, square / total, total


@triton.jit
def gradient_sums(Counts, Sums, Products, column, width, parts, PARTS: tl.constexpr):
    """Number of rows, sum of the gradient, and sum of its product with the normalised rows, from the shares of all programs."""
    SOME: tl.constexpr = max(1, min(PARTS, PORTION // column.shape[0]))
    count = tl.maximum(tl.sum(_counts(Counts, tl.arange(0, PARTS), parts), 0), 1.0)
    total, product = tl.zeros(column.shape, tl.float32), tl.zeros(column.shape, tl.float32)
    for first in range(0, PARTS, SOME):
        part = first + tl.arange(0, SOME)
        total += tl.sum(_shares(Sums, part, column, width, parts), 0)
        product += tl.sum(_shares(Products, part, column, width, parts), 0)
    return count, total, product


@triton.jit(do_not_specialize=COUNTS)
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
        s = load_tile(X, row, column, rows, width)
        if ADD:
            s += load_tile(R, row, column, rows, width)
            s = store_rounded(S, row, column, rows, width, s)
        count, mean, square = grow(count, mean, square, s, rows_alive(Live, row, rows, MASKED))
    store_share(Counts, Means, Squares, part, column, width, count, mean, square)


@triton.jit(do_not_specialize=COUNTS)
def settle(
    Counts, Means, Squares, Mean, Scale, Variance, width, parts, eps, COLUMNS: tl.constexpr, PARTS: tl.constexpr
):  # fmt: skip
    """Mean and scale of some columns of a batch, and the variance that running statistics follow, from the shares of all programs."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    mean, variance, total = merged(Counts, Means, Squares, column, width, parts, PARTS)
    store_vector(Mean, column, width, mean)
    store_vector(Scale, column, width, 1.0 / tl.sqrt(variance + eps))
    store_vector(Variance, column, width, variance * total / tl.maximum(total - 1.0, 1.0))


@triton.jit(do_not_specialize=COUNTS)
def normalise(S, Mean, Scale, Weight, Bias, Y, rows, width, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Y = BN(S)."""
    column = tl.arange(0, WIDTH)
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    s, slope = load_tile(S, row, column, rows, width), load_vector(Weight, column, width)
    slope = slope * load_vector(Scale, column, width)
    y = affine(s, load_vector(Mean, column, width), slope, load_vector(Bias, column, width))
    store_tile(Y, row, column, rows, width, y)


@triton.jit(do_not_specialize=COUNTS)
def measure_gradient(
    G, S, Live, Mean, Scale, Counts, Sums, Products, rows, width, parts,
    MASKED: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    part = tl.program_id(0)
    column = tl.arange(0, WIDTH)
    mean, scale = load_vector(Mean, column, width), load_vector(Scale, column, width)
    count = tl.zeros((ROWS,), tl.float32)
    total = tl.zeros((ROWS, WIDTH), tl.float32)
    product = tl.zeros((ROWS, WIDTH), tl.float32)
    for first in range(part * ROWS, rows, parts * ROWS):
        row = (first + tl.arange(0, ROWS)).to(tl.int64)
        live = rows_alive(Live, row, rows, MASKED)
        grad = tl.where(live[:, None], load_tile(G, row, column, rows, width), 0.0)
        unit = (load_tile(S, row, column, rows, width) - mean[None, :]) * scale[None, :]
        count += live.to(tl.float32)
        total += grad
        product += grad * unit
    count, total, product = tl.sum(count, 0), tl.sum(total, 0), tl.sum(product, 0)
    store_share(Counts, Sums, Products, part, column, width, count, total, product)


@triton.jit(do_not_specialize=COUNTS)
def normalise_gradient(
    G, S, Live, Mean, Scale, Weight, Counts, Sums, Products, GradS, GradWeight, GradBias, rows, width, parts, programs,
    MASKED: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    column = tl.arange(0, WIDTH)
    count, total, product = gradient_sums(Counts, Sums, Products, column, width, parts, PARTS)
    if tl.program_id(0) == 0:
        store_vector(GradWeight, column, width, product)
        store_vector(GradBias, column, width, total)
    mean, scale = load_vector(Mean, column, width), load_vector(Scale, column, width)
    slope = load_vector(Weight, column, width) * scale
    for first in range(tl.program_id(0) * ROWS, rows, programs * ROWS):
        row = (first + tl.arange(0, ROWS)).to(tl.int64)
        unit = (load_tile(S, row, column, rows, width) - mean[None, :]) * scale[None, :]
        grad = load_tile(G, row, column, rows, width) - (total[None, :] + unit * product[None, :]) / count
        live = rows_alive(Live, row, rows, MASKED)
        store_tile(GradS, row, column, rows, width, tl.where(live[:, None], grad * slope[None, :], 0.0))


@triton.jit
def move(Running, RunningVar, Mean, Variance, column, width, momentum, bias):
    """Move the running statistics towards those of a batch, whose mean lacks ``bias``."""
    for_mean, for_var = load_vector(Running, column, width), load_vector(RunningVar, column, width)
    mean = load_vector(Mean, column, width) + bias
    variance = load_vector(Variance, column, width)
    store_vector(Running, column, width, for_mean + momentum * (mean - for_mean))
    store_vector(RunningVar, column, width, for_var + momentum * (variance - for_var))


@triton.jit(do_not_specialize=COUNTS)
def follow_seen(
    Running, RunningVar, Seen, Mean, Variance, Live, rows, width, momentum,
    MASKED: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Move running statistics that begin as the plain mean over batches; ``Seen`` counts those of two rows or more."""
    count = tl.zeros((ROWS,), tl.float32)
    for first in range(0, rows, ROWS):
        count += rows_alive(Live, first + tl.arange(0, ROWS), rows, MASKED).to(tl.float32)
    enough = tl.where(tl.sum(count, 0) > 1, 1.0, 0.0)
    seen = tl.load(Seen) + enough
    share = enough / tl.minimum(tl.maximum(seen, 1.0), 1.0 / momentum)
    move(Running, RunningVar, Mean, Variance, tl.arange(0, WIDTH), width, share, 0.0)
    tl.store(Seen, seen)


@triton.jit
def follow(
    Running, RunningVar, Mean, Variance, Ahead, width, momentum, AHEAD: tl.constexpr, WIDTH: tl.constexpr
):  # fmt: skip
    column = tl.arange(0, WIDTH)
    bias = load_vector(Ahead, column, width) if AHEAD else 0.0
    move(Running, RunningVar, Mean, Variance, column, width, momentum, bias)
