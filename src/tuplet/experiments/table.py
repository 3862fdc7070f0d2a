"""The paper's tables: what each shows, and a small YAML file a row with the published numbers and the settings to run.

A table is a folder of ``tables/``. Its ``table.yaml`` says what the columns are; ``NN-row.yaml`` is a row, in the order of the
numbers. Settings that a preset holds are not repeated: a row names data set (by its columns), model and variant, and says what differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from tuplet._extras import require
from tuplet.errors import OptionError
from tuplet.training.values import numbers

TABLES = (
    "complexity", "edge-csl", "zinc", "zinc-pe", "alchemy-pe", "counting", "molhiv", "lrgb", "scalability", "time", "cross-sampled",
    "webkb",
)  # fmt: skip
"""All tables with results, in the order of the paper."""


@dataclass(frozen=True)
class Published:
    """One number of the paper.

    Args:
        text: as printed.
        mean: its value; of a mark, 1 for yes and 0 for no.
        std: the standard deviation beside it; None where there is none.
    """

    text: str
    mean: float
    std: float | None = None

    @classmethod
    def read(cls, value: Any) -> Published:
        """From "0.069 ± 0.005", "0.4186", "863,269", or a truth value for a mark."""
        if isinstance(value, bool):
            return cls("yes" if value else "no", float(value))
        mean, _, std = str(value).partition("±")
        try:
            return cls(str(value), float(mean.replace(",", "")), float(std) if std else None)
        except ValueError as error:
            raise OptionError(f"paper: expected a number such as 0.069 ± 0.005; came {value!r}") from error

    @property
    def decimals(self) -> int:
        """Digits behind the point, for printing ours alike."""
        return len(self.text.partition("±")[0].strip().partition(".")[2])


@dataclass(frozen=True, eq=False)
class Column:
    """One column of numbers.

    Args:
        key: its short name, in row files and names of results.
        title: its heading.
        dataset: what is learned from, and whose presets are taken.
        task: options of the data set.
        better: "lower" or "higher"; None where neither is.
        scale: what our metric is multiplied by to be in the paper's unit.
        shows: which fact of a result it shows.
        run: columns with the same one are shown from the same jobs; its own key if not given.
        set: training options for all rows.
        digits: behind the point of our numbers; as many as the paper's if not given.
        splits: how many splits there are; the run with seed s learns on split s modulo this.
        sizes: of the random graphs, where a table measures steps: their mean and the largest.
        device: where it is measured, if not wherever there is one.
        asked: whether its jobs run only where the column is named.
    """

    key: str
    title: str
    dataset: str = ""
    task: Mapping[str, Any] = field(default_factory=dict)
    better: Literal["lower", "higher"] | None = None
    scale: float = 1.0
    shows: str = "test"
    run: str = ""
    set: Mapping[str, Any] = field(default_factory=dict)
    digits: int | None = None
    splits: int = 1
    sizes: Mapping[str, float] = field(default_factory=dict)
    device: Literal["cpu", "cuda"] | None = None
    asked: bool = False

    @property
    def job(self) -> str:
        """Name of the jobs that it is shown from."""
        return self.run or self.key


@dataclass(frozen=True, eq=False)
class Row:
    """One row.

    Args:
        table, slug: where it is: ``tables/<table>/NN-<slug>.yaml``.
        name: as the paper prints it.
        model: what runs; None for a row that is shown from the paper only.
        like: another model whose preset is taken.
        variant: of the preset.
        set: training options that differ from the preset's.
        paper: the published numbers by column.
        expected: what else the numbers should be, by column, where the paper has none.
        adopted: from where the paper took its numbers, if they are not its own.
        start: of a table that measures growth, the smallest size.
        notes: what a reader should know.
    """

    table: str
    slug: str
    name: str
    model: str | None = None
    like: str | None = None
    variant: str | None = None
    set: Mapping[str, Any] = field(default_factory=dict)
    paper: Mapping[str, Published] = field(default_factory=dict)
    expected: Mapping[str, float] = field(default_factory=dict)
    adopted: str | None = None
    start: int = 0
    notes: tuple[str, ...] = ()

    def beside(self, column: str) -> Published | None:
        """What our number is compared with: the paper's, or what is expected instead."""
        if column not in self.paper and column in self.expected:
            return Published(f"theory {self.expected[column]:g}", self.expected[column])
        return self.paper.get(column)

    @property
    def forms(self) -> tuple[str, ...]:
        """Both forms of the softmax where they differ, as for several groups of keys; else one that needs no name."""
        from tuplet.models import ModelConfig
        from tuplet.models.baselines import NAMES

        if self.model is None or self.model in NAMES:
            return ("",)
        return ("groups", "joint") if ModelConfig.of(self.model, softmax="groups").groups > 1 else ("",)


