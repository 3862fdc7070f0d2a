"""Kernels for the update of tokens from their parts: t = x + W2 φ(W1 x + Wo o + b1 + rows of tables), z = BN(t).

What is kept is t, and the hidden vectors before φ. Statistics are merged as in ``norm_kernels``; sums over tokens are
shared among programs, each of which writes its own share: no atomics.
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
    rows_alive,
    store_rounded,
    store_share,
    store_tile,
    store_vector,
)
from tuplet.kernels.sizes import COUNTS


@triton.jit
def _taken(Tables, RowsA, RowsB, RowsC, row, column, rows, width, COUNT: tl.constexpr):
    """The sum of the rows that some tokens take of up to three tables, which stand side by side."""
    on, there = (row < rows)[:, None] & (column < width)[None, :], row < rows
    at = Tables + column[None, :]
    a = tl.load(RowsA + row, mask=there, other=0)
    b = tl.load(RowsB + row, mask=there, other=0)
    c = tl.load(RowsC + row, mask=there, other=0)
    taken = tl.load(at + a[:, None] * (COUNT * width), mask=on, other=0.0).to(tl.float32)
    if COUNT > 1:
        taken += tl.load(at + b[:, None] * (COUNT * width) + width, mask=on, other=0.0).to(tl.float32)
    if COUNT > 2:
        taken += tl.load(at + c[:, None] * (COUNT * width) + 2 * width, mask=on, other=0.0).to(tl.float32)
    return taken


@triton.jit(do_not_specialize=COUNTS)
def update(
    X, Other, Tables, RowsA, RowsB, RowsC, Live, W1, Wo, B1, W2, H, T, Counts, Means, Squares,
    rows, width, programs,
    OTHER: tl.constexpr, COUNT: tl.constexpr, MASKED: tl.constexpr, GELU: tl.constexpr, LOW: tl.constexpr,
    PRECISION: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The hidden vectors, t, and this program's share of its statistics."""
    program = tl.program_id(0)
    column = tl.arange(0, WIDTH)
    w1 = load_tile(W1, column, column, width, width).to(LOW)
    wo = load_tile(Wo, column, column, width, width).to(LOW) if OTHER else w1
    w2 = load_tile(W2, column, column, width, width).to(LOW)
    b1 = load_vector(B1, column, width)
    count = 0.0
    mean = tl.zeros((WIDTH,), tl.float32)
    square = tl.zeros((WIDTH,), tl.float32)
    for first in range(program * ROWS, rows, programs * ROWS):
        row = (first + tl.arange(0, ROWS)).to(tl.int64)
        # everything is asked for before anything is worked on
        taken = _taken(Tables, RowsA, RowsB, RowsC, row, column, rows, width, COUNT)
        x = load_tile(X, row, column, rows, width)
        other = load_tile(Other, row, column, rows, width).to(LOW) if OTHER else x.to(LOW)
        h = tl.dot(x.to(LOW), tl.trans(w1), taken + b1[None, :], input_precision=PRECISION)
        if OTHER:
            h = tl.dot(other, tl.trans(wo), h, input_precision=PRECISION)
        h = store_rounded(H, row, column, rows, width, h)
        a, _ = activation(h, GELU)
        t = x + tl.dot(a.to(LOW), tl.trans(w2), input_precision=PRECISION)
        t = store_rounded(T, row, column, rows, width, t)
        count, mean, square = grow(count, mean, square, t, rows_alive(Live, row, rows, MASKED))
    store_share(Counts, Means, Squares, program, column, width, count, mean, square)


