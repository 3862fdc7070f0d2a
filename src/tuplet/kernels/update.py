"""The update of tokens from their parts, and of others that see them, as one operator:

z = BN(x + W2 φ(W1 x + b1 + rows of tables) + b2), and then z' = BN(x' + W2' φ(W1' x' + Wo z + b1' + rows of tables) + b2').

The biases b2 stand before a norm that takes the mean away: they move the running mean and have no gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tuplet.kernels import norm_kernels, update_kernels
from tuplet.kernels.beside import beside, dealt
from tuplet.kernels.dense import add_shares
from tuplet.kernels.halves import type_of
from tuplet.kernels.norm import WARPS, follow_both, normalise, room_for, sizes_of
from tuplet.kernels.rows import MOST, Lists, add_taken, lists_of
from tuplet.kernels.sizes import GRADIENT_PROGRAMS, power, precision

ROWS = 32
"""Tokens of a tile."""
UPDATE_WARPS, GRADIENT_WARPS = 4, 8
PROGRAMS = 256
"""Programs that share the tokens forward, at most."""
LIST = 4
"""Tensors that say which rows of a table are taken (see ``lists_of``)."""
PARAMETERS = 6


@dataclass(frozen=True)
class Update:
    """Of some tokens.

    Args:
        x: (T, d) the tokens.
        tables: (N, tables · d) side by side, of which there is at least one and no more than ``MOST``.
        taken: for each table which row each token takes.
        maps: W1 with b1, and W2 with b2.
        norm: the batch norm.
    """

    x: Tensor
    tables: Tensor
    taken: Sequence[Tensor | Lists]
    maps: tuple[nn.Linear, nn.Linear]
    norm: nn.BatchNorm1d

    @property
    def parameters(self) -> list[Tensor]:
        """In the order of the operator."""
        (first, last), norm = self.maps, self.norm
        return [first.weight, first.bias, last.weight, norm.weight, norm.bias, last.bias]


def update(
    seen: Update, seeing: Update, wo: Tensor, gelu: bool, live: Tensor | None, follow: bool = True
) -> tuple[Tensor, Tensor]:
    """z and z', as above, in training mode.

    Args:
        seen, seeing: the same number of tokens each, of which one of ``seeing`` sees the one of ``seen`` in its place.
        wo: (d, d).
        gelu: the activation; else ReLU.
        live: (T,) which rows are no padding; None if all. The others do not count.
        follow: whether running statistics do.
    """
    both = seen, seeing
    lists = [lists_of(one.tables, rows) for one in both for rows in one.taken]
    *found, statistics = _update(
        [one.x.contiguous() for one in both], [one.tables.contiguous() for one in both],
        [tensor for *tensors, _ in lists for tensor in tensors], [own[-1] for own in lists],
        [parameter for one in both for parameter in one.parameters], wo, live, [one.norm.eps for one in both], gelu,
    )  # fmt: skip
    if follow:
        follow_both((seen.norm, seeing.norm), statistics, (seen.maps[1].bias, seeing.maps[1].bias))
    return found[0], found[1]


@torch.library.custom_op("tuplet::update", mutates_args=())
def _update(
    xs: Sequence[Tensor], tables: Sequence[Tensor], numbers: Sequence[Tensor], special: Sequence[int], parameters: Sequence[Tensor],
    wo: Tensor, live: Tensor | None, eps: Sequence[float], gelu: bool,
) -> list[Tensor]:  # fmt: skip
    """z and z', t and t', and (2, 3, width) mean, scale and variance of both t."""
    programs, (own, new) = min(PROGRAMS, -(-len(xs[0]) // ROWS)), dealt(parameters, [PARAMETERS] * 2)
    (lists, new_lists), (shares, new_shares) = _dealt(numbers, tables, xs), (room_for(x, programs) for x in xs)
    z, new_z, t, new_t, found = _room(xs)
    _forward(xs[0], tables[0], lists, own, live, t, shares, gelu, eps[0])
    seen = [t, *shares, *own[3:5], wo, z, *found[0]]
    _forward(xs[1], tables[1], new_lists, new, live, new_t, new_shares, gelu, eps[0], seen)
    normalise(new_t, new_shares, programs, new[3], new[4], new_z, found[1], eps[1])
    return [z, new_z, t, new_t, found]


def _room(xs: Sequence[Tensor]) -> list[Tensor]:
    """What the operator returns."""
    return [*(torch.empty_like(x) for x in (*xs, *xs)), xs[0].new_empty(2, 3, xs[0].shape[1], dtype=torch.float32)]


@_update.register_fake
def _(xs: Sequence[Tensor], *_: Any) -> list[Tensor]:
    return _room(xs)


def _forward(
    x: Tensor, table: Tensor, lists: Sequence[Tensor], parameters: Sequence[Tensor], live: Tensor | None, t: Tensor,
    shares: Sequence[Tensor], gelu: bool, eps: float, other: Sequence[Tensor] = (),
) -> None:  # fmt: skip
    """Write t and the shares of its statistics; ``other`` are the tokens seen, as the kernel takes them."""
    programs, (w1, b1, w2, *_) = len(shares[0]), parameters
    update_kernels.update[(programs,)](
        *_read(x, table, lists, live), w1, b1, w2, t, *shares, *(other or [x] * 11), *x.shape, programs, eps,
        OTHER=bool(other), **_choices(x, table, live, gelu), PARTS=power(programs, 1), num_warps=UPDATE_WARPS,
    )  # fmt: skip


@torch.library.custom_op("tuplet::update_backward", mutates_args=())
def _gradients(
    given: Tensor | None, grad: Tensor, xs: Sequence[Tensor], tables: Sequence[Tensor], numbers: Sequence[Tensor],
    special: Sequence[int], parameters: Sequence[Tensor], wo: Tensor, live: Tensor | None, ts: Sequence[Tensor],
    found: Tensor, gelu: bool,
) -> list[Tensor]:  # fmt: skip
    """From the gradient of z', and what is ``given`` of that of z: for each those of x and of the tables; flat of W1, W2, b1 and, of
    the tokens that see, Wo; and (3, width) of weight and bias of the norm, and of b2."""
    grad, (rows, width), (parts, sizes) = grad.contiguous(), xs[0].shape, sizes_of(xs[0])
    (own, new), shares = dealt(parameters, [PARAMETERS] * 2), room_for(grad, parts)
    norm_kernels.measure_gradient[(parts,)](
        grad, ts[1], grad if live is None else live, *found[1, :2], *shares, rows, width, parts, MASKED=live is not None, **sizes,
        num_warps=WARPS,
    )  # fmt: skip
    seen, seen_shares = torch.empty_like(ts[0]), room_for(grad, min(GRADIENT_PROGRAMS, -(-rows // ROWS)))
    other = [ts[0], found[0], *own[3:5], wo, seen if given is None else given.contiguous(), seen, *seen_shares]
    (lists, new_lists), counts = _dealt(numbers, tables, xs), [table.shape[1] // width for table in tables]
    skipped, new_skipped = dealt(special, counts)
    of_seeing, rest = _backward_one(
        grad, shares, ts[1], found[1], xs[1], tables[1], new_lists, new_skipped, new, live, gelu, other, given is not None
    )  # fmt: skip

    def backward_seen() -> list[Tensor]:
        gradients, last = _backward_one(
            seen, seen_shares, ts[0], found[0], xs[0], tables[0], lists, skipped, own, live, gelu
        )  # fmt: skip
        beside(*last)
        return gradients

    of_seen, *_ = beside(backward_seen, *rest)
    return [*of_seen, *of_seeing]


@_gradients.register_fake
def _(
    given: Any, grad: Any, xs: Sequence[Tensor], tables: Sequence[Tensor], numbers: Any, special: Any, parameters: Any, wo: Tensor,
    *_: Any,
) -> list[Tensor]:  # fmt: skip
    found = []
    for place, (x, table) in enumerate(zip(xs, tables, strict=True)):
        flat, norm = (wo.new_empty(size, dtype=torch.float32) for size in ((_flat(wo, place == 1),), (3, len(wo))))
        found += [torch.empty_like(x), torch.empty_like(table), flat, norm]
    return found


def _backward_one(
    grad: Tensor, shares: Sequence[Tensor], t: Tensor, found: Tensor, x: Tensor, table: Tensor, lists: Sequence[Tensor],
    special: Sequence[int], parameters: Sequence[Tensor], live: Tensor | None, gelu: bool, other: Sequence[Tensor] = (),
    given: bool = False,
) -> tuple[list[Tensor], list[Callable[[], Any]]]:  # fmt: skip
    """Gradients of x and of the table, flat of W1, W2, b1 and Wo, and of the norm; and what is left to do for them. ``shares`` are of
    the sums that the gradient of the norm needs; ``other`` are the tokens seen, as the kernel takes them."""
    (rows, width), parts, (w1, b1, w2, weight, *_) = x.shape, len(shares[0]), parameters
    programs = min(GRADIENT_PROGRAMS, -(-rows // ROWS))
    grad_x, grad_h, grad_table = torch.empty_like(x), torch.empty_like(x), torch.empty_like(table)
    flat = x.new_empty(_flat(w1, bool(other)), dtype=torch.float32)
    share, norm = x.new_empty(programs, len(flat), dtype=torch.float32), x.new_empty(3, width, dtype=torch.float32)
    update_kernels.update_gradient[(programs,)](
        grad, t, found, weight, *shares, *_read(x, table, lists, live), w1, b1, w2, grad_x, grad_h, share, norm,
        *(other or [x] * 10), rows, width, parts, programs, OTHER=bool(other), GIVEN=given, **_choices(x, table, live, gelu),
        PARTS=power(parts, 1), num_warps=GRADIENT_WARPS,
    )  # fmt: skip
    each = zip(dealt(lists, [LIST] * len(special)), special, grad_table.split(width, 1), strict=True)
    sums: list[Callable[[], Any]] = [partial(add_taken, grad_h, *own, *rest) for own, *rest in each]
    return [grad_x, grad_table, flat, norm], [partial(add_shares, share, into=flat), *sums]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Sequence[Tensor]) -> None:
    ctx.set_materialize_grads(False)
    xs, tables, numbers, ctx.special, parameters, wo, live, _, ctx.gelu = inputs
    ctx.save_for_backward(*xs, *tables, *output[2:], wo, live, *parameters, *numbers)


def _backward(ctx: Any, grads: Sequence[Tensor | None]) -> tuple[Any, ...]:
    saved = ctx.saved_tensors  # once: each look recomputes, where a layer is computed again
    xs, tables, ts, (statistics, wo, live), parameters = dealt(saved, [2, 2, 2, 3, 2 * PARAMETERS])
    numbers, (given, grad, *_) = saved[9 + 2 * PARAMETERS :], grads
    grad = torch.zeros_like(xs[1]) if grad is None else grad
    found = _gradients(
        given, grad, xs, tables, list(numbers), ctx.special, parameters, wo, live, ts, statistics, ctx.gelu
    )
    of_parameters, size = [], wo.numel()
    for flat, norm in zip(found[2::4], found[3::4], strict=True):
        w1, w2, b1 = flat[: 2 * size + len(wo)].split([size, size, len(wo)])
        of_parameters += [w1.view_as(wo), b1, w2.view_as(wo), *norm]
    grad_wo = found[6][-size:].view_as(wo)
    return found[::4], found[1::4], [None] * len(numbers), None, of_parameters, grad_wo, None, None, None


_update.register_autograd(_backward, setup_context=_setup)


def _flat(w1: Tensor, seeing: bool) -> int:
    """Numbers of W1, W2, b1 and, of tokens that see others, Wo."""
    return (3 if seeing else 2) * w1.numel() + len(w1)


def _dealt(numbers: Sequence[Tensor], tables: Sequence[Tensor], xs: Sequence[Tensor]) -> list[list[Tensor]]:
    """Which rows are taken, of the tables of each."""
    return dealt(numbers, [LIST * (table.shape[1] // x.shape[1]) for table, x in zip(tables, xs, strict=True)])


def _read(x: Tensor, table: Tensor, lists: Sequence[Tensor], live: Tensor | None) -> tuple[Tensor, ...]:
    """What both kernels read of the tokens; what is missing is another tensor, which they do not read."""
    rows = list(lists[::LIST])
    rows += rows[:1] * (MOST - len(rows))
    return x, table, *rows, x if live is None else live


def _choices(x: Tensor, table: Tensor, live: Tensor | None, gelu: bool) -> dict[str, Any]:
    """Matrices are multiplied in the precision of the tables: in autocast in its low one."""
    sizes = {"ROWS": ROWS, "WIDTH": power(x.shape[1], 16), "COUNT": table.shape[1] // x.shape[1]}
    kinds = {"MASKED": live is not None, "GELU": gelu}
    return {**sizes, **kinds, "LOW": type_of(table.dtype), "PRECISION": precision(table)}
