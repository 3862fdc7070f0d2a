"""The ordinary training path: AdamW, warm-up and cosine, the weights of the best validation epoch."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader

from tuplet.errors import OptionError
from tuplet.training.metrics import Metric, predict, prepare, ready
from tuplet.training.progress import Report

FIRST_FACTOR = 1e-6
"""Of the learning rate, at the beginning of the warm-up."""


@dataclass(frozen=True)
class TrainOptions:
    """Settings of a training run; the defaults are the paper's (appendix E).

    Args:
        epochs: at most this many passes over the training set.
        batch_size: graphs a step.
        lr: the highest learning rate.
        weight_decay: of AdamW.
        warmup: epochs in which the learning rate rises linearly.
        clip: largest norm of the gradient of all weights together.
        seed: of the order of graphs and of dropout.
        maximise: whether a higher metric is a better one.
        stop_at: stop once the validation metric has been this good ...
        patience: ... for so many epochs in a row.
    """

    epochs: int
    batch_size: int = 32
    lr: float = 1e-3
    weight_decay: float = 1e-5
    warmup: int = 0
    clip: float = 1.0
    seed: int = 0
    maximise: bool = True
    stop_at: float | None = None
    patience: int = 1

    def __post_init__(self) -> None:
        for name, least in (("epochs", 1), ("batch_size", 1), ("warmup", 0), ("patience", 1)):
            if getattr(self, name) < least:
                raise OptionError(f"{name}: expected a number of at least {least}; came {getattr(self, name)}")
        for name in ("lr", "clip"):
            if not getattr(self, name) > 0:
                raise OptionError(f"{name}: expected a positive number; came {getattr(self, name)}")

    def at_least(self, metric: float, goal: float) -> bool:
        """Whether ``metric`` is as good as ``goal`` or better."""
        return metric >= goal if self.maximise else metric <= goal


@dataclass
class History:
    """What happened in each epoch, and which one the weights are from.

    Args:
        train_loss: mean over the training graphs, while they were learned from.
        val_metric: over the validation set, after the epoch.
        seconds: of the epoch, validation included.
        best: number of the epoch with the best validation metric, the first of equals.
    """

    train_loss: list[float] = field(default_factory=list)
    val_metric: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    best: int = 0


def learning_rate(epoch: int, options: TrainOptions) -> float:
    """Of an epoch counted from 0: a line from 1e-6 lr to lr over the warm-up, then half a cosine down to 0."""
    if epoch < options.warmup:
        return options.lr * max(FIRST_FACTOR, epoch / options.warmup)
    done = (epoch - options.warmup) / max(1, options.epochs - options.warmup)
    return options.lr * 0.5 * (1 + math.cos(math.pi * done))


def fit(
    model: nn.Module,
    train: Sequence[Data],
    val: Sequence[Data],
    loss: Callable[[Tensor, Tensor], Tensor],
    metric: Metric,
    options: TrainOptions,
    progress: Report | None = None,
) -> History:
    """Train ``model`` in place; it ends in evaluation mode with the weights of its best validation epoch.

    Args:
        model: takes a PyG batch and gives a row of outputs for each row of the targets ``batch.y``.
        train, val: graphs with targets ``y``.
        loss: of outputs and targets, a mean over the batch.
        metric: of all outputs and targets of the validation set.
        options: the settings.
        progress: told at every step how far the run is (see ``progress_bar``).
    """
    if not train:
        raise OptionError("train: expected at least one graph; came none")
    order = torch.Generator().manual_seed(options.seed)
    loader = DataLoader(list(train), options.batch_size, shuffle=True, generator=order)
    held_out = ready(model, val, options.batch_size)
    optimiser = torch.optim.AdamW(model.parameters(), options.lr, weight_decay=options.weight_decay)
    history = History()
    best: dict[str, Tensor] = {}
    perfect = 0
    steps = options.epochs * len(loader)
    with torch.random.fork_rng():
        torch.manual_seed(options.seed)
        for epoch in range(options.epochs):
            begin = time.perf_counter()
            for group in optimiser.param_groups:
                group["lr"] = learning_rate(epoch, options)
            model.train()
            total = 0.0
            for number, batch in enumerate(loader):
                if progress is not None:
                    progress(epoch * len(loader) + number, steps, _describe(history, epoch, options))
                total += batch.num_graphs * _step(model, batch, loss, optimiser, options, epoch)
            history.train_loss.append(total / len(train))
            history.val_metric.append(metric(*predict(model, held_out)))
            history.seconds.append(time.perf_counter() - begin)
            latest, record = history.val_metric[-1], history.val_metric[history.best]
            if epoch == 0 or (latest != record and options.at_least(latest, record)):
                history.best = epoch
                best = {name: value.clone() for name, value in model.state_dict().items()}
            perfect = perfect + 1 if options.stop_at is not None and options.at_least(latest, options.stop_at) else 0
            if perfect >= options.patience:
                break
    if progress is not None:
        progress(steps, steps, _describe(history, len(history.seconds) - 1, options))
    model.load_state_dict(best)
    model.eval()
    return history


def _step(
    model: nn.Module,
    batch: Data,
    loss: Callable[[Tensor, Tensor], Tensor],
    optimiser: torch.optim.Optimizer,
    options: TrainOptions,
    epoch: int,
) -> float:
    """One step on one batch; its loss."""
    outputs = model(prepare(model, batch))
    value = loss(outputs, batch.y.to(outputs.device))
    if not torch.isfinite(value):
        raise OptionError(f"lr: the loss became {value.item()} in epoch {epoch + 1}; try less than {options.lr:g}")
    optimiser.zero_grad()
    value.backward()
    nn.utils.clip_grad_norm_(model.parameters(), options.clip)
    optimiser.step()
    return value.item()


def _describe(history: History, epoch: int, options: TrainOptions) -> str:
    """Where the run is, in words."""
    text = f"epoch {epoch + 1} of {options.epochs}"
    if history.train_loss:
        text += f", loss {history.train_loss[-1]:.3f}, validation {history.val_metric[-1]:.3f}"
    return text
