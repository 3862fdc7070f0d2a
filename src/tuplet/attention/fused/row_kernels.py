"""Kernels for rows and walks: every query of a tile steps through its own keys, a few at a time, all heads at once.

One program has all heads of a tile of tokens, as pairs (token, head); the head says which group's keys it steps through, or it steps
through those of all groups, one group a turn, and each group has OWN types of its own. The key number e of a token is
``Col[Begin[row] + e]`` for rows, and ``token + (Col[..] - row) * stride`` for a walk along an axis, where ``row`` is the node that stands
there.
"""

# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from tuplet.attention.fused.arithmetic import NONE, RELU, REWEIGHT, TINY, exp, gradients, scores, share_of, weights
from tuplet.kernels.sizes import COUNTS


@triton.jit
def _pairs(tile, tokens, heads, ROWS: tl.constexpr, HEADS: tl.constexpr):
    """Token and head of each pair of a tile, and whether there is such a one."""
    pair = tl.arange(0, ROWS * HEADS)
    token = tile.to(tl.int64) * ROWS + pair // HEADS
    head = pair % HEADS
    return token, head, (token < tokens) & (head < heads)


@triton.jit
def _list(
    Begin, End, Node, Stride, token, head, live, tokens, groups, turn: tl.constexpr, TURNS: tl.constexpr, WALK: tl.constexpr
):  # fmt: skip
    """Where the keys of each pair begin, how many there are, and how a column becomes a token."""
    group = head % groups
    if TURNS > 1:
        group = head * 0 + turn
    if WALK:
        row = tl.load(Node + group * tokens + token, mask=live, other=0)
        stride = tl.load(Stride + group * tokens + token, mask=live, other=0)
        base = token - row * stride
        at = row
    else:
        stride = token * 0
        base = stride
        at = group * tokens + token
    begin = tl.load(Begin + at, mask=live, other=0)
    count = tl.load(End + at, mask=live, other=0) - begin
    return begin, count, base, stride


@triton.jit
def _others(Col, begin, count, base, stride, first, WALK: tl.constexpr, STEP: tl.constexpr):
    """(pairs, STEP) the tokens at some steps of each list, whether they exist, and their places in ``Col``."""
    step = first + tl.arange(0, STEP)
    on = step[None, :] < count[:, None]
    place = begin[:, None] + step[None, :]
    column = tl.load(Col + place, mask=on, other=0)
    return (base[:, None] + column * stride[:, None] if WALK else column).to(tl.int64), on, place


@triton.jit
def _vectors(X, token, head, on, token_stride, head_stride, width, WIDTH: tl.constexpr):
    """(pairs, WIDTH) vectors in float32."""
    column = tl.arange(0, WIDTH)
    at = X + (token * token_stride + head * head_stride)[:, None] + column[None, :]
    return tl.load(at, mask=on[:, None] & (column < width)[None, :], other=0.0).to(tl.float32)


@triton.jit
def _more_vectors(X, token, head, on, token_stride, head_stride, width, WIDTH: tl.constexpr):
    """(pairs, STEP, WIDTH) vectors in float32; ``token`` is (pairs, STEP)."""
    column = tl.arange(0, WIDTH)
    at = X + (token * token_stride + head[:, None] * head_stride)[:, :, None] + column[None, None, :]
    return tl.load(at, mask=on[:, :, None] & (column < width)[None, None, :], other=0.0).to(tl.float32)


@triton.jit
def _put(X, token, head, on, token_stride, width, values, ADD: tl.constexpr, WIDTH: tl.constexpr):
    """Write vectors, those of one token's heads one after another, or if ADD add them to what is there."""
    column = tl.arange(0, WIDTH)
    at = X + (token * token_stride + head * width)[:, None] + column[None, :]
    mask = on[:, None] & (column < width)[None, :]
    if ADD:
        values += tl.load(at, mask=mask, other=0.0).to(tl.float32)
    tl.store(at, values.to(X.dtype.element_ty), mask=mask)


