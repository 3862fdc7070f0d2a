"""A table of molecules: a CSV (or TSV) file with a column of SMILES and columns of targets."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import Tensor

from tuplet.datasets.csv_table import Table, TableRow, read_table
from tuplet.datasets.packed import Field, PackedGraphs
from tuplet.datasets.parallel import Arrays, in_parts
from tuplet.datasets.preparation import worth_processes
from tuplet.datasets.splits import FRACTIONS, column_split, random_split, scaffold_split, strata, stratified_split
from tuplet.datasets.targets import Targets, from_cells, unreadable
from tuplet.datasets.task import Kind, Loss, Metric, Skipped, Task
from tuplet.errors import InputError, OptionError
from tuplet.graphs.smiles import ATOM_TYPES, BOND_TYPES, Unreadable, from_molecule, parse, scaffold

PART = 512
"""Molecules that are worked on at once."""
LISTED = 10
"""Rows that a warning names."""


def load_table(
    path: str | Path,
    *,
    smiles: str = "smiles",
    targets: str | Sequence[str] | None = None,
    split: str | None = "random",
    seed: int = 0,
    fractions: Sequence[float] = FRACTIONS,
    invalid: Literal["skip", "refuse"] = "skip",
    kind: Kind | None = None,
    classes: Sequence[str] | None = None,
    loss: Loss | None = None,
    metric: Metric | None = None,
    standardise: bool = True,
    processes: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Task:
    """A task from a table of molecules.

    Args:
        path: of the table.
        smiles: the column of SMILES.
        targets: columns of targets; by default the only other column. An empty cell (or "nan", "NA", ..) is a missing target.
        split: "random", "stratified", "scaffold" (Bemis–Murcko), or "column:NAME" for a column of train, val, test.
        seed: of random and stratified splits.
        fractions: of train, val and test.
        invalid: "skip" leaves rows out that cannot be used (too many or too few cells, no molecule, no number where a target is
            one), with a warning that lists them and with ``task.skipped``; "refuse" raises.
        kind: regression, classification or binary; by default what the cells look like (see ``targets.from_cells``).
        classes: names of the classes in the order of their numbers, as ``trained.task.targets`` of a model, of which the table may
            have some; by default those that it has, at least two.
        loss, metric: by default the usual ones of the kind.
        standardise: whether training standardises real targets.
        processes: that read molecules; by default one for each core if there are many.
        progress: is told molecules done and in all.
    """
    kind = kind or (None if classes is None else "classification")
    table = read_table(path)
    place = table.column(smiles, "smiles")
    chosen = _targets(table, smiles, targets, split)
    wanted = [table.column(name, "targets") for name in chosen]
    usable, skipped = _usable(table, chosen, wanted, kind)
    texts = [row.cells[place] for row in usable]
    read = read_molecules(texts, processes=processes, progress=progress, scaffolds=split == "scaffold")
    skipped += [Skipped(usable[item].number, texts[item].strip(), reason) for item, reason in read.failed]
    skipped.sort(key=lambda item: item.row)
    kept = [usable[item] for item in read.kept]
    _report(table.path, skipped, invalid, len(kept))
    _report_repeats(table.path, kept, place)
    cells = [[row.cells[column] for column in wanted] for row in kept]
    found = from_cells(chosen, cells, [row.number for row in kept], kind, least=2 if classes is None else 1)
    found = found if classes is None else found.among(classes)
    parts = _split(table, kept, found, read.scaffolds, split, seed, fractions)
    if not len(parts["train"]):
        raise InputError("split", "at least one molecule to train on", f"none with split={split!r}")
    for part, share in (("val", fractions[1]), ("test", fractions[2])):
        if share and not len(parts[part]):
            warnings.warn(
                f"{table.path}: split={split!r} leaves no molecule for {part}: its metric is undefined", stacklevel=4
            )
    mean, std = found.moments(parts["train"]) if standardise else (None, None)
    chosen_loss, chosen_metric = found.usual(loss, metric)
    assert read.graphs is not None
    return Task(
        name=table.path.name, graphs=read.graphs.with_fields(y=Field(found.y, None, found.y.dtype)), splits=(parts,),
        level="graph", kind=found.kind, outputs=found.outputs, loss=chosen_loss, metric=chosen_metric,
        node_types=ATOM_TYPES, edge_types=BOND_TYPES, mean=mean, std=std, targets=found.names, skipped=tuple(skipped),
        origin=f"molecules of {table.path}",
    )  # fmt: skip


@dataclass(frozen=True)
class Molecules:
    """Graphs of the texts that are molecules, and which are not.

    Args:
        graphs: packed, or None if there is none.
        kept: positions of the texts that are molecules.
        failed: positions of the others, and why.
        scaffolds: of the kept ones, if asked for.
    """

    graphs: PackedGraphs | None
    kept: list[int]
    failed: list[tuple[int, str]]
    scaffolds: list[str]


def read_molecules(
    texts: Sequence[str],
    *,
    processes: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    scaffolds: bool = False,
) -> Molecules:
    """Graphs of many SMILES with OGB's features; those that cannot be read are told, not raised."""
    graphs, kept, failed, found = [], [], [], []
    first = 0
    processes = worth_processes(processes, len(texts))
    for result in in_parts("tuplet.datasets.table:work", {"scaffolds": scaffolds}, _parts(texts), processes):
        bad = result["failed"].tolist()
        failed += [(first + item, reason) for item, reason in zip(bad, _unpacked(result["reasons"]), strict=True)]
        count = int(result["count"])
        kept += [first + item for item in range(count) if item not in set(bad)]
        found += _unpacked(result["scaffolds"])
        if "fields" in result:
            graphs.append(PackedGraphs.from_arrays(result))
        first += count
        if progress is not None:
            progress(first, len(texts))
    return Molecules(PackedGraphs.join(graphs) if graphs else None, kept, failed, found)


