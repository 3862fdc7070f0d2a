"""Tables of plain text."""

from __future__ import annotations

from collections.abc import Sequence


def align(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Rows under a header, columns aligned.

    Args:
        header: names of the columns.
        rows: cells, as many a row as there are columns.
        right: numbers of the columns that stand flush right.
    """
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        placed = (
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return "  ".join(placed).rstrip()

    return "\n".join([line(header), line(["-" * width for width in widths]), *map(line, rows)])
