"""How far a run is: a bar of rich in a terminal, a line now and then everywhere else."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from tuplet._extras import require
from tuplet.errors import MissingExtraError

Report = Callable[[int, int, str], None]
"""Told the steps done, the steps in all, and a few words."""


@contextmanager
def progress_bar(title: str, stream: TextIO | None = None, every: float = 10.0) -> Iterator[Report]:
    """A report to give to ``fit``: ``with progress_bar("A2^LN") as report: fit(.., progress=report)``.

    Args:
        title: stands before the bar.
        stream: where to write; standard output if None.
        every: seconds between two lines, where there is no terminal or rich is not installed.
    """
    stream = stream or sys.stdout
    bar, console = None, None
    with suppress(MissingExtraError):
        bar = require("rich.progress", "train")
        console = require("rich.console", "train").Console(file=stream)
    if bar is None or console is None or not console.is_terminal:
        yield _lines(title, stream, every)
        return
    columns = (
        bar.TextColumn("{task.fields[title]}"),
        bar.BarColumn(bar_width=24),
        bar.TextColumn("{task.description}"),
        bar.TimeElapsedColumn(),
    )
    with bar.Progress(*columns, console=console) as shown:
        task = shown.add_task("preparing", title=title, total=None)

        def report(done: int, total: int, text: str) -> None:
            shown.update(task, completed=done, total=total, description=text)

        yield report


def _lines(title: str, stream: TextIO, every: float) -> Report:
    begin = printed = time.monotonic()

    def report(done: int, total: int, text: str) -> None:
        nonlocal printed
        now = time.monotonic()
        if done == total or now - printed >= every:
            printed = now
            print(f"{title}: {text} ({now - begin:.0f} s)", file=stream, flush=True)

    return report
