"""Kernels for tokens and virtual tokens that see each other: both ways at once, everything read once.

One program has all heads of some tokens of a graph, as pairs (token, head), and all virtual tokens of that graph, which are few.
What the virtual tokens see is put together from the shares of the programs of their graph.
"""

# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from tuplet.attention.fused.arithmetic import NONE, RELU, REWEIGHT, TINY, gradients, scores


@triton.jit
def _place(graph, virtual, heads, ROWS: tl.constexpr, HEADS: tl.constexpr, VIRTUAL: tl.constexpr):
    """Row and head of each pair of a program; (pairs, VIRTUAL) the virtual tokens, and which of them there are."""
    pair, number = tl.arange(0, ROWS * HEADS), tl.arange(0, VIRTUAL)
    head = pair % HEADS
    other = (graph * virtual + number)[None, :] + tl.zeros((ROWS * HEADS, VIRTUAL), tl.int64)
    return pair // HEADS, head, other, (head < heads)[:, None] & (number < virtual)[None, :]


@triton.jit
def _tokens(start, place, live, Order, ORDERED: tl.constexpr):
    token = start + place
    if ORDERED:
        token = tl.load(Order + token, mask=live, other=0)
    return token.to(tl.int64)


@triton.jit
def _vectors(X, token, head, on, stride, width, WIDTH: tl.constexpr):
    """(pairs, WIDTH) vectors in float32."""
    column = tl.arange(0, WIDTH)
    at = X + (token * stride + head * width)[:, None] + column[None, :]
    return tl.load(at, mask=on[:, None] & (column < width)[None, :], other=0.0).to(tl.float32)


@triton.jit
def _virtual_vectors(X, other, head, there, stride, width, WIDTH: tl.constexpr):
    """(pairs, VIRTUAL, WIDTH) vectors of virtual tokens in float32."""
    column = tl.arange(0, WIDTH)
    at = X + (other * stride + head[:, None] * width)[:, :, None] + column[None, None, :]
    return tl.load(at, mask=there[:, :, None] & (column < width)[None, None, :], other=0.0).to(tl.float32)


@triton.jit
def _put(X, token, head, on, stride, width, values, WIDTH: tl.constexpr, ADD: tl.constexpr):
    column = tl.arange(0, WIDTH)
    at = X + (token * stride + head * width)[:, None] + column[None, :]
    there = on[:, None] & (column < width)[None, :]
    if ADD:
        values += tl.load(at, mask=there, other=0.0).to(tl.float32)
    tl.store(at, values.to(X.dtype.element_ty), mask=there)


