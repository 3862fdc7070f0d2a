"""Training steps and evaluations recorded as CUDA graphs: the host says which graphs, and nothing else, for each batch."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tuplet.attention.weights import wide
from tuplet.errors import TooLargeError
from tuplet.kernels.beside import FIRST, Late, beside, collected
from tuplet.models.prepare import Prepared
from tuplet.training.batches import Members
from tuplet.training.objective import Objective
from tuplet.training.options import TrainOptions
from tuplet.training.parallel import MATMUL, matmul_precision
from tuplet.training.resident import Resident, Room
from tuplet.training.state import State

PORTIONS = 8
"""Of an optimiser's step, side by side."""


@dataclass(frozen=True)
class Ready:
    """A batch that fills its room, and what its outputs are compared with.

    Args:
        batch: what the model runs.
        room: what it has room for.
        targets: numbers and whether they are there (see ``Objective.wanted``).
        count: how many are.
    """

    batch: Prepared
    room: Room
    targets: tuple[Tensor, Tensor]
    count: Tensor


@dataclass(frozen=True)
class Recording:
    """What is done with batches of one shape, in two recordings: a batch is put together while the one before is worked on.

    Args:
        ids: which graphs make the batch; written before a replay.
        together: puts the batch together; None where that is part of the other.
        ready: the batch, overwritten by the next replay; None likewise.
        graph: what is done with it.
        outputs: what that leaves behind, overwritten by the next replay.
        done: when the last replay has ended.
    """

    ids: Tensor
    together: torch.cuda.CUDAGraph | None
    ready: Ready | None
    graph: torch.cuda.CUDAGraph
    outputs: Tensor
    done: torch.cuda.Event


class _SharedError(Exception):
    """A weight has gradients from two places, which were added up before they were there; or it is held still, and what was put off for it
    is nobody's, which looks the same."""


class Recorder:
    """Replays steps of a model on batches of a resident data set; each shape is recorded when it first occurs.

    Args:
        resident: the data set, and the model.
        objective: targets and loss.
        options: of the training.
        fabric: device and precision.
        state: optimiser and the sum of losses, which recordings refer to.
    """

    late = True
    """Whether gradients of weights are put off, which keeps what they are made of a little longer: not where memory is spared, and no more,
    once a weight is found to have several."""

    def __init__(
        self, resident: Resident, objective: Objective, options: TrainOptions, fabric: Any, state: State
    ) -> None:
        self.resident, self.objective, self.options = resident, objective, options
        self.fabric, self.state = fabric, state
        self.model: nn.Module = resident.model
        self.valid = objective.valid.to(fabric.device)
        self.sparing = resident.model.config.recompute  # layers are computed again to spare memory
        self.late = self.late and not self.sparing
        self.recordings: dict[tuple[bool, Room], Recording] = {}
        self.pool: Any = None
        # one for all: libraries keep a workspace for every stream they have met
        self.stream = torch.cuda.Stream(priority=FIRST)
        self.ahead = torch.cuda.Stream()
        _prime(state.optimiser)
        self.updates = [portion.step for portion in _portions(state.optimiser)]

    def step(self, members: Members) -> None:
        """One training step; nothing is waited for."""
        self._replay(members, learn=True)

    def forget_steps(self) -> None:
        """Record training steps anew: the model does something else in them now."""
        self.recordings = {key: recording for key, recording in self.recordings.items() if not key[0]}
        if not self.recordings:
            self.pool = None  # it went with them

    def outputs(self, members: Members) -> Tensor:
        """(rows, outputs) of the model in evaluation mode, then rows of padding; overwritten by a later call."""
        return self._replay(members, learn=False)

    def _replay(self, members: Members, learn: bool) -> Tensor:
        key = learn, self.resident.room(members)
        if key not in self.recordings:
            self.recordings[key] = self._record(members, key[1], learn)
        recording, now = self.recordings[key], torch.cuda.current_stream()
        ahead = now if recording.together is None else self.ahead
        with torch.cuda.stream(ahead):
            ahead.wait_event(recording.done)
            recording.ids.copy_(torch.tensor(members).pin_memory(), non_blocking=True)
            if recording.together is not None:
                recording.together.replay()
        now.wait_stream(ahead)
        recording.graph.replay()
        recording.done.record(now)
        return recording.outputs

    def _record(self, members: Members, room: Room, learn: bool) -> Recording:
        """Run once for real and without a trace, so that kernels are compiled; then record. An evaluation has few and large batches, whose
        memory is worth more than the time to put them together."""
        ids, act = torch.tensor(members, device=self.fabric.device), self._learn if learn else self._forward
        with self._without_trace():
            act(self._together(ids, room))
        together, ready, graph = None, None, torch.cuda.CUDAGraph()
        if learn and not self.sparing:
            together = torch.cuda.CUDAGraph()
            # in memory of its own: what others write on the way must not be where this batch waits for its turn
            with torch.cuda.graph(together, stream=self.stream):
                ready = self._together(ids, room)
        try:
            with torch.cuda.graph(graph, pool=self.pool, stream=self.stream):
                outputs = act(self._together(ids, room) if ready is None else ready)
        except _SharedError:  # nothing is put off, then
            self.late = False
            return self._record(members, room, learn)
        self.pool = graph.pool()
        return Recording(ids, together, ready, graph, outputs, torch.cuda.Event())

    @contextmanager
    def _without_trace(self) -> Iterator[None]:
        """On the recorder's stream, and everything that learns is put back as it was."""
        optimiser = [value for memory in self.state.optimiser.state.values() for value in memory.values()]
        kept = [*self.model.parameters(), *self.model.buffers(), *optimiser, self.state.loss]
        before = [tensor.detach().clone() for tensor in kept]
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream), torch.random.fork_rng(devices=[self.fabric.device]), _unrecorded():
            yield
            with torch.no_grad():
                for tensor, value in zip(kept, before, strict=True):
                    tensor.copy_(value)
        torch.cuda.current_stream().wait_stream(self.stream)

    def _together(self, ids: Tensor, room: Room) -> Ready:
        """A batch and its targets."""
        rows = self.resident.targets(ids, room)
        batch = self.resident.prepared(ids, room)
        return Ready(batch, room, self.objective.wanted(rows), self.valid[rows].sum().clamp_min(1))

    def _forward(self, ready: Ready) -> Tensor:
        """Outputs of a batch."""
        found: Tensor = self.model(ready.batch)
        return found if ready.room.queries else found[: ready.room.graphs]

    def _learn(self, ready: Ready) -> Tensor:
        """The whole of a training step; its loss."""
        parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        late_or_not = collected() if self.late else nullcontext(Late())
        with matmul_precision(MATMUL[self.options.precision]), late_or_not as late:
            with self.fabric.autocast() if self.options.precision == "bf16" else nullcontext():
                outputs = self._forward(ready)
            loss = self.objective.difference(outputs.to(wide(outputs.dtype)), *ready.targets)
            found = torch.autograd.grad(loss / ready.count.to(loss.dtype), parameters, allow_unused=True)
        if not late.untouched(found):
            raise _SharedError
        for parameter, gradient in zip(parameters, found, strict=True):
            parameter.grad = torch.zeros_like(parameter) if gradient is None else gradient.contiguous()
        if self.options.clip is not None:
            nn.utils.clip_grad_norm_(parameters, self.options.clip, foreach=True)
        beside(*self.updates)
        self.state.loss += loss.detach().double()
        for parameter in parameters:
            parameter.grad = None
        return loss.detach()


