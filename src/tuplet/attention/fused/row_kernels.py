"""Kernels for rows and walks: every query of a tile steps through its own keys, all heads at once.

One program has all heads of a tile of tokens; the head says which group's keys it steps through. The key number e of a token is
``Col[Begin[row] + e]`` for rows, and ``token + (Col[..] - row) * stride`` for a walk along an axis, where ``row`` is the node
that stands there.
"""

# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from tuplet.attention.fused.arithmetic import NONE, RELU, REWEIGHT, TINY, gradients, scores


@triton.jit
def _list(Begin, End, Node, Stride, token, group, live, tokens, WALK: tl.constexpr):
    """Where the keys of each (token, head) begin, how many there are, and how a column becomes a token."""
    if WALK:
        row = tl.load(Node + group * tokens + token, mask=live, other=0)
        stride = tl.load(Stride + group * tokens + token, mask=live, other=0)
        base = token - row * stride
        at = row
    else:
        stride = token * 0 + group * 0
        base = stride
        at = group * tokens + token
    begin = tl.load(Begin + at, mask=live, other=0)
    count = tl.load(End + at, mask=live, other=0) - begin
    return begin, count, base, stride


@triton.jit
def _other(Col, begin, base, stride, step, on, WALK: tl.constexpr):
    """The token at one step of each list."""
    column = tl.load(Col + begin + step, mask=on, other=0)
    return (base + column * stride if WALK else column).to(tl.int64)


@triton.jit
def _vectors(X, token, head, on, token_stride, head_stride, width, WIDTH: tl.constexpr):
    """(tokens, heads, WIDTH) vectors in float32; ``token`` is (tokens, heads)."""
    column = tl.arange(0, WIDTH)
    at = X + token[:, :, None] * token_stride + head[None, :, None] * head_stride + column[None, None, :]
    values = tl.load(at, mask=on[:, :, None] & (column < width)[None, None, :], other=0.0)
    return values.to(tl.float32) if values.dtype != tl.float64 else values


@triton.jit
def _put(X, token, head, on, heads, width, values, WIDTH: tl.constexpr):
    """Write into a contiguous (T, heads, width)."""
    column = tl.arange(0, WIDTH)
    at = X + (token[:, :, None] * heads + head[None, :, None]) * width + column[None, None, :]
    tl.store(at, values.to(X.dtype.element_ty), mask=on[:, :, None] & (column < width)[None, None, :])


@triton.jit
def _entry(Table, Type, begin, step, head, heads, on, TYPED: tl.constexpr):
    """Type and learned number of the pair at one step."""
    kind = begin * 0
    if TYPED:
        kind = tl.load(Type + begin + step, mask=on, other=0).to(tl.int32)
    return kind, tl.load(Table + kind * heads + head[None, :], mask=on, other=0.0)


@triton.jit
def forward(
    Q, K, V, Out, Lse, Table, Begin, End, Col, Type, Node, Stride, tokens, groups, heads, width, value_width, scale,
    q_token, q_head, k_token, k_head, v_token, v_head,
    KERNEL: tl.constexpr, RELATION: tl.constexpr, TYPED: tl.constexpr, WALK: tl.constexpr,
    ROWS: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr, VALUES: tl.constexpr,
):  # fmt: skip
    head = tl.arange(0, HEADS)
    place = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    live = (place < tokens)[:, None] & (head < heads)[None, :]
    token = place[:, None] + tl.zeros((ROWS, HEADS), tl.int64)
    group = (head % groups)[None, :]
    begin, count, base, stride = _list(Begin, End, Node, Stride, token, group, live, tokens, WALK)
    q = _vectors(Q, token, head, live, q_token, q_head, width, WIDTH)
    largest = tl.full((ROWS, HEADS), float("-inf"), tl.float32)
    total = tl.zeros((ROWS, HEADS), tl.float32)
    out = tl.zeros((ROWS, HEADS, VALUES), tl.float32)
    for step in range(0, tl.max(tl.max(count, 1), 0)):
        on = step < count
        key = _other(Col, begin, base, stride, step, on, WALK)
        dot = tl.sum(q * _vectors(K, key, head, on, k_token, k_head, width, WIDTH), 2)
        entry = dot
        if RELATION != NONE:
            _, entry = _entry(Table, Type, begin, step, head, heads, on, TYPED)
        _, score = scores(dot, entry, scale, KERNEL, RELATION)
        if KERNEL == RELU:
            weight = tl.where(on, tl.maximum(score, 0.0), 0.0)
        else:
            score = tl.where(on, score, float("-inf"))
            higher = tl.maximum(largest, score)
            finite = tl.where(higher == float("-inf"), 0.0, higher)
            weight = tl.exp(score - finite)
            fade = tl.exp(largest - finite)
            total = total * fade + weight
            out = out * fade[:, :, None]
            largest = higher
        if RELATION == REWEIGHT:
            weight = weight * entry
        out += weight[:, :, None] * _vectors(V, key, head, on, v_token, v_head, value_width, VALUES)
    lse = largest
    if KERNEL != RELU:
        out = out / tl.maximum(total, TINY)[:, :, None]
        lse = tl.where(total > 0, largest + tl.log(tl.maximum(total, TINY)), float("-inf"))
    _put(Out, token, head, live, heads, value_width, out, VALUES)
    tl.store(Lse + token * heads + head[None, :], lse, mask=live)


