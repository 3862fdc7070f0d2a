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
from tuplet.kernels.beside import beside, dealt
from tuplet.kernels.dense import add_shares
from tuplet.kernels.halves import type_of
from tuplet.kernels.norm import WARPS, move_running, normalise, room_for, sizes_of
from tuplet.kernels.rows import MOST, Lists, add_taken, lists_of
from tuplet.kernels.sizes import GRADIENT_PROGRAMS, power, precision

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
    z, _, found = _update(
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
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """z, t, and (3, width) mean, scale and variance of t."""
    rows, width = x.shape
    t, z = torch.empty_like(x), torch.empty_like(x)
    found = x.new_empty(3, width, dtype=torch.float32)
    programs = min(PROGRAMS, -(-rows // ROWS))
    shares = room_for(x, programs)
    update_kernels.update[(programs,)](
        *_read(x, other, tables, numbers, live), w1, x if wo is None else wo, b1, w2, t, *shares, rows, width, programs,
        **_choices(x, other, tables, live, gelu), num_warps=UPDATE_WARPS,
    )  # fmt: skip
    normalise(t, shares, programs, weight, bias, z, found, eps)
    return z, t, found


@_update.register_fake
def _(x: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(x), x.new_empty(3, x.shape[1], dtype=torch.float32)


@torch.library.custom_op("tuplet::update_backward", mutates_args=())
def _gradient(
    grad: Tensor, x: Tensor, other: Tensor | None, tables: Tensor, numbers: Sequence[Tensor], special: Sequence[int],
    w1: Tensor, b1: Tensor, wo: Tensor | None, w2: Tensor, weight: Tensor, live: Tensor | None, t: Tensor,
    found: Tensor, gelu: bool,
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
    grad_x, grad_h, grad_tables = torch.empty_like(x), torch.empty_like(x), torch.empty_like(tables)
    grad_other = x.new_empty(0) if other is None else torch.empty_like(other)
    programs = min(GRADIENT_PROGRAMS, -(-rows // ROWS))
    share = x.new_empty(programs, _flat(w1, wo), dtype=torch.float32)
    norm = x.new_empty(3, width, dtype=torch.float32)
    update_kernels.update_gradient[(programs,)](
        grad, t, found, weight, *shares, *_read(x, other, tables, numbers, live), w1, x if wo is None else wo, b1, w2,
        grad_x, grad_other, grad_h, share, norm, rows, width, parts, programs, **_choices(x, other, tables, live, gelu),
        PARTS=power(parts, 1), num_warps=GRADIENT_WARPS,
    )  # fmt: skip
    lists = zip(dealt(numbers, [LIST] * len(special)), special, grad_tables.split(width, 1), strict=True)
    sums: list[Callable[[], Any]] = [partial(add_taken, grad_h, *own, *rest) for own, *rest in lists]
    flat, *_ = beside(partial(add_shares, share), *sums)
    return grad_x, grad_other, grad_tables, flat, norm


@_gradient.register_fake
def _(grad: Tensor, x: Tensor, other: Tensor | None, tables: Tensor, *rest: Any) -> Any:
    w1, wo = rest[2], rest[4]
    flat, norm = (x.new_empty(size, dtype=torch.float32) for size in ((_flat(w1, wo),), (3, x.shape[1])))
    grad_other = x.new_empty(0) if other is None else torch.empty_like(other)
    return torch.empty_like(x), grad_other, torch.empty_like(tables), flat, norm


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.set_materialize_grads(False)
    x, other, tables, numbers, ctx.special, *weights, weight, _, _, live, _, ctx.gelu = inputs
    ctx.save_for_backward(x, other, tables, *weights, weight, live, *output[1:], *numbers)


def _backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Any, ...]:
    x, other, tables, w1, b1, wo, w2, weight, live, t, found, *numbers = ctx.saved_tensors
    grad_x, grad_other, grad_tables, flat, norm = _gradient(
        grad, x, other, tables, numbers, ctx.special, w1, b1, wo, w2, weight, live, t, found, ctx.gelu
    )
    g1, g2, c1, go = flat.split([w1.numel(), w2.numel(), len(b1), 0 if wo is None else wo.numel()])
    beside = (None, None) if other is None or wo is None else (grad_other, go.view_as(wo))
    maps = (g1.view_as(w1), c1, beside[1], g2.view_as(w2))
    return (grad_x, beside[0], grad_tables, [None] * len(numbers), None, *maps, *norm, None, None, None)


_update.register_autograd(_backward, setup_context=_setup)


def _flat(w1: Tensor, wo: Tensor | None) -> int:
    """Numbers of W1, W2, b1 and Wo."""
    return (2 if wo is None else 3) * w1.numel() + len(w1)


def _read(
    x: Tensor, other: Tensor | None, tables: Tensor, numbers: Sequence[Tensor], live: Tensor | None
) -> tuple[Tensor, ...]:
    """What both kernels read of the tokens; what is missing is another tensor, which they do not read."""
    rows = list(numbers[::LIST])
    rows += rows[:1] * (MOST - len(rows))
    return x, x if other is None else other, tables, *rows, x if live is None else live


def _choices(x: Tensor, other: Tensor | None, tables: Tensor, live: Tensor | None, gelu: bool) -> dict[str, Any]:
    """Matrices are multiplied in the precision of the tables: in autocast in its low one."""
    sizes = {"ROWS": ROWS, "WIDTH": power(x.shape[1], 16), "COUNT": tables.shape[1] // x.shape[1]}
    kinds = {"OTHER": other is not None, "MASKED": live is not None, "GELU": gelu}
    return {**sizes, **kinds, "LOW": type_of(tables.dtype), "PRECISION": precision(tables)}
