"""WebKB: web pages of three universities, linked; which of five kinds a page is. Directed, ten splits of 48 / 32 / 20 %.

Pei et al., "Geom-GCN" (ICLR 2020). Features are 0/1 words of the page. Links of a page to itself are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch_geometric.data import Data

from tuplet.datasets.fetch import Remote
from tuplet.datasets.local import read_arrays
from tuplet.datasets.task import PARTS, Task
from tuplet.datasets.where import Where
from tuplet.errors import InputError

URL = "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master"
CLASSES = 5
SPLITS = 10


def webkb_task(where: Where, *, university: str) -> Task:
    """The pages of "cornell", "texas" or "wisconsin"."""
    name = f"webkb-{university}"
    if (found := where.local(f"webkb/{university}.npz")) is not None:
        arrays = read_arrays(
            found[0], ("x", "num_features", "y", "edges_directed", *(f"{part}_mask" for part in PARTS))
        )
        x = np.unpackbits(arrays["x"], axis=1)[:, : int(arrays["num_features"])]
        return _task(name, found[0], x, arrays["y"], arrays["edges_directed"], arrays, f"packed, {found[0]}")
    new = f"{URL}/new_data/{university}"
    pages = where.fetched(name, Remote(f"{new}/out1_node_feature_label.txt"), "out1_node_feature_label.txt")
    links = where.fetched(name, Remote(f"{new}/out1_graph_edges.txt"), "out1_graph_edges.txt")
    masks: dict[str, list[np.ndarray]] = {f"{part}_mask": [] for part in PARTS}
    for number in range(SPLITS):
        file = f"{university}_split_0.6_0.2_{number}.npz"  # the name says 60 %, the file holds 48 %
        arrays = read_arrays(where.fetched(name, Remote(f"{URL}/splits/{file}"), file), masks)
        for mask, rows in masks.items():
            rows.append(arrays[mask])
    x, y, edges = read_pages(pages, links)
    stacked = {mask: np.stack(rows).astype(bool) for mask, rows in masks.items()}
    return _task(name, pages, x, y, edges, stacked, f"fetched from {URL}")


def read_pages(pages: Path, links: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features (n, c), classes (n,) and directed links (E, 2) of Geom-GCN's two text files."""
    try:
        rows = [line.split("\t") for line in pages.read_text().splitlines()[1:] if line]
        order = np.argsort([int(number) for number, _, _ in rows])
        x = np.array([np.array(words.split(","), dtype=np.float64) for _, words, _ in rows])[order]
        y = np.array([int(label) for _, _, label in rows])[order]
        edges = np.loadtxt(links, dtype=np.int64, skiprows=1, ndmin=2)
    except (OSError, ValueError, UnicodeDecodeError) as error:
        raise InputError(str(pages.parent), "pages and links as Geom-GCN publishes them", str(error)) from error
    return x, y, edges


def _task(
    name: str, path: Path, x: np.ndarray, y: np.ndarray, edges: np.ndarray, masks: Mapping[str, np.ndarray], origin: str
) -> Task:
    n = len(y)
    if x.ndim != 2 or len(x) != n or edges.ndim != 2 or edges.shape[1] != 2 or not 0 <= edges.min() <= edges.max() < n:
        raise InputError(str(path), f"features of {n} pages and links among them", f"x {x.shape}, edges {edges.shape}")
    if not 0 <= y.min() <= y.max() < CLASSES:
        raise InputError(str(path), f"classes 0..{CLASSES - 1}", f"{y.min()}..{y.max()}")
    for part in PARTS:
        if masks[f"{part}_mask"].shape != (SPLITS, n) or masks[f"{part}_mask"].dtype != bool:
            raise InputError(
                str(path), f"truth values ({SPLITS}, {n}) in {part}_mask", f"{masks[f'{part}_mask'].shape}"
            )
    split_masks = {f"{part}_mask": torch.from_numpy(masks[f"{part}_mask"].T.copy()) for part in PARTS}
    data = Data(
        x=torch.from_numpy(x.astype(np.float32)), edge_index=torch.from_numpy(edges.astype(np.int64).T.copy()),
        y=torch.from_numpy(y.astype(np.int64)), num_nodes=n, **split_masks,
    )  # fmt: skip
    splits = tuple(
        {part: split_masks[f"{part}_mask"][:, number].nonzero()[:, 0] for part in PARTS} for number in range(SPLITS)
    )
    return Task(
        name=name, graphs=[data], splits=splits, level="node", kind="classification", outputs=CLASSES,
        loss="cross_entropy", metric="accuracy", node_dim=x.shape[1], directed=True, origin=origin,
    )  # fmt: skip