@triton.jit
def _entries(Table, Type, place, head, heads, on, turn: tl.constexpr, TYPED: tl.constexpr, OWN: tl.constexpr):
    """Types and learned numbers of some keys of each pair."""
    kind = tl.full(on.shape, turn * OWN, tl.int32)
    if TYPED:
        kind += tl.load(Type + place, mask=on, other=0).to(tl.int32)
    return kind, tl.load(Table + kind * heads + head[:, None], mask=on, other=0.0)


@triton.jit(do_not_specialize=COUNTS)
def forward_rows(
    Q, K, V, Out, Lse, Table, Begin, End, Col, Type, Node, Stride, tokens, groups, heads, width, value_width, scale,
    q_token, q_head, k_token, k_head, v_token, v_head,
    KERNEL: tl.constexpr, RELATION: tl.constexpr, TYPED: tl.constexpr, OWN: tl.constexpr, WALK: tl.constexpr,
    TURNS: tl.constexpr, ROWS: tl.constexpr, HEADS: tl.constexpr, STEP: tl.constexpr, WIDTH: tl.constexpr, VALUES: tl.constexpr,
):  # fmt: skip
    token, head, live = _pairs(tl.program_id(0), tokens, heads, ROWS, HEADS)
    q = _vectors(Q, token, head, live, q_token, q_head, width, WIDTH)
    largest = tl.full((ROWS * HEADS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS * HEADS,), tl.float32)
    out = tl.zeros((ROWS * HEADS, VALUES), tl.float32)
    for turn in tl.static_range(TURNS):
        begin, count, base, stride = _list(
            Begin, End, Node, Stride, token, head, live, tokens, groups, turn, TURNS, WALK
        )  # fmt: skip
        for first in range(0, tl.max(count, 0), STEP):
            key, on, place = _others(Col, begin, count, base, stride, first, WALK, STEP)
            k = _more_vectors(K, key, head, on, k_token, k_head, width, WIDTH)
            v = _more_vectors(V, key, head, on, v_token, v_head, value_width, VALUES)
            dot = tl.sum(q[:, None, :] * k, 2)
            entry = dot
            if RELATION != NONE:
                _, entry = _entries(Table, Type, place, head, heads, on, turn, TYPED, OWN)
            _, score = scores(dot, entry, scale, KERNEL, RELATION)
            if KERNEL == RELU:
                weight = tl.where(on, tl.maximum(score, 0.0), 0.0)
            else:
                score = tl.where(on, score, float("-inf"))
                higher = tl.maximum(largest, tl.max(score, 1))
                finite = tl.where(higher == float("-inf"), 0.0, higher)
                weight = exp(score - finite[:, None], "ieee")
                fade = exp(largest - finite, "ieee")
                total = total * fade + tl.sum(weight, 1)
                out = out * fade[:, None]
                largest = higher
            if RELATION == REWEIGHT:
                weight = weight * entry
            out += tl.sum(weight[:, :, None] * v, 1)
    lse = largest
    if KERNEL != RELU:
        out = share_of(out, total)
        lse = tl.where(total > 0, largest + tl.log(tl.maximum(total, TINY)), float("-inf"))
    _put(Out, token, head, live, heads * value_width, value_width, out, False, VALUES)
    tl.store(Lse + token * heads + head, lse, mask=live)


@triton.jit(do_not_specialize=COUNTS)
def shifts(
    Out, GradOut, GradLse, Shift, tokens, heads, value_width,
    LSE: tl.constexpr, ROWS: tl.constexpr, HEADS: tl.constexpr, VALUES: tl.constexpr,
):  # fmt: skip
    """The ``shift`` of ``gradients`` of every token and head, from what its keys came to."""
    token, head, live = _pairs(tl.program_id(0), tokens, heads, ROWS, HEADS)
    out = _vectors(Out, token, head, live, heads * value_width, value_width, value_width, VALUES)
    grad = _vectors(GradOut, token, head, live, heads * value_width, value_width, value_width, VALUES)
    shift = -tl.sum(grad * out, 1)
    if LSE:
        shift += tl.load(GradLse + token * heads + head, mask=live, other=0.0)
    tl.store(Shift + token * heads + head, shift, mask=live)


