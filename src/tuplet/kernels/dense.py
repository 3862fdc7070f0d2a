"""Dense maps of tokens as operators: a linear map whose bias has a quick gradient, and the feed-forward as one kernel each way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tuplet.kernels import dense_kernels
from tuplet.kernels.beside import later
from tuplet.kernels.sizes import AT_ONCE, power, precision

PARTS = 128
"""Programs that share the tokens where weights' gradients are summed."""
TILE, FEW, LEAST_ROWS = 64, 8, 512
"""Where a library sums them: the width of its tiles, how many of them are few, and the rows that are worth a program."""


def add_shares(share: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """The sum over the first axis, which numbers the programs that have found a share each."""
    out = share.new_empty(share.shape[1:], dtype=dtype)
    count = out.numel()
    if count:
        parts, columns = min(128, power(len(share), 1)), 32  # all is asked for at once
        dense_kernels.add_shares[(-(-count // columns),)](share, out, len(share), count, PARTS=parts, COLUMNS=columns)
    return out


@torch.library.custom_op("tuplet::linear", mutates_args=())
def _linear(x: Tensor, weight: Tensor, bias: Tensor | None, still: bool) -> Tensor:
    return F.linear(x, weight, bias)


@_linear.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor | None, still: bool) -> Tensor:
    return x.new_empty(x.shape[0], weight.shape[0])


def _column_sums(x: Tensor) -> Tensor:
    rows, width = 128, min(64, power(x.shape[1], 16))
    share = x.new_empty(max(1, -(-x.shape[0] // rows)), x.shape[1], dtype=torch.float32)
    dense_kernels.column_sums[len(share), -(-x.shape[1] // width)](x, share, *x.shape, ROWS=rows, WIDTH=width)
    return add_shares(share, x.dtype)


def _row_products(grad: Tensor, x: Tensor) -> Tensor:
    """Gᵀ x, a sum over many rows for a small matrix: of float32 in parts, where a library would have few programs, one for each
    tile of the result."""
    (rows, outputs), inputs = grad.shape, x.shape[1]
    tiles = -(-outputs // TILE) * -(-inputs // TILE)
    parts = min(rows // LEAST_ROWS, -(-AT_ONCE // tiles))
    if parts < 2 or tiles > FEW or grad.dtype != torch.float32:
        return grad.t() @ x
    each = rows // parts
    whole = parts * each
    shares = torch.bmm(grad[:whole].view(parts, each, -1).transpose(1, 2), x[:whole].view(parts, each, -1))
    found = add_shares(shares)
    return found if whole == rows else found.addmm_(grad[whole:].t(), x[whole:])


@torch.library.custom_op("tuplet::linear_backward", mutates_args=())
def _linear_gradients(
    grad: Tensor, x: Tensor, wanted: Sequence[bool], leaves: Sequence[bool], still: bool
) -> tuple[Tensor, Tensor]:
    """Of weight and bias, each if it is ``wanted``, and put off if it is a leaf: somebody looks at that of any other."""

    def of_bias() -> Tensor:
        return grad.new_zeros(grad.shape[1]) if still else _column_sums(grad)

    tasks: tuple[Callable[[], Tensor], ...] = partial(_row_products, grad, x), of_bias
    found: list[Tensor] = []
    for task, asked, leaf in zip(tasks, wanted, leaves, strict=True):
        if not asked:
            found.append(grad.new_empty(0))
        elif leaf:
            found += later(task, read=[grad, x], hold=True)
        else:
            found.append(task())
    return found[0], found[1]


@_linear_gradients.register_fake
def _(grad: Tensor, x: Tensor, wanted: Sequence[bool], *_: Any) -> tuple[Tensor, Tensor]:
    shapes = (grad.shape[1], x.shape[1]), (grad.shape[1],)
    weight, bias = (x.new_empty(shape if asked else (0,)) for shape, asked in zip(shapes, wanted, strict=True))
    return weight, bias


def _linear_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, bias, ctx.still = inputs
    ctx.save_for_backward(x, weight)
    ctx.leaves = weight.is_leaf, bias is not None and bias.is_leaf


def _linear_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, weight = ctx.saved_tensors
    grad, x = grad.contiguous(), x.contiguous()
    of_tokens, *wanted, _ = ctx.needs_input_grad
    found = _linear_gradients(grad, x, wanted, ctx.leaves, ctx.still)
    of_weight, of_bias = (one if asked else None for one, asked in zip(found, wanted, strict=True))
    return grad @ weight if of_tokens else None, of_weight, of_bias, None


_linear.register_autograd(_linear_backward, setup_context=_linear_setup)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, still: bool = False) -> Tensor:
    """W x + b of tokens (T, inputs); in autocast in its precision. ``still``: a norm takes the mean away, so that the bias has the
    gradient 0, and not the rounding of a sum that is 0."""
    x, weight, *rest = _cast(x, weight, *([] if bias is None else [bias]))
    return _linear(x, weight, rest[0] if rest else None, still)


@torch.library.custom_op("tuplet::feed_forward", mutates_args=())
def _feed_forward(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, gelu: bool) -> Tensor:
    x = x.contiguous()
    y = torch.empty_like(x)
    sizes = _sizes(x, w1, 64)
    dense_kernels.feed_forward[(-(-x.shape[0] // sizes["ROWS"]),)](
        x, w1, b1, w2, b2, y, x.shape[0], x.shape[1], w1.shape[0], GELU=gelu, PRECISION=precision(x), **sizes,
        num_warps=4,
    )  # fmt: skip
    return y


@_feed_forward.register_fake
def _(x: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@torch.library.custom_op("tuplet::feed_forward_backward", mutates_args=())
def _feed_forward_gradient(
    grad: Tensor, x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, gelu: bool
) -> tuple[Tensor, Tensor]:
    """Of the tokens; and flat of W1, W2, b1, b2."""
    grad, x = grad.contiguous(), x.contiguous()
    width, hidden = x.shape[1], w1.shape[0]
    sizes = _sizes(x, w1, 32)
    parts = max(1, min(PARTS, -(-x.shape[0] // sizes["ROWS"])))
    grad_x = torch.empty_like(x)
    share = x.new_empty(parts, 2 * width * hidden + hidden + width, dtype=torch.float32)
    dense_kernels.feed_forward_gradient[(parts,)](
        grad, x, w1, b1, w2, grad_x, share, x.shape[0], width, hidden, parts, GELU=gelu, PRECISION=precision(x),
        **sizes, num_warps=8,
    )  # fmt: skip
    return grad_x, add_shares(share, w1.dtype)


@_feed_forward_gradient.register_fake
def _(grad: Tensor, x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, gelu: bool) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), w1.new_empty(2 * w1.numel() + len(w1) + len(w2))


def _feed_forward_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, w1, b1, w2, _, gelu = inputs
    ctx.save_for_backward(x, w1, b1, w2)
    ctx.gelu = gelu


def _feed_forward_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, w1, b1, w2 = ctx.saved_tensors
    grad_x, sums = _feed_forward_gradient(grad, x, w1, b1, w2, ctx.gelu)
    g1, g2, c1, c2 = sums.split([w1.numel(), w2.numel(), len(w1), len(w2)])
    return grad_x, g1.view_as(w1), c1, g2.view_as(w2), c2, None


_feed_forward.register_autograd(_feed_forward_backward, setup_context=_feed_forward_setup)


def feed_forward(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, gelu: bool) -> Tensor:
    """W2 φ(W1 x + b1) + b2 of tokens (T, width); nothing wider than ``width`` is kept for the backward pass."""
    x, w1, b1, w2, b2 = _cast(x, w1, b1, w2, b2)
    return _feed_forward(x, w1, b1, w2, b2, gelu)


def _sizes(x: Tensor, w1: Tensor, rows: int) -> dict[str, int]:
    return {"ROWS": rows, "WIDTH": power(x.shape[1], 16), "HIDDEN": power(w1.shape[0], 16)}


def _cast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """In autocast all in its precision, else all in that of the first."""
    device = tensors[0].device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else tensors[0].dtype
    return tuple(tensor.to(dtype) for tensor in tensors)
