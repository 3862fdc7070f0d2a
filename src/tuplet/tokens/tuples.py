"""k-tuples of nodes as tokens: all of them, implicit in their numbering, or a sample."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from tuplet.errors import InputError
from tuplet.graphs import GraphBatch, offsets, remembered
from tuplet.tokens.base import Tokens


@dataclass(frozen=True)
class Tuples(Tokens):
    """The tokens of a batch of graphs: T ordered k-tuples, graph after graph.

    All k-tuples are implicit: the token (i_1..i_k) of graph g has the number ``ptr[g]`` + the mixed-radix number of
    its entries in base n_g, so that axis j is a stride of n_g^(k-j) and nothing of size T·k exists. A sample keeps its
    tuples in ``nodes``.

    Args:
        order: k.
        nodes: (T, k) node numbers within the graph, or None for all k-tuples.
    """

    order: int
    nodes: Tensor | None = None

    @classmethod
    def all(cls, graph: GraphBatch, order: int) -> Tuples:
        """All n^k tuples of every graph."""
        return cls(graph, graph.offsets(order), graph.total(order), graph.largest**order, order)

    @classmethod
    def sampled(cls, graph: GraphBatch, order: int) -> Tuples:
        """The tuples that came with the batch in ``tuples``."""
        if graph.tuples is None or graph.tuple_counts is None:
            raise InputError("tuples", f"sampled tuples of shape (S, {order})", "a batch without any")
        if graph.tuples.shape[1] != order:
            raise InputError("tuples", f"shape (S, {order})", f"shape {tuple(graph.tuples.shape)}")
        counts = graph.tuple_counts
        ptr = offsets(counts, graph.device)
        sample = cls(graph, ptr, len(graph.tuples), max(counts), order, graph.tuples)
        if torch.unique(sample.code(tuple(range(order)))).numel() < sample.total:
            raise InputError("tuples", "different tuples in a sample", "the same tuple more than once")
        return sample

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Tokens of each graph, on the host."""
        if self.nodes is not None and self.graph.tuple_counts is not None:
            return self.graph.tuple_counts
        return tuple(n**self.order for n in self.graph.sizes)

    @remembered
    def stride(self, axis: int) -> Tensor:
        """(G,) distance in the numbering between tuples that differ by one at ``axis`` (all tuples only)."""
        return self.graph.n ** (self.order - 1 - axis)

    @remembered
    def entry(self, axis: int) -> Tensor:
        """(T,) the tuples' entries at ``axis``, numbered within their graph."""
        if self.nodes is not None:
            return self.nodes[:, axis]
        n, place = self._n_of_token, self.graph.spread(self.order)[1]
        digits = place if axis == self.order - 1 else place // self.stride_of_token(axis)
        return digits if axis == 0 else digits % n

    @cached_property
    def graph_of_token(self) -> Tensor:
        return self.graph.spread(self.order)[0] if self.nodes is None else super().graph_of_token

    @cached_property
    def _first_node(self) -> Tensor:
        """(T,) first node of the graph of each token."""
        return self.graph.ptr[self.graph_of_token]

    @cached_property
    def _n_of_token(self) -> Tensor:
        return self.graph.n[self.graph_of_token]

    @remembered
    def stride_of_token(self, axis: int) -> Tensor:
        """(T,) the stride of ``axis`` in the graph of each token (all tuples only)."""
        power = self.order - 1 - axis
        return self._n_of_token if power == 1 else self._n_of_token**power

    @remembered
    def node(self, axis: int) -> Tensor:
        """(T,) the tuples' entries at ``axis``, numbered over the batch."""
        return self.entry(axis) + self._first_node

    @cached_property
    def node_bounds(self) -> tuple[Tensor, Tensor]:
        """(N,) where the tuples of each node begin and end when they stand by their entry at a place (all tuples only)."""
        owner = self.graph.graph_of_node
        each = self.stride(0)[owner]
        begin = self.ptr[owner] + self.graph.place_of_node * each
        return begin, begin + each

    @cached_property
    def of_nodes(self) -> Tensor:
        """(N,) the tuple (i, .., i) of each node i; of padding any of its tuples (all tuples only)."""
        graph = self.graph
        owner, n = graph.graph_of_node, graph.n[graph.graph_of_node]
        return self.ptr[owner] + graph.place_of_node * sum(n**power for power in range(self.order))

    @remembered
    def by_entry(self, axis: int) -> Tensor:
        """(T,) the tuple at each place when tuples stand by their entry at ``axis``, then by the others; of padding any
        (all tuples only)."""
        # digit m of a place is digit moved[m] of the tuple
        moved = (axis, *(place for place in range(self.order) if place != axis))
        return self.code(tuple(moved.index(place) for place in range(self.order)))

    @remembered
    def code(self, axes: tuple[int, ...]) -> Tensor:
        """(T,) the number that the sub-tuple at ``axes`` has among all tuples of its order: equal exactly when they are."""
        base = self.graph.offsets(len(axes))
        graph = self.graph_of_token
        if not axes:
            return base[graph]
        local = self.entry(axes[0])
        for axis in axes[1:]:
            local = local * self._n_of_token + self.entry(axis)
        return base[graph] + local

    def tolist(self) -> list[tuple[int, tuple[int, ...]]]:
        entries = torch.stack([self.entry(axis) for axis in range(self.order)], dim=1)
        owners = self.graph_of_token.tolist()
        return [(owner, tuple(row)) for owner, row in zip(owners, entries.tolist(), strict=True)]
