"""Own graphs: lists of PyG ``Data``, PyG data sets, networkx graphs, graph6 strings or files, with their labels."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from tuplet.datasets.splits import FRACTIONS, random_split, strata, stratified_split
from tuplet.datasets.targets import Targets, classes_of, from_cells, from_tensors
from tuplet.datasets.task import PARTS, Kind, Level, Loss, Metric, Task
from tuplet.errors import InputError, OptionError
from tuplet.graphs import read
from tuplet.graphs.door import as_data
from tuplet.graphs.edges import symmetrise
from tuplet.graphs.files import read_graphs
from tuplet.graphs.from_networkx import is_networkx

AT_ONCE = 512
"""Graphs that are checked together."""
Split = str | Mapping[str, Sequence[int]] | None


def load_graphs(
    graphs: Any,
    *,
    labels: str | Path | Sequence[Any] | None = None,
    split: Split = "random",
    seed: int = 0,
    fractions: Sequence[float] = FRACTIONS,
    level: Level | None = None,
    kind: Kind | None = None,
    classes: Sequence[str] | None = None,
    loss: Loss | None = None,
    metric: Metric | None = None,
    directed: bool = False,
    undirected: Literal["require", "symmetrise"] = "require",
    standardise: bool = True,
    name: str = "graphs",
) -> Task:
    """A task from graphs in memory, or from a file of graph6 lines.

    Args:
        graphs: a list or PyG data set of ``Data``, networkx graphs or graph6 strings; or the path of a graph6 file.
        labels: of the graphs: a file with a line a graph (numbers parted by commas or blanks, or a word for a class), or a
            list. By default ``data.y``, and ``graph.graph["y"]`` of a networkx graph. An empty line, None, NaN, or -1 among classes
            is a missing target.
        split: "random", "stratified", or a dict of positions for "train", "val", "test"; node tasks read ``train_mask``, .. if
            the graph has them.
        seed, fractions: of the split.
        level: "graph", "node" or "edge"; by default "edge" if graphs have ``edge_label``, "node" if the only graph has a
            ``train_mask``, else "graph".
        kind: regression, classification or binary; by default what the targets look like (see ``targets``).
        classes: names of the classes in the order of their numbers, of which graphs may have some, as for ``table.load_table``.
        loss, metric: by default the usual ones of the kind.
        directed, undirected: how edges are read, as for ``tuplet.read``; "symmetrise" adds missing reverses once, here.
        standardise: whether training standardises real targets.
        name: of the task.
    """
    kind = kind or (None if classes is None else "classification")
    items = _as_list(graphs)
    if undirected == "symmetrise" and not directed:
        items = [_both_ways(data) for data in items]
    _check(items, directed)
    where = level or _level(items)
    field = "edge_label" if where == "edge" else "y"
    if labels is not None:
        if where != "graph":
            raise OptionError(f"labels: expected targets in data.{field} of a {where} task; came labels")
        found = _labelled(labels, len(items), kind, least=2 if classes is None else 1)
    else:
        found = _own_targets(items, where, kind)
    found = found if classes is None else found.among(classes)
    items = _with_targets(items, found, where)
    parts = _split(items, found, where, split, seed, fractions)
    train = parts[0]["train"]
    mean, std = found.moments(train) if standardise and where != "edge" else (None, None)
    chosen_loss, chosen_metric = found.usual(loss, metric)
    return Task(
        name=name, graphs=items, splits=parts, level=where, kind=found.kind, outputs=found.outputs, loss=chosen_loss,
        metric=chosen_metric, directed=directed, mean=mean, std=std, targets=found.names, origin="own graphs",
        **_declared(items, "x", "node"), **_declared(items, "edge_attr", "edge"),
    )  # fmt: skip


def _as_list(graphs: Any) -> list[Data]:
    if isinstance(graphs, (str, Path)):
        return list(read_graphs(graphs))
    if isinstance(graphs, Batch):
        graphs = graphs.to_data_list()
    if isinstance(graphs, Data) or is_networkx(graphs):
        graphs = [graphs]
    if not isinstance(graphs, Iterable):
        raise InputError("graphs", "a name, a file, or a list of graphs", type(graphs).__name__)
    items = []
    for number, graph in enumerate(graphs):
        try:
            data = copy.copy(as_data(graph))
        except InputError as error:
            raise InputError(f"graphs[{number}]", "a PyG Data, networkx graph or graph6 string", str(error)) from error
        if is_networkx(graph) and "y" in graph.graph and data.get("y") is None:
            data.y = torch.as_tensor(graph.graph["y"]).reshape(-1)
        items.append(data)
    if not items:
        raise InputError("graphs", "at least one graph", "an empty list")
    return items


def _both_ways(data: Data) -> Data:
    data.edge_index, edge_attr = symmetrise(data.edge_index, data.edge_attr)
    if edge_attr is not None:
        data.edge_attr = edge_attr
    return data


def _check(items: list[Data], directed: bool) -> None:
    """Refuse, by its number, the first graph that ``tuplet.read`` refuses, and lists whose features differ."""
    for first in range(0, len(items), AT_ONCE):
        try:
            read(items[first : first + AT_ONCE], directed=directed)
        except InputError:
            for number, data in enumerate(items[first : first + AT_ONCE], start=first):
                try:
                    read(data, directed=directed)
                except InputError as error:
                    raise InputError(f"graphs[{number}]", "a graph that can be read", str(error)) from error
            raise


def _level(items: list[Data]) -> Level:
    if items[0].get("edge_label") is not None:
        return "edge"
    return "node" if len(items) == 1 and items[0].get("train_mask") is not None else "graph"


def _own_targets(items: list[Data], level: Level, kind: Kind | None) -> Targets:
    field = "edge_label" if level == "edge" else "y"
    for number, data in enumerate(items):
        if not isinstance(data.get(field), Tensor):
            raise InputError(field, f"targets in every graph (graph {number})", "none", "Or pass labels=.")
        if level == "edge" and data.get("edge_label_index") is None:
            raise InputError("edge_label_index", f"the pairs to predict, (2, Q), in graph {number}", "none")
    if level == "graph":
        return from_tensors([data.y for data in items], kind)
    values = torch.cat([data[field] for data in items])
    rows = items[0].num_nodes if level == "node" else sum(data.edge_label_index.shape[1] for data in items)
    if values.dim() == 0 or len(values) != rows:
        raise InputError(field, f"{rows} rows, one for each {level}", f"shape {tuple(values.shape)}")
    if kind == "classification" or (kind is None and values.dim() == 1 and not values.is_floating_point()):
        return classes_of(values)
    return from_tensors(list(values), kind)


def _labelled(labels: str | Path | Sequence[Any], count: int, kind: Kind | None, least: int) -> Targets:
    if not isinstance(labels, (str, Path)):
        if len(labels) != count:
            raise InputError("labels", f"{count}, one a graph", f"{len(labels)}")
        if any(isinstance(label, str) for label in labels) and all(isinstance(label, str | None) for label in labels):
            return from_cells(["label"], [[label or ""] for label in labels], range(count), kind, least)
        return from_tensors([torch.as_tensor(label) for label in labels], kind)
    try:
        lines = Path(labels).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("labels", "a readable text file", f"{labels}: {error}") from error
    if len(lines) != count:
        raise InputError("labels", f"{count} lines in {labels}, one a graph", f"{len(lines)}")
    cells = [line.replace(",", " ").split() or [""] for line in lines]
    for number, row in enumerate(cells, start=1):
        if len(row) != len(cells[0]):
            raise InputError("labels", f"{len(cells[0])} in every line of {labels}", f"{len(row)} in line {number}")
    names = [f"target {place}" for place in range(len(cells[0]))]
    return from_cells(names, cells, range(1, count + 1), kind, least)


def _with_targets(items: list[Data], found: Targets, level: Level) -> list[Data]:
    """Graphs with their targets in the form that ``Task`` describes."""
    if level == "node":
        items[0].y = found.y
        return items
    if level == "graph":
        for number, data in enumerate(items):
            data.y = found.y[number : number + 1]
        return items
    counts = [data.edge_label_index.shape[1] for data in items]
    for data, rows in zip(items, found.y.split(counts), strict=True):
        data.edge_label = rows
    return items


def _split(
    items: list[Data], found: Targets, level: Level, split: Split, seed: int, fractions: Sequence[float]
) -> tuple[dict[str, Tensor], ...]:
    count = int(items[0].num_nodes or 0) if level == "node" else len(items)
    if isinstance(split, Mapping):
        parts = {part: torch.as_tensor(list(positions), dtype=torch.int64) for part, positions in split.items()}
        if "train" not in parts or not len(parts["train"]):
            raise InputError("split", "positions for 'train'", f"{', '.join(parts) or 'none'}")
        joined = torch.cat(list(parts.values()))
        if len(joined.unique()) < len(joined):
            raise InputError("split", "each position in one part, once", "a position that is repeated")
        return (parts,)
    if level == "node" and items[0].get("train_mask") is not None and split in (None, "random"):
        return _masks(items[0])
    if split is None or split == "random":
        return (random_split(count, fractions, seed),)
    if split == "stratified" and level != "edge":
        return (stratified_split(strata(found.y, found.kind == "regression"), fractions, seed),)
    raise OptionError(f"split: expected 'random', 'stratified' (not for edges) or a dict of positions; came {split!r}")


def _masks(data: Data) -> tuple[dict[str, Tensor], ...]:
    columns = {}
    for part in PARTS:
        mask = data.get(f"{part}_mask")
        if mask is None or len(mask) != data.num_nodes:
            raise InputError(f"{part}_mask", f"a truth value for each of the {data.num_nodes} nodes", f"{mask}"[:40])
        columns[part] = (mask[:, None] if mask.dim() == 1 else mask).bool()
    return tuple(
        {part: mask[:, number].nonzero()[:, 0] for part, mask in columns.items()}
        for number in range(columns["train"].shape[1])
    )


def _declared(items: list[Data], field: str, option: str) -> dict[str, Any]:
    """``node_types`` or ``node_dim`` (``edge_..``) as the features say."""
    tables = [data[field] for data in items if data.get(field) is not None and len(data[field])]
    if not tables:
        return {}
    tables = [table[:, None] if table.dim() == 1 else table for table in tables]
    if any(table.is_floating_point() for table in tables):
        return {f"{option}_dim": tables[0].shape[1]}
    lowest = min(int(table.min()) for table in tables)
    if lowest < 0:
        raise InputError(field, "whole numbers of at least 0, as they number categories", f"{lowest}")
    highest = torch.stack([table.amax(0) for table in tables]).amax(0)
    return {f"{option}_types": tuple(int(value) + 1 for value in highest)}
