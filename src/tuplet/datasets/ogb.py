"""ogbg-molhiv and the two Peptides data sets: molecules with OGB's features.

Hu et al., "Open Graph Benchmark" (NeurIPS 2020); Dwivedi et al., "Long Range Graph Benchmark" (NeurIPS 2022).
"""

from __future__ import annotations

import csv
import gzip
import io
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tuplet.datasets.fetch import Remote
from tuplet.datasets.local import packed_graphs, positions, read_arrays
from tuplet.datasets.packed import Field, PackedGraphs
from tuplet.datasets.table import read_molecules
from tuplet.datasets.task import PARTS, Kind, Loss, Metric, Task
from tuplet.datasets.where import Where
from tuplet.errors import InputError
from tuplet.graphs.smiles import ATOM_TYPES, BOND_TYPES

MOLHIV = Remote("https://snap.stanford.edu/ogb/data/graphproppred/csv_mol_download/hiv.zip")
FUNC = Remote(
    "https://www.dropbox.com/s/ol2v01usvaxbsr8/peptide_multi_class_dataset.csv.gz?dl=1",
    checksum="md5:701eb743e899f4d793f0e13c8fa5a1b4",
)
STRUCT = Remote(
    "https://www.dropbox.com/s/464u3303eu2u4zp/peptide_structure_dataset.csv.gz?dl=1",
    checksum="md5:9786061a34298a0684150f2e4ff13f47",
)
PROPERTIES = (
    "Inertia_mass_a", "Inertia_mass_b", "Inertia_mass_c", "Inertia_valence_a", "Inertia_valence_b", "Inertia_valence_c",
    "length_a", "length_b", "length_c", "Spherocity", "Plane_best_fit",
)  # fmt: skip
"""Targets of Peptides-struct."""
FUNCTIONS = (
    "antifungal", "cell_cell_communication", "anticancer", "drug_delivery_vehicle", "antimicrobial", "antiviral",
    "antihypertensive", "antibacterial", "antiparasitic", "toxic",
)  # fmt: skip
"""Targets of Peptides-func."""
_GRAPHS = ("num_nodes", "edge_ptr", "edges", "y")
_WHY = (
    "Its publisher gives the split as a pickle only, which may run any code when it is read, so tuplet does not read it: if you "
    "trust it, read the data with torch_geometric.datasets.LRGBDataset and write the packed form with tuplet.datasets.pack. The split "
    "(arrays train, val, test) is the same for both Peptides data sets."
)
LARGEST = 1 << 31
"""Most bytes of one unpacked member of an archive."""


def molhiv_task(where: Where) -> Task:
    """41,127 molecules, whether they inhibit HIV; OGB's scaffold split, ROC-AUC."""
    if (found := where.local("ogbg_molhiv/graphs.npz")) is not None:
        graphs, split = _packed(found[0], "split_scaffold.npz", targets=1)
        origin = f"packed, {found[0]}"
    else:
        path = where.fetched("molhiv", MOLHIV, "hiv.zip")
        graphs, split = read_ogb_archive(path)
        origin = f"fetched from {MOLHIV.url}"
    return _molecules("molhiv", graphs, split, "binary", "bce", "rocauc", ("HIV_active",), origin)


def peptides_func_task(where: Where) -> Task:
    """15,535 peptides, ten functions of each; average precision. The data are CC BY-NC 4.0."""
    if (found := where.local("peptides_func/graphs.npz")) is not None:
        graphs, split = _packed(found[0], "split.npz", targets=len(FUNCTIONS))
        origin = f"packed, {found[0]}"
    else:
        (path,) = where.needed("peptides-func", "peptides_func/split.npz", why=_WHY)
        table = where.fetched("peptides-func", FUNC, "peptide_multi_class_dataset.csv.gz")
        smiles, labels = _columns(table, ("labels",))
        graphs = _built(table, smiles, _flags(table, labels[0]), where)
        split, origin = positions(path, read_arrays(path, PARTS), len(graphs)), f"fetched from {FUNC.url}"
    return _molecules("peptides-func", graphs, split, "binary", "bce", "ap", FUNCTIONS, origin)


def peptides_struct_task(where: Where) -> Task:
    """The same peptides, eleven properties of their shape, standardised over the whole data set; MAE. CC BY-NC 4.0."""
    if (found := where.local("peptides_struct/graphs.npz")) is not None:
        graphs, split = _packed(found[0], "split.npz", targets=len(PROPERTIES))
        raw = graphs.fields["y"].values.double()
        origin = f"packed, {found[0]}"
    else:
        names = (
            ("peptides_struct/split.npz",) if where.local("peptides_struct/split.npz") else ("peptides_func/split.npz",)
        )
        (path,) = where.needed("peptides-struct", *names, why=_WHY)
        table = where.fetched("peptides-struct", STRUCT, "peptide_structure_dataset.csv.gz")
        smiles, columns = _columns(table, PROPERTIES)
        raw = torch.tensor([[float(value) for value in column] for column in columns], dtype=torch.float64).t()
        graphs = _built(table, smiles, raw.numpy(), where)
        split, origin = positions(path, read_arrays(path, PARTS), len(graphs)), f"fetched from {STRUCT.url}"
    mean, std = raw.mean(0), raw.std(0)
    graphs = graphs.with_fields(y=Field(((raw - mean) / std).float(), None, torch.float32))
    task = _molecules("peptides-struct", graphs, split, "regression", "l1", "mae", PROPERTIES, origin)
    return replace(task, shift=tuple(mean.tolist()), scale=tuple(std.tolist()))


