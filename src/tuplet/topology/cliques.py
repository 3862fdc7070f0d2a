"""The clique (flag) complex of a graph: every set of pairwise adjacent nodes is a simplex."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tuplet.errors import OptionError, TooLargeError
from tuplet.graphs import GraphBatch, read, repeat
from tuplet.topology.complex import Complex

LIMIT = 5_000_000
"""Most simplices of one batch, over all dimensions, before the work is refused."""
_CANDIDATES = 1 << 20
"""Pairs (simplex, node that may extend it) that are looked at at once."""


def clique_complex(graph: Any, dim: int, limit: int = LIMIT) -> Complex:
    """The complex whose k-simplices are the (k+1)-cliques, for k up to ``dim``.

    Directions and self loops have no say: u and v are adjacent if there is an edge either way. Nodes are ranked by
    degree and each clique is grown from its lowest to its highest rank, so a clique is met once and hubs extend little.

    Args:
        graph: a checked batch, or whatever ``tuplet.read`` takes.
        dim: K.
        limit: refuse a complex with more simplices than this, before many more are made (2^20 at most).
    """
    dim = checked_dimension(dim)
    batch = graph if isinstance(graph, GraphBatch) else read(graph, directed=True)
    if dim == 0:
        return Complex.assemble([], batch.ptr)
    n = batch.num_nodes
    source, target = batch.undirected_edges()
    degree = torch.bincount(source, minlength=n)
    node = torch.argsort(degree, stable=True)  # node of each rank
    rank = torch.empty_like(node).scatter_(0, node, torch.arange(n, device=node.device))
    codes = (rank[source] * n + rank[target])[rank[source] < rank[target]].sort().values
    later = torch.stack([codes // n, codes % n], dim=1)  # (E, 2) edges from lower to higher rank
    rowptr = torch.zeros(n + 1, dtype=torch.long, device=node.device)
    rowptr[1:] = torch.bincount(later[:, 0], minlength=n).cumsum(0)
    levels = [later]
    _refuse_explosion([n, len(later)], limit)
    while len(levels) < dim:
        counts = [n, *map(len, levels)]
        levels.append(_extend(levels[-1], rowptr, later[:, 1], codes, counts, limit))
    return Complex.assemble([node[rows] for rows in levels], batch.ptr)


def checked_dimension(dim: Any) -> int:
    """A dimension as an int; anything else is refused."""
    if isinstance(dim, bool) or not hasattr(dim, "__index__") or dim < 0:
        raise OptionError(f"dim: expected an int of at least 0; came {dim!r}")
    return int(dim)


def _extend(rows: Tensor, rowptr: Tensor, col: Tensor, codes: Tensor, counts: list[int], limit: int) -> Tensor:
    """(S, k+2) cliques from (S', k+1) ones: each with the later neighbours of its last node that all others know too."""
    n = len(rowptr) - 1
    begin = rowptr[rows[:, -1]]
    width = rowptr[rows[:, -1] + 1] - begin
    sums = width.cumsum(0)
    found = [rows.new_empty(0, rows.shape[1] + 1)]
    first = made = 0
    while first < len(rows):
        before = int(sums[first - 1]) if first else 0
        end = max(first + 1, int(torch.searchsorted(sums, before + _CANDIDATES, right=True)))
        total = int(sums[end - 1]) - before
        simplex = repeat(torch.arange(first, end, device=rows.device), width[first:end], total)
        place = torch.arange(before, before + total, device=rows.device) - (sums - width)[simplex]
        extra = col[begin[simplex] + place]
        for column in range(rows.shape[1] - 1):
            wanted = rows[simplex, column] * n + extra
            at = torch.searchsorted(codes, wanted).clamp_(max=max(len(codes) - 1, 0))
            adjacent = codes[at] == wanted
            simplex, extra = simplex[adjacent], extra[adjacent]
        found.append(torch.cat([rows[simplex], extra[:, None]], dim=1))
        made += len(extra)
        _refuse_explosion([*counts, made], limit)
        first = end
    return torch.cat(found)


def _refuse_explosion(counts: list[int], limit: int) -> None:
    if sum(counts) > limit:
        listed = ", ".join(f"{count:,} of dimension {k}" for k, count in enumerate(counts))
        raise TooLargeError(
            f"clique complex: at least {sum(counts):,} simplices, above the limit of {limit:,}; it explodes at dimension "
            f"{len(counts) - 1} ({listed} so far). Use a lower dimension (a model: truncate=True, or fewer dimensions) or "
            "fewer graphs a batch."
        )
