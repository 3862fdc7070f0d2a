"""Alchemy: twelve quantum-mechanical properties of organic molecules, by two protocols.

Chen et al., "Alchemy" (2019), as the TUDataset collection (Morris et al. 2020) publishes it under the name alchemy_full: 202,579
molecules of 6 kinds of atoms and 4 kinds of bonds. Targets are standardised with the whole data set in both protocols.

``protocol="official"`` takes the index files of Morris et al., "Weisfeiler and Leman go sparse" (NeurIPS 2020), that the literature
uses: 10,000 / 1,000 / 1,000, drawn with repeats (45 of validation and 59 of test are also among the training molecules).
``protocol="paper"`` takes the graphs 0..9999 / 10000..10999 / 11000..11999, as the authors of our paper do.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tuplet.datasets.fetch import Remote
from tuplet.datasets.local import checked_positions, packed_graphs, positions, read_arrays
from tuplet.datasets.packed import Field, PackedGraphs
from tuplet.datasets.task import PARTS, Task
from tuplet.datasets.where import Where
from tuplet.errors import InputError, OptionError

ARCHIVE = Remote("https://www.chrsmrrs.com/graphkerneldatasets/alchemy_full.zip")
INDEX = (
    "https://raw.githubusercontent.com/chrsmrrs/sparsewl/91b691d26ca9eee957d0b518d13d88e74a64b0e5/"
    "neural_higher_order/Alchemy/{}_al_10.index"
)
ATOMS, BONDS, TARGETS = 6, 4, 12
LARGEST = 1 << 31
"""Most bytes of one unpacked member of the archive."""


def alchemy_task(where: Where, *, protocol: str = "official") -> Task:
    """Alchemy with 10,000 / 1,000 / 1,000 molecules.

    Args:
        where: to look.
        protocol: "official" or "paper", see above.
    """
    if protocol not in ("official", "paper"):
        raise OptionError(f"protocol: expected 'official' or 'paper'; came {protocol!r}")
    if (found := where.local("alchemy/graphs.npz")) is not None:
        arrays = read_arrays(found[0], ("num_nodes", "edge_ptr", "edges", "x", "edge_attr", "y"))
        graphs, origin = packed_graphs(found[0], arrays, arrays["y"], torch.float32), f"packed, {found[0]}"
        _check(found[0], graphs)
    else:
        path = where.fetched("alchemy", ARCHIVE, "alchemy_full.zip")
        graphs, origin = read_tu_archive(path, "alchemy_full"), f"fetched from {ARCHIVE.url}"
        _check(path, graphs)
    split = _official(where, len(graphs)) if protocol == "official" else _first(graphs)
    raw = graphs.fields["y"].values.double()
    mean, std = raw.mean(0), raw.std(0)
    used, places = torch.unique(torch.cat(list(split.values())), return_inverse=True)
    sizes = [len(positions) for positions in split.values()]
    chosen = graphs.with_fields(y=Field(((raw - mean) / std).float(), None, torch.float32)).take(used)
    return Task(
        name="alchemy", graphs=chosen, splits=(dict(zip(PARTS, places.split(sizes), strict=True)),), level="graph",
        kind="regression", outputs=TARGETS, loss="l1", metric="mae", node_types=ATOMS, edge_types=BONDS,
        shift=tuple(mean.tolist()), scale=tuple(std.tolist()), origin=f"{origin}, {protocol} protocol",
    )  # fmt: skip


def _official(where: Where, count: int) -> dict[str, Tensor]:
    if (found := where.local("alchemy/split_12k.npz")) is not None:
        return positions(found[0], read_arrays(found[0], PARTS), count)
    split = {}
    for part in PARTS:
        path = where.fetched("alchemy", Remote(INDEX.format(part)), f"{part}_al_10.index")
        try:
            numbers = np.array([int(word) for word in path.read_text().replace(",", " ").split()], dtype=np.int64)
        except (OSError, ValueError) as error:
            raise InputError(str(path), "graph numbers parted by commas", str(error)) from error
        split[part] = checked_positions(path, part, numbers, count)
    return split


def _first(graphs: PackedGraphs) -> dict[str, Tensor]:
    if len(graphs) < 12_000:
        raise InputError("alchemy", "at least 12,000 graphs", f"{len(graphs)}")
    return {"train": torch.arange(10_000), "val": torch.arange(10_000, 11_000), "test": torch.arange(11_000, 12_000)}


def read_tu_archive(path: Path, name: str) -> PackedGraphs:
    """Graphs of a zip file as TUDataset publishes it: node and edge labels as categories, graph attributes as targets."""
    try:
        with zipfile.ZipFile(path) as archive:
            edges = _member(archive, f"{name}_A.txt", np.int64) - 1
            owner = _member(archive, f"{name}_graph_indicator.txt", np.int64)[:, 0] - 1
            x = _member(archive, f"{name}_node_labels.txt", np.int64)
            edge_attr = _member(archive, f"{name}_edge_labels.txt", np.int64)[:, 0]
            y = _member(archive, f"{name}_graph_attributes.txt", np.float64)
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(str(path), "an archive as TUDataset publishes it", str(error)) from error
    sizes = np.bincount(owner, minlength=len(y))
    rows = (
        len(x) == len(owner) and len(edge_attr) == len(edges) and len(sizes) == len(y) and (np.diff(owner) >= 0).all()
    )
    if not rows or (len(edges) and not 0 <= edges.min() <= edges.max() < len(owner)):
        raise InputError(str(path), "files that agree on graphs, nodes and edges", "others")
    first = np.concatenate([[0], np.cumsum(sizes)])
    kept = edges[:, 0] < edges[:, 1]
    pairs, attributes = edges[kept], edge_attr[kept]
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    pairs, attributes = pairs[order], attributes[order]
    graph = owner[pairs[:, 0]]
    arrays = {
        "num_nodes": sizes,
        "edge_ptr": np.concatenate([[0], np.cumsum(np.bincount(graph, minlength=len(y)))]),
        "edges": pairs - first[graph][:, None],
        "x": (x - x.min(0)).astype(np.uint8),
        "edge_attr": (attributes - (edge_attr.min() if len(edge_attr) else 0)).astype(np.uint8),
    }
    return packed_graphs(path, arrays, y, torch.float32)


def _member(archive: zipfile.ZipFile, ending: str, dtype: type) -> np.ndarray:
    (name,) = [name for name in archive.namelist() if name.endswith(f"/{ending}") or name == ending] or [ending]
    with archive.open(name) as file:
        content = file.read(LARGEST)
    return np.loadtxt(io.BytesIO(content), delimiter=",", dtype=dtype, ndmin=2)


def _check(path: Path, graphs: PackedGraphs) -> None:
    shapes = {field: graphs.fields[field].values for field in ("x", "edge_attr", "y")}
    if shapes["y"].dim() != 2 or shapes["y"].shape[1] != TARGETS or bool(shapes["y"].isnan().any()):
        raise InputError(str(path), f"{TARGETS} targets of every molecule", f"{tuple(shapes['y'].shape)}")
    for field, count in (("x", ATOMS), ("edge_attr", BONDS)):
        if int(shapes[field].max()) >= count:
            raise InputError(str(path), f"values 0..{count - 1} in {field!r}", f"{int(shapes[field].max())}")
