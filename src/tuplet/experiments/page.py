"""One self-contained page of all tables: numbers, verdicts, pictures, and the command and commit behind every number."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from importlib.resources import files

from tuplet._extras import require
from tuplet.errors import MissingExtraError
from tuplet.experiments.comparison import NUMBERS, Line, commits_of, device_of, filled
from tuplet.experiments.outcomes import Outcome
from tuplet.experiments.render import Reported, notes

VALUE = re.compile(r"[\d.,]+ ± [\d.]+")
"""A mean and its deviation, which stay on one line."""


def to_html(reports: Sequence[Reported]) -> str:
    """The page. Without matplotlib it has no pictures, and says so."""
    try:
        require("matplotlib", "train")
        pictures, said = True, ""
    except MissingExtraError as error:
        pictures, said = False, f'<p class="soft">No pictures: {escape(str(error))}</p>'
    style = files("tuplet").joinpath("experiments", "page.css").read_text(encoding="utf-8")
    links = "".join(
        f'<a href="#{r.table.key}">{escape(r.table.paper)}: {escape(r.table.title)}{_count(r)}</a>' for r in reports
    )
    body = "".join(_section(report, pictures) for report in reports)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>The paper's tables, reproduced</title><style>\n{style}</style></head><body>\n<h1>The paper's tables, reproduced</h1>"
        f'<p class="soft">{_legend()}</p>{said}<nav>{links}</nav>\n{body}\n</body></html>\n'
    )


def _legend() -> str:
    return (
        "Mean ± standard deviation over runs. A verdict says how far ours is from the paper: with fewer than four runs in the paper's "
        "standard deviations, from four on in the root mean square of theirs and ours; within two is within. Where the paper's is 0 only "
        "equal digits are within. Where it gives none the distance is a share, and within 10 % is within. Groups and joint are the two "
        "forms of the softmax: one a neighbourhood, or one over all."
    )


def _count(report: Reported) -> str:
    done = sum(outcome.finished for outcome in report.outcomes)
    failed = sum("failed" in outcome.values for outcome in report.outcomes)
    counts = {"failed": failed, "unfinished": len(report.outcomes) - done - failed}
    missing = "".join(f", {count} {name}" for name, count in counts.items() if count)
    return f' <span class="quiet">{done} runs{missing}</span>'


def _section(report: Reported, pictures: bool) -> str:
    table = report.table
    parts = [f'<section id="{table.key}"><h2>{escape(table.paper)}: {escape(table.title)}</h2>']
    parts.append(f'<p class="soft"><code>tuplet reproduce {table.key}</code></p>')
    for key, lines in report.lines.items():
        if lines:
            title = table.column(key).title
            parts.append(f"<h3>{escape(title)}</h3>{_table(lines)}")
            if pictures:
                parts += _pictures(title, lines, table.kind)
    if pictures and table.kind == "growth":
        parts += _growth(report)
    told = "".join(f"<li>{escape(note)}</li>" for note in notes(report))
    parts.append(f"<ul>{told}</ul>" if told else "")
    return "".join([*parts, _origins(report.outcomes), "</section>\n"])


def _table(lines: Sequence[Line]) -> str:
    header, rows = filled(lines)
    kinds = ["number" if name in ("paper", *NUMBERS) else "" for name in header]
    head = "".join(f'<th class="{kind}">{escape(name)}</th>' for name, kind in zip(header, kinds, strict=True))
    body = ""
    for cells in rows:
        marked = [
            _mood(cell) if name == "verdict" else "value" if VALUE.fullmatch(cell) and not kind else kind
            for name, kind, cell in zip(header, kinds, cells, strict=True)
        ]
        body += (
            "<tr>"
            + "".join(f'<td class="{kind}">{escape(cell)}</td>' for cell, kind in zip(cells, marked, strict=True))
            + "</tr>"
        )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _mood(said: str) -> str:
    """The colour of a verdict."""
    word = said.rpartition("; ")[2].split(" ")[0]
    return {"as": "within"}.get(word, word if word in ("within", "better", "worse") else "quiet")


def _pictures(title: str, lines: Sequence[Line], kind: str) -> list[str]:
    from tuplet.experiments.plots import bars, curves

    if kind != "train":
        return []
    drawn = [bars(title, lines), curves(title, lines) if lines[0].column.shows == "test" else None]
    return [f"<figure>{picture}</figure>" for picture in drawn if picture is not None]


def _growth(report: Reported) -> list[str]:
    from tuplet.experiments.plots import growth

    runs = dict.fromkeys(column.job for column in report.table.columns)
    drawn = [growth(run.upper(), [outcome for outcome in report.outcomes if outcome.job.run == run]) for run in runs]
    return [f"<figure>{picture}</figure>" for picture in drawn if picture is not None]


def _origins(outcomes: Sequence[Outcome]) -> str:
    """Every run with its command, commit and device."""
    if not outcomes:
        return ""
    rows = ""
    for outcome in outcomes:
        cells = [outcome.job.command, ", ".join(dict.fromkeys(commits_of(outcome))), device_of(outcome)]
        rows += (
            f"<tr><td><code>{escape(cells[0])}</code></td>"
            + "".join(f"<td>{escape(cell)}</td>" for cell in cells[1:])
            + "</tr>"
        )
    head = "<tr><th>command</th><th>commit</th><th>device</th></tr>"
    summary = f"<summary>{len(outcomes)} runs: commands, commits, devices</summary>"
    return f'<details>{summary}<div class="wide"><table>{head}{rows}</table></div></details>'
