"""Several linear maps of tokens as one operator: queries, keys and values, or tables of nodes. One launch forward; backward
one for tokens and two for weights, whatever the number of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tuplet.kernels import project_kernels
from tuplet.kernels.beside import beside, dealt, later
from tuplet.kernels.dense import add_shares
from tuplet.kernels.halves import type_of
from tuplet.kernels.normed import Normed, origins, values
from tuplet.kernels.sizes import GRADIENT_PROGRAMS, GRADIENT_ROWS, power, precision

ROWS, WARPS, GRADIENT_WARPS = 64, 4, 8
"""Tokens of a tile forward, and where gradients of tokens are found."""
KINDS, MAPS = 3, 3
"""Kinds of tokens that a kernel can tell apart; square maps of a token."""


@dataclass(frozen=True)
class Maps:
    """Square maps of some tokens, results side by side; a map with more outputs than inputs counts as several.

    Args:
        x: (T, width); where it is known what they were made of, that is kept for the way back.
        layers: the maps of all tokens, and then the last one of each kind; all with biases, or none.
        kinds: how many tokens each kind has, in their order.
    """

    x: Tensor | Normed
    layers: Sequence[nn.Linear]
    kinds: Sequence[int]

    @property
    def fit(self) -> bool:
        """Whether there is a kernel for so many outputs of so many kinds of tokens."""
        width, own = values(self.x).shape[1], len(self.kinds) - 1
        maps = sum(layer.out_features for layer in self.layers) / width - own
        alike = len({layer.bias is None for layer in self.layers}) == 1
        return alike and maps in range(1, MAPS + 1) and len(self.kinds) <= KINDS and len(self.layers) > own


def project(*sets: Maps) -> list[Tensor]:
    """(T, outputs) of the maps of several sets of tokens; in autocast in its precision."""
    layers = [layer for one in sets for layer in one.layers]
    xs = [values(one.x).contiguous() for one in sets]
    device = xs[0].device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else xs[0].dtype
    return _project(
        xs, origins([one.x for one in sets]), [layer.weight for layer in layers],
        [layer.bias for layer in layers if layer.bias is not None], [len(one.layers) for one in sets],
        [sum(layer.bias is not None for layer in one.layers) for one in sets], [len(one.kinds) for one in sets],
        [rows for one in sets for rows in one.kinds], dtype,
    )  # fmt: skip


@torch.library.custom_op("tuplet::project", mutates_args=())
def _project(
    xs: Sequence[Tensor], origin: Sequence[Tensor], weights: Sequence[Tensor], biases: Sequence[Tensor],
    layers: Sequence[int], biased: Sequence[int], kinds: Sequence[int], rows: Sequence[int], dtype: torch.dtype,
) -> list[Tensor]:  # fmt: skip
    """``layers``, ``biased`` and ``kinds`` are how many weights, biases and numbers of rows each set has; ``origin`` is for the
    way back (see ``origins``)."""
    sets = zip(xs, dealt(weights, layers), dealt(biases, biased), dealt(rows, kinds), strict=True)
    return beside(*(partial(_forward, *one, dtype) for one in sets))


@_project.register_fake
def _(
    xs: Sequence[Tensor], origin: Any, weights: Sequence[Tensor], biases: Any, layers: Sequence[int], biased: Any,
    kinds: Sequence[int], rows: Any, dtype: torch.dtype,
) -> list[Tensor]:  # fmt: skip
    sets = zip(xs, dealt(weights, layers), kinds, strict=True)
    outputs = [(x, sum(len(weight) for weight in own) - (count - 1) * x.shape[1]) for x, own, count in sets]
    return [x.new_empty(x.shape[0], width, dtype=dtype) for x, width in outputs]


@torch.library.custom_op("tuplet::project_backward", mutates_args=())
def _gradients(
    grads: Sequence[Tensor], xs: Sequence[Tensor], norms: Sequence[Tensor], weights: Sequence[Tensor], layers: Sequence[int],
    kinds: Sequence[int], rows: Sequence[int],
) -> list[Tensor]:  # fmt: skip
    """For each set that of the tokens, and flat those of all matrices and then of all biases; ``norms`` are three tensors for
    each set, if ``xs`` are what norms make the tokens of."""
    each = dealt(norms, [len(norms) // len(xs)] * len(xs))
    sets = zip(grads, xs, each, dealt(weights, layers), dealt(rows, kinds), strict=True)
    return [tensor for found in beside(*(partial(_backward_one, *one) for one in sets)) for tensor in found]


@_gradients.register_fake
def _(
    grads: Any, xs: Sequence[Tensor], norms: Any, weights: Sequence[Tensor], layers: Sequence[int], *_: Any
) -> list[Tensor]:
    numbers = [sum(weight.numel() + len(weight) for weight in own) for own in dealt(weights, layers)]
    dtype = weights[0].dtype
    found = [(torch.empty_like(x), x.new_empty(count, dtype=dtype)) for x, count in zip(xs, numbers, strict=True)]
    return [tensor for pair in found for tensor in pair]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    xs, origin, weights, _, ctx.layers, ctx.biased, ctx.kinds, ctx.rows, _ = inputs
    ctx.kept = len(origin) or len(xs)
    ctx.save_for_backward(*(origin or xs), *weights)


def _backward(ctx: Any, grads: Sequence[Tensor]) -> tuple[Any, ...]:
    saved = ctx.saved_tensors  # once: each look recomputes, where a layer is computed again
    kept, weights = dealt(saved[: ctx.kept], [ctx.kept // len(grads)] * len(grads)), saved[ctx.kept :]
    xs, norms = [x for x, *_ in kept], [part for _, *parts in kept for part in parts]
    found = _gradients(list(grads), xs, norms, list(weights), ctx.layers, ctx.kinds, ctx.rows)
    of_weights, of_biases = [], []
    for flat, own, biased in zip(found[1::2], dealt(weights, ctx.layers), ctx.biased, strict=True):
        *parts, biases = flat.split([*(weight.numel() for weight in own), sum(len(weight) for weight in own)])
        of_weights += [part.view_as(weight) for part, weight in zip(parts, own, strict=True)]
        of_biases += biases.split([len(weight) for weight in own])[:biased]
    return found[::2], [None] * (len(norms) and ctx.kept), of_weights, of_biases, None, None, None, None, None


_project.register_autograd(_backward, setup_context=_setup)


def _forward(
    x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], kinds: Sequence[int], dtype: torch.dtype
) -> Tensor:
    width = x.shape[1]
    weights, biases, biased = _squares(weights, width), _squares(biases or weights, width), bool(biases)
    maps, programs = len(weights) - len(kinds) + 1, [-(-rows // ROWS) for rows in kinds]
    out = x.new_empty(len(x), maps * width, dtype=dtype)
    if len(x):
        project_kernels.project[(sum(programs),)](
            x, *_matrices(weights, maps), *_matrices(biases, maps), out, *_three(kinds), *_three(programs)[:2], width,
            **_choices(x, dtype, maps, kinds, ROWS), BIASED=biased, num_warps=WARPS,
        )  # fmt: skip
    return out


def _backward_one(
    grad: Tensor, x: Tensor, norm: Sequence[Tensor], weights: Sequence[Tensor], kinds: Sequence[int]
) -> tuple[Tensor, ...]:
    """That of the tokens, and flat those of all matrices and biases."""
    grad, width, dtype = grad.contiguous(), x.shape[1], weights[0].dtype
    weights, grad_x = _squares(weights, width), torch.empty_like(x)
    maps, programs = len(weights) - len(kinds) + 1, [-(-rows // ROWS) for rows in kinds]
    if len(x):
        project_kernels.project_gradient[(sum(programs),)](
            grad, *_matrices(weights, maps), grad_x, *_three(kinds), *_three(programs)[:2], width,
            **_choices(x, grad.dtype, maps, kinds, ROWS), num_warps=WARPS,
        )  # fmt: skip

    of_weights = partial(weights_gradient, grad, x, norm, maps, kinds, dtype)
    return grad_x, *later(of_weights, read=[grad, x, *norm])


def weights_gradient(
    grad: Tensor, x: Tensor, norm: Sequence[Tensor], maps: int, kinds: Sequence[int], dtype: torch.dtype
) -> Tensor:
    """Flat of all matrices and then of all biases, from the gradients (T, maps · width) of their results; ``norm`` are three
    tensors, if ``x`` is what a norm makes the tokens of."""
    width, tiles = x.shape[1], [-(-rows // GRADIENT_ROWS) for rows in kinds]
    programs = [min(tile, max(1, GRADIENT_PROGRAMS * tile // max(1, sum(tiles)))) for tile in tiles]
    share = x.new_empty(sum(programs), (maps + len(kinds) - 1) * (width + 1) * width, dtype=torch.float32)
    low = x.dtype if grad.dtype == torch.float32 else grad.dtype
    if len(x):
        project_kernels.project_weights_gradient[(sum(programs),)](
            grad, x, *(norm or [x] * 3), share, *_three(kinds), *_three(programs), width,
            **_choices(x, low, maps, kinds, GRADIENT_ROWS), NORMED=bool(norm), num_warps=GRADIENT_WARPS,
        )  # fmt: skip
    return add_shares(share, dtype)


def _squares(tensors: Sequence[Tensor], width: int) -> list[Tensor]:
    """Matrices, or biases, of one map each."""
    return [part for tensor in tensors for part in tensor.contiguous().split(width)]


def _matrices(tensors: Sequence[Tensor], maps: int) -> list[Tensor]:
    """Two that all kinds share and three that they do not; another stands where one is missing."""
    shared, own = [*tensors[: maps - 1], *tensors[:2], *tensors[:1]], list(tensors[maps - 1 :])
    return [*shared[:2], *(own + own[-1:] * 2)[:3]]


def _three(numbers: Sequence[int]) -> list[int]:
    return [*numbers, 0, 0][:3]


def _choices(x: Tensor, dtype: torch.dtype, maps: int, kinds: Sequence[int], rows: int) -> dict[str, Any]:
    choices = {"MAPS": maps, "KINDS": len(kinds), "ROWS": rows, "WIDTH": power(x.shape[1], 16)}
    return {**choices, "LOW": type_of(dtype), "PRECISION": precision(x)}
