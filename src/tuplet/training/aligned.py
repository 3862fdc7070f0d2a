"""Targets of one data set in the order of another: what a model calls class 0 need not be what a file calls so."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch_geometric.data import Data

from tuplet.datasets.targets import place_of
from tuplet.datasets.task import NO_CLASS
from tuplet.errors import OptionError
from tuplet.training.store import TaskInfo

if TYPE_CHECKING:
    from tuplet.datasets.task import Task


def aligned(task: Task, known: TaskInfo) -> Task:
    """The task with its classes numbered as in ``known``, by their names; refused where names say that this cannot be.

    A file of which some classes are absent numbers the others anew, so numbers alone would compare wrong classes.
    """
    if task.kind != known.kind or not task.targets or not known.targets or task.targets == known.targets:
        return task
    if task.kind != "classification":
        moved = (place != known.targets.index(name) for place, name in enumerate(task.targets) if name in known.targets)
        if any(moved):
            raise OptionError(
                f"targets: expected {', '.join(known.targets)}, in this order; {task.name} has {', '.join(task.targets)}"
            )
        return task
    places = [place_of(name, known.targets) for name in task.targets]
    for name, place in zip(task.targets, places, strict=True):
        if place is None:
            raise OptionError(
                f"task: expected the classes {', '.join(known.targets)}, as the model was trained; {task.name} has {name!r}"
            )
    field = "edge_label" if task.level == "edge" else "y"
    numbers = torch.tensor([*places, NO_CLASS])  # a missing class, -1, is the last
    graphs = [_renumbered(graph, field, numbers) for graph in task.graphs]
    return replace(task, graphs=graphs, outputs=known.outputs, targets=known.targets)


def _renumbered(graph: Data, field: str, numbers: Tensor) -> Data:
    graph = copy.copy(graph)
    graph[field] = numbers[graph[field].long()]
    return graph
