"""Preparation: encodings, complexes and samples of a whole data set, computed once, in parallel, and kept on disk."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from tuplet._cache import default_root
from tuplet.datasets.cache import Cache
from tuplet.datasets.packed import PackedGraphs, WithFields
from tuplet.datasets.parallel import Arrays, in_parts
from tuplet.datasets.task import Task
from tuplet.encodings import Encoding, Precompute, parse
from tuplet.errors import OptionError
from tuplet.tokens import ConnectedTuples, RandomTuples
from tuplet.topology import CliqueComplex

Progress = Callable[[int, int], None]
GRAPHS, NODES = 512, 1 << 15
"""Most graphs, and nodes, that are worked on at once."""
MANY = 4000
"""Graphs from which other processes are worth their start."""
_SAMPLES = {"ConnectedTuples": ConnectedTuples, "RandomTuples": RandomTuples}
_VERSION = 1
"""Of what preparation computes: to be raised when the same options give other numbers."""


def prepare(
    task: Task,
    *,
    encodings: Iterable[Encoding | str] = (),
    complex_dim: int | None = None,
    tuples: ConnectedTuples | RandomTuples | None = None,
    root: str | Path | None = None,
    processes: int | None = None,
    progress: Progress | None = None,
    force_reload: bool = False,
) -> Task:
    """The task with raw statistics, simplices and sampled tuples stored with its graphs.

    What is computed is kept under ``root/prepared`` by a key of the graphs, the options and the version of tuplet, and mapped into
    memory from there, so that it may be larger than memory. Computation goes part by part: memory is that of a few parts.

    Args:
        task: what ``load`` gave.
        encodings: encodings or their short forms ("RWSE:20:28"), see ``tuplet.encodings``.
        complex_dim: largest dimension of the clique complex to store, for simplicial models: their k2 + 1. Graphs that bring a
            complex of their own keep it.
        tuples: ``ConnectedTuples(k)`` or ``RandomTuples(k, budget)``, for models on sampled tuples.
        root: where to keep it; ``default_root()`` by default.
        processes: how many to work with; by default one for each core if there are many graphs.
        progress: is told graphs done and graphs in all.
        force_reload: compute anew what is there already.
    """
    options = _options(task, encodings, complex_dim, tuples)
    if not any(options[name] for name in ("encodings", "complex", "tuples")):
        return task
    base, transform = task.graphs, None
    if isinstance(base, WithFields) and base.transform is not None:
        base, transform = WithFields(base.base, base.added), base.transform
    cache = Cache((Path(root).expanduser() if root is not None else default_root()) / "prepared", _key(base, options))
    count = worth_processes(processes, len(base))
    added = cache.get(lambda folder: _computed(base, options, count, progress, folder), force_reload)
    return replace(task, graphs=WithFields(base, added, transform))


def from_transform(task: Task, transform: Any, **how: Any) -> Task | None:
    """``prepare`` for transforms that it knows (``Precompute``, ``CliqueComplex``, samples, a ``Compose`` of them), else None."""
    steps = list(getattr(transform, "transforms", [transform]))
    asked: dict[str, Any] = {}
    for step in steps:
        if type(step) is Precompute and _plain(step, task):
            found: dict[str, Any] = {"encodings": step.encodings}
        elif type(step) is CliqueComplex and step.limit == CliqueComplex(step.dim).limit:
            found = {"complex_dim": step.dim}
        elif type(step) in _SAMPLES.values():
            found = {"tuples": step}
        else:
            return None
        if found.keys() & asked.keys():
            return None
        asked |= found
    # preparation makes complexes before encodings, which may read them
    if list(asked) == ["encodings", "complex_dim"]:
        return None
    return prepare(task, **asked, **how)


def _plain(step: Precompute, task: Task) -> bool:
    """Whether a transform computes what ``prepare`` would."""
    return step.dtype is None and step.undirected == "require" and step.directed == task.directed


def _options(task: Task, encodings: Iterable[Encoding | str], complex_dim: int | None, tuples: Any) -> dict[str, Any]:
    """What is asked for, as JSON can say it."""
    if isinstance(encodings, (str, Encoding)):
        raise OptionError(f"encodings: expected a list of encodings; came {encodings!r} alone")
    chosen = [parse(item) if isinstance(item, str) else item for item in encodings]
    for encoding in chosen:
        if parse(str(encoding)) != encoding:
            raise OptionError(f"encodings: expected encodings that tuplet.encodings.parse knows; came {encoding!r}")
    if tuples is not None and type(tuples).__name__ not in _SAMPLES:
        raise OptionError(f"tuples: expected ConnectedTuples or RandomTuples; came {tuples!r}")
    if complex_dim is not None and (
        isinstance(complex_dim, bool) or not isinstance(complex_dim, int) or complex_dim < 1
    ):
        raise OptionError(f"complex_dim: expected an int of at least 1; came {complex_dim!r}")
    return {
        "encodings": sorted(map(str, chosen)),
        "fields": sorted({field for encoding in chosen for field in encoding.fields}),
        "complex": complex_dim,
        "tuples": None if tuples is None else [type(tuples).__name__, vars(tuples)],
        "directed": task.directed,
        "dtype": str(torch.get_default_dtype()).removeprefix("torch."),
    }


def _computed(
    base: Sequence[Data], options: dict[str, Any], processes: int, progress: Progress | None, folder: Path
) -> Iterator[PackedGraphs]:
    done = 0
    for result in in_parts("tuplet.datasets.preparation:work", options, _parts(base), processes, folder):
        part = PackedGraphs.from_arrays(result)
        done += len(part)
        yield part
        if progress is not None:
            progress(done, len(base))


def _parts(base: Sequence[Data]) -> Iterator[Arrays]:
    """Graphs, bare, in parts of bounded size that do not depend on the number of processes."""
    part: list[Data] = []
    nodes = 0
    for position in range(len(base)):
        data = base[position]
        nodes += data.num_nodes or 0
        if part and (len(part) == GRAPHS or nodes > NODES):
            yield PackedGraphs.from_graphs(part).to_arrays()
            part, nodes = [], data.num_nodes or 0
        part.append(_bare(data))
    yield PackedGraphs.from_graphs(part).to_arrays()


def _bare(data: Data) -> Data:
    kept = {name: data[name] for name in data.keys() if name.startswith("simplex_index_")}  # noqa: SIM118
    return Data(edge_index=data.edge_index, num_nodes=data.num_nodes, **kept)


def work(options: Mapping[str, Any], part: Arrays) -> Arrays:
    """What is asked for, of one part: packed graphs in, packed graphs with the new attributes out."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the same bits here and in a worker
    try:
        graphs = [_bare(data) for data in PackedGraphs.from_arrays(part)]
        known = set(graphs[0].keys())
        if options["complex"] and "simplex_index_1" not in known:
            graphs = [CliqueComplex(options["complex"])(data) for data in graphs]
        if options["encodings"]:
            dtype = getattr(torch, options["dtype"])
            graphs = Precompute(options["encodings"], directed=options["directed"], dtype=dtype).many(graphs)
        if options["tuples"]:
            name, arguments = options["tuples"]
            graphs = [_SAMPLES[name](**arguments)(data) for data in graphs]
    finally:
        torch.set_num_threads(threads)
    made = [name for name in graphs[0].keys() if name not in known]  # noqa: SIM118
    return PackedGraphs.from_graphs(graphs, only=made).to_arrays()


