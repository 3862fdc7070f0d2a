"""Graphs to the packed local form, for data sets whose publisher's files only other libraries read."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from torch_geometric.data import Data

from tuplet.datasets.task import PARTS
from tuplet.errors import InputError


def pack(path: str | Path, parts: Mapping[str, Sequence[Data]]) -> Path:
    """Write graphs to a file in the packed form (see ``tuplet.datasets.local``), complete or not at all.

    >>> parts = {part: torch_geometric.datasets.ZINC(root, subset=True, split=part) for part in ("train", "val", "test")}
    >>> pack("data/zinc12k/zinc12k.npz", parts)
    >>> load("zinc", data="data")

    Args:
        path: of the .npz file; its folder is made.
        parts: graphs of "train", "val" and "test": undirected, without self loops, with integer ``x`` and ``edge_attr``, and ``y``.
    """
    path = Path(path)
    sizes, edges, counts, x, edge_attr, y, split = [], [], [], [], [], [], []
    for part, graphs in parts.items():
        if part not in PARTS:
            raise InputError("parts", f"the parts {', '.join(PARTS)}", repr(part))
        for number, data in enumerate(graphs):
            where = f"{part}[{number}]"
            order, pairs = _one_way(data, where)
            sizes.append(data.num_nodes)
            edges.append(pairs)
            counts.append(len(pairs))
            split.append(PARTS.index(part))
            x.append(None if data.x is None else data.x.numpy())
            edge_attr.append(None if data.edge_attr is None else data.edge_attr.numpy()[order])
            y.append(None if data.y is None else data.y.numpy().reshape(1, -1))
    if not sizes:
        raise InputError("parts", "at least one graph", "none")
    arrays = {
        "num_nodes": np.array(sizes, dtype=np.int64),
        "edge_ptr": np.concatenate([[0], np.cumsum(counts)]),
        "edges": _smallest(np.concatenate(edges)),
        "split": np.array(split, dtype=np.uint8),
    }
    for name, values in (("x", x), ("edge_attr", edge_attr), ("y", y)):
        there = [value for value in values if value is not None]
        if there and len(there) < len(values):
            raise InputError(name, "in every graph or in none", f"in {len(there)} of {len(values)}")
        if there:
            joined = np.concatenate(there)
            arrays[name] = _smallest(joined) if joined.dtype.kind in "iu" else joined
    _write(path, arrays)
    return path


def _one_way(data: Data, where: str) -> tuple[np.ndarray, np.ndarray]:
    """Which directed edges to keep, and (M, 2) of them: u < v, sorted."""
    if data.edge_index is None or not data.is_undirected() or data.has_self_loops():
        raise InputError(where, "an undirected graph without self loops", "another")
    source, target = data.edge_index.numpy()
    kept = np.flatnonzero(source < target)
    order = kept[np.lexsort((target[kept], source[kept]))]
    return order, np.stack([source[order], target[order]], axis=1)


def _smallest(values: np.ndarray) -> np.ndarray:
    return values.astype(np.min_scalar_type(int(values.max(initial=0)))) if values.min(initial=0) >= 0 else values


def _write(path: Path, arrays: dict[str, np.ndarray]) -> None:
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True) if temporary else None
        raise InputError(str(path), "a path that can be written", f"{error.strerror or error}") from error
