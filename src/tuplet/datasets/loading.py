"""``load``: a data set by its name, from a file, or from graphs in memory, as a ``Task``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_type_hints

import torch
from torch_geometric.data import Data

from tuplet._values import convert
from tuplet.datasets.catalogue import CATALOGUE, row_of
from tuplet.datasets.files import TABLES, TEXTS, check_file, is_table
from tuplet.datasets.own import load_graphs
from tuplet.datasets.packed import PackedGraphs, WithFields
from tuplet.datasets.preparation import from_transform
from tuplet.datasets.table import load_table
from tuplet.datasets.task import PARTS, Task
from tuplet.datasets.where import Where
from tuplet.errors import InputError, OptionError

Transform = Callable[[Data], Data]


def load(
    name_or_path: Any,
    /,
    *,
    data: str | Path | None = None,
    root: str | Path | None = None,
    split: Any = None,
    transform: Transform | None = None,
    pre_transform: Transform | None = None,
    force_reload: bool = False,
    processes: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> Task:
    """A data set with its splits, loss and metric.

    >>> load("zinc", data="packed")
    >>> load("csl", split=2)  # the third fold alone
    >>> load("molecules.csv", smiles="smiles", targets=["logS"], split="scaffold")
    >>> load([graph_1, graph_2, ..], labels=[0, 1, ..])  # torch_geometric, networkx or graph6
    >>> load("graphs.g6", labels="labels.txt")

    Args:
        name_or_path: a name of ``CATALOGUE``; a table of molecules (.csv, .tsv, also .gz); a file of graph6 lines (.g6); or graphs.
        data: folder of packed data sets (see ``tuplet.datasets.local``), by default ``$TUPLET_DATA``; what it lacks is fetched from the
            publisher where that is possible without pickle.
        root: where fetched files and prepared data are kept; by default ``$TUPLET_CACHE``, else ``~/.cache/tuplet``.
        split: of a named data set, the number of a fold, or "train", "val", "test" for the graphs of that part alone; of own
            data "random", "stratified", "scaffold", "column:NAME", or a dict of positions.
        transform: applied to a graph at every access.
        pre_transform: applied to every graph once. ``Precompute``, ``CliqueComplex`` and samples of tuples are kept on disk, as
            ``prepare`` does; other functions have no name to keep their results by and run at every load.
        force_reload: make anew what is kept on disk.
        processes: to prepare with.
        progress: is told what is done and what is to do.
        **options: of the data set (see ``CATALOGUE``), of ``table.load_table`` or of ``own.load_graphs``.
    """
    where = Where(data, root, force_reload, processes, progress)
    if isinstance(name_or_path, (str, Path)):
        task = _by_text(name_or_path, where, split, options)
    else:
        task = _call(load_graphs, options, name_or_path, **_given(split))
    if pre_transform is not None:
        how = {"root": root, "processes": processes, "progress": progress, "force_reload": force_reload}
        prepared = from_transform(task, pre_transform, **how)
        task = prepared or replace(task, graphs=[pre_transform(graph) for graph in task.graphs])
    if transform is not None:
        base = task.graphs
        added = base if isinstance(base, WithFields) else WithFields(base)
        task = replace(task, graphs=WithFields(added.base, added.added, transform))
    return task


def _by_text(source: str | Path, where: Where, split: Any, options: dict[str, Any]) -> Task:
    row = row_of(str(source))
    if row is not None:
        return _chosen(_call(row.loader, options, where), split)
    path = Path(source).expanduser()
    if path.exists() or path.name.lower().endswith((*TABLES, *TEXTS)):
        check_file(path)
    if is_table(path):
        extra: dict[str, Any] = {"processes": where.processes, "progress": where.progress}
        return _call(partial(load_table, **extra), options, path, **_given(split))
    if path.suffix.lower() in TEXTS:
        return _call(load_graphs, {"name": path.name, **options}, path, **_given(split))
    names = [row.name for row in CATALOGUE]
    near = get_close_matches(str(source).lower(), names, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"A file ends in {', '.join((*TABLES[:2], TEXTS[0]))}."
    raise InputError("data set", f"one of {', '.join(names)}, or a file", repr(str(source)), hint)


def _given(split: Any) -> dict[str, Any]:
    return {} if split is None else {"split": split}


def _call(function: Callable[..., Task], options: dict[str, Any], *arguments: Any, **more: Any) -> Task:
    """Call with options that the function has, each as it is declared; others are refused by name."""
    fixed = set(function.keywords) if isinstance(function, partial) else set()
    parameters = inspect.signature(function).parameters.values()
    known = [item.name for item in parameters if item.kind is item.KEYWORD_ONLY and item.name not in fixed | {"split"}]
    declared = get_type_hints(function.func if isinstance(function, partial) else function)
    read = {}
    for name, value in options.items():
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise OptionError(f"option: expected one of {', '.join(known) or 'none'}; came {name!r}.{hint}")
        read[name] = convert(name, declared[name], value) if _is_one(declared[name]) else value
    if read.get("seed", 0) < 0:
        raise OptionError(f"seed: expected a whole number of at least 0; came {read['seed']}")
    return function(*arguments, **read, **more)


def _is_one(kind: Any) -> bool:
    """Whether a declared kind is one kind of values, or None; what may be of several kinds the function itself looks at."""
    return not isinstance(kind, UnionType) or len({*get_args(kind)} - {NoneType}) == 1


def _chosen(task: Task, split: Any) -> Task:
    """One fold, or the graphs of one part, of a named data set."""
    if split is None:
        return task
    if isinstance(split, int) and not isinstance(split, bool):
        if not 0 <= split < len(task.splits):
            raise OptionError(f"split: expected 0..{len(task.splits) - 1} for {task.name}; came {split}")
        return replace(task, splits=(task.splits[split],))
    if split not in PARTS:
        raise OptionError(
            f"split: expected {', '.join(map(repr, PARTS))} or the number of a fold for {task.name}; came {split!r}"
        )
    if len(task.splits) > 1:
        raise OptionError(
            f"split: {task.name} has {len(task.splits)} splits, so expected one of their numbers; came {split!r}"
        )
    positions = task.splits[0][split]
    if isinstance(task.graphs, PackedGraphs):
        graphs: Any = task.graphs.take(positions)
    else:
        graphs = [task.graphs[position] for position in positions.tolist()]
    return replace(task, graphs=graphs, splits=({split: torch.arange(len(positions))},))
