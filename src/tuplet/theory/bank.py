"""Random models against exact tests on whole banks of graphs: every pair is one that must be separated, or must not."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from tuplet import wl
from tuplet.datasets import CSL_SKIPS, csl
from tuplet.graphs.door import as_data
from tuplet.theory.check import Result
from tuplet.theory.separation import draw
from tuplet.wl.bank import atlas, hard_pairs

DRAWS = 3


@lru_cache(maxsize=4)
def small_graphs(nodes: int = 7) -> tuple[Data, ...]:
    """The graphs of the atlas with at most that many nodes."""
    return tuple(as_data(graph) for graph in atlas() if len(graph) <= nodes)


def largest(mutation: str | None) -> int:
    """How many nodes the graphs of the atlas have at most: all seven, or six where a fault is to be seen, which it is sooner."""
    return 7 if mutation is None else 6


@lru_cache(maxsize=4)
def hard_graphs(nodes: int = 41) -> tuple[Data, ...]:
    """Rook and Shrikhande, CFI graphs of K4, the 3-sun and K5, one graph of each CSL class; those with at most that many nodes."""
    copies = len(csl()) // len(CSL_SKIPS)
    graphs = [graph for pair in hard_pairs() if pair.category != "CSL" for graph in (pair.g, pair.h)]
    return tuple(graph for graph in (*graphs, *csl()[::copies]) if int(graph.num_nodes or 0) <= nodes)


def classes(test: str, graphs: Sequence[Any], rounds: int | None = None, dim: int | None = None) -> np.ndarray:
    """(G,) class of each graph under a test (after that many rounds).

    For SWL, ``dim`` is the highest dimension whose colours are counted; refinement runs on the complex up to dim + 1.
    """
    if test != "SWL":
        return wl.partition(test, list(graphs), rounds=rounds)
    assert dim is not None
    colors = wl.compare("SWL", list(graphs), dim=dim + 1, rounds=rounds).colors
    histograms = [tuple(sorted(color for simplex, color in each.items() if len(simplex) <= dim + 1)) for each in colors]
    number = {histogram: place for place, histogram in enumerate(dict.fromkeys(histograms))}
    return np.array([number[histogram] for histogram in histograms])


def largest_gaps(name: str, graphs: Sequence[Any], draws: int = DRAWS, **options: Any) -> torch.Tensor:
    """(G, G) largest difference over several draws of weights, in units of each draw's threshold."""
    gaps = [draw(name, graphs, seed, **options).gaps() for seed in range(draws)]
    return torch.stack(gaps).amax(0)


def exactly(name: str, graphs: Sequence[Any], expected: np.ndarray, draws: int = DRAWS, **options: Any) -> Result:
    """Whether a random model separates exactly the pairs of graphs that lie in different classes."""
    return judge(f"{name}{_said(options)}", largest_gaps(name, graphs, draws, **options), expected)


def judge(name: str, gaps: torch.Tensor, expected: np.ndarray) -> Result:
    """``exactly`` for gaps that are known already."""
    number = torch.from_numpy(np.asarray(expected))
    same = number[:, None] == number[None]
    upper = torch.ones_like(same).triu(1)
    must, must_not = ~same & upper, same & upper
    failures = []
    if bool((missed := must & (gaps < 1)).any()):
        failures.append(f"{name} does not separate {int(missed.sum())} of {int(must.sum())} pairs that it must")
    if bool((wrong := must_not & (gaps >= 1)).any()):
        failures.append(f"{name} separates {int(wrong.sum())} of {int(must_not.sum())} pairs that it must not")
    least = float(gaps[must].min()) if bool(must.any()) else 0.0
    most = float(gaps[must_not].max()) if bool(must_not.any()) else 0.0
    remark = f"{name}: smallest difference that counts {least:.0e}, largest that does not {most:.0e} of the threshold"
    return Result(int(must.sum()), int(must_not.sum()), most, tuple(failures), remark)


def merge(*results: Result, remark: str | None = None) -> Result:
    """Several results as one: cases add up, the worst error counts."""
    errors = [result.error for result in results if result.error is not None]
    return Result(
        sum(result.must for result in results),
        sum(result.must_not for result in results),
        max(errors, default=None),
        tuple(failure for result in results for failure in result.failures),
        "; ".join(result.remark for result in results if result.remark) if remark is None else remark,
    )


def expect(condition: bool, failure: str) -> Result:
    """A single yes or no as a result without cases of its own."""
    return Result(0, 0, None, () if condition else (failure,))


def _said(options: dict[str, Any]) -> str:
    return f" ({', '.join(f'{key}={value}' for key, value in options.items())})" if options else ""
