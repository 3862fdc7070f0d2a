"""Kernels for the feature map of FAVOR+: φ(x) = exp(w·x - |x|²/2 - stabiliser) / √m + ε, in one pass over the tokens each.

Exponents never leave the chip; the backward pass computes them again. Rows are (token, head), directions come in blocks of
``FEATURES``. The largest exponent of a graph is found by atomic maxima, which give the same bits in any order.
"""

# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from tuplet.attention.fused.arithmetic import exp
from tuplet.kernels.sizes import COUNTS


@triton.jit
def _vectors(X, token, head, live, x_token, scale, width: tl.constexpr, x_head: tl.constexpr, WIDTH: tl.constexpr):
    """(rows, WIDTH) scaled vectors in float32; zero where a row does not exist."""
    column = tl.arange(0, WIDTH)
    at = X + token[:, None] * x_token + (head * x_head)[:, None] + column[None, :]
    return tl.load(at, mask=live[:, None] & (column < width)[None, :], other=0.0).to(tl.float32) * scale


@triton.jit
def _exponents(
    x, Directions, begin, width: tl.constexpr, features: tl.constexpr, PRECISION: tl.constexpr, WIDTH: tl.constexpr,
    FEATURES: tl.constexpr,
):  # fmt: skip
    """(rows, FEATURES) exponents w·x - |x|²/2 from direction ``begin`` on; minus infinity after the last direction."""
    column, number = tl.arange(0, WIDTH), begin + tl.arange(0, FEATURES)
    there = number < features
    at = Directions + number[None, :] * width + column[:, None]
    w = tl.load(at, mask=(column < width)[:, None] & there[None, :], other=0.0).to(tl.float32)
    exponent = tl.dot(x, w, input_precision=PRECISION) - (tl.sum(x * x, 1) / 2)[:, None]
    return tl.where(there[None, :], exponent, float("-inf"))


@triton.jit
def _row_maxima(
    x, Directions, width: tl.constexpr, features: tl.constexpr, PRECISION: tl.constexpr, ROWS: tl.constexpr,
    WIDTH: tl.constexpr, FEATURES: tl.constexpr,
):  # fmt: skip
    """(rows,) largest exponents."""
    largest = tl.full((ROWS,), float("-inf"), tl.float32)
    for begin in range(0, features, FEATURES):
        exponent = _exponents(x, Directions, begin, width, features, PRECISION, WIDTH, FEATURES)
        largest = tl.maximum(largest, tl.max(exponent, 1))
    return largest


@triton.jit(do_not_specialize=COUNTS)
def largest(
    X, Directions, Graph, Largest, tokens, x_token, scale,
    heads: tl.constexpr, width: tl.constexpr, features: tl.constexpr, x_head: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, FEATURES: tl.constexpr,
):  # fmt: skip
    """Raise Largest (graphs, heads) to the exponents of a tile of keys: one maximum for each graph that has some of them."""
    token, head = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS), tl.program_id(1)
    live = token < tokens
    x = _vectors(X, token, token * 0 + head, live, x_token, scale, width, x_head, WIDTH)
    found = _row_maxima(x, Directions, width, features, PRECISION, ROWS, WIDTH, FEATURES)
    graph = tl.load(Graph + token, mask=live, other=-1)
    last = tl.max(graph, 0)
    for number in range(tl.min(tl.where(live, graph, last), 0), last + 1):
        own = tl.max(tl.where(graph == number, found, float("-inf")), 0)
        if own > float("-inf"):
            # an atomic maximum compares bits, in which -0.0 is less than anything: make it 0.0
            tl.atomic_max(Largest + number * heads + head, tl.where(own == 0, 0.0, own), sem="relaxed")


@triton.jit
def _shift(Shift, Graph, row, token, head, live, heads: tl.constexpr, GRAPHS: tl.constexpr):
    """(rows,) stabilisers: those of the rows themselves, or of their graphs."""
    if GRAPHS:
        row = tl.load(Graph + token, mask=live, other=0) * heads + head
    return tl.load(Shift + row, mask=live, other=0.0)


@triton.jit(do_not_specialize=COUNTS)
def features_of(
    X, Directions, Shift, Graph, Phi, rows, x_token, scale, root, epsilon,
    heads: tl.constexpr, width: tl.constexpr, features: tl.constexpr, x_head: tl.constexpr, GRAPHS: tl.constexpr,
    PRECISION: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, FEATURES: tl.constexpr,
):  # fmt: skip
    """Phi (T, heads, features), with stabilisers of graphs; without, with those of the rows, which are written to Shift."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    live = row < rows
    token, head = row // heads, row % heads
    x = _vectors(X, token, head, live, x_token, scale, width, x_head, WIDTH)
    if GRAPHS:
        shift = _shift(Shift, Graph, row, token, head, live, heads, GRAPHS)
    else:
        shift = _row_maxima(x, Directions, width, features, PRECISION, ROWS, WIDTH, FEATURES)
        tl.store(Shift + row, shift, mask=live)
    for begin in range(0, features, FEATURES):
        exponent = _exponents(x, Directions, begin, width, features, PRECISION, WIDTH, FEATURES)
        phi = exp(exponent - shift[:, None], PRECISION) / root + epsilon
        number = begin + tl.arange(0, FEATURES)
        at = Phi + row[:, None] * features + number[None, :]
        tl.store(at, phi.to(Phi.dtype.element_ty), mask=live[:, None] & (number < features)[None, :])


@triton.jit(do_not_specialize=COUNTS)
def gradient(
    Grad, X, Directions, Shift, Graph, GradX, rows, x_token, scale, root,
    heads: tl.constexpr, width: tl.constexpr, features: tl.constexpr, x_head: tl.constexpr, GRAPHS: tl.constexpr,
    PRECISION: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, FEATURES: tl.constexpr,
):  # fmt: skip
    """GradX (T, heads, width) through the exponents: Σ g·(w - x), where g is the gradient of an exponent."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, WIDTH)
    live = row < rows
    token, head = row // heads, row % heads
    x = _vectors(X, token, head, live, x_token, scale, width, x_head, WIDTH)
    shift = _shift(Shift, Graph, row, token, head, live, heads, GRAPHS)
    total = tl.zeros((ROWS,), tl.float32)
    grad_x = tl.zeros((ROWS, WIDTH), tl.float32)
    for begin in range(0, features, FEATURES):
        exponent = _exponents(x, Directions, begin, width, features, PRECISION, WIDTH, FEATURES)
        number = begin + tl.arange(0, FEATURES)
        there = number < features
        at = Grad + row[:, None] * features + number[None, :]
        grad = tl.load(at, mask=live[:, None] & there[None, :], other=0.0).to(tl.float32)
        grad = grad * exp(exponent - shift[:, None], PRECISION) / root
        total += tl.sum(grad, 1)
        at = Directions + number[:, None] * width + column[None, :]
        w = tl.load(at, mask=there[:, None] & (column < width)[None, :], other=0.0).to(tl.float32)
        grad_x += tl.dot(grad, w, input_precision=PRECISION)
    grad_x = (grad_x - total[:, None] * x) * scale
    at = GradX + row[:, None] * width + column[None, :]
    tl.store(at, grad_x.to(GradX.dtype.element_ty), mask=live[:, None] & (column < width)[None, :])
