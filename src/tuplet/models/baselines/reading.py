"""A batch at the door of a baseline: checked against what the model was built for, with the statistics that it reads."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import torch

from tuplet.encodings import statistics
from tuplet.errors import InputError
from tuplet.graphs import GraphBatch, read
from tuplet.models.baselines.config import BaselineConfig


def read_for(config: BaselineConfig, batch: Any, device: torch.device, dtype: torch.dtype) -> GraphBatch:
    """Check a batch against a config, on the model's device; features that nobody reads are announced."""
    graph = read(batch, undirected=config.undirected, directed=config.directed, device=device)
    declared = config.common
    edges = graph.num_edges + int((graph.loop >= 0).sum())
    for features, values, rows in (
        (declared.node_features, graph.x, graph.num_nodes),
        (declared.edge_features, graph.edge_attr, edges),
    ):
        features.check(values, rows, dtype)
        if features.columns == 0 and values is not None:
            option = "node" if features.field == "x" else "edge"
            warnings.warn(
                f"{features.field} is ignored: the model was built without {option}_types or {option}_dim",
                stacklevel=5,
            )
    if config.task == "edge" and graph.queries is None:
        raise InputError("edge_label_index", "the pairs to predict, shape (2, Q)", "a batch without it")
    return graph


def with_statistics(config: BaselineConfig, graph: GraphBatch, dtype: torch.dtype) -> GraphBatch:
    """The batch with the raw statistics that the model reads, computed now unless it came with them."""
    known = dict(graph.statistics or {})
    known |= statistics([e for e in config.statistics if not known.keys() >= set(e.fields)], graph, dtype)
    wanted = {field for encoding in config.statistics for field in encoding.fields}
    kept = {key: rows.to(dtype) if rows.is_floating_point() else rows for key, rows in known.items() if key in wanted}
    for encoding in config.statistics:
        encoding.check(kept, graph)
    return replace(graph, statistics=kept)
