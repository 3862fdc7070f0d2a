"""Every data set there is by name, as rows (what ``tuplet list datasets`` prints), and what loads it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tuplet.datasets.alchemy import alchemy_task
from tuplet.datasets.ogb import molhiv_task, peptides_func_task, peptides_struct_task
from tuplet.datasets.synthetic import cfi_task, counting_task, csl_task, srg_task
from tuplet.datasets.task import Task
from tuplet.datasets.webkb import webkb_task
from tuplet.datasets.zinc import edge_detection_task, zinc_full_task, zinc_task


@dataclass(frozen=True)
class Row:
    """One row.

    Args:
        name: that ``load`` takes.
        size: graphs and their mean size.
        task: level, kind and number of targets.
        metric: that is reported.
        split: how it is split.
        licence: of the data.
        source: where it comes from.
        loader: what makes the task; its keyword options are those of ``load``.
        options: of the loader, in words.
    """

    name: str
    size: str
    task: str
    metric: str
    split: str
    licence: str
    source: str
    loader: Callable[..., Task]
    options: str = ""


_WEB = ("none stated", "Geom-GCN (Pei et al. 2020)")
_PEPTIDES = (
    "15,535 graphs, 151 nodes",
    "10,873/2,331/2,331",
    "CC BY-NC 4.0",
    "packed, or LRGB's tables and a packed split",
)

CATALOGUE: tuple[Row, ...] = (
    Row("csl", "150 graphs, 41 nodes", "graph, 10 classes", "accuracy", "5 folds", "MIT", "generated, or packed", csl_task,
        "source=generated|published, seed=0"),
    Row("cfi", "90 graphs, 6 to 40 nodes", "graph, 6 classes", "accuracy", "5 folds", "MIT", "generated", cfi_task,
        "bases, copies=15, seed=0, folds=5"),
    Row("srg", "90 graphs, 16 and 28 nodes", "graph, 6 classes", "accuracy", "5 folds", "MIT", "generated", srg_task,
        "copies=15, seed=0, folds=5"),
    Row("counting", "5,000 graphs, 18.8 nodes", "graph, 5 numbers", "mae", "1,500/1,000/2,500", "MIT", "packed, else generated",
        counting_task, "target=all|triangle|.., source=published|generated, seed=0"),
    Row("edge-detection", "12,000 graphs, 23.2 nodes", "edge, 2 classes", "accuracy", "10,000/1,000/1,000", "as zinc", "zinc, packed",
        edge_detection_task, "seed=0"),
    Row("zinc", "12,000 graphs, 23.2 nodes", "graph, 1 number", "mae", "10,000/1,000/1,000", "MIT; ZINC's terms", "packed", zinc_task),
    Row("zinc-full", "249,456 graphs, 23.2 nodes", "graph, 1 number", "mae", "220,011/24,445/5,000", "MIT; ZINC's terms",
        "packed graphs or SMILES", zinc_full_task),
    Row("molhiv", "41,127 graphs, 25.5 nodes", "graph, 1 yes/no", "rocauc", "32,901/4,113/4,113", "MIT", "packed, or OGB", molhiv_task),
    Row("peptides-func", _PEPTIDES[0], "graph, 10 yes/no", "ap", *_PEPTIDES[1:], peptides_func_task),
    Row("peptides-struct", _PEPTIDES[0], "graph, 11 numbers", "mae", *_PEPTIDES[1:], peptides_struct_task),
    Row("alchemy", "202,579 graphs, 10.0 nodes", "graph, 12 numbers", "mae", "10,000/1,000/1,000", "MIT", "packed, or TUDataset",
        alchemy_task, "protocol=official|paper"),
    Row("webkb-cornell", "1 graph, 183 nodes, directed", "node, 5 classes", "accuracy", "10 splits", _WEB[0], f"packed, or {_WEB[1]}",
        partial(webkb_task, university="cornell")),
    Row("webkb-texas", "1 graph, 183 nodes, directed", "node, 5 classes", "accuracy", "10 splits", _WEB[0], f"packed, or {_WEB[1]}",
        partial(webkb_task, university="texas")),
    Row("webkb-wisconsin", "1 graph, 251 nodes, directed", "node, 5 classes", "accuracy", "10 splits", _WEB[0],
        f"packed, or {_WEB[1]}", partial(webkb_task, university="wisconsin")),
)  # fmt: skip

ALIASES = {"sr": "srg", "zinc12k": "zinc", "ogbg-molhiv": "molhiv"}


def row_of(text: str) -> Row | None:
    """The row that a name means, in small or large letters, or by another name of the data set; None if there is none."""
    name = text.strip().lower()
    return next((row for row in CATALOGUE if row.name == ALIASES.get(name, name)), None)
