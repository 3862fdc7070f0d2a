"""Linear maps and feed-forwards of tokens: torch's own, or where there are kernels for them the fused ones."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tuplet.kernels import has_kernels
from tuplet.models import dense_cpu

WIDEST = 64
"""Widths up to which a feed-forward's gradients of weights fit on the chip together."""


def linear(x: Tensor, *layers: nn.Linear) -> Tensor:
    """(T, outputs) of one or several linear maps of the same tokens, side by side."""
    one = len(layers) == 1
    weight = layers[0].weight if one else torch.cat([layer.weight for layer in layers])
    bias = layers[0].bias if one else torch.cat([layer.bias for layer in layers])
    if dense_cpu.fits(x):
        return dense_cpu.LinearParts.apply(x, 1, weight, bias)[0]
    if not has_kernels(x):
        return F.linear(x, weight, bias)
    from tuplet.kernels import dense

    return dense.linear(x, weight, bias)


def linear_parts(x: Tensor, count: int, *layers: nn.Linear) -> tuple[Tensor, ...]:
    """The same as ``count`` equal parts (T, outputs / count); on a CPU each is a product, and a matrix, of its own."""
    if not dense_cpu.fits(x):
        return linear(x, *layers).chunk(count, -1)
    size = sum(layer.out_features for layer in layers) // count
    weights = [part for layer in layers for part in layer.weight.split(size)]
    biases = [part for layer in layers for part in layer.bias.split(size)]
    found: tuple[Tensor, ...] = dense_cpu.LinearParts.apply(x, count, *weights, *biases)
    return found


def feed_forward(x: Tensor, first: nn.Linear, activation: nn.Module, dropout: nn.Dropout, last: nn.Linear) -> Tensor:
    """W2 D(φ(W1 x + b1)) + b2."""
    dropped = dropout.p > 0 and dropout.training
    if has_kernels(x) and not dropped and x.shape[1] <= WIDEST:
        from tuplet.kernels import dense

        gelu = isinstance(activation, nn.GELU)
        return dense.feed_forward(x, first.weight, first.bias, last.weight, last.bias, gelu)
    if dense_cpu.fits(x) and not dropped:
        gelu = isinstance(activation, nn.GELU)
        return dense_cpu.FeedForward.apply(x, first.weight, first.bias, last.weight, last.bias, gelu)
    return linear(dropout(activation(linear(x, first))), last)
