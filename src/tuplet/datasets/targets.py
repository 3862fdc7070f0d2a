"""Targets of own data: from cells of a table or from tensors, with the kind of task they make."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

import torch
from torch import Tensor

from tuplet.datasets.task import NO_CLASS, Kind, Loss, Metric
from tuplet.errors import InputError, OptionError

MISSING = {"", "nan", "na", "n/a", "null", "none", "?"}
"""Cells that say that a target is missing, in any case."""
LARGEST = torch.finfo(torch.float32).max
COARSE = 0.01
"""Largest rounding of a target to float32, in standard deviations."""
FEW = 10
"""Fewer classes than these may each occur once by chance."""
_SIGNS = set("<>~≤≥≈=%")
_AMOUNT = re.compile(
    r"[<>~≤≥≈=]*\s*[+−-]?(\d+[.,]?\d*|[.,]\d+|\d{1,3}([.,'’\s]\d{3})+([.,]\d+)?)(e[+−-]?\d+)?\s*%?", re.IGNORECASE
)
"""A number as people write it: with a decimal comma, thousands in groups, a percent sign, or as a bound."""
_USUAL: dict[str, tuple[Loss, Metric]] = {
    "regression": ("l1", "mae"),
    "classification": ("cross_entropy", "accuracy"),
    "binary": ("bce", "rocauc"),
}


@dataclass(frozen=True)
class Targets:
    """Targets of all items.

    Args:
        y: (G, t) float32 with NaN for missing ones, or (G,) int64 classes with -1 for missing ones.
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

    def among(self, classes: Sequence[str]) -> Targets:
        """The same targets with the numbers that their classes have in ``classes``, of which some may be absent."""
        if self.kind != "classification":
            raise OptionError(f"classes: expected targets that are classes; came {self.kind}")
        places = [place_of(name, classes) for name in self.names]
        if None in places:
            raise InputError("targets", f"the classes {', '.join(classes)}", repr(self.names[places.index(None)]))
        numbers = torch.tensor([*places, NO_CLASS])  # a missing class, -1, is the last
        return Targets(numbers[self.y], "classification", len(classes), tuple(classes))

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


def place_of(name: str, classes: Sequence[str]) -> int | None:
    """Place of a class among others: of the same text, else of the same number, as 0.0 is 0; None if it is not there."""
    if name in classes:
        return classes.index(name)
    number = _number(name)
    return next((place for place, other in enumerate(classes) if number is not None and _number(other) == number), None)


def from_cells(
    names: Sequence[str],
    cells: Sequence[Sequence[str]],
    rows: Sequence[int],
    kind: Kind | None,
    least: int = 2,
) -> Targets:
    """Targets from text.

    With ``kind=None`` one column of words makes classes, numbers that are all 0 or 1 binary targets, all others regression.
    Refused are a column of words and numbers, words that look like numbers ("253,84", "12 %", "<0.5"; not a few bins with a sign that
    all occur again), and words of which nearly each occurs once.

    Args:
        names: of the columns.
        cells: one list a row.
        rows: numbers of the rows in their file, for messages.
        kind: what they are.
        least: number of classes, if they are some.
    """
    for place, name in enumerate(names):
        if all(_missing(row[place]) for row in cells):
            raise InputError(f"column {name!r}", "a target in at least one row", "none")
    bad = unreadable(names, cells, rows, kind)
    if bad:
        item, (_, reason) = next(iter(bad.items()))
        raise InputError("targets", "finite numbers, or nothing", f"row {rows[item]}, where {reason}")
    if _are_classes(names, cells, rows, kind):
        return _classes(names, cells, least)
    numbers = [[_number(cell) for cell in row] for row in cells]
    y = torch.tensor(numbers, dtype=torch.float64).reshape(len(cells), len(names))
    return _real(y, tuple(names), kind)


def unreadable(
    names: Sequence[str], cells: Sequence[Sequence[str]], rows: Sequence[int], kind: Kind | None
) -> dict[int, tuple[str, str]]:
    """Items with a cell that should be a number and is none: the cell, and why; arguments as for ``from_cells``."""
    found: dict[int, tuple[str, str]] = {}
    if _are_classes(names, cells, rows, kind):
        return found
    for item, row in enumerate(cells):
        for name, cell in zip(names, row, strict=True):
            value = _number(cell)
            if item not in found and (value is None or abs(value) > LARGEST):
                found[item] = cell, f"column {name!r} holds {cell!r}, which is no finite number"
    return found


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
    y = y.double()
    if bool((y.abs() > LARGEST).any()):
        raise InputError("y", "finite numbers, or NaN where a target is missing", "infinity")
    return _real(y, tuple(f"target {place}" for place in range(y.shape[1])), kind)


