"""Linear maps and feed-forwards of tokens: torch's own, or where there are kernels for them the fused ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tuplet.kernels import has_kernels
from tuplet.kernels import linear as row_linear
from tuplet.kernels.normed import Normed, values
from tuplet.models import dense_cpu

WIDEST = 64
"""Widths up to which a feed-forward's gradients of weights fit on the chip together."""


def has_products(x: Tensor) -> bool:
    """Whether there are kernels that multiply tokens by matrices and do more on the way: not beyond a width, and not where products
    of float32 are to be exact. Without tensor cores a tile needs several times the registers there are, and a library is quicker.
    """
    if not has_kernels(x) or x.shape[1] > WIDEST:
        return False
    low = x.dtype != torch.float32 or torch.is_autocast_enabled(x.device.type)
    return low or torch.compiler.is_compiling() or torch.get_float32_matmul_precision() != "highest"


def linear(x: Tensor, *layers: nn.Linear, still: bool = False) -> Tensor:
    """(T, outputs) of one or several linear maps of the same tokens, side by side; ``still``: before a batch norm, which takes their
    biases away again."""
    one = len(layers) == 1
    weight = layers[0].weight if one else torch.cat([layer.weight for layer in layers])
    bias = layers[0].bias if one else torch.cat([layer.bias for layer in layers])
    if dense_cpu.fits(x, weight):
        return dense_cpu.LinearParts.apply([len(weight)], [[len(x)]], [3], x, weight, bias)[0]
    return row_linear(x, weight, bias, still)


def side_by_side(sets: Sequence[tuple[Tensor | Normed, Sequence[nn.Linear]]], kinds: Sequence[int]) -> list[Tensor]:
    """(T, outputs) of several linear maps of each set of tokens.

    The tokens of the first set may be of several ``kinds``, so many of each: its last layers are then one for each kind.
    """
    tokens = [values(x) for x, _ in sets]
    if all(has_products(x) for x in tokens):
        from tuplet.kernels.project import Maps, project

        counts = [kinds or [len(tokens[0])], *([len(x)] for x in tokens[1:])]
        maps = [Maps(x, layers, count) for (x, layers), count in zip(sets, counts, strict=True)]
        if all(one.fit for one in maps):
            return project(*maps)
    (x, *others), (layers, *owns) = tokens, [own for _, own in sets]
    return [_of_kinds(x, layers, kinds), *(linear(other, *own) for other, own in zip(others, owns, strict=True))]


def _of_kinds(x: Tensor, layers: Sequence[nn.Linear], kinds: Sequence[int]) -> Tensor:
    """(T, outputs) of several linear maps, of which the last are one for each kind of tokens, if there are ``kinds``."""
    if not kinds:
        return linear(x, *layers)
    shared, last = layers[: -len(kinds)], layers[-len(kinds) :]
    return torch.cat([linear(part, *shared, own) for part, own in zip(x.split(list(kinds)), last, strict=True)])


def linear_parts(
    x: Tensor, count: int, heads: int, *layers: nn.Linear, kinds: Sequence[int] = ()
) -> tuple[Tensor, ...]:
    """The same as ``count`` equal parts (T, heads, outputs / count / heads); on a CPU each is a product, and a tensor, of its own."""
    if not dense_cpu.fits(x, layers[0].weight):
        return tuple(part.unflatten(-1, (heads, -1)) for part in _of_kinds(x, layers, kinds).chunk(count, -1))
    size = layers[-1].out_features if kinds else sum(layer.out_features for layer in layers) // count
    given, tensors = together([(x, layers)], heads, size, kinds)
    found: tuple[Tensor, ...] = dense_cpu.LinearParts.apply(*given, *tensors)
    return found


def together(
    sets: Sequence[tuple[Tensor, Sequence[nn.Linear]]], heads: int, size: int, kinds: Sequence[int] = ()
) -> tuple[tuple[Any, ...], list[Tensor]]:
    """What ``LinearParts`` takes for the same of several sets of tokens, one after another in every part (ΣT, heads, size / heads), and
    the tensors; ``kinds`` of the first."""
    tensors = [[x, *(own.weight for own in layers), *(own.bias for own in layers)] for x, layers in sets]
    counts = [kinds or [len(sets[0][0])], *([len(x)] for x, _ in sets[1:])]
    return ((heads, size // heads), counts, [*map(len, tensors)]), [one for own in tensors for one in own]


def feed_forward(
    x: Tensor, first: nn.Linear, activation: nn.Module, dropout: nn.Dropout, last: nn.Linear, still: bool = False
) -> Tensor:
    """W2 D(φ(W1 x + b1)) + b2; ``still``: before a batch norm."""
    dropped = dropout.p > 0 and dropout.training
    if has_products(x) and not dropped:
        from tuplet.kernels import dense

        gelu = isinstance(activation, nn.GELU)
        return dense.feed_forward(x, first.weight, first.bias, last.weight, last.bias, gelu)
    if dense_cpu.fits(x, first.weight) and not dropped:
        gelu = isinstance(activation, nn.GELU)
        return dense_cpu.FeedForward.apply(x, first.weight, first.bias, last.weight, last.bias, gelu)
    return linear(dropout(activation(linear(x, first))), last, still=still)
