"""Eigenvectors of graph Laplacians, decomposed once for LapPE, SignNet, BasisNet, SPE and MAP.

Choices that all of them share:

- The Laplacian is that of the underlying undirected graph, without self loops: "sym" I - D^(-1/2) A D^(-1/2) with a zero row
  for an isolated node, or "comb" D - A. Both have the eigenvalue 0 once for each connected component.
- *Non-trivial* means a nonzero eigenvalue, so a graph of n nodes in c components has n - c of them: none without edges.
- Eigenvalues closer than ``EQUAL`` (times the largest, if that is above 1) are one eigenvalue, and are stored as exactly the
  same number, so that eigenspaces can be told from the stored values whatever their precision.
- Where the first K would cut an eigenspace in two, ``whole`` decides: "drop" leaves the space out, "keep" takes all of it
  (more than K then), "cut" takes K vectors, an arbitrary part of the space: no function of them is basis invariant.
- Signs and bases, which a solver chooses by chance, are settled by the numbering of the nodes (``settle``): the same graph has
  the same statistics alone, in a batch and on any device. They still change when nodes are renamed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from tuplet.encodings.base import Encoding, Level, expect_one_of, expect_positive, resolve
from tuplet.encodings.blocks import adjacency_blocks, pair_counts, pair_rows, room_for
from tuplet.errors import OptionError
from tuplet.graphs import GraphBatch

Kind = Literal["sym", "comb"]
Whole = Literal["drop", "keep", "cut"]

EQUAL = 1e-8
"""Eigenvalues that differ by less are one, and one below it is zero; rounding in float64 stays far below."""
LONG = 0.3217
"""An axis is long enough to settle a vector above this share of the longest; no share that a symmetric graph would have."""


@dataclass(frozen=True)
class Spectrum:
    """Eigenvectors of a batch, padded to K columns; padding is 0 everywhere.

    Args:
        vectors: (N, K) entry of each node in each eigenvector.
        values: (N, K) the eigenvalues, the same for all nodes of a graph, ascending.
        mask: (N, K) what is not padding.
    """

    vectors: Tensor
    values: Tensor
    mask: Tensor

    def spread(self, graph: GraphBatch) -> Tensor:
        """(N, K) eigenvectors times √n: entries of mean square 1, so that they do not fade as graphs grow."""
        return self.vectors * graph.n[graph.graph_of_node].to(self.vectors.dtype).sqrt()[:, None]


@dataclass(frozen=True)
class Spectral(Encoding):
    """An encoding of nodes by the first K non-trivial eigenvectors of a Laplacian.

    Raw statistics are pairs (entry of the eigenvector, eigenvalue), zero where there is no eigenvector: (N, K, 2). When the
    number of vectors has no bound ("all" of them, or whole="keep"), graph by graph a matrix of n nodes by n eigenvectors,
    row-major: (Σ n², 2).

    Args:
        vectors: K, or "all".
        width: of the encoded vector.
        laplacian: "sym" or "comb".
        whole: what happens to an eigenspace that the first K would cut.
    """

    vectors: int | Literal["all"] = 8
    width: int = 16
    laplacian: Kind = "sym"
    whole: Whole = "drop"
    level: ClassVar[Level] = "node"
    statistic: ClassVar[str] = "lap"
    columns: ClassVar[int] = 2
    matrices: ClassVar[int] = 8

    def __post_init__(self) -> None:
        expect_positive(width=self.width)
        expect_one_of("laplacian", self.laplacian, ("sym", "comb"))
        expect_one_of("whole", self.whole, ("drop", "keep", "cut"))
        if self.vectors != "all":
            if isinstance(self.vectors, str):
                raise OptionError(f"vectors: expected a positive int or 'all'; came {self.vectors!r}")
            expect_positive(vectors=self.vectors)

    @property
    def unbounded(self) -> bool:
        """Whether a graph may bring more than K vectors, so that rows are entries of n × n matrices."""
        return self.vectors == "all" or self.whole == "keep"

    @property
    def fields(self) -> tuple[str, ...]:
        rule = "" if self.vectors == "all" else f"_{self.whole}"
        return (f"pe_{self.statistic}_{self.laplacian}_{self.vectors}{rule}",)

    def rows(self, graph: GraphBatch) -> dict[str, tuple[int, ...]]:
        return {self.fields[0]: pair_counts(graph) if self.unbounded else graph.sizes}

    def compute(self, graph: GraphBatch, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
        count = sum(self.rows(graph)[self.fields[0]])
        number = None if self.vectors == "all" else self.vectors
        shape = (count, self.columns) if self.unbounded else (count, number or 0, self.columns)
        out = room_for(self, shape, graph.sizes, resolve(dtype), graph.device)
        for graphs, nodes, adjacency in adjacency_blocks(graph):
            n = nodes.shape[1]
            values, vectors = nontrivial(*torch.linalg.eigh(laplacian_matrix(adjacency, self.laplacian)))
            values, vectors = first(values, vectors, number, "drop" if self.whole == "drop" else "keep")
            vectors = settle(values, vectors)
            if self.whole == "cut":
                values, vectors = first(values, vectors, number, "cut")
            entries = self.entries(values, vectors).to(out.dtype)
            if self.unbounded:
                out[pair_rows(graph, graphs, n)] = entries.flatten(1, 2)
            else:
                out[nodes] = F.pad(entries, (0, 0, 0, max(0, out.shape[1] - n)))[:, :, : out.shape[1]]
        return {self.fields[0]: out}

    def columns_of(self, graph: GraphBatch) -> int:
        """K, to which eigenvectors of a batch are padded."""
        return max(graph.sizes) if self.unbounded else int(self.vectors)

    def entries(self, values: Tensor, vectors: Tensor) -> Tensor:
        """(B, n, K, columns) what is stored for eigenvalues (B, K) and eigenvectors (B, n, K)."""
        return torch.stack([vectors, values[:, None, :].expand_as(vectors)], dim=3)

    def unpack(self, raw: Mapping[str, Tensor], graph: GraphBatch, dtype: torch.dtype) -> tuple[Spectrum, Tensor]:
        """The stored eigenvectors of a batch, and all stored columns (N, K, columns)."""
        stored = raw[self.fields[0]].to(dtype)
        if self.unbounded:
            n = graph.n[graph.graph_of_node][:, None]
            place = torch.arange(max(graph.sizes), device=stored.device)
            inside = place < n
            stored = stored[torch.where(inside, n.cumsum(0) - n + place, 0)] * inside[..., None]
        return Spectrum(stored[..., 0], stored[..., 1], stored[..., 1] > 0), stored


def laplacian_matrix(adjacency: Tensor, kind: Kind) -> Tensor:
    """(B, n, n) the Laplacian of symmetric adjacency matrices, with weights or without."""
    degree = adjacency.sum(2)
    if kind == "comb":
        return torch.diag_embed(degree) - adjacency
    scale = torch.where(degree > 0, degree, 1.0).rsqrt()
    return torch.diag_embed((degree > 0).to(adjacency.dtype)) - scale[:, :, None] * adjacency * scale[:, None, :]


def eigenspaces(values: Tensor) -> tuple[Tensor, Tensor]:
    """(B, m) number of the eigenspace of each of the ascending eigenvalues, and the eigenvalues, equal ones made the same."""
    near = EQUAL * values.abs().amax(1, keepdim=True).clamp_min(1)
    space = F.pad((values.diff(dim=1) > near).long(), (1, 0)).cumsum(1)
    total = torch.zeros_like(values).scatter_add_(1, space, values)
    count = torch.zeros_like(values).scatter_add_(1, space, torch.ones_like(values))
    mean = (total / count.clamp_min(1)).gather(1, space)
    return space, torch.where(mean.abs() <= near, 0.0, mean)


def nontrivial(values: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
    """The eigenpairs of nonzero eigenvalue first, ascending, equal eigenvalues made the same; zeros in the columns left over."""
    _, values = eigenspaces(values)
    m = values.shape[1]
    place = (values == 0).sum(1, keepdim=True) + torch.arange(m, device=values.device)
    inside, place = place < m, place.clamp(max=m - 1)
    values = torch.where(inside, values.gather(1, place), 0.0)
    vectors = vectors.gather(2, place[:, None, :].expand_as(vectors))
    return values, torch.where(inside[:, None, :], vectors, 0.0)


def first(values: Tensor, vectors: Tensor, number: int | None, whole: Whole) -> tuple[Tensor, Tensor]:
    """The first ``number`` non-trivial eigenpairs, all for None; zeros elsewhere. ``whole`` decides about a space that would be cut."""
    m = values.shape[1]
    if number is None or number >= m:
        return values, vectors
    place = torch.arange(m, device=values.device)
    inside = (place < number).expand_as(values)
    if whole == "keep":
        inside = inside | (values == values[:, number - 1 : number])
    elif whole == "drop":
        inside = inside & (values != values[:, number : number + 1])
    return torch.where(inside, values, 0.0), torch.where(inside[:, None, :], vectors, 0.0)


def spaces_by_dimension(values: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """The eigenspaces of eigenvalues (B, K), 0 being padding, dimension after dimension: for M spaces of dimension d the
    block (M, 1) that each lies in and its columns (M, d)."""
    begins = (values > 0) & F.pad(values[:, 1:] != values[:, :-1], (1, 0), value=True)
    dimension = (values[:, :, None] == values[:, None, :]).sum(2) * begins
    for d in dimension.unique().tolist():
        if d:
            block, start = (dimension == d).nonzero(as_tuple=True)
            yield block[:, None], start[:, None] + torch.arange(d, device=values.device)


def settle(values: Tensor, vectors: Tensor) -> Tensor:
    """Eigenvectors (B, n, K) with signs and bases that depend on the eigenspaces and the numbering of nodes alone.

    Each basis is Gram-Schmidt on projections of axes e_i: next comes the first axis, by the number of its node, whose
    projection on what is left of the space is longer than ``LONG`` times the longest.
    """
    out = vectors.clone()
    for block, columns in spaces_by_dimension(values):
        basis = vectors[block, :, columns].transpose(1, 2)  # (M, n, d)
        rest, chosen = basis, torch.zeros_like(basis[:, :0])
        for _ in range(columns.shape[1]):
            length = rest.norm(dim=2)
            pick = (length > LONG * length.amax(1, keepdim=True)).long().argmax(1)
            fresh = rest[torch.arange(len(rest), device=rest.device), pick][:, :, None]
            fresh = fresh - chosen.mT @ (chosen @ fresh)
            fresh = fresh / fresh.norm(dim=1, keepdim=True)
            chosen = torch.cat([chosen, fresh.mT], dim=1)
            rest = rest - (rest @ fresh) @ fresh.mT
        out[block, :, columns] = (basis @ chosen.mT).transpose(1, 2)
    return out