def _parts(texts: Sequence[str]) -> Iterator[Arrays]:
    for first in range(0, len(texts), PART):
        yield {"texts": _packed(texts[first : first + PART])}


def _packed(texts: Sequence[str]) -> np.ndarray:
    """Texts of any length as one plain array."""
    return np.array(json.dumps(list(texts)))


def _unpacked(texts: np.ndarray) -> list[str]:
    unpacked: list[str] = json.loads(str(texts))
    return unpacked


def work(options: Mapping[str, Any], part: Arrays) -> Arrays:
    """Graphs of one part of the texts."""
    graphs, failed, reasons, scaffolds = [], [], [], []
    texts = _unpacked(part["texts"])
    for item, text in enumerate(texts):
        mol = parse(text)
        if isinstance(mol, Unreadable):
            failed.append(item)
            reasons.append(mol.reason)
            continue
        graphs.append(from_molecule(mol))
        if options["scaffolds"]:
            scaffolds.append(scaffold(mol))
    made = PackedGraphs.from_graphs(graphs).to_arrays() if graphs else {}
    return {
        **made,
        "count": np.array(len(texts)),
        "failed": np.array(failed, dtype=np.int64),
        "reasons": _packed(reasons),
        "scaffolds": _packed(scaffolds),
    }


def _targets(table: Table, smiles: str, targets: str | Sequence[str] | None, split: str | None) -> list[str]:
    if targets is not None:
        chosen = [targets] if isinstance(targets, str) or not isinstance(targets, Iterable) else list(targets)
        if not chosen or len(set(chosen)) < len(chosen) or smiles in chosen:
            raise OptionError(f"targets: expected different columns other than {smiles!r}; came {chosen}")
        return chosen
    others = [name for name in table.header if name not in (smiles, (split or "").removeprefix("column:"))]
    if len(others) != 1:
        raise InputError(
            "targets", f"columns of {table.path} to learn: {', '.join(map(repr, others)) or 'none'}", "no choice"
        )
    return others


def _usable(
    table: Table, names: list[str], columns: list[int], kind: Kind | None
) -> tuple[list[TableRow], list[Skipped]]:
    """Rows whose cells and targets can be read, and the others."""
    skipped = [Skipped(row.number, ", ".join(row.cells), row.problem) for row in table.rows if row.problem is not None]
    whole = [row for row in table.rows if row.problem is None]
    bad = unreadable(
        names, [[row.cells[column] for column in columns] for row in whole], [row.number for row in whole], kind
    )
    skipped += [Skipped(whole[item].number, text, reason) for item, (text, reason) in bad.items()]
    return [row for item, row in enumerate(whole) if item not in bad], skipped


def _split(
    table: Table,
    kept: list[TableRow],
    found: Targets,
    scaffolds: list[str],
    split: str | None,
    seed: int,
    fractions: Sequence[float],
) -> dict[str, Tensor]:
    if split is None or split == "random":
        return random_split(len(kept), fractions, seed)
    if split == "stratified":
        return stratified_split(strata(found.y, found.kind == "regression"), fractions, seed)
    if split == "scaffold":
        return scaffold_split(scaffolds, fractions)
    if isinstance(split, str) and split.startswith("column:"):
        name = split.removeprefix("column:")
        column = table.column(name, "split")
        return column_split([row.cells[column] for row in kept], [row.number for row in kept], name)
    raise OptionError(f"split: expected 'random', 'stratified', 'scaffold' or 'column:NAME'; came {split!r}")


def _report(path: Path, skipped: Sequence[Skipped], invalid: str, kept: int) -> None:
    if not skipped:
        return
    listed = "; ".join(f"row {item.row}: {item.text[:40]!r} ({item.reason})" for item in skipped[:LISTED])
    more = (
        f"; and {len(skipped) - LISTED} more, all in task.skipped and in the run folder"
        if len(skipped) > LISTED
        else ""
    )
    if invalid == "refuse" or kept == 0:
        hint = "Pass invalid='skip' to leave them out." if kept else "Are these the columns of SMILES and targets?"
        raise InputError(
            str(path),
            "a molecule and targets in every row",
            f"{len(skipped)} that cannot be used: {listed}{more}",
            hint,
        )
    warnings.warn(f"{path}: {len(skipped)} row(s) skipped that cannot be used: {listed}{more}", stacklevel=6)


def _report_repeats(path: Path, kept: Sequence[TableRow], place: int) -> None:
    first: dict[str, int] = {}
    repeats = [
        (first[row.cells[place]], row.number)
        for row in kept
        if first.setdefault(row.cells[place], row.number) != row.number
    ]
    if repeats:
        earlier, later = repeats[0]
        warnings.warn(
            f"{path}: {len(repeats)} row(s) repeat a SMILES (row {later} that of row {earlier}); all are kept, and a random "
            "split may put one into train and another into test",
            stacklevel=6,
        )
