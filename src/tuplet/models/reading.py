"""A batch at a model's door: checked against the features it was built for, with the statistics that its encodings read."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tuplet.encodings import Encoding, statistics
from tuplet.errors import InputError
from tuplet.graphs import GraphBatch, PaddedBatch, read
from tuplet.models.config import ModelConfig
from tuplet.topology import complex_of


def read_for(config: ModelConfig, batch: Any, device: torch.device, dtype: torch.dtype, stacklevel: int) -> GraphBatch:
    """Check a batch against a config, on the model's device; features that nobody reads are announced."""
    graph = read(batch, undirected=config.undirected, directed=config.directed, device=device)
    checked = graph.checked and not isinstance(batch, GraphBatch)  # which another model may have read
    edges = graph.num_edges + int((graph.loop >= 0).sum())
    for features, values, rows in (
        (config.node_features, graph.x, graph.num_nodes),
        (config.edge_features, graph.edge_attr, edges),
    ):
        if not checked:
            features.check(values, rows, dtype)
        if features.columns == 0 and values is not None:
            option = "node" if features.field == "x" else "edge"
            warnings.warn(
                f"{features.field} is ignored: the model was built without {option}_types or {option}_dim",
                stacklevel=stacklevel + 1,
            )
    return graph


def queried_pairs(graph: GraphBatch) -> Tensor:
    """(2, Q) the pairs that an edge task asks for; a batch without them is refused."""
    if graph.queries is None:
        raise InputError("edge_label_index", "the pairs to predict, shape (2, Q)", "a batch without it")
    return graph.queries


def with_statistics(encodings: Sequence[Encoding], graph: GraphBatch, dtype: torch.dtype) -> GraphBatch:
    """The batch with the raw statistics of the encodings, computed now unless it came with them."""
    known = dict(graph.statistics or {})
    known |= statistics([e for e in encodings if not known.keys() >= set(e.fields)], graph, dtype)
    wanted = {field for encoding in encodings for field in encoding.fields}
    kept = {key: rows.to(dtype) if rows.is_floating_point() else rows for key, rows in known.items() if key in wanted}
    for encoding in encodings:
        encoding.check(kept, graph)
    return replace(graph, statistics=kept)


def edge_simplices(encodings: Sequence[Encoding], graph: GraphBatch) -> Tensor | None:
    """(E,) 1-simplex of each edge, where there are encodings of simplices for the edges to carry."""
    if isinstance(graph, PaddedBatch):
        return graph.edge_simplex
    if all(encoding.level != "simplex" for encoding in encodings):
        return None
    return complex_of(graph, 1).find(graph.edge_ends)