@triton.jit
def _put_share(
    X, values, first, stride, virtual, heads, width,
    ROWS: tl.constexpr, HEADS: tl.constexpr, VIRTUAL: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Write for each virtual token and head the sum over the rows of (pairs, VIRTUAL, WIDTH)."""
    values = tl.sum(tl.reshape(values, (ROWS, HEADS * VIRTUAL * WIDTH)), 0)
    flat = tl.arange(0, HEADS * VIRTUAL * WIDTH)
    column, number, head = flat % WIDTH, flat // WIDTH % VIRTUAL, flat // (WIDTH * VIRTUAL)
    there = (column < width) & (number < virtual) & (head < heads)
    tl.store(X + (first + number) * stride + head * width + column, values, mask=there)


@triton.jit
def _lse(score, there, before, JOINT: tl.constexpr):
    """Log-sum-exps of scores with virtual keys, and with what came ``before`` if one softmax spans both."""
    score = tl.where(there, score, float("-inf"))
    largest = tl.max(score, 1)
    if JOINT:
        largest = tl.maximum(largest, before)
    largest = tl.where(largest == float("-inf"), 0.0, largest)
    total = tl.sum(tl.exp(score - largest[:, None]), 1)
    if JOINT:
        total += tl.exp(before - largest)
    return largest + tl.log(tl.maximum(total, TINY))


@triton.jit
def exchange(
    Real, Unreal, Table, Base, Before, Out, Lse, Outs, Lses, Side, Order, graphs, tiles, virtual, heads, width, scale,
    real_stride, unreal_stride,
    KERNEL: tl.constexpr, RELATION: tl.constexpr, JOINT: tl.constexpr, ADD: tl.constexpr, UPWARD: tl.constexpr,
    ORDERED: tl.constexpr, ROWS: tl.constexpr, HEADS: tl.constexpr, VIRTUAL: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Out = what tokens see, added to ``Base``, or if JOINT in one softmax with it, whose log-sum-exps go to Lse.

    Outs (tiles, V, h, c) and Lses (tiles, V, h) are what virtual tokens see of a program's tokens.
    """
    graph, tile = tl.program_id(0).to(tl.int64) // tiles, tl.program_id(0) % tiles
    start, length = tl.load(Side + graph), tl.load(Side + 2 * graphs + graph)
    row, head, other, there = _place(graph, virtual, heads, ROWS, HEADS, VIRTUAL)
    part = heads * width
    unreal_q = _virtual_vectors(Unreal, other, head, there, unreal_stride, width, WIDTH)
    unreal_k = _virtual_vectors(Unreal + part, other, head, there, unreal_stride, width, WIDTH)
    unreal_v = _virtual_vectors(Unreal + 2 * part, other, head, there, unreal_stride, width, WIDTH)
    entry = tl.load(Table + head, mask=head < heads, other=0.0)[:, None]
    largest = tl.full((ROWS * HEADS, VIRTUAL), float("-inf"), tl.float32)
    total = tl.zeros((ROWS * HEADS, VIRTUAL), tl.float32)
    up = tl.zeros((ROWS * HEADS, VIRTUAL, WIDTH), tl.float32)
    for first in range(tile * ROWS, length, tiles * ROWS):
        live = (first + row < length) & (head < heads)
        token = _tokens(start, first + row, live, Order, ORDERED)
        q = _vectors(Real, token, head, live, real_stride, width, WIDTH)
        dot = tl.sum(q[:, None, :] * unreal_k, 2)
        _, score = scores(dot, entry, scale, KERNEL, RELATION)
        if KERNEL == RELU:
            weight, share = tl.maximum(score, 0.0), tl.full((ROWS * HEADS,), 1.0, tl.float32)
        else:
            before = tl.full((ROWS * HEADS,), float("-inf"), tl.float32)
            if JOINT:
                before = tl.load(Before + token * heads + head, mask=live, other=float("-inf"))
            lse = _lse(score, there, before, JOINT)
            weight, share = tl.exp(score - lse[:, None]), tl.exp(before - lse)
            if JOINT:
                tl.store(Lse + token * heads + head, lse, mask=live)
        weight = tl.where(there, weight, 0.0)
        if RELATION == REWEIGHT:
            weight = weight * entry
        out = tl.sum(weight[:, :, None] * unreal_v, 1)
        if ADD:
            base = _vectors(Base, token, head, live, part, width, WIDTH)
            out += base * share[:, None] if JOINT else base
        _put(Out, token, head, live, part, width, out, WIDTH, False)
        if UPWARD:
            k = _vectors(Real + part, token, head, live, real_stride, width, WIDTH)
            v = _vectors(Real + 2 * part, token, head, live, real_stride, width, WIDTH)
            dot = tl.sum(unreal_q * k[:, None, :], 2)
            _, score = scores(dot, dot, scale, KERNEL, NONE)
            exists = there & live[:, None]
            if KERNEL == RELU:
                weight = tl.where(exists, tl.maximum(score, 0.0), 0.0)
            else:
                score = tl.where(exists, score, float("-inf"))
                higher = tl.maximum(largest, score)
                finite = tl.where(higher == float("-inf"), 0.0, higher)
                weight = tl.exp(score - finite)
                fade = tl.exp(largest - finite)
                total = total * fade + weight
                up = up * fade[:, :, None]
                largest = higher
            up += weight[:, :, None] * v[:, None, :]
    if UPWARD:
        first = tile * graphs * virtual + graph * virtual
        if KERNEL != RELU:  # rows of a program have had a softmax each
            tops = tl.max(tl.reshape(largest, (ROWS, HEADS * VIRTUAL)), 0)
            finite = tl.where(tops == float("-inf"), 0.0, tops)
            shares = tl.exp(tl.reshape(largest, (ROWS, HEADS * VIRTUAL)) - finite[None, :])
            totals = tl.sum(tl.reshape(total, (ROWS, HEADS * VIRTUAL)) * shares, 0)
            flat = tl.arange(0, HEADS * VIRTUAL)
            number, own = flat % VIRTUAL, flat // VIRTUAL
            lses = tl.where(totals > 0, tops + tl.log(tl.maximum(totals, TINY)), float("-inf"))
            tl.store(Lses + (first + number) * heads + own, lses, mask=(number < virtual) & (own < heads))
            shares = shares / tl.maximum(totals, TINY)[None, :]
            up = up * tl.reshape(shares, (ROWS * HEADS, VIRTUAL))[:, :, None]
        _put_share(Outs, up, first, part, virtual, heads, width, ROWS, HEADS, VIRTUAL, WIDTH)


@triton.jit
def exchange_gradient(
    Real, Unreal, Table, Out, Lse, GradOut, Up, GradUp, UpLse, GradReal, Share, TableShare, Side, Order, graphs, tiles,
    virtual, heads, width, scale, real_stride, unreal_stride,
    KERNEL: tl.constexpr, RELATION: tl.constexpr, JOINT: tl.constexpr, ADD: tl.constexpr, UPWARD: tl.constexpr,
    ORDERED: tl.constexpr, ROWS: tl.constexpr, HEADS: tl.constexpr, VIRTUAL: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """GradReal (T, 3, h, c), added to what is there if ADD; Share (tiles, V, 3, h, c) of the gradients of virtual tokens, and
    TableShare (G·tiles, h) of that of the relation's number."""
    graph, tile = tl.program_id(0).to(tl.int64) // tiles, tl.program_id(0) % tiles
    start, length = tl.load(Side + graph), tl.load(Side + 2 * graphs + graph)
    row, head, other, there = _place(graph, virtual, heads, ROWS, HEADS, VIRTUAL)
    part = heads * width
    unreal_q = _virtual_vectors(Unreal, other, head, there, unreal_stride, width, WIDTH)
    unreal_k = _virtual_vectors(Unreal + part, other, head, there, unreal_stride, width, WIDTH)
    unreal_v = _virtual_vectors(Unreal + 2 * part, other, head, there, unreal_stride, width, WIDTH)
    entry = tl.load(Table + head, mask=head < heads, other=0.0)[:, None]
    up_grad, up_lse = unreal_q, tl.zeros((ROWS * HEADS, VIRTUAL), tl.float32)
    up_shift = up_lse
    if UPWARD:
        up_grad = _virtual_vectors(GradUp, other, head, there, part, width, WIDTH)
        up = _virtual_vectors(Up, other, head, there, part, width, WIDTH)
        up_lse = tl.load(UpLse + other * heads + head[:, None], mask=there, other=0.0)
        up_lse = tl.where(up_lse == float("-inf"), 0.0, up_lse)
        up_shift = -tl.sum(up * up_grad, 2)
    grad_entries = tl.zeros((ROWS * HEADS, VIRTUAL), tl.float32)
    grad_uq = tl.zeros((ROWS * HEADS, VIRTUAL, WIDTH), tl.float32)
    grad_uk = tl.zeros((ROWS * HEADS, VIRTUAL, WIDTH), tl.float32)
    grad_uv = tl.zeros((ROWS * HEADS, VIRTUAL, WIDTH), tl.float32)
    for first in range(tile * ROWS, length, tiles * ROWS):
        live = (first + row < length) & (head < heads)
        token = _tokens(start, first + row, live, Order, ORDERED)
        exists = there & live[:, None]
        q = _vectors(Real, token, head, live, real_stride, width, WIDTH)
        grad = _vectors(GradOut, token, head, live, part, width, WIDTH)
        dot = tl.sum(q[:, None, :] * unreal_k, 2)
        grad_weight = tl.sum(grad[:, None, :] * unreal_v, 2)
        if JOINT:
            lse = tl.load(Lse + token * heads + head, mask=live, other=0.0)
            shift = -tl.sum(grad * _vectors(Out, token, head, live, part, width, WIDTH), 1)
        else:
            _, score = scores(dot, entry, scale, KERNEL, RELATION)
            lse = _lse(score, there, tl.zeros((ROWS * HEADS,), tl.float32), False)
            weight = tl.where(exists, tl.exp(score - lse[:, None]), 0.0)
            shift = -tl.sum(weight * grad_weight, 1)
        grad_dot, weight, grad_entry = gradients(
            dot, entry, exists, grad_weight, lse[:, None], shift[:, None], scale, KERNEL, RELATION
        )  # fmt: skip
        if RELATION != NONE:
            grad_entries += tl.where(exists, grad_entry, 0.0)
        grad_uv += weight[:, :, None] * grad[:, None, :]
        grad_uk += grad_dot[:, :, None] * q[:, None, :]
        grad_q = tl.sum(grad_dot[:, :, None] * unreal_k, 1)
        _put(GradReal, token, head, live, real_stride, width, grad_q, WIDTH, ADD)
        if UPWARD:
            k = _vectors(Real + part, token, head, live, real_stride, width, WIDTH)
            v = _vectors(Real + 2 * part, token, head, live, real_stride, width, WIDTH)
            dot = tl.sum(unreal_q * k[:, None, :], 2)
            grad_weight = tl.sum(up_grad * v[:, None, :], 2)
            grad_dot, weight, _ = gradients(dot, dot, exists, grad_weight, up_lse, up_shift, scale, KERNEL, NONE)
            grad_uq += grad_dot[:, :, None] * k[:, None, :]
            grad_k = tl.sum(grad_dot[:, :, None] * unreal_q, 1)
            _put(GradReal + part, token, head, live, real_stride, width, grad_k, WIDTH, ADD)
            grad_v = tl.sum(weight[:, :, None] * up_grad, 1)
            _put(GradReal + 2 * part, token, head, live, real_stride, width, grad_v, WIDTH, ADD)
    if RELATION != NONE:
        sums = tl.sum(tl.sum(tl.reshape(grad_entries, (ROWS, HEADS, VIRTUAL)), 2), 0)
        own = tl.arange(0, HEADS)
        tl.store(TableShare + tl.program_id(0) * heads + own, sums, mask=own < heads)
    first = tile * graphs * virtual + graph * virtual
    _put_share(Share, grad_uq, first, 3 * part, virtual, heads, width, ROWS, HEADS, VIRTUAL, WIDTH)
    _put_share(Share + part, grad_uk, first, 3 * part, virtual, heads, width, ROWS, HEADS, VIRTUAL, WIDTH)
    _put_share(Share + 2 * part, grad_uv, first, 3 * part, virtual, heads, width, ROWS, HEADS, VIRTUAL, WIDTH)
