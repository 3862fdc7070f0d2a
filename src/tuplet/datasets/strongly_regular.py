"""Two strongly regular graphs with the parameters (16, 6, 2, 2): 2-FWL cannot tell them apart, 3-FWL can.

In both, every node has 6 neighbours and every two nodes have 2 common ones. The neighbours of a node form two triangles in
the rook's graph and a circle of six in the Shrikhande graph; so only the rook's graph has cliques of four nodes.
"""

from __future__ import annotations

import torch
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