@triton.jit(do_not_specialize=COUNTS)
def exact_shifts(
    Q, K, V, GradOut, GradLse, Lse, Shift, Rest, Table, Begin, End, Col, Type, Node, Stride,
    queries, groups, heads, width, value_width, scale, q_token, q_head, k_token, k_head, v_token, v_head,
    KERNEL: tl.constexpr, RELATION: tl.constexpr, TYPED: tl.constexpr, OWN: tl.constexpr, WALK: tl.constexpr, LSE: tl.constexpr,
    TURNS: tl.constexpr, ROWS: tl.constexpr, HEADS: tl.constexpr, STEP: tl.constexpr, WIDTH: tl.constexpr, VALUES: tl.constexpr,
):  # fmt: skip
    """The same from the keys themselves, with the numbers that ``gradients`` will meet, so that what cancels there does; and what
    log-sum-exps have lost by rounding."""
    token, head, live = _pairs(tl.program_id(0), queries, heads, ROWS, HEADS)
    q = _vectors(Q, token, head, live, q_token, q_head, width, WIDTH)
    grad = _vectors(GradOut, token, head, live, heads * value_width, value_width, value_width, VALUES)
    lse = tl.load(Lse + token * heads + head, mask=live, other=0.0)
    lse = tl.where(lse == float("-inf"), 0.0, lse)
    total = tl.zeros((ROWS * HEADS,), tl.float32)
    product = tl.zeros((ROWS * HEADS,), tl.float32)
    for turn in tl.static_range(TURNS):
        begin, count, base, stride = _list(
            Begin, End, Node, Stride, token, head, live, queries, groups, turn, TURNS, WALK
        )  # fmt: skip
        for first in range(0, tl.max(count, 0), STEP):
            key, on, place = _others(Col, begin, count, base, stride, first, WALK, STEP)
            k = _more_vectors(K, key, head, on, k_token, k_head, width, WIDTH)
            v = _more_vectors(V, key, head, on, v_token, v_head, value_width, VALUES)
            dot = tl.sum(q[:, None, :] * k, 2)
            entry = dot
            if RELATION != NONE:
                _, entry = _entries(Table, Type, place, head, heads, on, turn, TYPED, OWN)
            inner = tl.sum(grad[:, None, :] * v, 2)
            if RELATION == REWEIGHT:
                inner = inner * entry
            _, score = scores(dot, entry, scale, KERNEL, RELATION)
            weight = weights(score, on, lse[:, None], 0.0, "ieee")
            total += tl.sum(weight, 1)
            product += tl.sum(weight * inner, 1)
    total = tl.where(total > 0, total, 1.0)
    shift = -tl.div_rn(product, total)
    if LSE:
        shift += tl.load(GradLse + token * heads + head, mask=live, other=0.0)
    tl.store(Shift + token * heads + head, shift, mask=live)
    tl.store(Rest + token * heads + head, tl.log(total), mask=live)


