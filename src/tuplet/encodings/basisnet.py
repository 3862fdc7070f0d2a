"""BasisNet: functions of the projectors onto eigenspaces, which no choice of basis changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tuplet.encodings.base import expect_positive
from tuplet.encodings.layers import MaskedBatchNorm, mlp
from tuplet.encodings.spe import dense
from tuplet.encodings.spectrum import Spectral
from tuplet.graphs import GraphBatch


@dataclass(frozen=True)
class BasisNet(Spectral):
    """z = ρ(Σ_s σ(φ_{d_s}(V_s V_sᵀ), λ_s, d_s)) over eigenspaces s, with one φ for each multiplicity d.

    φ_d is a 2-IGN, matrices to vectors: linear maps that commute with permutations (15 kinds matrix to matrix, 5 matrix to
    vector) and GELU. Multiplicities from ``multiplicities`` on share one φ.

    Lim et al., "Sign and Basis Invariant Networks for Spectral Graph Representation Learning" (ICLR 2023). Invariant for
    vectors="all", whole="drop" and whole="keep". With "cut" a part of a space is taken for a space.

    Args:
        vectors, width, laplacian, whole: as for ``Spectral``.
        multiplicities: how many φ there are.
        hidden: channels of φ.
        layers: layers of φ that take matrices to matrices.
    """

    vectors: int | Literal["all"] = 8
    multiplicities: int = 4
    hidden: int = 16
    layers: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_positive(multiplicities=self.multiplicities, hidden=self.hidden, layers=self.layers)

    def encoder(self) -> nn.Module:
        return BasisEncoder(self)

    def held(self, graph: GraphBatch) -> tuple[int, int]:
        each = graph.num_graphs * self.columns_of(graph) * max(graph.sizes) ** 2 * self.hidden  # a matrix an eigenspace
        return each * (3 * self.layers + 1), each * 4


class BasisEncoder(nn.Module):
    """(N, width) from eigenvectors and eigenvalues."""

    def __init__(self, encoding: BasisNet) -> None:
        super().__init__()
        self.encoding = encoding
        hidden, kinds = encoding.hidden, encoding.multiplicities
        widths = [1] + [hidden] * encoding.layers
        self.matrices = nn.ModuleList(MatrixToMatrix(a, hidden, kinds) for a in widths[:-1])
        self.vector = MatrixToVector(hidden, hidden, kinds)
        self.sigma = mlp(hidden + 2, 2 * hidden, 2 * hidden)
        self.norm = MaskedBatchNorm(2 * hidden)
        self.rho = mlp(2 * hidden, 2 * hidden, encoding.width)

    def forward(self, raw: Mapping[str, Tensor], graph: GraphBatch) -> Tensor:
        spectrum, _ = self.encoding.unpack(raw, graph, self.norm.weight.dtype)
        place, vectors = dense(spectrum.vectors, graph)  # (G, n, K)
        values = spectrum.values[graph.ptr[:-1]]  # (G, K)
        member = membership(values).to(vectors.dtype)
        dimension = member.sum(1)  # (G, S)
        level = torch.einsum("gk,gks->gs", values, member) / dimension.clamp_min(1)
        kind = (dimension.long() - 1).clamp(0, self.encoding.multiplicities - 1)
        n = graph.n.to(vectors.dtype)
        scale = n[:, None] / dimension.clamp_min(1)  # a projector has the trace d: its diagonal now has the mean 1
        x = torch.einsum("gik,gks,gjk->gsij", vectors, member * scale[:, None], vectors)[..., None]
        inside = (torch.arange(x.shape[2], device=x.device) < n[:, None]).to(x.dtype)[:, None, :, None]  # (G, 1, n, 1)
        for layer in self.matrices:
            x = F.gelu(layer(x, kind, inside, n))
        x = self.vector(x, kind, inside, n)  # (G, S, n, hidden)
        said = torch.stack([level, torch.log1p(dimension)], dim=2)[:, :, None, :].expand(*x.shape[:3], 2)
        x = self.sigma(torch.cat([x, said], dim=3)) * (dimension > 0)[:, :, None, None]
        return self.rho(self.norm(x.sum(1).flatten(0, 1)[place]))


def membership(values: Tensor) -> Tensor:
    """(G, K, S = K) whether column k lies in the s-th eigenspace, by exactly equal eigenvalues; padding (0) lies in none."""
    fresh = F.pad(values[:, 1:] != values[:, :-1], (1, 0), value=True)
    space = (fresh & (values > 0)).long().cumsum(1) - 1
    return (space[:, :, None] == torch.arange(values.shape[1], device=values.device)) & (values > 0)[:, :, None]


class KindLinear(nn.Module):
    """A linear map with weights of its own for each kind: (G, S, .., a) -> (G, S, .., b) for kinds (G, S)."""

    def __init__(self, fan_in: int, fan_out: int, kinds: int) -> None:
        super().__init__()
        bound = fan_in**-0.5
        self.weight = nn.Parameter(torch.empty(kinds, fan_in, fan_out).uniform_(-bound, bound))

    def forward(self, x: Tensor, kind: Tensor) -> Tensor:
        return torch.einsum("gs...a,gsab->gs...b", x, self.weight[kind])


class MatrixToMatrix(nn.Module):
    """Equivariant linear maps of matrices (G, S, n, n, a) to (G, S, n, n, b), all 15 kinds and the two kinds of bias.

    Maron et al., "Invariant and Equivariant Graph Networks" (ICLR 2019). Sums over rows are divided by n, so that scales
    do not grow with the graph. The small parts (diagonal, row and column means, trace, total) are mapped before they are spread.
    """

    def __init__(self, fan_in: int, fan_out: int, kinds: int) -> None:
        super().__init__()
        self.plain = KindLinear(2 * fan_in, fan_out, kinds)
        self.to_rows = KindLinear(3 * fan_in, fan_out, kinds)
        self.to_columns = KindLinear(3 * fan_in, fan_out, kinds)
        self.to_diagonal = KindLinear(5 * fan_in + 1, fan_out, kinds)
        self.to_all = KindLinear(2 * fan_in + 1, fan_out, kinds)

    def forward(self, x: Tensor, kind: Tensor, inside: Tensor, n: Tensor) -> Tensor:
        nodes, whole = summaries(x, n)
        spread = torch.cat([nodes, whole[:, :, None].expand(*nodes.shape[:3], -1), torch.ones_like(nodes[..., :1])], 3)
        out = self.plain(torch.cat([x, x.transpose(2, 3)], dim=4), kind)
        out = out + self.to_rows(nodes, kind)[:, :, :, None] + self.to_columns(nodes, kind)[:, :, None]
        out = out + torch.diag_embed(self.to_diagonal(spread, kind).transpose(2, 3), dim1=2, dim2=3)
        out = out + self.to_all(torch.cat([whole, torch.ones_like(whole[..., :1])], 2), kind)[:, :, None, None]
        return out * inside[:, :, :, None] * inside[:, :, None]


class MatrixToVector(nn.Module):
    """Equivariant linear maps of matrices (G, S, n, n, a) to vectors (G, S, n, b), all 5 kinds and the bias."""

    def __init__(self, fan_in: int, fan_out: int, kinds: int) -> None:
        super().__init__()
        self.linear = KindLinear(5 * fan_in + 1, fan_out, kinds)

    def forward(self, x: Tensor, kind: Tensor, inside: Tensor, n: Tensor) -> Tensor:
        nodes, whole = summaries(x, n)
        spread = torch.cat([nodes, whole[:, :, None].expand(*nodes.shape[:3], -1), torch.ones_like(nodes[..., :1])], 3)
        return self.linear(spread, kind) * inside


def summaries(x: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
    """Of matrices (G, S, n, n, a): diagonal, row means and column means (G, S, n, 3a); mean trace and mean row total (G, S, 2a)."""
    n = n[:, None, None]
    diagonal = x.diagonal(dim1=2, dim2=3).transpose(2, 3)
    rows, columns = x.sum(3) / n[..., None], x.sum(2) / n[..., None]
    return torch.cat([diagonal, rows, columns], 3), torch.cat([diagonal.sum(2) / n, rows.sum(2) / n], 2)
