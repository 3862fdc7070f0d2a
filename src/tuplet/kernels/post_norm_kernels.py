"""Kernels for the second half of a post-norm layer: s = x + message, y = BN(s), t = y + FFN(y), z = BN(t).

y exists on the chip alone: what is kept are s and t, from which everything else is made again. Statistics are merged as in
``norm_kernels``; sums over tokens are shared among programs, each of which writes its own share: no atomics.
"""

# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from tuplet.kernels.dense_kernels import activation
from tuplet.kernels.norm_kernels import (
    gradient_sums,
    grow,
    load_tile,
    load_vector,
    move,
    rows_alive,
    settled,
    store_share,
    store_tile,
    store_vector,
)


@triton.jit
def feed(
    S, Counts, Means, Squares, Weight, Bias, Live, W1, B1, W2, T, NewCounts, NewMeans, NewSquares, Mean, Scale, Variance,
    rows, width, hidden, parts, programs, eps,
    MASKED: tl.constexpr, GELU: tl.constexpr, LOW: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, HIDDEN: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """t = y + W2 φ(W1 y + b1) of y = BN(s), and this program's share of the statistics of t."""
    program = tl.program_id(0)
    column, inner = tl.arange(0, WIDTH), tl.arange(0, HIDDEN)
    mean, scale = settled(Counts, Means, Squares, Mean, Scale, Variance, column, width, parts, eps, PARTS)
    slope = load_vector(Weight, column, width) * scale
    bias = load_vector(Bias, column, width)
    w1 = load_tile(W1, inner, column, hidden, width).to(LOW)
    w2 = load_tile(W2, column, inner, width, hidden).to(LOW)
    b1 = load_vector(B1, inner, hidden)
    count = 0.0
    new_mean = tl.zeros((WIDTH,), tl.float32)
    square = tl.zeros((WIDTH,), tl.float32)
    for first in range(program * ROWS, rows, programs * ROWS):
        row = (first + tl.arange(0, ROWS)).to(tl.int64)
        y = (load_tile(S, row, column, rows, width) - mean[None, :]) * slope[None, :] + bias[None, :]
        h = tl.dot(y.to(LOW), tl.trans(w1), input_precision=PRECISION) + b1[None, :]
        a, _ = activation(h, GELU)
        t = y + tl.dot(a.to(LOW), tl.trans(w2), input_precision=PRECISION)
        store_tile(T, row, column, rows, width, t)
        count, new_mean, square = grow(count, new_mean, square, t, rows_alive(Live, row, rows, MASKED))
    store_share(NewCounts, NewMeans, NewSquares, program, column, width, count, new_mean, square)


@triton.jit
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
    mean_t, scale_t = load_vector(MeanT, column, width), load_vector(ScaleT, column, width)
    slope_t = load_vector(WeightT, column, width) * scale_t
    mean_s, scale_s = load_vector(MeanS, column, width), load_vector(ScaleS, column, width)
    weight_s, bias_s = load_vector(WeightS, column, width), load_vector(BiasS, column, width)
    w1 = load_tile(W1, inner, column, hidden, width).to(LOW)
    w2 = load_tile(W2, column, inner, width, hidden).to(LOW)
    b1 = load_vector(B1, inner, hidden)
    grad_w1 = tl.zeros((HIDDEN, WIDTH), tl.float32)
    grad_w2 = tl.zeros((WIDTH, HIDDEN), tl.float32)
    grad_b1 = tl.zeros((ROWS, HIDDEN), tl.float32)
    new_count = tl.zeros((ROWS,), tl.float32)
    new_total = tl.zeros((ROWS, WIDTH), tl.float32)
    new_product = tl.zeros((ROWS, WIDTH), tl.float32)
    for first in range(program * ROWS, rows, programs * ROWS):
        row = (first + tl.arange(0, ROWS)).to(tl.int64)
        live = rows_alive(Live, row, rows, MASKED)
        unit = (load_tile(T, row, column, rows, width) - mean_t[None, :]) * scale_t[None, :]
        grad = load_tile(G, row, column, rows, width) - (total[None, :] + unit * product[None, :]) / count
        grad = tl.where(live[:, None], grad * slope_t[None, :], 0.0)
        unit = (load_tile(S, row, column, rows, width) - mean_s[None, :]) * scale_s[None, :]
        y = (unit * weight_s[None, :] + bias_s[None, :]).to(LOW)
        h = tl.dot(y, tl.trans(w1), input_precision=PRECISION) + b1[None, :]
        a, slope = activation(h, GELU)
        low = grad.to(LOW)
        grad_h = tl.dot(low, w2, input_precision=PRECISION) * slope
        grad_b1 += grad_h
        grad_w2 += tl.dot(tl.trans(low), a.to(LOW), input_precision=PRECISION)
        grad_h = grad_h.to(LOW)
        grad_w1 += tl.dot(tl.trans(grad_h), y, input_precision=PRECISION)
        grad += tl.dot(grad_h, w1, input_precision=PRECISION)
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
