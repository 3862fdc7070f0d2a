"""What a test is told about nodes and pairs, as small numbers that are shared by all graphs of a batch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from tuplet.graphs import GraphBatch
from tuplet.wl.rank import Array, rank, starts


@dataclass(frozen=True)
class Labels:
    """Labels of nodes, and the neighbours of each node with the kind of the pair.

    Two nodes have the same label exactly when their rows of ``x`` are equal and both, or neither, have a self loop (with
    equal features). Two ordered pairs (u, v) have the same kind exactly when the edges u -> v agree (present or not,
    features) and the edges v -> u do. Kind 0 is "no edge". A neighbour is joined by an edge in either direction.

    Args:
        node: (N,) label of each node.
        rowptr: (N+1,) first neighbour of each node.
        col: (A,) neighbours, ascending for each node, numbered over the batch.
        kind: (A,) kind of the pair (node, neighbour), 1..kinds-1.
        kinds: how many kinds there are, "no edge" included.
    """

    node: Array
    rowptr: Array
    col: Array
    kind: Array
    kinds: int

    @cached_property
    def degree(self) -> Array:
        return np.diff(self.rowptr)

    @cached_property
    def row(self) -> Array:
        """(A,) the node that each is a neighbour of."""
        return np.repeat(np.arange(len(self.node)), self.degree)

    def kind_of(self, u: Array, v: Array) -> Array:
        """Kinds of the pairs (u, v), each of which is adjacent."""
        n = len(self.node)
        return self.kind[np.searchsorted(self.row * n + self.col, u * n + v)]


def read_labels(batch: GraphBatch) -> Labels:
    """The labels of a checked batch."""
    edges = batch.num_edges
    loop = batch.loop.cpu().numpy()
    edge_label = _rows(batch.edge_attr, edges + int((loop >= 0).sum()))
    node, _ = rank(_rows(batch.x, batch.num_nodes), np.where(loop < 0, 0, _at(edge_label, loop) + 1))
    if not batch.directed:
        kind, kinds = rank(edge_label[:edges])
        return Labels(node, batch.rowptr.cpu().numpy(), batch.col.cpu().numpy(), kind + 1, kinds + 1)
    pairs = torch.cat([batch.row * batch.num_nodes + batch.col, batch.col * batch.num_nodes + batch.row]).unique()
    u, v = pairs // batch.num_nodes, pairs % batch.num_nodes
    there, back = batch.edge_number(u, v).cpu().numpy(), batch.edge_number(v, u).cpu().numpy()
    kind, kinds = rank(*(np.where(edge < 0, 0, _at(edge_label, edge) + 1) for edge in (there, back)))
    rowptr = starts(np.bincount(u.cpu().numpy(), minlength=batch.num_nodes))
    return Labels(node, rowptr, v.cpu().numpy(), kind + 1, kinds + 1)


def _rows(features: Tensor | None, rows: int) -> Array:
    """(rows,) ranks of the rows of features, equal exactly for rows of equal numbers."""
    if features is None or features.shape[1] == 0:
        return np.zeros(rows, np.int64)
    values = (features.double() if features.is_floating_point() else features).detach().cpu().numpy()
    return rank(*(np.unique(column, return_inverse=True)[1].astype(np.int64) for column in values.T))[0]


def _at(values: Array, places: Array) -> Array:
    """The values at places, anything where a place is -1."""
    return values[places] if len(values) else np.zeros(len(places), np.int64)
