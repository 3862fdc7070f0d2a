"""The packed local form of data sets: one folder a data set, plain arrays in .npz files, no pickle.

``np.load(allow_pickle=False)`` reads a file of graphs with these arrays:

| array | shape | meaning |
|---|---|---|
| ``num_nodes`` | (G,) | nodes of each graph |
| ``edge_ptr`` | (G+1,) | graph g owns the rows ``edge_ptr[g]:edge_ptr[g+1]`` of ``edges`` |
| ``edges`` | (M, 2) | undirected, u < v, one row an edge, numbered within the graph |
| ``x`` (or ``x_t``, transposed) | (N,) or (N, c) | node features, graph after graph |
| ``edge_attr`` (or ``edge_attr_t``) | (M,) or (M, c) | edge features, rows as in ``edges`` |
| ``y`` | (G,) or (G, t) | targets |

Splits are arrays ``train``, ``val``, ``test`` of graph numbers, in the file named below or in that of the graphs, or one array ``split``
(G,) of 0, 1, 2. ``tuplet.datasets.pack`` writes this form. Any unsigned or signed integer dtype will do; small ones make small files.

| name | folder and files |
|---|---|
| zinc | ``zinc12k/zinc12k.npz`` (graphs, ``split``) |
| zinc-full | ``zinc_full/zinc_full.npz`` (graphs, ``split``), or ``{train,valid,test}_smiles.txt.gz``, ``labels.npz`` (``y_train``, ..) |
| molhiv | ``ogbg_molhiv/graphs.npz``, ``split_scaffold.npz`` |
| peptides-func | ``peptides_func/graphs.npz``, ``split.npz`` |
| peptides-struct | ``peptides_struct/graphs.npz`` (``y`` (G, 11), as published), ``split.npz`` |
| counting | ``substructure_counting/graphs.npz`` (graphs, splits) |
| csl | ``csl/csl.npz`` (graphs; ``train`` (5, 90), ``val``, ``test`` (5, 30)) |
| alchemy | ``alchemy/graphs.npz`` (all 202,579 graphs, ``y`` (G, 12)), ``split_12k.npz`` |
| webkb-* | ``webkb/{cornell,texas,wisconsin}.npz``: ``x`` (bits), ``num_features``, ``y``, ``edges_directed``, ``train_mask``, .. (10, n) |
"""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tuplet.datasets.packed import Field, PackedGraphs
from tuplet.datasets.task import PARTS
from tuplet.errors import InputError

VARIABLE = "TUPLET_DATA"
"""Environment variable that names the folder of packed data sets."""
Arrays = Mapping[str, np.ndarray]


def folder_of(data: str | Path | None) -> Path | None:
    """The folder of packed data sets: the one given, else that of the environment, else None."""
    named = data if data is not None else os.environ.get(VARIABLE) or None
    if named is None:
        return None
    folder = Path(named).expanduser()
    if not folder.is_dir():
        raise InputError("data" if data is not None else VARIABLE, "a folder of packed data sets", f"{folder}")
    return folder


def find(data: str | Path | None, *names: str) -> list[Path] | None:
    """Paths of the files ``names`` below the folder, or None if the folder lacks one of them."""
    folder = folder_of(data)
    if folder is None:
        return None
    paths = [folder / name for name in names]
    return paths if all(path.is_file() for path in paths) else None


