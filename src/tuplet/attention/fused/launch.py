"""Attention by fused kernels: structures with all groups of a pattern in, one launch forward, one to three backward."""

from __future__ import annotations

from math import isqrt
from typing import Any

import torch
from torch import Tensor

from tuplet.attention.fused import factorised, line_kernels, row_kernels
from tuplet.attention.fused.arithmetic import KERNELS, RELATIONS
from tuplet.attention.weights import Rule, narrow
from tuplet.kernels.dense import add_shares
from tuplet.kernels.sizes import power, precision
from tuplet.patterns.fused import FusedLines, FusedRows

TILE, SMALL_TILE = 64, 32
"""Queries, and keys, of a tile of a long line, and of lines that are mostly short."""
STEP, LONG_STEP, TILE_NUMBERS, PROGRAMS = 2, 16, 1024, 256
"""Keys that a row looks at together, at most if it is known to be long; numbers of the keys of a tile, at most; programs that
there should be at least."""
SHIFT_NUMBERS = 2048
"""Numbers of the messages that one program looks at before the way back."""
FEW_TYPES = 8
"""So many types are told apart by comparison rather than by looking a number up for each pair."""


def forward(
    q: Tensor, k: Tensor, v: Tensor, table: Tensor, structure: FusedLines | FusedRows, rule: Rule
) -> tuple[Tensor, Tensor]:
    """(T1, h, c') messages and (T1, h) log-sum-exps of the scores (-inf for a query without keys)."""
    q, k, v = (_dense(x) for x in (q, k, v))
    table = table.float().contiguous()
    if isinstance(structure, FusedRows):
        out = q.new_empty(q.shape[0], q.shape[1], v.shape[2])
        lse = q.new_empty(q.shape[:2], dtype=torch.float32)
        sizes = {**_widths(q, v), **_row_sizes(q, v, len(q), structure.longest[0])}
        grid = (-(-len(q) // sizes["ROWS"]),)
        if grid[0]:
            row_kernels.forward_rows[grid](
                q, k, v, out, lse, table, structure.begin, structure.end, structure.col, structure.type,
                structure.node, structure.stride, q.shape[0], structure.groups, q.shape[1], q.shape[2], v.shape[2], rule.scale,
                *_strides(q, k, v), **_choices(rule), **_row_choices(structure, len(table)), **sizes,
            )  # fmt: skip
        return out, lse
    if factorised.suits(structure, rule):
        return factorised.forward(q, k, v, structure)
    # a token in no line gets no message
    out = q.new_zeros(q.shape[0], q.shape[1], v.shape[2])
    lse = torch.full(q.shape[:2], -torch.inf, dtype=torch.float32, device=q.device)
    short = max(structure.longest) <= TILE
    sizes = _line_sizes(q, v, structure, SMALL_TILE if short else TILE)
    if short:
        sizes["ROWS"] = 16
    tiles = -(-structure.longest[0] // sizes["ROWS"])
    if not structure.lines or not min(structure.longest):
        return out, lse
    splits = _splits(structure, 0, sizes["COLUMNS"])
    outs, lses = out, lse
    if splits > 1:
        outs = out.new_zeros(splits, *out.shape, dtype=torch.float32)
        lses = lse.new_full((splits, *lse.shape), -torch.inf)
    line_kernels.forward[structure.lines * tiles, q.shape[1], splits](
        q, k, v, outs, lses, table, *_line_tensors(structure), structure.lines, tiles, splits, structure.groups,
        q.shape[1], q.shape[0], k.shape[0], q.shape[2], v.shape[2], rule.scale, *_strides(q, k, v), **_choices(rule),
        **_line_choices(structure, q, len(table)), **sizes, num_warps=1 if short else _warps(sizes, q), num_stages=1 if short else 3,
    )  # fmt: skip
    if splits > 1:
        line_kernels.merge[(q.shape[0] * q.shape[1],)](
            outs, lses, out, lse, q.shape[0], q.shape[1], v.shape[2], splits, KERNEL=KERNELS[rule.kernel].value,
            SPLITS=power(splits, 1), VALUES=power(v.shape[2], 16), num_warps=1,
        )  # fmt: skip
    return out, lse


def _splits(lines: FusedLines, side: int, tile: int) -> int:
    """Into how many portions the walk along the other side is cut, where lines are few tokens wide and many long: sixteen, and
    where lines are very long as many as a portion has tiles, so that no sum has many more terms than another."""
    tiles = -(-lines.longest[1 - side] // tile)
    return 1 if lines.longest[side] > 16 else max(1, min(16, tiles), isqrt(tiles))


def backward(
    grad_out: Tensor,
    grad_lse: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    table: Tensor,
    out: Tensor,
    lse: Tensor,
    structure: FusedLines | FusedRows,
    rule: Rule,
    into: tuple[Tensor, Tensor, Tensor] | None = None,
    shift: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of q, k, v and the relation table; no two programs write the same number, so runs repeat bit by bit.

    ``into``: where those of q, k and v are to stand, (T, h, c) with the heads of a token one after another; zeros, for lines.
    ``shift``: (T1, h) that of ``gradients``, where queries see other keys too: ``out`` is what they all came to, and what is
    found here is added to what stands there of the others.
    """
    q, k, v, grad_out = (_dense(x) for x in (q, k, v, grad_out))
    grad_out = grad_out.contiguous()
    grad_lse = None if grad_lse is None else grad_lse.float().contiguous()
    if isinstance(structure, FusedLines) and factorised.suits(structure, rule):
        assert into is None
        return *factorised.backward(grad_out, grad_lse, q, k, v, out, lse, structure), torch.zeros_like(table)
    add = shift is not None
    whole = not add and rule.normalised and isinstance(structure, FusedLines) and max(structure.longest) <= TILE
    heads, types = q.shape[1], table.shape[0]
    fused_table = table.float().contiguous()
    rest, exact = lse, not add and rule.normalised and q.dtype == torch.float32 and precision(q) == "ieee"
    if exact and isinstance(structure, FusedRows):
        shift, rest = _exact_shifts(grad_out, grad_lse, q, k, v, fused_table, lse, structure, rule)
    elif shift is None:
        shift = _shifts(grad_out, grad_lse, out) if rule.normalised and not whole else grad_lse
    many = {"TYPES": power(types, 1)}
    if isinstance(structure, FusedRows):
        grads = into or tuple(torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))
        of_queries, of_keys = (
            _row_sizes(q, v, count, longest) for count, longest in zip((len(q), len(k)), structure.longest, strict=True)
        )
        programs, more = -(-len(q) // of_queries["ROWS"]), -(-len(k) // of_keys["ROWS"])
        partial = q.new_empty(programs if rule.relation != "none" else 0, heads, types, dtype=torch.float32)
        if programs + more:
            row_kernels.backward_rows[(programs + more,)](
                q, k, v, grad_out, lse, lse if shift is None else shift, rest, *grads, partial, fused_table,
                structure.begin, structure.end, structure.col, structure.type, structure.back_begin, structure.back_end, structure.back_col,
                structure.back_type, structure.node, structure.stride, programs, len(q), len(k), structure.groups, heads,
                q.shape[2], v.shape[2], types, rule.scale, *_strides(q, k, v), *(grad.stride(0) for grad in grads),
                **_choices(rule), **_row_choices(structure, len(table)), ADD=add, EXACT=exact, **_widths(q, v), **of_queries,
                KEY_ROWS=of_keys["ROWS"], KEY_STEP=of_keys["STEP"], **many,
            )  # fmt: skip
        return grads[0], grads[1], grads[2], _table_gradient(partial, table)
    grads = into or tuple(torch.zeros_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))
    given = (q, k, v, grad_out, lse, lse if shift is None else shift)
    shapes = (structure.groups, heads, q.shape[0], k.shape[0], q.shape[2], v.shape[2])
    options: dict[str, Any] = {**_choices(rule), **_line_choices(structure, q, types), "ADD": add}
    tensors = (fused_table, *_line_tensors(structure))
    related = rule.relation != "none"
    if not structure.lines or not min(structure.longest):
        return grads[0], grads[1], grads[2], torch.zeros_like(table)
    if max(structure.longest) <= TILE:  # whole lines at once: the short ones, then those that need a larger tile
        partial = q.new_zeros(structure.lines if related else 0, heads, types, dtype=torch.float32)
        for size, shortest in ((SMALL_TILE, 0), (TILE, SMALL_TILE + 1)):
            sizes = _line_sizes(q, v, structure, size)
            if max(structure.longest) >= shortest:
                line_kernels.backward_line[structure.lines, heads](
                    *given, *grads, partial, *tensors, structure.lines, *shapes, types, shortest, rule.scale,
                    *_strides(q, k, v), *(grad.stride(0) for grad in grads), **options, WHOLE=whole,
                    SHIFTED=shift is not None, **sizes, **many, num_warps=_warps(sizes, q),
                )  # fmt: skip
        return grads[0], grads[1], grads[2], _table_gradient(partial, table)
    sizes = _line_sizes(q, v, structure, TILE)
    # without tensor cores the transposed products of a large tile need several times the registers there are
    key_sizes = _line_sizes(q, v, structure, SMALL_TILE) if precision(q) == "ieee" else sizes
    query_tiles, key_tiles = -(-structure.longest[0] // sizes["ROWS"]), -(-structure.longest[1] // key_sizes["COLUMNS"])
    query_splits = _splits(structure, 0, sizes["COLUMNS"])
    key_splits = _splits(structure, 1, key_sizes["ROWS"])
    programs = structure.lines * query_tiles
    partial = q.new_zeros(programs * query_splits if related else 0, heads, types, dtype=torch.float32)
    grad_q, grad_k, grad_v = (
        grad[None] if splits == 1 else grad.new_zeros(splits, *grad.shape, dtype=torch.float32)
        for grad, splits in zip(grads, (query_splits, key_splits, key_splits), strict=True)
    )
    line_kernels.backward_queries[programs, heads, query_splits](
        *given, grad_q, partial, *tensors, structure.lines, query_tiles, query_splits, *shapes, types, rule.scale,
        *_strides(q, k, v), grad_q.stride(1), **options, **sizes, **many, num_warps=_warps(sizes, q),
    )  # fmt: skip
    line_kernels.backward_keys[structure.lines * key_tiles, heads, key_splits](
        *given, grad_k, grad_v, *tensors, structure.lines, key_tiles, key_splits, *shapes, rule.scale,
        *_strides(q, k, v), grad_k.stride(1), grad_v.stride(1), **options, **key_sizes,
        num_warps=8 if precision(q) == "ieee" else _warps(key_sizes, q),
    )  # fmt: skip
    for grad, shares in zip(grads, (grad_q, grad_k, grad_v), strict=True):
        if len(shares) > 1:
            (grad.add_ if add else grad.copy_)(add_shares(shares))
    return grads[0], grads[1], grads[2], _table_gradient(partial, table)


def _shifts(grad_out: Tensor, grad_lse: Tensor | None, out: Tensor) -> Tensor:
    """(T1, h) the shift of ``gradients``."""
    tokens, heads, width = out.shape
    shift = out.new_empty(tokens, heads, dtype=torch.float32)
    sizes = {"HEADS": power(heads, 1), "VALUES": power(width, 1)}
    rows = max(1, SHIFT_NUMBERS // (sizes["HEADS"] * sizes["VALUES"]))
    if tokens:
        given = out, grad_out, shift if grad_lse is None else grad_lse, shift
        row_kernels.shifts[(-(-tokens // rows),)](
            *given, tokens, heads, width, LSE=grad_lse is not None, ROWS=rows, **sizes
        )
    return shift


def _exact_shifts(
    grad_out: Tensor, grad_lse: Tensor | None, q: Tensor, k: Tensor, v: Tensor, table: Tensor, lse: Tensor,
    rows: FusedRows, rule: Rule,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The same by another walk along the keys of rows, and what the log-sum-exps have lost by rounding."""
    shift, rest, sizes = torch.empty_like(lse), torch.empty_like(lse), _row_sizes(q, v, len(q), rows.longest[0])
    if len(q):
        row_kernels.exact_shifts[(-(-len(q) // sizes["ROWS"]),)](
            q, k, v, grad_out, lse if grad_lse is None else grad_lse, lse, shift, rest, table, rows.begin, rows.end, rows.col,
            rows.type, rows.node, rows.stride, len(q), rows.groups, q.shape[1], q.shape[2], v.shape[2], rule.scale,
            *_strides(q, k, v), **_choices(rule), **_row_choices(rows, len(table)), LSE=grad_lse is not None, **_widths(q, v), **sizes,
        )  # fmt: skip
    return shift, rest


def _dense(x: Tensor) -> Tensor:
    """``x`` (T, h, c) with its last axis contiguous; the others may be views of something wider."""
    return x if x.stride(2) == 1 else x.contiguous()


def _strides(q: Tensor, k: Tensor, v: Tensor) -> tuple[int, ...]:
    return q.stride(0), q.stride(1), k.stride(0), k.stride(1), v.stride(0), v.stride(1)


def _choices(rule: Rule) -> dict[str, Any]:
    return {"KERNEL": KERNELS[rule.kernel].value, "RELATION": RELATIONS[rule.relation].value}


def _row_choices(rows: FusedRows, types: int) -> dict[str, Any]:
    turns = rows.groups if rows.joint else 1
    return {"TYPED": rows.type.numel() > 0, "OWN": types // turns, "WALK": rows.node.numel() > 0, "TURNS": turns}


def _widths(q: Tensor, v: Tensor) -> dict[str, int]:
    return {"HEADS": power(q.shape[1], 1), "WIDTH": power(q.shape[2], 1), "VALUES": power(v.shape[2], 1)}


def _row_sizes(q: Tensor, v: Tensor, tokens: int, longest: int) -> dict[str, int]:
    """Tokens of a tile, fewer where there are few, and what each looks at together."""
    heads, *widths = _widths(q, v).values()
    step = min(LONG_STEP, power(longest, 1)) if longest else STEP
    rows = max(1, min(64, TILE_NUMBERS // (step * heads * max(widths)), power(tokens // PROGRAMS, 1)))
    return {"ROWS": rows, "STEP": step}


def _line_sizes(q: Tensor, v: Tensor, lines: FusedLines, tile: int) -> dict[str, int]:
    rows, columns = (min(tile, power(longest, 16)) for longest in lines.longest)
    return {"ROWS": rows, "COLUMNS": columns, "WIDTH": power(q.shape[2], 16), "VALUES": power(v.shape[2], 16)}


def _line_tensors(lines: FusedLines) -> tuple[Tensor, ...]:
    return lines.query, lines.key, lines.query_order, lines.key_order, lines.matrix, lines.types, lines.entry


def _line_choices(lines: FusedLines, q: Tensor, types: int) -> dict[str, Any]:
    return {
        "FEW": types if types <= FEW_TYPES else 0,
        "TYPED": lines.types.numel() > 0,
        "ENTRY": lines.entry.numel() > 0,
        "Q_ORDER": lines.query_order.numel() > 0,
        "K_ORDER": lines.key_order.numel() > 0,
        "SKIP": lines.skip_self,
        "PRECISION": precision(q),
    }


def _warps(sizes: dict[str, int], q: Tensor) -> int:
    """Of a program with such a tile; twice as many for a large one where products are exact, which takes more registers."""
    pairs = sizes["ROWS"] * sizes["COLUMNS"]
    return (8 if precision(q) == "ieee" else 4) if pairs > 1024 else 2 if pairs > 256 else 1


def _table_gradient(partial: Tensor, table: Tensor) -> Tensor:
    """(types, h) from the shares of the programs."""
    if len(partial) == 0:
        return torch.zeros_like(table)
    return narrow(add_shares(partial).t(), table.dtype).contiguous()