def _key(base: Sequence[Data], options: dict[str, Any]) -> str:
    """A name for the content of the graphs, the options and the version."""
    from tuplet import __version__

    digest = hashlib.blake2b(digest_size=16)
    asked = {name: value for name, value in options.items() if name != "encodings"}  # their fields say what is stored
    digest.update(json.dumps([_VERSION, __version__, torch.__version__, asked], sort_keys=True).encode())
    if isinstance(base, PackedGraphs):
        fields = base.only(name for name in base.fields if name == "edge_index" or name.startswith("simplex_index_"))
        for name, array in fields.to_arrays().items():
            digest.update(f"{name} {array.dtype} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data if array.dtype.kind != "U" else str(array).encode())
    else:
        for position in range(len(base)):
            for name, value in sorted(_bare(base[position]).to_dict().items()):
                array = np.ascontiguousarray(value.numpy() if isinstance(value, torch.Tensor) else value)
                digest.update(f"{name} {array.dtype} {array.shape}".encode())
                digest.update(array.data)
    return digest.hexdigest()


def worth_processes(asked: int | None, graphs: int) -> int:
    """How many processes to work with: as asked, else one for each core if there are many graphs."""
    if asked is not None:
        if isinstance(asked, bool) or not isinstance(asked, int) or asked < 1:
            raise OptionError(f"processes: expected an int of at least 1; came {asked!r}")
        return asked
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores if graphs >= MANY else 1
