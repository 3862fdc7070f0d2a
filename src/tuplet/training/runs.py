"""From a task and options to a run folder: every seed on every split, each saved as it goes, then all of them together."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from tuplet._extras import require
from tuplet.errors import MissingExtraError, OptionError, RunError
from tuplet.training.curves import draw
from tuplet.training.evaluation import Evaluation, warn_undefined
from tuplet.training.files import locked, make_folder, seal, table_text, unseal, write
from tuplet.training.inputs import fingerprint, narrowed, ready
from tuplet.training.keeper import FolderKeeper, Keeper
from tuplet.training.logs import Log
from tuplet.training.loop import fit
from tuplet.training.objective import Objective
from tuplet.training.options import UNBOUND, TrainOptions
from tuplet.training.parallel import fabric_library, first_of_all, launch, make_fabric
from tuplet.training.progress import peak_memory, progress_bar
from tuplet.training.settings import from_yaml, to_yaml
from tuplet.training.store import TaskInfo, load_model, save_model
from tuplet.training.summary import Result, Summary, device_name

if TYPE_CHECKING:
    from tuplet.datasets.task import Task

OPTIONS, METRICS, CURVES, SUMMARY = "config.yaml", "metrics.csv", "curves.png", "summary.json"
SKIPPED = "skipped.csv"
MODEL, RESULT, CHECKPOINTS = "model", "result.json", "checkpoints"


@dataclass(frozen=True)
class Plan:
    """What is to be done, the same in every process.

    Args:
        options: the settings.
        folds: numbers of the splits.
        data: fingerprint of the task.
        root: the run folder, or None for a training that leaves nothing behind.
        resume: whether to go on from what is there.
        show: whether to print how far a run is.
        source: how the task was loaded, kept with the model.
        until: when to stop, as ``time.monotonic`` counts.
    """

    options: TrainOptions
    folds: tuple[int, ...]
    data: str
    root: Path | None = None
    resume: bool = False
    show: bool = True
    source: Mapping[str, Any] = field(default_factory=dict)
    until: float = math.inf

    def place(self, seed: int, fold: int) -> Path | None:
        """The folder of one seed on one split: checkpoints, TensorBoard's events, model, result."""
        return None if self.root is None else self.root / "runs" / f"seed-{seed}-fold-{fold}"


def train(
    task: Task,
    options: TrainOptions | None = None,
    out: str | Path | None = None,
    *,
    resume: bool = False,
    show: bool = True,
    source: Mapping[str, Any] | None = None,
    root: str | Path | None = None,
    until: float = math.inf,
) -> Summary:
    """Train, evaluate and save: one run for each seed and split of the options.

    The run folder holds ``config.yaml`` (all options), ``metrics.csv``, ``curves.png``, ``summary.json``, ``model/`` (of the run
    with the best validation metric), ``runs/`` (of each run its checkpoints, model and event files), and ``skipped.csv`` if rows of a
    file could not be used.

    Args:
        task: graphs, splits and what is asked.
        options: the settings; if None those of the folder, where a run goes on, else the defaults.
        out: the run folder; without one nothing is written.
        resume: go on where a run in this folder was stopped; one that has ended is not run again.
        show: print how far the run is.
        source: how the task can be loaded again; kept in the model's ``config.json``.
        root: where prepared data are kept, as for ``tuplet.datasets.load``.
        until: a deadline, as ``time.monotonic`` counts: a run in a folder that has not ended by then saves a checkpoint and raises
            ``UnfinishedError``.
    """
    fabric_library()
    for module in ("torchmetrics", "safetensors", "yaml"):
        require(module, "train")
    first = first_of_all()
    folder = None if out is None else make_folder("out", out) if first else Path(out)
    with locked(folder) if folder is not None and first else nullcontext():
        options = _settle(folder, options, resume, first)
        folds = _folds(task, options)
        with torch.random.fork_rng(devices=[]):
            model = make_model(task, options, folds[0])
        fabric = make_fabric(options)
        task = narrowed(task, folds)
        plan = Plan(options, folds, fingerprint(task), folder, resume, show, source or {}, until)
        if folder is not None and first:  # from here on the folder is taken
            write(folder / OPTIONS, to_yaml(options).encode())
            if task.skipped:
                write(folder / SKIPPED, table_text([("row", "text", "reason"), *map(astuple, task.skipped)]))
        summary: Summary = launch(fabric, _train, ready(task, model, show, root), plan)
        return summary


