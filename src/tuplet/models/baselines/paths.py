"""Which edges lie on the shortest path between two nodes, and how far along: what Graphormer's edge encoding reads.

The paper takes "one of the shortest paths" from i to j; which one depends on how nodes are numbered where there are several.
Here the path is random, drawn from i step by step, each time uniformly among the edges that lead closer to j, and its
expectation is taken: one path counts whole, several share, and renaming nodes changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tuplet.graphs import GraphBatch, repeat
from tuplet.models.baselines.pairs import Pairs

EDGES_AT_ONCE = 1 << 22
"""Edges that are looked at in one step, for all pairs that are followed together: some hundred megabytes."""


@dataclass(frozen=True)
class Paths:
    """M triples (pair, edge, step) with a weight each.

    Args:
        pair: (M,) row of the pair (i, j).
        place: (M,) edge · steps + number of the step from i at which the path takes the edge.
        weight: (M,) float64, probability of it over the number of edges read of the path: a pair's weights sum to 1.
    """

    pair: Tensor
    place: Tensor
    weight: Tensor

    @classmethod
    def prepare(cls, graph: GraphBatch, pairs: Pairs, distance: Tensor, steps: int) -> Paths:
        """The first ``steps`` edges of all shortest paths, from distances (P,) that are negative without a path."""
        apart = (distance > 0).nonzero()[:, 0]
        none = (apart[:0], apart[:0], torch.zeros(0, dtype=torch.float64, device=graph.device))
        found = [none]
        for some in _portions(graph, pairs, apart):
            found += _follow(graph, pairs, distance, steps, some)
        return cls(*(torch.cat(parts) for parts in zip(*found, strict=True)))


def _portions(graph: GraphBatch, pairs: Pairs, chosen: Tensor) -> tuple[Tensor, ...]:
    """The chosen pairs, so many at a time that a step looks at no more than ``EDGES_AT_ONCE`` edges, or one pair alone."""
    edges = graph.rowptr[graph.ptr[1:]] - graph.rowptr[graph.ptr[:-1]]
    number = edges[pairs.graph[chosen]].cumsum(0) // EDGES_AT_ONCE
    return chosen.split(torch.unique_consecutive(number, return_counts=True)[1].tolist())


def _follow(
    graph: GraphBatch, pairs: Pairs, distance: Tensor, steps: int, pair: Tensor
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """For some pairs, each step's pairs, places and weights, as ``Paths`` has them."""
    degree = graph.rowptr[1:] - graph.rowptr[:-1]
    here, share = pairs.first[pair], torch.ones_like(pair, dtype=torch.float64)
    found = []
    for step in range(steps):
        if len(pair) == 0:
            break
        many = degree[here]
        total = int(many.sum())
        number = torch.arange(total, device=graph.device)
        state = repeat(torch.arange(len(pair), device=graph.device), many, total)
        edge = graph.rowptr[here[state]] + number - (many.cumsum(0) - many)[state]
        there, whose = graph.col[edge], pair[state]
        left = distance[whose + (there - pairs.first[whose]) * pairs.n[pairs.graph[whose]]]
        closer = left == distance[whose] - step - 1
        state, edge, there, whose = state[closer], edge[closer], there[closer], whose[closer]
        share = share[state] / torch.bincount(state)[state]
        found.append((whose, edge * steps + step, share / distance[whose].clamp(max=steps)))
        # paths that meet again go on together, those that have arrived do not go on
        code, meet = torch.unique(whose * graph.num_nodes + there, return_inverse=True)
        share = torch.zeros_like(code, dtype=share.dtype).index_add(0, meet, share)
        pair, here = code // graph.num_nodes, code % graph.num_nodes
        ahead = distance[pair] > step + 1
        pair, here, share = pair[ahead], here[ahead], share[ahead]
    return found
