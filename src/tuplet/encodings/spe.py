"""SPE: eigenvectors through learned functions of the Laplacian, stable under perturbation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from tuplet.encodings.base import expect_positive
from tuplet.encodings.layers import GIN, MaskedBatchNorm, mlp
from tuplet.encodings.spectrum import Spectral
from tuplet.graphs import GraphBatch


@dataclass(frozen=True)
class SPE(Spectral):
    """z = ρ(V diag(ψ_1(λ)) Vᵀ, .., V diag(ψ_m(λ)) Vᵀ), with ψ an MLP on eigenvalues and ρ a GIN over rows, summed over columns.

    Huang et al., "On the Stability of Expressive Positional Encodings for Graphs" (ICLR 2024). The matrices are functions of
    the Laplacian itself where whole eigenspaces enter: invariant for vectors="all", whole="drop" and whole="keep", not for
    "cut". Stable for "all": a space that is dropped for its multiplicity comes back under the smallest perturbation.

    Args:
        vectors, width, laplacian, whole: as for ``Spectral``.
        functions: m.
        hidden: width of ψ and of the GIN.
        layers: of the GIN.
    """

    vectors: int | Literal["all"] = 8
    width: int = 8
    functions: int = 6
    hidden: int = 64
    layers: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_positive(functions=self.functions, hidden=self.hidden, layers=self.layers)

    def encoder(self) -> nn.Module:
        return StableEncoder(self)

    def held(self, graph: GraphBatch) -> tuple[int, int]:
        return GIN.held(graph, max(graph.sizes), self.hidden, self.layers)  # a signal is a row of the matrices


class StableEncoder(nn.Module):
    """(N, width) from eigenvectors and eigenvalues."""

    def __init__(self, encoding: SPE) -> None:
        super().__init__()
        self.encoding = encoding
        self.psi = mlp(1, encoding.hidden, encoding.hidden, encoding.functions)
        self.gin = GIN(encoding.functions, encoding.hidden, encoding.layers)
        self.norm = MaskedBatchNorm(encoding.hidden)
        self.rho = mlp(encoding.hidden, encoding.hidden, encoding.width)

    def forward(self, raw: Mapping[str, Tensor], graph: GraphBatch) -> Tensor:
        spectrum, _ = self.encoding.unpack(raw, graph, self.norm.weight.dtype)
        weight = self.psi(spectrum.values[..., None])  # (N, K, m); padding has zero vectors, so its weight has no say
        left = (spectrum.vectors[..., None] * weight).transpose(1, 2)  # (N, m, K)
        place, right = dense(spectrum.vectors, graph)  # (G, n, K)
        rows = torch.einsum("gimk,gjk->gijm", dense(left.flatten(1), graph)[1].unflatten(2, left.shape[1:]), right)
        rows = rows.flatten(0, 1)[place]  # (N, n, m): node v's rows of all m matrices
        inside = torch.arange(rows.shape[1], device=rows.device) < graph.n[graph.graph_of_node][:, None]
        return self.rho(self.norm(self.gin(rows, inside, graph).sum(1)))


def dense(x: Tensor, graph: GraphBatch) -> tuple[Tensor, Tensor]:
    """Rows of nodes (N, c) as a padded stack (G, n, c), n the largest size, and the place (N,) of each node in its G·n rows."""
    most, owner = max(graph.sizes), graph.graph_of_node
    place = owner * most + torch.arange(len(x), device=x.device) - graph.ptr[owner]
    out = x.new_zeros(graph.num_graphs * most, x.shape[1]).index_copy(0, place, x)
    return place, out.unflatten(0, (graph.num_graphs, most))