def classes_of(y: Tensor) -> Targets:
    """Classes 0, 1, .. from a tensor of whole numbers; -1, and NaN among floats, is a class that is missing."""
    labels = y.nan_to_num(nan=NO_CLASS).long()
    if y.numel() != len(y) or bool(((y != labels) & (y == y)).any()) or int(labels.min()) < NO_CLASS:
        came = f"{y.dtype} {tuple(y.shape)} from {float(y.min()):g}"
        raise InputError("y", "one class 0, 1, .. for each item, or -1 where it is missing", came)
    if int(labels.max()) == NO_CLASS:
        raise InputError("y", "a class for at least one item", "none")
    outputs = max(int(labels.max()) + 1, 2)
    return Targets(labels.reshape(-1), "classification", outputs, tuple(map(str, range(outputs))))


def _are_classes(names: Sequence[str], cells: Sequence[Sequence[str]], rows: Sequence[int], kind: Kind | None) -> bool:
    """Whether cells are names of classes: as the kind says, or one column of words."""
    _known(kind)
    if kind is not None or len(names) != 1:
        return kind == "classification"
    there = [(row[0], number) for row, number in zip(cells, rows, strict=True) if not _missing(row[0])]
    words = [(cell, number) for cell, number in there if _number(cell) is None]
    if words and len(words) < len(there):
        cell, number = words[0]
        raise InputError(
            f"column {names[0]!r}",
            "numbers, or words for classes",
            f"both: {cell!r} in row {number} among numbers",
            "Say which they are: kind='regression' or 'classification' (--task-option kind=regression).",
        )
    if words:
        _refuse_no_classes(f"column {names[0]!r}", words)
    return bool(words)


def _refuse_no_classes(field: str, words: Sequence[tuple[str, int]]) -> None:
    """Refuse words, with their rows, that nobody would take for classes."""
    anyway = "With kind='classification' (--task-option kind=classification) they are classes all the same."
    counts = Counter(cell.strip() for cell, _ in words)
    bins = len(counts) < FEW and min(counts.values()) > 1  # "<50" and "≥50", "10 %" and "20 %"
    for cell, number in words:
        if _AMOUNT.fullmatch(cell.strip()) and not (bins and _SIGNS & set(cell)):
            hint = f"Write numbers with a decimal point and no other signs. {anyway}"
            raise InputError(field, "numbers, or words for classes", f"{cell!r} in row {number}", hint)
    alone = sum(count == 1 for count in counts.values())
    if len(counts) >= FEW and alone > 0.9 * len(counts):
        came = f"{len(counts)} different words in {len(words)} rows, {alone} of them once"
        raise InputError(field, "numbers, or words for classes that occur again", came, anyway)


def _classes(names: Sequence[str], cells: Sequence[Sequence[str]], least: int) -> Targets:
    if len(names) != 1:
        raise OptionError(f"targets: expected one column for classification; came {len(names)}")
    words = [None if _missing(row[0]) else row[0].strip() for row in cells]
    known = sorted(
        {word for word in words if word is not None},
        key=lambda word: (_number(word) is None, _number(word) or 0.0, word),
    )
    if len(known) < least:
        raise InputError(f"column {names[0]!r}", "at least two classes", f"{known[0]!r} alone")
    place: dict[str | None, int] = {None: NO_CLASS, **{word: number for number, word in enumerate(known)}}
    return Targets(torch.tensor([place[word] for word in words]), "classification", len(known), tuple(known))


def _refuse_coarse(name: str, values: Tensor) -> None:
    """Refuse float64 values that lie so close together, far from zero, that float32 would change what is to be learned."""
    if not len(values):
        return
    spread, rounding = float(values.std(correction=0)), float((values - values.float()).abs().max())
    noise = 1e-12 * float(values.abs().max())  # a constant computed in float64 varies too
    if spread > noise and rounding > COARSE * spread:
        came = f"{name!r} about {float(values.mean()):.6g}, which varies by {spread:.2g} and would be rounded by {rounding:.2g}"
        raise InputError("targets", "numbers that float32 tells apart", came, "Subtract a constant from them.")


def _real(y: Tensor, names: tuple[str, ...], kind: Kind | None) -> Targets:
    flags = bool(((y == 0) | (y == 1) | y.isnan()).all())
    if kind == "binary" and not flags:
        raise InputError("targets", "0, 1 or nothing for kind='binary'", "other numbers")
    for name, column in zip(names, y.t(), strict=True):
        _refuse_coarse(name, column[~column.isnan()])
    return Targets(y.float(), kind or ("binary" if flags else "regression"), y.shape[1], names)


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
