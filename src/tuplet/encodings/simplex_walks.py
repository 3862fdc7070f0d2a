"""Random walks on simplices: on edges (EdgeRWSE), and on simplices of all dimensions at once (HodgeRW).

Rows are the simplices of the complex that comes with the batch, of its clique complex if none comes. Directions of edges
have no say: a 1-simplex is an unordered pair. A simplex without neighbours has zero probability of return.

Orientations flip when nodes are renamed, so walks use unsigned relations: counts of shared faces and cofaces, never |L_k|, in
which the upper and the lower adjacency of two edges of one triangle cancel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn

from tuplet.encodings.base import Encoding, Level, expect_flag, expect_positive, resolve
from tuplet.encodings.blocks import blocks, return_probabilities, room_for, walk_matrix
from tuplet.encodings.layers import RowEncoder, SimplexEncoder
from tuplet.encodings.rings import induced_cycles
from tuplet.errors import OptionError
from tuplet.graphs import GraphBatch
from tuplet.topology import Complex, boundary, complex_of


@dataclass(frozen=True)
class EdgeRWSE(Encoding):
    """Return probabilities of a random walk on 1-simplices after 1..S steps, batch norm and a linear map.

    Undirected: from an edge to any edge that shares a node with it, all alike. Directed: first through one of the two ends,
    each with probability 1/2 (an end without other edges is no way), then to one of the other edges there, all alike.

    Zhou, Wang and Zhang, "Facilitating Graph Neural Networks with Random Walk on Simplicial Complexes" (NeurIPS 2023).

    Args:
        steps: S.
        width: of the encoded vector.
        directed: which of the two walks.
        norm: batch norm of the raw probabilities.
    """

    steps: int = 16
    width: int = 16
    directed: bool = False
    norm: bool = True
    level: ClassVar[Level] = "simplex"

    def __post_init__(self) -> None:
        expect_positive(steps=self.steps, width=self.width)
        expect_flag(directed=self.directed, norm=self.norm)

    @property
    def fields(self) -> tuple[str, ...]:
        return (f"pe_walk1_{'directed' if self.directed else 'undirected'}_{self.steps}",)

    def rows(self, graph: GraphBatch) -> dict[str, tuple[int, ...]]:
        return {self.fields[0]: simplex_counts(complex_of(graph, 1))[1]}

    def compute(self, graph: GraphBatch, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
        """(S_1, S)."""
        complex_ = complex_of(graph, 1)
        incidence = abs(boundary(complex_, 1)).astype(np.float64)
        degree = incidence.sum(axis=1)
        weight = 1 / np.maximum(degree - 1, 1) if self.directed else np.ones_like(degree)
        relation = incidence.T @ sparse.diags_array(weight) @ incidence
        out = _returns(self, relation, simplex_counts(complex_)[1], graph.device, resolve(dtype))
        return {self.fields[0]: out}

    def encoder(self) -> nn.Module:
        return SimplexEncoder({1: RowEncoder(self.fields[0], self.steps, self.width, self.norm, dim=1)})


@dataclass(frozen=True)
class HodgeRW(Encoding):
    """Return probabilities of a random walk on all simplices of dimensions 0..K, along the augmented Laplacian 𝓛_{0:K}.

    From a simplex the walk goes to its faces, to its cofaces, and to simplices of its dimension with which it shares faces or
    cofaces (each as often as they do), all with equal weight. L_K sees the simplices of dimension K + 1. So K = 0 is RWSE.
    Rings, that is induced cycles of the given lengths, are 2-cells like triangles: they carry the walk and have no row.

    Appendix "Background of Algebraic Topology Theories" of the paper; Zhou, Wang and Zhang, "Facilitating Graph Neural Networks
    with Random Walk on Simplicial Complexes" (NeurIPS 2023); rings as in Bodnar et al., "Weisfeiler and Lehman Go Cellular: CW
    Networks" (NeurIPS 2021).

    Args:
        steps: S.
        width: of the encoded vector.
        dim: K.
        rings: lengths of rings, from 4 on (triangles are simplices).
        norm: batch norm of the raw probabilities.
    """

    steps: int = 16
    width: int = 16
    dim: int = 1
    rings: tuple[int, ...] = ()
    norm: bool = True
    level: ClassVar[Level] = "simplex"

    def __post_init__(self) -> None:
        expect_positive(steps=self.steps, width=self.width)
        expect_flag(norm=self.norm)
        if isinstance(self.dim, bool) or not isinstance(self.dim, int) or self.dim < 0:
            raise OptionError(f"dim: expected an int of at least 0; came {self.dim!r}")
        if any(not isinstance(length, int) or length < 4 for length in self.rings):
            raise OptionError(f"rings: expected a tuple of lengths from 4 on; came {self.rings!r}")
        if self.rings and self.dim == 0:
            raise OptionError("rings: expected dim >= 1, since a ring joins edges; came dim=0")

    @property
    def fields(self) -> tuple[str, ...]:
        rings = "".join(f"_ring{length}" for length in sorted(set(self.rings)))
        return tuple(f"pe_hodgerw{k}_{self.dim}{rings}_{self.steps}" for k in range(self.dim + 1))

    def rows(self, graph: GraphBatch) -> dict[str, tuple[int, ...]]:
        return dict(zip(self.fields, simplex_counts(complex_of(graph, self.dim)), strict=True))

    def compute(self, graph: GraphBatch, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
        """For each dimension k (S_k, S)."""
        given = graph.simplices
        complex_ = complex_of(graph, self.dim + 1 if given is None else max(self.dim, min(self.dim + 1, len(given))))
        incidences = [abs(boundary(complex_, k)).astype(np.float64) for k in range(self.dim + 2)]
        owners = [owner.cpu().numpy() for owner in complex_.graph_of[: self.dim + 1]]
        if self.rings:
            ring_edges, ring_owner = _ring_incidence(graph, complex_, self.rings)
            incidences[2] = sparse.hstack([incidences[2], ring_edges], format="csr")
            if self.dim >= 2:
                owners[2] = np.concatenate([owners[2], ring_owner])
                # no simplex of dimension 3 has a ring as its face
                none = sparse.csr_array((ring_edges.shape[1], incidences[3].shape[1]))
                incidences[3] = sparse.vstack([incidences[3], none], format="csr")
        relation = _relations(incidences, self.dim)
        # cells are numbered dimension after dimension; the walks of one graph want them graph after graph
        owner = np.concatenate(owners)
        order = np.argsort(owner, kind="stable")
        sizes = np.bincount(owner, minlength=graph.num_graphs).tolist()
        returns = _returns(self, relation[order][:, order], sizes, graph.device, resolve(dtype))
        by_cell = torch.empty_like(returns)
        by_cell[torch.from_numpy(order).to(graph.device)] = returns
        starts = np.cumsum([0, *map(len, owners)])
        return {
            field: by_cell[starts[k] : starts[k] + complex_.counts[k]].clone() for k, field in enumerate(self.fields)
        }

    def encoder(self) -> nn.Module:
        rows = {k: RowEncoder(field, self.steps, self.width, self.norm, dim=k) for k, field in enumerate(self.fields)}
        return SimplexEncoder(rows)


def simplex_counts(complex_: Complex) -> list[tuple[int, ...]]:
    """For each dimension the number of simplices of each graph."""
    graphs = len(complex_.ptr) - 1
    return [tuple(torch.bincount(owner, minlength=graphs).tolist()) for owner in complex_.graph_of]


def _relations(incidences: Sequence[sparse.csr_array], dim: int) -> sparse.csr_array:
    """Unsigned 𝓛_{0:K} from |B_0|, .., |B_{K+1}|: shared faces plus shared cofaces on the diagonal blocks, |B| beside them."""
    grid: list[list[sparse.csr_array | None]] = [[None] * (dim + 1) for _ in range(dim + 1)]
    for k in range(dim + 1):
        grid[k][k] = incidences[k].T @ incidences[k] + incidences[k + 1] @ incidences[k + 1].T
        if k:
            grid[k - 1][k], grid[k][k - 1] = incidences[k], incidences[k].T
    return sparse.csr_array(sparse.block_array(grid, format="csr"))


def _returns(
    encoding: EdgeRWSE | HodgeRW,
    relation: sparse.csr_array,
    sizes: Sequence[int],
    device: torch.device,
    dtype: torch.dtype,
) -> Tensor:
    """(cells, S) return probabilities of the walk along the off-diagonal entries of a matrix with a block of cells a graph."""
    out = room_for(encoding, (sum(sizes), encoding.steps), sizes, dtype, device)
    entries = relation.tocoo()
    kept = entries.row != entries.col
    row, col = (torch.from_numpy(axis[kept].astype(np.int64)).to(device) for axis in (entries.row, entries.col))
    weight = torch.from_numpy(entries.data[kept]).to(device)
    for _, cells, matrix in blocks(sizes, row, col, weight):
        out[cells] = return_probabilities(walk_matrix(matrix), encoding.steps).to(dtype)
    return out


def _ring_incidence(
    graph: GraphBatch, complex_: Complex, lengths: tuple[int, ...]
) -> tuple[sparse.csr_array, np.ndarray]:
    """(S_1, R) which edges a ring has, and (R,) the graph of each ring."""
    edges: list[np.ndarray] = []
    rings: list[np.ndarray] = []
    owners: list[np.ndarray] = []
    for nodes in induced_cycles(*graph.undirected_edges(), graph.num_nodes, lengths):
        ends = torch.stack([nodes, nodes.roll(-1, dims=1)], dim=2).sort(dim=2).values  # (R, L, 2)
        edges.append(complex_.find(ends.flatten(0, 1)).cpu().numpy())
        rings.append(sum(map(len, owners)) + np.repeat(np.arange(len(nodes)), nodes.shape[1]))
        owners.append(graph.graph_of_node[nodes[:, 0]].cpu().numpy())
    entries = (np.ones(sum(map(len, edges))), (np.concatenate(edges), np.concatenate(rings)))
    owner = np.concatenate(owners)
    return sparse.csr_array(entries, shape=(complex_.counts[1], len(owner))), owner
