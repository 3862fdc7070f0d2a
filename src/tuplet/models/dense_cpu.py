"""Linear maps and feed-forwards of many tokens on a CPU, with backward passes that touch memory seldom.

They go through their tokens portion by portion, so that what lies between products stays in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

ROWS = 4096
"""Tokens that are worked on at once: few enough for the cache, and enough for threads to share."""


class _Wanted:
    now = True


@contextmanager
def set_aside() -> Iterator[None]:
    """Here linear maps are torch's own, so that each product is one operation: for those who count them."""
    _Wanted.now = False
    try:
        yield
    finally:
        _Wanted.now = True


def fits(x: Tensor) -> bool:
    """Whether these functions are for ``x``: on a CPU, in one precision, and not while a compiler looks on."""
    plain = torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu")
    return x.device.type == "cpu" and not plain and _Wanted.now


class LinearParts(torch.autograd.Function):
    """W_i x + b_i, each a matrix of its own, so that nothing need be taken apart or put together, forward or backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, count: int, *weights_biases: Tensor) -> Any:
        weights, biases = weights_biases[:count], weights_biases[count:]
        ctx.save_for_backward(x, *weights)
        parts = tuple(x.new_empty(len(x), len(weight)) for weight in weights)
        for rows, *into in _portions(x, *parts):
            for y, weight, bias in zip(into, weights, biases, strict=True):
                torch.mm(rows, weight.t(), out=y).add_(bias)
        return parts

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, *weights = ctx.saved_tensors
        grad_x = torch.empty_like(x)
        grad_weights = [torch.zeros_like(weight) for weight in weights]
        grad_biases = [weight.new_zeros(len(weight)) for weight in weights]
        for rows, into, *above in _portions(x, grad_x, *grads):
            into.zero_()
            for grad, weight, grad_weight, grad_bias in zip(above, weights, grad_weights, grad_biases, strict=True):
                into.addmm_(grad, weight)
                grad_weight.addmm_(grad.t(), rows)
                grad_bias += grad.sum(0)
        return grad_x, None, *grad_weights, *grad_biases


class FeedForward(torch.autograd.Function):
    """W2 φ(W1 x + b1) + b2; of what is as wide as W1, only W1 x + b1 is kept."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, first: Tensor, first_bias: Tensor, last: Tensor, last_bias: Tensor, gelu: bool
    ) -> Tensor:
        hidden, y = x.new_empty(len(x), len(first)), x.new_empty(len(x), len(last))
        activation = F.gelu if gelu else F.relu
        for rows, before, into in _portions(x, hidden, y):
            torch.mm(rows, first.t(), out=before).add_(first_bias)
            torch.mm(activation(before), last.t(), out=into).add_(last_bias)
        ctx.save_for_backward(x, hidden, first, last)
        ctx.gelu = gelu
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, hidden, first, last = ctx.saved_tensors
        grad_x = torch.empty_like(x)
        grad_first, grad_last = torch.zeros_like(first), torch.zeros_like(last)
        biases = first.new_zeros(len(first)), last.new_zeros(len(last))
        for rows, before, above, into in _portions(x, hidden, grad, grad_x):
            after, below = _activate(before, above @ last, ctx.gelu)
            grad_last.addmm_(above.t(), after)
            grad_first.addmm_(below.t(), rows)
            biases[0].add_(below.sum(0))
            biases[1].add_(above.sum(0))
            torch.mm(below, first, out=into)
        return grad_x, grad_first, biases[0], grad_last, biases[1], None


def _portions(*sides: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The same tokens of each side, some at a time."""
    return zip(*(side.split(ROWS) for side in sides), strict=True)


def _activate(x: Tensor, grad: Tensor, gelu: bool) -> tuple[Tensor, Tensor]:
    """φ(x), and the gradient of x."""
    if gelu:
        return F.gelu(x), torch.ops.aten.gelu_backward(grad, x)
    return F.relu(x), grad * (x > 0)
