"""Predictions for a file of molecules or graphs, written as a table."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

from tuplet.datasets.csv_table import packing_of, read_table
from tuplet.datasets.files import GRAPH6, check_file, is_table
from tuplet.datasets.local import packed_graphs, read_arrays
from tuplet.errors import InputError, OptionError
from tuplet.graphs.files import read_graphs
from tuplet.graphs.graph6 import from_graph6
from tuplet.graphs.smiles import Unreadable
from tuplet.training.files import make_folder, table_text, write
from tuplet.training.predictions import Predictions
from tuplet.training.trained import Trained, load


@dataclass(frozen=True)
class Source:
    """What a file holds.

    Args:
        items: molecules or graphs, and in place of those that cannot be read why.
        header: names of the columns that stand before the predictions.
        left: cells of these columns, a list an item.
    """

    items: Sequence[Any]
    header: list[str]
    left: list[list[str]]


def predict_file(
    run: str | Path,
    source: str | Path,
    out: str | Path,
    *,
    smiles: str | None = None,
    batch_size: int = 32,
    device: str = "cpu",
    progress: Callable[[int, int, str], None] | None = None,
) -> tuple[int, int]:
    """Predict for a table of SMILES or a file of graphs, and write a CSV table; how many graphs, and how many failed.

    The columns of a table are kept; predicted columns and ``error`` come after them. A file of graphs gives their number (and
    at node or edge level the number of the row in its graph). A row or a line that cannot be read has an error text.

    Args:
        run: a run folder or a model folder.
        source: a .csv or .tsv file with a column of SMILES; graph6 lines (.g6); graphs with features in the packed form
            (.npz, see ``tuplet.datasets.pack``); or an edge list as for ``tuplet.graphs.files.read_graphs``.
        out: the table to write, parted by tabs if it ends in .tsv, packed if it ends in .gz; its folder is made.
        smiles: name of the column; by default as in the file that the model was trained on, else "smiles".
        batch_size: graphs at once.
        device: where the model runs.
        progress: told how far it is (see ``progress_bar``).
    """
    if Path(out).is_dir():
        raise OptionError(f"out: expected a file to write; {str(out)!r} is a folder")
    make_folder("out", Path(out).parent)
    trained = load(run, device)
    read = _read(trained, Path(source), smiles)
    told = trained.predict(read.items, batch_size=batch_size, progress=progress)
    delimiter, packed = packing_of(Path(out))
    text = table_text(_lines(read, told, numbered=trained.task.level != "graph"), delimiter)
    write(Path(out), gzip.compress(text, mtime=0) if packed else text)
    return len(read.items), sum(error is not None for error in told.errors)


def _read(trained: Trained, path: Path, smiles: str | None) -> Source:
    check_file(path)
    if not is_table(path):
        items = _graphs(path)
        return Source(items, ["graph"], [[str(number)] for number in range(len(items))])
    if not trained.reads_smiles():
        raise InputError(str(path), f"graphs, since {trained.task.name} was not trained on SMILES", "a table")
    table = read_table(path)
    place = table.column(smiles or trained.config.get("source", {}).get("smiles", "smiles"), "smiles")
    texts = [row.cells[place] if row.problem is None else Unreadable(row.problem) for row in table.rows]
    return Source(texts, table.header, [row.cells for row in table.rows])


def _graphs(path: Path) -> Sequence[Data | Unreadable]:
    if path.suffix.lower() == ".npz":
        arrays = read_arrays(path, ("num_nodes", "edge_ptr", "edges"))
        return list(packed_graphs(path, arrays, None, torch.float32))
    if path.suffix.lower() not in GRAPH6:
        return read_graphs(path)
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("file", "a readable text file", f"{path}: {error}") from error
    return [_graph(line) for line in lines if line.strip() and not line.startswith("#")]


def _graph(line: str) -> Data | Unreadable:
    try:
        return from_graph6(line)
    except InputError as error:
        return Unreadable(str(error))


def _lines(read: Source, told: Predictions, numbered: bool) -> list[list[Any]]:
    """The lines of the table; ``numbered`` tells rows of one graph apart."""
    owners = told.owner.tolist()
    header = read.header
    within: list[list[int]] = [[] for _ in owners]
    if numbered:
        header = [*header, "row"]
        first = {owner: place for place, owner in reversed(list(enumerate(owners)))}
        within = [[place - first[owner]] for place, owner in enumerate(owners)]
    added = [_free(name, header) for name in (*told.columns(), "error")]
    rows = [
        [*read.left[owner], *number, *row, told.errors[owner] or ""]
        for owner, number, row in zip(owners, within, told.rows(), strict=True)
    ]
    return [[*header, *added], *rows]


def _free(name: str, taken: Sequence[str]) -> str:
    """A column of the file keeps its name; the one that is added gets another."""
    return name if name not in taken else _free(f"tuplet_{name}", taken)
