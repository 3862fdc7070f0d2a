"""Ask a Weisfeiler-Leman test about graphs: its colours, whether it tells two apart, and into which classes many fall."""

from __future__ import annotations

from typing import Any

from tuplet.errors import InputError, OptionError
from tuplet.graphs import GraphBatch, read
from tuplet.graphs.door import Undirected
from tuplet.topology import clique_complex
from tuplet.wl.name import parse
from tuplet.wl.rank import Array
from tuplet.wl.refine import Refinement, System, refine
from tuplet.wl.simplices import SimplexRefinement
from tuplet.wl.tuples import TupleRefinement


def compare(
    test: str,
    graphs: Any,
    *,
    dim: int | None = None,
    rounds: int | None = None,
    directed: bool = False,
    undirected: Undirected = "require",
) -> Refinement:
    """Refine the colours of all graphs together and say what came of it.

    Labels of nodes and edges are the rows of ``x`` and ``edge_attr``: equal labels are rows of equal numbers.

    Args:
        test: "1-WL", "2-WL", "2-FWL", "delta-2-WL", "delta-2-LWL", "delta-2-LWL+", the same with other k, or "SWL". What
            they compute is written in ``tuplet.wl.tuples`` and ``tuplet.wl.simplices``.
        graphs: whatever ``tuplet.read`` takes: a graph, a list of graphs or a PyG ``Batch``.
        dim: for SWL, the highest dimension of the simplices of the clique complex.
        rounds: most rounds; the result then holds the colours of that round (or of the stable one, if it comes first).
        directed, undirected: as for ``tuplet.read``.
    """
    return refine(_system(test, dim, rounds, read(graphs, undirected=undirected, directed=directed)), rounds)


def colors(
    test: str,
    graph: Any,
    *,
    dim: int | None = None,
    rounds: int | None = None,
    directed: bool = False,
    undirected: Undirected = "require",
) -> Any:
    """Stable colours of one graph, or those of a given round: an array of shape (n,)*k; for SWL a dict simplex -> colour.

    A simplex is the tuple of its node numbers in ascending order. For colours that can be compared between graphs, use
    ``compare``. Arguments as there.
    """
    batch = read(graph, undirected=undirected, directed=directed)
    if batch.num_graphs != 1:
        raise InputError(
            "graph", "one graph", f"{batch.num_graphs}", "For several on one palette use tuplet.wl.compare."
        )
    return refine(_system(test, dim, rounds, batch), rounds).colors[0]


def distinguishes(
    test: str,
    g: Any,
    h: Any,
    *,
    dim: int | None = None,
    rounds: int | None = None,
    directed: bool = False,
    undirected: Undirected = "require",
) -> bool:
    """Whether the test tells two graphs apart: the histograms of their stable colours differ. Arguments as in ``compare``."""
    batch = read([g, h], undirected=undirected, directed=directed)
    return refine(_system(test, dim, rounds, batch), rounds, until_separated=True).separated


def partition(
    test: str,
    graphs: Any,
    *,
    dim: int | None = None,
    rounds: int | None = None,
    directed: bool = False,
    undirected: Undirected = "require",
) -> Array:
    """(G,) class numbers 0.., equal exactly for graphs that the test does not tell apart. Arguments as in ``compare``."""
    batch = read(graphs, undirected=undirected, directed=directed)
    return refine(_system(test, dim, rounds, batch), rounds, until_separated=True).partition


def _system(name: str, dim: int | None, rounds: int | None, batch: GraphBatch) -> System:
    test = parse(name, dim)
    if rounds is not None and (not isinstance(rounds, int) or isinstance(rounds, bool) or rounds < 0):
        raise OptionError(f"rounds: expected an int >= 0, or None for as many as it takes; came {rounds!r}")
    if test.dim is None:
        return TupleRefinement(test, batch)
    return SimplexRefinement(test, batch, clique_complex(batch, test.dim))
