"""Kernels for the dense maps of tokens: sums over tokens, and the feed-forward as a whole.

Sums over tokens are shared among programs, each of which writes its own share: no atomics.
"""

# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from tuplet.kernels.sizes import COUNTS


@triton.jit
def _tile(X, row, column, rows, width):
    on = (row < rows)[:, None] & (column < width)[None, :]
    return tl.load(X + row[:, None].to(tl.int64) * width + column[None, :], mask=on, other=0.0)


@triton.jit(do_not_specialize=COUNTS)
def column_sums(X, Share, rows, width, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Share (parts, width): the sums over a tile of rows."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    total = tl.sum(_tile(X, row, column, rows, width).to(tl.float32), 0)
    tl.store(Share + tl.program_id(0) * width + column, total, mask=column < width)


@triton.jit(do_not_specialize=COUNTS)
def add_shares(Share, Out, parts, count, PARTS: tl.constexpr, COLUMNS: tl.constexpr):
    """Out (count,): the sum of the shares (parts, count) of all programs."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((PARTS, COLUMNS), tl.float32)
    for first in range(0, parts, PARTS):
        total += _tile(Share, first + tl.arange(0, PARTS), column, parts, count)
    tl.store(Out + column, tl.sum(total, 0).to(Out.dtype.element_ty), mask=column < count)


@triton.jit
def activation(h, GELU: tl.constexpr):
    """The activation and its derivative."""
    if GELU:
        # the error function from the bell curve that the derivative needs anyway (Abramowitz and Stegun, 7.1.26): 1.5e-7 away
        bell = tl.exp(-0.5 * h * h)
        t = 1.0 / (1.0 + 0.23164190 * tl.abs(h))
        tail = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429)))) * bell
        below = tl.where(h < 0, 0.5 * tail, 1.0 - 0.5 * tail)  # how much of the bell lies below h
        value = h * below
        slope = below + h * bell * 0.3989422804014327
    else:
        value = tl.maximum(h, 0.0)
        slope = tl.where(h > 0, 1.0, 0.0)
    return value, slope


@triton.jit(do_not_specialize=COUNTS)
def feed_forward(
    X, W1, B1, W2, B2, Y, rows, width, hidden,
    GELU: tl.constexpr, PRECISION: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, HIDDEN: tl.constexpr,
):  # fmt: skip
    """Y = W2 φ(W1 x + b1) + b2 for a tile of tokens; what lies between never leaves the chip."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column, inner = tl.arange(0, WIDTH), tl.arange(0, HIDDEN)
    x = _tile(X, row, column, rows, width)
    w1 = _tile(W1, inner, column, hidden, width).to(x.dtype)
    w2 = _tile(W2, column, inner, width, hidden).to(x.dtype)
    h = tl.dot(x, tl.trans(w1), input_precision=PRECISION)
    h += tl.load(B1 + inner, mask=inner < hidden, other=0.0).to(tl.float32)[None, :]
    a, _ = activation(h, GELU)
    y = tl.dot(a.to(x.dtype), tl.trans(w2), input_precision=PRECISION)
    y += tl.load(B2 + column, mask=column < width, other=0.0).to(tl.float32)[None, :]
    on = (row < rows)[:, None] & (column < width)[None, :]
    tl.store(Y + row[:, None].to(tl.int64) * width + column[None, :], y.to(Y.dtype.element_ty), mask=on)


@triton.jit(do_not_specialize=COUNTS)
def feed_forward_gradient(
    G, X, W1, B1, W2, GradX, Share, rows, width, hidden, parts,
    GELU: tl.constexpr, PRECISION: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, HIDDEN: tl.constexpr,
):  # fmt: skip
    """GradX, and Share (parts, 2·width·hidden + hidden + width): one program's sums for W1, W2, b1 and b2."""
    part = tl.program_id(0)
    column, inner = tl.arange(0, WIDTH), tl.arange(0, HIDDEN)
    w1 = _tile(W1, inner, column, hidden, width)
    w2 = _tile(W2, column, inner, width, hidden)
    b1 = tl.load(B1 + inner, mask=inner < hidden, other=0.0).to(tl.float32)
    grad_w1 = tl.zeros((HIDDEN, WIDTH), tl.float32)
    grad_w2 = tl.zeros((WIDTH, HIDDEN), tl.float32)
    grad_b1 = tl.zeros((HIDDEN,), tl.float32)
    grad_b2 = tl.zeros((WIDTH,), tl.float32)
    for first in range(part * ROWS, rows, parts * ROWS):
        row = first + tl.arange(0, ROWS)
        x = _tile(X, row, column, rows, width)
        grad = _tile(G, row, column, rows, width)
        h = tl.dot(x, tl.trans(w1.to(x.dtype)), input_precision=PRECISION) + b1[None, :]
        a, slope = activation(h, GELU)
        grad_h = tl.dot(grad, w2.to(grad.dtype), input_precision=PRECISION) * slope
        grad_b1 += tl.sum(tl.where((row < rows)[:, None], grad_h, 0.0), 0)
        grad_b2 += tl.sum(grad.to(tl.float32), 0)
        grad_w2 += tl.dot(tl.trans(grad), a.to(grad.dtype), input_precision=PRECISION)
        grad_h = grad_h.to(x.dtype)
        grad_w1 += tl.dot(tl.trans(grad_h), x, input_precision=PRECISION)
        grad_x = tl.dot(grad_h, w1.to(x.dtype), input_precision=PRECISION)
        on = (row < rows)[:, None] & (column < width)[None, :]
        tl.store(
            GradX + row[:, None].to(tl.int64) * width + column[None, :], grad_x.to(GradX.dtype.element_ty), mask=on
        )
    size = width * hidden
    own = Share + part * (2 * size + hidden + width)
    one, two = (inner < hidden), (column < width)
    tl.store(own + inner[:, None] * width + column[None, :], grad_w1, mask=one[:, None] & two[None, :])
    tl.store(own + size + column[:, None] * hidden + inner[None, :], grad_w2, mask=two[:, None] & one[None, :])
    tl.store(own + 2 * size + inner, grad_b1, mask=one)
    tl.store(own + 2 * size + hidden + column, grad_b2, mask=two)
