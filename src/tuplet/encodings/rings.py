"""Rings of a graph: its induced cycles of given lengths, as cells beyond simplices."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from tuplet.errors import TooLargeError
from tuplet.graphs import repeat

LIMIT = 20_000_000
"""Most paths that are looked at at once before the work is refused."""


def induced_cycles(row: Tensor, col: Tensor, num_nodes: int, lengths: Collection[int]) -> list[Tensor]:
    """The cycles without chords of an undirected graph, for each length L in increasing order an (R, L) tensor of nodes in turn.

    Each cycle comes once: from its smallest node, towards the smaller of that node's two neighbours on it. Induced paths
    are grown a node at a time, all at once; one whose last node knows the first has closed.

    Args:
        row, col: (E,) ends of the edges, both directions, sorted by (row, col).
        num_nodes: nodes of the whole batch.
        lengths: wanted lengths, from 3 on.
    """
    codes = row * num_nodes + col
    rowptr = torch.zeros(num_nodes + 1, dtype=torch.long, device=row.device)
    rowptr[1:] = torch.bincount(row, minlength=num_nodes).cumsum(0)
    paths = torch.stack([row, col], dim=1)[row < col]
    found = []
    for length in range(3, max(lengths, default=0) + 1):
        first = rowptr[paths[:, -1]]
        width = rowptr[paths[:, -1] + 1] - first
        total = int(width.sum())
        if total > LIMIT:
            raise TooLargeError(
                f"rings of length {length}: {total:,} candidates, above the limit of {LIMIT:,}. Use shorter rings."
            )
        path = repeat(torch.arange(len(paths), device=row.device), width, total)
        place = torch.arange(total, device=row.device) - (width.cumsum(0) - width)[path]
        fresh = col[first[path] + place]
        paths = torch.cat([paths[path], fresh[:, None]], dim=1)
        paths = paths[paths[:, -1] > paths[:, 0]]
        for column in range(1, length - 2):
            paths = paths[~_adjacent(codes, num_nodes, paths[:, column], paths[:, -1])]
        paths = paths[paths[:, -1] != paths[:, -3]]
        closed = _adjacent(codes, num_nodes, paths[:, 0], paths[:, -1])
        if length in lengths:
            found.append(paths[closed & (paths[:, 1] < paths[:, -1])])
        paths = paths[~closed]
    return found


def _adjacent(codes: Tensor, num_nodes: int, u: Tensor, v: Tensor) -> Tensor:
    wanted = u * num_nodes + v
    if codes.numel() == 0:
        return torch.zeros_like(wanted, dtype=torch.bool)
    return codes[torch.searchsorted(codes, wanted).clamp_(max=codes.numel() - 1)] == wanted
