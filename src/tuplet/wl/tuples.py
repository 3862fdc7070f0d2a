"""Weisfeiler-Leman tests on k-tuples of nodes: k-WL, k-FWL, delta-k-WL, delta-k-LWL, delta-k-LWL+.

C^0(v) is the ordered isomorphism type of the tuple v: which entries are equal, labels of nodes, and for every two places
the edges between the entries with direction and label. Write psi_j(v, u) for v with u in place j, N(w) for the
neighbours of w, {{..}} for multisets, and kind(w, u) for the edges between w and u (none, or direction and label). Then
C^(t+1)(v) = (C^t(v), M^t(v)) with

    k-WL            M(v) = ({{C(psi_j(v, u)) : u in V}}                      : j = 1..k)
    k-FWL           M(v) = {{(C(psi_1(v, u)), .., C(psi_k(v, u)))             : u in V}}
    delta-k-WL      M(v) = ({{(C(psi_j(v, u)), kind(v_j, u)) : u in V}}       : j = 1..k)
    delta-k-LWL     M(v) = ({{(C(psi_j(v, u)), kind(v_j, u)) : u in N(v_j)}}  : j = 1..k)
    delta-k-LWL+    the same, with #_j(v, psi_j(v, u)) as a third entry: how many w in V have
                    C(psi_j(v, w)) = C(psi_j(v, u)).

At k = 1 the first two formulas contain no edge; 1-WL and 1-FWL mean colour refinement, which is delta-1-LWL.

k-WL and k-FWL as in Maron et al., "Provably Powerful Graph Networks" (NeurIPS 2019) and the paper, appendix B; the
delta tests are from Morris, Rattan and Mutzel, "Weisfeiler and Leman go sparse" (NeurIPS 2020), where kind(w, u) is
whether the two are adjacent; for labelled and directed graphs we let it say how. A directed neighbour is one by an edge
in, out, or both ways, and these are three kinds.

Two observations make all but k-FWL cost O(n^k) a round, up to a factor of the mean degree and logarithms. The
multiset of k-WL is the same for all tuples of a line (those that differ in place j only). And that of delta-k-WL says
as much as the one of k-WL and the local one together, because non-neighbours are what is left of the line.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np

from tuplet.graphs import GraphBatch
from tuplet.wl.labels import Labels, read_labels
from tuplet.wl.memory import refuse_if_too_large
from tuplet.wl.name import WLTest
from tuplet.wl.rank import Array, pack, rank, rank_multisets, starts

BYTES_A_TUPLE = 80
"""Peak of a round: colours old and new, an order and what is being sorted."""
BYTES_A_LOCAL_TUPLE = 144
"""The same where neighbours are looked up: the entry of each tuple, its node, degree and counts as well."""
BYTES_A_COLUMN = 8
"""A tuple's messages, a number for each place."""
BYTES_AN_EDGE = 48
"""Neighbours, their kinds, and what it takes to find them."""
ENDLESS = 10**18
"""Tuples beyond which nobody counts."""
SECONDS_AN_ELEMENT = 1.5e-7
"""Of one core, for a colour of a line or of a neighbour; a colour of a folklore vector takes a tenth, without lookups."""


@dataclass(frozen=True)
class Numbering:
    """k-tuples of the graphs of a batch as numbers: first tuple of the graph + mixed radix in base n, last place fastest.

    Args:
        k: order.
        sizes: (G,) nodes of each graph.
    """

    k: int
    sizes: Array

    @cached_property
    def first(self) -> Array:
        """(G+1,) first tuple of each graph."""
        return starts(self.sizes**self.k)

    @property
    def total(self) -> int:
        return int(self.first[-1])

    def split(self, tuples: Array, place: int) -> tuple[Array, Array, Array, Array]:
        """Of each tuple: its graph, the entry at the place, the stride of the place, and the tuple with entry 0 there."""
        graph = np.searchsorted(self.first, tuples, side="right") - 1
        n = self.sizes[graph]
        stride = n ** (self.k - 1 - place)
        entry = (tuples - self.first[graph]) // stride % n
        return graph, entry, stride, tuples - entry * stride


