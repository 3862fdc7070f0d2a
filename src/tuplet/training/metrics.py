"""Metrics over all graphs, nodes or pairs at once, by torchmetrics; never means over batches."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tuplet._extras import require
from tuplet.datasets.task import NO_CLASS
from tuplet.errors import OptionError


def measure(metric: str, outputs: Tensor, targets: Tensor) -> float:
    """A metric of a whole data set, in float64. NaN where there is nothing to measure.

    Args:
        metric: "mae" or "mse" (over all targets that are there), "accuracy" (of classes, or of 0/1 targets), "rocauc" or
            "ap" (of each column that has both a 0 and a 1, then their mean, as OGB has it).
        outputs: (R, outputs): predictions, logits of classes, or a logit a column.
        targets: (R,) classes with -1 where one is missing, or (R, outputs) with NaN where a target is missing.
    """
    library = require("torchmetrics.functional", "train")
    outputs, targets = outputs.detach().cpu().double(), targets.detach().cpu()
    if targets.dim() == 1:
        outputs, targets = _present(outputs, targets)
        if len(targets) == 0:
            return math.nan
        counts = library.classification.multiclass_stat_scores(outputs, targets, outputs.shape[1], average="micro")
        right, _, _, missed, _ = counts.tolist()
        return float(right / (right + missed))
    targets = targets.double()
    if metric in ("rocauc", "ap"):
        curves = library.classification
        curve = curves.binary_auroc if metric == "rocauc" else curves.binary_average_precision
        columns = [_present(x, y) for x, y in zip(outputs.t(), targets.t(), strict=True)]
        both = two_sided(targets)
        areas = [curve(torch.sigmoid(x), y.long()) for (x, y), there in zip(columns, both, strict=True) if there]
        return float(torch.stack(areas).mean()) if areas else math.nan
    outputs, targets = _present(outputs, targets)
    if len(targets) == 0:
        return math.nan
    if metric == "accuracy":
        found = library.classification.binary_stat_scores(torch.sigmoid(outputs), targets.long()).tolist()
        return float((found[0] + found[2]) / sum(found[:4]))  # true positives and true negatives
    if metric not in ("mae", "mse"):
        raise OptionError(f"metric: expected 'mae', 'mse', 'accuracy', 'rocauc' or 'ap'; came {metric!r}")
    error = library.mean_absolute_error if metric == "mae" else library.mean_squared_error
    return float(error(outputs, targets))


def two_sided(targets: Tensor) -> list[bool]:
    """Whether each column of 0/1 targets (R, outputs) has both a 0 and a 1, without which it has no area."""
    there: list[bool] = ((targets == 0).any(0) & (targets == 1).any(0)).tolist()
    return there


def left_out(metric: str, targets: Tensor) -> list[int]:
    """Columns that ``measure`` leaves out of its mean, where there are others that it does not."""
    both = two_sided(targets) if metric in ("rocauc", "ap") and targets.dim() == 2 else []
    return [column for column, there in enumerate(both) if not there] if any(both) else []


def why_undefined(metric: str, outputs: Tensor, targets: Tensor) -> str:
    """Why ``measure`` gives NaN for these outputs and targets."""
    if len(_present(outputs, targets)[1]) == 0:
        return "no target is there"
    if metric in ("rocauc", "ap"):
        return "no target has both a 0 and a 1 there"
    return "the model's outputs are no numbers"


def _present(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs and targets where there is a target: rows of classes, or flat tensors of numbers."""
    there = ~targets.isnan() if targets.is_floating_point() else targets != NO_CLASS
    return outputs[there], targets[there]