@triton.jit
def _query_gradients(
    Q, K, V, GradOut, Lse, Shift, Rest, GradQ, Partial, Table, Begin, End, Col, Type, Node, Stride,
    program, queries, groups, heads, width, value_width, types, scale,
    q_token, q_head, k_token, k_head, v_token, v_head, gq_token,
    KERNEL: tl.constexpr, RELATION: tl.constexpr, TYPED: tl.constexpr, OWN: tl.constexpr, WALK: tl.constexpr, ADD: tl.constexpr,
    EXACT: tl.constexpr, TURNS: tl.constexpr, ROWS: tl.constexpr, HEADS: tl.constexpr, STEP: tl.constexpr, WIDTH: tl.constexpr,
    VALUES: tl.constexpr, TYPES: tl.constexpr,
):  # fmt: skip
    """Those of a tile's queries, along their keys, and its share of those of the table."""
    token, head, live = _pairs(program, queries, heads, ROWS, HEADS)
    q = _vectors(Q, token, head, live, q_token, q_head, width, WIDTH)
    grad = _vectors(GradOut, token, head, live, heads * value_width, value_width, value_width, VALUES)
    lse = tl.load(Lse + token * heads + head, mask=live, other=0.0)
    lse = tl.where(lse == float("-inf"), 0.0, lse)
    shift = tl.load(Shift + token * heads + head, mask=live, other=0.0)
    rest = lse * 0.0
    if EXACT:
        rest = tl.load(Rest + token * heads + head, mask=live, other=0.0)
    grad_q = tl.zeros((ROWS * HEADS, WIDTH), tl.float32)
    sums = tl.zeros((ROWS * HEADS, TYPES), tl.float32)
    number = tl.arange(0, TYPES)
    for turn in tl.static_range(TURNS):
        begin, count, base, stride = _list(
            Begin, End, Node, Stride, token, head, live, queries, groups, turn, TURNS, WALK
        )  # fmt: skip
        for first in range(0, tl.max(count, 0), STEP):
            key, on, place = _others(Col, begin, count, base, stride, first, WALK, STEP)
            k = _more_vectors(K, key, head, on, k_token, k_head, width, WIDTH)
            v = _more_vectors(V, key, head, on, v_token, v_head, value_width, VALUES)
            dot = tl.sum(q[:, None, :] * k, 2)
            kind, entry = place, dot
            if RELATION != NONE:
                kind, entry = _entries(Table, Type, place, head, heads, on, turn, TYPED, OWN)
            grad_weight = tl.sum(grad[:, None, :] * v, 2)
            grad_dot, _, grad_entry = gradients(
                dot, entry, on, grad_weight, lse[:, None], rest[:, None], shift[:, None], scale, KERNEL, RELATION, "ieee"
            )  # fmt: skip
            if RELATION != NONE:
                same = on[:, :, None] & (kind[:, :, None] == number[None, None, :])
                sums += tl.sum(tl.where(same, grad_entry[:, :, None], 0.0), 1)
            grad_q += tl.sum(grad_dot[:, :, None] * k, 1)
    _put(GradQ, token, head, live, gq_token, width, grad_q, ADD, WIDTH)
    if RELATION != NONE:
        own = tl.arange(0, HEADS)
        at = Partial + (program * heads + own[:, None]) * types + number[None, :]
        sums = tl.sum(tl.reshape(sums, (ROWS, HEADS, TYPES)), 0)
        tl.store(at, sums, mask=(own < heads)[:, None] & (number < types)[None, :])


