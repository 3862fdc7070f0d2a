"""Pairs of graphs after Cai, Fürer and Immerman that are hard to tell apart, made from any base graph.

Cai, Fürer and Immerman, "An optimal lower bound on the number of variables for graph identification" (Combinatorica
1992), in the reduced form without a node for each end of an edge (Fürer, "Weisfeiler-Lehman refinement requires at least
a linear number of iterations", ICALP 2001).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from tuplet.errors import InputError, TooLargeError
from tuplet.graphs import read

LIMIT = 10_000_000
"""Most edges of one of the two graphs, both directions counted."""


def cfi(base: Any) -> tuple[Data, Data]:
    """The untwisted and the twisted graph of a base; not isomorphic, yet alike to k-FWL for k below the treewidth.

    A base node of degree d becomes one node for each set of an even number of its edges: 2^(d-1) nodes (one if d = 0).
    Nodes of adjacent base nodes u and v are joined when both or neither of their sets contain the edge uv. In the
    twisted graph, at the first edge of the base and only there, they are joined when exactly one of the sets does; if the
    base is connected, another edge would give an isomorphic graph. Nodes are in the order of their base nodes.

    Args:
        base: one undirected graph without self loops and with at least one edge: networkx, graph6 or PyG. Its features are
            not looked at.
    """
    graph = read(base)
    if graph.num_graphs != 1:
        raise InputError("base", "one graph", f"{graph.num_graphs}")
    if bool((graph.loop >= 0).any()) or graph.num_edges == 0:
        raise InputError("base", "at least one edge and no self loops", "self loops" if graph.num_edges else "no edges")
    rowptr, col, row = graph.rowptr.tolist(), graph.col.tolist(), graph.row.tolist()
    degree = [end - start for start, end in pairwise(rowptr)]
    edges = sum(1 << (degree[u] + degree[v] - 2) for u, v in zip(row, col, strict=True) if u < v)
    if edges > LIMIT:
        raise TooLargeError(
            f"cfi: a base of {len(degree)} nodes and degrees up to {max(degree)} gives graphs of {edges:,} edges, above the "
            f"limit of {LIMIT:,}. Use a base of smaller degrees."
        )
    sets = [_even_sets(d) for d in degree]
    first = [0]
    for even in sets:
        first.append(first[-1] + len(even))
    straight: list[Tensor] = []
    twisted: list[Tensor] = []
    for edge, (u, v) in enumerate(zip(row, col, strict=True)):
        if u > v:
            continue
        back = rowptr[v] + col[rowptr[v] : rowptr[v + 1]].index(u)
        agree = sets[u][:, edge - rowptr[u]][:, None] == sets[v][:, back - rowptr[v]]
        shift = torch.tensor([first[u], first[v]])
        straight.append(agree.nonzero() + shift)
        twisted.append((agree if twisted else ~agree).nonzero() + shift)
    return _undirected(straight, first[-1]), _undirected(twisted, first[-1])


def _even_sets(degree: int) -> Tensor:
    """(2^(d-1), d) all subsets of d edges with an even number of elements, as rows of booleans."""
    masks = torch.arange(1 << degree)
    sets = ((masks[:, None] >> torch.arange(degree)) & 1).bool()
    return sets[sets.sum(1) % 2 == 0]


def _undirected(pairs: list[Tensor], nodes: int) -> Data:
    half = torch.cat(pairs).t()
    return Data(edge_index=torch.cat([half, half.flip(0)], dim=1).contiguous(), num_nodes=nodes)
