"""All ordered pairs of nodes of a batch: flat and ragged, and as stacks of square matrices where products need them.

The pair (i, j) of a graph of n nodes is row ``start + i·n + j``, as for ``Tuples`` of order 2 and encodings of pairs. Maps,
norms and sums work on these rows, so nothing is padded there. A product of matrices, or attention with a bias a pair,
takes graphs of similar size together: rows and columns beyond a graph's own are zeros or masked, and leave no trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from tuplet.graphs import GraphBatch, offsets, repeat

SMALLEST = 0.75
"""Least size of a graph in a stack, over that of the largest: no more than (4/3)² of the pairs are padding."""


@dataclass(frozen=True)
class Stack:
    """B graphs of at most m nodes.

    Args:
        pairs: (B, m, m) row of each pair; the number of all pairs where there is none.
        nodes: (B, m) node of each place; the number of all nodes where there is none.
        inside: (B, m) whether there is a node.
        graphs: (B,) which graphs.
    """

    pairs: Tensor
    nodes: Tensor
    inside: Tensor
    graphs: Tensor


@dataclass(frozen=True)
class Pairs:
    """The P = Σ n² pairs of a batch.

    Args:
        first, second: (P,) nodes i and j.
        mirrored: (P,) row of (j, i).
        diagonal: (N,) row of (i, i).
        outside: (P - N,) rows of the pairs of two nodes.
        graph, node_graph: (P,) and (N,) graph of each pair and of each node.
        n: (G,) nodes of each graph.
        stacks: the graphs as square matrices; empty where the model needs none.
        pair_places: (P,) where each pair is when the stacks are laid out flat one after the other; None without stacks.
        node_places: (N,) the same for nodes.
    """

    first: Tensor
    second: Tensor
    mirrored: Tensor
    diagonal: Tensor
    outside: Tensor
    graph: Tensor
    node_graph: Tensor
    n: Tensor
    stacks: tuple[Stack, ...] = ()
    pair_places: Tensor | None = None
    node_places: Tensor | None = None

    @classmethod
    def prepare(cls, graph: GraphBatch, stacked: bool) -> Pairs:
        device, sizes = graph.device, graph.sizes
        counts = tuple(n * n for n in sizes)
        total, start = sum(counts), offsets(counts, device)
        owner = repeat(torch.arange(len(sizes), device=device), start[1:] - start[:-1], total)
        n = graph.n[owner]
        local = torch.arange(total, device=device) - start[owner]
        i, j = local // n, local % n
        inner = torch.arange(graph.num_nodes, device=device) - graph.ptr[graph.graph_of_node]
        diagonal = start[graph.graph_of_node] + inner * (graph.n[graph.graph_of_node] + 1)
        stacks, corner, side = _stack(graph, start) if stacked else ((), None, None)
        pair_places = node_places = None
        if corner is not None and side is not None:
            pair_places = corner[0][owner] + i * side[owner] + j
            node_places = corner[1][graph.graph_of_node] + inner
        return cls(
            first=graph.ptr[owner] + i,
            second=graph.ptr[owner] + j,
            mirrored=start[owner] + j * n + i,
            diagonal=diagonal,
            outside=(i != j).nonzero()[:, 0],
            graph=owner,
            node_graph=graph.graph_of_node,
            n=graph.n,
            stacks=stacks,
            pair_places=pair_places,
            node_places=node_places,
        )


def group_by_size(sizes: Sequence[int]) -> list[list[int]]:
    """Numbers of the graphs that are stacked together, the largest of each stack first."""
    groups: list[list[int]] = []
    for number in sorted(range(len(sizes)), key=lambda number: -sizes[number]):
        if groups and sizes[number] >= SMALLEST * sizes[groups[-1][0]]:
            groups[-1].append(number)
        else:
            groups.append([number])
    return groups


def _stack(graph: GraphBatch, start: Tensor) -> tuple[tuple[Stack, ...], Tensor, Tensor]:
    """Stacks, (2, G) where each graph begins in them (pairs, nodes), and (G,) the side m of its stack."""
    device, sizes = graph.device, graph.sizes
    corner = [[0, 0] for _ in sizes]
    side = [0] * len(sizes)
    stacks, used = [], [0, 0]
    for group in group_by_size(sizes):
        m = sizes[group[0]]
        for nth, number in enumerate(group):
            corner[number] = [used[0] + nth * m * m, used[1] + nth * m]
            side[number] = m
        used = [used[0] + len(group) * m * m, used[1] + len(group) * m]
        members = torch.tensor(group, device=device)
        place, n = torch.arange(m, device=device), graph.n[members]
        inside = place < n[:, None]
        rows = start[members][:, None, None] + place[:, None] * n[:, None, None] + place
        rows = torch.where(inside[:, :, None] & inside[:, None, :], rows, sum(size * size for size in sizes))
        nodes = torch.where(inside, graph.ptr[members][:, None] + place, graph.num_nodes)
        stacks.append(Stack(rows, nodes, inside, members))
    return tuple(stacks), torch.tensor(corner, device=device).t(), torch.tensor(side, device=device)


def take(x: Tensor, rows: Tensor) -> Tensor:
    """Rows of ``x`` (R, c) at numbers of any shape, zeros where the number is R."""
    return F.embedding(rows, F.pad(x, (0, 0, 0, 1)))


def lay_down(parts: list[Tensor], places: Tensor | None) -> Tensor:
    """Back from stacks: for parts (.., c), one a stack, the rows that belong to a pair (or a node), in their order."""
    assert places is not None
    return F.embedding(places, torch.cat([part.flatten(0, -2) for part in parts]))
