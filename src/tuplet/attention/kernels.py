"""How weights are made from queries and keys (section 4.1): softmax, ReLU, FAVOR+ and elu + 1.

A kernel is a positive function κ(q, k). Softmax attention uses κ = exp(q·k/√c); the kernelised forms use
κ = φ(q)·φ(k) with the feature maps below, whose logarithm takes the place of the score. So relations, joint softmax and
backends treat all of them alike, and the factorised O(T) computation is an optimisation where no relation is asked for.
ReLU is the sum form of the proofs: max(0, q·k/√c), not normalised.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from tuplet.attention.weights import own_precision, wide
from tuplet.kernels import has_kernels

Kernel = Literal["softmax", "relu", "performer", "linear"]


def orthogonal_directions(features: int, width: int, generator: torch.Generator | None = None) -> Tensor:
    """(features, width) rows distributed as N(0, I), orthogonal within each block of ``width`` rows (FAVOR+)."""
    blocks = []
    for _ in range(-(-features // width)):
        q, r = torch.linalg.qr(torch.randn(width, width, generator=generator, dtype=torch.float64))
        blocks.append((q * torch.sign(torch.diagonal(r))).t())
    norms = torch.randn(features, width, generator=generator, dtype=torch.float64).norm(dim=1, keepdim=True)
    return (torch.cat(blocks)[:features] * norms).to(torch.get_default_dtype())


def favor_features(head_dim: int, features: int | None) -> int:
    """How many random features FAVOR+ uses: those asked for, else c·ln c."""
    return features or max(16, round(head_dim * math.log(head_dim)))


class FeatureMap(nn.Module):
    """φ of a kernelised attention, for queries and keys of shape (T, h, c)."""

    def queries(self, q: Tensor) -> Tensor:
        """φ(q)."""
        raise NotImplementedError("a feature map defines φ in a subclass")

    def keys(self, keys: list[Tensor], graphs: list[Tensor], num_graphs: int) -> list[Tensor]:
        """φ(k) for several sets of keys that one softmax may join, with the graph of each key."""
        raise NotImplementedError("a feature map defines φ in a subclass")


class EluFeatures(FeatureMap):
    """φ(x) = elu(x) + 1, the Linear Transformer; below zero that is exp(x), written so that it stays positive."""

    def queries(self, q: Tensor) -> Tensor:
        x = q.to(wide(q.dtype))
        return torch.where(x > 0, x + 1, x.clamp_max(0).exp()).to(q.dtype)

    def keys(self, keys: list[Tensor], graphs: list[Tensor], num_graphs: int) -> list[Tensor]:
        return [self.queries(k) for k in keys]


class FavorFeatures(FeatureMap):
    """φ(x) = exp(w·x - |x|²/2 - stabiliser) / √m + ε for orthogonal w: positive random features of the softmax kernel.

    x is q or k divided by c^(1/4), so that φ(q)·φ(k) estimates exp(q·k/√c). The stabiliser is the largest exponent of the
    query's row, and of all keys of the graph for each head; it cancels when weights are normalised, up to ε, which keeps
    every sum above zero in any precision.

    Args:
        head_dim: c.
        features: m, by default max(16, c·ln c).
    """

    epsilon = 1e-6

    def __init__(self, head_dim: int, features: int | None = None) -> None:
        super().__init__()
        self.features = favor_features(head_dim, features)
        self.register_buffer("directions", orthogonal_directions(self.features, head_dim))
        self.directions: Tensor

    @torch.no_grad()
    def redraw(self, generator: torch.Generator | None = None) -> None:
        """Draw new random directions in place."""
        self.directions.copy_(orthogonal_directions(self.features, self.directions.shape[1], generator))

    def _exponent(self, x: Tensor) -> Tensor:
        with own_precision(x):
            x = x.to(wide(x.dtype)) * x.shape[-1] ** -0.25
            return x @ self.directions.to(x.dtype).t() - (x * x).sum(-1, keepdim=True) / 2

    def _exponential(self, exponent: Tensor, dtype: torch.dtype) -> Tensor:
        return (exponent.exp() / math.sqrt(self.features) + self.epsilon).to(dtype)

    def queries(self, q: Tensor) -> Tensor:
        if has_kernels(q):
            from tuplet.attention.fused import favor

            return favor.queries(q, self.directions, self.epsilon)
        exponent = self._exponent(q)
        return self._exponential(exponent - exponent.detach().amax(-1, keepdim=True), q.dtype)

    def keys(self, keys: list[Tensor], graphs: list[Tensor], num_graphs: int) -> list[Tensor]:
        if has_kernels(keys[0]):
            from tuplet.attention.fused import favor

            return favor.keys(keys, graphs, num_graphs, self.directions, self.epsilon)
        exponents = [self._exponent(k) for k in keys]
        rows = torch.cat([exponent.detach().amax(-1) for exponent in exponents])  # (T, h)
        largest = rows.new_full((num_graphs, rows.shape[1]), -math.inf)
        largest = largest.scatter_reduce(0, torch.cat(graphs)[:, None].expand_as(rows), rows, "amax")
        return [
            self._exponential(exponent - largest[graph, :, None], k.dtype)
            for exponent, graph, k in zip(exponents, graphs, keys, strict=True)
        ]


def feature_map(kernel: Kernel, head_dim: int, features: int | None) -> FeatureMap | None:
    """The feature map of a kernel, None for softmax and ReLU, which need none."""
    if kernel == "performer":
        return FavorFeatures(head_dim, features)
    return EluFeatures() if kernel == "linear" else None
