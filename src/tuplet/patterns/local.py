"""Local neighbour attention A_k^LN (section 4.2, equation of the local neighbour; δ-k-LWL)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from tuplet.graphs import GraphBatch, repeat
from tuplet.patterns.base import Pattern, PlainGraph, Tuple
from tuplet.patterns.fused import Fused, FusedRows
from tuplet.patterns.relation import ONE_KIND, EdgeKinds
from tuplet.patterns.structure import Rows, Structure, Walk
from tuplet.tokens import Tuples


class LocalNeighbour(Pattern[Tuples]):
    """Group j of the tuple i: ψ_j(i, u) for the neighbours u of i_j (out-neighbours in a directed graph).

    Args:
        order: k.
        kinds: of edges, told apart by a pair's type; one kind of all, as in the paper, unless others are named.
    """

    def __init__(self, order: int, kinds: EdgeKinds = ONE_KIND) -> None:
        self.groups = order
        self.kinds = kinds
        self.types = kinds.count

    def keys(self, query: Tuple, group: int, graph: PlainGraph) -> Iterator[tuple[Tuple, int]]:
        a = query[group]
        for u in sorted(graph.out[a]):
            yield (*query[:group], u, *query[group + 1 :]), self.kinds.number(graph.features.get((a, u), ()))

    def _edge_types(self, graph: GraphBatch, typed: bool) -> Tensor:
        """(E,) types of pairs by the edge between the nodes exchanged; empty where all are alike."""
        return self.kinds.of_edges(graph) if typed and self.types > 1 else graph.col.new_empty(0)

    def layout(self, queries: Tuples, keys: Tuples, group: int, typed: bool, skip_self: bool = False) -> Walk | Rows:
        graph = queries.graph
        kinds = self._edge_types(graph, typed)
        if queries.nodes is None:
            first_node, stride = graph.ptr[:-1], queries.stride(group)
            return Walk(queries.ptr, stride, graph.n, first_node, graph.rowptr, graph.col, kinds, queries.total)
        node = queries.node(group)
        begin = graph.rowptr[node]
        counts = graph.rowptr[node + 1] - begin
        pairs = int(counts.sum())
        query = repeat(torch.arange(queries.total, device=graph.device), counts, pairs)
        edge = torch.arange(pairs, device=graph.device) + (begin - counts.cumsum(0) + counts)[query]
        # the neighbour's number among all k-tuples, looked up among those of the sample
        places = tuple(range(queries.order))
        stride = queries.stride(group)[queries.graph_of_token[query]]
        code = queries.code(places)
        wanted = code[query] + (graph.col[edge] - node[query]) * stride
        codes, order = torch.sort(code)
        found = torch.searchsorted(codes, wanted).clamp_(max=max(len(codes) - 1, 0))
        exists = codes[found] == wanted if pairs else torch.zeros(0, dtype=torch.bool, device=graph.device)
        kind = kinds[edge[exists]] if kinds.numel() else None
        return Rows.of(query[exists], order[found[exists]], queries.total, kind)

    def fused(self, queries: Tuples, keys: Tuples, typed: bool, joint: bool) -> tuple[Structure | Fused, ...]:
        if queries.nodes is not None:
            return super().fused(queries, keys, typed, joint)
        graph, axes = queries.graph, range(self.groups)
        nodes = [queries.node(axis) for axis in axes]
        strides = [queries.stride_of_token(axis) for axis in axes]
        kinds = self._edge_types(graph, typed)
        return (FusedRows.walk(graph.rowptr, graph.col, kinds, graph.directed, nodes, strides, joint),)

    def count_pairs(self, queries: Tuples, keys: Tuples) -> int:
        graph = queries.graph
        if queries.nodes is not None:
            degrees = graph.rowptr[1:] - graph.rowptr[:-1]
            return sum(int(degrees[queries.node(axis)].sum()) for axis in range(self.groups))
        # in all k-tuples of a graph each node stands n^(k-1) times at each place
        edges = graph.rowptr[graph.ptr].diff().tolist()
        sizes = zip(edges, queries.counts, graph.sizes, strict=True)
        return self.groups * sum(e * tokens // n for e, tokens, n in sizes)
