"""What is asked of a model: targets, loss and metric of a task. Missing targets (NaN, or the class -1) count in neither."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from tuplet.datasets.task import NO_CLASS
from tuplet.errors import InputError, OptionError
from tuplet.training.metrics import left_out, measure, why_undefined

if TYPE_CHECKING:
    from tuplet.datasets.task import Task

_ELEMENTS: dict[str, Callable[..., Tensor]] = {
    "l1": F.l1_loss,
    "mse": F.mse_loss,
    "bce": F.binary_cross_entropy_with_logits,
}


@dataclass(frozen=True)
class Part:
    """What belongs to one part of a split.

    Args:
        members: (M,) positions of graphs; the one graph of a node task.
        nodes: (m,) nodes of that graph whose outputs count; None where all outputs do.
    """

    members: Tensor
    nodes: Tensor | None = None


class Objective:
    """Targets of all graphs in one tensor, with one that is missing at the end, and how outputs are compared with them.

    Args:
        task: the task.
        device: where targets are kept.
    """

    def __init__(self, task: Task, device: torch.device | str = "cpu") -> None:
        self.task = task
        field = "edge_label" if task.level == "edge" else "y"
        columns = [_column(task, graph.get(field), field, number) for number, graph in enumerate(task.graphs)]
        self.counts = [len(column) for column in columns]
        self.ptr = torch.tensor([0, *self.counts]).cumsum(0)
        self.targets = torch.cat(columns)
        _check_values(task, self.targets, field)
        classes = self.targets.dim() == 1
        missing = self.targets.new_full((1, *self.targets.shape[1:]), NO_CLASS if classes else math.nan)
        self.targets = torch.cat([self.targets, missing])
        self.valid = (self.targets != NO_CLASS if classes else (~self.targets.isnan()).sum(1)).double()
        until = F.pad(self.valid.cumsum(0), (1, 0))[self.ptr]
        self.each = until.diff().tolist()  # how many targets of each graph are there
        self.targets = self.targets.to(device)
        self.mean, self.std = _moments(task, device)

    def part(self, name: str, fold: int) -> Part:
        """The part ``name`` of a split; one without members if the split has no such part."""
        items = self.task.splits[fold].get(name, torch.empty(0, dtype=torch.long))
        if self.task.level == "node":
            return Part(torch.zeros(int(len(items) > 0), dtype=torch.long), items)
        return Part(items)

    def rows(self, members: Sequence[int], nodes: Tensor | None = None) -> Tensor:
        """Rows of ``targets`` that the outputs for these graphs, in order, are compared with."""
        if nodes is not None:
            return nodes
        if self.task.level == "graph":
            return torch.as_tensor(members)
        return torch.cat([torch.arange(int(self.ptr[member]), int(self.ptr[member + 1])) for member in members])

    def count(self, rows: Tensor) -> float:
        """How many targets of these rows are there."""
        return float(self.valid[rows].sum())

    def known(self, rows: Tensor) -> int:
        """How many of these rows have a target."""
        return int((self.valid[rows] > 0).sum())

    def count_of(self, members: Sequence[int]) -> float:
        """How many targets of these graphs are there: ``count(rows(members))``, without making rows."""
        return float(sum(self.each[member] for member in members))

    def loss(self, outputs: Tensor, rows: Tensor) -> Tensor:
        """The sum of the losses of all targets that are there; a mean is a sum divided by ``count``.

        Args:
            outputs: (len(rows), outputs) as the model gives them: standardised where the task has ``std``.
            rows: of ``targets``.
        """
        return self.difference(outputs, *self.wanted(rows, outputs.dtype))

    def wanted(self, rows: Tensor, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
        """What outputs for these rows are compared with: classes, or numbers of a ``dtype`` as a model gives them, 0 where one is missing;
        and whether they are there."""
        targets = self.targets[rows.to(self.targets.device)]
        if targets.dim() == 1:
            return targets, targets != NO_CLASS
        targets = targets.to(dtype)
        if self.mean is not None and self.std is not None:
            targets = (targets - self.mean.to(dtype)) / self.std.to(dtype)
        there = ~targets.isnan()
        return torch.where(there, targets, 0.0), there

    def difference(self, outputs: Tensor, targets: Tensor, there: Tensor) -> Tensor:
        """The sum of the losses of outputs and what is ``wanted``."""
        if targets.dim() == 1:
            return F.cross_entropy(outputs, targets, ignore_index=NO_CLASS, reduction="sum")
        # a missing target has become 0 before the loss, so that its gradient is 0 and not NaN
        losses = _ELEMENTS[self.task.loss](outputs, targets, reduction="none")
        return torch.where(there, losses, 0.0).sum()

    def natural(self, outputs: Tensor) -> Tensor:
        """Outputs in the units of the targets, as float64."""
        outputs = outputs.double()
        return outputs if self.mean is None or self.std is None else outputs * self.std + self.mean

    def metric(self, outputs: Tensor, rows: Tensor) -> float:
        """The task's metric of outputs as the model gives them."""
        return measure(self.task.metric, self.natural(outputs), self.targets[rows.to(self.targets.device)])

    def left_out(self, rows: Tensor) -> list[int]:
        """Columns that have no part in ``metric``."""
        return left_out(self.task.metric, self.targets[rows.to(self.targets.device)])

    def why_undefined(self, outputs: Tensor, rows: Tensor) -> str:
        """Why ``metric`` is NaN, in words."""
        return why_undefined(self.task.metric, outputs, self.targets[rows.to(self.targets.device)])


