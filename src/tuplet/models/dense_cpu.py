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
    put together, forward or backward. Outputs of several sets of tokens, each with layers of its own, stand one after another.

    Of each set in turn come the tokens, and weights and biases of its layers; ``counts`` says how many tensors that are. The last
    parts of a set are one for each of its ``kinds`` of tokens, so many of each, and share a tensor.
    """

    @staticmethod
    def forward(
        ctx: Any, shape: Sequence[int], kinds: Sequence[Sequence[int]], counts: Sequence[int], *tensors: Tensor
    ) -> Any:
        size, tensors = prod(shape), tuple(tensor.contiguous() for tensor in tensors)
        found: tuple[Tensor, ...] = ()
        sets, at = [], 0
        for (x, *both), own in zip(_split(tensors, counts), kinds, strict=True):
            weights, biases = (places_of_parts(some, size) for some in (both[: len(both) // 2], both[len(both) // 2 :]))
            whole, ends = len(weights) - len(own), list(accumulate(own))
            if not found:
                total = sum(map(sum, kinds))
                found = tuple(x.new_empty(total, *shape) for _ in range(whole + 1))
            ranges = [0] * (whole + 1) + ends[:-1], [ends[-1]] * whole + ends
            outs = _rows_from(at, found, len(own))
            library_for(x).run("linear_parts", *x.shape, size, len(weights), *ranges, x, weights, biases, outs)
            sets.append((ranges, at, len(own)))
            at += len(x)
        ctx.save_for_backward(*tensors)
        ctx.size, ctx.counts, ctx.sets = size, counts, sets
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        above, found = [grad.contiguous() for grad in grads], []
        for (x, *both), (ranges, at, kinds) in zip(_split(ctx.saved_tensors, ctx.counts), ctx.sets, strict=True):
            weights = places_of_parts(both[: len(both) // 2], ctx.size)
            sizes = [tensor.numel() for tensor in both]
            grad_x, sums = torch.empty_like(x), x.new_empty(sum(sizes))
            given = *ranges, x, weights, _rows_from(at, above, kinds), 0, grad_x, sums
            library_for(x).run("linear_parts_backward", *x.shape, ctx.size, len(weights), *given)
            found += [grad_x, *(part.view_as(own) for part, own in zip(sums.split(sizes), both, strict=True))]
        return None, None, None, *found


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


def _split(tensors: Sequence[Tensor], counts: Sequence[int]) -> list[Sequence[Tensor]]:
    ends = list(accumulate(counts))
    return [tensors[end - count : end] for end, count in zip(ends, counts, strict=True)]


def _rows_from(first: int, tensors: Sequence[Tensor], last: int) -> list[int]:
    """Where a row begins in each of contiguous tensors, the last of which counts several times."""
    places = [tensor.data_ptr() + first * tensor.stride(0) * tensor.element_size() for tensor in tensors]
    return places + places[-1:] * (last - 1)


def places_of_parts(layers: Sequence[Tensor], size: int) -> list[int]:
    """Where every ``size`` rows of contiguous layers begin, for as long as there are the layers."""
    return [
        layer.data_ptr() + first * layer.stride(0) * layer.element_size()
        for layer in layers
        for first in range(0, layer.shape[0], size)
    ]
