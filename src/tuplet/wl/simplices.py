"""The simplicial Weisfeiler-Leman test (SWL) on the clique complexes of graphs.

Bodnar et al., "Weisfeiler and Lehman Go Topological: Message Passing Simplicial Networks" (ICML 2021). A simplex s sees
its faces (one node less), its cofaces (one node more), the simplices with which it shares a face, and those with which it
shares a coface:

    C^(t+1)(s) = (C^t(s), {{C(f) : f face of s}}, {{C(c) : c coface of s}},
                  {{(C(r), C(f)) : r != s, f face of r and s}}, {{(C(r), C(c)) : r != s, c coface of r and s}})

C^0(s) is the dimension of s with the sorted labels of its nodes and the sorted kinds of its edges; without labels, its
dimension. So that direction counts, a node and an edge tell each other which end the node is: messages between a node
and its edge carry the kind of the ordered pair (node, other end), and so do messages over a shared node or edge, once for
each of the two simplices. In undirected graphs this says nothing that the colour of the edge does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from tuplet.graphs import GraphBatch
from tuplet.topology import Complex
from tuplet.wl.labels import Labels, read_labels
from tuplet.wl.memory import refuse_if_too_large
from tuplet.wl.name import WLTest
from tuplet.wl.rank import Array, pack, rank, rank_multisets, starts

BYTES_A_SIMPLEX = 96
BYTES_A_MESSAGE = 72
"""Receiver, sender, shared simplex and kinds of a message, and the sorting that brings messages to their receivers."""
SECONDS_A_MESSAGE = 5e-8
"""Of one core, in one round."""


@dataclass(frozen=True)
class Messages:
    """Who tells whom: the simplex ``r`` receives messages rowptr[r]..rowptr[r+1].

    Args:
        rowptr: (S+1,) first message of each simplex.
        parts: (A,) numbers of simplices whose colours a message consists of, one array a part.
        kind: (A,) what else the message says.
    """

    rowptr: Array
    parts: tuple[Array, ...]
    kind: Array

    @classmethod
    def of(cls, total: int, receiver: Array, parts: tuple[Array, ...], *kinds: Array) -> Messages:
        """Messages in any order, brought into the order of their receivers."""
        order = np.argsort(receiver, kind="stable")
        kind = rank(*kinds)[0]
        rowptr = starts(np.bincount(receiver, minlength=total))
        return cls(rowptr, tuple(part[order] for part in parts), kind[order])

    def rank(self, colors: Array, count: int) -> Array:
        """(S,) ranks of the multisets of messages."""
        kinds = int(self.kind.max(initial=0)) + 1

        def values(rows: Array, length: int) -> list[Array]:
            places = self.rowptr[rows][:, None] + np.arange(length)
            columns = [colors[part[places]] for part in self.parts]
            return pack([*columns, self.kind[places]], [count] * len(columns) + [kinds])

        return rank_multisets(np.diff(self.rowptr), values)[0]


class SimplexRefinement:
    """SWL on all simplices of a batch, numbered graph by graph, then by dimension, then lexicographically.

    Args:
        test: SWL, with its dimension.
        batch: checked graphs.
        simplices: their complex.
    """

    def __init__(self, test: WLTest, batch: GraphBatch, simplices: Complex) -> None:
        self.test = test
        self.labels: Labels = read_labels(batch)
        self.first_node = batch.ptr.cpu().numpy()
        self.nodes: list[Array] = [rows.cpu().numpy() for rows in simplices.simplices]
        graphs = [graph.cpu().numpy() for graph in simplices.graph_of]
        held = np.stack([np.bincount(graph, minlength=batch.num_graphs) for graph in graphs], axis=1)
        self.counts: Array = held.sum(axis=1)
        # simplices of a dimension stand graph after graph already; what is missing is what the other dimensions hold
        shift = starts(held.reshape(-1))[:-1].reshape(held.shape) - np.cumsum(held, axis=0) + held
        self.numbers: list[Array] = [
            np.arange(len(graph)) + shift[graph, dimension] for dimension, graph in enumerate(graphs)
        ]
        self.faces: list[Array] = [
            self.numbers[dimension - 1][faces.cpu().numpy()]
            for dimension, faces in enumerate(simplices.faces)
            if dimension > 0
        ]
        self._refuse_if_too_large()
        self.relations = self._relations()

    def _refuse_if_too_large(self) -> None:
        simplices, messages = int(self.counts.sum()), 0
        for faces in self.faces:
            shared = np.bincount(faces.reshape(-1), minlength=1)
            messages += faces.size * (faces.shape[1] + 1) + int((shared * (shared - 1)).sum())
        what = f"{simplices:,} simplices up to dimension {self.test.dim} exchange {messages:,} messages a round"
        held = BYTES_A_SIMPLEX * simplices + BYTES_A_MESSAGE * messages
        seconds, advice = SECONDS_A_MESSAGE * messages, "Use a smaller dim, or fewer graphs at a time."
        refuse_if_too_large(self.test.name, held, messages, seconds, what, advice)

    def _relations(self) -> list[Messages]:
        """Faces, cofaces, over a shared face, over a shared coface."""
        face, coface, role = self._incidences()
        total = int(self.counts.sum())
        down = Messages.of(total, coface, (face,), role)
        up = Messages.of(total, face, (coface,), role)
        one, other = _pairs_of_equal(face)
        lower = Messages.of(total, coface[one], (coface[other], face[one]), role[one], role[other])
        one, other = _pairs_of_equal(coface)
        upper = Messages.of(total, face[one], (face[other], coface[one]), role[one], role[other])
        return [down, up, lower, upper]

    def _incidences(self) -> tuple[Array, Array, Array]:
        """All pairs of a face and its coface, and the kind (node, other end) where these are a node and an edge."""
        face, coface, role = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for dimension, faces in enumerate(self.faces, start=1):
            face.append(faces.reshape(-1))
            coface.append(np.repeat(self.numbers[dimension], dimension + 1))
            if dimension == 1:
                ends = self.nodes[1]
                role.append(self.labels.kind_of(ends[:, ::-1].reshape(-1), ends.reshape(-1)))
            else:
                role.append(np.zeros(faces.size, np.int64))
        return np.concatenate(face), np.concatenate(coface), np.concatenate(role)

    def initial(self) -> tuple[Array, int]:
        """(S,) ranks of dimension, sorted node labels and sorted kinds of edges."""
        colors, total = np.zeros(int(self.counts.sum()), np.int64), 0
        for numbers, nodes in zip(self.numbers, self.nodes, strict=True):
            columns = [np.sort(self.labels.node[nodes], axis=1)]
            # an undirected edge has one kind; of a directed one the smaller names it, since each determines the other
            kinds = [
                np.minimum(self.labels.kind_of(nodes[:, a], nodes[:, b]), self.labels.kind_of(nodes[:, b], nodes[:, a]))
                for a, b in combinations(range(nodes.shape[1]), 2)
            ]
            if kinds:
                columns.append(np.sort(np.stack(kinds, axis=1), axis=1))
            ranks, count = rank(*np.concatenate(columns, axis=1).T)
            colors[numbers] = total + ranks
            total += count
        return colors, total

    def messages(self, colors: Array, count: int) -> list[Array]:
        """Columns (S,) that together are equal exactly where the four multisets are."""
        return [relation.rank(colors, count) for relation in self.relations]

    def present(self, colors: Array, graph: int) -> dict[tuple[int, ...], int]:
        """The colours of one graph: simplex (ascending node numbers) to colour."""
        first, end = self.first_node[graph : graph + 2]
        own: dict[tuple[int, ...], int] = {}
        for numbers, nodes in zip(self.numbers, self.nodes, strict=True):
            inside = slice(*np.searchsorted(nodes[:, 0], [first, end]))
            simplices = map(tuple, (nodes[inside] - first).tolist())
            own.update(zip(simplices, colors[numbers[inside]].tolist(), strict=True))
        return own


def _pairs_of_equal(values: Array) -> tuple[Array, Array]:
    """All ordered pairs of different places with equal values."""
    order = np.argsort(values, kind="stable")
    ranks = rank(values[order])[0]
    counts = np.bincount(ranks)
    repeated = counts[ranks]
    one = np.repeat(np.arange(len(order)), repeated)
    within = np.arange(len(one)) - np.repeat(starts(repeated)[:-1], repeated)
    other = starts(counts)[ranks[one]] + within
    different = one != other
    return order[one[different]], order[other[different]]
