"""SignNet: functions of eigenvectors that do not see their signs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from tuplet.encodings.base import expect_one_of, expect_positive
from tuplet.encodings.layers import GIN, MaskedBatchNorm, mlp
from tuplet.encodings.spectrum import Spectral, Whole
from tuplet.errors import OptionError
from tuplet.graphs import GraphBatch


@dataclass(frozen=True)
class SignNet(Spectral):
    """z = ρ([φ(v_k, λ_k) + φ(-v_k, λ_k)]_k), with φ a GIN on the graph or an MLP, shared over eigenvectors and signs.

    Entries are scaled by √n. ρ is an MLP of the concatenation for a fixed K ("mlp"), or of the sum over the eigenvectors that
    are there ("sum").

    Lim et al., "Sign and Basis Invariant Networks for Spectral Graph Representation Learning" (ICLR 2023). Invariant where all
    eigenvalues used are simple; in a larger eigenspace the basis depends on the numbering of the nodes.

    Args:
        vectors, width, laplacian, whole: as for ``Spectral``.
        phi: "gin" or "mlp".
        rho: "auto" (MLP for a fixed K, sum otherwise), "mlp" or "sum".
        phi_layers, rho_layers: layers of φ and linear maps of ρ.
        hidden: width of φ and ρ.
    """

    vectors: int | Literal["all"] = 8
    whole: Whole = "cut"
    phi: Literal["gin", "mlp"] = "gin"
    rho: Literal["auto", "mlp", "sum"] = "auto"
    phi_layers: int = 8
    rho_layers: int = 4
    hidden: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_positive(phi_layers=self.phi_layers, rho_layers=self.rho_layers, hidden=self.hidden)
        expect_one_of("phi", self.phi, ("gin", "mlp"))
        expect_one_of("rho", self.rho, ("auto", "mlp", "sum"))
        if self.rho == "mlp" and self.unbounded:
            raise OptionError(f"rho: expected 'sum' for vectors={self.vectors!r}, whole={self.whole!r}; came 'mlp'")

    def encoder(self) -> nn.Module:
        return SignEncoder(self)

    def held(self, graph: GraphBatch) -> tuple[int, int]:
        signals = 2 * self.columns_of(graph)
        if self.phi == "gin":
            return GIN.held(graph, signals, self.hidden, self.phi_layers)
        each = graph.num_nodes * signals * self.hidden
        return each * (2 * self.phi_layers + 2), each * 3


class SignEncoder(nn.Module):
    """(N, width) from eigenvectors and eigenvalues."""

    def __init__(self, encoding: SignNet) -> None:
        super().__init__()
        self.encoding = encoding
        self.sums = encoding.unbounded if encoding.rho == "auto" else encoding.rho == "sum"
        hidden = encoding.hidden
        self.gin = GIN(2, hidden, encoding.phi_layers) if encoding.phi == "gin" else None
        self.mlp = mlp(2, *[hidden] * encoding.phi_layers) if encoding.phi == "mlp" else None
        columns = hidden if self.sums else hidden * int(encoding.vectors)
        self.norm = MaskedBatchNorm(columns)
        self.rho = mlp(columns, *[hidden] * (encoding.rho_layers - 1), encoding.width)

    def forward(self, raw: Mapping[str, Tensor], graph: GraphBatch) -> Tensor:
        spectrum, _ = self.encoding.unpack(raw, graph, self.norm.weight.dtype)
        # both signs go through φ together, so that batch statistics do not see them either
        vectors = spectrum.spread(graph)
        vectors = torch.cat([vectors, -vectors], dim=1)
        mask = spectrum.mask.repeat(1, 2)
        x = torch.stack([vectors, spectrum.values.repeat(1, 2)], dim=2)
        x = self.gin(x, mask, graph) if self.gin is not None else self._plain(x, mask)
        plus, minus = x.chunk(2, dim=1)
        x = plus + minus
        return self.rho(self.norm(x.sum(1) if self.sums else x.flatten(1)))

    def _plain(self, x: Tensor, mask: Tensor) -> Tensor:
        assert self.mlp is not None
        return self.mlp(x) * mask[..., None]