def read_ogb_archive(path: Path) -> tuple[PackedGraphs, dict[str, Tensor]]:
    """Graphs and scaffold split of a zip file as OGB publishes it: gzipped CSV files without headers, one direction an edge."""
    names = ("raw/num-node-list", "raw/num-edge-list", "raw/edge", "raw/node-feat", "raw/edge-feat", "raw/graph-label")
    try:
        with zipfile.ZipFile(path) as archive:
            nodes, counts, edges, x, edge_attr, y = (_member(archive, f"{name}.csv.gz") for name in names)
            parts = {
                part: _member(archive, f"split/scaffold/{part}.csv.gz")[:, 0] for part in ("train", "valid", "test")
            }
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(str(path), "an archive as OGB publishes it", str(error)) from error
    lower, upper = edges.min(1), edges.max(1)
    owner = np.repeat(np.arange(len(nodes)), counts[:, 0])
    order = np.lexsort((upper, lower, owner))
    arrays = {
        "num_nodes": nodes[:, 0], "edge_ptr": np.concatenate([[0], np.cumsum(counts[:, 0])]),
        "edges": np.stack([lower, upper], axis=1)[order], "x": x.astype(np.uint8), "edge_attr": edge_attr[order].astype(np.uint8),
    }  # fmt: skip
    graphs = packed_graphs(path, arrays, y.astype(np.float32), torch.float32)
    _check_types(path, graphs)
    return graphs, positions(
        path, {"val" if part == "valid" else part: held for part, held in parts.items()}, len(graphs)
    )


def _member(archive: zipfile.ZipFile, ending: str) -> np.ndarray:
    """(rows, columns) integers of a gzipped CSV member."""
    (name,) = [name for name in archive.namelist() if name.endswith(ending)] or [ending]
    with archive.open(name) as packed, gzip.open(packed) as file:
        content = file.read(LARGEST)
    return np.loadtxt(io.BytesIO(content), delimiter=",", dtype=np.int64, ndmin=2)


def _packed(path: Path, splits: str, targets: int) -> tuple[PackedGraphs, dict[str, Tensor]]:
    """Graphs of a packed file, with the split of the file beside it, or its own if there is none beside it."""
    arrays = read_arrays(path, _GRAPHS)
    y = arrays["y"].reshape(len(arrays["y"]), -1)
    if y.shape[1] != targets:
        raise InputError(str(path), f"{targets} target(s) in 'y'", f"{y.shape[1]}")
    packed = packed_graphs(path, arrays, y.astype(np.float32), torch.float32)
    _check_types(path, packed)
    beside = path.with_name(splits)
    if beside.is_file():
        return packed, positions(beside, read_arrays(beside, ()), len(packed))
    return packed, positions(path, arrays, len(packed))


def _check_types(path: Path, graphs: PackedGraphs) -> None:
    for field, types in (("x", ATOM_TYPES), ("edge_attr", BOND_TYPES)):
        values = graphs.fields[field].values if field in graphs.fields else torch.zeros(1, 0)
        if values.dim() != 2 or values.shape[1] != len(types) or bool((values.amax(0) >= torch.tensor(types)).any()):
            raise InputError(
                str(path), f"OGB's {len(types)} columns below {types} in {field!r}", f"{tuple(values.shape)}"
            )


def _columns(path: Path, names: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """The SMILES and other columns of a gzipped CSV file."""
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        return [row["smiles"] for row in rows], [[row[name] for row in rows] for name in names]
    except (OSError, EOFError, KeyError, UnicodeDecodeError, csv.Error, zlib.error) as error:
        raise InputError(str(path), f"a table with the columns smiles, {', '.join(names)}", repr(error)) from error


def _flags(path: Path, cells: list[str]) -> np.ndarray:
    """(G, 10) from cells such as "[0, 1, 0, ..]" or "0101..", read as digits and never evaluated."""
    digits = ["".join(character for character in cell if character in "01") for cell in cells]
    for number, found in enumerate(digits):
        if len(found) != len(FUNCTIONS):
            raise InputError(str(path), f"{len(FUNCTIONS)} labels 0 or 1 in every row", f"{cells[number]!r}")
    return np.array([[int(digit) for digit in found] for found in digits], dtype=np.float32)


def _built(path: Path, smiles: list[str], y: np.ndarray, where: Where) -> PackedGraphs:
    read = read_molecules(smiles, processes=where.processes, progress=where.progress)
    if read.failed or read.graphs is None:
        item, reason = read.failed[0]
        raise InputError(
            str(path),
            "a molecule in every row",
            f"{len(read.failed)} others, the first {smiles[item][:40]!r}: {reason}",
        )
    return read.graphs.with_fields(y=Field(torch.from_numpy(y).float(), None, torch.float32))


def _molecules(
    name: str, graphs: PackedGraphs, split: dict[str, Tensor], kind: Kind, loss: Loss, metric: Metric, targets: tuple[str, ...],
    origin: str,
) -> Task:  # fmt: skip
    return Task(
        name=name, graphs=graphs, splits=(split,), level="graph", kind=kind, outputs=len(targets), loss=loss, metric=metric,
        node_types=ATOM_TYPES, edge_types=BOND_TYPES, targets=targets, origin=origin,
    )  # fmt: skip
