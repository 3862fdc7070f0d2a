"""Linear maps and feed-forwards of many tokens on a CPU, compiled (``native/dense.c``).

They go through their tokens portion by portion, so that what lies between products stays in the cache, and start threads once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from tuplet.native import Library, load


def fits(x: Tensor, *others: Tensor) -> bool:
    """Whether there are compiled functions for ``x`` (T, d) and others (.., d): on a CPU, in one precision, and not while a compiler looks
    on. Compiled functions believe what they are told of sizes: what does not fit is for torch to refuse."""
    plain = torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu")
    given = x.dtype, x.device, x.shape[-1]
    alike = x.dim() == 2 and all((other.dtype, other.device, other.shape[-1]) == given for other in others)
    return not plain and alike and load(x) is not None


def library_for(x: Tensor) -> Library:
    """The compiled functions for what ``fits``."""
    library = load(x)
    assert library is not None
    return library


class LinearParts(torch.autograd.Function):
    """W_i x + b_i of layers W_i in parts of a ``shape`` of outputs, each a tensor of its own: nothing need be taken apart or
    put together, forward or backward.

    The last parts are one for each of ``kinds`` of tokens, so many of each, and share a matrix.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, shape: Sequence[int], kinds: Sequence[int], *weights_biases: Tensor) -> Any:
        count, rows, size = len(weights_biases) // 2, x.shape[0], prod(shape)
        x, *both = (tensor.contiguous() for tensor in (x, *weights_biases))
        weights, parts, biases = both[:count], _parts(both[:count], size), _parts(both[count:], size)
        whole, ends = len(parts) - len(kinds), list(accumulate(kinds))
        found = tuple(x.new_empty(rows, *shape) for _ in range(whole + 1))
        ctx.save_for_backward(x, *weights)
        ctx.ranges = [0] * (whole + 1) + ends[:-1], [rows] * whole + ends
        ctx.size, ctx.last = size, len(kinds) - 1
        outs = found + found[-1:] * ctx.last
        library_for(x).run("linear_parts", *x.shape, size, len(parts), *ctx.ranges, x, parts, biases, outs)
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, *weights = ctx.saved_tensors
        above = [grad.contiguous() for grad in grads]
        grad_x, parts, above = torch.empty_like(x), _parts(weights, ctx.size), above + above[-1:] * ctx.last
        sizes = [*(weight.numel() for weight in weights), *(weight.shape[0] for weight in weights)]
        sums = x.new_empty(sum(sizes))
        given = *ctx.ranges, x, parts, above, grad_x, sums
        library_for(x).run("linear_parts_backward", *x.shape, ctx.size, len(parts), *given)
        flat = sums.split(sizes)
        grad_weights = [own.view_as(weight) for own, weight in zip(flat, weights, strict=False)]
        return grad_x, None, None, *grad_weights, *flat[len(weights) :]


class FeedForward(torch.autograd.Function):
    """W2 φ(W1 x + b1) + b2."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, first: Tensor, first_bias: Tensor, last: Tensor, last_bias: Tensor, gelu: bool
    ) -> Tensor:
        x, *weights = (tensor.contiguous() for tensor in (x, first, first_bias, last, last_bias))
        hidden, y = x.new_empty(len(x), len(first)), x.new_empty(len(x), len(last))
        library_for(x).run("feed", *x.shape, len(first), len(last), int(gelu), x, *weights, hidden, y)
        ctx.save_for_backward(x, hidden, weights[0], weights[2])
        ctx.gelu = gelu
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, hidden, first, last = ctx.saved_tensors
        sizes = first.numel(), len(first), last.numel(), len(last)
        grad_x, sums = torch.empty_like(x), x.new_empty(sum(sizes))
        given = grad.contiguous(), x, hidden, first, last, grad_x, sums
        library_for(x).run("feed_backward", *x.shape, len(first), len(last), int(ctx.gelu), *given)
        grad_first, grad_first_bias, grad_last, grad_last_bias = sums.split(sizes)
        return grad_x, grad_first.view_as(first), grad_first_bias, grad_last.view_as(last), grad_last_bias, None


def _parts(layers: Sequence[Tensor], size: int) -> list[int]:
    """Where every ``size`` rows of contiguous layers begin, for as long as there are the layers."""
    return [
        layer.data_ptr() + first * layer.stride(0) * layer.element_size()
        for layer in layers
        for first in range(0, layer.shape[0], size)
    ]