@triton.jit
def _shift(
    Out, GradOut, Lse, GradLse, token, head, on, heads, value_width, SHIFTED: tl.constexpr, VALUES: tl.constexpr
):  # fmt: skip
    """Of some queries the gradient of their message, their log-sum-exp, and the shift of ``gradients``."""
    grad = _vectors(GradOut, token, head, on, heads * value_width, value_width, value_width, VALUES)
    out = _vectors(Out, token, head, on, heads * value_width, value_width, value_width, VALUES)
    lse = tl.load(Lse + token * heads + head[None, :], mask=on, other=0.0)
    shift = -tl.sum(grad * out, 2)
    if SHIFTED:
        shift += tl.load(GradLse + token * heads + head[None, :], mask=on, other=0.0)
    return grad, tl.where(lse == float("-inf"), 0.0, lse), shift


@triton.jit
def backward(
    Q, K, V, Out, GradOut, Lse, GradLse, GradQ, GradK, GradV, Partial, Table,
    Begin, End, Col, Type, BackBegin, BackEnd, BackCol, BackType, Node, Stride,
    queries, keys, groups, heads, width, value_width, types, scale,
    q_token, q_head, k_token, k_head, v_token, v_head,
    KERNEL: tl.constexpr, RELATION: tl.constexpr, TYPED: tl.constexpr, WALK: tl.constexpr, SHIFTED: tl.constexpr,
    ROWS: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr, VALUES: tl.constexpr, TYPES: tl.constexpr,
):  # fmt: skip
    """All gradients of a tile: of its tokens as queries, along their keys, and as keys, along the queries that see them."""
    head = tl.arange(0, HEADS)
    place = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    token = place[:, None] + tl.zeros((ROWS, HEADS), tl.int64)
    group = (head % groups)[None, :]
    live = (place < queries)[:, None] & (head < heads)[None, :]
    q = _vectors(Q, token, head, live, q_token, q_head, width, WIDTH)
    grad, lse, shift = _shift(Out, GradOut, Lse, GradLse, token, head, live, heads, value_width, SHIFTED, VALUES)
    begin, count, base, stride = _list(Begin, End, Node, Stride, token, group, live, queries, WALK)
    grad_q = tl.zeros((ROWS, HEADS, WIDTH), tl.float32)
    sums = tl.zeros((HEADS, TYPES), tl.float32)
    number = tl.arange(0, TYPES)
    for step in range(0, tl.max(tl.max(count, 1), 0)):
        on = step < count
        key = _other(Col, begin, base, stride, step, on, WALK)
        k = _vectors(K, key, head, on, k_token, k_head, width, WIDTH)
        v = _vectors(V, key, head, on, v_token, v_head, value_width, VALUES)
        dot = tl.sum(q * k, 2)
        entry = dot
        kind = begin
        if RELATION != NONE:
            kind, entry = _entry(Table, Type, begin, step, head, heads, on, TYPED)
        grad_dot, _, grad_entry = gradients(
            dot, entry, on, tl.sum(grad * v, 2), lse, shift, scale, KERNEL, RELATION
        )  # fmt: skip
        if RELATION != NONE:
            same = on[:, :, None] & (kind[:, :, None] == number[None, None, :])
            sums += tl.sum(tl.where(same, grad_entry[:, :, None], 0.0), 0)
        grad_q += grad_dot[:, :, None] * k
    _put(GradQ, token, head, live, heads, width, grad_q, WIDTH)
    if RELATION != NONE:
        at = Partial + (tl.program_id(0) * heads + head[:, None]) * types + number[None, :]
        tl.store(at, sums, mask=(head < heads)[:, None] & (number < types)[None, :])

    live = (place < keys)[:, None] & (head < heads)[None, :]
    k = _vectors(K, token, head, live, k_token, k_head, width, WIDTH)
    v = _vectors(V, token, head, live, v_token, v_head, value_width, VALUES)
    begin, count, base, stride = _list(BackBegin, BackEnd, Node, Stride, token, group, live, keys, WALK)
    grad_k = tl.zeros((ROWS, HEADS, WIDTH), tl.float32)
    grad_v = tl.zeros((ROWS, HEADS, VALUES), tl.float32)
    for step in range(0, tl.max(tl.max(count, 1), 0)):
        on = step < count
        query = _other(BackCol, begin, base, stride, step, on, WALK)
        q = _vectors(Q, query, head, on, q_token, q_head, width, WIDTH)
        grad, lse, shift = _shift(Out, GradOut, Lse, GradLse, query, head, on, heads, value_width, SHIFTED, VALUES)
        dot = tl.sum(q * k, 2)
        entry = dot
        if RELATION != NONE:
            _, entry = _entry(Table, BackType, begin, step, head, heads, on, TYPED)
        grad_dot, weight, _ = gradients(
            dot, entry, on, tl.sum(grad * v, 2), lse, shift, scale, KERNEL, RELATION
        )  # fmt: skip
        grad_k += grad_dot[:, :, None] * q
        grad_v += weight[:, :, None] * grad
    _put(GradK, token, head, live, heads, width, grad_k, WIDTH)
    _put(GradV, token, head, live, heads, value_width, grad_v, VALUES)
