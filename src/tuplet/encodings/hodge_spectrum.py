"""Hodge1Lap: edges by the eigenspaces of the Hodge 1-Laplacian."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from tuplet.encodings.base import Encoding, Level, expect_positive, resolve
from tuplet.encodings.blocks import blocks, room_for
from tuplet.encodings.layers import MaskedBatchNorm, SimplexEncoder, mlp
from tuplet.encodings.simplex_walks import simplex_counts
from tuplet.encodings.spectrum import eigenspaces
from tuplet.graphs import GraphBatch
from tuplet.topology import Complex, complex_of, hodge_laplacian


@dataclass(frozen=True)
class Hodge1Lap(Encoding):
    """z_e = ρ(Σ_s φ(λ_s, d_s, (Π_s)_ee, Σ_f |(Π_s)_ef|)) over the first K eigenspaces of L_1 = B_1ᵀ B_1 + B_2 B_2ᵀ.

    Π_s projects onto the eigenspace s of dimension d_s. No choice of signs or bases changes Π_s, and reversing edges flips
    signs of its rows and columns together, which diagonal and absolute values do not see: invariant, always. The eigenvalue 0
    counts: its space is spanned by the holes of the complex.

    Zhou, Wang and Zhang, "Facilitating Graph Neural Networks with Random Walk on Simplicial Complexes" (NeurIPS 2023), whose
    projections are taken here for every space by itself.

    Args:
        spaces: K.
        width: of the encoded vector.
    """

    spaces: int = 16
    width: int = 16
    level: ClassVar[Level] = "simplex"

    def __post_init__(self) -> None:
        expect_positive(spaces=self.spaces, width=self.width)

    @property
    def fields(self) -> tuple[str, ...]:
        return (f"pe_hodge1_{self.spaces}",)

    def rows(self, graph: GraphBatch) -> dict[str, tuple[int, ...]]:
        return {self.fields[0]: simplex_counts(_complex(graph))[1]}

    def compute(self, graph: GraphBatch, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
        """(S_1, K, 4): eigenvalue, dimension, diagonal and absolute row sum of each projector; zeros where there is no space."""
        complex_ = _complex(graph)
        matrix = hodge_laplacian(complex_, 1).tocoo()
        row, col = (torch.from_numpy(axis.astype(np.int64)).to(graph.device) for axis in (matrix.row, matrix.col))
        weight = torch.from_numpy(matrix.data).to(graph.device)
        sizes = simplex_counts(complex_)[1]
        out = room_for(self, (sum(sizes), self.spaces, 4), sizes, resolve(dtype), graph.device)
        for _, edges, laplacian in blocks(sizes, row, col, weight):
            values, vectors = torch.linalg.eigh(laplacian)
            space, values = eigenspaces(values)
            for s in range(min(self.spaces, edges.shape[1])):
                member = (space == s).to(values.dtype)
                dimension = member.sum(1, keepdim=True)
                projector = (vectors * member[:, None]) @ vectors.mT
                level = (values * member).sum(1, keepdim=True) / dimension.clamp_min(1)
                parts = [level, dimension, projector.diagonal(dim1=1, dim2=2), projector.abs().sum(2)]
                out[edges, s] = torch.stack([part.expand(edges.shape) for part in parts], dim=2).to(out.dtype)
        return {self.fields[0]: out}

    def encoder(self) -> nn.Module:
        return SimplexEncoder({1: SpaceEncoder(self)})


class SpaceEncoder(nn.Module):
    """(S_1, width) from what is known of each eigenspace; spaces of dimension 0 are padding."""

    def __init__(self, encoding: Hodge1Lap) -> None:
        super().__init__()
        self.field = encoding.fields[0]
        hidden = 2 * encoding.width
        self.norm = MaskedBatchNorm(4)
        self.phi = mlp(4, hidden, hidden)
        self.sum_norm = MaskedBatchNorm(hidden)
        self.rho = mlp(hidden, hidden, encoding.width)

    def forward(self, raw: Mapping[str, Tensor], graph: GraphBatch) -> Tensor:
        x = raw[self.field].to(self.norm.weight.dtype)
        mask = x[..., 1] > 0
        return self.rho(self.sum_norm((self.phi(self.norm(x, mask)) * mask[..., None]).sum(1)))


def _complex(graph: GraphBatch) -> Complex:
    """The complex up to triangles; one that came with the batch may end at edges."""
    return complex_of(graph, 2 if graph.simplices is None else min(2, len(graph.simplices)))
