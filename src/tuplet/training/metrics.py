"""Predictions for a whole data set, and metrics over all of them at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from tuplet.errors import OptionError

Metric = Callable[[Tensor, Tensor], float]
"""A number for the outputs and targets of a data set."""

Ready = list[tuple[Any, Tensor]]
"""Batches that a model can run as they are, each with its targets."""


def accuracy(outputs: Tensor, targets: Tensor) -> float:
    """Share of rows of ``outputs`` (G, classes) whose largest entry stands at the target (G,), in [0, 1]."""
    return (outputs.argmax(1) == targets).double().mean().item()


def ready(model: nn.Module, data: Sequence[Data], batch_size: int) -> Ready:
    """``data`` in batches, in order, prepared once where the model knows how to."""
    if not data:
        raise OptionError("data: expected at least one graph; came none")
    batches = [Batch.from_data_list(list(data[i : i + batch_size])) for i in range(0, len(data), batch_size)]
    return [(prepare(model, batch), batch.y) for batch in batches]


def prepare(model: nn.Module, batch: Any) -> Any:
    """What ``model`` runs of a batch: ``model.prepare(batch)``, or the batch where a model has no such step."""
    return model.prepare(batch) if hasattr(model, "prepare") else batch  # type: ignore[operator]


@torch.no_grad()
def predict(model: nn.Module, batches: Iterable[tuple[Any, Tensor]]) -> tuple[Tensor, Tensor]:
    """Outputs in evaluation mode and targets, of all batches."""
    training = model.training
    model.eval()
    pairs = [(model(batch), target) for batch, target in batches]
    model.train(training)
    outputs = torch.cat([output for output, _ in pairs])
    return outputs, torch.cat([target for _, target in pairs]).to(outputs.device)


def evaluate(model: nn.Module, data: Sequence[Data], metric: Metric, batch_size: int = 32) -> float:
    """The metric over all graphs of ``data``; the batches are an implementation detail and never averaged."""
    return metric(*predict(model, ready(model, data, batch_size)))
