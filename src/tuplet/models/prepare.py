"""Everything of a batch whose shape depends on data, built once before the model runs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tuplet.errors import InputError
from tuplet.graphs import GraphBatch
from tuplet.models.attention import Group, Layouts
from tuplet.models.config import ModelConfig
from tuplet.models.cross import CrossIndex
from tuplet.models.pooling import Prefixes
from tuplet.patterns import (
    CrossNeighbour,
    Dense,
    LocalNeighbour,
    Neighbour,
    Pattern,
    define,
    virtual_layout,
    virtual_pairs,
    virtual_ptr,
)
from tuplet.tokens import Tuples, connected_tuples, pair_rows, position_pairs, random_tuples
from tuplet.tokens.sampling import LIMIT


def make_patterns(config: ModelConfig) -> tuple[Pattern, ...]:
    """The patterns that a model sums, virtual tuples not among them."""
    choices = config.choices
    if choices.cross:
        return (CrossNeighbour(*choices.orders),) if choices.patterns else (Dense(choices.orders, choices.basis),)  # type: ignore[arg-type]
    order = choices.orders[0]
    if not choices.patterns:
        return (Dense((order, order), choices.basis),)
    made: dict[str, Pattern] = {
        "Ngbh": Neighbour(order),
        "Ngbh+": Neighbour(order, adjacency=True, directed=config.directed),
        "LN": LocalNeighbour(order),
    }
    return tuple(made[name] for name in choices.patterns if name != "VT")


@dataclass(frozen=True)
class Places:
    """For one kind of tuples the rows of the node table and pair table that make up each of them.

    Args:
        nodes: for each place the (T,) node.
        pairs: for each pair of places the (T,) row of the pair table.
        index: (T, k) tuple indices, only where the model reads them.
    """

    nodes: list[Tensor]
    pairs: list[Tensor]
    index: Tensor | None

    @classmethod
    def prepare(cls, tuples: Tuples, directed: bool, index: bool) -> Places:
        nodes = [tuples.node(axis) for axis in range(tuples.order)]
        pairs = [pair_rows(tuples, a, b) for a, b in position_pairs(tuples.order, directed)]
        entries = torch.stack([tuples.entry(axis) for axis in range(tuples.order)], dim=1) if index else None
        return cls(nodes, pairs, entries)


@dataclass(frozen=True)
class Prepared:
    """A checked batch, its tokens, and the layouts of attention and pooling; ``model(prepared)`` runs it.

    Args:
        graph: the checked batch.
        queries, keys: the tokens that are updated by attention, and those they attend to (the same but for cross).
        query_places, key_places: what the tokens are made of.
        layouts: who sees whom.
        query_graph: (T1,) graph of each query.
        cross: indices of ψ_e and ψ_v, cross-attention only.
        pair_places: row of the pair table of each ordered pair of nodes, where a cross-attention updates e.
        prefixes: folds to nodes, for node and edge tasks.
        query_pairs: for an edge task the rows to read, of tokens (all 2-tuples) or of nodes.
        key: what it was prepared for.
    """

    graph: GraphBatch
    queries: Tuples
    keys: Tuples
    query_places: Places
    key_places: Places | None
    layouts: Layouts
    query_graph: Tensor
    cross: CrossIndex | None
    pair_places: Tensor | None
    prefixes: Prefixes | None
    query_pairs: tuple[Tensor, Tensor] | None
    key: tuple[object, ...]


def draw_sample(config: ModelConfig, graph: GraphBatch, limit: int) -> GraphBatch:
    """The batch with the sampled tuples that the model asks for, drawn now unless it came with them.

    ``limit``: how many tuples fit in memory; connected ones are refused before more of them are made.
    """
    choices = config.choices
    if choices.sample is None or graph.tuples is not None:
        return graph
    if choices.sample == "connected":
        return connected_tuples(graph, max(choices.orders), config.repeats, min(limit, LIMIT))
    return random_tuples(graph, max(choices.orders), choices.budget, config.sample_seed, config.connected_share)


def sampled_side(config: ModelConfig) -> str | None:
    """Which tokens are a sample: "queries", "keys" (of two orders the higher, of equal ones the keys), or None."""
    choices = config.choices
    if choices.sample is None:
        return None
    return "keys" if choices.cross and choices.orders[0] <= choices.orders[1] else "queries"


def make_tokens(config: ModelConfig, graph: GraphBatch) -> tuple[Tuples, Tuples]:
    """Queries and keys, all tuples of their order or the sample that came with the batch."""
    choices = config.choices
    side = sampled_side(config)
    queries = (Tuples.sampled if side == "queries" else Tuples.all)(graph, choices.orders[0])
    if not choices.cross:
        return queries, queries
    return queries, (Tuples.sampled if side == "keys" else Tuples.all)(graph, choices.orders[1])


def make_layouts(
    config: ModelConfig, patterns: tuple[Pattern, ...], queries: Tuples, keys: Tuples, reference: bool
) -> Layouts:
    """Lay the patterns out for the backend: as definitions for ``reference``, as structures otherwise."""
    typed = config.resolved_relation != "none"
    joint = config.softmax == "joint"

    def group(pattern: Pattern, number: int) -> Group:
        # in a joint softmax the tuple itself is one key, not one key a group
        skip_self = joint and pattern.shared_self and number > 0
        if reference:
            return define(pattern, queries, keys, number, skip_self)
        return pattern.layout(queries, keys, number, typed, skip_self)

    graphs = len(queries.counts)
    from_virtual = to_virtual = None
    virtual = config.virtual if "VT" in config.choices.patterns else 0
    ptr = virtual_ptr(graphs, virtual, queries.device)
    if virtual:
        lay_out = virtual_pairs if reference else virtual_layout
        from_virtual, to_virtual = lay_out(queries.ptr, ptr), lay_out(ptr, keys.ptr)
    return Layouts(
        tuple(tuple(group(pattern, number) for number in range(pattern.groups)) for pattern in patterns),
        from_virtual,
        to_virtual,
        keys.graph_of_token,
        torch.arange(graphs, device=queries.device).repeat_interleave(virtual),
        graphs,
    )


def prepare(config: ModelConfig, patterns: tuple[Pattern, ...], graph: GraphBatch, backend: str) -> Prepared:
    """All of the above for one checked batch."""
    choices = config.choices
    queries, keys = make_tokens(config, graph)
    cross = pair_places = key_places = None
    if choices.cross:
        cross = CrossIndex.prepare(queries, keys, config.directed)
        pair_places = pair_rows(Tuples.all(graph, 2), 0, 1) if keys.order > 1 else None
        key_places = Places.prepare(keys, config.directed, choices.index)
    prefixes = Prefixes.prepare(queries) if pools_to_nodes(config) else None
    query_pairs = None
    if config.task == "edge":
        if graph.queries is None:
            raise InputError("edge_label_index", "the pairs to predict, shape (2, Q)", "a batch without it")
        u, v = graph.queries
        query_pairs = (u, v)
        if reads_pairs(config):
            owner = graph.graph_of_node[u]
            first, n = graph.ptr[owner], graph.n[owner]
            query_pairs = (
                queries.ptr[owner] + (u - first) * n + v - first,
                queries.ptr[owner] + (v - first) * n + u - first,
            )
    return Prepared(
        graph,
        queries,
        keys,
        Places.prepare(queries, config.directed, choices.index),
        key_places,
        make_layouts(config, patterns, queries, keys, backend == "reference"),
        queries.graph_of_token,
        cross,
        pair_places,
        prefixes,
        query_pairs,
        layout_key(config, backend),
    )


def reads_pairs(config: ModelConfig) -> bool:
    """Whether the edge head reads the tuples (i, j) and (j, i): order 2, all tuples. A sample may lack them."""
    return config.task == "edge" and config.choices.orders[0] == 2 and sampled_side(config) != "queries"


def pools_to_nodes(config: ModelConfig) -> bool:
    """Whether tokens fold into nodes before the head."""
    return config.task != "graph" and not reads_pairs(config)


def layout_key(config: ModelConfig, backend: str) -> tuple[object, ...]:
    """What a prepared batch depends on: models that agree in it can share one."""
    relation = config.resolved_relation != "none"
    virtual = config.virtual if "VT" in config.choices.patterns else 0
    choices = config.choices
    tokens = (choices.orders, choices.patterns, choices.sample, choices.index, choices.basis)
    return (*tokens, relation, virtual, config.softmax, config.task, config.directed, backend)
