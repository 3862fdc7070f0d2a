"""The feature map of FAVOR+ as operators; ``tuplet.attention.kernels.FavorFeatures`` says the same thing in torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tuplet.attention.fused import favor_kernels
from tuplet.kernels.sizes import power, precision


@torch.library.custom_op("tuplet::favor_largest", mutates_args=())
def _largest(keys: Sequence[Tensor], graphs: Sequence[Tensor], directions: Tensor, count: int) -> Tensor:
    largest = torch.full((count, keys[0].shape[1]), -torch.inf, device=directions.device)
    for x, graph in zip(keys, graphs, strict=True):
        x, sizes = _dense(x), _sizes(x, directions)
        tiles = -(-x.shape[0] // sizes["ROWS"])
        if tiles:
            favor_kernels.largest[tiles, x.shape[1]](
                x, directions, graph, largest, x.shape[0], x.stride(0), _scale(x), x_head=x.stride(1), **sizes
            )
    return largest


@_largest.register_fake
def _(keys: Sequence[Tensor], graphs: Sequence[Tensor], directions: Tensor, count: int) -> Tensor:
    return keys[0].new_empty(count, keys[0].shape[1], dtype=torch.float32)


@torch.library.custom_op("tuplet::favor_features", mutates_args=())
def _features(
    x: Tensor, directions: Tensor, largest: Tensor | None, graph: Tensor | None, epsilon: float
) -> tuple[Tensor, Tensor]:
    """(T, h, m) features, and (T, h) stabilisers of the rows where there are none of graphs."""
    x, sizes = _dense(x), _sizes(x, directions)
    phi = x.new_empty(*x.shape[:2], len(directions))
    shift = x.new_empty(x.shape[:2] if largest is None else (0,), dtype=torch.float32)
    rows = x.shape[0] * x.shape[1]
    tiles = -(-rows // sizes["ROWS"])
    if tiles:
        favor_kernels.features_of[(tiles,)](
            x, directions, shift if largest is None else largest, shift if graph is None else graph, phi, rows,
            x.stride(0), _scale(x), math.sqrt(len(directions)), epsilon, x_head=x.stride(1), GRAPHS=graph is not None,
            **sizes,
        )  # fmt: skip
    return phi, shift


@_features.register_fake
def _(
    x: Tensor, directions: Tensor, largest: Tensor | None, graph: Tensor | None, epsilon: float
) -> tuple[Tensor, Tensor]:
    shift = x.new_empty(x.shape[:2] if largest is None else (0,), dtype=torch.float32)
    return x.new_empty(*x.shape[:2], len(directions)), shift


@torch.library.custom_op("tuplet::favor_features_backward", mutates_args=())
def _features_backward(grad: Tensor, x: Tensor, directions: Tensor, shift: Tensor, graph: Tensor | None) -> Tensor:
    grad, x, sizes = grad.contiguous(), _dense(x), _sizes(x, directions)
    grad_x = torch.empty_like(x, memory_format=torch.contiguous_format)
    rows = x.shape[0] * x.shape[1]
    tiles = -(-rows // sizes["ROWS"])
    if tiles:
        favor_kernels.gradient[(tiles,)](
            grad, x, directions, shift, shift if graph is None else graph, grad_x, rows, x.stride(0), _scale(x),
            math.sqrt(len(directions)), x_head=x.stride(1), GRAPHS=graph is not None, **sizes,
        )  # fmt: skip
    return grad_x


@_features_backward.register_fake
def _(grad: Tensor, x: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, directions, largest, graph, _ = inputs
    ctx.save_for_backward(x, directions, output[1] if largest is None else largest, graph)


def _backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Any, ...]:
    return _features_backward(grad, *ctx.saved_tensors), None, None, None, None


_features.register_autograd(_backward, setup_context=_setup)


def queries(q: Tensor, directions: Tensor, epsilon: float) -> Tensor:
    """φ of queries (T, h, c), each with the largest of its own exponents as stabiliser."""
    return _features(q, directions, None, None, epsilon)[0]


def keys(keys: list[Tensor], graphs: list[Tensor], count: int, directions: Tensor, epsilon: float) -> list[Tensor]:
    """φ of several sets of keys; the stabiliser is the largest exponent of all keys of a graph, for each head."""
    largest = _largest([k.detach() for k in keys], graphs, directions, count)
    return [_features(k, directions, largest, graph, epsilon)[0] for k, graph in zip(keys, graphs, strict=True)]


def _dense(x: Tensor) -> Tensor:
    return x if x.stride(2) == 1 else x.contiguous()


def _scale(x: Tensor) -> float:
    return x.shape[2] ** -0.25


def _sizes(x: Tensor, directions: Tensor) -> dict[str, Any]:
    features, width = directions.shape
    return {
        "heads": x.shape[1],
        "width": width,
        "features": features,
        "PRECISION": precision(x),
        "ROWS": 64,
        "WIDTH": power(width, 16),
        "FEATURES": min(64, power(features, 16)),
        "num_warps": 8 if width > 32 else 4,
    }
