"""Work on parts of a data set in other processes, in order, with little in memory.

Workers are fresh interpreters that run ``serve``: they never import the user's script, so that no guard is needed in it, and
nothing is pickled. A part travels as an .npz file of plain arrays in a temporary folder; requests and answers are
lines of JSON. A worker ends when its parent does.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from tuplet.errors import InputError

Arrays = dict[str, np.ndarray]
ALONE = 5.0
"""Seconds before other processes are started."""


def in_parts(
    work: str, options: Mapping[str, Any], parts: Iterable[Arrays], processes: int, folder: Path | None = None
) -> Iterator[Arrays]:
    """``work(options, part)`` for each part, in order.

    The first parts are worked on here, for as long as starting other processes would take: a small data set needs none.

    Args:
        work: "module:function"; the function takes options (what JSON can say) and arrays, and returns arrays.
        options: for every part.
        parts: read as they are needed.
        processes: 1 works here, without other processes.
        folder: where a temporary folder is made.
    """
    function, parts, began = _named(work), iter(parts), time.monotonic()
    while processes <= 1 or time.monotonic() - began < ALONE:
        part = next(parts, None)
        if part is None:
            return
        yield function(options, part)
    with (
        tempfile.TemporaryDirectory(prefix="tuplet-", dir=folder) as exchange,
        _Workers(Path(exchange), processes, work, options) as workers,
    ):
        waiting: deque[tuple[Arrays, Future[Arrays | None]]] = deque()
        for part in parts:
            waiting.append((part, workers.submit(part)))
            if len(waiting) > 2 * processes:
                yield _result(work, options, *waiting.popleft())
        while waiting:
            yield _result(work, options, *waiting.popleft())


def _result(work: str, options: Mapping[str, Any], part: Arrays, future: Future[Arrays | None]) -> Arrays:
    result = future.result()
    # what a worker could not do is done again here, so that its error is raised as it was
    return _named(work)(options, part) if result is None else result


class _Workers:
    """Worker processes, each fed by a thread of its own."""

    def __init__(self, folder: Path, processes: int, work: str, options: Mapping[str, Any]) -> None:
        self.folder, self.header = folder, {"work": work, "options": dict(options)}
        self.local = threading.local()
        self.started: list[subprocess.Popen[str]] = []
        self.numbers = iter(range(1 << 62))
        self.pool = ThreadPoolExecutor(processes)

    def __enter__(self) -> _Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.shutdown(wait=False, cancel_futures=True)
        for process in self.started:
            process.kill()
        self.pool.shutdown(wait=True)
        for process in self.started:
            process.communicate()

    def submit(self, part: Arrays) -> Future[Arrays | None]:
        return self.pool.submit(self._do, next(self.numbers), part)

    def _do(self, number: int, part: Arrays) -> Arrays | None:
        process = self._process()
        source, target = self.folder / f"{number}.in.npz", self.folder / f"{number}.out.npz"
        np.savez(source, allow_pickle=False, **part)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps({"source": str(source), "target": str(target)}) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except (BrokenPipeError, OSError):
            answer = ""
        if not answer:
            raise InputError(
                "processes", "worker processes that live",
                f"one that ended with code {process.wait()} (a negative code is a signal; 9 is often a lack of memory)",
                "Use fewer processes.",
            )  # fmt: skip
        source.unlink()
        if not json.loads(answer)["done"]:
            return None
        with np.load(target, allow_pickle=False) as archive:
            result = {name: archive[name] for name in archive.files}
        target.unlink()
        return result

    def _process(self) -> subprocess.Popen[str]:
        if not hasattr(self.local, "process"):
            # tuplet where it is, and nothing of the script's own folder, whose files may be called like modules of Python
            paths = os.pathsep.join(filter(None, (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH"))))
            environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
            process = subprocess.Popen(
                [sys.executable, "-c", "from tuplet.datasets.parallel import serve; serve()"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
            )  # fmt: skip
            self.started.append(process)
            assert process.stdin is not None
            process.stdin.write(json.dumps(self.header) + "\n")
            process.stdin.flush()
            self.local.process = process
        owned: subprocess.Popen[str] = self.local.process
        return owned


def _named(work: str) -> Any:
    module, _, function = work.partition(":")
    return getattr(importlib.import_module(module), function)


def serve() -> None:
    """Be a worker: do what the lines of the standard input ask for, until it ends."""
    answers, sys.stdout = sys.stdout, sys.stderr  # what the work prints must not be taken for an answer
    header = json.loads(sys.stdin.readline())
    function = _named(header["work"])
    for line in sys.stdin:
        request = json.loads(line)
        with np.load(request["source"], allow_pickle=False) as archive:
            part = {name: archive[name] for name in archive.files}
        try:
            np.savez(request["target"], allow_pickle=False, **function(header["options"], part))
            done = True
        except Exception:  # told to the parent, which meets it again and raises it
            done = False
        try:
            print(json.dumps({"done": done}), file=answers, flush=True)
        except BrokenPipeError:  # the parent was killed; at an ordinary end Python would complain of the pipe again
            os._exit(1)
