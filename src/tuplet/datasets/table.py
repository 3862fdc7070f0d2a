"""A table of molecules: a CSV (or TSV) file with a column of SMILES and columns of targets."""

from __future__ import annotations

import csv
import gzip
import io
import json
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import Tensor

from tuplet.datasets.packed import Field, PackedGraphs
from tuplet.datasets.parallel import Arrays, in_parts
from tuplet.datasets.splits import FRACTIONS, column_split, random_split, scaffold_split, strata, stratified_split
from tuplet.datasets.targets import Targets, from_cells
from tuplet.datasets.task import Kind, Loss, Metric, Skipped, Task
from tuplet.errors import InputError, OptionError
from tuplet.graphs.smiles import ATOM_TYPES, BOND_TYPES, Unreadable, from_molecule, parse, scaffold

SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
PART = 512
"""Molecules that are worked on at once."""
LISTED = 10
"""Rows that a warning names."""


@dataclass(frozen=True)
class Table:
    """A read table.

    Args:
        path: of the file.
        header: names of the columns.
        rows: number of each row in the file (the header is row 1) and its cells.
    """

    path: Path
    header: list[str]
    rows: list[tuple[int, list[str]]]

    def column(self, name: str, option: str) -> int:
        """Place of a column."""
        if name not in self.header:
            raise InputError(option, f"a column of {self.path}: {', '.join(map(repr, self.header))}", repr(name))
        return self.header.index(name)


def read_table(path: str | Path) -> Table:
    """All rows of a CSV or TSV file, packed with gzip or not; UTF-8, with or without a byte order mark.

    Empty lines are skipped, except where they are cells: inside a table of one column.
    """
    path = Path(path)
    try:
        content = path.read_bytes()
        text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError, EOFError, zlib.error) as error:
        raise InputError(str(path), "a readable table in UTF-8", str(error)) from error
    delimiter = "\t" if ".tsv" in path.suffixes else ","
    try:
        records = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True))
    except csv.Error as error:
        raise InputError(str(path), "a table with its quotes closed", str(error)) from error
    numbered = [(row, cells) for row, cells in enumerate(records, start=1) if any(cell.strip() for cell in cells)]
    if numbered:
        # a row of empty cells is a row, and in a table of one column so is an empty line before the last row
        first, last = numbered[0][0], numbered[-1][0]
        single = len(numbered[0][1]) == 1
        numbered = [
            (row, cells or [""])
            for row, cells in enumerate(records, start=1)
            if first <= row and (any(cell.strip() for cell in cells) or len(cells) > 1 or (single and row < last))
        ]
    if not numbered:
        raise InputError(str(path), "a header and at least one row", "an empty file")
    header = [cell.strip() for cell in numbered[0][1]]
    for name in header:
        if header.count(name) > 1:
            raise InputError(str(path), "columns with different names", f"{name!r} twice")
    if len(numbered) == 1:
        raise InputError(str(path), "at least one row below the header", "none")
    if len(header) == 1 and ";" in header[0]:
        raise InputError(str(path), "columns parted by commas (.csv) or tabs (.tsv)", "semicolons")
    for row, cells in numbered[1:]:
        if len(cells) != len(header):
            raise InputError(
                str(path), f"{len(header)} cells in every row, as in the header", f"{len(cells)} in row {row}"
            )
    return Table(path, header, numbered[1:])


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
    loss: Loss | None = None,
    metric: Metric | None = None,
    standardise: bool = True,
    processes: int = 1,
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
        invalid: "skip" leaves rows out whose SMILES cannot be read, with a warning that lists them and with ``task.skipped``;
            "refuse" raises.
        kind: regression, classification or binary; by default what the cells look like (see ``targets.from_cells``).
        loss, metric: by default the usual ones of the kind.
        standardise: whether training standardises real targets.
        processes: that read molecules.
        progress: is told molecules done and in all.
    """
    if invalid not in ("skip", "refuse"):
        raise OptionError(f"invalid: expected 'skip' or 'refuse'; came {invalid!r}")
    table = read_table(path)
    place = table.column(smiles, "smiles")
    chosen = _targets(table, smiles, targets, split)
    texts = [cells[place] for _, cells in table.rows]
    read = read_molecules(texts, processes=processes, progress=progress, scaffolds=split == "scaffold")
    skipped = tuple(Skipped(table.rows[item][0], texts[item].strip(), reason) for item, reason in read.failed)
    kept = [table.rows[item] for item in read.kept]
    _report(table.path, skipped, invalid, len(kept))
    _report_repeats(table.path, kept, place)
    rows = [row for row, _ in kept]
    wanted = [table.column(name, "targets") for name in chosen]
    found = from_cells(chosen, [[cells[column] for column in wanted] for _, cells in kept], rows, kind)
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
        node_types=ATOM_TYPES, edge_types=BOND_TYPES, mean=mean, std=std, targets=found.names, skipped=skipped,
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
    processes: int = 1,
    progress: Callable[[int, int], None] | None = None,
    scaffolds: bool = False,
) -> Molecules:
    """Graphs of many SMILES with OGB's features; those that cannot be read are told, not raised."""
    graphs, kept, failed, found = [], [], [], []
    first = 0
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
        chosen = [targets] if isinstance(targets, str) else list(targets)
        if not chosen or len(set(chosen)) < len(chosen) or smiles in chosen:
            raise OptionError(f"targets: expected different columns other than {smiles!r}; came {chosen}")
        return chosen
    others = [name for name in table.header if name not in (smiles, (split or "").removeprefix("column:"))]
    if len(others) != 1:
        raise InputError(
            "targets", f"columns of {table.path} to learn: {', '.join(map(repr, others)) or 'none'}", "no choice"
        )
    return others


def _split(
    table: Table,
    kept: list[tuple[int, list[str]]],
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
        return column_split([cells[column] for _, cells in kept], [row for row, _ in kept], name)
    raise OptionError(f"split: expected 'random', 'stratified', 'scaffold' or 'column:NAME'; came {split!r}")


def _report(path: Path, skipped: tuple[Skipped, ...], invalid: str, kept: int) -> None:
    if not skipped:
        return
    listed = "; ".join(f"row {item.row}: {item.text[:40]!r} ({item.reason})" for item in skipped[:LISTED])
    more = f"; and {len(skipped) - LISTED} more, all in task.skipped" if len(skipped) > LISTED else ""
    if invalid == "refuse" or kept == 0:
        hint = "Pass invalid='skip' to leave them out." if kept else "Is this the column of SMILES?"
        raise InputError(
            str(path), "a molecule in every row", f"{len(skipped)} that cannot be read: {listed}{more}", hint
        )
    warnings.warn(f"{path}: {len(skipped)} row(s) skipped that are no molecules: {listed}{more}", stacklevel=6)


def _report_repeats(path: Path, kept: list[tuple[int, list[str]]], place: int) -> None:
    first: dict[str, int] = {}
    repeats = [(first[cells[place]], row) for row, cells in kept if first.setdefault(cells[place], row) != row]
    if repeats:
        earlier, later = repeats[0]
        warnings.warn(
            f"{path}: {len(repeats)} row(s) repeat a SMILES (row {later} that of row {earlier}); all are kept, and a random "
            "split may put one into train and another into test",
            stacklevel=6,
        )
