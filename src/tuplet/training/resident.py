"""A data set that lives on the device, from which batches of fixed shapes are put together there, without the host."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.data import Data

from tuplet._memory import available_bytes
from tuplet.encodings.layers import by_rows
from tuplet.errors import TooLargeError
from tuplet.graphs import PaddedBatch
from tuplet.graphs.memory import told
from tuplet.kernels import Lists
from tuplet.models import Transformer
from tuplet.models.config import ModelConfig
from tuplet.models.prepare import Prepared, prepare, reads_pairs
from tuplet.tokens import Simplices, Tokens, Tuples
from tuplet.tokens.features import FIRST_EDGE, NO_EDGE
from tuplet.topology import Complex
from tuplet.training.levels import KEPT, levels_of, simplices
from tuplet.training.segments import Segments, Taken

STEPS = 32
"""Batches of about average size are padded to a multiple of a thirty-second of it; where memory is spared of a sixteenth, since every
shape has a recording that keeps some."""
RARE = 8
"""Batches that are an eighth larger or smaller than average are few, and so are those of fewer graphs: they are padded to a multiple of an
eighth, and full ones that are larger, whose room says how much memory a run needs, of a sixteenth."""
SPARE, TILE = 1.25, 32
"""Levels that are no tokens have a quarter more room, so that they have little say in it; and rooms are multiples of so many rows."""
PORTION = 2000
"""Graphs that are read at once."""


@dataclass(frozen=True)
class Room:
    """What a batch has room for, one graph of padding included.

    Args:
        graphs: real graphs.
        edges: of all graphs.
        tuples: for k = 0, 1, .. the k-tuples of all graphs; ``tuples[0]`` is the number of graphs, padding included.
        simplices: for k = 1, 2, .. the k-simplices of all graphs, as far as a model needs them.
        kept: rows that the pattern kept.
        queries: pairs that an edge task asks for; 0 for another task.
    """

    graphs: int
    edges: int
    tuples: tuple[int, ...]
    simplices: tuple[int, ...]
    kept: int
    queries: int

    def rows(self, level: str) -> int:
        """Rows of a level (see ``levels_of``)."""
        known = {"nodes": self.tuples[1], "edges": self.edges, "pairs": self.tuples[2], "kept": self.kept}
        known["queries"] = self.queries
        return (known | {simplices(k): rows for k, rows in enumerate(self.simplices, start=1)})[level]


class Resident:
    """All graphs of a task on a model's device, for a model on all tuples of nodes or on simplices.

    What cannot be found out with fixed shapes (simplices, their faces, who is related to whom) is found out once, for all
    graphs, and kept.

    Args:
        model: what batches are prepared for.
        graphs: the graphs.
        batch: graphs of a batch; fewer are the last of an epoch.
    """

    def __init__(self, model: Transformer, graphs: Sequence[Data], batch: int = 1) -> None:
        self.model, self.batch = model, batch
        parts: list[dict[str, Segments]] = []
        for first in range(0, len(graphs), PORTION):
            parts.append(levels_of(model, model.read(list(graphs[first : first + PORTION]))))
            self._refuse_if_too_large(parts, len(graphs))
        self.levels = {level: Segments.join([part[level] for part in parts]) for level in parts[0]}
        counts = {level: segments.counts.cpu().numpy() for level, segments in self.levels.items()}
        nodes = counts["nodes"]
        orders, dims = model.config.choices.orders, model.config.choices.dims
        self.dim = sum(level.endswith("-simplices") for level in self.levels)
        of_tuples = [nodes**order for order in range(1, max((2, *orders)) + 1)]
        of_simplices = [nodes, *(counts[simplices(k)] for k in range(1, self.dim + 1))]
        self.bound = int(nodes.max())
        self.longest = int(np.sum(of_simplices[dims[0] : dims[1] + 1], axis=0).max()) if dims else 0
        # (levels, G) in the order in which Room lists them
        rest = [counts.get(level, 0 * nodes) for level in ("kept", "queries")]
        self.counts = np.stack([counts["edges"], *of_tuples, *of_simplices[1:], *rest])
        self.totals = self.counts.sum(1)
        self.read = np.ones(len(self.counts), dtype=bool)
        self.read[2] = max(orders, default=1) > 1 or "pairs" in self.levels
        self.spare = np.full(len(self.counts), SPARE)
        above = len(of_tuples)  # where k-simplices of dimension 1 and more follow
        tokens = [above + k if k else 1 for k in range(dims[0], dims[1] + 1)] if dims else list(orders)
        self.spare[tokens] = 1.0
        self.rooms: dict[tuple[int, int], Room] = {}

    @staticmethod
    def fits(model: Any, graphs: Sequence[Data]) -> bool:
        """Whether batches of this model can be put together here: all tuples or simplices as tokens; no types that are
        computed pair by pair, nor functions of signed ones."""
        if not isinstance(model, Transformer):
            return False
        choices, config = model.config.choices, model.config
        plain = choices.sample is None and not choices.basis and config.phi == "types"
        rows = model.encodings is None or all(map(by_rows, model.encodings.encoders))
        loops = any(bool((graph.edge_index[0] == graph.edge_index[1]).any()) for graph in graphs)
        return plain and rows and not loops and _asks(config) and model.backend == "triton"

    def _refuse_if_too_large(self, parts: list[dict[str, Segments]], graphs: int) -> None:
        known = sum(len(part["nodes"].counts) for part in parts)
        needed = sum(segments.bytes for part in parts for segments in part.values()) * (graphs / known)
        available = available_bytes(self.model.device)
        if needed > available / 2:
            raise TooLargeError(
                f"a data set of about {needed / 1e9:.1f} GB on {self.model.device}, which has {available / 1e9:.1f} GB left"
            )

    def room(self, members: Sequence[int]) -> Room:
        """Room for a batch, the same for many batches.

        All levels have room for the same number of parts of what they have in an average batch, and never for more than the largest
        graphs have. Pairs of nodes that have no rows have no say.
        """
        count, graphs = len(members), self.counts.shape[1]
        parts = STEPS // 2 if self.model.config.recompute else STEPS
        step = np.maximum(self.spare * self.totals * count / (graphs * parts), 1.0)
        wanted = self.counts[:, list(members)].sum(1) + 2
        steps, few = math.ceil((wanted / step)[self.read].max()), parts // RARE
        rare = few if count < self.batch or steps < parts - few else few // 2 if steps > parts + few else 1
        steps = rare * math.ceil(steps / rare)
        if (count, steps) not in self.rooms:
            most = np.sort(self.counts, axis=1)[:, -count:].sum(1) + 2
            tight = np.minimum((np.ceil(steps * step / TILE) * TILE).astype(most.dtype), most)
            edges, *sizes, kept, queries = np.where(self.read, tight, most).tolist()
            tuples, higher = sizes[: len(sizes) - self.dim], sizes[len(sizes) - self.dim :]
            queries = queries if "queries" in self.levels else 0
            self.rooms[count, steps] = Room(count, edges, (count + 1, *tuples), tuple(higher), kept, queries)
        return self.rooms[count, steps]

    def prepared(self, ids: Tensor, room: Room) -> Prepared:
        """Some graphs as a batch that fills its room, ready for the model; ``ids`` are on the device, and nothing waits for
        them."""
        taken = {level: segments.take(ids, room.rows(level)) for level, segments in self.levels.items()}
        graph = self._batch(taken, room)
        return prepare(self.model.config, self.model.patterns, self._tokens(taken, graph), self.model.backend)

    def targets(self, ids: Tensor, room: Room) -> Tensor:
        """Which of all targets the outputs for a batch are compared with: those of the graphs, or of the pairs that are asked
        for; for padding the one after the last."""
        return self.levels["queries"].source(ids, room.queries) if room.queries else ids

    def _batch(self, taken: dict[str, Taken], room: Room) -> PaddedBatch:
        nodes, edges = taken["nodes"], taken["edges"]
        ends = edges.shifted("ends", nodes.ptr).t()
        row, col = torch.where(edges.owner < room.graphs, ends, room.tuples[1] - 1)
        complexes = [taken[simplices(k)] for k in range(1, self.dim + 1)]
        columns = {name: rows for level in taken.values() for name, rows in level.columns.items()}
        graph = PaddedBatch(
            sizes=(),
            ptr=nodes.ptr,
            rowptr=torch.cat([nodes.shifted("first", edges.ptr), edges.ptr[-1:]]),
            col=col,
            loop=torch.full_like(nodes.owner, -1),
            x=nodes.columns.get("x"),
            edge_attr=edges.columns.get("attr"),
            directed=self.model.config.directed,
            simplices=tuple(level.shifted("nodes", nodes.ptr) for level in complexes) or None,
            statistics={name: rows for name, rows in columns.items() if name.startswith("pe_")} or None,
            room=room.tuples,
            bound=self.bound,
            queries=taken["queries"].shifted("ends", nodes.ptr).t() if "queries" in taken else None,
            edge_simplex=edges.shifted("simplex", complexes[0].ptr) if "simplex" in edges.columns else None,
        )
        graph = told(graph, row=row, graph_of_node=nodes.owner, place_of_node=nodes.columns["place"])
        if "pair" in edges.columns:
            first = graph.offsets(2)
            graph = told(graph, node_pairs=nodes.shifted("pair", first), edge_pairs=edges.shifted("pair", first))
        return graph

    def _tokens(self, taken: dict[str, Taken], graph: PaddedBatch) -> tuple[Tokens, Tokens]:
        choices = self.model.config.choices
        if choices.dims is None:
            queries = Tuples.all(graph, choices.orders[0])
            return queries, Tuples.all(graph, choices.orders[1]) if choices.cross else queries
        low, high = choices.dims
        levels = [taken[simplices(k)] for k in range(self.dim + 1)]
        nodes = torch.arange(graph.num_nodes, device=graph.device)[:, None]
        faces = [level.shifted("faces", below.ptr) for below, level in pairwise(levels)]
        known = told(
            Complex((nodes, *(graph.simplices or ())), (nodes[:, :0], *faces), graph.ptr),
            graph_of=tuple(level.owner for level in levels),
            starts=tuple(level.ptr for level in levels),
        )
        own = levels[low : high + 1]
        tokens = Simplices(
            graph,
            ptr=sum((level.ptr for level in own[1:]), own[0].ptr),
            total=sum(known.counts[low : high + 1]),
            longest=self.longest,
            complex=known,
            low=low,
            high=high,
            kept=_kept(taken["kept"], own) if "kept" in taken else None,
        )
        tokens = told(tokens, face_lists=_face_lists(levels[: high + 1], faces))
        if high > 0:
            rows, lists = _edge_lists(levels[1], taken["edges"], graph)
            tokens = told(tokens, edge_rows=rows, edge_lists=lists)
        return tokens, tokens


def _asks(config: ModelConfig) -> bool:
    """Whether what is asked for has a fixed shape: graphs; or pairs, which are tokens, or tokens that are nodes."""
    choices = config.choices
    nodes = choices.orders[:1] == (1,) if choices.dims is None else choices.dims[0] == 0
    return config.task == "graph" or (config.task == "edge" and (reads_pairs(config) or nodes))


def _kept(rows: Taken, tokens: list[Taken]) -> dict[str, Tensor]:
    """What the pattern kept of the rows and of the tokens, whose levels are given (see ``Pattern.keep``)."""
    names = [name for name in tokens[0].columns if name.startswith(KEPT)]
    of_tokens = {
        name.removeprefix(KEPT): torch.cat([level.columns[name].movedim(0, -1) for level in tokens], -1).movedim(-1, 0)
        for name in names
    }
    return {**of_tokens, **rows.columns, "owner": rows.owner, "start": rows.ptr[:-1]}


def _face_lists(levels: list[Taken], faces: list[Tensor]) -> tuple[tuple[Lists, ...], ...]:
    """``Simplices.face_lists`` from what was kept of the simplices of dimensions 0, 1, .. and their faces."""
    found = []
    for (below, level), rows in zip(pairwise(levels), faces, strict=False):
        order, bounds = level.shifted("order", level.ptr), below.shifted("cofaces", level.ptr)
        parts = zip(rows.unbind(1), order.unbind(1), *(bound.unbind(1) for bound in bounds.unbind(2)), strict=True)
        found.append(tuple(Lists(*part) for part in parts))
    return tuple(found)


def _edge_lists(level: Taken, edges: Taken, graph: PaddedBatch) -> tuple[Tensor, tuple[Lists, ...]]:
    """``edge_rows`` and ``edge_lists`` of ``Simplices`` from what was kept of the 1-simplices and of the edges."""
    assert graph.edge_simplex is not None  # the list of an edge is its simplex, or nothing
    kept = level.columns["edges"].t()
    rows = torch.where(kept > 0, level.shifted("edges", edges.ptr).t(), NO_EDGE)
    begin = torch.arange(-FIRST_EDGE, graph.num_edges, device=graph.device).clamp_min_(0)
    ends = begin + F.pad(edges.columns["taken"].t(), (FIRST_EDGE, 0))
    simplex = graph.edge_simplex
    return rows, tuple(Lists(row, simplex, begin, end, FIRST_EDGE) for row, end in zip(rows, ends, strict=True))