def read_options(folder: str | Path) -> TrainOptions:
    """The options of a run folder."""
    path = Path(folder) / OPTIONS
    if not path.is_file():
        raise RunError(f"{folder}: expected a run folder with {OPTIONS}; there is none")
    return from_yaml(path)


def make_model(task: Task, options: TrainOptions, fold: int = 0) -> nn.Module:
    """A new model for a task, with weights from torch's random numbers. What the task says is not overruled silently."""
    from tuplet import build

    known = task.model_options()
    given = dict(options.model_options)
    for key in ("task", "outputs"):
        if key in given and given[key] != known[key]:
            raise OptionError(f"model_options: {key} is {known[key]!r} by the task {task.name}; came {given[key]!r}")
    if options.model == "PNA" and "degrees" not in given:
        from tuplet.models.baselines import degree_histogram

        given["degrees"] = degree_histogram(task.part("train", fold), directed=task.directed)
    return build(options.model, **{**known, **given})


def _settle(root: Path | None, options: TrainOptions | None, resume: bool, first: bool) -> TrainOptions:
    """The options in force; refused if the folder holds another run."""
    if root is None or not (root / OPTIONS).exists() or (not first and options is not None):
        return options or TrainOptions()
    if options is not None and not _begun(root):
        return options
    if not resume:
        raise OptionError(f"out: {str(root)!r} holds a run already; resume it (--resume), or choose another folder")
    before = from_yaml(root / OPTIONS)
    if options is None:
        return before
    for key, value in before.plain().items():
        if key not in UNBOUND and options.plain()[key] != value:
            raise OptionError(
                f"{key}: expected {value!r}, as the run in {str(root)!r} began; came {options.plain()[key]!r}"
            )
    return options


def _begun(root: Path) -> bool:
    """Whether a run folder holds anything to go on from, or to keep: a run that was refused its first step leaves none."""
    return any(any(root.glob(f"runs/*/{kept}")) for kept in (RESULT, f"{CHECKPOINTS}/*.json"))


def _folds(task: Task, options: TrainOptions) -> tuple[int, ...]:
    folds = options.folds if options.folds is not None else tuple(range(len(task.splits)))
    for fold in folds:
        if fold >= len(task.splits):
            raise OptionError(
                f"folds: expected numbers 0..{len(task.splits) - 1}, the splits of {task.name}; came {fold}"
            )
    return folds


def _train(fabric: Any, task: Task, plan: Plan) -> Summary:
    """All runs, in every process; the first one writes."""
    objective = Objective(task, fabric.device)
    results: list[Result] = []
    parameters = 0
    for seed in plan.options.seeds:
        for fold in plan.folds:
            result, parameters = _run(fabric, objective, plan, seed, fold, results)
            results.append(result)
    summary = Summary(
        task=task.name,
        model=plan.options.model,
        metric=task.metric,
        maximise=task.maximise,
        results=tuple(results),
        parameters=parameters,
        peak_memory=peak_memory(),
        device=device_name(fabric.device),
        folder=None if plan.root is None else str(plan.root),
    )
    if plan.root is not None and fabric.global_rank == 0:
        _finish(plan, plan.root, summary)
    return summary