def read_arrays(path: Path, needed: Iterable[str]) -> dict[str, np.ndarray]:
    """All arrays of an .npz file, refusing pickled ones, broken files, and files that lack a needed array."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, KeyError, AttributeError, zipfile.BadZipFile, zlib.error) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(str(path), "a complete .npz file of plain arrays", reason) from error
    for name in needed:
        if name not in arrays:
            raise InputError(str(path), f"the array {name!r}", f"{', '.join(arrays) or 'none'}")
    return arrays


def packed_graphs(path: Path, arrays: Arrays, y: np.ndarray | None, y_dtype: torch.dtype) -> PackedGraphs:
    """Checked graphs of the packed form: both directions of every edge, sorted by source and target.

    Args:
        path: for messages.
        arrays: of the file.
        y: (G,) or (G, t) targets, or None.
        y_dtype: of the targets.
    """
    sizes = _integers(path, arrays, "num_nodes").astype(np.int64)
    ptr = _integers(path, arrays, "edge_ptr").astype(np.int64)
    edges = _integers(path, arrays, "edges")
    if edges.ndim != 2 or edges.shape[1] != 2:
        raise InputError(str(path), "edges of shape (M, 2)", f"{edges.shape}")
    if len(ptr) != len(sizes) + 1 or ptr[0] != 0 or ptr[-1] != len(edges) or (np.diff(ptr) < 0).any():
        raise InputError(str(path), f"edge_ptr rising from 0 to {len(edges)} in {len(sizes) + 1} steps", "another")
    if (sizes < 1).any():
        raise InputError(str(path), "at least one node in every graph", f"num_nodes {int(sizes.min())}")
    owner = np.repeat(np.arange(len(sizes)), np.diff(ptr))
    wrong = (edges[:, 0] >= edges[:, 1]) | (edges[:, 1] >= sizes[owner]) | (edges[:, 0] < 0)
    if wrong.any():
        row = int(wrong.argmax())
        graph = int(owner[row])
        raise InputError(
            str(path), f"edges u < v below n = {sizes[graph]} in graph {graph}", f"{tuple(edges[row].tolist())}"
        )
    order, both = _both_directions(edges, owner, sizes)
    small = torch.uint8 if sizes.max() <= 256 else torch.int32
    twice = torch.from_numpy(ptr * 2)
    fields = {"edge_index": Field(torch.from_numpy(both).to(small), twice, columns=True)}
    nodes = int(sizes.sum())
    if (x := _features(path, arrays, "x", nodes)) is not None:
        starts = torch.from_numpy(np.concatenate([[0], np.cumsum(sizes)]))
        fields["x"] = Field(x[:, None] if x.dim() == 1 else x, starts)
    if (edge_attr := _features(path, arrays, "edge_attr", len(edges))) is not None:
        fields["edge_attr"] = Field(edge_attr[torch.from_numpy(order % max(len(edges), 1))], twice)
    if y is not None:
        if len(y) != len(sizes) or y.dtype.kind not in "iufb":
            raise InputError(
                str(path), f"a number for each of the {len(sizes)} graphs as target", f"{y.dtype} {y.shape}"
            )
        if y.dtype.kind == "f" and np.isinf(y).any():
            raise InputError(str(path), "finite targets, or NaN where one is missing", "infinity")
        fields["y"] = Field(torch.from_numpy(np.ascontiguousarray(y)), None, y_dtype)
    return PackedGraphs(torch.from_numpy(sizes), fields)


def _both_directions(edges: np.ndarray, owner: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Order and (2M, 2) rows of all edges and their reverses, sorted by graph, source, target."""
    both = np.concatenate([edges, edges[:, ::-1]])
    first = np.concatenate([[0], np.cumsum(sizes)])[:-1][np.concatenate([owner, owner])]
    code = (first + both[:, 0]) * int(sizes.max(initial=1)) + both[:, 1]
    order = np.argsort(code, kind="stable")
    return order, both[order].astype(np.int32)


def _integers(path: Path, arrays: Arrays, name: str) -> np.ndarray:
    array = arrays[name]
    if array.dtype.kind not in "iu":
        raise InputError(str(path), f"integers in {name!r}", str(array.dtype))
    return array.astype(np.int64) if name == "edges" and array.dtype.kind == "u" else array


def _features(path: Path, arrays: Arrays, name: str, rows: int) -> Tensor | None:
    if f"{name}_t" in arrays:
        values = np.ascontiguousarray(arrays[f"{name}_t"].T)
    elif name in arrays:
        values = arrays[name]
    else:
        return None
    if len(values) != rows or values.dtype.kind not in "iu":
        raise InputError(str(path), f"{rows} rows of integers in {name!r}", f"{values.dtype} {values.shape}")
    return torch.from_numpy(values if values.dtype.itemsize == 1 else values.astype(np.int64))


def positions(path: Path, arrays: Arrays, count: int) -> dict[str, Tensor]:
    """One split, from ``train`` / ``val`` / ``test``, or from ``split`` (G,) of 0, 1, 2."""
    if "split" in arrays:
        number = arrays["split"]
        if number.shape != (count,) or number.dtype.kind not in "iu" or not np.isin(number, (0, 1, 2)).all():
            raise InputError(str(path), f"split ({count},) of 0, 1, 2", f"{number.dtype} {number.shape}")
        return {part: torch.from_numpy(np.flatnonzero(number == place)) for place, part in enumerate(PARTS)}
    chosen = {}
    for part in PARTS:
        if part not in arrays:
            raise InputError(str(path), f"the array {part!r}", f"{', '.join(arrays) or 'none'}")
        chosen[part] = checked_positions(path, part, arrays[part], count)
    return chosen


def checked_positions(path: Path, part: str, array: np.ndarray, count: int) -> Tensor:
    if array.ndim != 1 or array.dtype.kind not in "iu" or (len(array) and int(array.max()) >= count):
        raise InputError(str(path), f"graph numbers below {count} in {part!r}", f"{array.dtype} {array.shape}")
    return torch.from_numpy(array.astype(np.int64))
