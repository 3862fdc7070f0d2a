"""Batch norm of a residual sum over the live rows of a batch, as operators: three launches forward, two backward."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tuplet.kernels import norm_kernels
from tuplet.kernels.beside import later
from tuplet.kernels.sizes import AT_ONCE, power

PARTS = 128
"""Programs that share the rows when they are measured, at most."""
WARPS = 4
NUMBERS = 4096
"""Of a tile."""


@torch.library.custom_op("tuplet::add_batch_norm", mutates_args=())
def _add_batch_norm(
    x: Tensor, added: Tensor | None, weight: Tensor, bias: Tensor, live: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    x = x.contiguous()
    rows, width = x.shape
    y = torch.empty_like(x)
    s = torch.empty_like(x) if added is not None else x.new_empty(0)
    parts, sizes = sizes_of(x)
    counts, means, squares = room_for(x, parts)
    mean, scale, variance = found = [x.new_empty(width, dtype=torch.float32) for _ in range(3)]
    norm_kernels.add_and_measure[(parts,)](
        x, x if added is None else added.contiguous(), x if live is None else live, s, counts, means, squares, rows,
        width, parts, MASKED=live is not None, ADD=added is not None, **sizes, num_warps=WARPS,
    )  # fmt: skip
    settle((counts, means, squares), parts, found, eps)
    normalise(x if added is None else s, found, weight, bias, y)
    return y, s, mean, scale, variance


@_add_batch_norm.register_fake
def _(x: Tensor, added: Tensor | None, *_: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    mean, scale, variance = (x.new_empty(x.shape[1], dtype=torch.float32) for _ in range(3))
    s = torch.empty_like(x, memory_format=torch.contiguous_format) if added is not None else x.new_empty(0)
    return torch.empty_like(x, memory_format=torch.contiguous_format), s, mean, scale, variance


@torch.library.custom_op("tuplet::add_batch_norm_backward", mutates_args=())
def _backward_op(
    grad: Tensor, s: Tensor, weight: Tensor, mean: Tensor, scale: Tensor, live: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    grad = grad.contiguous()
    rows, width = s.shape
    parts, sizes = sizes_of(s)
    counts, sums, products = room_for(s, parts)
    grad_s = torch.empty_like(s)
    grad_weight, grad_bias = torch.empty_like(weight), torch.empty_like(weight)
    mask = s if live is None else live
    norm_kernels.measure_gradient[(parts,)](
        grad,
        s,
        mask,
        mean,
        scale,
        counts,
        sums,
        products,
        rows,
        width,
        parts,
        MASKED=live is not None,
        **sizes,
        num_warps=WARPS,
    )
    programs = min(AT_ONCE, -(-rows // sizes["ROWS"]))
    norm_kernels.normalise_gradient[(programs,)](
        grad, s, mask, mean, scale, weight, counts, sums, products, grad_s, grad_weight, grad_bias, rows, width, parts,
        programs, MASKED=live is not None, **sizes, PARTS=power(parts, 1), num_warps=WARPS,
    )  # fmt: skip
    return grad_s, grad_weight, grad_bias


@_backward_op.register_fake
def _(grad: Tensor, s: Tensor, weight: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(s), torch.empty_like(weight), torch.empty_like(weight)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.set_materialize_grads(False)
    x, added, weight, _, live, _ = inputs
    _, s, mean, scale, _ = output
    ctx.added = None if added is None else added.dtype
    ctx.save_for_backward(x if added is None else s, weight, mean, scale, live)


def _backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Any, ...]:
    s, weight, mean, scale, live = ctx.saved_tensors
    grad_s, grad_weight, grad_bias = _backward_op(grad, s, weight, mean, scale, live)
    return grad_s, None if ctx.added is None else grad_s.to(ctx.added), grad_weight, grad_bias, None, None


_add_batch_norm.register_autograd(_backward, setup_context=_setup)


@torch.library.custom_op("tuplet::follow", mutates_args=("running_mean", "running_var"))
def _follow(
    running_mean: Tensor, running_var: Tensor, mean: Tensor, variance: Tensor, ahead: Tensor | None, momentum: float
) -> None:
    width = mean.numel()

    def follow() -> None:
        norm_kernels.follow[(1,)](
            running_mean, running_var, mean, variance, mean if ahead is None else ahead, width, momentum,
            AHEAD=ahead is not None, WIDTH=power(width, 16),
        )  # fmt: skip

    later(follow, read=[mean, variance], hold=True)


def add_batch_norm(
    norm: nn.BatchNorm1d, x: Tensor, added: Tensor | None, live: Tensor | None, follow: bool = True
) -> Tensor:
    """BN(x + added) in training mode, statistics from the live rows alone; the running statistics ``follow``."""
    y, _, mean, _, variance = _add_batch_norm(x, added, norm.weight, norm.bias, live, norm.eps)
    if follow:
        move_running(norm, mean, variance)
    return y


def move_running(norm: nn.BatchNorm1d, mean: Tensor, variance: Tensor, ahead: Tensor | None = None) -> None:
    """Move the running statistics, if there are any, towards those of a batch, whose mean lacks the bias ``ahead`` of the norm."""
    if norm.running_mean is not None and norm.running_var is not None:
        _follow(norm.running_mean, norm.running_var, mean, variance, ahead, momentum_of(norm))


def momentum_of(norm: nn.BatchNorm1d) -> float:
    return 0.1 if norm.momentum is None else norm.momentum


@torch.library.custom_op("tuplet::follow_seen", mutates_args=("running_mean", "running_var", "seen"))
def _follow_seen(
    running_mean: Tensor, running_var: Tensor, seen: Tensor, mean: Tensor, variance: Tensor, live: Tensor | None,
    rows: int, momentum: float,
) -> None:  # fmt: skip
    width = mean.numel()

    def follow() -> None:
        norm_kernels.follow_seen[(1,)](
            running_mean, running_var, seen, mean, variance, mean if live is None else live, rows, width, momentum,
            MASKED=live is not None, ROWS=1024, WIDTH=power(width, 16),
        )  # fmt: skip

    later(follow, read=[mean, variance, live], hold=True)


def masked_batch_norm(
    x: Tensor,
    live: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    running: tuple[Tensor, Tensor, Tensor],
    momentum: float,
    eps: float,
) -> Tensor:
    """BN(x) in training mode as ``tuplet.encodings.layers.MaskedBatchNorm`` defines it; rows that are not ``live`` become 0.

    ``running`` are mean, variance, and how many batches they have seen.
    """
    y, _, mean, _, variance = _add_batch_norm(x, None, weight, bias, live, eps)
    _follow_seen(*running, mean, variance, live, len(x), momentum)
    return y if live is None else torch.where(live[:, None], y, 0.0)


def settle(shares: Iterable[Tensor], parts: int, into: Sequence[Tensor] | Tensor, eps: float) -> None:
    """Write mean, scale and variance ``into`` vectors from the shares of them that ``parts`` programs have found."""
    width = into[0].numel()
    columns = min(16, power(width, 1))
    norm_kernels.settle[(-(-width // columns),)](
        *shares, *into, width, parts, eps, COLUMNS=columns, PARTS=power(parts, 1), num_warps=WARPS
    )


def normalise(x: Tensor, found: Sequence[Tensor] | Tensor, weight: Tensor, bias: Tensor, into: Tensor) -> None:
    """Write BN(x) ``into`` a tensor; ``found`` begins with mean and scale of x."""
    (rows, width), (_, sizes) = x.shape, sizes_of(x)
    if rows:
        norm_kernels.normalise[(-(-rows // sizes["ROWS"]),)](
            x, found[0], found[1], weight, bias, into, rows, width, **sizes, num_warps=WARPS
        )


def sizes_of(x: Tensor) -> tuple[int, dict[str, int]]:
    """How many programs measure ``x``, and the sizes of their tiles."""
    width = power(x.shape[1], 16)
    rows = max(1, NUMBERS // width)
    return min(PARTS, -(-x.shape[0] // rows)), {"ROWS": rows, "WIDTH": width}


def room_for(x: Tensor, parts: int) -> tuple[Tensor, Tensor, Tensor]:
    """What the programs find: counts, and two numbers a column."""
    width = x.shape[1]
    flat = x.new_empty(parts * (1 + 2 * width), dtype=torch.float32)
    return flat[:parts], flat[parts : parts * (1 + width)], flat[parts * (1 + width) :]