@triton.jit(do_not_specialize=COUNTS)
def update_gradient(
    G, T, Found, Weight, Counts, Sums, Products, H, Live, W1, Wo, W2, GradT, GradH, GradX, GradOther, Norm,
    rows, width, parts, programs,
    OTHER: tl.constexpr, MASKED: tl.constexpr, GELU: tl.constexpr, LOW: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """From the gradient of z those of t, of the hidden vectors, which is that of the rows taken, of x and of o.

    ``Found`` are mean and scale of t. ``Norm`` (3, width) are gradients of weight and bias of the norm, and of the bias
    before it, which is zero.
    """
    program = tl.program_id(0)
    column = tl.arange(0, WIDTH)
    count, total, product = gradient_sums(Counts, Sums, Products, column, width, parts, PARTS)
    if program == 0:
        store_vector(Norm, column, width, product)
        store_vector(Norm + width, column, width, total)
        store_vector(Norm + 2 * width, column, width, total * 0.0)
    mean, scale = load_vector(Found, column, width), load_vector(Found + width, column, width)
    slope_t = load_vector(Weight, column, width) * scale
    w1, by1 = halved(load_tile(W1, column, column, width, width).to(LOW), PRECISION)
    w2, by2 = halved(load_tile(W2, column, column, width, width).to(LOW), PRECISION)
    wo, by_wo = w1, by1
    if OTHER:
        wo, by_wo = halved(load_tile(Wo, column, column, width, width).to(LOW), PRECISION)
    for first in range(program * ROWS, rows, programs * ROWS):
        row = (first + tl.arange(0, ROWS)).to(tl.int64)
        live = rows_alive(Live, row, rows, MASKED)
        # everything is asked for before anything is worked on
        t, grad = load_tile(T, row, column, rows, width), load_tile(G, row, column, rows, width)
        h = load_tile(H, row, column, rows, width)
        grad -= (total[None, :] + (t - mean[None, :]) * scale[None, :] * product[None, :]) / count
        grad = tl.where(live[:, None], grad * slope_t[None, :], 0.0)
        store_tile(GradT, row, column, rows, width, grad)
        _, slope = activation(h, GELU)
        low, by = halved(grad.to(LOW), PRECISION)
        grad_h = tl.dot(low, w2, input_precision=PRECISION) * (by * by2) * slope
        store_tile(GradH, row, column, rows, width, grad_h)
        low, by = halved(grad_h.to(LOW), PRECISION)
        grad += tl.dot(low, w1, input_precision=PRECISION) * (by * by1)
        store_tile(GradX, row, column, rows, width, grad)
        if OTHER:
            grad_other = tl.dot(low, wo, input_precision=PRECISION) * (by * by_wo)
            store_tile(GradOther, row, column, rows, width, grad_other)


@triton.jit(do_not_specialize=COUNTS)
def update_weights_gradient(
    GradT, GradH, H, X, Other, Share, rows, width, programs,
    OTHER: tl.constexpr, GELU: tl.constexpr, LOW: tl.constexpr, PRECISION: tl.constexpr, ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):  # fmt: skip
    """This program's share of the gradients of W1, W2, b1 and Wo: products of tiles that do not wait for each other."""
    program = tl.program_id(0)
    column = tl.arange(0, WIDTH)
    grad_w1 = tl.zeros((WIDTH, WIDTH), tl.float32)
    grad_wo = tl.zeros((WIDTH, WIDTH), tl.float32)
    grad_w2 = tl.zeros((WIDTH, WIDTH), tl.float32)
    grad_b1 = tl.zeros((ROWS, WIDTH), tl.float32)
    for first in range(program * ROWS, rows, programs * ROWS):
        row = (first + tl.arange(0, ROWS)).to(tl.int64)
        # everything is asked for before anything is worked on
        grad, grad_h = load_tile(GradT, row, column, rows, width), load_tile(GradH, row, column, rows, width)
        h = load_tile(H, row, column, rows, width)
        x, by_x = halved(load_tile(X, row, column, rows, width).to(LOW), PRECISION)
        other, by_other = x, by_x
        if OTHER:
            other, by_other = halved(load_tile(Other, row, column, rows, width).to(LOW), PRECISION)
        a, _ = activation(h, GELU)
        a, by_a = halved(a.to(LOW), PRECISION)
        low, by = halved(grad.to(LOW), PRECISION)
        grad_w2 += tl.dot(tl.trans(low), a, input_precision=PRECISION) * (by * by_a)
        grad_b1 += grad_h
        low, by = halved(grad_h.to(LOW), PRECISION)
        grad_w1 += tl.dot(tl.trans(low), x, input_precision=PRECISION) * (by * by_x)
        if OTHER:
            grad_wo += tl.dot(tl.trans(low), other, input_precision=PRECISION) * (by * by_other)
    size = width * width
    own = Share + program * ((3 if OTHER else 2) * size + width)
    store_tile(own, column, column, width, width, grad_w1)
    store_tile(own + size, column, column, width, width, grad_w2)
    store_vector(own + 2 * size, column, width, tl.sum(grad_b1, 0))
    if OTHER:
        store_tile(own + 2 * size + width, column, column, width, width, grad_wo)