def _prime(optimiser: torch.optim.Optimizer) -> None:
    """Make the optimiser's memory before it is recorded, and change nothing: one step of length 0 on no gradient."""
    if optimiser.state:
        return
    rates = [group["lr"].clone() for group in optimiser.param_groups]
    for group in optimiser.param_groups:
        group["lr"].zero_()
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter)
    with _unrecorded():
        optimiser.step()
    for group, rate in zip(optimiser.param_groups, rates, strict=True):
        group["lr"].copy_(rate)
        for parameter in group["params"]:
            parameter.grad = None
    for memory in optimiser.state.values():
        memory["step"].zero_()


@contextmanager
def _unrecorded() -> Iterator[None]:
    """An optimiser that is made to be recorded may step once without being so, and says nothing."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="This instance was constructed with capturable=True")
        yield


def _portions(optimiser: torch.optim.Optimizer) -> list[torch.optim.Optimizer]:
    """The same optimiser for some of the parameters each: a launch takes a few dozen, and is done with many as soon."""
    found = []
    for group in optimiser.param_groups:
        for first in range(PORTIONS):
            portion = copy.copy(optimiser)
            portion.param_groups = [{**group, "params": group["params"][first::PORTIONS]}]
            found.append(portion)
    return found


def make_recorder(
    model: nn.Module, objective: Objective, options: TrainOptions, fabric: Any, state: State
) -> Recorder | None:
    """A recorder where one can be used: one GPU with room for the data set, one batch of whole graphs a step, and a model that
    ``Resident`` fits."""
    task = objective.task
    simple = options.accumulate == 1 and options.batch_tokens is None and not options.compile
    if fabric.device.type != "cuda" or fabric.world_size > 1 or task.level == "node" or not simple:
        return None
    if options.precision == "fp64" or not Resident.fits(model, task.graphs):
        return None
    try:
        resident = Resident(model, task.graphs, options.batch_size)  # type: ignore[arg-type]
    except TooLargeError:
        return None
    return Recorder(resident, objective, options, fabric, state)
