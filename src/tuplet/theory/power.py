"""Which graphs can a model tell apart? Random weights on pairs of graphs, beside the Weisfeiler-Leman test that bounds them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from tuplet.encodings import SPD
from tuplet.errors import InputError, OptionError
from tuplet.graphs import read
from tuplet.graphs.door import as_data
from tuplet.models import ModelConfig
from tuplet.models.baselines import NAMES, BaselineConfig
from tuplet.theory.bank import classes
from tuplet.theory.separation import draw
from tuplet.wl.bank import Pair, hard_pairs

_SOFTMAX = (
    "The paper claims equality; softmax takes means, and reaches the test for certain with degrees as input "
    "(--set degree=true) or as -ReLU (tuplet theory ln ngbh+ swl)."
)
_BASELINE_SHORTFALLS = {
    "GCN": "GCN divides its sums by degrees: regular graphs with as many nodes look alike, whatever their degree.",
    "GAT": "GAT takes means over neighbours, which do not count them.",
    "GatedGCN": "GatedGCN takes means over neighbours; only the small number added to the sum of gates counts them, "
    "which shows in float64 and is lost in float32.",
    "Graphormer": "Graphormer takes means over all nodes: where all begin alike, distances change nothing, "
    "unless it has its virtual node (--set virtual_node=true).",
}


@dataclass(frozen=True)
class Bound:
    """The test that a model cannot go beyond.

    Args:
        test: its name.
        rounds: how many rounds of it; None for all.
        dim: of SWL, the highest dimension that is counted; the complex reaches one further.
        distances: whether the test is told the distance of every two nodes: it runs on ``with_distances`` of each graph.
        shortfall: why random weights may stay below the test, in a sentence; empty where theory says that they reach it.
    """

    test: str
    rounds: int | None = None
    dim: int | None = None
    distances: bool = False
    shortfall: str = ""

    @property
    def reached(self) -> bool:
        """Whether theory says that random weights reach the test (and not only that they stay below)."""
        return not self.shortfall

    def __str__(self) -> str:
        name = self.test if self.dim is None else f"SWL({self.dim + 1}), dimensions <= {self.dim}"
        name = f"{name} with distances" if self.distances else name
        return name if self.rounds is None else f"{name}, first colours"

    def separates(self, pair: Pair) -> bool:
        graphs = [with_distances(graph) if self.distances else graph for graph in (pair.g, pair.h)]
        found = classes(self.test, graphs, self.rounds, self.dim)
        return bool(found[0] != found[1])


def with_distances(graph: Data) -> Data:
    """The complete graph on the same nodes, each edge labelled with the distance of its ends (-1 without a path).

    Nodes keep their labels, and have one more: whether they have a self loop.

    1-WL on it is the generalised distance test of Zhang et al., "Rethinking the Expressive Power of GNNs via Graph
    Biconnectivity" (2023). It sees at least what 1-WL does, and at most what 2-FWL does, which finds distances itself.
    """
    known = read(graph)
    first, second = torch.ones(known.num_nodes, known.num_nodes).nonzero().t()
    others = first != second
    distance = SPD().compute(known)["pe_spd"]
    loop = (known.loop >= 0).long()[:, None]
    return Data(
        x=loop if known.x is None else torch.cat([known.x, loop], dim=1),
        edge_index=torch.stack([first, second])[:, others],
        edge_attr=distance[others],
    )


@dataclass(frozen=True)
class Verdict:
    """What came of one pair.

    Args:
        pair: the graphs.
        gap: largest difference of outputs over all draws, in units of the threshold; above 1 the model separates the pair.
        bound: whether the test separates it; None without a test.
    """

    pair: Pair
    gap: float
    bound: bool | None

    @property
    def separated(self) -> bool:
        return self.gap >= 1


@dataclass(frozen=True)
class Expressivity:
    """What a model tells apart.

    Args:
        model: its name.
        bound: the test beside it, None where theory has none.
        verdicts: one a pair.
        threshold: the largest relative difference that still counted as rounding, over all draws.
        draws: how many draws of weights.
    """

    model: str
    bound: Bound | None
    verdicts: tuple[Verdict, ...]
    threshold: float
    draws: int

    @property
    def contradictions(self) -> tuple[Verdict, ...]:
        """Pairs on which model and theory disagree: separated beyond the bound, or not although theory says so."""
        if self.bound is None:
            return ()
        reached = self.bound.reached
        return tuple(
            v for v in self.verdicts if (v.separated and not v.bound) or (reached and v.bound and not v.separated)
        )

    def by_category(self) -> list[tuple[str, int, int, int | None]]:
        """For each category: pairs, separated by the model, separated by the test."""
        rows = []
        for category in dict.fromkeys(verdict.pair.category for verdict in self.verdicts):
            some = [verdict for verdict in self.verdicts if verdict.pair.category == category]
            tested = None if self.bound is None else sum(bool(verdict.bound) for verdict in some)
            rows.append((category, len(some), sum(verdict.separated for verdict in some), tested))
        return rows


def bound_of(config: ModelConfig | BaselineConfig) -> Bound | None:
    """The test that bounds a model (docs/theory.md says why); None for samples, cross-attention, index and encodings."""
    if config.encodings:
        return None
    if isinstance(config, BaselineConfig):
        return _bound_of_baseline(config.name)
    choices = config.choices
    counts = choices.kernel == "relu" or config.degrees
    if choices.dims is not None:
        low, high = choices.dims
        if low > 0 or (not choices.patterns and config.resolved_relation != "none"):
            return None
        if not choices.sparse:
            return Bound("SWL", 0, high)
        return None if config.truncate else Bound("SWL", None, high, shortfall=_SOFTMAX)
    if choices.cross or choices.sample or choices.index:
        return None
    order = choices.orders[0]
    sparse = set(choices.sparse)
    if "Ngbh+" in sparse or {"Ngbh", "LN"} <= sparse:
        test = "1-WL" if order == 1 else f"delta-{order}-WL"
        return Bound(test, shortfall="" if order > 1 or counts else _SOFTMAX)
    if "LN" in sparse:
        return Bound(f"delta-{order}-LWL", shortfall="" if counts else _SOFTMAX)
    if choices.basis or (sparse and order > 1):
        return Bound(f"{order}-WL")
    return Bound(f"{order}-WL", 0)


def _bound_of_baseline(name: str) -> Bound:
    """1-WL for message passing, to which attention over all nodes adds nothing; more for distances and for pairs.

    Xu et al. (2019) for message passing, Maron et al. (2019) for PPGN, Chen et al. (2020) for 2-IGN, ``with_distances`` for
    Graphormer.
    """
    test = {"PPGN": "2-FWL", "2-IGN": "2-WL"}.get(name, "1-WL")
    return Bound(test, distances=name == "Graphormer", shortfall=_BASELINE_SHORTFALLS.get(name, ""))


def expressivity(
    model: str, pairs: Iterable[Pair] | str | Path | None = None, draws: int = 3, **options: Any
) -> Expressivity:
    """Decide for each pair of graphs whether a model with random weights tells them apart.

    Weights are drawn several times, in float64; two outputs differ if their difference exceeds 100 times the largest
    difference that relabelling the nodes of any of the graphs causes in the same draw.

    Args:
        model: a name, as for ``tuplet.build``: a transformer or a baseline.
        pairs: of graphs, or a file of them (``read_pairs``); None for the built-in bank.
        draws: of weights.
        options: of ``tuplet.build``.
    """
    if not isinstance(draws, int) or draws < 1:
        raise OptionError(f"draws: expected a positive int; came {draws!r}")
    given = hard_pairs() if pairs is None else pairs
    known = read_pairs(given) if isinstance(given, (str, Path)) else list(given)
    if not known:
        raise InputError("pairs", "at least one pair of graphs", "none")
    bound = bound_of((BaselineConfig if model in NAMES else ModelConfig).of(model, **options))
    graphs = [graph for pair in known for graph in (pair.g, pair.h)]
    drawn = [draw(model, graphs, seed, **options) for seed in range(draws)]
    gaps = np.array([[each.gap(2 * place, 2 * place + 1) for place in range(len(known))] for each in drawn]).max(0)
    verdicts = tuple(
        Verdict(pair, float(gap), None if bound is None else bound.separates(pair))
        for pair, gap in zip(known, gaps, strict=True)
    )
    return Expressivity(model, bound, verdicts, max(each.threshold for each in drawn), draws)


def read_pairs(path: str | Path) -> list[Pair]:
    """Pairs from a file: a line holds two graphs in graph6 and, if there is one, their category, separated by tabs."""
    pairs = []
    try:
        lines = Path(path).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("pairs", "a readable text file", f"{path}: {error}") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = line.split("\t")
        if len(parts) not in (2, 3):
            raise InputError(
                "pairs", "two graphs and an optional category, separated by tabs", f"line {number}: {line!r}"
            )
        try:
            g, h = as_data(parts[0].strip()), as_data(parts[1].strip())
        except InputError as error:
            raise InputError("pairs", "graphs in graph6", f"line {number}: {error}") from error
        category = parts[2].strip() if len(parts) == 3 else "all"
        pairs.append(Pair(f"line {number}", category, g, h))
    return pairs
