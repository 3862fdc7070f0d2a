"""Kernels for tokens and virtual tokens that see each other: both ways in one launch, everything read once.

One program has one direction, all heads of some tokens of a graph, and all virtual tokens of that graph, which are few. A pair
(head, virtual token) is a row that is zero outside of its head, so that one product of matrices gives the scores of all heads. What
the virtual tokens see is put together from the shares of the programs of their graph.
"""

# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from tuplet.attention.fused.arithmetic import NONE, RELU, REWEIGHT, TINY, exp, gradients, scores, share_of
from tuplet.kernels.sizes import COUNTS


@triton.jit
def _tokens(start, first, end, Order, ORDERED: tl.constexpr, ROWS: tl.constexpr):
    """The tokens at some places of a graph, and whether they are there."""
    place = first + tl.arange(0, ROWS)
    token, live = start + place, place < end
    if ORDERED:
        token = tl.load(Order + token, mask=live, other=0)
    return token.to(tl.int64), live


@triton.jit
def _rows(X, token, on, stride, at, there):
    """(rows, columns) vectors, all heads side by side; ``there`` may be (rows, columns)."""
    return tl.load(X + token[:, None] * stride + at[None, :], mask=on[:, None] & there, other=0.0)


@triton.jit
def _share(program, Side, graphs, tiles, longest, ROWS: tl.constexpr):
    """Of a program its graph and its number among those of the graph; where the graph's tokens begin, how many there are, those of
    padding not counted and counted, and whether there are any for this program."""
    graph, tile = program.to(tl.int64) // tiles, program % tiles
    start, every = tl.load(Side + graph), tl.load(Side + 2 * graphs + graph)
    length = tl.minimum(every, longest)  # what is longer is padding
    return graph, tile, start, length, every, tile * ROWS < length


@triton.jit
def _sides(
    graph, busy, virtual, heads, width, HEADS: tl.constexpr, VIRTUAL: tl.constexpr, WIDTH: tl.constexpr
):  # fmt: skip
    """Of all heads side by side, where each column stands in memory, and whether it exists. Of all pairs (head, virtual token) of a
    graph the token, the head, whether they exist, whether they are read (a program without tokens waits for nothing), and which
    columns are theirs."""
    column = tl.arange(0, HEADS * WIDTH)
    head, within = column // WIDTH, column % WIDTH
    there = (head < heads) & (within < width)
    pair = tl.arange(0, HEADS * VIRTUAL)
    number, own = pair % VIRTUAL, pair // VIRTUAL
    exists = (number < virtual) & (own < heads)
    read = exists & (number < tl.where(busy, virtual, 0))
    block = (own[:, None] == head[None, :]) & there[None, :]
    return head * width + within, there, graph * virtual + number, own, exists, read, block


@triton.jit
def _entries(Table, own, exists, RELATION: tl.constexpr, PAIRS: tl.constexpr):
    """(1, pairs) the relation's number of each pair (head, virtual token); there is no table without a relation."""
    entry = tl.zeros((PAIRS,), tl.float32)
    if RELATION != NONE:
        entry = tl.load(Table + own, mask=exists, other=0.0)
    return entry[None, :]


@triton.jit
def _put(X, token, on, stride, at, there, values):
    place = X + token[:, None] * stride + at[None, :]
    tl.store(place, values.to(X.dtype.element_ty), mask=on[:, None] & there)


@triton.jit
def _clear(
    X, start, first, step, every, stride, at, there, Order, ORDERED: tl.constexpr, ROWS: tl.constexpr
):  # fmt: skip
    """Nothing for a program's share of the tokens that are padding: those from ``first`` on, a tile every ``step``."""
    for begin in range(first, every, step):
        token, on = _tokens(start, begin, every, Order, ORDERED, ROWS)
        _put(X, token, on, stride, at, there[None, :], tl.zeros((ROWS, at.shape[0]), tl.float32))


@triton.jit
def _by_head(x, ROWS: tl.constexpr, HEADS: tl.constexpr, PARTS: tl.constexpr):
    """(rows, heads, parts) of (rows, heads · parts)."""
    return tl.reshape(x, (ROWS, HEADS, PARTS))


@triton.jit
def _spread(x, ROWS: tl.constexpr, HEADS: tl.constexpr, PARTS: tl.constexpr):
    """(rows, heads · parts) from one number a head (rows, heads)."""
    return tl.reshape(tl.broadcast_to(x[:, :, None], (ROWS, HEADS, PARTS)), (ROWS, HEADS * PARTS))


