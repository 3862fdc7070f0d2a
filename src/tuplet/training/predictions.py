"""What a model says of some graphs, as numbers to read and as rows of a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tuplet.datasets.task import NO_CLASS
from tuplet.errors import OptionError
from tuplet.training.store import TaskInfo


@dataclass(frozen=True)
class Predictions:
    """What a model says of some graphs. Failed graphs have one row, of NaN, with an error text.

    Args:
        outputs: (R, outputs) what the model gives, regression in the units of the targets; a row a graph, node or queried pair.
        owner: (R,) number of the graph that a row belongs to.
        errors: for each graph None, or why there is no prediction.
        task: what the model was trained for.
    """

    outputs: Tensor
    owner: Tensor
    errors: tuple[str | None, ...]
    task: TaskInfo

    def __len__(self) -> int:
        return len(self.outputs)

    @property
    def values(self) -> Tensor:
        """(R, outputs) numbers to read: targets of a regression, probabilities of classes or of each 0/1 target."""
        if self.task.kind == "classification":
            return self.outputs.softmax(1)
        return self.outputs.sigmoid() if self.task.kind == "binary" else self.outputs

    @property
    def labels(self) -> Tensor:
        """(R,) the most probable class; -1 for a failed graph."""
        if self.task.kind != "classification":
            raise OptionError(
                f"labels: expected a model that predicts classes; {self.task.name} is a {self.task.kind} task"
            )
        return torch.where(self.outputs.isnan().any(1), NO_CLASS, self.outputs.argmax(1))

    def columns(self) -> list[str]:
        """Names of the predicted columns."""
        names = [*self.task.targets] if len(self.task.targets) == self.task.outputs else []
        if self.task.kind == "classification":
            return ["predicted", *(f"p_{name}" for name in names or range(self.task.outputs))]
        return (
            [f"predicted_{name}" for name in names or range(self.task.outputs)]
            if self.task.outputs > 1 or names
            else ["predicted"]
        )

    def rows(self) -> list[list[Any]]:
        """Numbers of each row under ``columns``; empty texts where there is none."""
        found: list[list[Any]] = self.values.tolist()
        if self.task.kind == "classification":
            names = self.task.targets if len(self.task.targets) == self.task.outputs else range(self.task.outputs)
            found = [[names[label], *row] for label, row in zip(self.labels.tolist(), found, strict=True)]
        bad = self.outputs.isnan().any(1).tolist()
        return [[""] * len(row) if failed else row for row, failed in zip(found, bad, strict=True)]
