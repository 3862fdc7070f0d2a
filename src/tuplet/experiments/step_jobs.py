"""Jobs that ask whether one training step fits: on graphs of a data set's sizes, or on the largest graph that does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from tuplet.errors import TooLargeError
from tuplet.experiments.jobs import Job
from tuplet.experiments.measure import peak_bytes, seconds
from tuplet.experiments.molecules import molecule, noise
from tuplet.experiments.outcomes import Outcome, Places, about
from tuplet.training.inputs import ready
from tuplet.training.loop import ready_loop
from tuplet.training.options import TrainOptions
from tuplet.training.parallel import make_fabric
from tuplet.training.runs import make_model

OPERATIONS = {"cuda": 6e14, "cpu": 2e11}
"""Floating-point operations up to which a step is tried, a minute of work; beyond, it is called too slow."""
SEARCHED = 1 / 6
"""The share of them up to which a step is tried in the search for the largest graph."""
FIRST, MOST = 512, 1 << 20
"""Nodes at which that search begins, and beyond which it does not go."""


@dataclass(frozen=True)
class Step:
    """What one training step took.

    Args:
        milliseconds: median of three, or of one that takes long.
        bytes: most memory beyond what was there before.
        parameters: of the model.
    """

    milliseconds: float
    bytes: int
    parameters: int


@dataclass(frozen=True)
class Refused:
    """Why there was no step.

    Args:
        reason: in a sentence.
        slow: whether it would have taken too long here, which does not say whether it fits.
    """

    reason: str
    slow: bool = False


def run_step(job: Job, places: Places, until: float) -> Outcome:
    """One cell: the batch that fits, or the reason why none does. A step is not interrupted, so the deadline is not looked at."""
    del until
    options, column = job.options(), job.described()[2]
    device = make_fabric(options).device
    values = _batch(options, column.sizes) if column.sizes else _largest(options)
    outcome = Outcome(job, True, values, {}, options.plain(), about(places, device))
    outcome.write(places)
    return outcome


def _batch(options: TrainOptions, sizes: Mapping[str, float]) -> dict[str, Any]:
    """The data set's batch, halved until one can be tried that fits; the largest graph is always in it. What refused the larger ones
    is kept, and where even one graph would take too long, whether it fits is not decided."""
    largest, mean, size = int(sizes["largest"]), round(sizes["mean"]), options.batch_size
    refused: dict[str, str] = {}
    whole = ""
    while True:
        tried = _tried([largest, *[mean] * (size - 1)], options)
        values = {"n": largest, "refused": refused}
        if isinstance(tried, Step):
            said = f"yes: batch {size}{whole}, {tried.milliseconds:.3g} ms, {tried.bytes / 1e9:.2g} GB"
            return {"fits": True, "batch": size, "said": said, **values, **_facts(tried)}
        refused[str(size)] = tried.reason
        if size == 1:
            said = f"{'not decided' if tried.slow else 'no'}: {tried.reason}"
            return {"fits": None if tried.slow else False, "said": said, **values}
        whole = f" of {options.batch_size} ({size} {'are too slow' if tried.slow else 'do not fit'})"
        size //= 2


def _largest(options: TrainOptions) -> dict[str, Any]:
    """The largest single graph, by doubling and then halving the gap to an eighth of it. Encodings are left out: they are computed
    before training, by dense matrices that end sooner than a sparse model does."""
    options = replace(options, model_options={**options.model_options, "encodings": []})
    low, high, best, refused = 0, 0, None, Refused("the search ends there")
    n = FIRST
    while n <= MOST and (not high or high - low > low / 8):
        tried = _tried([n], options, SEARCHED)
        if isinstance(tried, Step):
            low, best = n, tried
        else:
            high, refused = n, tried
        n = 2 * low if not high else (low + high) // 2
        if n <= max(low, 1):  # the smallest molecule has two atoms
            break
    if best is None:
        return {"largest": None if refused.slow else 0, "said": f"none: {refused.reason}"}
    return {
        "largest": low,
        "n": low,
        "said": f"{low}, {best.milliseconds:.3g} ms, {best.bytes / 1e9:.2g} GB; then: {refused.reason}",
        **_facts(best),
    }


def _facts(step: Step) -> dict[str, Any]:
    return {"milliseconds": step.milliseconds, "peak_memory_bytes": step.bytes, "parameters": step.parameters}


def _tried(sizes: Sequence[int], options: TrainOptions, share: float = 1.0) -> Step | Refused:
    """A training step on random molecules of these sizes, or why there is none; ``share`` of the operations are tried."""
    try:
        made = _step(sizes, options, share)
        if isinstance(made, Refused):
            return made
        call, device, parameters, quick = made
        most = peak_bytes(call, device)
        return Step(1e3 * seconds(call, device, 3 if quick else 1, warm=True), most, parameters)
    except TooLargeError as error:
        return Refused(str(error).splitlines()[0])
    except torch.OutOfMemoryError as error:
        return Refused(f"out of memory: {str(error).splitlines()[0]}")
    finally:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _step(
    sizes: Sequence[int], options: TrainOptions, share: float
) -> tuple[Callable[[], object], torch.device, int, bool] | Refused:
    """A function that makes one training step, where, with how many weights, and whether it is quick; or why it is not tried."""
    generator = torch.Generator().manual_seed(0)
    task = noise([molecule(n, generator) for n in sizes])
    torch.manual_seed(0)
    model = make_model(task, options)
    task = ready(task, model)
    fabric = make_fabric(options)
    cost: Any = model.cost
    operations, most = cost(list(task.graphs)).flops, share * OPERATIONS[fabric.device.type]
    if operations > most:
        return Refused(f"a step takes {operations:.1e} operations; up to {most:.0e} are tried here", slow=True)
    loop = ready_loop(model, task, options, fabric)
    members = list(range(len(sizes)))
    parameters = sum(weight.numel() for weight in model.parameters())
    quick = operations < most / 50
    if not quick:  # launches do not matter, and recording would run it once more
        loop.recorder = None
    elif loop.recorder is None:  # a recorded step asks for memory when it is recorded, and then no more
        loop.step([members])
    return lambda: loop.step([members]), fabric.device, parameters, quick
