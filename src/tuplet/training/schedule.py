"""The learning rate of an epoch, as a pure function of what happened before: nothing to save, nothing to restore."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tuplet.training.options import TrainOptions

FIRST_FACTOR = 1e-6
"""Of the learning rate, at the beginning of the warm-up."""


def learning_rate(epoch: int, options: TrainOptions, metrics: Sequence[float] = (), maximise: bool = False) -> float:
    """Of an epoch counted from 0: a line from 1e-6 lr to lr over the warm-up, then what the schedule says.

    Args:
        epoch: the epoch that begins.
        options: ``lr``, ``warmup``, ``epochs``, ``schedule`` and the plateau's.
        metrics: validation metric of each epoch so far; read by the plateau schedule only.
        maximise: whether a higher metric is a better one.
    """
    if epoch < options.warmup:
        return options.lr * max(FIRST_FACTOR, epoch / options.warmup)
    if options.schedule == "constant":
        return options.lr
    if options.schedule == "plateau":
        drops = _drops(metrics[options.warmup :], options.plateau_patience, maximise)
        return options.lr * options.plateau_factor**drops
    done = (epoch - options.warmup) / max(1, options.epochs - options.warmup)
    return options.lr * 0.5 * (1 + math.cos(math.pi * done))


def better(new: float, old: float, maximise: bool) -> bool:
    """Whether ``new`` is strictly better; any number is better than none (NaN)."""
    if math.isnan(new) or math.isnan(old):
        return math.isnan(old) and not math.isnan(new)
    return new > old if maximise else new < old


def preferable(new: tuple[float, float], old: tuple[float, float], maximise: bool) -> bool:
    """Whether one pair of validation metric and loss is better than another: by the metric, or by the loss where metrics are equal or
    neither has one. A share of few graphs is the same for many epochs."""
    if new[0] == old[0] or (math.isnan(new[0]) and math.isnan(old[0])):
        return better(new[1], old[1], maximise=False)
    return better(new[0], old[0], maximise)


def _drops(metrics: Sequence[float], patience: int, maximise: bool) -> int:
    """How often ``patience`` epochs in a row brought no new best."""
    best, waited, drops = math.nan, 0, 0
    for metric in metrics:
        if better(metric, best, maximise):
            best, waited = metric, 0
        else:
            waited += 1
        if waited == patience:
            drops, waited = drops + 1, 0
    return drops