class TupleRefinement:
    """One of the tests above on all tuples of a batch.

    Args:
        test: which.
        batch: checked graphs.
    """

    def __init__(self, test: WLTest, batch: GraphBatch) -> None:
        self.test = test
        self._refuse_if_too_large(batch)
        self.sizes = np.array(batch.sizes, dtype=np.int64)
        self.numbering = Numbering(test.k, self.sizes)
        self.labels: Labels = read_labels(batch)
        self.first_node = starts(self.sizes)

    @property
    def counts(self) -> Array:
        """(G,) tuples of each graph."""
        return self.sizes**self.test.k

    def initial(self) -> tuple[Array, int]:
        """(T,) ranks of the isomorphism types, and their number."""
        tuples = np.arange(self.numbering.total)
        colors, count = np.zeros(len(tuples), np.int64), 1
        entries = []
        for place in range(self.test.k):
            graph, entry, _, _ = self.numbering.split(tuples, place)
            colors, count = rank(colors, self.labels.node[self.first_node[graph] + entry])
            entries.append(entry)
        if self.test.k > 1:
            kinds, first_pair = self._pairs(), starts(self.sizes**2)[graph]
            for one, other in combinations(entries, 2):
                colors, count = rank(colors, kinds[first_pair + one * self.sizes[graph] + other])
        return colors, count

    def _pairs(self) -> Array:
        """(sum of n^2,) kind of every ordered pair of nodes of a graph; the pair of a node and itself is one more."""
        row, labels = self.labels.row, self.labels
        graph = np.repeat(np.arange(len(self.sizes)), self.sizes)
        n, first = self.sizes[graph], starts(self.sizes**2)[graph]
        nodes = np.arange(len(graph)) - self.first_node[graph]
        kinds = np.zeros(int((self.sizes**2).sum()), np.int64)
        kinds[first[row] + nodes[row] * n[row] + nodes[labels.col]] = labels.kind
        kinds[first + nodes * (n + 1)] = labels.kinds
        return kinds

    def messages(self, colors: Array, count: int) -> list[Array]:
        """Columns (T,) that together are equal exactly where M(v) is, for tuples that share a colour."""
        columns = []
        # a tuple that is alone in its class has nothing left to be told apart from
        alone = np.bincount(colors, minlength=count)[colors] == 1
        tuples = np.flatnonzero(~alone)
        if self.test.folklore:
            columns.append(self._spread(tuples, self._through_all_nodes(colors, count, tuples)))
        for place in range(self.test.k):
            if self.test.lines:
                columns.append(self._along_line(colors, place))
            if self.test.local:
                columns.append(self._spread(tuples, self._from_neighbours(colors, count, place, tuples)))
        return columns

    def _spread(self, tuples: Array, values: Array) -> Array:
        column = np.zeros(self.numbering.total, np.int64)
        column[tuples] = values
        return column

    def _along_line(self, colors: Array, place: int) -> Array:
        """(T,) rank of {{C(psi_j(v, u)) : u in V}}: lines are ranked, and a tuple takes the rank of its line."""
        k = self.test.k
        first_line = starts(self.sizes ** (k - 1))
        graph = np.repeat(np.arange(len(self.sizes)), self.sizes ** (k - 1))
        n = self.sizes[graph]
        stride = n ** (k - 1 - place)
        high, low = np.divmod(np.arange(len(graph)) - first_line[graph], stride)
        heads = self.numbering.first[graph] + high * n * stride + low

        def values(lines: Array, length: int) -> list[Array]:
            return [colors[heads[lines][:, None] + np.arange(length) * length ** (k - 1 - place)]]

        ranks, _ = rank_multisets(n, values)
        column = np.empty(self.numbering.total, np.int64)
        for size in np.unique(self.sizes).tolist():
            lines = n == size
            column[heads[lines][:, None] + np.arange(size) * size ** (k - 1 - place)] = ranks[lines][:, None]
        return column

    def _from_neighbours(self, colors: Array, count: int, place: int, tuples: Array) -> Array:
        """Rank of {{(C(psi_j(v, u)), kind(v_j, u)) : u in N(v_j)}} of the given tuples, with #_j where it is counted."""
        if self.test.counted:
            everything = np.arange(self.numbering.total)
            classes, number = rank(self.numbering.split(everything, place)[3], colors)
            colors, count = rank(colors, np.bincount(classes, minlength=number)[classes])
        labels = self.labels
        graph, entry, _, _ = self.numbering.split(tuples, place)

        def values(rows: Array, length: int) -> list[Array]:
            chosen = tuples[rows]
            graph, entry, stride, _ = self.numbering.split(chosen, place)
            node = self.first_node[graph] + entry
            places = labels.rowptr[node][:, None] + np.arange(length)
            moved = chosen[:, None] + (labels.col[places] - node[:, None]) * stride[:, None]
            return pack([labels.kind[places], colors[moved]], [labels.kinds, count])

        return rank_multisets(labels.degree[self.first_node[graph] + entry], values)[0]

    def _through_all_nodes(self, colors: Array, count: int, tuples: Array) -> Array:
        """Rank of {{(C(psi_1(v, u)), .., C(psi_k(v, u))) : u in V}} of the given tuples."""
        graph = np.searchsorted(self.numbering.first, tuples, side="right") - 1

        def values(rows: Array, length: int) -> list[Array]:
            columns = []
            for place in range(self.test.k):
                start = self.numbering.split(tuples[rows], place)[3]
                columns.append(colors[start[:, None] + np.arange(length) * length ** (self.test.k - 1 - place)])
            return pack(columns, [count] * self.test.k)

        return rank_multisets(self.sizes[graph], values)[0]

    def present(self, colors: Array, graph: int) -> Any:
        """The colours of one graph as an array of shape (n,)*k."""
        first = self.numbering.first
        return colors[first[graph] : first[graph + 1]].reshape((int(self.sizes[graph]),) * self.test.k)

    def _refuse_if_too_large(self, batch: GraphBatch) -> None:
        test, k, n = self.test, self.test.k, max(batch.sizes)
        tuples = min(sum(size**k for size in batch.sizes), ENDLESS)
        counted = f"{tuples:,}" if tuples < ENDLESS else f"over {ENDLESS:.0e}"
        degree = 1 + batch.num_edges // batch.num_nodes
        columns = k * (test.lines + test.local) + test.folklore
        held = (BYTES_A_LOCAL_TUPLE if test.local else BYTES_A_TUPLE) + BYTES_A_COLUMN * columns
        elements = k * tuples * (test.lines + test.local * degree + test.folklore * n / 10)
        refuse_if_too_large(
            test.name,
            held * tuples + BYTES_AN_EDGE * batch.num_edges,
            tuples * (n if test.folklore or test.lines else degree),
            SECONDS_AN_ELEMENT * elements,
            f"{batch.num_graphs} graph(s) of at most n = {n} nodes have {counted} tuples of order k = {k}, n^k a graph",
            "Use a lower k, or fewer graphs at a time.",
        )
