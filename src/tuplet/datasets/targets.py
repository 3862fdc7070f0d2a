"""Targets of own data: from cells of a table or from tensors, with the kind of task they make."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

import torch
from torch import Tensor

from tuplet.datasets.task import Kind, Loss, Metric
from tuplet.errors import InputError, OptionError

MISSING = {"", "nan", "na", "n/a", "null", "none", "?"}
"""Cells that say that a target is missing, in any case."""
_USUAL: dict[str, tuple[Loss, Metric]] = {
    "regression": ("l1", "mae"),
    "classification": ("cross_entropy", "accuracy"),
    "binary": ("bce", "rocauc"),
}


@dataclass(frozen=True)
class Targets:
    """Targets of all items.

    Args:
        y: (G, t) float32 with NaN for missing ones, or (G,) int64 classes.
        kind: of the task.
        outputs: width of the model's output.
        names: of the targets, or of the classes.
    """

    y: Tensor
    kind: Kind
    outputs: int
    names: tuple[str, ...]

    def usual(self, loss: Loss | None, metric: Metric | None) -> tuple[Loss, Metric]:
        """The loss and metric asked for, else the usual ones of the kind."""
        return loss or _USUAL[self.kind][0], metric or _USUAL[self.kind][1]

    def moments(self, train: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]] | tuple[None, None]:
        """Mean and standard deviation of each real target over the training items; 1 where it does not vary."""
        if self.kind != "regression":
            return None, None
        means, stds = [], []
        for column in self.y[train].double().t():
            known = column[~column.isnan()]
            means.append(float(known.mean()) if len(known) else 0.0)
            std = float(known.std()) if len(known) > 1 else 0.0
            stds.append(std if std > 0 else 1.0)
        return tuple(means), tuple(stds)


def from_cells(names: Sequence[str], cells: Sequence[Sequence[str]], rows: Sequence[int], kind: Kind | None) -> Targets:
    """Targets from text.

    With ``kind=None`` text that is no number makes classes, numbers that are all 0 or 1 binary targets, all others regression.

    Args:
        names: of the columns.
        cells: one list a row.
        rows: numbers of the rows in their file, for messages.
        kind: what they are.
    """
    _known(kind)
    for place, name in enumerate(names):
        if all(_missing(row[place]) for row in cells):
            raise InputError(f"column {name!r}", "a target in at least one row", "none")
    numbers = [[_number(cell) for cell in row] for row in cells]
    text = any(value is None for row in numbers for value in row)
    if kind == "classification" or (kind is None and text and len(names) == 1):
        return _classes(names, cells, rows)
    for row, values, number in zip(cells, numbers, rows, strict=True):
        for name, cell, value in zip(names, row, values, strict=True):
            if value is None or math.isinf(value):
                raise InputError(f"column {name!r}", "a finite number, or nothing", f"{cell!r} in row {number}")
    y = torch.tensor(numbers, dtype=torch.float32).reshape(len(cells), len(names))
    return _real(y, tuple(names), kind)


def from_tensors(values: Sequence[Tensor], kind: Kind | None) -> Targets:
    """Targets from one tensor an item: integers make classes, truth values and floats of 0 and 1 binary targets."""
    _known(kind)
    for number, value in enumerate(values):
        if not isinstance(value, Tensor) or value.numel() != values[0].numel() or value.numel() == 0:
            came = type(value).__name__ if not isinstance(value, Tensor) else f"shape {tuple(value.shape)}"
            raise InputError("y", f"{values[0].numel()} target(s) in every graph", f"{came} in graph {number}")
    y = torch.stack([value.reshape(-1) for value in values])
    whole = not y.is_floating_point() and y.dtype != torch.bool
    if kind == "classification" or (kind is None and whole and y.shape[1] == 1):
        return classes_of(y)
    y = y.float()
    if bool(y.isinf().any()):
        raise InputError("y", "finite numbers, or NaN where a target is missing", "infinity")
    return _real(y, tuple(f"target {place}" for place in range(y.shape[1])), kind)


def classes_of(y: Tensor) -> Targets:
    """Classes 0, 1, .. from a tensor of whole numbers."""
    if y.numel() != len(y) or bool((y != y.long()).any()) or int(y.min()) < 0:
        raise InputError("y", "one class 0, 1, .. for each item", f"{y.dtype} {tuple(y.shape)} from {float(y.min()):g}")
    labels = y.reshape(-1).long()
    outputs = int(labels.max()) + 1
    return Targets(labels, "classification", max(outputs, 2), tuple(map(str, range(max(outputs, 2)))))


def _classes(names: Sequence[str], cells: Sequence[Sequence[str]], rows: Sequence[int]) -> Targets:
    if len(names) != 1:
        raise OptionError(f"targets: expected one column for classification; came {len(names)}")
    for row, number in zip(cells, rows, strict=True):
        if _missing(row[0]):
            raise InputError(f"column {names[0]!r}", "a class in every row", f"none in row {number}")
    words = [row[0].strip() for row in cells]
    known = sorted(set(words), key=lambda word: (_number(word) is None, _number(word) or 0.0, word))
    if len(known) < 2:
        raise InputError(f"column {names[0]!r}", "at least two classes", f"{known[0]!r} alone")
    place = {word: number for number, word in enumerate(known)}
    return Targets(torch.tensor([place[word] for word in words]), "classification", len(known), tuple(known))


def _real(y: Tensor, names: tuple[str, ...], kind: Kind | None) -> Targets:
    flags = bool(((y == 0) | (y == 1) | y.isnan()).all())
    if kind == "binary" and not flags:
        raise InputError("targets", "0, 1 or nothing for kind='binary'", "other numbers")
    return Targets(y, kind or ("binary" if flags else "regression"), y.shape[1], names)


def _known(kind: str | None) -> None:
    if kind is not None and kind not in get_args(Kind):
        raise OptionError(f"kind: expected one of {', '.join(map(repr, get_args(Kind)))}; came {kind!r}")


def _missing(cell: str) -> bool:
    return cell.strip().lower() in MISSING


def _number(cell: str) -> float | None:
    if _missing(cell):
        return math.nan
    try:
        return float(cell)
    except ValueError:
        return None