@triton.jit
def _lse(
    score, exists, before, JOINT: tl.constexpr, ROWS: tl.constexpr, HEADS: tl.constexpr, VIRTUAL: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """(rows, heads) log-sum-exps of scores with virtual keys, and with what came ``before`` if one softmax spans both."""
    score = _by_head(tl.where(exists, score, float("-inf")), ROWS, HEADS, VIRTUAL)
    largest = tl.max(score, 2)
    if JOINT:
        largest = tl.maximum(largest, before)
    largest = tl.where(largest == float("-inf"), 0.0, largest)
    total = tl.sum(exp(score - largest[:, :, None], PRECISION), 2)
    if JOINT:
        total += exp(before - largest, PRECISION)
    return largest + tl.log(tl.maximum(total, TINY))


@triton.jit
def _tokens_see(
    Real, Unreal, Table, Before, Out, Lse, Side, Order, program, graphs, tiles, longest, virtual, heads, width, scale, real_stride,
    unreal_stride,
    KERNEL: tl.constexpr, RELATION: tl.constexpr, JOINT: tl.constexpr, ADD: tl.constexpr, ORDERED: tl.constexpr,
    PRECISION: tl.constexpr, ROWS: tl.constexpr, HEADS: tl.constexpr, VIRTUAL: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Out = what some tokens see of virtual tokens (see ``exchange``)."""
    graph, tile, start, length, every, busy = _share(program, Side, graphs, tiles, longest, ROWS)
    at, there, other, own, exists, read, block = _sides(graph, busy, virtual, heads, width, HEADS, VIRTUAL, WIDTH)
    part, heading = heads * width, tl.arange(0, HEADS)
    unreal_k = _rows(Unreal + part, other, read, unreal_stride, at, block)
    unreal_v = _rows(Unreal + 2 * part, other, read, unreal_stride, at, block)
    entry = _entries(Table, own, exists, RELATION, HEADS * VIRTUAL)
    for first in range(tile * ROWS, length, tiles * ROWS):
        token, live = _tokens(start, first, length, Order, ORDERED, ROWS)
        q = _rows(Real, token, live, real_stride, at, there[None, :])
        dot = tl.dot(q, tl.trans(unreal_k), input_precision=PRECISION)
        _, score = scores(dot, entry, scale, KERNEL, RELATION)
        share = tl.full((ROWS, HEADS), 1.0, tl.float32)
        if KERNEL == RELU:
            weight = tl.maximum(score, 0.0)
        else:
            lses = token[:, None] * heads + heading[None, :]
            known = live[:, None] & (heading < heads)[None, :]
            before = tl.full((ROWS, HEADS), float("-inf"), tl.float32)
            if JOINT:
                before = tl.load(Before + lses, mask=known, other=float("-inf"))
            lse = _lse(score, exists[None, :], before, JOINT, ROWS, HEADS, VIRTUAL, PRECISION)
            weight = exp(score - _spread(lse, ROWS, HEADS, VIRTUAL), PRECISION)
            if JOINT:
                share = exp(before - lse, PRECISION)
                tl.store(Lse + lses, lse, mask=known)
        weight = tl.where(exists[None, :], weight, 0.0)
        if RELATION == REWEIGHT:
            weight = weight * entry
        out = tl.dot(weight.to(unreal_v.dtype), unreal_v, input_precision=PRECISION)
        if ADD:
            base = _rows(Out, token, live, part, at, there[None, :]).to(tl.float32)
            out += base * _spread(share, ROWS, HEADS, WIDTH) if JOINT else base
        _put(Out, token, live, part, at, there[None, :], out)
    padding = longest + tile * ROWS
    _clear(Out, start, padding, tiles * ROWS, every, part, at, there, Order, ORDERED, ROWS)


@triton.jit
def _virtual_tokens_see(
    Real, Unreal, Outs, Lses, Side, Order, program, graphs, tiles, longest, virtual, heads, width, scale, real_stride, unreal_stride,
    KERNEL: tl.constexpr, ORDERED: tl.constexpr, PRECISION: tl.constexpr, ROWS: tl.constexpr, HEADS: tl.constexpr,
    VIRTUAL: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Outs and Lses: what virtual tokens see of some tokens."""
    graph, tile, start, length, _every, busy = _share(program, Side, graphs, tiles, longest, ROWS)
    at, there, other, own, exists, read, block = _sides(graph, busy, virtual, heads, width, HEADS, VIRTUAL, WIDTH)
    part = heads * width
    unreal_q = _rows(Unreal, other, read, unreal_stride, at, block)
    largest = tl.full((HEADS * VIRTUAL,), float("-inf"), tl.float32)
    total = tl.zeros((HEADS * VIRTUAL,), tl.float32)
    up = tl.zeros((HEADS * VIRTUAL, HEADS * WIDTH), tl.float32)
    for first in range(tile * ROWS, length, tiles * ROWS):
        token, live = _tokens(start, first, length, Order, ORDERED, ROWS)
        k = _rows(Real + part, token, live, real_stride, at, there[None, :])
        v = _rows(Real + 2 * part, token, live, real_stride, at, there[None, :])
        dot = tl.dot(unreal_q, tl.trans(k), input_precision=PRECISION)
        _, score = scores(dot, dot, scale, KERNEL, NONE)
        if KERNEL == RELU:
            weight = tl.where(live[None, :], tl.maximum(score, 0.0), 0.0)
        else:
            score = tl.where(live[None, :], score, float("-inf"))
            higher = tl.maximum(largest, tl.max(score, 1))
            weight = exp(score - higher[:, None], PRECISION)
            fade = exp(largest - higher, PRECISION)
            total = total * fade + tl.sum(weight, 1)
            up = up * fade[:, None]
            largest = higher
        up += tl.dot(weight.to(v.dtype), v, input_precision=PRECISION)
    place = tile * graphs * virtual + other
    if KERNEL != RELU:
        up = share_of(up, total)
        lse = tl.where(total > 0, largest + tl.log(tl.maximum(total, TINY)), float("-inf"))
        tl.store(Lses + place * heads + own, lse, mask=exists)
    _put(Outs, place, exists, part, at, block, up)


@triton.jit(do_not_specialize=COUNTS)
def exchange(
    Real, Unreal, Table, Before, Out, Lse, Outs, Lses, Side, Order, graphs, tiles, longest, virtual, heads, width,
    scale, real_stride, unreal_stride,
    KERNEL: tl.constexpr, RELATION: tl.constexpr, JOINT: tl.constexpr, ADD: tl.constexpr, UPWARD: tl.constexpr,
    ORDERED: tl.constexpr, PRECISION: tl.constexpr, ROWS: tl.constexpr, HEADS: tl.constexpr, VIRTUAL: tl.constexpr,
    WIDTH: tl.constexpr,
):  # fmt: skip
    """Out = what tokens see, if ADD added to what is there, or if JOINT in one softmax with it, whose log-sum-exps go to Lse.

    If UPWARD as many programs again have the other direction: Outs (tiles, V, h, c) and Lses (tiles, V, h) are what virtual tokens see
    of a program's tokens.
    """
    program = tl.program_id(0)
    if program < graphs * tiles:
        _tokens_see(
            Real, Unreal, Table, Before, Out, Lse, Side, Order, program, graphs, tiles, longest, virtual, heads, width, scale,
            real_stride, unreal_stride,
            KERNEL, RELATION, JOINT, ADD, ORDERED, PRECISION, ROWS, HEADS, VIRTUAL, WIDTH,
        )  # fmt: skip
    elif UPWARD:
        _virtual_tokens_see(
            Real, Unreal, Outs, Lses, Side, Order, program - graphs * tiles, graphs, tiles, longest, virtual, heads, width, scale,
            real_stride, unreal_stride,
            KERNEL, ORDERED, PRECISION, ROWS, HEADS, VIRTUAL, WIDTH,
        )  # fmt: skip


@triton.jit
def _gradients_of_tokens_seeing(
    Real, Unreal, Table, Out, Lse, GradOut, GradReal, Shift, Share, TableShare, Side, Order, program, graphs, tiles, longest, virtual,
    heads, width, scale, real_stride, unreal_stride,
    KERNEL: tl.constexpr, RELATION: tl.constexpr, JOINT: tl.constexpr, SEEING: tl.constexpr, ORDERED: tl.constexpr,
    PRECISION: tl.constexpr, ROWS: tl.constexpr, HEADS: tl.constexpr, VIRTUAL: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Of some tokens' queries, and a share of those of virtual tokens' keys and values, and of the relation's number."""
    graph, tile, start, length, every, busy = _share(program, Side, graphs, tiles, longest, ROWS)
    at, there, other, own, exists, read, block = _sides(graph, busy, virtual, heads, width, HEADS, VIRTUAL, WIDTH)
    part, heading = heads * width, tl.arange(0, HEADS)
    unreal_k = _rows(Unreal + part, other, read, unreal_stride, at, block)
    unreal_v = _rows(Unreal + 2 * part, other, read, unreal_stride, at, block)
    entry = _entries(Table, own, exists, RELATION, HEADS * VIRTUAL)
    grad_entries = tl.zeros((ROWS, HEADS * VIRTUAL), tl.float32)
    grad_uk = tl.zeros((HEADS * VIRTUAL, HEADS * WIDTH), tl.float32)
    grad_uv = tl.zeros((HEADS * VIRTUAL, HEADS * WIDTH), tl.float32)
    for first in range(tile * ROWS, length, tiles * ROWS):
        token, live = _tokens(start, first, length, Order, ORDERED, ROWS)
        both = live[:, None] & exists[None, :]
        q = _rows(Real, token, live, real_stride, at, there[None, :])
        grad = _rows(GradOut, token, live, part, at, there[None, :])
        dot = tl.dot(q, tl.trans(unreal_k), input_precision=PRECISION)
        grad_weight = tl.dot(grad, tl.trans(unreal_v), input_precision=PRECISION)
        of_heads = token[:, None] * heads + heading[None, :]
        known = live[:, None] & (heading < heads)[None, :]
        seen = tl.zeros((ROWS, HEADS), tl.float32)
        if SEEING:
            out = _rows(Out, token, live, part, at, there[None, :])
            seen = -tl.sum(_by_head(grad.to(tl.float32) * out.to(tl.float32), ROWS, HEADS, WIDTH), 2)
        if JOINT:
            lse = tl.load(Lse + of_heads, mask=known, other=0.0)
            shift = seen
        else:
            _, score = scores(dot, entry, scale, KERNEL, RELATION)
            lse = _lse(
                score, exists[None, :], tl.zeros((ROWS, HEADS), tl.float32), False, ROWS, HEADS, VIRTUAL, PRECISION
            )
            weight = tl.where(both, exp(score - _spread(lse, ROWS, HEADS, VIRTUAL), PRECISION), 0.0)
            inner = grad_weight * entry if RELATION == REWEIGHT else grad_weight
            shift = -tl.sum(_by_head(weight * inner, ROWS, HEADS, VIRTUAL), 2)
            seen -= shift
        if SEEING:
            tl.store(Shift + of_heads, seen, mask=known)
        grad_dot, weight, grad_entry = gradients(
            dot, entry, both, grad_weight, _spread(lse, ROWS, HEADS, VIRTUAL), 0.0, _spread(shift, ROWS, HEADS, VIRTUAL),
            scale, KERNEL, RELATION, PRECISION,
        )  # fmt: skip
        if RELATION != NONE:
            grad_entries += tl.where(both, grad_entry, 0.0)
        grad_dot = grad_dot.to(q.dtype)
        grad_uv += tl.dot(tl.trans(weight.to(grad.dtype)), grad, input_precision=PRECISION)
        grad_uk += tl.dot(tl.trans(grad_dot), q, input_precision=PRECISION)
        grad_q = tl.dot(grad_dot, unreal_k, input_precision=PRECISION)
        _put(GradReal, token, live, real_stride, at, there[None, :], grad_q)
    padding = longest + tile * ROWS
    _clear(GradReal, start, padding, tiles * ROWS, every, real_stride, at, there, Order, ORDERED, ROWS)
    if SEEING:
        _clear(Shift, start, padding, tiles * ROWS, every, heads, heading, heading < heads, Order, ORDERED, ROWS)
    if RELATION != NONE:
        sums = tl.sum(tl.sum(_by_head(grad_entries, ROWS, HEADS, VIRTUAL), 2), 0)
        tl.store(TableShare + program * heads + heading, sums, mask=heading < heads)
    place = tile * graphs * virtual + other
    _put(Share + part, place, exists, 3 * part, at, block, grad_uk)
    _put(Share + 2 * part, place, exists, 3 * part, at, block, grad_uv)


@triton.jit
def _gradients_of_virtual_tokens_seeing(
    Real, Unreal, Up, GradUp, UpLse, GradReal, Share, Side, Order, program, graphs, tiles, longest, virtual, heads, width, scale,
    real_stride, unreal_stride,
    KERNEL: tl.constexpr, ORDERED: tl.constexpr, PRECISION: tl.constexpr, ROWS: tl.constexpr, HEADS: tl.constexpr,
    VIRTUAL: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Of some tokens' keys and values, and a share of those of virtual tokens' queries."""
    graph, tile, start, length, every, busy = _share(program, Side, graphs, tiles, longest, ROWS)
    at, there, other, own, exists, read, block = _sides(graph, busy, virtual, heads, width, HEADS, VIRTUAL, WIDTH)
    part = heads * width
    unreal_q = _rows(Unreal, other, read, unreal_stride, at, block)
    up_grad = _rows(GradUp, other, read, part, at, block)
    up = _rows(Up, other, read, part, at, block)
    up_lse = tl.load(UpLse + other * heads + own, mask=read, other=0.0)
    up_lse = tl.where(up_lse == float("-inf"), 0.0, up_lse)
    up_shift = -tl.sum(up.to(tl.float32) * up_grad.to(tl.float32), 1)
    grad_uq = tl.zeros((HEADS * VIRTUAL, HEADS * WIDTH), tl.float32)
    for first in range(tile * ROWS, length, tiles * ROWS):
        token, live = _tokens(start, first, length, Order, ORDERED, ROWS)
        both = live[:, None] & exists[None, :]
        k = _rows(Real + part, token, live, real_stride, at, there[None, :])
        v = _rows(Real + 2 * part, token, live, real_stride, at, there[None, :])
        dot = tl.dot(k, tl.trans(unreal_q), input_precision=PRECISION)
        grad_weight = tl.dot(v, tl.trans(up_grad), input_precision=PRECISION)
        grad_dot, weight, _ = gradients(
            dot, dot, both, grad_weight, up_lse[None, :], 0.0, up_shift[None, :], scale, KERNEL, NONE, PRECISION
        )  # fmt: skip
        grad_dot = grad_dot.to(k.dtype)
        grad_uq += tl.dot(tl.trans(grad_dot), k, input_precision=PRECISION)
        grad_k = tl.dot(grad_dot, unreal_q, input_precision=PRECISION)
        _put(GradReal + part, token, live, real_stride, at, there[None, :], grad_k)
        grad_v = tl.dot(weight.to(v.dtype), up_grad, input_precision=PRECISION)
        _put(GradReal + 2 * part, token, live, real_stride, at, there[None, :], grad_v)
    padding = longest + tile * ROWS
    _clear(GradReal + part, start, padding, tiles * ROWS, every, real_stride, at, there, Order, ORDERED, ROWS)
    _clear(GradReal + 2 * part, start, padding, tiles * ROWS, every, real_stride, at, there, Order, ORDERED, ROWS)
    place = tile * graphs * virtual + other
    _put(Share, place, exists, 3 * part, at, block, grad_uq)


@triton.jit(do_not_specialize=COUNTS)
def exchange_gradient(
    Real, Unreal, Table, Out, Lse, GradOut, Up, GradUp, UpLse, GradReal, Shift, Share, TableShare, Side, Order, graphs, tiles,
    longest, virtual, heads, width, scale, real_stride, unreal_stride,
    KERNEL: tl.constexpr, RELATION: tl.constexpr, JOINT: tl.constexpr, SEEING: tl.constexpr, UPWARD: tl.constexpr,
    ORDERED: tl.constexpr, PRECISION: tl.constexpr, ROWS: tl.constexpr, HEADS: tl.constexpr, VIRTUAL: tl.constexpr,
    WIDTH: tl.constexpr,
):  # fmt: skip
    """GradReal (T, 3, h, c); if SEEING, Shift (T, h) for the tokens that tokens see; Share (tiles, V, 3, h, c) of the gradients of
    virtual tokens, and TableShare (G·tiles, h) of that of the relation's number. If UPWARD as many programs again have the other
    direction; else the share of virtual tokens' queries is left alone."""
    program = tl.program_id(0)
    if program < graphs * tiles:
        _gradients_of_tokens_seeing(
            Real, Unreal, Table, Out, Lse, GradOut, GradReal, Shift, Share, TableShare, Side, Order, program, graphs, tiles, longest,
            virtual, heads, width, scale, real_stride, unreal_stride,
            KERNEL, RELATION, JOINT, SEEING, ORDERED, PRECISION, ROWS, HEADS, VIRTUAL, WIDTH,
        )  # fmt: skip
    elif UPWARD:
        _gradients_of_virtual_tokens_seeing(
            Real, Unreal, Up, GradUp, UpLse, GradReal, Share, Side, Order, program - graphs * tiles, graphs, tiles, longest, virtual,
            heads, width, scale, real_stride, unreal_stride,
            KERNEL, ORDERED, PRECISION, ROWS, HEADS, VIRTUAL, WIDTH,
        )  # fmt: skip
