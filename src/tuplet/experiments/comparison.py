"""A table of the paper beside ours: one line a row, form of the softmax, number of epochs and settings, for each column."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuplet.experiments.outcomes import Outcome, departures
from tuplet.experiments.table import Column, Row, Table
from tuplet.experiments.verdict import verdict
from tuplet.training.summary import spread

NUMBERS = ("up to n", "parameters", "s/epoch", "peak memory")
HEADER = ("model", "softmax", "paper", "ours", "runs", "verdict", *NUMBERS, "device", "commit")
"""Columns of a comparison, as text."""


@dataclass(frozen=True)
class Line:
    """One line.

    Args:
        row: of the table.
        column: of the table.
        form: of the softmax; "" where there is one only.
        epochs: of a shortened or longer run; None for the planned ones.
        outcomes: of all its jobs, finished or not.
        settings: in which its jobs differ from what the table asks for today, with their values; usually none.
    """

    row: Row
    column: Column
    form: str = ""
    epochs: int | None = None
    outcomes: tuple[Outcome, ...] = ()
    settings: tuple[str, ...] = ()

    @property
    def finished(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.finished]

    @property
    def values(self) -> list[float]:
        """Our numbers in the paper's unit, one a finished run that has one."""
        found = [outcome.values.get(self.column.shows) for outcome in self.finished]
        numbers = [math.nan if value is None else self.column.scale * float(value) for value in found]
        return [number for number in numbers if not math.isnan(number)]

    @property
    def said(self) -> str:
        """What finished runs say themselves, as steps do."""
        return "; ".join(dict.fromkeys(outcome.values["said"] for outcome in self.finished if "said" in outcome.values))

    @property
    def lost(self) -> dict[str, int]:
        """How many runs have no number, by what became of them; no mean of the others can make up for them."""
        failed = sum("failed" in outcome.values for outcome in self.outcomes)
        counts = {"failed": failed, "not decided" if self.said else "undefined": len(self.finished) - len(self.values)}
        return {name: count for name, count in counts.items() if count}

    @property
    def ours(self) -> str:
        """Mean and standard deviation, or how far the runs are; of steps what they say."""
        if self.said:
            return self.said
        if not self.values:
            return "; ".join(dict.fromkeys(self._progress(outcome) for outcome in self.outcomes))
        mean, std = spread(self.values)
        published, digits = self.row.beside(self.column.key), self.column.digits
        if digits is None:
            digits = published.decimals if published is not None else _digits(mean)
        deviation = "" if math.isnan(std) else f" ± {std:.{digits}f}"
        return f"{mean:,.{digits}f}{deviation}"

    @property
    def runs(self) -> str:
        """How many have a number, and what is short of the plan."""
        if not self.outcomes:
            return ""
        lost = self.lost
        open_ = len(self.outcomes) - len(self.values) - sum(lost.values())
        missing = [f"{count} {name}" for name, count in [*lost.items(), ("unfinished", open_)] if count]
        text = ", ".join([str(len(self.values)), *missing])
        return ", ".join([text, *self.changes.values()])

    @property
    def changes(self) -> dict[str, str]:
        """In what its jobs are not those of the table: a word for it, and what exactly."""
        found = {}
        if self.epochs is not None:
            planned = self.outcomes[0].values.get("planned", math.inf)
            if self.epochs > planned:
                found["lengthened"] = f"{self.epochs} epochs instead of {planned}"
            else:
                found["shortened"] = f"{self.epochs} of {planned} epochs"
        if self.settings:
            found["other settings"] = ", ".join(self.settings)
        return found

    @property
    def verdict(self) -> str:
        """Against the paper; how it stands where there is nothing to compare."""
        published = self.row.beside(self.column.key)
        if not self.outcomes:
            return "adopted" if self.row.adopted else "not run"
        if self.lost:
            return ", ".join(self.lost)
        if not self.values:
            return "unfinished"
        if published is None:
            return "no number in the paper"
        if published.text in ("yes", "no"):
            same = bool(round(statistics.fmean(self.values))) == bool(published.mean)
            said = "as in the paper" if same else ("worse" if published.mean else "better")
            return "; ".join([*self.changes, said])
        return "; ".join([*self.changes, verdict(self.values, published, self.column.better)])

    def cells(self) -> list[str]:
        """As texts, under ``HEADER``."""
        published = self.row.beside(self.column.key)
        return [
            self.row.name,
            self.form,
            published.text if published is not None else "",
            self.ours,
            self.runs,
            self.verdict,
            _shown(self._fact("n"), "{:.0f}"),
            _shown(self._fact("parameters"), "{:,.0f}"),
            _shown(self._fact("seconds_per_epoch"), "{:.3g}"),
            _shown(self._fact("peak_memory_bytes"), "{:.2f} GB", 1e-9),
            ", ".join(self.devices),
            ", ".join(dict.fromkeys(commit for outcome in self.outcomes for commit in commits_of(outcome))),
        ]

    @property
    def devices(self) -> list[str]:
        """On which devices jobs ran, the one that most of them ran on first."""
        counts = Counter(device_of(outcome) for outcome in self.outcomes)
        return [device for device, _ in counts.most_common()]

    def _fact(self, name: str) -> float | None:
        """The median of a fact over all jobs that know it; where jobs ran on several devices, over those of the first of ``devices``."""
        own = [outcome.values for outcome in self.outcomes if device_of(outcome) == self.devices[0]]
        found = [values[name] for values in own if values.get(name) is not None]
        return statistics.median(found) if found else None

    def _progress(self, outcome: Outcome) -> str:
        values = outcome.values
        if "failed" in values:
            return f"failed: {values['failed']}"
        if outcome.finished:
            return "undefined"
        if not values.get("epochs"):
            return str(values.get("said", "begun"))
        whole = self.epochs or values["planned"]
        best = values.get("val")
        text = f"epoch {values['epochs']} of {whole}"
        return text if best is None else f"{text}, val {self.column.scale * best:.4g}"


