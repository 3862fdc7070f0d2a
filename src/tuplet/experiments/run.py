"""Jobs run: one after another here, or several at once in processes of their own; a job that fails does not stop the others."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from tuplet.experiments.jobs import Job
from tuplet.experiments.outcomes import Outcome, Places, first_line
from tuplet.training.files import make_folder, write

LOG, ERROR = "log.txt", "error.txt"
PATIENCE = 30.0
"""Seconds that processes have to save what they have when they are told to end."""


@dataclass(frozen=True)
class Failure:
    """A job that came to no result: which, and why."""

    job: Job
    reason: str


Told = Callable[[Job, "Outcome | Failure"], None]


def run_jobs(jobs: Sequence[Job], places: Places, told: Told, *, until: float, processes: int = 1) -> list[Failure]:
    """Run jobs until all are done or the time is over; those that failed.

    Args:
        jobs: in the order in which they begin.
        places: where to find and to leave things.
        told: is told each outcome or failure as it comes.
        until: the deadline, as ``time.monotonic`` counts: no job begins after it, and those under way stop at a checkpoint.
        processes: how many at once.
    """
    if processes > 1 and len(jobs) > 1:
        return _Pool(places, told, until, min(processes, len(jobs))).run(list(jobs))
    failures = []
    for job in jobs:
        if time.monotonic() >= until:
            break
        came = perform(job, places, until)
        told(job, came)
        if isinstance(came, Failure):
            failures.append(came)
    return failures


def perform(job: Job, places: Places, until: float) -> Outcome | Failure:
    """Run one job; an error becomes a failure whose trace is kept beside the run."""
    try:
        return _run(job, places, until)
    except Exception as error:
        with suppress(Exception):
            write(make_folder("--work", places.folder(job)) / ERROR, traceback.format_exc().encode())
        return Failure(job, first_line(error))
    finally:
        gc.collect()
        if torch.cuda.is_initialized():
            with suppress(RuntimeError):  # a device that has failed says so again
                torch.cuda.empty_cache()  # for the processes beside this one


def _run(job: Job, places: Places, until: float) -> Outcome:
    from tuplet.experiments.growth_jobs import run_growth
    from tuplet.experiments.step_jobs import run_step
    from tuplet.experiments.training_jobs import run_training

    kinds = {"train": run_training, "step": run_step, "growth": run_growth}
    return kinds[job.described()[0].kind](job, places, until)


class _Pool:
    """Processes that each run one job after another; one that dies is replaced, and its job has failed. So is one whose job
    fails: what an error left on a device would fail the next job too."""

    def __init__(self, places: Places, told: Told, until: float, processes: int) -> None:
        self.places, self.told, self.until, self.processes = places, told, until, processes
        self.context = multiprocessing.get_context("spawn")
        self.busy: dict[Connection, tuple[Any, Job]] = {}
        self.idle: list[tuple[Any, Connection]] = []
        self.failures: list[Failure] = []

    def run(self, jobs: list[Job]) -> list[Failure]:
        try:
            while jobs or self.busy:
                while jobs and len(self.busy) < self.processes and time.monotonic() < self.until:
                    self._begin(jobs.pop(0))
                if not self.busy:
                    break
                for connection in wait(list(self.busy)):
                    assert isinstance(connection, Connection)
                    self._end(connection)
        finally:
            self._leave()
        return self.failures

    def _begin(self, job: Job) -> None:
        process, connection = self.idle.pop() if self.idle else self._start()
        self.busy[connection] = (process, job)
        connection.send(job)

    def _start(self) -> tuple[Any, Connection]:
        ours, theirs = self.context.Pipe()
        threads = max(1, (os.cpu_count() or 1) // self.processes)
        process = self.context.Process(target=_work, args=(theirs, self.places, self.until, threads))
        process.start()
        theirs.close()
        return process, ours

    def _end(self, connection: Connection) -> None:
        process, job = self.busy.pop(connection)
        try:
            came = connection.recv()
        except EOFError:
            process.join()
            came = Failure(job, f"its process ended with code {process.exitcode}; see {self.places.folder(job) / LOG}")
        if isinstance(came, Failure):
            self.failures.append(came)
            connection.close()  # which ends the process
        else:
            self.idle.append((process, connection))
        self.told(job, came)

    def _leave(self) -> None:
        """Let idle processes go, and tell busy ones to end at once: they write down what their last checkpoint holds."""
        for process, connection in self.idle:
            connection.close()
            process.join()
        for process, _ in self.busy.values():
            process.terminate()
        for process, _ in self.busy.values():
            process.join(PATIENCE)
            if process.is_alive():
                process.kill()


def _work(connection: Connection, places: Places, until: float, threads: int) -> None:
    """Run what comes through the connection until it is closed; what a job prints goes to a file beside its run."""
    signal.signal(signal.SIGTERM, _stop)
    torch.set_num_threads(threads)
    while True:
        try:
            job: Job = connection.recv()
        except (EOFError, KeyboardInterrupt):
            return
        path = make_folder("--work", places.folder(job)) / LOG
        with open(path, "a", encoding="utf-8") as log, redirect_stdout(log), redirect_stderr(log):
            try:
                came = perform(job, places, until)
            except (KeyboardInterrupt, SystemExit):
                return
        connection.send(came)


def _stop(*_: Any) -> None:
    raise SystemExit(1)
