"""What a job leaves behind: one small JSON file, from which tables and reports are made again at any time."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch

from tuplet.errors import OptionError, RunError
from tuplet.experiments.jobs import Job
from tuplet.experiments.table import read_table
from tuplet.models.baselines import NAMES, BaselineConfig
from tuplet.models.config import ModelConfig
from tuplet.training.files import make_folder, write
from tuplet.training.options import UNBOUND, TrainOptions
from tuplet.training.state import History
from tuplet.training.summary import device_name, git_state, versions

POINTS = 100
"""Most points of a learning curve that are kept."""


@dataclass(frozen=True)
class Places:
    """Where things are.

    Args:
        results: folder of the results.
        work: folder of the runs: checkpoints, models, logs.
        data: folder of packed data sets.
        root: where fetched and prepared data are kept.
        commit: what to write down as the commit; what the repository says if None.
    """

    results: Path = Path("results")
    work: Path = Path("runs/reproduce")
    data: str | None = None
    root: str | None = None
    commit: str | None = None

    def result(self, job: Job) -> Path:
        return self.results / f"{job.name}.json"

    def folder(self, job: Job) -> Path:
        return self.work / job.name


@dataclass(frozen=True)
class Outcome:
    """What came out of one job, or what it has reached so far.

    Args:
        job: which.
        finished: whether it is all there.
        values: numbers and texts by name: "test", "parameters", "seconds_per_epoch", ..; "failed", and why, if an error ended it.
        curve: of a training, "epoch", "train_loss" and "val" at some epochs; of a growth, "n", "seconds" and "bytes".
        options: the settings in force.
        about: device, versions and commit; under "before" those of processes that trained before the last one, if they were others.
    """

    job: Job
    finished: bool
    values: Mapping[str, Any]
    curve: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)

    def write(self, places: Places) -> None:
        """One fact a line, so that people and version control can read it."""
        path = places.result(self.job)
        make_folder("--results", path.parent)
        facts = {**vars(self.job), "finished": self.finished, "values": self.values, "curve": self.curve}
        facts |= {"options": self.options, **self.about, "command": self.job.command}
        lines = [f" {json.dumps(key)}: {json.dumps(_plain(value), ensure_ascii=False)}" for key, value in facts.items()]
        write(path, ("{\n" + ",\n".join(lines) + "\n}\n").encode())


def read_outcome(places: Places, job: Job) -> Outcome | None:
    """What is known of a job; None if nothing is."""
    path = places.result(job)
    return read_file(path) if path.is_file() else None


def read_file(path: Path) -> Outcome:
    """The content of a result file."""
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        job = Job(**{key: facts.pop(key) for key in Job.__dataclass_fields__})
        known = {key: facts.pop(key) for key in ("finished", "values", "curve", "options")}
        known |= {key: dict(known[key]) for key in ("values", "curve", "options")}
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise RunError(f"{path}: expected the result of a job; came something else ({error})") from error
    return Outcome(job, **known, about=facts)


def read_all(folder: Path, table: str) -> list[Outcome]:
    """All results of a table, in the order of their names. What is no result of it is left out with a warning, so that one bad file
    does not hide the others."""
    found = []
    for path in sorted((folder / table).glob("*/*.json")):
        try:
            outcome = read_file(path)
            _refuse_strange(outcome.job, path, Places(folder))
        except RunError as error:
            warnings.warn(f"a result is left out. {error}", stacklevel=2)
        else:
            found.append(outcome)
    return found


def _refuse_strange(job: Job, path: Path, places: Places) -> None:
    """Refuse a file that has the name of another job, as copies have, and a job that the table has no more."""
    if path != places.result(job):
        raise RunError(f"{path}: expected the result of the job that it is called after; came that of {job.name}")
    table = read_table(job.table)
    if job.row not in [row.slug for row in table.rows] or job.run not in [column.job for column in table.columns]:
        raise RunError(f"{path}: expected a row and a column that the table has; came {job.row!r} and {job.run!r}")


def _apart(one: Any, other: Any) -> Any:
    """A setting that differs from another; of a group of settings those that do."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return one
    return {key: value for key, value in one.items() if key not in other or other[key] != value}


def _written_out(options: Mapping[str, Any]) -> dict[str, Any]:
    """The same with the model's options that are not named as what they are by themselves, so that naming a default changes nothing."""
    config: Any = BaselineConfig if options["model"] in NAMES else ModelConfig
    defaults = {item.name: item.default for item in fields(config) if item.default is not MISSING}
    found: dict[str, Any] = _plain({**options, "model_options": {**defaults, **options["model_options"]}})
    return found


def departures(outcome: Outcome) -> dict[str, tuple[Any, Any]]:
    """Settings that differ from those that its job would have today: the value now, and the one that the result was made with."""
    today, made = _written_out(outcome.job.options().plain()), dict(outcome.options)
    if "model" in made:  # of a training run, which kept all options that there were
        made = {**TrainOptions().plain(), **made}
    made = _written_out({"model": today["model"], **made}) if "model_options" in made else made
    return {
        name: (_apart(today[name], value), _apart(value, today[name]))
        for name, value in made.items()
        if name not in UNBOUND and name in today and today[name] != value
    }


def is_done(places: Places, job: Job) -> bool:
    """Whether the job has ended with the settings that it would have today; other ones are refused by name."""
    known = read_outcome(places, job)
    if known is None or not known.finished:
        return False
    for name, (today, made) in departures(known).items():
        raise OptionError(
            f"{places.result(job)}: expected {name} = {today!r}, as the settings say now; the result was made with "
            f"{made!r}. Remove it, and the run behind it, to run the job again."
        )
    return True


def about(places: Places, device: torch.device) -> dict[str, Any]:
    """On what and with what this process runs jobs."""
    commit = git_state() if places.commit is None else {"commit": places.commit, "changed": None}
    return {"device": device_name(device), "versions": versions(), "git": commit}


def thinned(history: History) -> dict[str, list[Any]]:
    """A learning curve of at most ``POINTS`` epochs, evenly spread, the last among them."""
    count = min(history.epochs, POINTS)
    places = [round((number + 1) * history.epochs / count) - 1 for number in range(count)]
    return {
        "epoch": [place + 1 for place in places],
        "train_loss": [rounded(history.train_loss[place]) for place in places],
        "val": [rounded(history.val_metric[place]) for place in places],
    }


def first_line(error: Exception) -> str:
    """An error in one line, with its kind."""
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}".rstrip(": ")


def rounded(value: float) -> float:
    """Six digits, for curves."""
    return float(f"{value:.6g}")


def _plain(value: Any) -> Any:
    """For JSON, which knows no NaN."""
    if isinstance(value, float):
        return None if math.isnan(value) else value
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
