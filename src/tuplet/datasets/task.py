"""What a data set asks: graphs, splits, targets, loss and metric in one object that training and evaluation read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch_geometric.data import Data

from tuplet.errors import InputError, OptionError

Level = Literal["graph", "node", "edge"]
Kind = Literal["regression", "classification", "binary"]
Loss = Literal["l1", "mse", "cross_entropy", "bce"]
Metric = Literal["mae", "mse", "accuracy", "rocauc", "ap"]
PARTS = ("train", "val", "test")
NO_CLASS = -1
"""A class that is missing."""

_FITTING: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "regression": (("l1", "mse"), ("mae", "mse")),
    "classification": (("cross_entropy",), ("accuracy",)),
    "binary": (("bce",), ("rocauc", "ap", "accuracy")),
}
"""Losses and metrics that go with each kind of target."""


@dataclass(frozen=True)
class Skipped:
    """A row of a file that is not among the graphs.

    Args:
        row: its number in the file; the header is row 1.
        text: what stood there.
        reason: why it could not be used.
    """

    row: int
    text: str
    reason: str


@dataclass(frozen=True, eq=False)
class Task:
    """A data set ready to learn from: graphs, splits, and what is asked.

    Targets at graph level are ``data.y``: (1, outputs) real numbers for regression and binary tasks (NaN is missing, and
    masked in loss and metric), (1,) int64 for classification (-1 is missing, and masked too). At node level ``data.y`` is
    (n,) or (n, outputs), at edge level ``data.edge_label`` (Q,) goes with ``data.edge_label_index`` (2, Q).

    ``y`` is in the units in which the metric is reported. ``mean`` and ``std`` are for training alone, which may learn
    (y - mean) / std and turn its outputs back; benchmarks whose protocol scales the targets have them scaled in ``y``
    already, with ``shift`` and ``scale`` saying how (raw target = y * scale + shift).

    Args:
        name: what it is called.
        graphs: PyG ``Data`` with ``x``, ``edge_attr``, ``y``.
        splits: one dict a fold or split: "train", "val", "test" -> int64 positions in ``graphs`` (graph and edge tasks), or
            node numbers of the only graph (node tasks).
        level: what is predicted for.
        kind: regression, classification (one class of several), or binary (several 0/1 targets by logits).
        outputs: width of the model's output: targets, or classes.
        loss: that training minimises.
        metric: that is reported, and chooses the best epoch.
        node_types, edge_types: values of each categorical column; node_dim, edge_dim: width of real features.
        directed: whether edges have a direction.
        mean, std: of the training targets, where training standardises them.
        shift, scale: of what was done to the targets in ``y``.
        targets: names of the targets, or of the classes.
        skipped: rows of the file that could not be used.
        origin: where the graphs come from, in words.
    """

    name: str
    graphs: Sequence[Data]
    splits: tuple[dict[str, Tensor], ...]
    level: Level
    kind: Kind
    outputs: int
    loss: Loss
    metric: Metric
    node_types: int | tuple[int, ...] | None = None
    node_dim: int | None = None
    edge_types: int | tuple[int, ...] | None = None
    edge_dim: int | None = None
    directed: bool = False
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    shift: tuple[float, ...] | None = None
    scale: tuple[float, ...] | None = None
    targets: tuple[str, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    origin: str = ""

    def __post_init__(self) -> None:
        for field, allowed in (("level", Level), ("kind", Kind)):
            if getattr(self, field) not in get_args(allowed):
                options = ", ".join(map(repr, get_args(allowed)))
                raise OptionError(f"{field}: expected one of {options}; came {getattr(self, field)!r}")
        for field, fitting in zip(("loss", "metric"), _FITTING[self.kind], strict=True):
            if getattr(self, field) not in fitting:
                options = ", ".join(map(repr, fitting))
                raise OptionError(f"{field}: expected one of {options} for {self.kind}; came {getattr(self, field)!r}")
        if self.level == "node" and len(self.graphs) != 1:
            raise InputError("graphs", "one graph for a node task", f"{len(self.graphs)}")
        if not self.splits:
            raise InputError("splits", "at least one split", "none")
        for number, split in enumerate(self.splits):
            self._check(split, number)

    def _check(self, split: Mapping[str, Tensor], number: int) -> None:
        for part, positions in split.items():
            field = f"splits[{number}][{part!r}]"
            if part not in PARTS:
                raise InputError(f"splits[{number}]", f"the parts {', '.join(PARTS)}", repr(part))
            if positions.dtype != torch.int64 or positions.dim() != 1:
                raise InputError(field, "int64 positions (m,)", f"{positions.dtype} {tuple(positions.shape)}")
            if len(positions) and not 0 <= int(positions.min()) <= int(positions.max()) < self.size:
                low, high = int(positions.min()), int(positions.max())
                raise InputError(field, f"positions 0..{self.size - 1}", f"{low}..{high}")

    @property
    def size(self) -> int:
        """How many graphs there are to choose from, or nodes at node level."""
        return int(self.graphs[0].num_nodes or 0) if self.level == "node" else len(self.graphs)

    @property
    def maximise(self) -> bool:
        """Whether a larger metric is better."""
        return self.metric in ("accuracy", "rocauc", "ap")

    def model_options(self) -> dict[str, Any]:
        """Options for ``tuplet.build`` that the data decides."""
        options: dict[str, Any] = {"task": self.level, "outputs": self.outputs, "directed": self.directed}
        for field in ("node_types", "node_dim", "edge_types", "edge_dim"):
            if getattr(self, field) is not None:
                options[field] = getattr(self, field)
        return options

    def part(self, part: str, split: int = 0) -> Sequence[Data]:
        """The graphs of one part, in the split's order; at node level the one graph."""
        if part not in self.splits[split]:
            raise OptionError(f"part: expected one of {', '.join(self.splits[split])}; came {part!r}")
        if self.level == "node":
            return self.graphs
        return [self.graphs[position] for position in self.splits[split][part].tolist()]

    def limited(self, train: int | None = None, val: int | None = None, test: int | None = None) -> Task:
        """The same task with at most so many items, the first of each part, in every split."""
        most = {"train": train, "val": val, "test": test}
        return replace(
            self, splits=tuple({part: items[: most[part]] for part, items in split.items()} for split in self.splits)
        )

    def __repr__(self) -> str:
        sizes = "/".join(str(len(positions)) for positions in self.splits[0].values())
        several = f" in {len(self.splits)} splits" if len(self.splits) > 1 else ""
        return (
            f"Task({self.name!r}: {len(self.graphs)} graphs, {sizes}{several}, {self.level} {self.kind}, {self.metric})"
        )
