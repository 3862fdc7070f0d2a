"""Laplacian eigenvectors as they are, with random signs while training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from tuplet.encodings.base import expect_flag, expect_one_of
from tuplet.encodings.layers import MaskedBatchNorm, mlp
from tuplet.encodings.spectrum import Spectral, Whole
from tuplet.errors import OptionError
from tuplet.graphs import GraphBatch

Model = Literal["deepset", "mlp"]


@dataclass(frozen=True)
class LapPE(Spectral):
    """The first K non-trivial eigenvectors, each entry together with its eigenvalue, signs flipped at random in training.

    "deepset": z_v = ρ(Σ_k φ(V_vk, λ_k)); "mlp": z_v = MLP(V_v1, λ_1, .., V_vK, λ_K), for a fixed K. Entries are scaled by √n.

    Dwivedi and Bresson, "A Generalization of Transformer Networks to Graphs" (2020); Kreuzer et al., "Rethinking Graph
    Transformers with Spectral Attention" (NeurIPS 2021). Not invariant: signs, and bases of eigenspaces, depend on the
    numbering of the nodes.

    Args:
        vectors, width, laplacian, whole: as for ``Spectral``.
        model: "deepset" or "mlp".
        flip: random signs in training.
    """

    vectors: int | Literal["all"] = 16
    whole: Whole = "cut"
    model: Model = "deepset"
    flip: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_one_of("model", self.model, ("deepset", "mlp"))
        expect_flag(flip=self.flip)
        if self.model == "mlp" and self.unbounded:
            raise OptionError(
                f"model: expected 'deepset' for vectors={self.vectors!r}, whole={self.whole!r}; came 'mlp'"
            )

    def encoder(self) -> nn.Module:
        return LapEncoder(self)


class LapEncoder(nn.Module):
    """(N, width) from eigenvectors and eigenvalues."""

    def __init__(self, encoding: LapPE) -> None:
        super().__init__()
        self.encoding = encoding
        self.by_rows = not encoding.unbounded
        self.net = EigenNet(encoding, encoding.model)

    def forward(self, raw: Mapping[str, Tensor], graph: GraphBatch) -> Tensor:
        spectrum, _ = self.encoding.unpack(raw, graph, self.net.dtype)
        vectors = spectrum.spread(graph)
        if self.training and self.encoding.flip:
            vectors = vectors * random_signs(vectors, graph)
        return self.net(vectors, spectrum.values, spectrum.mask, graph.live(1))


class EigenNet(nn.Module):
    """DeepSet over, or MLP of, the pairs (entry, eigenvalue) of a node; masked pairs have no say."""

    def __init__(self, encoding: Spectral, model: Model) -> None:
        super().__init__()
        hidden = 2 * encoding.width
        self.phi = mlp(2, hidden, hidden) if model == "deepset" else None
        columns = hidden if self.phi is not None else 2 * int(encoding.vectors)
        self.norm = MaskedBatchNorm(columns)
        self.rho = mlp(columns, hidden, encoding.width)

    @property
    def dtype(self) -> torch.dtype:
        return next(self.rho.parameters()).dtype

    def forward(self, vectors: Tensor, values: Tensor, mask: Tensor, live: Tensor | None = None) -> Tensor:
        """(N, width) from (N, K) each; nodes that are not ``live`` are padding, which the norm leaves out."""
        pairs = torch.stack([vectors, values], dim=2) * mask[..., None]
        if self.phi is None:
            return self.rho(self.norm(pairs.flatten(1), live))
        return self.rho(self.norm((self.phi(pairs) * mask[..., None]).sum(1), live))


def random_signs(vectors: Tensor, graph: GraphBatch) -> Tensor:
    """(N, K) a random sign for each graph and column."""
    signs = torch.randint(0, 2, (graph.num_graphs, vectors.shape[1]), device=vectors.device)
    return (2 * signs - 1).to(vectors.dtype)[graph.graph_of_node]
