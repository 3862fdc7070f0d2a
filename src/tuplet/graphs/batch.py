"""The checked batch of graphs that every later room works on."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from tuplet.errors import TooLargeError
from tuplet.graphs.memory import remembered


@dataclass(frozen=True)
class GraphBatch:
    """Graphs of sizes n_1..n_G as one disjoint union in compressed sparse rows.

    Edges are sorted by (source, target) and free of duplicates and self loops. A self loop is a flag of its node;
    its features, if edges have any, are the last rows of ``edge_attr``.

    Args:
        sizes: n of each graph, on the host.
        ptr: (G+1,) first node of each graph.
        rowptr: (N+1,) first edge of each node.
        col: (E,) target node of each edge, numbered over the whole batch.
        loop: (N,) row of ``edge_attr`` (or of a virtual table of E + loops rows) of the node's self loop, -1 without.
        x: (N, c) node features or None.
        edge_attr: (E + loops, c) edge features, or None.
        directed: whether (u, v) may be present without (v, u).
        queries: (2, Q) queried pairs of an edge task, numbered over the whole batch, or None.
        tuples: (S, k) sampled tuples with node numbers of their own graph, or None.
        tuple_counts: sampled tuples of each graph, or None.
        simplices: of an attached complex, for dimensions 1, 2, .., (S_k, k+1) node numbers over the batch, or None.
        statistics: raw statistics of encodings by field (attributes that begin with "pe_"), or None.
        checked: all its graphs were read before, alone or with others, and were as they must be: nobody looks again.
    """

    sizes: tuple[int, ...]
    ptr: Tensor
    rowptr: Tensor
    col: Tensor
    loop: Tensor
    x: Tensor | None = None
    edge_attr: Tensor | None = None
    directed: bool = False
    queries: Tensor | None = None
    tuples: Tensor | None = None
    tuple_counts: tuple[int, ...] | None = None
    simplices: tuple[Tensor, ...] | None = None
    statistics: dict[str, Tensor] | None = None
    checked: bool = False

    @property
    def padded(self) -> bool:
        """Whether the last graph is padding (see ``PaddedBatch``)."""
        return False

    @property
    def num_graphs(self) -> int:
        return self.ptr.numel() - 1

    @property
    def num_nodes(self) -> int:
        return self.loop.numel()

    @property
    def num_edges(self) -> int:
        """Directed edges, self loops not counted."""
        return self.col.numel()

    @property
    def device(self) -> torch.device:
        return self.col.device

    def to(self, device: torch.device | str) -> GraphBatch:
        """The same batch on another device."""
        if torch.device(device) == self.device:
            return self
        moved: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "simplices" and value is not None:
                value = tuple(rows.to(device) for rows in value)
            elif field.name == "statistics" and value is not None:
                value = {key: rows.to(device) for key, rows in value.items()}
            moved[field.name] = value.to(device) if isinstance(value, Tensor) else value
        return GraphBatch(**moved)

    @cached_property
    def n(self) -> Tensor:
        """(G,) nodes of each graph."""
        return self.ptr[1:] - self.ptr[:-1]

    @property
    def largest(self) -> int:
        """No graph has more nodes."""
        return max(self.sizes)

    def total(self, order: int) -> int:
        """Tuples of length ``order`` in the batch."""
        return sum(n**order for n in self.sizes)

    @remembered
    def offsets(self, order: int) -> Tensor:
        """(G+1,) the first tuple of length ``order`` of each graph."""
        return offsets(tuple(n**order for n in self.sizes), self.device)

    @remembered
    def spread(self, order: int) -> tuple[Tensor, Tensor]:
        """Of all tuples of length ``order`` the graph, and the number within it (0 for padding)."""
        first, total = self.offsets(order), self.total(order)
        graph = repeat(torch.arange(self.num_graphs, device=self.device), first.diff(), total)
        return graph, torch.arange(total, device=self.device) - first[graph]

    @remembered
    def live(self, order: int) -> Tensor | None:
        """Of all tuples of length ``order`` which are not padding; None where none is."""
        return self.spread(order)[0] < self.num_graphs - 1 if self.padded else None

    def live_simplices(self, dim: int) -> Tensor | None:
        """Of the simplices of dimension ``dim`` that came with the batch which are not padding; None where none is."""
        if not self.padded or dim == 0:
            return self.live(1)
        assert self.simplices is not None
        return self.graph_of_node[self.simplices[dim - 1][:, 0]] < self.num_graphs - 1

    @cached_property
    def place_of_node(self) -> Tensor:
        """(N,) number of each node within its graph."""
        return torch.arange(self.num_nodes, device=self.device) - self.ptr[self.graph_of_node]

    @cached_property
    def graph_of_node(self) -> Tensor:
        """(N,) graph of each node."""
        return repeat(torch.arange(self.num_graphs, device=self.device), self.ptr.diff(), self.num_nodes)

    @cached_property
    def row(self) -> Tensor:
        """(E,) source node of each edge."""
        nodes = torch.arange(self.num_nodes, device=self.device)
        return repeat(nodes, self.rowptr[1:] - self.rowptr[:-1], self.num_edges)

    @cached_property
    def _codes(self) -> Tensor:
        return self.row * self.num_nodes + self.col

    def edge_number(self, u: Tensor, v: Tensor) -> Tensor:
        """Number of the edge (u, v) for nodes numbered over the batch, -1 where there is none."""
        if self.num_edges == 0:
            return torch.full_like(u, -1)
        wanted = u * self.num_nodes + v
        found = torch.searchsorted(self._codes, wanted).clamp_(max=self.num_edges - 1)
        return torch.where(self._codes[found] == wanted, found, -1)

    @cached_property
    def edge_ends(self) -> Tensor:
        """(E, 2) the nodes of each edge, the lower one first."""
        return torch.stack([torch.minimum(self.row, self.col), torch.maximum(self.row, self.col)], dim=1)

    @cached_property
    def edge_pairs(self) -> Tensor:
        """(E,) number of each edge among all ordered pairs of the batch."""
        return self.pair_number(self.row, self.col)

    @cached_property
    def node_pairs(self) -> Tensor:
        """(N,) number of the pair of each node with itself."""
        start, owner = self.offsets(2), self.graph_of_node
        return start[owner] + self.place_of_node * (self.n[owner] + 1)

    def pair_number(self, u: Tensor, v: Tensor) -> Tensor:
        """Number of (u, v) among all ordered pairs of the batch, graph after graph and row-major, as all 2-tuples are numbered."""
        start = self.offsets(2)
        owner, place = self.graph_of_node[u], self.place_of_node
        return start[owner] + place[u] * self.n[owner] + place[v]

    def undirected_edges(self) -> tuple[Tensor, Tensor]:
        """Sources and targets of the underlying undirected graph: both directions of every edge, each once, sorted."""
        if not self.directed:
            return self.row, self.col
        code = torch.cat([self._codes, self.col * self.num_nodes + self.row]).unique()
        return code // self.num_nodes, code % self.num_nodes

    def degrees(self) -> Tensor:
        """(N, 1) degrees, or (N, 2) out- and in-degrees when directed; self loops not counted."""
        out = self.rowptr[1:] - self.rowptr[:-1]
        if not self.directed:
            return out[:, None]
        return torch.stack([out, torch.zeros_like(out).scatter_add_(0, self.col, torch.ones_like(self.col))], dim=1)


def repeat(values: Tensor, counts: Tensor, total: int) -> Tensor:
    """Each value as often as its count says; ``total`` (known on the host) spares a synchronisation."""
    return torch.repeat_interleave(values, counts, output_size=total)


def offsets(counts: tuple[int, ...], device: torch.device) -> Tensor:
    """(len + 1,) running sums of host integers, starting at 0, as one transfer."""
    sums = [0]
    for count in counts:
        sums.append(sums[-1] + count)
    if sums[-1] >= 1 << 63:
        raise TooLargeError(
            f"a batch of {sums[-1]:,} tuples: numbers beyond 2^63 cannot be counted. Use a lower order."
        )
    return torch.tensor(sums, dtype=torch.long, device=device)
