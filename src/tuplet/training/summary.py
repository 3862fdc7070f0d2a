"""What came out of a run, and on what it ran: ``summary.json``."""

from __future__ import annotations

import importlib.metadata
import math
import platform
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tuplet.training.progress import duration
from tuplet.training.schedule import preferable
from tuplet.training.state import History

PACKAGES = ("torch", "torch_geometric", "numpy", "scipy", "lightning-fabric", "torchmetrics", "safetensors")


@dataclass(frozen=True)
class Result:
    """One seed on one split.

    Args:
        seed, fold: which.
        best_epoch: whose weights are reported, counted from 1.
        val, test: the metric of those weights; NaN without such a part.
        epochs: how many there were.
        seconds: of all epochs.
        history: of the epochs.
    """

    seed: int
    fold: int
    best_epoch: int
    val: float
    test: float
    epochs: int
    seconds: float
    history: History

    @property
    def kept(self) -> tuple[float, float]:
        """Validation metric and loss of the epoch whose weights are reported."""
        return self.val, self.history.val_loss[self.best_epoch - 1]

    def plain(self) -> dict[str, Any]:
        """For JSON; NaN becomes None."""
        found = {key: getattr(self, key) for key in self.__dataclass_fields__ if key != "history"}
        return {key: _number(value) for key, value in found.items()} | {"history": self.history.plain()}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Result:
        values: dict[str, Any] = {
            key: math.nan if value is None else value for key, value in plain.items() if key != "history"
        }
        return cls(**values, history=History.of(plain["history"]))


@dataclass(frozen=True)
class Summary:
    """All runs of a training together.

    Args:
        task, model: their names.
        metric: name of the metric, and whether more is better.
        maximise: whether it is.
        results: one a seed and split.
        parameters: weights of the model.
        peak_memory: bytes, on the GPU or of the process.
        device: what it ran on.
        folder: where everything is; None for a training without one.
    """

    task: str
    model: str
    metric: str
    maximise: bool
    results: tuple[Result, ...]
    parameters: int
    peak_memory: int
    device: str
    folder: str | None = None

    @property
    def test(self) -> tuple[float, float]:
        """Mean and sample standard deviation (n - 1) of the test metric over all runs; the deviation of one run is NaN."""
        return spread([result.test for result in self.results])

    @property
    def val(self) -> tuple[float, float]:
        """The same of the validation metric."""
        return spread([result.val for result in self.results])

    @property
    def seconds(self) -> float:
        return sum(result.seconds for result in self.results)

    @property
    def seconds_per_epoch(self) -> float:
        return self.seconds / max(1, sum(result.epochs for result in self.results))

    @property
    def train_seconds_per_epoch(self) -> float:
        """The median epoch's training steps, loading included and validation not: what begins a run (compiling, recording) takes
        some epochs longer than the others."""
        every = [seconds for result in self.results for seconds in result.history.train_seconds]
        return statistics.median(every) if every else math.nan

    @property
    def best(self) -> Result:
        """The run with the best validation metric, of equals or if none has one that with the lowest validation loss; then the first."""
        first, *others = self.results
        for result in others:
            first = result if preferable(result.kept, first.kept, self.maximise) else first
        return first

    def plain(self) -> dict[str, Any]:
        """The content of summary.json."""
        (test, test_std), (val, val_std) = self.test, self.val
        numbers = {"test": test, "test_std": test_std, "val": val, "val_std": val_std}
        return {
            "task": self.task,
            "model": self.model,
            "metric": self.metric,
            "maximise": self.maximise,
            **{key: _number(value) for key, value in numbers.items()},
            "runs": [{key: v for key, v in result.plain().items() if key != "history"} for result in self.results],
            "seconds": round(self.seconds, 3),
            "seconds_per_epoch": round(self.seconds_per_epoch, 4),
            "train_seconds_per_epoch": _number(round(self.train_seconds_per_epoch, 4)),
            "peak_memory_bytes": self.peak_memory,
            "parameters": self.parameters,
            "device": self.device,
            "versions": versions(),
            "git": git_state(),
        }

    def __str__(self) -> str:
        lines = [
            f"{self.model} on {self.task}: {self.parameters:,} parameters, {duration(self.seconds)} on {self.device}"
        ]
        for name, (mean, deviation) in (("test", self.test), ("validation", self.val)):
            if not math.isnan(mean):
                several = f" ± {deviation:.4g} over {len(self.results)} runs" if len(self.results) > 1 else ""
                lines.append(f"{name} {self.metric}: {mean:.4g}{several}")
        return "\n".join(lines)


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Mean and sample standard deviation of the values that are numbers."""
    there = [value for value in values if not math.isnan(value)]
    mean = statistics.fmean(there) if there else math.nan
    return mean, statistics.stdev(there) if len(there) > 1 else math.nan


def versions() -> dict[str, str]:
    """Of Python, tuplet and what results depend on."""
    from tuplet import __version__

    found = {"python": platform.python_version(), "tuplet": __version__}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
    return found


def git_state(folder: Path | None = None) -> dict[str, Any] | None:
    """Commit and whether its files have changed, of the repository around ``folder`` (the working directory); None if there is none.

    New files do not count: a run leaves some itself, and what follows it would look changed.
    """

    def ask(*words: str) -> str:
        told = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, timeout=10, check=True)
        return told.stdout.strip()

    try:
        return {
            "commit": ask("rev-parse", "HEAD"),
            "changed": bool(ask("status", "--porcelain", "--untracked-files=no")),
        }
    except (OSError, subprocess.SubprocessError):
        return None


def device_name(device: torch.device) -> str:
    """The GPU's name, or "cpu"."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def _number(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value
