"""Kernels for the maps of tokens to queries, keys and values: up to three square matrices, results side by side.

Tokens of several kinds (simplices of several dimensions) share all matrices but the last. Sums over tokens are shared among
programs, each of which writes its own share: no atomics.
"""

# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from tuplet.kernels.halves import halved
from tuplet.kernels.norm_kernels import load_tile, normed_tile, store_tile
from tuplet.kernels.sizes import COUNTS


@triton.jit
def kind_of(program, rows0, rows1, rows2, programs0, programs1):
    """Of a program its kind, where its kind's rows begin and end, and its number among the programs of that kind."""
    kind = (program >= programs0).to(tl.int32) + (program >= programs0 + programs1).to(tl.int32)
    begin = tl.where(kind == 0, 0, tl.where(kind == 1, rows0, rows0 + rows1))
    end = tl.where(kind == 0, rows0, tl.where(kind == 1, rows0 + rows1, rows0 + rows1 + rows2))
    return kind, begin, end, program - tl.where(kind == 0, 0, tl.where(kind == 1, programs0, programs0 + programs1))


@triton.jit
def _own_tile(One, Two, Three, kind, row, column, rows, width, KINDS: tl.constexpr):
    """A tile of what each kind has of its own."""
    tile = load_tile(One, row, column, rows, width)
    if KINDS > 1:  # noqa: SIM102 - the kernel is compiled for it
        if kind == 1:
            tile = load_tile(Two, row, column, rows, width)
    if KINDS > 2:  # noqa: SIM102
        if kind == 2:
            tile = load_tile(Three, row, column, rows, width)
    return tile


@triton.jit
def _put_map(x, w, bias, Out, row, end, column, width, stride, LOW: tl.constexpr, PRECISION: tl.constexpr):
    out = tl.dot(x, tl.trans(w.to(LOW)), input_precision=PRECISION) + bias
    on = (row < end)[:, None] & (column < width)[None, :]
    tl.store(Out + row[:, None] * stride + column[None, :], out.to(Out.dtype.element_ty), mask=on)


