"""What a resident data set keeps of its graphs: rows of nodes, edges, pairs of nodes, simplices, and of patterns."""

from __future__ import annotations

import torch
from torch import Tensor

from tuplet.graphs import GraphBatch
from tuplet.models import Transformer
from tuplet.models.encoded import simplex_dims
from tuplet.models.prepare import make_tokens
from tuplet.models.reading import queried_pairs
from tuplet.tokens import Simplices, Tokens
from tuplet.tokens.features import FIRST_EDGE, NO_EDGE
from tuplet.topology import Complex, complex_of
from tuplet.training.segments import Segments

Columns = dict[str, Tensor | None]
KEPT = "kept "
"""Begins the names of columns that the pattern keeps of its tokens."""


def simplices(k: int) -> str:
    """The level of the k-simplices."""
    return f"{k}-simplices" if k else "nodes"


def levels_of(model: Transformer, graph: GraphBatch) -> dict[str, Segments]:
    """The levels of a checked batch that batches for the model are made of. All numbers count within their own graph.

    nodes: x, place, first (the first edge), pair (the pair of the node with itself, where tuples have pairs), and
        statistics of encodings.
    edges: attr, ends, pair, and simplex (the 1-simplex of the edge, where a model has simplices).
    pairs: statistics of ordered pairs of nodes; only where there are some.
    1-simplices, 2-simplices, ..: nodes, faces, and statistics; only where a model needs them. Simplices that are tokens
        also have what ``_lists`` says, and what the pattern keeps of its tokens.
    kept: the rows that the pattern keeps, if it keeps any.
    queries: ends, for an edge task.
    """
    config = model.config
    place, edges, owner = graph.place_of_node, graph.rowptr[graph.ptr], graph.graph_of_node
    ends = torch.stack([graph.row, graph.col], dim=1)
    counts = {"nodes": graph.n, "edges": edges.diff(), "pairs": graph.n**2}
    columns: dict[str, Columns] = {
        "nodes": {"x": graph.x, "place": place, "first": graph.rowptr[:-1] - edges[owner]},
        "edges": {"attr": graph.edge_attr, "ends": place[ends]},
        "pairs": {},
    }
    if config.task == "edge":
        asked = queried_pairs(graph)
        counts["queries"] = torch.bincount(owner[asked[0]], minlength=graph.num_graphs)
        columns["queries"] = {"ends": place[asked].t()}
    if max(config.choices.orders, default=1) > 1:
        columns["nodes"]["pair"] = graph.node_pairs - graph.offsets(2)[owner]
        columns["edges"]["pair"] = graph.edge_pairs - graph.offsets(2)[owner[graph.row]]
    tokens = make_tokens(config, graph)[0] if config.choices.dims is not None else None
    known = _complex(model, graph, tokens)
    for k in range(1, known.dim + 1):
        faces = known.faces[k] - known.starts[k - 1][known.graph_of[k]][:, None]
        counts[simplices(k)] = known.starts[k].diff()
        columns[simplices(k)] = {"nodes": place[known.simplices[k]], "faces": faces}
    if known.dim:
        columns["edges"]["simplex"] = known.find(graph.edge_ends) - known.starts[1][owner[graph.row]]
    if isinstance(tokens, Simplices):
        for level, more in _lists(tokens, known).items():
            columns[level] |= more

    for encoding in config.encodings:
        levels = [f"{encoding.level}s" for _ in encoding.fields]
        if encoding.level == "simplex":
            levels = [simplices(k) for k in simplex_dims(encoding)]
        for level, field in zip(levels, encoding.fields, strict=True):
            columns[level][field] = (graph.statistics or {})[field]

    if isinstance(tokens, Simplices) and model.patterns:
        kept = model.patterns[0].keep(tokens, config.resolved_relation != "none")
        if kept is not None:
            counts["kept"], columns["kept"] = kept.counts, dict(kept.rows)
            for name, rows in kept.tokens.items():
                for k, part in enumerate(rows.split(tokens.sizes), start=tokens.low):
                    columns[simplices(k)][KEPT + name] = part
    return {level: Segments(counts[level], rows) for level, rows in columns.items() if rows}


def _lists(tokens: Simplices, known: Complex) -> dict[str, Columns]:
    """Which simplices have a face, and which have an edge, so that no batch has to sort them.

    Of k-simplices for k >= 1 and each place j "order": all of them by their j-th face, and of the (k-1)-simplices
    "cofaces": for each j where in that order those begin and end whose j-th face it is. Of 1-simplices "edges": the number
    of the edge in each direction, counted from FIRST_EDGE, 0 without; of edges "taken": in which directions they belong to
    a 1-simplex.
    """
    found: dict[str, Columns] = {simplices(k): {} for k in range(tokens.high + 1)}
    for k, lists in enumerate(tokens.face_lists, start=1):
        start, order = known.starts[k], torch.stack([faces.order for faces in lists], dim=1)
        bounds = torch.stack([torch.stack([faces.begin, faces.end], dim=1) for faces in lists], dim=1)
        found[simplices(k)]["order"] = order - start[known.graph_of[k]][:, None]
        found[simplices(k - 1)]["cofaces"] = bounds - start[known.graph_of[k - 1]][:, None, None]
    if tokens.high > 0:
        graph, rows = tokens.graph, tokens.edge_rows.t()
        first = graph.rowptr[graph.ptr][known.graph_of[1]][:, None]
        found[simplices(1)]["edges"] = torch.where(rows == NO_EDGE, 0, rows - first)
        taken = [(lists.end - lists.begin)[FIRST_EDGE:] for lists in tokens.edge_lists]
        found["edges"] = {"taken": torch.stack(taken, dim=1)}
    return found


def _complex(model: Transformer, graph: GraphBatch, tokens: Tokens | None) -> Complex:
    """The complex up to the dimension that a model reads; nodes alone where it reads none."""
    if isinstance(tokens, Simplices):  # relations are kept: nothing but degrees looks above the tokens
        return tokens.complex if model.config.degrees else tokens.complex.truncate(tokens.high)
    encodings = [encoding for encoding in model.config.encodings if encoding.level == "simplex"]
    return complex_of(graph, max((max(simplex_dims(encoding)) for encoding in encodings), default=0))
