"""When the state of a run is saved, and how it is found again."""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from tuplet.errors import RunError, UnfinishedError
from tuplet.training.checkpoint import Checkpoints
from tuplet.training.parallel import every_row
from tuplet.training.state import State, random_state, restore_random

SIGNALS = signal.SIGTERM, signal.SIGINT
"""That end a run."""


class Keeper:
    """Saves nothing: what a run without a folder uses."""

    def due(self) -> bool:
        """Whether it is time to save."""
        return False

    def save(self, state: State, fabric: Any) -> None:
        """Save the state; called by all processes at the same step."""

    def restore(self, state: State, fabric: Any) -> None:
        """Bring a new state, and the random numbers, to where the last good checkpoint was; called by all processes."""

    @contextmanager
    def listening(self) -> Iterator[None]:
        """While this lasts, a signal to end may wait until the state is saved."""
        yield


class FolderKeeper(Keeper):
    """Saves into a folder, from the first process.

    SIGTERM, which schedulers of clusters send some time before they kill, and SIGINT, a user's Ctrl-C, are obeyed after a checkpoint at the
    next step; sent once more at once.

    Args:
        folder: of the checkpoints.
        seconds: at least so much time lies between two of them; 0 saves after every step.
        keep: how many are kept.
        data: fingerprint of the data; a checkpoint of another data set is refused.
        rank: of this process.
        resume: go on from a checkpoint, if there is one.
        until: the deadline, as ``time.monotonic`` counts: the first save after it is the last, and ends the run.
    """

    def __init__(
        self,
        folder: Path,
        seconds: float,
        keep: int,
        data: str,
        rank: int,
        resume: bool,
        until: float = math.inf,
    ) -> None:
        self.checkpoints = Checkpoints(folder, keep) if rank == 0 else None
        self.seconds, self.data, self.resume, self.until = seconds, data, resume, until
        self.saved = time.monotonic()
        self.told = 0  # the signal to end, if one came
        self.obey: dict[int, Any] = {}

    def due(self) -> bool:
        now = time.monotonic()
        return self.told != 0 or now - self.saved >= self.seconds or now >= self.until

    def save(self, state: State, fabric: Any) -> None:
        random = {kind: every_row(fabric, value) for kind, value in random_state(fabric.device).items()}
        if self.checkpoints is not None:
            states = {f"random/{rank}/{kind}": row for kind, rows in random.items() for rank, row in enumerate(rows)}
            self.checkpoints.save(state.tensors() | states, state.facts() | {"data": self.data})
        self.saved = time.monotonic()
        told = fabric.broadcast(self.told)
        if told:
            self._say("what is done is in a checkpoint")
            self._end(told)
        if fabric.broadcast(self.saved >= self.until) and not state.done:
            raise UnfinishedError(
                f"until: the deadline came in epoch {state.epoch + 1}; what is done is in a checkpoint"
            )

    def restore(self, state: State, fabric: Any) -> None:
        found = self.checkpoints.load() if self.checkpoints is not None and self.resume else None
        found = fabric.broadcast(found)
        if found is None:
            return
        tensors, facts = found
        if facts.get("data") != self.data:
            raise RunError(
                "checkpoint: expected one of the same data; this run learned from other graphs, targets or splits"
            )
        state.restore(tensors, facts)
        own = f"random/{fabric.global_rank}/"
        states: Mapping[str, torch.Tensor] = {
            name.removeprefix(own): value for name, value in tensors.items() if name.startswith(own)
        }
        if states:  # none for a process that the run did not have before
            restore_random(states, fabric.device)

    @contextmanager
    def listening(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():  # which alone may say what signals do
            yield
            return
        self.obey = {number: signal.signal(number, self._listen) or signal.SIG_DFL for number in SIGNALS}
        try:
            yield
        finally:
            for number, before in self.obey.items():
                signal.signal(number, before)
        if self.told:
            signal.raise_signal(self.told)

    def _listen(self, number: int, _: Any) -> None:
        if self.told:
            self._end(number)
            return
        self.told = number
        self._say("stopping at the next step; once more stops at once")

    def _say(self, words: str) -> None:
        if self.checkpoints is not None:  # in the first process
            print(f"tuplet: {words}", file=sys.stderr, flush=True)

    def _end(self, number: int) -> None:
        """Do what the signal would have done, which may be nothing."""
        self.told = 0
        signal.signal(number, self.obey.get(number, signal.SIG_DFL))
        signal.raise_signal(number)
