"""Kernelised attention over lines by fused kernels in O(T): κ = φ(q)·φ(k) is summed over the keys before the queries come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tuplet.attention.fused import factorised_kernels
from tuplet.attention.weights import Rule
from tuplet.kernels.sizes import power, precision
from tuplet.patterns.fused import FusedLines

PORTION = 128
"""Tokens of a line that one program sums over."""
SHARES = 8
"""So many shares of a line are added by every program that reads them; more of them once, by programs of their own."""
SHORT, FEW, LONG = 64, 16, 2048
"""Lines of ``SHORT`` tokens are one tile of pairs; with ``FEW`` tokens on one side the pairs are few unless the other has ``LONG``."""


def suits(lines: FusedLines, rule: Rule) -> bool:
    """Whether the factorised form exists for these lines (section 4.1) and is the quicker one."""
    if rule.kernel != "positive" or rule.relation != "none" or lines.skip_self:
        return False
    return max(lines.longest) > (SHORT if min(lines.longest) > FEW else LONG)


def forward(q: Tensor, k: Tensor, v: Tensor, lines: FusedLines) -> tuple[Tensor, Tensor]:
    """(T1, h, c') messages and (T1, h) log-sum-exps of φ(q), φ(k) (T, h, m) and v, with last axes contiguous."""
    # a token in no line gets no message
    out = q.new_zeros(q.shape[0], q.shape[1], v.shape[2])
    lse = torch.full(q.shape[:2], -torch.inf, dtype=torch.float32, device=q.device)
    if not lines.lines or not min(lines.longest):
        return out, lse
    queries, keys = _cut(lines, q, k)
    share, summed = _remember(k, v, lines, keys)
    factorised_kernels.forward[queries.programs, q.shape[1]](
        q, share, out, lse, lines.query, queries.ends, lines.query_order, lines.key, keys.ends, lines.lines, queries.parts,
        keys.parts, lines.groups, q.shape[1], q.shape[0], q.stride(0), q_head=q.stride(1),
        Q_ORDER=lines.query_order.numel() > 0, Q_RAGGED=queries.ragged, K_RAGGED=keys.ragged, SUMMED=summed,
        **_sizes(q, v, lines.longest[0]),
    )  # fmt: skip
    return out, lse


def backward(
    grad_out: Tensor,
    grad_lse: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    lines: FusedLines,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of φ(q), φ(k) and v; ``grad_out`` (T1, h, c') and ``grad_lse`` (T1, h) are contiguous."""
    grad_q, grad_k, grad_v = (torch.zeros_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))
    if not lines.lines or not min(lines.longest):
        return grad_q, grad_k, grad_v
    queries, keys = _cut(lines, q, k)
    ragged = {"Q_RAGGED": queries.ragged, "K_RAGGED": keys.ragged}
    share, summed = _remember(k, v, lines, keys)
    sizes = _sizes(q, v, lines.longest[0], rows=32)  # two products and an M: of smaller tiles, or registers run out
    grad_share = _room(queries.programs, q, v)
    factorised_kernels.backward_queries[queries.programs, q.shape[1], _blocks(q, sizes)](
        q, out, grad_out, lse, lse if grad_lse is None else grad_lse, grad_q, share, grad_share, lines.query,
        queries.ends, lines.query_order, lines.key, keys.ends, lines.lines, queries.parts, keys.parts, lines.groups,
        q.shape[1], q.shape[0], q.stride(0), q_head=q.stride(1), Q_ORDER=lines.query_order.numel() > 0, SUMMED=summed,
        SHIFTED=grad_lse is not None, **ragged, **sizes,
    )  # fmt: skip
    grad_share, summed = _added(grad_share, lines.query, queries)
    factorised_kernels.backward_keys[keys.programs, k.shape[1]](
        k, v, grad_k, grad_v, grad_share, lines.query, queries.ends, lines.key, keys.ends, lines.key_order, lines.lines,
        queries.parts, keys.parts, lines.groups, k.shape[1], k.shape[0], k.stride(0), v.stride(0), k_head=k.stride(1),
        v_head=v.stride(1), K_ORDER=lines.key_order.numel() > 0, SUMMED=summed, **ragged, **_sizes(k, v, lines.longest[1]),
    )  # fmt: skip
    return grad_q, grad_k, grad_v


@dataclass(frozen=True)
class _Portions:
    """How one side of the lines is cut, known from shapes alone.

    Args:
        programs: as many as there can be portions.
        parts: portions of the longest line.
        ends: (groups, lines) number after the last portion of each line; empty where each has room for ``parts``.
    """

    programs: int
    parts: int
    ends: Tensor

    @property
    def ragged(self) -> bool:
        return self.ends.numel() > 0


def _cut(lines: FusedLines, q: Tensor, k: Tensor) -> tuple[_Portions, _Portions]:
    """The portions of queries and of keys."""
    return _cut_side(lines.query, len(q), lines.longest[0]), _cut_side(lines.key, len(k), lines.longest[1])


def _cut_side(side: Tensor, tokens: int, longest: int) -> _Portions:
    parts, lines = -(-longest // PORTION), side.shape[2]
    most = tokens // PORTION + lines  # no token is in two lines of a group
    if lines * parts <= 2 * most:
        return _Portions(lines * parts, parts, side.new_empty(0))
    ends = side[:, 2].add(PORTION - 1).div(PORTION, rounding_mode="floor").clamp_max(parts).cumsum(1)
    return _Portions(most, parts, ends)


def _remember(k: Tensor, v: Tensor, lines: FusedLines, keys: _Portions) -> tuple[Tensor, bool]:
    """Shares of the portions of keys in M and z of their lines, and whether those of a line are added up already."""
    sizes = _sizes(k, v, lines.longest[1])
    share = _room(keys.programs, k, v)
    factorised_kernels.remember[keys.programs, k.shape[1], _blocks(k, sizes)](
        k, v, share, lines.key, keys.ends, lines.key_order, lines.lines, keys.parts, lines.groups, k.shape[1],
        k.shape[0], k.stride(0), v.stride(0), k_head=k.stride(1), v_head=v.stride(1),
        K_ORDER=lines.key_order.numel() > 0, RAGGED=keys.ragged, **sizes,
    )  # fmt: skip
    return _added(share, lines.key, keys)


def _added(share: Tensor, side: Tensor, portions: _Portions) -> tuple[Tensor, bool]:
    if portions.parts <= SHARES:
        return share, False
    groups, _, lines = side.shape
    total = share.new_empty(lines, *share.shape[1:])
    size, columns = share.shape[2], 64
    factorised_kernels.add[lines, share.shape[1], -(-size // columns)](
        share, total, side, portions.ends, lines, portions.parts, groups, share.shape[1], size, RAGGED=portions.ragged,
        PORTION=PORTION, PARTS=32, COLUMNS=columns,
    )  # fmt: skip
    return total, True


def _room(programs: int, x: Tensor, v: Tensor) -> Tensor:
    """(programs, h, (c' + 1)·m): what each program finds for M and z."""
    return x.new_empty(programs, x.shape[1], (v.shape[2] + 1) * x.shape[2], dtype=torch.float32)


def _blocks(x: Tensor, sizes: dict[str, Any]) -> int:
    return -(-x.shape[2] // sizes["FEATURES"])


def _sizes(x: Tensor, v: Tensor, longest: int, rows: int = 64) -> dict[str, Any]:
    """What a kernel is compiled for: so much of M at a time as registers can hold."""
    values = power(v.shape[2], 16)
    # M and z are float32, and what is float32 of half precision loses nothing in tf32
    product = precision(x) if x.dtype == torch.float32 else "tf32"
    features = max(16, min(64, (2048 if product == "ieee" else 4096) // values, power(x.shape[2], 16)))
    return {
        "width": x.shape[2],
        "value_width": v.shape[2],
        "ROWS": min(rows, PORTION, power(longest, 16)),
        "PORTION": PORTION,
        "FEATURES": features,
        "VALUES": values,
        "PRECISION": product,
        "num_warps": 8 if features * values > 2048 else 4,
    }
