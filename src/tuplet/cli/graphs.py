"""``tuplet wl`` and ``tuplet expressivity``: which graphs does a test, or a model, tell apart?"""

from __future__ import annotations

from collections import Counter
from textwrap import fill
from typing import Any

from tuplet._values import guess
from tuplet.cli.table import align
from tuplet.errors import InputError, OptionError
from tuplet.graphs.files import read_graphs


def run_wl(test: str, sources: list[str], dim: int | None, rounds: int | None, directed: bool) -> int:
    """Compare two graphs, or sort all graphs of a file into classes."""
    from tuplet import wl

    if len(sources) > 2:
        raise OptionError(f"wl: expected one file or two graphs; came {len(sources)}")
    graphs = [read_graphs(source, directed) for source in sources]
    if len(sources) == 2 and any(len(some) != 1 for some in graphs):
        counts = " and ".join(f"{len(some)} in {source}" for some, source in zip(graphs, sources, strict=True))
        raise InputError("graphs", "one graph in each of two files", counts, "One file alone is sorted into classes.")
    together = [graph for some in graphs for graph in some]
    found = wl.compare(test, together, dim=dim, rounds=rounds, directed=directed)
    if len(sources) == 2:
        print(f"{found.test} {'separates the two graphs' if found.separated else 'does not separate the two graphs'}")
    else:
        members = Counter(found.partition.tolist())
        print(f"{found.test}: {len(found.partition)} graph(s) in {len(members)} class(es)")
        shown = [(str(name), str(count), _listed(found.partition.tolist(), name)) for name, count in members.items()]
        print(align(("class", "graphs", "which (numbered from 0)"), shown, right=(0, 1)))
    rows = [
        (str(number), str(colors), str(classes))
        for number, (colors, classes) in enumerate(zip(found.history, found.class_history, strict=True))
    ]
    print(f"\n{'stable' if found.stable else 'stopped'} after {found.rounds} round(s)")
    print(align(("round", "colours", "classes of graphs"), rows, right=(0, 1, 2)))
    return 0


def _listed(classes: list[int], name: int, most: int = 12) -> str:
    numbers = [str(place) for place, found in enumerate(classes) if found == name]
    return ", ".join(numbers[:most]) + (", .." if len(numbers) > most else "")


def run_expressivity(model: str, pairs: str | None, draws: int, settings: list[str]) -> int:
    """The table by category beside the matching test, and where model and theory disagree."""
    from tuplet.theory.power import expressivity

    found = expressivity(model, pairs, draws, **options_of(settings))
    rows = [
        (category, str(count), str(separated), "-" if tested is None else str(tested))
        for category, count, separated, tested in found.by_category()
    ]
    test = "no test" if found.bound is None else str(found.bound)
    print(align(("category", "pairs", f"{model} separates", f"{test} separates"), rows, right=(1, 2, 3)))
    print(
        f"\n{found.draws} draws of weights, float64. Outputs differ if they differ by more than {found.threshold:.1e} of the largest "
        "one: 100 times\nwhat relabelling the nodes of the same graphs changes."
    )
    if found.bound is None:
        print("Theory has no test that bounds this model.")
        return 0
    print(f"Contradictions with theory: {len(found.contradictions) or 'none'}")
    for verdict in found.contradictions:
        said = "separates" if verdict.separated else "does not separate"
        print(
            f"  {verdict.pair.name} ({verdict.pair.category}): {model} {said} it, by {verdict.gap:.1e} of the threshold"
        )
    if found.bound.reached:
        print(f"{found.bound} is an upper bound, and theory says that random weights reach it.")
        return 0
    missed = sum(bool(verdict.bound) and not verdict.separated for verdict in found.verdicts)
    sentence = f"{found.bound} is an upper bound; {model} misses {missed} pair(s) that it separates."
    print(fill(f"{sentence} {found.bound.shortfall}", 120))
    return 0


def options_of(settings: list[str], flag: str = "--set") -> dict[str, Any]:
    """key=value words as options, with values as they look; a word that an option of models knows is that word."""
    from tuplet.models.config import CHOICES

    options: dict[str, Any] = {}
    for setting in settings:
        key, sign, value = setting.partition("=")
        if not sign or not key:
            raise OptionError(f"{flag}: expected key=value; came {setting!r}")
        options[key] = value if value in CHOICES.get(key, ()) else guess(value)
    return options