def _run(
    fabric: Any, objective: Objective, plan: Plan, seed: int, fold: int, finished: Sequence[Result]
) -> tuple[Result, int]:
    """One seed on one split, and how many weights the model has."""
    task, options, place, first = objective.task, plan.options, plan.place(seed, fold), fabric.global_rank == 0
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = make_model(task, options, fold)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    known = fabric.broadcast(_known(place, plan.data) if place is not None and plan.resume and first else None)
    if known is not None:
        return Result.of(known), parameters
    keeper, log = _keeper_and_log(fabric, plan, seed, fold, finished)
    several = len(options.seeds) > 1 or len(plan.folds) > 1
    title = f"{options.model} on {task.name}" + (f", seed {seed}, fold {fold}" if several else "")
    with progress_bar(title) if plan.show and first else nullcontext() as report:
        history = fit(
            model,
            task,
            options,
            seed=seed,
            fold=fold,
            fabric=fabric,
            objective=objective,
            keeper=keeper,
            report=report,
            log=log,
        )
    if log is not None:
        log.close()
    test = Evaluation(model, task.graphs, objective, objective.part("test", fold), options, fabric).score()
    if first:
        warn_undefined(test, task.metric, f"the test part of split {fold}", task.targets)
    result = Result(
        seed=seed,
        fold=fold,
        best_epoch=history.best + 1,
        val=history.val_metric[history.best],
        test=test.metric,
        epochs=history.epochs,
        seconds=sum(history.seconds),
        history=history,
    )
    if place is not None and first:
        facts = {key: value for key, value in result.plain().items() if key != "history"}
        facts |= {"training": options.plain(), "data": plan.data, "source": dict(plan.source)}
        save_model(place / MODEL, model, options.model, options.model_options, TaskInfo.of(task), facts)
        write(place / RESULT, seal({"data": plan.data, "result": result.plain()}))
    return result, parameters


def _keeper_and_log(
    fabric: Any, plan: Plan, seed: int, fold: int, finished: Sequence[Result]
) -> tuple[Keeper, Log | None]:
    """What saves the state of a run, and what writes down its history; neither does anything without a folder."""
    place, options = plan.place(seed, fold), plan.options
    if plan.root is None or place is None:
        return Keeper(), None
    keeper = FolderKeeper(
        place / CHECKPOINTS,
        options.checkpoint_seconds,
        options.keep,
        plan.data,
        fabric.global_rank,
        plan.resume,
        plan.until,
    )
    events = place / "events" if options.tensorboard else None
    return keeper, Log(plan.root / METRICS, finished, seed, fold, events) if fabric.global_rank == 0 else None


def _known(place: Path, data: str) -> Mapping[str, Any] | None:
    """The result of a run that has ended, model and all; one that is damaged is made again from the last checkpoint."""
    if not (place / RESULT).exists():
        return None
    try:
        told = unseal(place / RESULT, "the result of a run")
        load_model(place / MODEL)
    except RunError as error:
        warnings.warn(f"a result is damaged and made again from the last checkpoint. {error}", stacklevel=2)
        return None
    if told["data"] != data:
        raise RunError(f"{place}: expected a run on the same data; it learned from other graphs, targets or splits")
    result: Mapping[str, Any] = told["result"]
    return result


def _finish(plan: Plan, root: Path, summary: Summary) -> None:
    """What all runs come to: table, picture, summary, and the model of the best run."""
    *before, last = summary.results
    Log(root / METRICS, before, last.seed, last.fold, None)(last.history)
    best = plan.place(summary.best.seed, summary.best.fold)
    assert best is not None
    target = make_folder("out", root / MODEL)
    for path in sorted((best / MODEL).iterdir(), reverse=True):  # weights before config, which vouches for them
        write(target / path.name, path.read_bytes())
    try:
        draw(root / CURVES, summary)
    except MissingExtraError as error:
        warnings.warn(f"{CURVES} is left out: {error}", stacklevel=2)
    write(root / SUMMARY, (json.dumps(summary.plain(), indent=2) + "\n").encode())
