"""Which graphs can a model tell apart? Random weights on pairs of graphs, beside the Weisfeiler-Leman test that bounds them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tuplet.errors import InputError, OptionError
from tuplet.graphs.door import as_data
from tuplet.models import ModelConfig
from tuplet.theory.bank import classes
from tuplet.theory.separation import draw
from tuplet.wl.bank import Pair, hard_pairs


@dataclass(frozen=True)
class Bound:
    """The test that a model cannot go beyond.

    Args:
        test: its name.
        rounds: how many rounds of it; None for all.
        dim: of SWL, the highest dimension that is counted; the complex reaches one further.
        reached: whether theory says that random weights reach it (and not only that they stay below).
    """

    test: str
    rounds: int | None = None
    dim: int | None = None
    reached: bool = True

    def __str__(self) -> str:
        name = self.test if self.dim is None else f"SWL({self.dim + 1}), dimensions <= {self.dim}"
        return name if self.rounds is None else f"{name}, first colours"

    def separates(self, pair: Pair) -> bool:
        found = classes(self.test, [pair.g, pair.h], self.rounds, self.dim)
        return bool(found[0] != found[1])


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


def bound_of(config: ModelConfig) -> Bound | None:
    """The test that bounds a model (docs/theory.md says why); None for samples, cross-attention and index."""
    choices = config.choices
    counts = choices.kernel == "relu" or config.degrees
    if choices.dims is not None:
        low, high = choices.dims
        if low > 0 or (not choices.patterns and config.resolved_relation != "none"):
            return None
        if not choices.sparse:
            return Bound("SWL", 0, high)
        return None if config.truncate else Bound("SWL", None, high, reached=False)
    if choices.cross or choices.sample or choices.index:
        return None
    order = choices.orders[0]
    sparse = set(choices.sparse)
    if "Ngbh+" in sparse or {"Ngbh", "LN"} <= sparse:
        return Bound("1-WL" if order == 1 else f"delta-{order}-WL", reached=order > 1 or counts)
    if "LN" in sparse:
        return Bound(f"delta-{order}-LWL", reached=counts)
    if choices.basis or (sparse and order > 1):
        return Bound(f"{order}-WL")
    return Bound(f"{order}-WL", 0)


def expressivity(
    model: str, pairs: Iterable[Pair] | str | Path | None = None, draws: int = 3, **options: Any
) -> Expressivity:
    """Decide for each pair of graphs whether a model with random weights tells them apart.

    Weights are drawn several times, in float64; two outputs differ if their difference exceeds 100 times the largest
    difference that relabelling the nodes of any of the graphs causes in the same draw.

    Args:
        model: a name, as for ``tuplet.build``.
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
    bound = bound_of(ModelConfig.of(model, **options))
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
