"""Rows of a CSV or TSV file as text; what the cells mean is decided elsewhere."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from dataclasses import dataclass
from pathlib import Path

from tuplet.errors import InputError


@dataclass(frozen=True)
class TableRow:
    """One row.

    Args:
        number: in the file; the header is row 1.
        cells: as many as the header has.
        problem: why the cells cannot be told apart; then they are cut, or filled up with empty ones.
    """

    number: int
    cells: list[str]
    problem: str | None = None


@dataclass(frozen=True)
class Table:
    """A read table.

    Args:
        path: of the file.
        header: names of the columns.
        rows: below the header.
    """

    path: Path
    header: list[str]
    rows: list[TableRow]

    def column(self, name: str, option: str) -> int:
        """Place of a column."""
        if name not in self.header:
            raise InputError(option, f"a column of {self.path}: {', '.join(map(repr, self.header))}", repr(name))
        return self.header.index(name)


def packing_of(path: Path) -> tuple[str, bool]:
    """What parts the cells of a table, and whether it is packed with gzip, by its name."""
    name = path.name.lower()
    return "\t" if name.removesuffix(".gz").endswith(".tsv") else ",", name.endswith(".gz")


def read_table(path: str | Path) -> Table:
    """All rows of a CSV or TSV file, packed with gzip or not; UTF-8, with or without a byte order mark.

    Empty lines are skipped, except where they are cells: inside a table of one column. A row with more or fewer cells than the
    header is a row with a problem.
    """
    path = Path(path)
    delimiter, packed = packing_of(path)
    try:
        content = path.read_bytes()
        text = (gzip.decompress(content) if packed else content).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError, EOFError, zlib.error) as error:
        raise InputError(str(path), "a readable table in UTF-8", str(error)) from error
    numbered = _numbered(_records(path, text, delimiter))
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
    return Table(path, header, [_row(number, cells, len(header)) for number, cells in numbered[1:]])


def _records(path: Path, text: str, delimiter: str) -> list[list[str]]:
    """Cells of all rows; a cell may be as long as the text."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    records: list[list[str]] = []
    line = 1
    limit = csv.field_size_limit(len(text) + 1)
    try:
        for cells in reader:
            records.append(cells)
            line = reader.line_num + 1
    except csv.Error as error:
        came = f"{error} in row {len(records) + 1}, which begins in line {line}"
        raise InputError(str(path), "a table with its quotes closed", came) from error
    finally:
        csv.field_size_limit(limit)
    return records


def _numbered(records: list[list[str]]) -> list[tuple[int, list[str]]]:
    """Records that are rows: a row of empty cells is one, and in a table of one column so is an empty line before the last row."""
    filled = [row for row, cells in enumerate(records, start=1) if any(cell.strip() for cell in cells)]
    if not filled:
        return []
    first, last = filled[0], filled[-1]
    single = len(records[first - 1]) == 1
    return [
        (row, cells or [""])
        for row, cells in enumerate(records, start=1)
        if first <= row and (any(cell.strip() for cell in cells) or len(cells) > 1 or (single and row < last))
    ]


def _row(number: int, cells: list[str], width: int) -> TableRow:
    if len(cells) == width:
        return TableRow(number, cells)
    filled = [*cells[:width], *[""] * (width - len(cells))]
    return TableRow(number, filled, f"it has {len(cells)} cells, and the header {width}")
