"""Strongly regular graphs with equal parameters: 2-FWL cannot tell them apart, 3-FWL can.

Parameters (16, 6, 2, 2): every node has 6 neighbours and every two nodes have 2 common ones. The neighbours of a node form two
triangles in the rook's graph and a circle of six in the Shrikhande graph; so only the rook's graph has cliques of four nodes.

Parameters (28, 12, 6, 4): the triangular graph T(8) and the three Chang graphs, which are T(8) with the edges between some
nodes and the rest exchanged for non-edges.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Data

from tuplet.errors import OptionError


def rook(side: int = 4) -> Data:
    """The rook's graph: squares of a board of ``side`` x ``side``, adjacent in one row or one column.

    Square (r, c) is node r * side + c. Strongly regular with parameters (side^2, 2 side - 2, side - 2, 2).
    """
    if isinstance(side, bool) or not isinstance(side, int) or side < 2:
        raise OptionError(f"side: expected an int of at least 2; came {side!r}")
    squares = torch.cartesian_prod(torch.arange(side), torch.arange(side))
    adjacent = (squares[:, None] == squares).sum(2) == 1
    return Data(edge_index=adjacent.nonzero().t().contiguous(), num_nodes=side * side)


def shrikhande() -> Data:
    """The Shrikhande graph: pairs of integers modulo 4, adjacent when they differ by ±(1, 0), ±(0, 1) or ±(1, 1).

    The pair (r, c) is node 4 r + c. S. S. Shrikhande, "The uniqueness of the L2 association scheme" (1959).
    """
    pairs = torch.cartesian_prod(torch.arange(4), torch.arange(4))
    difference = (pairs[:, None] - pairs) % 4
    steps = torch.tensor([(1, 0), (3, 0), (0, 1), (0, 3), (1, 1), (3, 3)])
    adjacent = (difference[:, :, None] == steps).all(3).any(2)
    return Data(edge_index=adjacent.nonzero().t().contiguous(), num_nodes=16)


def triangular(points: int = 8) -> Data:
    """The triangular graph T(points): pairs of points, adjacent when they share one. T(8) has the parameters (28, 12, 6, 4)."""
    if isinstance(points, bool) or not isinstance(points, int) or points < 3:
        raise OptionError(f"points: expected an int of at least 3; came {points!r}")
    adjacent, _ = _triangular(points)
    return Data(edge_index=adjacent.nonzero().t().contiguous(), num_nodes=len(adjacent))


def chang(number: int) -> Data:
    """The Chang graph 1, 2 or 3: T(8) switched on a perfect matching, an 8-cycle, or a triangle and a 5-cycle of the 8 points.

    Li-Chien Chang, "Association schemes of partially balanced designs with parameters v = 28, n1 = 12, n2 = 15 and p11 = 4" (1960).
    """
    if number not in _SWITCHED:
        raise OptionError(f"number: expected 1, 2 or 3; came {number!r}")
    adjacent, pairs = _triangular(8)
    inside = torch.tensor([tuple(pair) in _SWITCHED[number] for pair in pairs.tolist()])
    crossing = inside[:, None] != inside
    return Data(edge_index=(adjacent ^ crossing).nonzero().t().contiguous(), num_nodes=28)


def _triangular(points: int) -> tuple[Tensor, Tensor]:
    """Adjacency of the triangular graph, and the pair (u < v) that each node is."""
    pairs = torch.combinations(torch.arange(points))
    shared = (pairs[:, None, :, None] == pairs[None, :, None, :]).sum((2, 3))
    return shared == 1, pairs


_SWITCHED = {
    1: {(0, 1), (2, 3), (4, 5), (6, 7)},
    2: {(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 7), (0, 7)},
    3: {(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (5, 6), (6, 7), (3, 7)},
}
"""Pairs of points (nodes of T(8)) on one side of the switching."""