@triton.jit
def _key_gradients(
    Q, K, V, GradOut, Lse, Shift, Rest, GradK, GradV, Table, Begin, End, Col, Type, Node, Stride,
    program, keys, groups, heads, width, value_width, scale,
    q_token, q_head, k_token, k_head, v_token, v_head, gk_token, gv_token,
    KERNEL: tl.constexpr, RELATION: tl.constexpr, TYPED: tl.constexpr, OWN: tl.constexpr, WALK: tl.constexpr, ADD: tl.constexpr,
    EXACT: tl.constexpr, TURNS: tl.constexpr, ROWS: tl.constexpr, HEADS: tl.constexpr, STEP: tl.constexpr, WIDTH: tl.constexpr,
    VALUES: tl.constexpr,
):  # fmt: skip
    """Those of a tile's keys, along the queries that see them."""
    token, head, live = _pairs(program, keys, heads, ROWS, HEADS)
    k = _vectors(K, token, head, live, k_token, k_head, width, WIDTH)
    v = _vectors(V, token, head, live, v_token, v_head, value_width, VALUES)
    grad_k = tl.zeros((ROWS * HEADS, WIDTH), tl.float32)
    grad_v = tl.zeros((ROWS * HEADS, VALUES), tl.float32)
    for turn in tl.static_range(TURNS):
        begin, count, base, stride = _list(
            Begin, End, Node, Stride, token, head, live, keys, groups, turn, TURNS, WALK
        )  # fmt: skip
        for first in range(0, tl.max(count, 0), STEP):
            query, on, place = _others(Col, begin, count, base, stride, first, WALK, STEP)
            q = _more_vectors(Q, query, head, on, q_token, q_head, width, WIDTH)
            at = query * heads + head[:, None]
            grad = _more_vectors(GradOut, query, head, on, heads * value_width, value_width, value_width, VALUES)
            lse = tl.load(Lse + at, mask=on, other=0.0)
            lse = tl.where(lse == float("-inf"), 0.0, lse)
            shift = tl.load(Shift + at, mask=on, other=0.0)
            rest = lse * 0.0
            if EXACT:
                rest = tl.load(Rest + at, mask=on, other=0.0)
            dot = tl.sum(q * k[:, None, :], 2)
            entry = dot
            if RELATION != NONE:
                _, entry = _entries(Table, Type, place, head, heads, on, turn, TYPED, OWN)
            grad_weight = tl.sum(grad * v[:, None, :], 2)
            grad_dot, weight, _ = gradients(
                dot, entry, on, grad_weight, lse, rest, shift, scale, KERNEL, RELATION, "ieee"
            )  # fmt: skip
            grad_k += tl.sum(grad_dot[:, :, None] * q, 1)
            grad_v += tl.sum(weight[:, :, None] * grad, 1)
    _put(GradK, token, head, live, gk_token, width, grad_k, ADD, WIDTH)
    _put(GradV, token, head, live, gv_token, value_width, grad_v, ADD, VALUES)


@triton.jit(do_not_specialize=COUNTS)
def backward_rows(
    Q, K, V, GradOut, Lse, Shift, Rest, GradQ, GradK, GradV, Partial, Table,
    Begin, End, Col, Type, BackBegin, BackEnd, BackCol, BackType, Node, Stride,
    programs, queries, keys, groups, heads, width, value_width, types, scale,
    q_token, q_head, k_token, k_head, v_token, v_head, gq_token, gk_token, gv_token,
    KERNEL: tl.constexpr, RELATION: tl.constexpr, TYPED: tl.constexpr, OWN: tl.constexpr, WALK: tl.constexpr, ADD: tl.constexpr,
    EXACT: tl.constexpr, TURNS: tl.constexpr, ROWS: tl.constexpr, HEADS: tl.constexpr, STEP: tl.constexpr, WIDTH: tl.constexpr,
    VALUES: tl.constexpr, TYPES: tl.constexpr, KEY_ROWS: tl.constexpr, KEY_STEP: tl.constexpr,
):  # fmt: skip
    """All gradients, added to what is there if ADD: the first ``programs`` have queries, the others keys."""
    program = tl.program_id(0)
    if program < programs:
        _query_gradients(
            Q, K, V, GradOut, Lse, Shift, Rest, GradQ, Partial, Table, Begin, End, Col, Type, Node, Stride,
            program, queries, groups, heads, width, value_width, types, scale,
            q_token, q_head, k_token, k_head, v_token, v_head, gq_token,
            KERNEL, RELATION, TYPED, OWN, WALK, ADD, EXACT, TURNS, ROWS, HEADS, STEP, WIDTH, VALUES, TYPES,
        )  # fmt: skip
    else:
        _key_gradients(
            Q, K, V, GradOut, Lse, Shift, Rest, GradK, GradV, Table, BackBegin, BackEnd, BackCol, BackType, Node, Stride,
            program - programs, keys, groups, heads, width, value_width, scale,
            q_token, q_head, k_token, k_head, v_token, v_head, gk_token, gv_token,
            KERNEL, RELATION, TYPED, OWN, WALK, ADD, EXACT, TURNS, KEY_ROWS, HEADS, KEY_STEP, WIDTH, VALUES,
        )  # fmt: skip