@triton.jit(do_not_specialize=COUNTS)
def project(
    X, W0, W1, V0, V1, V2, B0, B1, C0, C1, C2, Out, rows0, rows1, rows2, programs0, programs1, width,
    MAPS: tl.constexpr, KINDS: tl.constexpr, BIASED: tl.constexpr, LOW: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Out (T, maps, width). The last map of each kind is its own: V0, V1, V2 with biases C0, C1, C2."""
    kind, begin, end, number = kind_of(tl.program_id(0), rows0, rows1, rows2, programs0, programs1)
    column = tl.arange(0, WIDTH)
    row = (begin + number * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    # everything is asked for before anything is worked on
    one, biases = tl.arange(0, 1), 1 if BIASED else 0
    w0, b0 = load_tile(W0, column, column, width, width), load_tile(B0, one, column, biases, width)
    w1, b1 = load_tile(W1, column, column, width, width), load_tile(B1, one, column, biases, width)
    own = _own_tile(V0, V1, V2, kind, column, column, width, width, KINDS)
    bias = _own_tile(C0, C1, C2, kind, one, column, biases, width, KINDS)
    x = load_tile(X, row, column, end, width).to(LOW)
    stride = MAPS * width
    if MAPS > 1:
        _put_map(x, w0, b0, Out, row, end, column, width, stride, LOW, PRECISION)
    if MAPS > 2:
        _put_map(x, w1, b1, Out + width, row, end, column, width, stride, LOW, PRECISION)
    _put_map(x, own, bias, Out + (MAPS - 1) * width, row, end, column, width, stride, LOW, PRECISION)


@triton.jit
def _gradients(G, row, end, column, width, MAPS: tl.constexpr):
    """Tiles of the gradients of the results: of the first two maps, and of the last one."""
    on = (row < end)[:, None] & (column < width)[None, :]
    at = G + row[:, None] * (MAPS * width) + column[None, :]
    own = tl.load(at + (MAPS - 1) * width, mask=on, other=0.0).to(tl.float32)
    g0, g1 = own, own
    if MAPS > 1:
        g0 = tl.load(at, mask=on, other=0.0).to(tl.float32)
    if MAPS > 2:
        g1 = tl.load(at + width, mask=on, other=0.0).to(tl.float32)
    return g0, g1, own


@triton.jit
def _product(g, w, LOW: tl.constexpr, PRECISION: tl.constexpr):
    g, by = halved(g.to(LOW), PRECISION)
    w, by_w = halved(w.to(LOW), PRECISION)
    return tl.dot(g, w, input_precision=PRECISION) * (by * by_w)


@triton.jit(do_not_specialize=COUNTS)
def project_gradient(
    G, W0, W1, V0, V1, V2, GradX, rows0, rows1, rows2, programs0, programs1, width,
    MAPS: tl.constexpr, KINDS: tl.constexpr, LOW: tl.constexpr, PRECISION: tl.constexpr, ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):  # fmt: skip
    """The gradient of X."""
    kind, begin, end, number = kind_of(tl.program_id(0), rows0, rows1, rows2, programs0, programs1)
    column = tl.arange(0, WIDTH)
    row = (begin + number * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    # everything is asked for before anything is worked on
    w0, w1 = load_tile(W0, column, column, width, width), load_tile(W1, column, column, width, width)
    own = _own_tile(V0, V1, V2, kind, column, column, width, width, KINDS)
    g0, g1, g = _gradients(G, row, end, column, width, MAPS)
    grad_x = _product(g, own, LOW, PRECISION)
    if MAPS > 1:
        grad_x += _product(g0, w0, LOW, PRECISION)
    if MAPS > 2:
        grad_x += _product(g1, w1, LOW, PRECISION)
    store_tile(GradX, row, column, end, width, grad_x)


@triton.jit
def _add_map(g, x, by_x, grad_w, grad_b, LOW: tl.constexpr, PRECISION: tl.constexpr):
    """The sums so far, with what some tokens add for one map."""
    grad_b += g
    g, by = halved(g.to(LOW), PRECISION)
    return grad_w + tl.dot(tl.trans(g), x, input_precision=PRECISION) * (by * by_x), grad_b


@triton.jit
def _put_share(Share, place, count, column, width, grad_w, grad_b):
    """All matrices first, then all biases."""
    on = column < width
    at = Share + place * width * width
    tl.store(at + column[:, None] * width + column[None, :], grad_w, mask=on[:, None] & on[None, :])
    tl.store(Share + count * width * width + place * width + column, tl.sum(grad_b, 0), mask=on)


@triton.jit(do_not_specialize=COUNTS)
def project_weights_gradient(
    G, X, Found, Weight, Bias, Share, rows0, rows1, rows2, programs0, programs1, programs2, width,
    MAPS: tl.constexpr, KINDS: tl.constexpr, LOW: tl.constexpr, PRECISION: tl.constexpr, NORMED: tl.constexpr,
    ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """A program's share of the gradients of the matrices and of their biases; if NORMED, X is what a norm makes the tokens of."""
    program = tl.program_id(0)
    kind, begin, end, number = kind_of(program, rows0, rows1, rows2, programs0, programs1)
    programs = tl.where(kind == 0, programs0, tl.where(kind == 1, programs1, programs2))
    column = tl.arange(0, WIDTH)
    nothing, none = tl.zeros((WIDTH, WIDTH), tl.float32), tl.zeros((ROWS, WIDTH), tl.float32)
    grad_w0, grad_w1, grad_own = nothing, nothing, nothing
    grad_b0, grad_b1, grad_c = none, none, none
    for first in range(begin + number * ROWS, end, programs * ROWS):
        row = (first + tl.arange(0, ROWS)).to(tl.int64)
        # everything is asked for before anything is worked on
        if NORMED:  # noqa: SIM108 - the kernel is compiled for one of them
            x = normed_tile(X, row, column, end, width, Found, Weight, Bias)
        else:
            x = load_tile(X, row, column, end, width)
        g0, g1, g = _gradients(G, row, end, column, width, MAPS)
        x, by = halved(x.to(LOW), PRECISION)
        grad_own, grad_c = _add_map(g, x, by, grad_own, grad_c, LOW, PRECISION)
        if MAPS > 1:
            grad_w0, grad_b0 = _add_map(g0, x, by, grad_w0, grad_b0, LOW, PRECISION)
        if MAPS > 2:
            grad_w1, grad_b1 = _add_map(g1, x, by, grad_w1, grad_b1, LOW, PRECISION)
    count = MAPS + KINDS - 1
    at = Share + program * count * (width + 1) * width
    if MAPS > 1:
        _put_share(at, 0, count, column, width, grad_w0, grad_b0)
    if MAPS > 2:
        _put_share(at, 1, count, column, width, grad_w1, grad_b1)
    for other in tl.static_range(KINDS):
        mine = (kind == other).to(tl.float32)
        _put_share(at, MAPS - 1 + other, count, column, width, grad_own * mine, grad_c * mine)
