"""The graphs on which every claim about expressive power is checked: all small ones, and pairs that are known to be hard."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from torch_geometric.data import Data

from tuplet._extras import require
from tuplet.datasets import CSL_SKIPS, cfi, csl, rook, shrikhande
from tuplet.wl.api import distinguishes

CFI_BASES = {"K4": "C~", "3-sun": "E}Y_", "K5": "D~{"}
"""Base graphs in graph6. The 3-sun is a triangle with one more node on each side; their treewidths are 3, 2 and 4."""


@dataclass(frozen=True)
class Pair:
    """Two graphs that are not isomorphic.

    Args:
        name: of the pair.
        category: "strongly regular", "CFI" or "CSL".
        g, h: the graphs.
    """

    name: str
    category: str
    g: Data
    h: Data


def hard_pairs() -> list[Pair]:
    """Rook 4x4 / Shrikhande, CFI graphs of K4, the 3-sun and K5, and the 45 pairs of CSL classes; none is isomorphic."""
    pairs = [Pair("Rook 4x4 / Shrikhande", "strongly regular", rook(), shrikhande())]
    pairs += [Pair(f"CFI({name})", "CFI", *cfi(base)) for name, base in CFI_BASES.items()]
    graphs = csl()
    copies = len(graphs) // len(CSL_SKIPS)
    for (i, one), (j, other) in combinations(enumerate(CSL_SKIPS), 2):
        pairs.append(Pair(f"CSL({one}) / CSL({other})", "CSL", graphs[i * copies], graphs[j * copies]))
    return pairs


def atlas() -> list[Any]:
    """The 1,252 graphs with one to seven nodes as networkx graphs, no two of them isomorphic (Read and Wilson's atlas)."""
    networkx = require("networkx", "dev")
    return [graph for graph in networkx.graph_atlas_g() if len(graph)]


def witnesses(stronger: str, weaker: str, pairs: Iterable[Pair], dim: int | None = None) -> list[str]:
    """Names of the pairs that the first test tells apart and the second does not. ``dim`` is for SWL, if one is."""

    def apart(test: str, pair: Pair) -> bool:
        return distinguishes(test, pair.g, pair.h, dim=dim if test == "SWL" else None)

    return [pair.name for pair in pairs if apart(stronger, pair) and not apart(weaker, pair)]
