"""Kernels for lines: tiles of queries against tiles of keys, scores never leave the chip.

One program has one head of one tile of one line; the head says which group's lines it walks. Names as in ``lines.py``:
``Query`` and ``Key`` are (groups, 3, lines) starts, strides and lengths.
"""

# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from tuplet.attention.fused.arithmetic import (
    NONE,
    RELU,
    REWEIGHT,
    TINY,
    exp,
    gradients,
    operand,
    scores,
    share_of,
    weights,
)  # fmt: skip
from tuplet.kernels.sizes import COUNTS


@triton.jit
def side_of(Side, group, line, lines):
    """Start, stride and length of one side of a line."""
    at = Side + group * 3 * lines + line
    return tl.load(at), tl.load(at + lines), tl.load(at + 2 * lines)


@triton.jit
def tokens_of(start, stride, place, exists, Order, group, tokens, ORDERED: tl.constexpr):
    """The tokens at some places of a line."""
    token = start + place * stride
    if ORDERED:
        token = tl.load(Order + group * tokens + token, mask=exists, other=0)
    return token.to(tl.int64)


@triton.jit
def rows_of(
    X, token, exists, head, token_stride, head_stride, width, WIDTH: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    """(tokens, WIDTH) vectors of one head, ready for products; zero where a token does not exist."""
    column = tl.arange(0, WIDTH)
    at = X + token[:, None] * token_stride + head * head_stride + column[None, :]
    return operand(tl.load(at, mask=exists[:, None] & (column < width)[None, :], other=0.0), PRECISION)


@triton.jit
def put_rows(X, token, exists, head, token_stride, head_stride, width, values, ADD: tl.constexpr, WIDTH: tl.constexpr):
    """Write (tokens, WIDTH) vectors of one head, or if ADD add them to what is there."""
    column = tl.arange(0, WIDTH)
    at = X + token[:, None] * token_stride + head * head_stride + column[None, :]
    mask = exists[:, None] & (column < width)[None, :]
    if ADD:
        values += tl.load(at, mask=mask, other=0.0).to(tl.float32)
    tl.store(at, values.to(X.dtype.element_ty), mask=mask)


@triton.jit
def _entries(
    Table, Matrix, Types, Entry, group, line, lines, head, heads, query, query_place, key, key_place, exists, tokens,
    TYPED: tl.constexpr, ENTRY: tl.constexpr, FEW: tl.constexpr,
):  # fmt: skip
    """Type and learned number of each pair of a tile; a few types are told apart by comparison, many by looking up."""
    kind = tl.zeros(exists.shape, tl.int32)
    if not TYPED:
        return kind, tl.load(Table + head) + tl.zeros(exists.shape, tl.float32)
    if TYPED:
        start = tl.load(Types + group * 2 * lines + line)
        size = tl.load(Types + (group * 2 + 1) * lines + line)
        if ENTRY:
            row = tl.load(Entry + group * tokens + query)
            column = tl.load(Entry + group * tokens + key)
        else:
            row, column = query_place, key_place
        kind = tl.load(Matrix + start + row[:, None] * size + column[None, :], mask=exists, other=0).to(tl.int32)
    if FEW == 0:
        return kind, tl.load(Table + kind * heads + head)
    entry = tl.zeros(exists.shape, tl.float32)
    for t in tl.static_range(FEW):
        entry = tl.where(kind == t, tl.load(Table + t * heads + head), entry)
    return kind, entry


@triton.jit
def _sum_by_type(sums, kind, values, types, TYPES: tl.constexpr):
    """Add the sums of ``values`` over the pairs of each type to ``sums`` (TYPES,)."""
    number = tl.arange(0, TYPES)
    for t in range(0, types):
        one = tl.sum(tl.sum(tl.where(kind == t, values, 0.0), 1), 0)
        sums += tl.where(number == t, one, 0.0)
    return sums


@triton.jit(do_not_specialize=COUNTS)
def forward(
    Q, K, V, Out, Lse, Table, Query, Key, QueryOrder, KeyOrder, Matrix, Types, Entry,
    lines, tiles, splits, groups, heads, queries, keys, width, value_width, scale,
    q_token, q_head, k_token, k_head, v_token, v_head,
    KERNEL: tl.constexpr, RELATION: tl.constexpr, TYPED: tl.constexpr, ENTRY: tl.constexpr, Q_ORDER: tl.constexpr,
    K_ORDER: tl.constexpr, SKIP: tl.constexpr, PRECISION: tl.constexpr, FEW: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, WIDTH: tl.constexpr, VALUES: tl.constexpr,
):  # fmt: skip
    line, tile, head = tl.program_id(0) // tiles, tl.program_id(0) % tiles, tl.program_id(1)
    split = tl.program_id(2)
    group = head % groups
    start, stride, length = side_of(Query, group, line, lines)
    if tile * ROWS >= length:
        return
    place = tile * ROWS + tl.arange(0, ROWS)
    live = place < length
    query = tokens_of(start, stride, place, live, QueryOrder, group, queries, Q_ORDER)
    q = rows_of(Q, query, live, head, q_token, q_head, width, WIDTH, PRECISION)
    start, stride, length = side_of(Key, group, line, lines)
    largest = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    out = tl.zeros((ROWS, VALUES), tl.float32)
    for first in range(split * COLUMNS, length, splits * COLUMNS):
        key_place = first + tl.arange(0, COLUMNS)
        there = key_place < length
        key = tokens_of(start, stride, key_place, there, KeyOrder, group, keys, K_ORDER)
        k = rows_of(K, key, there, head, k_token, k_head, width, WIDTH, PRECISION)
        v = rows_of(V, key, there, head, v_token, v_head, value_width, VALUES, PRECISION)
        exists = live[:, None] & there[None, :]
        if SKIP:
            exists = exists & (query[:, None] != key[None, :])
        dot = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        entry = dot
        if RELATION != NONE:
            _, entry = _entries(
                Table, Matrix, Types, Entry, group, line, lines, head, heads, query, place, key, key_place, exists, keys,
                TYPED, ENTRY, FEW,
            )  # fmt: skip
        _, score = scores(dot, entry, scale, KERNEL, RELATION)
        if KERNEL == RELU:
            weight = tl.where(exists, tl.maximum(score, 0.0), 0.0)
        else:
            score = tl.where(exists, score, float("-inf"))
            higher = tl.maximum(largest, tl.max(score, 1))
            finite = tl.where(higher == float("-inf"), 0.0, higher)
            weight = exp(score - finite[:, None], PRECISION)
            fade = exp(largest - finite, PRECISION)
            total = total * fade + tl.sum(weight, 1)
            out = out * fade[:, None]
            largest = higher
        if RELATION == REWEIGHT:
            weight = weight * entry
        out += tl.dot(operand(weight.to(v.dtype), PRECISION), v, input_precision=PRECISION)
    lse = largest
    if KERNEL != RELU:
        out = share_of(out, total)
        lse = tl.where(total > 0, largest + tl.log(tl.maximum(total, TINY)), float("-inf"))
    at = Out + split * queries * heads * value_width
    put_rows(at, query, live, head, heads * value_width, value_width, value_width, out, False, VALUES)
    tl.store(Lse + (split * queries + query) * heads + head, lse, mask=live)


@triton.jit(do_not_specialize=COUNTS)
def merge(
    Outs, Lses, Out, Lse, queries, heads, value_width, splits,
    KERNEL: tl.constexpr, SPLITS: tl.constexpr, VALUES: tl.constexpr,
):  # fmt: skip
    """One attention from those over portions of the keys."""
    at = tl.program_id(0).to(tl.int64)  # a query and a head
    split, column = tl.arange(0, SPLITS), tl.arange(0, VALUES)
    there = split < splits
    outs = tl.load(
        Outs + (split[:, None] * queries * heads + at) * value_width + column[None, :],
        mask=there[:, None] & (column < value_width)[None, :],
        other=0.0,
    )
    lses = tl.load(Lses + split * queries * heads + at, mask=there, other=float("-inf"))
    lse = tl.max(lses, 0)
    if KERNEL == RELU:
        out = tl.sum(outs, 0)
    else:
        finite = tl.where(lse == float("-inf"), 0.0, lse)
        share = exp(lses - finite, "ieee")
        total = tl.sum(share, 0)
        out = tl.div_rn(tl.sum(outs * share[:, None], 0), tl.maximum(total, TINY))
        lse = tl.where(total > 0, lse + tl.log(tl.maximum(total, TINY)), float("-inf"))
    tl.store(Out + at * value_width + column, out.to(Out.dtype.element_ty), mask=column < value_width)
    tl.store(Lse + at, lse)


@triton.jit
def _query_side(
    Q, GradOut, Lse, Shift, query, live, head, heads, width, value_width, q_token, q_head,
    SHIFTED: tl.constexpr, WIDTH: tl.constexpr, VALUES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Vectors of some queries, their gradients, log-sum-exps, and what ``Shift`` has for them, if SHIFTED."""
    q = rows_of(Q, query, live, head, q_token, q_head, width, WIDTH, PRECISION)
    grad = rows_of(
        GradOut, query, live, head, heads * value_width, value_width, value_width, VALUES, PRECISION
    )  # fmt: skip
    lse = tl.load(Lse + query * heads + head, mask=live, other=0.0)
    lse = tl.where(lse == float("-inf"), 0.0, lse)
    shift = lse * 0.0
    if SHIFTED:
        shift = tl.load(Shift + query * heads + head, mask=live, other=0.0)
    return q, grad, lse, shift


@triton.jit(do_not_specialize=COUNTS)
def backward_line(
    Q, K, V, GradOut, Lse, Shift, GradQ, GradK, GradV, Partial, Table, Query, Key, QueryOrder, KeyOrder, Matrix,
    Types, Entry, lines, groups, heads, queries, keys, width, value_width, types, shortest, scale,
    q_token, q_head, k_token, k_head, v_token, v_head, gq_token, gk_token, gv_token,
    KERNEL: tl.constexpr, RELATION: tl.constexpr, TYPED: tl.constexpr, ENTRY: tl.constexpr, Q_ORDER: tl.constexpr,
    K_ORDER: tl.constexpr, SKIP: tl.constexpr, PRECISION: tl.constexpr, FEW: tl.constexpr, ADD: tl.constexpr,
    WHOLE: tl.constexpr, SHIFTED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, WIDTH: tl.constexpr,
    VALUES: tl.constexpr, TYPES: tl.constexpr,
):  # fmt: skip
    """All gradients of a line that fits in one tile, and in no smaller one: everything is read once.

    WHOLE: the softmax spans the line and nothing else, so that the sum of weight times gradient is at hand; and, if SHIFTED, ``Shift``
    is the gradient of the log-sum-exps alone. Where products are exact, what log-sum-exps have lost by rounding is made up for.
    """
    line, head = tl.program_id(0), tl.program_id(1)
    group = head % groups
    _, _, length = side_of(Key, group, line, lines)
    start, stride, queries_here = side_of(Query, group, line, lines)
    longer = tl.maximum(length, queries_here)
    if (longer < shortest) | (longer > tl.maximum(ROWS, COLUMNS)):
        return
    length = queries_here
    place = tl.arange(0, ROWS)
    live = place < length
    query = tokens_of(start, stride, place, live, QueryOrder, group, queries, Q_ORDER)
    q, grad, lse, shift = _query_side(
        Q, GradOut, Lse, Shift, query, live, head, heads, width, value_width, q_token, q_head, SHIFTED, WIDTH, VALUES,
        PRECISION,
    )  # fmt: skip
    start, stride, length = side_of(Key, group, line, lines)
    key_place = tl.arange(0, COLUMNS)
    there = key_place < length
    key = tokens_of(start, stride, key_place, there, KeyOrder, group, keys, K_ORDER)
    k = rows_of(K, key, there, head, k_token, k_head, width, WIDTH, PRECISION)
    v = rows_of(V, key, there, head, v_token, v_head, value_width, VALUES, PRECISION)
    exists = live[:, None] & there[None, :]
    if SKIP:
        exists = exists & (query[:, None] != key[None, :])
    dot = tl.dot(q, tl.trans(k), input_precision=PRECISION)
    kind, entry = dot, dot
    if RELATION != NONE:
        kind, entry = _entries(
            Table, Matrix, Types, Entry, group, line, lines, head, heads, query, place, key, key_place, exists, keys,
            TYPED, ENTRY, FEW,
        )  # fmt: skip
    grad_weight = tl.dot(grad, tl.trans(v), input_precision=PRECISION)
    rest = lse * 0.0
    if WHOLE:
        _, score = scores(dot, entry, scale, KERNEL, RELATION)
        inner = grad_weight * entry if RELATION == REWEIGHT else grad_weight
        weight = weights(score, exists, lse[:, None], 0.0, PRECISION)
        product = tl.sum(weight * inner, 1)
        if PRECISION == "ieee":
            total = tl.sum(weight, 1)
            total = tl.where(total > 0, total, 1.0)
            product = tl.div_rn(product, total)
            rest = tl.log(total)
        shift -= product
    grad_dot, weight, grad_entry = gradients(
        dot, entry, exists, grad_weight, lse[:, None], rest[:, None], shift[:, None], scale, KERNEL, RELATION, PRECISION
    )  # fmt: skip
    if RELATION != NONE:
        sums = _sum_by_type(tl.zeros((TYPES,), tl.float32), kind, grad_entry, types, TYPES)
        number = tl.arange(0, TYPES)
        tl.store(Partial + (line * heads + head) * types + number, sums, mask=number < types)
    grad_dot, weight = operand(grad_dot.to(q.dtype), PRECISION), operand(weight.to(v.dtype), PRECISION)
    grad_v = tl.dot(tl.trans(weight), grad, input_precision=PRECISION)
    put_rows(GradV, key, there, head, gv_token, value_width, value_width, grad_v, ADD, VALUES)
    grad_k = tl.dot(tl.trans(grad_dot), q, input_precision=PRECISION)
    put_rows(GradK, key, there, head, gk_token, width, width, grad_k, ADD, WIDTH)
    grad_q = tl.dot(grad_dot, k, input_precision=PRECISION)
    put_rows(GradQ, query, live, head, gq_token, width, width, grad_q, ADD, WIDTH)


@triton.jit(do_not_specialize=COUNTS)
def backward_queries(
    Q, K, V, GradOut, Lse, Shift, GradQ, Partial, Table, Query, Key, QueryOrder, KeyOrder, Matrix,
    Types, Entry, lines, tiles, splits, groups, heads, queries, keys, width, value_width, types, scale,
    q_token, q_head, k_token, k_head, v_token, v_head, gq_token,
    KERNEL: tl.constexpr, RELATION: tl.constexpr, TYPED: tl.constexpr, ENTRY: tl.constexpr, Q_ORDER: tl.constexpr,
    K_ORDER: tl.constexpr, SKIP: tl.constexpr, PRECISION: tl.constexpr, FEW: tl.constexpr, ADD: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, WIDTH: tl.constexpr, VALUES: tl.constexpr, TYPES: tl.constexpr,
):  # fmt: skip
    """Gradients of the queries of a tile and its share of those of the table, walking through the keys of its line."""
    line, tile, head = tl.program_id(0) // tiles, tl.program_id(0) % tiles, tl.program_id(1)
    split = tl.program_id(2)
    group = head % groups
    start, stride, length = side_of(Query, group, line, lines)
    place = tile * ROWS + tl.arange(0, ROWS)
    live = place < length
    query = tokens_of(start, stride, place, live, QueryOrder, group, queries, Q_ORDER)
    q, grad, lse, shift = _query_side(
        Q, GradOut, Lse, Shift, query, live, head, heads, width, value_width, q_token, q_head, True, WIDTH, VALUES,
        PRECISION,
    )  # fmt: skip
    start, stride, keys_here = side_of(Key, group, line, lines)
    if tile * ROWS >= length:
        keys_here = keys_here * 0
    grad_q = tl.zeros((ROWS, WIDTH), tl.float32)
    sums = tl.zeros((TYPES,), tl.float32)
    for first in range(split * COLUMNS, keys_here, splits * COLUMNS):
        key_place = first + tl.arange(0, COLUMNS)
        there = key_place < keys_here
        key = tokens_of(start, stride, key_place, there, KeyOrder, group, keys, K_ORDER)
        k = rows_of(K, key, there, head, k_token, k_head, width, WIDTH, PRECISION)
        v = rows_of(V, key, there, head, v_token, v_head, value_width, VALUES, PRECISION)
        exists = live[:, None] & there[None, :]
        if SKIP:
            exists = exists & (query[:, None] != key[None, :])
        dot = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        kind, entry = dot, dot
        if RELATION != NONE:
            kind, entry = _entries(
                Table, Matrix, Types, Entry, group, line, lines, head, heads, query, place, key, key_place, exists, keys,
                TYPED, ENTRY, FEW,
            )  # fmt: skip
        grad_weight = tl.dot(grad, tl.trans(v), input_precision=PRECISION)
        grad_dot, _, grad_entry = gradients(
            dot, entry, exists, grad_weight, lse[:, None], 0.0, shift[:, None], scale, KERNEL, RELATION, PRECISION
        )
        if RELATION != NONE:
            sums = _sum_by_type(sums, kind, grad_entry, types, TYPES)
        grad_q += tl.dot(operand(grad_dot.to(k.dtype), PRECISION), k, input_precision=PRECISION)
    if RELATION != NONE:
        number = tl.arange(0, TYPES)
        tl.store(
            Partial + ((split * lines * tiles + tl.program_id(0)) * heads + head) * types + number,
            sums,
            mask=number < types,
        )
    put_rows(GradQ + split * queries * gq_token, query, live, head, gq_token, width, width, grad_q, ADD, WIDTH)


@triton.jit(do_not_specialize=COUNTS)
def backward_keys(
    Q, K, V, GradOut, Lse, Shift, GradK, GradV, Table, Query, Key, QueryOrder, KeyOrder, Matrix,
    Types, Entry, lines, tiles, splits, groups, heads, queries, keys, width, value_width, scale,
    q_token, q_head, k_token, k_head, v_token, v_head, gk_token, gv_token,
    KERNEL: tl.constexpr, RELATION: tl.constexpr, TYPED: tl.constexpr, ENTRY: tl.constexpr, Q_ORDER: tl.constexpr,
    K_ORDER: tl.constexpr, SKIP: tl.constexpr, PRECISION: tl.constexpr, FEW: tl.constexpr, ADD: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, WIDTH: tl.constexpr, VALUES: tl.constexpr,
):  # fmt: skip
    """Gradients of the keys and values of a tile, walking through the queries of its line."""
    line, tile, head = tl.program_id(0) // tiles, tl.program_id(0) % tiles, tl.program_id(1)
    split = tl.program_id(2)
    group = head % groups
    start, stride, length = side_of(Key, group, line, lines)
    if tile * COLUMNS >= length:
        return
    key_place = tile * COLUMNS + tl.arange(0, COLUMNS)
    there = key_place < length
    key = tokens_of(start, stride, key_place, there, KeyOrder, group, keys, K_ORDER)
    k = rows_of(K, key, there, head, k_token, k_head, width, WIDTH, PRECISION)
    v = rows_of(V, key, there, head, v_token, v_head, value_width, VALUES, PRECISION)
    start, stride, length = side_of(Query, group, line, lines)
    grad_k = tl.zeros((COLUMNS, WIDTH), tl.float32)
    grad_v = tl.zeros((COLUMNS, VALUES), tl.float32)
    for first in range(split * ROWS, length, splits * ROWS):
        place = first + tl.arange(0, ROWS)
        live = place < length
        query = tokens_of(start, stride, place, live, QueryOrder, group, queries, Q_ORDER)
        q, grad, lse, shift = _query_side(
            Q, GradOut, Lse, Shift, query, live, head, heads, width, value_width, q_token, q_head, True, WIDTH, VALUES,
            PRECISION,
        )  # fmt: skip
        exists = live[:, None] & there[None, :]
        if SKIP:
            exists = exists & (query[:, None] != key[None, :])
        dot = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        entry = dot
        if RELATION != NONE:
            _, entry = _entries(
                Table, Matrix, Types, Entry, group, line, lines, head, heads, query, place, key, key_place, exists, keys,
                TYPED, ENTRY, FEW,
            )  # fmt: skip
        grad_weight = tl.dot(grad, tl.trans(v), input_precision=PRECISION)
        grad_dot, weight, _ = gradients(
            dot, entry, exists, grad_weight, lse[:, None], 0.0, shift[:, None], scale, KERNEL, RELATION, PRECISION
        )
        grad_dot, weight = operand(grad_dot.to(q.dtype), PRECISION), operand(weight.to(v.dtype), PRECISION)
        grad_v += tl.dot(tl.trans(weight), grad, input_precision=PRECISION)
        grad_k += tl.dot(tl.trans(grad_dot), q, input_precision=PRECISION)
    put_rows(GradK + split * keys * gk_token, key, there, head, gk_token, width, width, grad_k, ADD, WIDTH)
    put_rows(
        GradV + split * keys * gv_token, key, there, head, gv_token, value_width, value_width, grad_v, ADD, VALUES
    )  # fmt: skip