def commits_of(outcome: Outcome) -> list[str]:
    """The commits that made a result, in short; with a + where files differed from it."""
    states = [origin.get("git") or {} for origin in _origins(outcome)]
    return [(git.get("commit") or "unknown")[:9] + ("+" if git.get("changed") else "") for git in states]


def device_of(outcome: Outcome) -> str:
    """The devices on which a job ran, without the name of who made them."""
    names = [str(origin.get("device", "unknown")).removeprefix("NVIDIA ") for origin in _origins(outcome)]
    return " then ".join(dict.fromkeys(names))


def _origins(outcome: Outcome) -> list[Mapping[str, Any]]:
    return [*outcome.about.get("before", ()), outcome.about]


def filled(lines: Sequence[Line]) -> tuple[list[str], list[list[str]]]:
    """Header and cells of lines, without columns in which nothing stands."""
    cells = [line.cells() for line in lines]
    kept = [place for place in range(len(HEADER)) if any(row[place] for row in cells)]
    return [HEADER[place] for place in kept], [[row[place] for place in kept] for row in cells]


def compare(table: Table, outcomes: Sequence[Outcome]) -> dict[str, list[Line]]:
    """Lines by column; a row has one at least, and one for each form, number of epochs and settings that were run: what was made
    with other settings is no further run of the same."""
    every = [((item.job.form, item.job.epochs, _changed(item)), item) for item in outcomes]
    found: dict[str, list[Line]] = {}
    for column in table.columns:
        lines: list[Line] = []
        for row in table.rows:
            own = [(kind, item) for kind, item in every if item.job.row == row.slug and item.job.run == column.job]
            there = {kind for kind, _ in own}
            for form, epochs, settings in sorted(there, key=lambda kind: (kind[0], -(kind[1] or math.inf), kind[2])):
                chosen = tuple(item for kind, item in own if kind == (form, epochs, settings))
                lines.append(Line(row, column, form, epochs, chosen, settings))
            if not own and (column.key in row.paper or row.model is not None) and not column.asked:
                lines.append(Line(row, column))
        found[column.key] = lines
    return found


def _changed(outcome: Outcome) -> tuple[str, ...]:
    return tuple(f"{name} = {made!r}" for name, (_, made) in departures(outcome).items())


def _digits(value: float) -> int:
    """Digits behind the point that show four of a number, where the paper gives no example."""
    return 0 if value == 0 or abs(value) >= 1000 else max(0, 3 - math.floor(math.log10(abs(value))))


def _shown(value: float | None, form: str, scale: float = 1.0) -> str:
    return "" if value is None else form.format(scale * value)
