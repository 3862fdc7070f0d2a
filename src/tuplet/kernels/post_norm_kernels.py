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
    before_norm,
    grow,
    load_tile,
    load_vector,
    move,
    normed_tile,
    rows_alive,
    store_rounded,
    store_share,
    store_tile,
)
from tuplet.kernels.sizes import COUNTS


@triton.jit
def _summed(x, m, wo, PRECISION: tl.constexpr):
    """x + Wo m, forward and when it is made again."""
    m, by = halved(m, PRECISION)
    wo, by_wo = halved(wo, PRECISION)
    return x + tl.dot(m, tl.trans(wo), input_precision=PRECISION) * (by * by_wo)


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


@triton.jit
def _inside(
    y, grad, w1, by1, w2, by2, B1, inner, hidden, GELU: tl.constexpr, LOW: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    """Of a tile of y and of the gradient of t: halves of both, φ(W1 y + b1), and the gradient of W1 y + b1."""
    y, by_y = halved(y.to(LOW), PRECISION)
    h = tl.dot(y, tl.trans(w1), input_precision=PRECISION) * (by_y * by1) + load_vector(B1, inner, hidden)[None, :]
    a, slope = activation(h, GELU)
    low, by = halved(grad.to(LOW), PRECISION)
    grad_h = tl.dot(low, w2, input_precision=PRECISION) * (by * by2) * slope
    return y, by_y, low, by, a, grad_h


@triton.jit
def _first_norm(S, row, column, rows, width, Mean, Scale, Weight, Bias):
    """A tile of the normalised s, and of y = BN(s)."""
    s = load_tile(S, row, column, rows, width)
    unit = (s - load_vector(Mean, column, width)[None, :]) * load_vector(Scale, column, width)[None, :]
    return unit, unit * load_vector(Weight, column, width)[None, :] + load_vector(Bias, column, width)[None, :]


@triton.jit(do_not_specialize=COUNTS)
def feed_gradient(
    G, T, MeanT, ScaleT, WeightT, NormT, S, MeanS, ScaleS, WeightS, BiasS, Live, W1, B1, W2, GradY, Counts, Sums, Products,
    rows, width, hidden, programs,
    MASKED: tl.constexpr, GELU: tl.constexpr, LOW: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, HIDDEN: tl.constexpr,
):  # fmt: skip
    """From the gradient of z that of y, and this program's share of the sums that the gradient of y = BN(s) needs. ``NormT`` is what
    ``settle_gradient`` found for z = BN(t)."""
    program = tl.program_id(0)
    column, inner = tl.arange(0, WIDTH), tl.arange(0, HIDDEN)
    w1, by1 = halved(load_tile(W1, inner, column, hidden, width).to(LOW), PRECISION)
    w2, by2 = halved(load_tile(W2, column, inner, width, hidden).to(LOW), PRECISION)
    count = tl.zeros((ROWS,), tl.float32)
    total = tl.zeros((ROWS, WIDTH), tl.float32)
    product = tl.zeros((ROWS, WIDTH), tl.float32)
    for first in range(program * ROWS, rows, programs * ROWS):
        row = (first + tl.arange(0, ROWS)).to(tl.int64)
        live = rows_alive(Live, row, rows, MASKED)
        unit, y = _first_norm(S, row, column, rows, width, MeanS, ScaleS, WeightS, BiasS)
        grad, _ = before_norm(G, T, row, column, rows, width, live, MeanT, ScaleT, WeightT, NormT)
        _, _, _, _, _, grad_h = _inside(y, grad, w1, by1, w2, by2, B1, inner, hidden, GELU, LOW, PRECISION)
        low, by = halved(grad_h.to(LOW), PRECISION)
        grad += tl.dot(low, w1, input_precision=PRECISION) * (by * by1)
        store_tile(GradY, row, column, rows, width, grad)
        count += live.to(tl.float32)
        total += grad
        product += grad * unit
    count, total, product = tl.sum(count, 0), tl.sum(total, 0), tl.sum(product, 0)
    store_share(Counts, Sums, Products, program, column, width, count, total, product)


@triton.jit(do_not_specialize=COUNTS)
def feed_weights_gradient(
    G, T, MeanT, ScaleT, WeightT, NormT, S, MeanS, ScaleS, WeightS, BiasS, Live, W1, B1, W2, Share,
    rows, width, hidden, programs,
    MASKED: tl.constexpr, GELU: tl.constexpr, LOW: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, HIDDEN: tl.constexpr,
):  # fmt: skip
    """This program's share of the gradients of W1, W2 and b1. What ``feed_gradient`` found on its way is found again: nothing waits for
    this, and the other has registers for more programs at once."""
    program = tl.program_id(0)
    column, inner = tl.arange(0, WIDTH), tl.arange(0, HIDDEN)
    w1, by1 = halved(load_tile(W1, inner, column, hidden, width).to(LOW), PRECISION)
    w2, by2 = halved(load_tile(W2, column, inner, width, hidden).to(LOW), PRECISION)
    grad_w1 = tl.zeros((HIDDEN, WIDTH), tl.float32)
    grad_w2 = tl.zeros((WIDTH, HIDDEN), tl.float32)
    grad_b1 = tl.zeros((ROWS, HIDDEN), tl.float32)
    for first in range(
        program * ROWS, rows, programs * ROWS
    ):  # registers are scarce: vectors are read anew for each tile
        row = (first + tl.arange(0, ROWS)).to(tl.int64)
        live = rows_alive(Live, row, rows, MASKED)
        _, y = _first_norm(S, row, column, rows, width, MeanS, ScaleS, WeightS, BiasS)
        grad, _ = before_norm(G, T, row, column, rows, width, live, MeanT, ScaleT, WeightT, NormT)
        y, by_y, low, by, a, grad_h = _inside(y, grad, w1, by1, w2, by2, B1, inner, hidden, GELU, LOW, PRECISION)
        a, by_a = halved(a.to(LOW), PRECISION)
        grad_b1 += grad_h
        grad_w2 += tl.dot(tl.trans(low), a, input_precision=PRECISION) * (by * by_a)
        low, by = halved(grad_h.to(LOW), PRECISION)
        grad_w1 += tl.dot(tl.trans(low), y, input_precision=PRECISION) * (by * by_y)
    size = width * hidden
    own = Share + program * (2 * size + hidden)
    one, two = (inner < hidden), (column < width)
    tl.store(own + inner[:, None] * width + column[None, :], grad_w1, mask=one[:, None] & two[None, :])
    tl.store(own + size + column[:, None] * hidden + inner[None, :], grad_w2, mask=two[:, None] & one[None, :])
    tl.store(own + 2 * size + inner, tl.sum(grad_b1, 0), mask=one)


@triton.jit(do_not_specialize=COUNTS)
def message_gradient(
    G, S, Wo, Live, Mean, Scale, Weight, Norm, GradX, GradM, rows, width,
    MASKED: tl.constexpr, LOW: tl.constexpr, PRECISION: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """From the gradient of y = BN(s) those of s, which is that of x, and of m."""
    column = tl.arange(0, WIDTH)
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    live = rows_alive(Live, row, rows, MASKED)
    wo, by_wo = halved(load_tile(Wo, column, column, width, width).to(LOW), PRECISION)
    grad, _ = before_norm(G, S, row, column, rows, width, live, Mean, Scale, Weight, Norm)
    store_tile(GradX, row, column, rows, width, grad)  # which may be G
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
