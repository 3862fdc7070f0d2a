"""Tables of the paper beside ours as CSV and as Markdown, made from result files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuplet.experiments.comparison import HEADER, Line, compare, filled
from tuplet.experiments.outcomes import Outcome, read_all
from tuplet.experiments.table import TABLES, Table, read_table
from tuplet.training.files import table_text


@dataclass(frozen=True)
class Reported:
    """One table with all that is known of it.

    Args:
        table: the paper's.
        outcomes: our results.
        lines: both side by side, by column.
    """

    table: Table
    outcomes: Sequence[Outcome]
    lines: dict[str, list[Line]]


def report_on(results: Path, tables: Iterable[str] = TABLES) -> list[Reported]:
    """What a folder of results says about the tables."""
    found = []
    for key in tables:
        table, outcomes = read_table(key), read_all(results, key)
        found.append(Reported(table, outcomes, compare(table, outcomes)))
    return found


def to_csv(reports: Sequence[Reported]) -> str:
    """One line a table, column, row and form."""
    rows: list[Sequence[str]] = [("table", "column", *HEADER)]
    for report in reports:
        rows += [(report.table.key, key, *line.cells()) for key, lines in report.lines.items() for line in lines]
    return table_text(rows).decode()


def to_markdown(reports: Sequence[Reported]) -> str:
    """A section a table."""
    parts = ["# The paper's tables, reproduced"]
    for report in reports:
        parts.append(f"## {report.table.paper}: {report.table.title}\n\n`tuplet reproduce {report.table.key}`")
        for key, lines in report.lines.items():
            if lines:
                header, cells = filled(lines)
                marked = [_row(header), _row(["---"] * len(header)), *map(_row, cells)]
                parts.append(f"**{report.table.column(key).title}**\n\n" + "\n".join(marked))
        parts += [f"{note}" for note in notes(report)]
    return "\n\n".join(parts) + "\n"


def notes(report: Reported) -> list[str]:
    """What a reader of a table should know: of all of it, and of single rows."""
    found = list(report.table.notes)
    sources: dict[str, list[str]] = {}
    for row in report.table.rows:
        found += [f"{row.name}: {note}" for note in row.notes]
        if row.adopted:
            sources.setdefault(row.adopted, []).append(row.name)
    return found + [f"The paper adopted {', '.join(names)} from {source}." for source, names in sources.items()]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
