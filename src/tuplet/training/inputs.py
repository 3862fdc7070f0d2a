"""What a model reads besides the graph itself, computed once before training: encodings, complexes, samples."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tuplet.datasets.task import PARTS
from tuplet.encodings import Precompute
from tuplet.tokens import ConnectedTuples, RandomTuples
from tuplet.topology import CliqueComplex
from tuplet.training.progress import progress_bar

if TYPE_CHECKING:
    from tuplet.datasets.task import Task

FEW = 2000
"""Graphs up to which preparation is quick enough to be done again each time, in memory."""


def narrowed(task: Task, folds: Sequence[int], parts: Sequence[str] = PARTS) -> Task:
    """The task with the graphs that these parts of these splits name, and no others; splits keep their numbers.

    Preparing a data set of which a small part is used would cost more than using it.
    """
    if task.level == "node":
        return task
    named = [task.splits[fold][part] for fold in folds for part in parts if part in task.splits[fold]]
    kept = torch.cat(named).unique() if named else torch.empty(0, dtype=torch.long)
    if len(kept) == 0 or 2 * len(kept) > len(task.graphs):
        return task
    place = torch.full((len(task.graphs),), -1).scatter(0, kept, torch.arange(len(kept)))
    splits = tuple(
        {part: place[items] for part, items in split.items() if fold in folds and part in parts}
        for fold, split in enumerate(task.splits)
    )
    return replace(task, graphs=[task.graphs[number] for number in kept.tolist()], splits=splits)


def ready(task: Task, model: nn.Module, show: bool = False, root: str | Path | None = None) -> Task:
    """The task with all that ``model`` would otherwise compute for every batch again, stored with its graphs.

    What graphs bring along already is left as it is. For many graphs the result is kept in the cache of ``tuplet.datasets``.

    Args:
        task: its graphs are not altered.
        model: whose config says what it reads.
        show: print how far the preparation is.
        root: where prepared data are kept; the folder ``$TUPLET_CACHE`` or ``~/.cache/tuplet`` if None.
    """
    wanted = _wanted(model, task)
    if not wanted:
        return task
    config: Any = model.config
    if len(task.graphs) > FEW and config.undirected == "require":
        from tuplet.datasets.preparation import prepare

        with progress_bar(f"preparing {task.name}") if show else nullcontext() as report:
            tell = None if report is None else lambda done, total: report(done, total, f"{done} of {total} graphs")
            return prepare(task, **wanted, root=root, progress=tell)
    graphs = list(task.graphs)
    if "complex_dim" in wanted:
        complexes = CliqueComplex(wanted["complex_dim"])
        graphs = [complexes(graph) for graph in graphs]
    if "encodings" in wanted:
        graphs = Precompute(wanted["encodings"], undirected=config.undirected, directed=config.directed).many(graphs)
    if "tuples" in wanted:
        graphs = [wanted["tuples"](graph) for graph in graphs]
    return replace(task, graphs=graphs)


def _wanted(model: nn.Module, task: Task) -> dict[str, Any]:
    """What the model reads and the graphs lack, as arguments of ``tuplet.datasets.preparation.prepare``."""
    config: Any = getattr(model, "config", None)
    choices = getattr(config, "choices", None)
    first = task.graphs[0]
    wanted: dict[str, Any] = {}
    encodings: Any = getattr(config, "statistics", None) or getattr(config, "encodings", ())
    missing = [encoding for encoding in encodings if not all(field in first for field in encoding.fields)]
    if missing:
        wanted["encodings"] = missing
    if choices is not None and choices.dims is not None and "simplex_index_1" not in first:
        wanted["complex_dim"] = choices.dims[1] + (not config.truncate) or 1
    if choices is not None and choices.sample is not None and "tuples" not in first:
        order = max(choices.orders)
        connected = choices.sample == "connected"
        random = RandomTuples(order, max(1, choices.budget), config.sample_seed, config.connected_share)
        wanted["tuples"] = ConnectedTuples(order, config.repeats) if connected else random
    return wanted


def fingerprint(task: Task) -> str:
    """A checksum of what a run learns from: edges, features, targets and splits."""
    # means are sums, whose last digits depend on the number of threads
    moments = [None if item is None else [f"{value:.9g}" for value in item] for item in (task.mean, task.std)]
    found = hashlib.sha256(f"{task.name} {task.level} {task.kind} {task.outputs} {moments}".encode())
    for graph in task.graphs:
        for key in ("x", "edge_index", "edge_attr", "y", "edge_label_index", "edge_label"):
            value = graph.get(key)
            if isinstance(value, Tensor):
                found.update(f"{key}{tuple(value.shape)}".encode())
                found.update(value.detach().cpu().contiguous().numpy().tobytes())
    for split in task.splits:
        for part, items in sorted(split.items()):
            found.update(part.encode() + items.numpy().tobytes())
    return found.hexdigest()
