"""What a step holds for nodes, edges and all pairs of nodes, however few of them are tokens."""

from __future__ import annotations

from math import comb

from tuplet.graphs import GraphBatch
from tuplet.models.config import ModelConfig
from tuplet.models.encoded import pair_width
from tuplet.models.prepare import Patterns
from tuplet.patterns import Neighbour


def type_bytes(config: ModelConfig, patterns: Patterns, graph: GraphBatch) -> int:
    """The types of all pairs of nodes, a byte each: one matrix for all neighbourhoods and layers."""
    read = config.resolved_relation != "none" and any(isinstance(pattern, Neighbour) for pattern in patterns)
    return graph.total(2) * read


def statistics_bytes(graph: GraphBatch) -> int:
    """What encodings begin with."""
    return sum(rows.numel() * rows.element_size() for rows in (graph.statistics or {}).values())


def table_vectors(config: ModelConfig, graph: GraphBatch) -> int:
    """Vectors of nodes and edges, and what first features of tuples make of them for each place and each pair of places."""
    if config.choices.dims is not None:
        return 0
    order = max(config.choices.orders)
    pairs = comb(order, 2) * (2 if config.directed else 1)
    maps = config.init == "concat"
    return graph.num_nodes * (2 + maps * order) + graph.num_edges * (1 + maps * pairs) * (order > 1)


def encoded_numbers(config: ModelConfig, graph: GraphBatch) -> tuple[int, int, int]:
    """What encodings make of nodes and all pairs of nodes: numbers that autograd keeps, those that there are when their
    gradients come, and those of a forward without gradients."""
    width, dims = pair_width(config.encodings), config.choices.dims
    held = [encoding.held(graph) for encoding in config.encodings]
    kept, at_once = sum(numbers for numbers, _ in held), max((numbers for _, numbers in held), default=0)
    if not width:
        return kept, kept, at_once
    # tuples have a map for each ordered pair of places, all at once; simplices one after another, whose gradients are added
    maps = config.dim * (max(config.choices.orders) ** 2 if dims is None else 1)
    gradients = maps + width * (2 if dims is not None and dims[1] > 0 else 1)
    rows = graph.total(2)
    kept += rows * width
    return kept, kept + rows * gradients, max(at_once, rows * (width + max(width, maps)))
