"""Generated benchmarks as tasks: circular skip links, CFI pairs, strongly regular graphs, substructure counting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from tuplet.datasets.cfi import cfi
from tuplet.datasets.counting import COUNT, SPLIT, TARGETS, count_substructures, random_graphs
from tuplet.datasets.csl import CSL_SKIPS, csl, csl_folds
from tuplet.datasets.local import checked_positions, packed_graphs, positions, read_arrays
from tuplet.datasets.packed import Field, PackedGraphs
from tuplet.datasets.splits import stratified_folds
from tuplet.datasets.strongly_regular import chang, rook, shrikhande, triangular
from tuplet.datasets.task import PARTS, Task
from tuplet.datasets.where import Where
from tuplet.errors import OptionError

CFI_BASES = ("Bw", "C~", "D~{")
"""Triangle, K4 and K5 in graph6: treewidth 2, 3 and 4, so that 1-FWL, 2-FWL and 3-FWL fail in turn."""


def csl_task(where: Where, *, seed: int = 0, source: str = "generated") -> Task:
    """Circular skip links: 150 graphs in 10 classes, 5 folds.

    Args:
        where: for the published graphs.
        seed: of the numberings and folds of the generated ones.
        source: "generated", or "published" for the graphs and folds of the benchmark, from the packed folder.
    """
    _known_source(source, ("generated", "published"))
    classes = tuple(f"skip {skip}" for skip in CSL_SKIPS)
    if source == "generated":
        folds = tuple(
            {part: torch.tensor(getattr(fold, part)) for part in PARTS} for fold in csl_folds(seed)
        )  # fmt: skip
        return _classes("csl", csl(seed), folds, classes, f"generated with seed {seed}")
    (path,) = where.needed("csl", "csl/csl.npz", why="Or use source='generated'.")
    arrays = read_arrays(path, ("num_nodes", "edge_ptr", "edges", "y", *PARTS))
    graphs = packed_graphs(path, arrays, arrays["y"], torch.int64)
    folds = tuple(
        {part: checked_positions(path, part, arrays[part][fold], len(graphs)) for part in PARTS}
        for fold in range(len(arrays["train"]))
    )
    return _classes("csl", graphs, folds, classes, f"published, {path}")


def cfi_task(
    where: Where, *, bases: Sequence[Any] = CFI_BASES, copies: int = 15, seed: int = 0, folds: int = 5
) -> Task:
    """CFI pairs: each base gives an untwisted and a twisted graph, a class each, in renumbered copies.

    Args:
        where: not used; nothing is read.
        bases: graphs, as ``cfi`` takes them.
        copies: of each graph.
        seed: of numberings and folds.
        folds: stratified splits.
    """
    graphs = [graph for base in bases for graph in cfi(base)]
    names = tuple(f"{kind} {base}" for base in map(str, range(len(bases))) for kind in ("untwisted", "twisted"))
    return _copies("cfi", graphs, names, copies, seed, folds)


def srg_task(where: Where, *, copies: int = 15, seed: int = 0, folds: int = 5) -> Task:
    """Strongly regular graphs, a class each, in renumbered copies.

    Rook's 4×4 and Shrikhande share the parameters (16, 6, 2, 2), T(8) and the three Chang graphs (28, 12, 6, 4): a model with the
    power of 2-FWL sees two kinds of graphs where there are six.

    Args:
        where: not used; nothing is read.
        copies, seed, folds: as for ``cfi_task``.
    """
    graphs = [rook(), shrikhande(), triangular(8), chang(1), chang(2), chang(3)]
    names = ("rook 4x4", "Shrikhande", "T(8)", "Chang 1", "Chang 2", "Chang 3")
    return _copies("srg", graphs, names, copies, seed, folds)


def counting_task(
    where: Where, *, target: str | Sequence[str] = "all", source: str | None = None, seed: int = 0
) -> Task:
    """Substructure counting: 5,000 random graphs; counts divided by their standard deviation over the whole data set.

    Args:
        where: of the published graphs.
        target: one of ``TARGETS``, several of them, or "all".
        source: "published" (graphs and split of the benchmark, from the packed folder), "generated" (the same recipe), or None
            for the published ones if the folder has them.
        seed: of the generated graphs.
    """
    _known_source(source, (None, "generated", "published"))
    chosen = list(TARGETS) if target == "all" else [target] if isinstance(target, str) else list(target)
    if not chosen or any(name not in TARGETS for name in chosen):
        raise OptionError(f"target: expected 'all' or some of {', '.join(TARGETS)}; came {target!r}")
    file = "substructure_counting/graphs.npz"
    found = None if source == "generated" else where.local(file)
    if source == "published" and found is None:
        where.needed("counting", file, why="Or use source='generated', which follows the published recipe.")
    if found is not None:
        arrays = read_arrays(found[0], ("num_nodes", "edge_ptr", "edges", *PARTS))
        graphs = packed_graphs(found[0], arrays, None, torch.float32)
        split, origin = positions(found[0], arrays, len(graphs)), f"published, {found[0]}"
        matrices = [_adjacency(data) for data in graphs]
    else:
        matrices = random_graphs(COUNT, seed)
        graphs = PackedGraphs.from_graphs([_graph(matrix) for matrix in matrices])
        ends = np.cumsum(list(SPLIT.values()))
        split = {part: torch.arange(end - SPLIT[part], end) for part, end in zip(PARTS, ends.tolist(), strict=True)}
        origin = f"generated with seed {seed}"
    columns = [TARGETS.index(name) for name in chosen]
    counts = torch.from_numpy(count_substructures(matrices)[:, columns]).double()
    std = counts.std(0)
    y = Field((counts / std).float(), None, torch.float32)
    return Task(
        name="counting", graphs=graphs.with_fields(y=y), splits=(split,), level="graph", kind="regression",
        outputs=len(chosen), loss="l1", metric="mae", shift=(0.0,) * len(chosen), scale=tuple(std.tolist()),
        targets=tuple(chosen), origin=origin,
    )  # fmt: skip


def _adjacency(data: Data) -> np.ndarray:
    matrix = np.zeros((data.num_nodes, data.num_nodes), dtype=bool)
    matrix[tuple(data.edge_index.numpy())] = True
    return matrix


def _graph(matrix: np.ndarray) -> Data:
    return Data(edge_index=torch.from_numpy(np.stack(matrix.nonzero())), num_nodes=len(matrix))


def _copies(name: str, graphs: Sequence[Data], classes: tuple[str, ...], copies: int, seed: int, folds: int) -> Task:
    """Randomly renumbered copies of graphs, each graph a class."""
    if isinstance(copies, bool) or not isinstance(copies, int) or copies < 1:
        raise OptionError(f"copies: expected an int of at least 1; came {copies!r}")
    generator = torch.Generator().manual_seed(seed)
    made = []
    for label, graph in enumerate(graphs):
        for _ in range(copies):
            numbers = torch.randperm(int(graph.num_nodes or 0), generator=generator)
            made.append(Data(edge_index=numbers[graph.edge_index], y=torch.tensor([label]), num_nodes=graph.num_nodes))
    splits = stratified_folds([int(data.y) for data in made], folds, seed)
    return _classes(name, made, splits, classes, f"generated with seed {seed}")


def _classes(name: str, graphs: Sequence[Data], splits: Any, classes: tuple[str, ...], origin: str) -> Task:
    return Task(
        name=name, graphs=graphs, splits=splits, level="graph", kind="classification", outputs=len(classes),
        loss="cross_entropy", metric="accuracy", targets=classes, origin=origin,
    )  # fmt: skip


def _known_source(source: str | None, known: tuple[str | None, ...]) -> None:
    if source not in known:
        raise OptionError(f"source: expected one of {', '.join(map(repr, known))}; came {source!r}")
