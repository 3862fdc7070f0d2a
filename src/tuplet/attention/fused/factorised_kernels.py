"""Kernels for kernelised attention over lines in its factorised form: the keys of a line are summed before its queries come.

For each line and head, M = Σ v ⊗ φ(k) and z = Σ φ(k) over the keys; a query then gets M·φ(q) / z·φ(q). A line is cut into
portions; a program sums one portion and writes its share, a (value_width + 1, width) matrix of which z is the last row. Shares are
added in the order of the portions, so runs repeat bit by bit. The gradients of M and z are sums over the queries and go the
same way. Features come in blocks of ``FEATURES``. Matrix products have float32 operands whatever the tokens are, since M is float32.

``Query`` and ``Key`` are (groups, 3, lines) starts, strides and lengths; ``QueryEnds`` and ``KeyEnds`` say where the portions of
each line end, where lines are so uneven (``RAGGED``) that they do not all get room for as many as the longest one has. Widths and
the strides of heads are known to the compiler, which then reads four numbers at once.
"""

# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from tuplet.attention.fused.arithmetic import TINY, share_of
from tuplet.attention.fused.line_kernels import put_rows, rows_of, side_of, tokens_of
from tuplet.kernels.sizes import COUNTS

__all__ = ["TINY", "add", "backward_keys", "backward_queries", "forward", "remember"]


@triton.jit
def _line(Ends, group, number, lines, parts, RAGGED: tl.constexpr):
    """The line that a portion belongs to; ``lines`` after the last portion."""
    line = number // parts
    if RAGGED:
        line = number * 0
        end = line + lines
        while line < end:
            middle = (line + end) // 2
            before = tl.load(Ends + group * lines + middle) <= number
            line = tl.where(before, middle + 1, line)
            end = tl.where(before, end, middle)
    return line


