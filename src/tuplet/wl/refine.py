"""Refine colours round by round, jointly over all graphs, until no class splits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tuplet.wl.name import WLTest
from tuplet.wl.rank import Array, rank, rank_multisets, starts


class System(Protocol):
    """What is coloured, by the numbers 0.. graph after graph, and what it is told in a round."""

    test: WLTest

    @property
    def counts(self) -> Array: ...

    def initial(self) -> tuple[Array, int]: ...

    def messages(self, colors: Array, count: int) -> list[Array]: ...

    def present(self, colors: Array, graph: int) -> Any: ...


@dataclass(frozen=True)
class Refinement:
    """What a test found out about graphs.

    Colours are numbers 0.. of one palette over all graphs. They depend on the graphs up to isomorphism only: renumbering
    nodes moves colours along with the tuples, and does not change them.

    Args:
        test: name of the test.
        colors: for each graph its colours after the last round: an array (n,)*k, or for SWL a dict simplex -> colour.
        rounds: rounds that were refined; if ``stable``, the first after which no class splits any more.
        stable: whether it was seen that another round splits no class (False where a limit came first).
        history: colours over all graphs after round 0, 1, .., ``rounds``.
        class_history: classes of graphs (by histograms of colours) after the same rounds.
        partition: (G,) class of each graph, numbered in order of first appearance; equal exactly for equal histograms.
    """

    test: str
    colors: list[Any]
    rounds: int
    stable: bool
    history: tuple[int, ...]
    class_history: tuple[int, ...]
    partition: Array

    @property
    def classes(self) -> int:
        """How many classes of graphs there are."""
        return self.class_history[-1]

    @property
    def separated(self) -> bool:
        """Whether all graphs are told apart from each other."""
        return self.classes == len(self.partition)

    @property
    def verdict(self) -> str:
        """One sentence."""
        graphs = len(self.partition)
        found = "told apart" if self.separated else f"{graphs} graphs fall in {self.classes} class(es)"
        end = "stable" if self.stable else "stopped"
        return f"{self.test}: {found}; {end} after {self.rounds} round(s) with {self.history[-1]} colours"


def refine(system: System, limit: int | None = None, until_separated: bool = False) -> Refinement:
    """Run a test.

    Args:
        system: tuples or simplices.
        limit: most rounds, None for as many as it takes.
        until_separated: stop as soon as all graphs are told apart. Colours only ever split, so they stay apart.
    """
    colors, count = system.initial()
    classes = _graph_classes(system, colors)
    history, class_history = [count], [int(classes.max()) + 1]
    stable = False
    while (limit is None or len(history) <= limit) and not (until_separated and class_history[-1] == len(classes)):
        finer, number = rank(colors, *system.messages(colors, count))
        if number == count:
            stable = True
            break
        colors, count = finer, number
        classes = _graph_classes(system, colors)
        history.append(count)
        class_history.append(int(classes.max()) + 1)
    return Refinement(
        test=system.test.name,
        colors=[system.present(colors, graph) for graph in range(len(classes))],
        rounds=len(history) - 1,
        stable=stable,
        history=tuple(history),
        class_history=tuple(class_history),
        partition=classes,
    )


def _graph_classes(system: System, colors: Array) -> Array:
    """(G,) classes of graphs with the same histogram of colours, numbered in order of first appearance."""
    counts = system.counts
    first = starts(counts)

    def values(graphs: Array, length: int) -> list[Array]:
        return [colors[first[graphs][:, None] + np.arange(length)]]

    ranks, _ = rank_multisets(counts, values)
    _, place, back = np.unique(ranks, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(place))[back]
