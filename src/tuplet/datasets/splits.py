"""Ways to split a data set: at random, stratified, by scaffold, in folds, or as a column says. All depend on a seed alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence

import numpy as np
import torch
from torch import Tensor

from tuplet.datasets.task import PARTS
from tuplet.errors import InputError, OptionError

FRACTIONS = (0.8, 0.1, 0.1)
_WORDS = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "dev": "val",
    "test": "test",
}
BINS = 10
"""Quantiles of a real target that a stratified split keeps apart."""


def random_split(count: int, fractions: Sequence[float] = FRACTIONS, seed: int = 0) -> dict[str, Tensor]:
    """``count`` items dealt to train, val and test at random."""
    order = np.random.default_rng(seed).permutation(count)
    return _cut(order, _sizes(count, fractions))


def stratified_split(
    groups: Sequence[Hashable], fractions: Sequence[float] = FRACTIONS, seed: int = 0
) -> dict[str, Tensor]:
    """Each part gets its fraction of every group, as nearly as whole items allow.

    Items are shuffled within groups and spread evenly over [0, 1) by their rank; the parts are cuts of that order.
    """
    generator = np.random.default_rng(seed)
    members: dict[Hashable, list[int]] = defaultdict(list)
    for item, group in enumerate(groups):
        members[group].append(item)
    place = np.empty(len(groups))
    for items in members.values():
        shuffled = generator.permutation(items)
        place[shuffled] = (np.arange(len(items)) + generator.random()) / len(items)
    return _cut(np.argsort(place, kind="stable"), _sizes(len(groups), fractions))


def strata(y: Tensor, regression: bool) -> list[Hashable]:
    """Groups for ``stratified_split`` from targets (G,) or (G, t): equal labels, or quantiles of the first real target."""
    table = y[:, None] if y.dim() == 1 else y
    if not regression:
        return [tuple(-1 if value != value else value for value in row) for row in table.tolist()]
    first = table[:, 0].double().numpy()
    known = ~np.isnan(first)
    edges = np.quantile(first[known], np.linspace(0, 1, BINS + 1)[1:-1]) if known.any() else []
    return [int(group) for group in np.where(known, np.searchsorted(edges, first, side="right"), -1)]


def scaffold_split(scaffolds: Sequence[str], fractions: Sequence[float] = FRACTIONS) -> dict[str, Tensor]:
    """Molecules of one scaffold stay together: the largest scaffolds train, then val, the rarest test.

    The rule of MoleculeNet and OGB, without chance: scaffolds by size (of equal ones the one met last comes first), each put
    into train while that has room, else into val while the two have, else into test.
    """
    members: dict[str, list[int]] = defaultdict(list)
    for item, scaffold in enumerate(scaffolds):
        members[scaffold].append(item)
    train_room, val_room, _ = _sizes(len(scaffolds), fractions)
    parts: dict[str, list[int]] = {part: [] for part in PARTS}
    for items in sorted(members.values(), key=lambda group: (len(group), group[0]), reverse=True):
        if len(parts["train"]) + len(items) <= train_room:
            parts["train"] += items
        elif len(parts["train"]) + len(parts["val"]) + len(items) <= train_room + val_room:
            parts["val"] += items
        else:
            parts["test"] += items
    return {part: torch.tensor(sorted(items), dtype=torch.int64) for part, items in parts.items()}


def column_split(words: Sequence[str], rows: Sequence[int], column: str) -> dict[str, Tensor]:
    """As a column says: train, val (valid, validation, dev) or test in each row."""
    parts: dict[str, list[int]] = {part: [] for part in PARTS}
    for item, (word, row) in enumerate(zip(words, rows, strict=True)):
        part = _WORDS.get(word.strip().lower())
        if part is None:
            raise InputError(f"column {column!r}", "train, val or test in every row", f"{word!r} in row {row}")
        parts[part].append(item)
    return {part: torch.tensor(items, dtype=torch.int64) for part, items in parts.items()}


def stratified_folds(labels: Sequence[int], folds: int, seed: int = 0) -> tuple[dict[str, Tensor], ...]:
    """``folds`` splits whose tests partition the items; fold i tests part i, validates on the next and trains on the rest.

    Args:
        labels: each label's items are dealt out evenly.
        folds: at least three, at most the rarest label's items.
        seed: of the order in which items are dealt.
    """
    numbers = np.asarray(labels)
    generator = np.random.default_rng(seed)
    part = np.empty(len(numbers), dtype=np.int64)
    for label in np.unique(numbers):
        items = generator.permutation(np.flatnonzero(numbers == label))
        if not 3 <= folds <= len(items):
            raise OptionError(f"folds: expected 3..{len(items)}, as label {label} has {len(items)} items; came {folds}")
        part[items] = np.arange(len(items)) % folds
    made = []
    for test in range(folds):
        val = (test + 1) % folds
        chosen = {"train": (part != test) & (part != val), "val": part == val, "test": part == test}
        made.append({name: torch.from_numpy(np.flatnonzero(mask)) for name, mask in chosen.items()})
    return tuple(made)


def _sizes(count: int, fractions: Sequence[float]) -> tuple[int, int, int]:
    values = tuple(float(value) for value in fractions)
    if len(values) != 3 or min(values) < 0 or values[0] == 0 or not abs(sum(values) - 1) <= 1e-6:
        raise OptionError(f"fractions: expected three numbers for train, val, test that sum to 1; came {fractions}")
    train = max(1, int(values[0] * count + 1e-9))
    val = max(0, int((values[0] + values[1]) * count + 1e-9) - train)
    return train, val, count - train - val


def _cut(order: np.ndarray, sizes: tuple[int, int, int]) -> dict[str, Tensor]:
    train, val, _ = sizes
    cuts = np.split(order, [train, train + val])
    return {part: torch.from_numpy(np.sort(items).astype(np.int64)) for part, items in zip(PARTS, cuts, strict=True)}