@triton.jit
def _portions(Ends, group, line, lines, length, parts, RAGGED: tl.constexpr, PORTION: tl.constexpr):
    """The first portion of a line, and how many it has; a line of padding may be longer than has room."""
    count = tl.minimum((length + PORTION - 1) // PORTION, parts)
    first = line * parts
    if RAGGED:
        first = tl.load(Ends + group * lines + line) - count
    return first, count


@triton.jit
def _shares(Ends, group, line, lines, length, parts, RAGGED: tl.constexpr, SUMMED: tl.constexpr, PORTION: tl.constexpr):
    """The first share of a line, and how many it has; one at most where they have been added already."""
    if SUMMED:
        return line.to(tl.int64), tl.minimum(length, 1)
    first, count = _portions(Ends, group, line, lines, length, parts, RAGGED, PORTION)
    return first.to(tl.int64), count


@triton.jit
def _sum(
    Share, first, count, head, heads, begin, width, value_width, FEATURES: tl.constexpr, VALUES: tl.constexpr
):  # fmt: skip
    """(VALUES, FEATURES) and (FEATURES,): the sum of some shares, of the features from ``begin`` on."""
    row, column = tl.arange(0, VALUES), begin + tl.arange(0, FEATURES)
    on = column < width
    memory = tl.zeros((VALUES, FEATURES), tl.float32)
    mass = tl.zeros((FEATURES,), tl.float32)
    for part in range(0, count):
        own = Share + ((first + part) * heads + head) * (value_width + 1) * width
        at = own + row[:, None] * width + column[None, :]
        memory += tl.load(at, mask=(row < value_width)[:, None] & on[None, :], other=0.0)
        mass += tl.load(own + value_width * width + column, mask=on, other=0.0)
    return memory, mass


@triton.jit
def _put_share(
    Share, number, head, heads, begin, width, value_width, memory, mass, FEATURES: tl.constexpr, VALUES: tl.constexpr
):  # fmt: skip
    row, column = tl.arange(0, VALUES), begin + tl.arange(0, FEATURES)
    on = column < width
    own = Share + (number.to(tl.int64) * heads + head) * (value_width + 1) * width
    tl.store(own + row[:, None] * width + column[None, :], memory, mask=(row < value_width)[:, None] & on[None, :])
    tl.store(own + value_width * width + column, mass, mask=on)


@triton.jit
def _features(
    X, token, exists, head, token_stride, head_stride, begin, width, FEATURES: tl.constexpr
):  # fmt: skip
    """(tokens, FEATURES) features of one head from ``begin`` on, in float32."""
    return rows_of(X + begin, token, exists, head, token_stride, head_stride, width - begin, FEATURES, "ieee").to(
        tl.float32
    )


@triton.jit
def _put_features(X, token, exists, head, heads, begin, width, values, FEATURES: tl.constexpr):
    """Write features from ``begin`` on into a contiguous (T, heads, width)."""
    column = begin + tl.arange(0, FEATURES)
    at = X + (token[:, None] * heads + head) * width + column[None, :]
    tl.store(at, values.to(X.dtype.element_ty), mask=exists[:, None] & (column < width)[None, :])


@triton.jit(do_not_specialize=COUNTS)
def remember(
    K, V, Share, Key, KeyEnds, KeyOrder, lines, parts, groups, heads, keys, k_token, v_token,
    width: tl.constexpr, value_width: tl.constexpr, k_head: tl.constexpr, v_head: tl.constexpr,
    K_ORDER: tl.constexpr, RAGGED: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, PORTION: tl.constexpr, FEATURES: tl.constexpr, VALUES: tl.constexpr,
):  # fmt: skip
    """The share of one portion of keys in M and z of its line."""
    number, head, begin = tl.program_id(0), tl.program_id(1), tl.program_id(2) * FEATURES
    group = head % groups
    line = _line(KeyEnds, group, number, lines, parts, RAGGED)
    if line >= lines:
        return
    start, stride, length = side_of(Key, group, line, lines)
    first, _ = _portions(KeyEnds, group, line, lines, length, parts, RAGGED, PORTION)
    here = (number - first) * PORTION
    if here >= length:
        return
    memory = tl.zeros((VALUES, FEATURES), tl.float32)
    mass = tl.zeros((FEATURES,), tl.float32)
    for step in range(here, tl.minimum(here + PORTION, length), ROWS):
        place = step + tl.arange(0, ROWS)
        there = place < length
        key = tokens_of(start, stride, place, there, KeyOrder, group, keys, K_ORDER)
        k = _features(K, key, there, head, k_token, k_head, begin, width, FEATURES)
        v = rows_of(V, key, there, head, v_token, v_head, value_width, VALUES, "ieee").to(tl.float32)
        memory += tl.dot(tl.trans(v), k, input_precision=PRECISION)
        mass += tl.sum(k, 0)
    _put_share(Share, number, head, heads, begin, width, value_width, memory, mass, FEATURES, VALUES)


@triton.jit(do_not_specialize=COUNTS)
def add(
    Share, Sum, Side, Ends, lines, parts, groups, heads, size,
    RAGGED: tl.constexpr, PORTION: tl.constexpr, PARTS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Sum (lines, heads, size): some numbers of a line, added up over its many shares."""
    line, head = tl.program_id(0), tl.program_id(1)
    column = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    group = head % groups
    _, _, length = side_of(Side, group, line, lines)
    first, count = _portions(Ends, group, line, lines, length, parts, RAGGED, PORTION)
    on = column < size
    total = tl.zeros((COLUMNS,), tl.float32)
    for step in range(0, count, PARTS):
        part = step + tl.arange(0, PARTS)
        at = Share + ((first + part).to(tl.int64) * heads + head)[:, None] * size + column[None, :]
        total += tl.sum(tl.load(at, mask=(part < count)[:, None] & on[None, :], other=0.0), 0)
    tl.store(Sum + (line.to(tl.int64) * heads + head) * size + column, total, mask=on)


@triton.jit(do_not_specialize=COUNTS)
def forward(
    Q, Share, Out, Lse, Query, QueryEnds, QueryOrder, Key, KeyEnds,
    lines, query_parts, key_parts, groups, heads, queries, q_token,
    width: tl.constexpr, value_width: tl.constexpr, q_head: tl.constexpr,
    Q_ORDER: tl.constexpr, Q_RAGGED: tl.constexpr, K_RAGGED: tl.constexpr, SUMMED: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, PORTION: tl.constexpr, FEATURES: tl.constexpr, VALUES: tl.constexpr,
):  # fmt: skip
    """Messages and log-sum-exps of one portion of queries."""
    number, head = tl.program_id(0), tl.program_id(1)
    group = head % groups
    line = _line(QueryEnds, group, number, lines, query_parts, Q_RAGGED)
    if line >= lines:
        return
    _, _, length = side_of(Key, group, line, lines)
    share, shares = _shares(KeyEnds, group, line, lines, length, key_parts, K_RAGGED, SUMMED, PORTION)
    start, stride, length = side_of(Query, group, line, lines)
    first, _ = _portions(QueryEnds, group, line, lines, length, query_parts, Q_RAGGED, PORTION)
    here = (number - first) * PORTION
    for step in range(here, tl.minimum(here + PORTION, length), ROWS):
        place = step + tl.arange(0, ROWS)
        live = place < length
        query = tokens_of(start, stride, place, live, QueryOrder, group, queries, Q_ORDER)
        total = tl.zeros((ROWS,), tl.float32)
        out = tl.zeros((ROWS, VALUES), tl.float32)
        for begin in range(0, width, FEATURES):
            q = _features(Q, query, live, head, q_token, q_head, begin, width, FEATURES)
            memory, mass = _sum(Share, share, shares, head, heads, begin, width, value_width, FEATURES, VALUES)
            out += tl.dot(q, tl.trans(memory), input_precision=PRECISION)
            total += tl.sum(q * mass[None, :], 1)
        total = tl.maximum(total, TINY)
        put_rows(
            Out, query, live, head, heads * value_width, value_width, value_width, share_of(out, total), False, VALUES
        )  # fmt: skip
        lse = tl.where(shares > 0, tl.log(total), float("-inf"))
        tl.store(Lse + query * heads + head, lse, mask=live)


@triton.jit(do_not_specialize=COUNTS)
def backward_queries(
    Q, Out, GradOut, Lse, GradLse, GradQ, Share, GradShare, Query, QueryEnds, QueryOrder, Key, KeyEnds,
    lines, query_parts, key_parts, groups, heads, queries, q_token,
    width: tl.constexpr, value_width: tl.constexpr, q_head: tl.constexpr,
    Q_ORDER: tl.constexpr, Q_RAGGED: tl.constexpr, K_RAGGED: tl.constexpr, SUMMED: tl.constexpr, SHIFTED: tl.constexpr,
    PRECISION: tl.constexpr, ROWS: tl.constexpr, PORTION: tl.constexpr, FEATURES: tl.constexpr, VALUES: tl.constexpr,
):  # fmt: skip
    """Gradients of one portion of queries, and its share in those of M and z."""
    number, head, begin = tl.program_id(0), tl.program_id(1), tl.program_id(2) * FEATURES
    group = head % groups
    line = _line(QueryEnds, group, number, lines, query_parts, Q_RAGGED)
    if line >= lines:
        return
    _, _, length = side_of(Key, group, line, lines)
    share, shares = _shares(KeyEnds, group, line, lines, length, key_parts, K_RAGGED, SUMMED, PORTION)
    start, stride, length = side_of(Query, group, line, lines)
    first, _ = _portions(QueryEnds, group, line, lines, length, query_parts, Q_RAGGED, PORTION)
    here = (number - first) * PORTION
    if here >= length:
        return
    memory, mass = _sum(Share, share, shares, head, heads, begin, width, value_width, FEATURES, VALUES)
    grad_memory = tl.zeros((VALUES, FEATURES), tl.float32)
    grad_mass = tl.zeros((FEATURES,), tl.float32)
    for step in range(here, tl.minimum(here + PORTION, length), ROWS):
        place = step + tl.arange(0, ROWS)
        live = place < length
        query = tokens_of(start, stride, place, live, QueryOrder, group, queries, Q_ORDER)
        q = _features(Q, query, live, head, q_token, q_head, begin, width, FEATURES)
        grad = rows_of(GradOut, query, live, head, heads * value_width, value_width, value_width, VALUES, "ieee").to(
            tl.float32
        )
        out = rows_of(Out, query, live, head, heads * value_width, value_width, value_width, VALUES, "ieee").to(
            tl.float32
        )
        lse = tl.load(Lse + query * heads + head, mask=live, other=float("-inf"))
        # one over φ(q)·z, and no gradient where there are no keys
        inverse = tl.where(lse == float("-inf"), 0.0, tl.exp(-lse))
        shift = -tl.sum(grad * out, 1)
        if SHIFTED:
            shift += tl.load(GradLse + query * heads + head, mask=live, other=0.0)
        shift = shift * inverse
        grad = grad * inverse[:, None]
        grad_q = tl.dot(grad, memory, input_precision=PRECISION) + shift[:, None] * mass[None, :]
        _put_features(GradQ, query, live, head, heads, begin, width, grad_q, FEATURES)
        grad_memory += tl.dot(tl.trans(grad), q, input_precision=PRECISION)
        grad_mass += tl.sum(q * shift[:, None], 0)
    _put_share(GradShare, number, head, heads, begin, width, value_width, grad_memory, grad_mass, FEATURES, VALUES)


@triton.jit(do_not_specialize=COUNTS)
def backward_keys(
    K, V, GradK, GradV, GradShare, Query, QueryEnds, Key, KeyEnds, KeyOrder,
    lines, query_parts, key_parts, groups, heads, keys, k_token, v_token,
    width: tl.constexpr, value_width: tl.constexpr, k_head: tl.constexpr, v_head: tl.constexpr,
    K_ORDER: tl.constexpr, Q_RAGGED: tl.constexpr, K_RAGGED: tl.constexpr, SUMMED: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, PORTION: tl.constexpr, FEATURES: tl.constexpr, VALUES: tl.constexpr,
):  # fmt: skip
    """Gradients of one portion of keys and their values."""
    number, head = tl.program_id(0), tl.program_id(1)
    group = head % groups
    line = _line(KeyEnds, group, number, lines, key_parts, K_RAGGED)
    if line >= lines:
        return
    _, _, length = side_of(Query, group, line, lines)
    share, shares = _shares(QueryEnds, group, line, lines, length, query_parts, Q_RAGGED, SUMMED, PORTION)
    start, stride, length = side_of(Key, group, line, lines)
    first, _ = _portions(KeyEnds, group, line, lines, length, key_parts, K_RAGGED, PORTION)
    here = (number - first) * PORTION
    for step in range(here, tl.minimum(here + PORTION, length), ROWS):
        place = step + tl.arange(0, ROWS)
        there = place < length
        key = tokens_of(start, stride, place, there, KeyOrder, group, keys, K_ORDER)
        v = rows_of(V, key, there, head, v_token, v_head, value_width, VALUES, "ieee").to(tl.float32)
        grad_v = tl.zeros((ROWS, VALUES), tl.float32)
        for begin in range(0, width, FEATURES):
            k = _features(K, key, there, head, k_token, k_head, begin, width, FEATURES)
            memory, mass = _sum(GradShare, share, shares, head, heads, begin, width, value_width, FEATURES, VALUES)
            grad_k = tl.dot(v, memory, input_precision=PRECISION) + mass[None, :]
            _put_features(GradK, key, there, head, heads, begin, width, grad_k, FEATURES)
            grad_v += tl.dot(k, tl.trans(memory), input_precision=PRECISION)
        put_rows(GradV, key, there, head, heads * value_width, value_width, value_width, grad_v, False, VALUES)