@dataclass(frozen=True, eq=False)
class Table:
    """One table.

    Args:
        key: its name here.
        title: what it shows.
        paper: its number there.
        columns: in the paper's order.
        rows: in the paper's order.
        kind: what a job does: "train" (and test), "step" (one training step, if it fits) or "growth" (of time and memory with n).
        seeds: one job a seed; those of the preset if None.
        alone: whether one job at a time runs, because time or memory is measured.
        notes: what a reader should know.
    """

    key: str
    title: str
    paper: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    kind: Literal["train", "step", "growth"] = "train"
    seeds: tuple[int, ...] | None = None
    alone: bool = False
    notes: tuple[str, ...] = ()

    def column(self, key: str) -> Column:
        """The column of this name; a wrong name is refused with the nearest one."""
        return _named("--columns", key, {column.key: column for column in self.columns})

    def job(self, name: str) -> str:
        """The jobs that a column is shown from, by its key or by their own name; a wrong name is refused with the nearest one."""
        known = {column.key: column.job for column in self.columns}
        return str(_named("--columns", name, {**known, **{job: job for job in known.values()}}, list(known)))

    def row(self, name: str) -> Row:
        """The row of this name, as in the paper or as its file is called; a wrong name is refused with the nearest one."""
        known = {row.slug: row for row in self.rows}
        return _named("--rows", name, {**{row.name: row for row in self.rows}, **known}, list(known))


def read_table(key: str) -> Table:
    """The table of this name; a wrong name is refused with the nearest one."""
    return _read(_named("TABLE", key, {name: name for name in TABLES}))


@cache
def _read(key: str) -> Table:
    library = require("yaml", "train")
    folder = files("tuplet").joinpath("experiments", "tables", key)
    texts = {item.name: item.read_text(encoding="utf-8") for item in folder.iterdir() if item.name.endswith(".yaml")}
    contents = {name: library.safe_load(text) for name, text in sorted(texts.items())}
    head = contents.pop("table.yaml")
    columns = tuple(
        _made(Column, f"{key}/table.yaml", {"key": name, **about}) for name, about in head["columns"].items()
    )
    head |= {"key": key, "columns": columns, "notes": tuple(head.get("notes", ()))}
    if "seeds" in head:
        head["seeds"] = numbers("seeds", head["seeds"])
    rows = tuple(_row(key, name, content, [column.key for column in columns]) for name, content in contents.items())
    return _made(Table, f"{key}/table.yaml", {**head, "rows": rows})


def _row(table: str, name: str, content: Mapping[str, Any], columns: Sequence[str]) -> Row:
    where = f"{table}/{name}"
    for part in ("paper", "expected"):
        for column in content.get(part, {}):
            if column not in columns:
                raise OptionError(f"{where}: expected columns {', '.join(columns)} in {part}; came {column!r}")
    slug = name.removesuffix(".yaml").partition("-")[2]
    paper = {column: Published.read(value) for column, value in content.get("paper", {}).items()}
    notes = tuple(content.get("notes", ()))
    return _made(Row, where, {**content, "table": table, "slug": slug, "paper": paper, "notes": notes})


def _made(kind: Any, where: str, values: Mapping[str, Any]) -> Any:
    """An instance from a mapping; a key that it does not have is refused with the nearest one."""
    known = [item.name for item in fields(kind)]
    for name in values:
        _named(where, name, {key: key for key in known})
    return kind(**values)


def _named(option: str, name: str, known: Mapping[str, Any], shown: Sequence[str] | None = None) -> Any:
    """What stands under a name, in small or large letters."""
    folded = {key.lower(): value for key, value in known.items()}
    if name.lower() in folded:
        return folded[name.lower()]
    near = get_close_matches(name.lower(), folded, n=1, cutoff=0.4)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise OptionError(f"{option}: expected one of {', '.join(shown or known)}; came {name!r}.{hint}")
