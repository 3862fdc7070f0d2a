"""``tuplet reproduce`` and ``tuplet report``: the paper's tables, run job by job, and shown beside the paper."""

from __future__ import annotations

import argparse
import math
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import NoReturn

import torch

from tuplet.cli.table import align
from tuplet.errors import OptionError, RunError, TupletError
from tuplet.experiments.comparison import NUMBERS, Line, filled
from tuplet.experiments.jobs import FORMS, Job, select
from tuplet.experiments.outcomes import Outcome, Places, is_done, read_outcome
from tuplet.experiments.render import Reported, notes, report_on, to_csv, to_markdown
from tuplet.experiments.run import Failure, run_jobs
from tuplet.experiments.table import TABLES, read_table
from tuplet.training.files import make_folder, write
from tuplet.training.progress import duration
from tuplet.training.values import numbers


def add_reproduce(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("table", metavar="TABLE", help="name of a table (tuplet list tables)")
    parser.add_argument(
        "--rows",
        nargs="+",
        default=[],
        metavar="ROW",
        help="as in the paper or as their files are called; all if not given",
    )
    parser.add_argument(
        "--columns", nargs="+", default=[], metavar="COLUMN", help="all but those that must be asked for if not given"
    )
    parser.add_argument(
        "--seeds", default="", metavar="LIST", help="such as 0-4 or 0,2; those of the paper if not given"
    )
    parser.add_argument(
        "--softmax", choices=FORMS, default="both", help="form of the softmax, where both differ (%(default)s)"
    )
    parser.add_argument("--epochs", type=int, metavar="N", help="instead of the planned epochs; results are marked")
    parser.add_argument(
        "--budget", type=float, metavar="MINUTES", help="stop at a checkpoint after this time; the same command goes on"
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="how many to run at once (%(default)s)")
    parser.add_argument("--results", default="results", help="folder of the results (%(default)s)")
    parser.add_argument("--work", default="runs/reproduce", help="folder of checkpoints and models (%(default)s)")
    parser.add_argument("--data", help="folder of packed data sets ($TUPLET_DATA)")
    parser.add_argument("--root", help="where fetched and prepared data are kept ($TUPLET_CACHE)")
    parser.add_argument("--commit", help="commit to write into results (what the repository says)")
    parser.add_argument("--list", action="store_true", help="show the jobs and which are done, and run none")


def run_reproduce(arguments: argparse.Namespace) -> int:
    table = read_table(arguments.table)
    if arguments.jobs < 1 or (arguments.budget is not None and not arguments.budget > 0):
        raise OptionError(f"--jobs, --budget: expected positive numbers; came {arguments.jobs}, {arguments.budget}")
    seeds = numbers("--seeds", arguments.seeds) if arguments.seeds else ()
    jobs = select(table, arguments.rows, arguments.columns, seeds, arguments.softmax, arguments.epochs)
    places = Places(Path(arguments.results), Path(arguments.work), arguments.data, arguments.root, arguments.commit)
    if arguments.list:
        print(_listed(places, jobs))
        return 0
    todo, other = _todo(places, jobs)
    done = len(jobs) - len(todo) - len(other)
    print(f"{table.paper}, {table.title}: {len(jobs)} jobs, {done} done before", flush=True)
    if not torch.cuda.is_available():
        waiting = [job for job in todo if job.described()[2].device == "cuda"]
        todo = [job for job in todo if job not in waiting]
        if waiting:
            print(f"{len(waiting)} jobs need a GPU and wait for one")
    until = math.inf if arguments.budget is None else time.monotonic() + 60 * arguments.budget
    count = 0

    def told(job: Job, came: Outcome | Failure) -> None:
        nonlocal count
        count += 1
        print(f"[{count} of {len(todo)}] {job.name}: {_said(job, came)}", flush=True)

    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        failures = other + run_jobs(todo, places, told, until=until, processes=1 if table.alone else arguments.jobs)
    finally:
        signal.signal(signal.SIGTERM, before)
    (report,) = report_on(places.results, [table.key])
    print(f"\n{comparison_text(report)}")
    for failure in failures:
        print(f"failed: {failure.job.name}: {failure.reason}")
    return 1 if failures else 0


def _todo(places: Places, jobs: Sequence[Job]) -> tuple[list[Job], list[Failure]]:
    """Jobs that are not done; and those whose results were made with other settings, which keep no other job from running."""
    todo, other = [], []
    for job in jobs:
        try:
            if not is_done(places, job):
                todo.append(job)
        except TupletError as error:
            other.append(Failure(job, str(error)))
    return todo, other


def run_report(tables: Sequence[str], results: str, out: str | None) -> int:
    """Write the page and, beside it, the same tables as text, Markdown and CSV."""
    from tuplet.experiments.page import to_html

    folder = Path(results)
    if not folder.is_dir():
        raise OptionError(f"--results: expected a folder of results; there is none at {results!r}")
    page = folder / "report.html" if out is None else Path(out)
    if page.suffix != ".html":
        raise OptionError(f"--out: expected a file that ends in .html; came {out!r}")
    reports = report_on(folder, [read_table(name).key for name in tables] or TABLES)
    make_folder("--out", page.parent)
    text = "\n\n\n".join(map(comparison_text, reports)) + "\n"
    for ending, content in (
        (".html", to_html(reports)),
        (".md", to_markdown(reports)),
        (".csv", to_csv(reports)),
        (".txt", text),
    ):
        write(page.with_suffix(ending), content.encode())
    runs = sum(len(report.outcomes) for report in reports)
    print(f"{len(reports)} tables from {runs} results: {page}, and beside it .md, .csv and .txt")
    return 0


def comparison_text(report: Reported) -> str:
    """Paper beside ours, a table a column, with what a reader should know."""
    parts = [f"{report.table.paper}: {report.table.title}"]
    for key, lines in report.lines.items():
        if lines:
            header, cells = filled(lines)
            right = [place for place, name in enumerate(header) if name in NUMBERS]
            parts.append(f"{report.table.column(key).title}\n{align(header, cells, right)}")
    return "\n\n".join([*parts, *(fill(f"Note: {note}", 140) for note in notes(report))])


def _listed(places: Places, jobs: list[Job]) -> str:
    rows = [(job.name, _state(places, job)) for job in jobs]
    done = sum(state.startswith("done") for _, state in rows)
    return f"{align(('job', 'state'), rows)}\n\n{len(jobs)} jobs, {done} done"


def _state(places: Places, job: Job) -> str:
    try:
        if is_done(places, job):
            return "done"
    except OptionError as error:
        return f"other settings: {error}"
    except RunError as error:
        return f"damaged: {error}"
    known = read_outcome(places, job)
    if known is None:
        return "to do"
    if "failed" in known.values:
        return f"failed: {known.values['failed']}"
    return f"begun: epoch {known.values.get('epochs')} of {job.options().epochs}"


def _said(job: Job, came: Outcome | Failure) -> str:
    if isinstance(came, Failure):
        return f"failed: {came.reason}"
    _, row, column = job.described()
    line = Line(row, column, job.form, job.epochs, (came,))
    seconds = came.values.get("seconds")
    return line.ours + (f", {duration(seconds)}" if seconds is not None else "")


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt
