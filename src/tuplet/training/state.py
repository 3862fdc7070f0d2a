"""All that changes while a model learns, as tensors and plain facts: what a checkpoint holds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from tuplet.errors import RunError
from tuplet.training.schedule import preferable


@dataclass
class History:
    """What happened in each epoch, and which one the weights are from.

    Args:
        lr: learning rate.
        train_loss: mean over the training targets, while they were learned from.
        val_loss: mean over the validation targets, after the epoch; NaN without a validation set.
        val_metric: over the validation set, after the epoch; NaN without one, or where it is undefined (ROC-AUC of one class).
        seconds: of the epoch, validation included.
        train_seconds: of its training steps, loading included.
        best: number of the epoch whose weights are kept: of those with the best validation metric, or if no epoch has one of all, the
            first with the lowest validation loss; if none has that either, the last.
    """

    lr: list[float] = field(default_factory=list)
    train_loss: list[float] = field(default_factory=list)
    val_loss: list[float] = field(default_factory=list)
    val_metric: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    train_seconds: list[float] = field(default_factory=list)
    best: int = 0

    @property
    def epochs(self) -> int:
        return len(self.train_loss)

    def plain(self) -> dict[str, Any]:
        """For JSON, which knows no NaN: it becomes None."""
        listed = asdict(self)
        for key in ("val_loss", "val_metric"):
            listed[key] = [None if math.isnan(value) else value for value in listed[key]]
        return listed

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> History:
        listed = dict(plain)
        for key in ("val_loss", "val_metric"):
            listed[key] = [math.nan if value is None else value for value in listed[key]]
        return cls(**listed)

    def is_best(self, maximise: bool) -> bool:
        """Whether the last epoch is the best so far, by the rule of ``best``."""
        latest = self.val_metric[-1], self.val_loss[-1]
        record = self.val_metric[self.best], self.val_loss[self.best]
        nothing = all(map(math.isnan, (*latest, *record)))
        return self.epochs == 1 or nothing or preferable(latest, record, maximise)

    def watched(self, maximise: bool) -> tuple[list[float], bool]:
        """What the plateau schedule follows, and whether more of it is better: the validation metric, or if no epoch has one the loss."""
        if all(map(math.isnan, self.val_metric)):
            return self.val_loss, False
        return self.val_metric, maximise


@dataclass
class State:
    """Where a run is.

    Args:
        model: the model, its weights changing.
        optimiser: its own memory.
        best: weights of the best epoch so far; empty before the first ends.
        average: moving average of the weights; empty where there is none.
        history: of the epochs that have ended.
        epoch, step: the epoch under way, from 0, and the steps done in it.
        loss, count: sum of the losses of the epoch under way (a tensor, so that nobody waits for it), and of how many targets.
        spent: seconds of the epoch under way.
        done: whether the run has ended.
    """

    model: nn.Module
    optimiser: torch.optim.Optimizer
    best: dict[str, Tensor] = field(default_factory=dict)
    average: dict[str, Tensor] = field(default_factory=dict)
    history: History = field(default_factory=History)
    epoch: int = 0
    step: int = 0
    loss: Tensor = field(default_factory=lambda: torch.zeros((), dtype=torch.float64))
    count: float = 0.0
    spent: float = 0.0
    done: bool = False

    def tensors(self) -> dict[str, Tensor]:
        """Weights, best weights, their average and the optimiser's memory."""
        found = {f"model/{name}": value for name, value in self.model.state_dict().items()}
        found |= {f"best/{name}": value for name, value in self.best.items()}
        found |= {f"average/{name}": value for name, value in self.average.items()}
        for number, memory in self.optimiser.state_dict()["state"].items():
            found |= {f"optimiser/{number}/{name}": value for name, value in memory.items()}
        return found

    def facts(self) -> dict[str, Any]:
        """Everything else."""
        return {
            "history": self.history.plain(),
            "epoch": self.epoch,
            "step": self.step,
            "loss": self.loss.item(),
            "count": self.count,
            "spent": self.spent,
            "done": self.done,
        }

    def restore(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Become what was saved."""
        memory: dict[int, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            kind, _, rest = name.partition("/")
            if kind == "optimiser":
                number, _, key = rest.partition("/")
                memory.setdefault(int(number), {})[key] = value
        try:
            self.model.load_state_dict(_under("model/", tensors))
            groups = self.optimiser.state_dict()["param_groups"]
            self.optimiser.load_state_dict({"state": memory, "param_groups": groups})
            self.history = History.of(facts["history"])
            self.epoch, self.step, self.count = facts["epoch"], facts["step"], facts["count"]
            self.loss = torch.full_like(self.loss, facts["loss"])
            self.spent, self.done = facts["spent"], facts["done"]
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
            raise RunError(f"checkpoint: expected the state of this model; came another ({reason})") from error
        device = self.loss.device
        self.best = {name: value.to(device) for name, value in _under("best/", tensors).items()}
        self.average = {name: value.to(device) for name, value in _under("average/", tensors).items()}


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def random_state(device: torch.device) -> dict[str, Tensor]:
    """The states of torch's random numbers that training draws from."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def restore_random(states: Mapping[str, Tensor], device: torch.device) -> None:
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
