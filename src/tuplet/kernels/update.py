"""The update of tokens from their parts, as one operator: z = BN(x + W2 φ(W1 x + Wo o + b1 + rows of tables) + b2).

The bias b2 stands before a norm that takes the mean away: it moves the running mean and has no gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tuplet.kernels import norm_kernels, update_kernels
from tuplet.kernels.beside import beside, dealt, later
from tuplet.kernels.dense import add_shares
from tuplet.kernels.halves import type_of
from tuplet.kernels.norm import WARPS, move_running, normalise, room_for, settle, sizes_of
from tuplet.kernels.rows import MOST, Lists, add_taken, lists_of
from tuplet.kernels.sizes import AT_ONCE, GRADIENT_PROGRAMS, power, precision

ROWS = 32
"""Tokens of a tile."""
UPDATE_WARPS, GRADIENT_WARPS = 4, 8
PROGRAMS = 256
"""Programs that share the tokens forward, at most."""
LIST = 4
"""Tensors that say which rows of a table are taken (see ``lists_of``)."""


def update(
    x: Tensor,
    other: tuple[Tensor, Tensor] | None,
    tables: Tensor,
    taken: Sequence[Tensor | Lists],
    maps: tuple[nn.Linear, nn.Linear],
    norm: nn.BatchNorm1d,
    gelu: bool,
    live: Tensor | None,
    follow: bool = True,
) -> Tensor:
    """BN(x + W2 φ(W1 x + Wo o + b1 + rows of tables) + b2) in training mode.

    Args:
        x: (T, d) tokens.
        other: o (T, d) and Wo, or None.
        tables: (N, tables · d) side by side, of which there is at least one and no more than ``MOST``.
        taken: for each table which row each token takes.
        maps: W1 with b1, and W2 with b2.
        norm: the batch norm.
        gelu: its activation; else ReLU.
        live: (T,) which rows are no padding; None if all. The others do not count.
        follow: whether running statistics do.
    """
    first, last = maps
    lists = [lists_of(tables, rows) for rows in taken]
    numbers = [tensor for *tensors, _ in lists for tensor in tensors]
    beside, wo = (None, None) if other is None else other
    z, _, _, found = _update(
        x.contiguous(), None if beside is None else beside.contiguous(), tables.contiguous(), numbers,
        [own[-1] for own in lists], first.weight, first.bias, wo, last.weight, norm.weight, norm.bias, last.bias, live,
        norm.eps, gelu,
    )  # fmt: skip
    if follow:
        move_running(norm, found[0], found[2], last.bias)
    return z


@torch.library.custom_op("tuplet::update", mutates_args=())
def _update(
    x: Tensor, other: Tensor | None, tables: Tensor, numbers: Sequence[Tensor], special: Sequence[int], w1: Tensor,
    b1: Tensor, wo: Tensor | None, w2: Tensor, weight: Tensor, bias: Tensor, b2: Tensor, live: Tensor | None,
    eps: float, gelu: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """z, the hidden vectors, t, and (3, width) mean, scale and variance of t."""
    rows, width = x.shape
    z, hidden, t = (torch.empty_like(x) for _ in range(3))
    found = x.new_empty(3, width, dtype=torch.float32)
    programs = min(PROGRAMS, -(-rows // ROWS))
    shares = room_for(x, programs)
    update_kernels.update[(programs,)](
        x, x if other is None else other, tables, *_rows(numbers), x if live is None else live, w1, x if wo is None else wo, b1,
        w2, hidden, t, *shares, rows, width, programs, COUNT=tables.shape[1] // width, MASKED=live is not None,
        **_choices(x, other, tables, gelu), num_warps=UPDATE_WARPS,
    )  # fmt: skip
    settle(shares, programs, found, eps)
    normalise(t, found, weight, bias, z)
    return z, hidden, t, found


@_update.register_fake
def _(x: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    z, hidden, t = (torch.empty_like(x) for _ in range(3))
    return z, hidden, t, x.new_empty(3, x.shape[1], dtype=torch.float32)


@torch.library.custom_op("tuplet::update_backward", mutates_args=())
def _gradient(
    grad: Tensor, x: Tensor, other: Tensor | None, tables: Tensor, numbers: Sequence[Tensor], special: Sequence[int],
    w1: Tensor, wo: Tensor | None, w2: Tensor, weight: Tensor, live: Tensor | None, hidden: Tensor, t: Tensor, found: Tensor,
    gelu: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Of x, of o, and of the tables; flat of W1, W2, b1 and Wo; and (3, width) of weight and bias of the norm, and of
    b2."""
    grad, (rows, width) = grad.contiguous(), x.shape
    parts, sizes = sizes_of(x)
    shares, masked = room_for(x, parts), {"MASKED": live is not None}
    norm_kernels.measure_gradient[(parts,)](
        grad,
        t,
        x if live is None else live,
        *found[:2],
        *shares,
        rows,
        width,
        parts,
        **masked,
        **sizes,
        num_warps=WARPS,
    )
    grad_t, grad_h, grad_x = (torch.empty_like(x) for _ in range(3))
    grad_other = x.new_empty(0) if other is None else torch.empty_like(other)
    grad_tables, norm = torch.empty_like(tables), x.new_empty(3, width, dtype=torch.float32)
    programs, choices = min(AT_ONCE, -(-rows // ROWS)), _choices(x, other, tables, gelu)
    update_kernels.update_gradient[(programs,)](
        grad, t, found, weight, *shares, hidden, x if live is None else live, w1, x if wo is None else wo, w2, grad_t, grad_h,
        grad_x, grad_other, norm, rows, width, parts, programs, **choices, **masked, PARTS=power(parts, 1),
        num_warps=UPDATE_WARPS,
    )  # fmt: skip

    def of_weights() -> Tensor:
        programs = min(GRADIENT_PROGRAMS, -(-rows // ROWS))
        share = x.new_empty(programs, _flat(w1, wo), dtype=torch.float32)
        update_kernels.update_weights_gradient[(programs,)](
            grad_t, grad_h, hidden, x, x if other is None else other, share, rows, width, programs, **choices,
            num_warps=GRADIENT_WARPS,
        )  # fmt: skip
        return add_shares(share)

    lists = zip(dealt(numbers, [LIST] * len(special)), special, grad_tables.split(width, 1), strict=True)
    sums: list[Callable[[], Any]] = [partial(add_taken, grad_h, *own, *rest) for own, *rest in lists]
    (flat,) = later(of_weights, read=[grad_t, grad_h, hidden, x, other])
    beside(*sums)
    return grad_x, grad_other, grad_tables, flat, norm


@_gradient.register_fake
def _(grad: Tensor, x: Tensor, other: Tensor | None, tables: Tensor, *rest: Any) -> Any:
    w1, wo = rest[2:4]
    flat, norm = (x.new_empty(size, dtype=torch.float32) for size in ((_flat(w1, wo),), (3, x.shape[1])))
    grad_other = x.new_empty(0) if other is None else torch.empty_like(other)
    return torch.empty_like(x), grad_other, torch.empty_like(tables), flat, norm


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.set_materialize_grads(False)
    x, other, tables, numbers, ctx.special, w1, _, wo, w2, weight, _, _, live, _, ctx.gelu = inputs
    ctx.save_for_backward(x, other, tables, w1, wo, w2, weight, live, *output[1:], *numbers)


def _backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Any, ...]:
    x, other, tables, w1, wo, w2, weight, live, hidden, t, found, *numbers = ctx.saved_tensors
    grad_x, grad_other, grad_tables, flat, norm = _gradient(
        grad, x, other, tables, numbers, ctx.special, w1, wo, w2, weight, live, hidden, t, found, ctx.gelu
    )
    g1, g2, c1, go = flat.split([w1.numel(), w2.numel(), len(w1), 0 if wo is None else wo.numel()])
    beside = (None, None) if other is None or wo is None else (grad_other, go.view_as(wo))
    maps = (g1.view_as(w1), c1, beside[1], g2.view_as(w2))
    return (grad_x, beside[0], grad_tables, [None] * len(numbers), None, *maps, *norm, None, None, None)


_update.register_autograd(_backward, setup_context=_setup)


def _flat(w1: Tensor, wo: Tensor | None) -> int:
    """Numbers of W1, W2, b1 and Wo."""
    return (2 if wo is None else 3) * w1.numel() + len(w1)


def _rows(numbers: Sequence[Tensor]) -> list[Tensor]:
    """Which rows are taken of ``MOST`` tables; where there are fewer, of the first, which is not read again."""
    rows = list(numbers[::LIST])
    return rows + rows[:1] * (MOST - len(rows))


def _choices(x: Tensor, other: Tensor | None, tables: Tensor, gelu: bool) -> dict[str, Any]:
    """Matrices are multiplied in the precision of the tables: in autocast in its low one."""
    sizes = {"ROWS": ROWS, "WIDTH": power(x.shape[1], 16), "OTHER": other is not None, "GELU": gelu}
    return {**sizes, "LOW": type_of(tables.dtype), "PRECISION": precision(tables)}
