"""Linear maps and feed-forwards of many tokens on a CPU, with backward passes that touch memory seldom.

They go through their tokens portion by portion, so that what lies between products stays in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from tuplet.native import wanted
from tuplet.native.tokens import activate, activate_backward

ROWS = 4096
"""Tokens that are worked on at once: few enough for the cache, and enough for threads to share."""


def fits(x: Tensor) -> bool:
    """Whether these functions are for ``x``: on a CPU, in one precision, and not while a compiler looks on."""
    plain = torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu")
    return x.device.type == "cpu" and not plain and wanted()


class LinearParts(torch.autograd.Function):
    """W_i x + b_i of layers W_i in parts of ``size`` outputs, each a matrix of its own: nothing need be taken apart or put
    together, forward or backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, size: int, *weights_biases: Tensor) -> Any:
        count = len(weights_biases) // 2
        ctx.save_for_backward(x, *weights_biases[:count])
        ctx.size = size
        weights, biases = _parts(weights_biases[:count], size), _parts(weights_biases[count:], size)
        parts = tuple(x.new_empty(len(x), size) for _ in weights)
        for rows, *into in portions(x, *parts):
            for y, weight, bias in zip(into, weights, biases, strict=True):
                torch.addmm(bias, rows, weight.t(), out=y)
        return parts

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, *weights = ctx.saved_tensors
        grad_x = torch.empty_like(x)
        grad_weights = [torch.zeros_like(weight) for weight in weights]
        grad_biases = [weight.new_zeros(len(weight)) for weight in weights]
        sums = _parts(grad_weights, ctx.size), _parts(grad_biases, ctx.size)
        for rows, into, *above in portions(x, grad_x, *grads):
            kept = 0.0
            for grad, weight, grad_weight, grad_bias in zip(above, _parts(weights, ctx.size), *sums, strict=True):
                into.addmm_(grad, weight, beta=kept)
                grad_weight.addmm_(grad.t(), rows)
                grad_bias += grad.sum(0)
                kept = 1.0
        return grad_x, None, *grad_weights, *grad_biases


class FeedForward(torch.autograd.Function):
    """W2 φ(W1 x + b1) + b2."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, first: Tensor, first_bias: Tensor, last: Tensor, last_bias: Tensor, gelu: bool
    ) -> Tensor:
        y, hidden = feed(x, first, first_bias, last, gelu)
        ctx.save_for_backward(x, hidden, first, last)
        ctx.gelu = gelu
        return y.add_(last_bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, hidden, first, last = ctx.saved_tensors
        return *feed_backward(grad, x, hidden, first, last, ctx.gelu), grad.sum(0), None


def feed(x: Tensor, first: Tensor, first_bias: Tensor, last: Tensor, gelu: bool) -> tuple[Tensor, Tensor]:
    """W2 φ(W1 x + b1), and W1 x + b1: all that is kept of what is as wide as W1."""
    hidden, y = x.new_empty(len(x), len(first)), x.new_empty(len(x), len(last))
    for rows, before, into in portions(x, hidden, y):
        torch.mm(rows, first.t(), out=before)
        torch.mm(activate(before, first_bias, gelu), last.t(), out=into)
    return y, hidden


def feed_backward(
    grad: Tensor, x: Tensor, hidden: Tensor, first: Tensor, last: Tensor, gelu: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x, W1, b1 and W2."""
    grad_x = torch.empty_like(x)
    grad_first, grad_last, grad_bias = torch.zeros_like(first), torch.zeros_like(last), first.new_zeros(len(first))
    for rows, before, above, into in portions(x, hidden, grad, grad_x):
        after, below = activate_backward(before, above @ last, gelu)
        grad_last.addmm_(above.t(), after)
        grad_first.addmm_(below.t(), rows)
        grad_bias += below.sum(0)
        torch.mm(below, first, out=into)
    return grad_x, grad_first, grad_bias, grad_last


def _parts(layers: Sequence[Tensor], size: int) -> list[Tensor]:
    """``size`` rows of layers each."""
    return [part for layer in layers for part in (layer.split(size) if len(layer) > size else (layer,))]


def portions(*sides: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The same tokens of each side, some at a time."""
    return iter([sides]) if len(sides[0]) <= ROWS else zip(*(side.split(ROWS) for side in sides), strict=True)
