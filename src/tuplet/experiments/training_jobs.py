"""Jobs that train a model, test it, and go on where they were stopped."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from contextlib import nullcontext
from functools import lru_cache
from pathlib import Path
from shutil import rmtree
from typing import Any

import torch
from torch import nn

from tuplet.datasets import load
from tuplet.datasets.task import Task
from tuplet.errors import RunError, UnfinishedError
from tuplet.experiments.jobs import Job
from tuplet.experiments.origins import Origins
from tuplet.experiments.outcomes import Outcome, Places, about, first_line, thinned
from tuplet.training.checkpoint import Checkpoints
from tuplet.training.files import locked, make_folder
from tuplet.training.inputs import FEW, ready
from tuplet.training.options import TrainOptions
from tuplet.training.parallel import make_fabric
from tuplet.training.progress import forget_peak
from tuplet.training.runs import CHECKPOINTS, RESULT, make_model, train
from tuplet.training.state import History


def run_training(job: Job, places: Places, until: float) -> Outcome:
    """Train until the job or the time is over; the outcome is written down in both cases, and when it is interrupted or fails.

    Args:
        job: what to train.
        places: where to find and to leave things.
        until: the deadline, as ``time.monotonic`` counts.
    """
    options = job.options()
    device = make_fabric(options).device
    task = _task(job, places)
    with torch.random.fork_rng(devices=[]):
        model = make_model(task, options, job.fold)
    many = len(task.graphs) > FEW  # kept on disk: what one process prepares the others find there
    with locked(make_folder("--work", places.work), wait=True) if many else nullcontext():
        task = ready(task, model, root=places.root)
    forget_peak(device)
    folder = places.folder(job)
    run = _run_folder(folder, job)
    ended = (run / RESULT).exists()
    origins = Origins(folder, about(places, device), kept=ended or (run / CHECKPOINTS).is_dir(), ended=ended)
    try:
        how: dict[str, Any] = {"resume": True, "source": {"name": task.name}, "root": places.root, "until": until}
        summary = train(task, options, folder, **how)
    except (UnfinishedError, KeyboardInterrupt, SystemExit) as stopped:
        history = _reached(folder, job)
        outcome = _outcome(job, options, model, origins, history, {})
        outcome.write(places)
        if isinstance(stopped, UnfinishedError):
            return outcome
        raise
    except RunError:  # of files, which says nothing of the training
        raise
    except Exception as error:  # a loss that is no number any more, say: or means would be over those that survive
        failed = {"failed": first_line(error)}
        _outcome(job, options, model, origins, _reached(folder, job), failed).write(places)
        raise
    (result,) = summary.results
    outcome = _outcome(job, options, model, origins, result.history, {"test": result.test})
    outcome.write(places)
    rmtree(run / CHECKPOINTS, ignore_errors=True)  # of no more use, and the largest files there are
    return outcome


def _task(job: Job, places: Places) -> Task:
    column = job.described()[2]
    return _loaded(column.dataset, tuple(column.task.items()), places.data, places.root)


@lru_cache(maxsize=2)
def _loaded(dataset: str, options: tuple[tuple[str, Any], ...], data: str | None, root: str | None) -> Task:
    return load(dataset, data=data, root=root, **dict(options))


def _run_folder(folder: Path, job: Job) -> Path:
    return folder / "runs" / f"seed-{job.seed}-fold-{job.fold}"


def _reached(folder: Path, job: Job) -> History:
    """The history in the newest checkpoint; an empty one if there is none yet."""
    place = _run_folder(folder, job) / CHECKPOINTS
    found = Checkpoints(place).load() if place.is_dir() else None
    return History() if found is None else History.of(found[1]["history"])


def _outcome(
    job: Job,
    options: TrainOptions,
    model: nn.Module,
    origins: Origins,
    history: History,
    more: Mapping[str, Any],
) -> Outcome:
    """A history in numbers; with a test metric in ``more`` it is finished."""
    values: dict[str, Any] = {**more, "epochs": history.epochs, "planned": int(job.planned()["epochs"])}
    if history.epochs:
        values |= {
            "val": history.val_metric[history.best],
            "best_epoch": history.best + 1,
            "seconds": sum(history.seconds),
            "seconds_per_epoch": statistics.median(history.train_seconds[1:] or history.train_seconds),
        }
    values["parameters"] = sum(parameter.numel() for parameter in model.parameters())
    values["peak_memory_bytes"] = origins.look()
    curve = thinned(history) if history.epochs else {}
    return Outcome(job, "test" in more, values, curve, options.plain(), origins.about())
