"""Jobs: the smallest pieces of a table that run by themselves, each with a name, its options and a file for its result."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tuplet.errors import OptionError
from tuplet.experiments.table import Column, Row, Table, read_table
from tuplet.training.options import TrainOptions
from tuplet.training.presets import lasting, preset
from tuplet.training.settings import merge
from tuplet.training.values import numbers

FORMS = ("groups", "joint", "both")
"""Which forms of the softmax to run: head group a neighbourhood, one softmax over all, or both where they differ."""


@dataclass(frozen=True)
class Job:
    """One model on one data set with one seed.

    Args:
        table, row: names of the table and of the row's file.
        run: which column's job, see ``Column.job``.
        seed: of weights, order and dropout; also says which split, where there are several.
        form: "groups" or "joint"; "" where they do not differ.
        epochs: instead of the planned ones, for a shortened run or a longer one.
    """

    table: str
    row: str
    run: str
    seed: int
    form: str = ""
    epochs: int | None = None

    @property
    def file(self) -> str:
        """Name of its result: what tells it from the other jobs of the row."""
        form = f"-{self.form}" if self.form else ""
        short = f"-epochs-{self.epochs}" if self.epochs is not None else ""
        return f"{self.run}{form}-seed-{self.seed}{short}"

    @property
    def name(self) -> str:
        """Of its folder and of its result, below those of all jobs."""
        return f"{self.table}/{self.row}/{self.file}"

    @property
    def command(self) -> str:
        """The command that runs this job alone."""
        words = [
            "tuplet",
            "reproduce",
            self.table,
            "--rows",
            self.row,
            "--columns",
            self.run,
            "--seeds",
            str(self.seed),
        ]
        words += ["--softmax", self.form] if self.form else []
        words += ["--epochs", str(self.epochs)] if self.epochs is not None else []
        return shlex.join(words)

    def described(self) -> tuple[Table, Row, Column]:
        """The table, the row and the first column that it belongs to."""
        table = read_table(self.table)
        column = next(column for column in table.columns if column.job == self.run)
        return table, table.row(self.row), column

    @property
    def fold(self) -> int:
        """Number of the split that it learns on."""
        return self.seed % self.described()[2].splits

    def options(self) -> TrainOptions:
        """The preset of data set, model and variant, then what column and row say, then the job's own."""
        _, row, _ = self.described()
        own: dict[str, Any] = {"model": row.model, "seeds": [self.seed], "folds": [self.fold]}
        own |= {"tensorboard": False, "keep": 1}
        if self.form:
            own["model_options"] = {"softmax": self.form}
        found = merge(self.planned(), own)
        if self.epochs is not None:
            found = lasting(found, self.epochs)
        return TrainOptions.of(found)

    def planned(self) -> dict[str, Any]:
        """What the table asks for, whichever seed, form and number of epochs this job has."""
        _, row, column = self.described()
        return merge(preset(column.dataset, row.like or row.model, row.variant), column.set, row.set)


def select(
    table: Table,
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    seeds: Sequence[int] = (),
    softmax: str = "both",
    epochs: int | None = None,
) -> list[Job]:
    """The jobs of a table, seed after seed, so that the first runs of all rows come before the second ones.

    Args:
        table: whose.
        rows: names; all that have a model if empty.
        columns: keys of columns, or of the jobs behind them; all that need not be asked for if empty.
        seeds: the table's if empty, and if it has none the preset's.
        softmax: one of ``FORMS``; a model in which they do not differ runs in any case.
        epochs: instead of the planned ones; where they are the same, that says nothing.
    """
    if epochs is not None and (epochs < 1 or table.kind != "train"):
        trained = (
            "a positive number" if table.kind == "train" else f"nothing, since the jobs of {table.key} train nothing"
        )
        raise OptionError(f"--epochs: expected {trained}; came {epochs}")
    if softmax not in FORMS:
        raise OptionError(f"--softmax: expected one of {', '.join(FORMS)}; came {softmax!r}")
    chosen = [table.row(name) for name in rows] or [row for row in table.rows if row.model is not None]
    for row in chosen:
        if row.model is None:
            raise OptionError(
                f"--rows: {row.name} is shown from the paper and has no settings here; choose another row"
            )
    wanted = [table.job(column) for column in columns]
    wanted = wanted or [column.job for column in table.columns if not column.asked]
    found = [
        Job(table.key, row.slug, run, seed, form, None if epochs == planned.get("epochs") else epochs)
        for row in chosen
        for run in dict.fromkeys(wanted)
        for planned in [Job(table.key, row.slug, run, 0).planned()]
        for form in (row.forms if table.kind != "growth" else ("",))
        for seed in seeds or table.seeds or numbers("seeds", planned["seeds"])
        if form in ("", softmax) or softmax == "both"
    ]
    return sorted(dict.fromkeys(found), key=lambda job: job.seed)
