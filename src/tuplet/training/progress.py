"""How far a run is: a bar of rich in a terminal, a line now and then everywhere else."""

from __future__ import annotations

import gc
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

import torch

from tuplet._extras import require
from tuplet.errors import MissingExtraError
from tuplet.training.options import TrainOptions
from tuplet.training.pages import give_back
from tuplet.training.state import History

Report = Callable[[int, int, str], None]
"""Told the steps done, the steps in all, and a few words."""


@contextmanager
def progress_bar(title: str, stream: TextIO | None = None, every: float = 10.0) -> Iterator[Report]:
    """A report to give to ``fit``: ``with progress_bar("A2^LN") as report: fit(.., report=report)``.

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
            with suppress(BrokenPipeError):  # whoever reads has seen enough; the work goes on
                print(f"{title}: {text} ({now - begin:.0f} s)", file=stream, flush=True)

    return report


def describe(
    history: History,
    options: TrainOptions,
    metric: str,
    pace: float | None = None,
    left: float | None = None,
    over: bool = False,
) -> str:
    """Where a run is, in words: epoch, loss, metric, graphs a second, memory, time left.

    Args:
        history: of the epochs that have ended.
        options: for the number of epochs.
        metric: name of the metric.
        pace: graphs learned from in a second, if it can be told.
        left: seconds to go, if they can be told.
        over: whether the run has ended.
    """
    parts = [f"epoch {history.epochs + (not over)} of {options.epochs}"]
    if history.train_loss:
        parts.append(f"loss {history.train_loss[-1]:.3g}")
        validated = not math.isnan(history.val_metric[-1])
        parts += [f"val {metric} {history.val_metric[-1]:.4g}"] if validated else []
    if pace is not None:
        parts.append(f"{pace:.0f} graphs/s")
    parts.append(f"{peak_memory() / 1e9:.1f} GB")
    if left is not None:
        parts.append(f"{duration(left)} left")
    return ", ".join(parts)


def forget_peak(device: torch.device) -> None:
    """Count the most memory in use from now on, without what earlier work in this process has left behind. Where the system does not
    allow that (other than Linux), the process's most memory stays what it was."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.init()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        return
    give_back()
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory() -> int:
    """Most bytes in use so far: on the GPU if there is one in use, else of the process."""
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return torch.cuda.max_memory_allocated()
    return process_peak()


def process_peak() -> int:
    """Most bytes that this process has held, as the operating system counts them; 0 where it does not say."""
    with suppress(OSError, StopIteration):  # on Linux the number below begins with what stood here before the program
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    try:
        import resource
    except ImportError:  # Windows does not tell
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def duration(seconds: float) -> str:
    """12 s, 3 min, 1 h 20 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"
