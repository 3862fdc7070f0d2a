"""Kernels for the second half of a post-norm layer: s = x + Wo m, y = BN(s), t = y + FFN(y), z = BN(t).

y exists on the chip alone: what is kept is t, and s or what makes it again (the message, and what x was made of). Statistics are merged
as in ``norm_kernels``; sums over tokens are shared among programs, each of which writes its own share: no atomics.
"""

# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from tuplet.kernels.dense_kernels import activation
from tuplet.kernels.halves import halved
from tuplet.kernels.norm_kernels import (
    gradient_sums,
    grow,
    load_tile,
    load_vector,
    move,
    normed_tile,
    rows_alive,
    store_rounded,
    store_share,
    store_tile,
    store_vector,
)
from tuplet.kernels.sizes import COUNTS


@triton.jit
def _summed(x, m, wo, PRECISION: tl.constexpr):
    """x + Wo m, forward and when it is made again."""
    return tl.dot(m, tl.trans(wo), acc=x, input_precision=PRECISION)


@triton.jit(do_not_specialize=COUNTS)
def add_message(
    X, M, Wo, Live, S, Counts, Means, Squares, rows, width, programs,
    MASKED: tl.constexpr, LOW: tl.constexpr, PRECISION: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """s = x + Wo m, and this program's share of its statistics."""
    program = tl.program_id(0)
    column = tl.arange(0, WIDTH)
    wo = load_tile(Wo, column, column, width, width).to(LOW)
    count = 0.0
    mean = tl.zeros((WIDTH,), tl.float32)
    square = tl.zeros((WIDTH,), tl.float32)
    for first in range(program * ROWS, rows, programs * ROWS):
        row = (first + tl.arange(0, ROWS)).to(tl.int64)
        m = load_tile(M, row, column, rows, width).to(LOW)
        s = _summed(load_tile(X, row, column, rows, width), m, wo, PRECISION)
        s = store_rounded(S, row, column, rows, width, s)
        count, mean, square = grow(count, mean, square, s, rows_alive(Live, row, rows, MASKED))
    store_share(Counts, Means, Squares, program, column, width, count, mean, square)


@triton.jit(do_not_specialize=COUNTS)
def add_message_again(
    T, Found, Weight, Bias, M, Wo, S, rows, width,
    LOW: tl.constexpr, PRECISION: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """s = x + Wo m, of x as a norm made it of t."""
    column = tl.arange(0, WIDTH)
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    wo = load_tile(Wo, column, column, width, width).to(LOW)
    m = load_tile(M, row, column, rows, width).to(LOW)
    x = normed_tile(T, row, column, rows, width, Found, Weight, Bias)
    store_tile(S, row, column, rows, width, _summed(x, m, wo, PRECISION))


@triton.jit(do_not_specialize=COUNTS)
def feed(
    S, Mean, Scale, Weight, Bias, Live, W1, B1, W2, T, Counts, Means, Squares, rows, width, hidden, programs,
    MASKED: tl.constexpr, GELU: tl.constexpr, LOW: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, HIDDEN: tl.constexpr,
):  # fmt: skip
    """t = y + W2 φ(W1 y + b1) of y = BN(s), and this program's share of the statistics of t."""
    program = tl.program_id(0)
    column, inner = tl.arange(0, WIDTH), tl.arange(0, HIDDEN)
    mean = load_vector(Mean, column, width)
    slope = load_vector(Weight, column, width) * load_vector(Scale, column, width)
    bias = load_vector(Bias, column, width)
    w1, by1 = halved(load_tile(W1, inner, column, hidden, width).to(LOW), PRECISION)
    w2, by2 = halved(load_tile(W2, column, inner, width, hidden).to(LOW), PRECISION)
    b1 = load_vector(B1, inner, hidden)
    count = 0.0
    new_mean = tl.zeros((WIDTH,), tl.float32)
    square = tl.zeros((WIDTH,), tl.float32)
    for first in range(program * ROWS, rows, programs * ROWS):
        row = (first + tl.arange(0, ROWS)).to(tl.int64)
        y = (load_tile(S, row, column, rows, width) - mean[None, :]) * slope[None, :] + bias[None, :]
        low, by = halved(y.to(LOW), PRECISION)
        h = tl.dot(low, tl.trans(w1), input_precision=PRECISION) * (by * by1) + b1[None, :]
        a, _ = activation(h, GELU)
        a, by = halved(a.to(LOW), PRECISION)
        t = y + tl.dot(a, tl.trans(w2), input_precision=PRECISION) * (by * by2)
        t = store_rounded(T, row, column, rows, width, t)
        count, new_mean, square = grow(count, new_mean, square, t, rows_alive(Live, row, rows, MASKED))
    store_share(Counts, Means, Squares, program, column, width, count, new_mean, square)


@triton.jit(do_not_specialize=COUNTS)
def feed_gradient(
    G, T, MeanT, ScaleT, WeightT, Counts, Sums, Products, S, MeanS, ScaleS, WeightS, BiasS, Live, W1, B1, W2,
    GradY, Share, NewCounts, NewSums, NewProducts, Norms,
    rows, width, hidden, parts, programs,
    MASKED: tl.constexpr, GELU: tl.constexpr, LOW: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, HIDDEN: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """From the gradient of z that of y; this program's share of those of W1, W2 and b1, and of the sums that the gradient of
    y = BN(s) needs.

    ``Norms`` (2, 3, width) are gradients of weights and biases of both norms, and of the biases before them, which are zero.
    """
    program = tl.program_id(0)
    column, inner = tl.arange(0, WIDTH), tl.arange(0, HIDDEN)
    count, total, product = gradient_sums(Counts, Sums, Products, column, width, parts, PARTS)
    if program == 0:
        store_vector(Norms + 2 * width, column, width, total * 0.0)
        store_vector(Norms + 3 * width, column, width, product)
        store_vector(Norms + 4 * width, column, width, total)
        store_vector(Norms + 5 * width, column, width, total * 0.0)
    w1, by1 = halved(load_tile(W1, inner, column, hidden, width).to(LOW), PRECISION)
    w2, by2 = halved(load_tile(W2, column, inner, width, hidden).to(LOW), PRECISION)
    grad_w1 = tl.zeros((HIDDEN, WIDTH), tl.float32)
    grad_w2 = tl.zeros((WIDTH, HIDDEN), tl.float32)
    grad_b1 = tl.zeros((ROWS, HIDDEN), tl.float32)
    new_count = tl.zeros((ROWS,), tl.float32)
    new_total = tl.zeros((ROWS, WIDTH), tl.float32)
    new_product = tl.zeros((ROWS, WIDTH), tl.float32)
    for first in range(
        program * ROWS, rows, programs * ROWS
    ):  # registers are scarce: vectors are read anew for each tile
        row = (first + tl.arange(0, ROWS)).to(tl.int64)
        live = rows_alive(Live, row, rows, MASKED)
        t, grad = load_tile(T, row, column, rows, width), load_tile(G, row, column, rows, width)
        s = load_tile(S, row, column, rows, width)
        scale = load_vector(ScaleT, column, width)
        unit = (t - load_vector(MeanT, column, width)[None, :]) * scale[None, :]
        grad -= (total[None, :] + unit * product[None, :]) / count
        slope = load_vector(WeightT, column, width) * scale
        grad = tl.where(live[:, None], grad * slope[None, :], 0.0)
        unit = (s - load_vector(MeanS, column, width)[None, :]) * load_vector(ScaleS, column, width)[None, :]
        y = unit * load_vector(WeightS, column, width)[None, :] + load_vector(BiasS, column, width)[None, :]
        y, by_y = halved(y.to(LOW), PRECISION)
        h = tl.dot(y, tl.trans(w1), input_precision=PRECISION) * (by_y * by1) + load_vector(B1, inner, hidden)[None, :]
        a, slope = activation(h, GELU)
        a, by_a = halved(a.to(LOW), PRECISION)
        low, by = halved(grad.to(LOW), PRECISION)
        grad_h = tl.dot(low, w2, input_precision=PRECISION) * (by * by2) * slope
        grad_b1 += grad_h
        grad_w2 += tl.dot(tl.trans(low), a, input_precision=PRECISION) * (by * by_a)
        low, by = halved(grad_h.to(LOW), PRECISION)
        grad_w1 += tl.dot(tl.trans(low), y, input_precision=PRECISION) * (by * by_y)
        grad += tl.dot(low, w1, input_precision=PRECISION) * (by * by1)
        store_tile(GradY, row, column, rows, width, grad)
        new_count += live.to(tl.float32)
        new_total += grad
        new_product += grad * unit
    size = width * hidden
    own = Share + program * (2 * size + hidden)
    one, two = (inner < hidden), (column < width)
    tl.store(own + inner[:, None] * width + column[None, :], grad_w1, mask=one[:, None] & two[None, :])
    tl.store(own + size + column[:, None] * hidden + inner[None, :], grad_w2, mask=two[:, None] & one[None, :])
    tl.store(own + 2 * size + inner, tl.sum(grad_b1, 0), mask=one)
    new_count, new_total, new_product = tl.sum(new_count, 0), tl.sum(new_total, 0), tl.sum(new_product, 0)
    store_share(NewCounts, NewSums, NewProducts, program, column, width, new_count, new_total, new_product)


@triton.jit(do_not_specialize=COUNTS)
def message_gradient(
    G, S, Wo, Live, Mean, Scale, Weight, Counts, Sums, Products, GradX, GradM, GradWeight, GradBias,
    rows, width, parts, programs,
    MASKED: tl.constexpr, LOW: tl.constexpr, PRECISION: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
    PARTS: tl.constexpr,
):  # fmt: skip
    """From the gradient of y = BN(s) those of s, which is that of x, and of m."""
    program = tl.program_id(0)
    column = tl.arange(0, WIDTH)
    count, total, product = gradient_sums(Counts, Sums, Products, column, width, parts, PARTS)
    if program == 0:
        store_vector(GradWeight, column, width, product)
        store_vector(GradBias, column, width, total)
    mean, scale = load_vector(Mean, column, width), load_vector(Scale, column, width)
    slope = load_vector(Weight, column, width) * scale
    wo, by_wo = halved(load_tile(Wo, column, column, width, width).to(LOW), PRECISION)
    for first in range(program * ROWS, rows, programs * ROWS):
        row = (first + tl.arange(0, ROWS)).to(tl.int64)
        # all is read before anything is written: GradX may be G, and GradM S
        unit = (load_tile(S, row, column, rows, width) - mean[None, :]) * scale[None, :]
        grad = load_tile(G, row, column, rows, width) - (total[None, :] + unit * product[None, :]) / count
        grad = tl.where(rows_alive(Live, row, rows, MASKED)[:, None], grad * slope[None, :], 0.0)
        store_tile(GradX, row, column, rows, width, grad)
        grad, by = halved(grad.to(LOW), PRECISION)
        store_tile(GradM, row, column, rows, width, tl.dot(grad, wo, input_precision=PRECISION) * (by * by_wo))


@triton.jit
def follow(
    MeanS, VarS, MeanT, VarT, Found, BiasS, BiasT, width, momentum_s, momentum_t, WIDTH: tl.constexpr
):  # fmt: skip
    """Move the running statistics of both norms; ``Found`` (2, 3, width) are means, scales and variances without biases."""
    column = tl.arange(0, WIDTH)
    bias = load_vector(BiasS, column, width)
    move(MeanS, VarS, Found, Found + 2 * width, column, width, momentum_s, bias)
    bias = load_vector(BiasT, column, width)
    move(MeanT, VarT, Found + 3 * width, Found + 5 * width, column, width, momentum_t, bias)
