"""What a resident data set keeps of its graphs: rows of nodes, edges, pairs of nodes, simplices, and of patterns."""

from __future__ import annotations

import torch
from torch import Tensor

from tuplet.graphs import GraphBatch
from tuplet.models import Transformer
from tuplet.models.encoded import simplex_dims
from tuplet.models.prepare import make_tokens
from tuplet.models.reading import edge_simplices
from tuplet.tokens import Simplices, Tokens
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

    nodes: x, degree, and statistics of encodings.
    edges: attr, col, and simplex, the 1-simplex of each edge, where tuples carry encodings of simplices.
    pairs: statistics of ordered pairs of nodes; only where there are some.
    1-simplices, 2-simplices, ..: nodes, faces, and statistics; only where a model needs them. Simplices that are tokens
        also have what the pattern keeps of its tokens.
    kept: the rows that the pattern keeps, if it keeps any.
    """
    config = model.config
    counts = {"nodes": graph.n, "edges": graph.rowptr[graph.ptr].diff(), "pairs": graph.n**2}
    columns: dict[str, Columns] = {
        "nodes": {"x": graph.x, "degree": graph.rowptr.diff()},
        "edges": {"attr": graph.edge_attr, "col": graph.place_of_node[graph.col]},
        "pairs": {},
    }
    tokens = make_tokens(config, graph)[0] if config.choices.dims is not None else None
    known = _complex(model, graph, tokens)
    first = graph.ptr[:-1]
    for k in range(1, known.dim + 1):
        owner = known.graph_of[k]
        faces = known.faces[k] - first[owner][:, None]
        counts[simplices(k)] = torch.bincount(owner, minlength=graph.num_graphs)
        columns[simplices(k)] = {"nodes": graph.place_of_node[known.simplices[k]], "faces": faces}
        first = counts[simplices(k)].cumsum(0) - counts[simplices(k)]
    if tokens is None and known.dim:
        simplex = edge_simplices(config.encodings, graph)
        assert simplex is not None
        columns["edges"]["simplex"] = simplex - first[graph.graph_of_node[graph.row]]

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


def _complex(model: Transformer, graph: GraphBatch, tokens: Tokens | None) -> Complex:
    """The complex up to the dimension that a model reads; nodes alone where it reads none."""
    if isinstance(tokens, Simplices):
        return tokens.complex
    encodings = [encoding for encoding in model.config.encodings if encoding.level == "simplex"]
    return complex_of(graph, max((max(simplex_dims(encoding)) for encoding in encodings), default=0))
