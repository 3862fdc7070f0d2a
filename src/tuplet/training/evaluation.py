"""Outputs for a whole part of a task, in evaluation mode and full precision, whatever the batches and processes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from tuplet.training.batches import Held, cut, token_counts
from tuplet.training.objective import Objective, Part
from tuplet.training.options import TrainOptions
from tuplet.training.parallel import matmul_precision

if TYPE_CHECKING:
    from tuplet.datasets.task import Task
    from tuplet.training.recorded import Recorder


@dataclass(frozen=True)
class Score:
    """How good a model is on one part: the task's metric and the mean loss, NaN for an empty part.

    Args:
        metric: in the units of the task.
        loss: what training minimises.
        outputs: (rows, outputs) as the model gives them.
        known: rows that have a target.
        undefined: why the metric is NaN; empty where it is a number.
        left_out: columns that have no part in the metric.
    """

    metric: float
    loss: float
    outputs: Tensor
    known: int
    undefined: str = ""
    left_out: Sequence[int] = ()


LISTED = 5
"""Targets that a warning names."""


def warn_undefined(score: Score, metric: str, where: str, names: Sequence[str] = ()) -> None:
    """Say that a metric is NaN, and why, unless there was nothing to measure it on; or that targets, which have ``names``, have no part
    in it."""
    if score.undefined and len(score.outputs):
        warnings.warn(f"the {metric} of {where} is undefined: {score.undefined}", stacklevel=3)
    if score.left_out:
        several = score.outputs.shape[1]
        told = [str(names[column] if len(names) == several else column) for column in score.left_out]
        listed = ", ".join(told[:LISTED]) + (f" and {len(told) - LISTED} more" if len(told) > LISTED else "")
        warnings.warn(
            f"the {metric} of {where} is of {several - len(told)} of {several} targets: there is not both a 0 and a 1 of {listed}",
            stacklevel=3,
        )


def evaluate(model: nn.Module, task: Task, part: str = "test", *, fold: int = 0, batch_size: int = 32) -> Score:
    """Metric, loss and outputs of one part of a task; none of them depends on ``batch_size``."""
    objective = Objective(task, next(model.parameters()).device)
    options = TrainOptions(batch_size=batch_size)
    return Evaluation(model, task.graphs, objective, objective.part(part, fold), options).score()


class Evaluation:
    """A part of a task, cut into batches and ready to be evaluated again and again.

    Args:
        model: takes graphs of the task.
        graphs: all graphs of the task.
        objective: targets, loss and metric.
        part: what is evaluated.
        options: ``batch_size`` or ``batch_tokens``.
        fabric: if there are several processes, each takes its share of the batches.
    """

    def __init__(
        self,
        model: nn.Module,
        graphs: Sequence[Data],
        objective: Objective,
        part: Part,
        options: TrainOptions,
        fabric: Any = None,
    ) -> None:
        self.model, self.objective, self.part, self.fabric = model, objective, part, fabric
        self.graphs, self.options, members = graphs, options, part.members.tolist()
        tokens = dict(zip(members, token_counts(model, [graphs[member] for member in members]), strict=True))
        self.tokens = [tokens.get(member, 0) for member in range(len(graphs))]
        self.rows = objective.rows(members, part.nodes) if members else torch.empty(0, dtype=torch.long)
        self.recorder: Recorder | None = None
        self._cut(options)

    def _cut(self, options: TrainOptions) -> None:
        """Batches, and where the outputs of each stand among all."""
        batches = cut(self.part.members.tolist(), options, self.tokens)
        rank, world = (self.fabric.global_rank, self.fabric.world_size) if self.fabric is not None else (0, 1)
        sizes = [len(self.objective.rows(batch, self.part.nodes)) for batch in batches]
        ends = list(accumulate(sizes))
        self.places = [(ends[i] - sizes[i], ends[i]) for i in range(rank, len(batches), world)]
        self.held = Held(self.model, self.graphs, batches[rank::world], sum(self.tokens))

    def record(self, recorder: Recorder | None) -> None:
        """Replay what ``recorder`` records, if there is one, in batches that are several times as large: training keeps some vectors of
        every layer, unless memory is spared, so these need no more of it."""
        self.recorder = recorder
        if recorder is not None and not recorder.sparing:
            several = max(1, recorder.resident.model.config.depth // 2)
            self._cut(replace(self.options, batch_size=several * self.options.batch_size))

    @torch.no_grad()
    def outputs(self) -> Tensor:
        """(rows, outputs) of the part, the same in every process."""
        training = self.model.training
        self.model.eval()
        parameter = next(self.model.parameters())
        found = parameter.new_zeros(len(self.rows), self.objective.task.outputs)
        try:
            with matmul_precision("highest"), torch.autocast(parameter.device.type, enabled=False):
                if self.recorder is not None:
                    for (start, end), members in zip(self.places, self.held.batches, strict=True):
                        found[start:end] = self.recorder.outputs(members)[: end - start]
                    return found
                for (start, end), (_, ready) in zip(self.places, self.held, strict=True):
                    outputs = self.model(ready)
                    found[start:end] = outputs if self.part.nodes is None else outputs[self.part.nodes]
        finally:
            self.model.train(training)
        if self.fabric is not None and self.fabric.world_size > 1:
            found = self.fabric.all_reduce(found, reduce_op="sum")
        return found

    def score(self) -> Score:
        """Metric and loss over all rows at once."""
        outputs = self.outputs()
        count = self.objective.count(self.rows)
        loss = float(self.objective.loss(outputs, self.rows)) / count if count else math.nan
        metric = self.objective.metric(outputs, self.rows) if count else math.nan
        undefined = self.objective.why_undefined(outputs, self.rows) if math.isnan(metric) else ""
        return Score(
            metric, loss, outputs, self.objective.known(self.rows), undefined, self.objective.left_out(self.rows)
        )