def _column(task: Task, values: Tensor | None, field: str, number: int) -> Tensor:
    """Targets of one graph: (rows,) classes, or (rows, outputs) numbers."""
    where = f"{field} of graph {number}"
    if not isinstance(values, Tensor):
        raise InputError(where, "a tensor of targets", "none" if values is None else type(values).__name__)
    rows = 1
    if task.level == "node":
        rows = int(task.graphs[number].num_nodes or 0)
    elif task.level == "edge":
        queries = task.graphs[number].get("edge_label_index")
        if queries is None:
            raise InputError(f"edge_label_index of graph {number}", "the pairs to predict, shape (2, Q)", "none")
        rows = queries.shape[1]
    width = 1 if task.kind == "classification" else task.outputs
    if values.numel() != rows * width:
        raise InputError(where, f"{rows} row(s) of {width} target(s)", f"shape {tuple(values.shape)}")
    if task.kind == "classification":
        if values.is_floating_point():
            raise InputError(where, "classes as integers", str(values.dtype))
        return values.reshape(-1).long()
    return values.reshape(-1, width).double()


def _check_values(task: Task, targets: Tensor, field: str) -> None:
    if task.kind == "classification":
        if len(targets) and not NO_CLASS <= int(targets.min()) <= int(targets.max()) < task.outputs:
            came = f"{int(targets.min())}..{int(targets.max())}"
            raise InputError(field, f"classes 0..{task.outputs - 1}, or -1 where one is missing", came)
    elif bool(targets.isinf().any()):
        raise InputError(field, "finite numbers, or NaN where a target is missing", "an infinite one")
    elif task.kind == "binary" and not bool(((targets == 0) | (targets == 1) | targets.isnan()).all()):
        raise InputError(field, "0, 1, or NaN where a target is missing", "other numbers")


def _moments(task: Task, device: torch.device | str) -> tuple[Tensor | None, Tensor | None]:
    if task.kind != "regression" or task.mean is None or task.std is None:
        return None, None
    if len(task.mean) != task.outputs or len(task.std) != task.outputs or not all(value > 0 for value in task.std):
        raise OptionError(
            f"mean, std: expected {task.outputs} numbers each, std positive; came {task.mean}, {task.std}"
        )
    return tuple(torch.tensor(item, dtype=torch.double, device=device) for item in (task.mean, task.std))  # type: ignore[return-value]
