"""MAP: Laplacian canonisation, a choice of signs and bases that depends on the graph alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tuplet.encodings.base import expect_one_of
from tuplet.encodings.lappe import EigenNet, Model, random_signs
from tuplet.encodings.spectrum import Spectral, spaces_by_dimension
from tuplet.errors import OptionError
from tuplet.graphs import GraphBatch

SAME_LENGTH = 1e-6
"""Projections of axes whose lengths differ by less are of one length."""
NOTHING = 1e-4
"""What is left of a unit axis after projection counts as zero below this; then rounding is blown up at most 10⁴ times."""


@dataclass(frozen=True)
class MAP(Spectral):
    """The first K non-trivial eigenvectors with signs and bases fixed by maximal axis projection.

    In an eigenspace with projector Π, the axes e_i are grouped by the length of Π e_i, longest first, and each group is summed
    to one axis x_h. The basis is Gram-Schmidt on Π x_1, Π x_2, ..: each new vector is the direction of the space, orthogonal
    to those before, with the largest projection on x_h. Axes that add nothing are passed over. A simple eigenvalue is the
    case of dimension 1: then the sign is fixed whenever some renaming of nodes does not turn v into -v, so whenever it can be.
    Where the axes do not span the space it is *uncanonisable* by this method, and its vectors are marked.

    Ma et al., "Laplacian Canonization: A Minimalist Approach to Sign and Basis Invariant Spectral Embedding" (NeurIPS 2023).
    The paper takes the first d axes and gives up if one of them adds nothing; its shift of axes by a constant is 0 here.

    Args:
        vectors, width, laplacian, whole: as for ``Spectral``.
        model: "deepset" or "mlp", as for ``LapPE``.
        uncanonical: "drop" masks vectors of uncanonisable spaces, so that the encoding is invariant; "flip" leaves them as the
            numbering of nodes settles them, with random signs in training.
    """

    vectors: int | Literal["all"] = 8
    model: Model = "deepset"
    uncanonical: Literal["drop", "flip"] = "drop"
    statistic: ClassVar[str] = "map"
    columns: ClassVar[int] = 3
    matrices: ClassVar[int] = 9

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_one_of("model", self.model, ("deepset", "mlp"))
        expect_one_of("uncanonical", self.uncanonical, ("drop", "flip"))
        if self.model == "mlp" and self.unbounded:
            raise OptionError(
                f"model: expected 'deepset' for vectors={self.vectors!r}, whole={self.whole!r}; came 'mlp'"
            )

    def entries(self, values: Tensor, vectors: Tensor) -> Tensor:
        """(B, n, K, 3): canonical entry, eigenvalue, and 1 where the vector is canonical."""
        vectors, canonical = canonise(values, vectors)
        flags = canonical[:, None, :].expand_as(vectors).to(vectors.dtype)
        return torch.cat([super().entries(values, vectors), flags[..., None]], dim=3)

    def encoder(self) -> nn.Module:
        return CanonicalEncoder(self)

    def census(self, raw: Mapping[str, Tensor], graph: GraphBatch) -> Census:
        """How many eigenspaces of a batch are canonical, from its raw statistics."""
        _, stored = self.unpack(raw, graph, torch.float64)
        values, flags = stored[graph.ptr[:-1], :, 1], stored[graph.ptr[:-1], :, 2]
        begins = (values > 0) & F.pad(values[:, 1:] != values[:, :-1], (1, 0), value=True)
        simple = begins & F.pad(values[:, 1:] != values[:, :-1], (0, 1), value=True)
        failed = begins & (flags == 0)
        return Census(
            signs=int(simple.sum()),
            uncanonical_signs=int((simple & failed).sum()),
            bases=int((begins & ~simple).sum()),
            uncanonical_bases=int((begins & ~simple & failed).sum()),
        )


@dataclass(frozen=True)
class Census:
    """Eigenspaces of dimension 1 (signs) and above (bases), and how many of them are uncanonisable."""

    signs: int
    uncanonical_signs: int
    bases: int
    uncanonical_bases: int

    def __str__(self) -> str:
        return (
            f"{self.uncanonical_signs:,} of {self.signs:,} signs and {self.uncanonical_bases:,} of {self.bases:,} bases "
            "cannot be made canonical"
        )


class CanonicalEncoder(nn.Module):
    """(N, width) from canonical eigenvectors and eigenvalues."""

    def __init__(self, encoding: MAP) -> None:
        super().__init__()
        self.encoding = encoding
        self.net = EigenNet(encoding, encoding.model)

    def forward(self, raw: Mapping[str, Tensor], graph: GraphBatch) -> Tensor:
        spectrum, stored = self.encoding.unpack(raw, graph, self.net.dtype)
        vectors, mask, canonical = spectrum.spread(graph), spectrum.mask, stored[..., 2] > 0
        if self.encoding.uncanonical == "drop":
            mask = mask & canonical
        elif self.training:
            vectors = torch.where(canonical, vectors, vectors * random_signs(vectors, graph))
        return self.net(vectors, spectrum.values, mask)


def canonise(values: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Canonical eigenvectors (B, n, K), and which columns (B, K) are canonical, from eigenvalues (B, K); 0 is padding."""
    out, canonical = vectors.clone(), torch.zeros_like(values, dtype=torch.bool)
    for block, columns in spaces_by_dimension(values):
        basis, found = canonical_basis(vectors[block, :, columns].transpose(1, 2))
        out[block, :, columns] = basis.transpose(1, 2)
        canonical[block, columns] = found[:, None]
    return out, canonical


def canonical_basis(basis: Tensor) -> tuple[Tensor, Tensor]:
    """Canonical bases of M spaces (M, n, d) given by orthonormal ones, and (M,) whether there is one; else the basis stays."""
    count, n, d = basis.shape
    length, order = basis.norm(dim=2).sort(dim=1, descending=True)  # |Π e_i| = |row i of V|
    group = F.pad((-length.diff(dim=1) > SAME_LENGTH).long(), (1, 0)).cumsum(1)
    group = torch.empty_like(group).scatter_(1, order, group)  # (M, n) group of each axis
    axes = torch.zeros_like(basis).scatter_add_(1, group[..., None].expand_as(basis), basis)  # Vᵀ x_h in row h
    members = torch.zeros_like(length).scatter_add_(1, group, torch.ones_like(length))
    axes = axes / members.clamp_min(1).sqrt()[..., None]
    chosen = basis.new_zeros(count, d, d)  # rows: the new basis in terms of the old one
    found = torch.zeros(count, dtype=torch.long, device=basis.device)
    for h in range(n):
        rest = axes[:, h, :, None]
        for _ in range(2):  # twice is enough: Gram-Schmidt loses what rounding takes
            rest = rest - chosen.mT @ (chosen @ rest)
        size = rest.norm(dim=1)
        use = (size[:, 0] > NOTHING) & (found < d)
        fresh = (rest / size.clamp_min(NOTHING)[..., None])[..., 0]
        at = found.clamp(max=d - 1)[:, None, None].expand(-1, 1, d)
        chosen = torch.where(use[:, None, None], chosen.scatter(1, at, fresh[:, None]), chosen)
        found = found + use
        if bool((found == d).all()):
            break
    complete = found == d
    return torch.where(complete[:, None, None], basis @ chosen.mT, basis), complete
