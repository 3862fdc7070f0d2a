"""Everything of a batch whose shape depends on data, built once before the model runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tuplet.attention import Group
from tuplet.graphs import GraphBatch
from tuplet.kernels import Lists, listed
from tuplet.models.attention import Layouts
from tuplet.models.config import ModelConfig
from tuplet.models.cross import CrossIndex, pairs_among
from tuplet.models.encoded import pair_width
from tuplet.models.pooling import Incidence, Prefixes
from tuplet.models.reading import edge_simplices, queried_pairs
from tuplet.patterns import (
    CrossNeighbour,
    Dense,
    FusedLines,
    LocalNeighbour,
    Neighbour,
    Pattern,
    SimplexDense,
    SimplexNeighbour,
    Virtual,
    define,
    virtual_layout,
    virtual_pairs,
)
from tuplet.tokens import (
    SimplexParts,
    Simplices,
    Tokens,
    TupleParts,
    Tuples,
    connected_tuples,
    constant_lists,
    pair_lists,
    random_tuples,
)
from tuplet.tokens.sampling import LIMIT
from tuplet.topology import cliques, complex_of

Patterns = tuple[Pattern[Any], ...]


def make_patterns(config: ModelConfig) -> Patterns:
    """The patterns that a model sums, virtual tokens not among them."""
    choices = config.choices
    if choices.dims is not None:
        if choices.patterns:
            return (SimplexNeighbour(config.joint),) if choices.sparse else ()
        return (SimplexDense(config.phi != "types", config.laplacian == "inter"),)
    if choices.cross:
        return (CrossNeighbour(*choices.orders),) if choices.patterns else (Dense(choices.orders, choices.basis),)  # type: ignore[arg-type]
    order = choices.orders[0]
    if not choices.patterns:
        return (Dense((order, order), choices.basis),)
    made: dict[str, Pattern[Any]] = {
        "Ngbh": Neighbour(order),
        "Ngbh+": Neighbour(order, adjacency=True, directed=config.directed, kinds=config.edge_kinds),
        "LN": LocalNeighbour(order, config.edge_kinds),
    }
    return tuple(made[name] for name in choices.sparse)


@dataclass(frozen=True)
class Prepared:
    """A checked batch, its tokens, and the layouts of attention and pooling; ``model(prepared)`` runs it.

    Args:
        graph: the checked batch.
        queries, keys: the tokens that are updated by attention, and those they attend to (the same but for cross).
        query_parts, key_parts: what the tokens are made of.
        layouts: who sees whom.
        query_graph: (T1,) graph of each query; of nodes only where only the tokens that stand for one are pooled.
        node_queries: (N,) the query that stands for each node, where only these are pooled and are not the first ones.
        cross: indices of ψ_e and ψ_v, cross-attention only.
        pair_places: row of the pair table of each ordered pair of nodes, where a cross-attention updates e.
        prefixes: how tuples fold to nodes, for node and edge tasks.
        incidence: which simplices a node lies in, where nodes are no tokens themselves.
        edge_simplex: (E,) 1-simplex of each edge, where tuples carry encodings of edges.
        query_pairs: for an edge task the rows to read, of tokens or of nodes: two, whose vectors are concatenated, or four,
            where the last two are added to the first two.
        key: what it was prepared for.
    """

    graph: GraphBatch
    queries: Tokens
    keys: Tokens
    query_parts: TupleParts | SimplexParts
    key_parts: TupleParts | None
    layouts: Layouts
    query_graph: Tensor | Lists
    node_queries: Tensor | Lists | None
    cross: CrossIndex | None
    pair_places: Tensor | Lists | None
    prefixes: Prefixes | None
    incidence: Incidence | None
    edge_simplex: Tensor | None
    query_pairs: tuple[Tensor | Lists, ...] | None
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


def make_tokens(config: ModelConfig, graph: GraphBatch, limit: int = cliques.LIMIT) -> tuple[Tokens, Tokens]:
    """Queries and keys: simplices (at most ``limit`` of them), all tuples of their order, or the sample that came along."""
    choices = config.choices
    if choices.dims is not None:
        low, high = choices.dims
        # only relations and degrees look above the tokens
        looks_up = bool(choices.sparse) or config.resolved_relation != "none" or config.degrees
        top = high + 1 if looks_up and not config.truncate else high
        tokens = Simplices.take(graph, complex_of(graph, top, limit), low, high)
        return tokens, tokens
    side = choices.sampled_side
    queries = (Tuples.sampled if side == "queries" else Tuples.all)(graph, choices.orders[0])
    if not choices.cross:
        return queries, queries
    return queries, (Tuples.sampled if side == "keys" else Tuples.all)(graph, choices.orders[1])


def make_layouts(config: ModelConfig, patterns: Patterns, queries: Tokens, keys: Tokens, backend: str) -> Layouts:
    """Lay the patterns out for the backend: as definitions for ``reference``, as structures otherwise."""
    typed = config.resolved_relation != "none"

    def groups(pattern: Pattern[Any]) -> tuple[Group, ...]:
        if backend == "reference":
            once = config.joint and pattern.shared_self
            return tuple(define(pattern, queries, keys, j, once and j > 0) for j in range(pattern.groups))
        if backend == "torch":
            return tuple(structure.planned() for structure in pattern.layouts(queries, keys, typed, config.joint))
        return pattern.fused(queries, keys, typed, config.joint)

    def virtual_groups(queries: Tokens, keys: Tokens) -> Group:
        if backend == "reference":
            return virtual_pairs(queries, keys)
        lines = virtual_layout(queries, keys)
        return lines.planned() if backend == "torch" else FusedLines.stack((lines,))

    virtual = Virtual.make(queries.graph, config.virtual if config.choices.virtual else 0)
    downward = virtual_groups(queries, virtual) if virtual.total else None
    upward: Group | None = downward.flipped if isinstance(downward, FusedLines) and keys is queries else None
    if virtual.total and upward is None:
        upward = virtual_groups(virtual, keys)
    return Layouts(
        tuple(groups(pattern) for pattern in patterns),
        downward,
        upward,
        keys.graph_of_token,
        virtual.graph_of_token,
        queries.graph.num_graphs,
        keys.sizes if isinstance(keys, Simplices) else (),
        patterns[0].values(keys) if typed and patterns else None,
        queries.live,
        virtual.live,
    )


def prepare(config: ModelConfig, patterns: Patterns, tokens: tuple[Tokens, Tokens], backend: str) -> Prepared:
    """All of the above for the tokens of one checked batch."""
    queries, keys = tokens
    graph = queries.graph
    prepared = Prepared(
        graph=graph,
        queries=queries,
        keys=keys,
        query_parts=_parts(config, queries),
        key_parts=None,
        layouts=make_layouts(config, patterns, queries, keys, backend),
        query_graph=_graphs(graph.graph_of_node, graph.ptr, graph.ptr[:0])
        if config.pool_over == "nodes"
        else _graphs(queries.graph_of_token, queries.ptr, queries.by_graph),
        node_queries=None,
        cross=None,
        pair_places=None,
        prefixes=None,
        incidence=None,
        edge_simplex=None if isinstance(queries, Simplices) else edge_simplices(config.encodings, graph),
        query_pairs=None,
        key=layout_key(config, backend),
    )
    if isinstance(queries, Simplices):
        return replace(
            prepared,
            incidence=Incidence.prepare(queries) if pools_to_nodes(config) and queries.low > 0 else None,
            query_pairs=_simplex_pairs(queries) if config.task == "edge" else None,
        )
    assert isinstance(queries, Tuples)
    assert isinstance(keys, Tuples)
    if config.choices.cross:
        prepared = replace(
            prepared,
            cross=CrossIndex.prepare(queries, keys, config.directed),
            pair_places=pair_lists(pairs_among(queries, keys), 0, 1) if keys.order > 1 else None,
            key_parts=TupleParts.prepare(
                keys, config.directed, config.choices.index, bool(pair_width(config.encodings))
            ),
        )
    return replace(
        prepared,
        node_queries=constant_lists(queries) if config.pool_over == "nodes" and queries.order > 1 else None,
        prefixes=Prefixes.prepare(queries) if pools_to_nodes(config) else None,
        query_pairs=_tuple_pairs(config, queries) if config.task == "edge" else None,
    )


def _graphs(graph: Tensor, ptr: Tensor, order: Tensor) -> Tensor | Lists:
    """(T,) the graph of each token, with the tokens of each graph where kernels ask for them."""
    return Lists(graph, order, ptr[:-1], ptr[1:]) if graph.device.type == "cuda" else graph


def _parts(config: ModelConfig, tokens: Tokens) -> TupleParts | SimplexParts:
    encoded = bool(pair_width(config.encodings))
    if isinstance(tokens, Simplices):
        return SimplexParts.prepare(tokens, config.degrees, encoded)
    assert isinstance(tokens, Tuples)
    return TupleParts.prepare(tokens, config.directed, config.choices.index, encoded)


def _tuple_pairs(config: ModelConfig, tokens: Tuples) -> tuple[Tensor | Lists, ...]:
    """For each queried pair (i, j) the tuples (i, j) and (j, i), or the nodes i and j where tokens fold into nodes."""
    graph = tokens.graph
    u, v = queried_pairs(graph)
    if not reads_pairs(config):
        return listed(u, graph.num_nodes), listed(v, graph.num_nodes)
    return listed(graph.pair_number(u, v), tokens.total), listed(graph.pair_number(v, u), tokens.total)


def _simplex_pairs(tokens: Simplices) -> tuple[Tensor | Lists, ...]:
    """For each queried pair its 1-simplex, twice; where there is none its two nodes.

    In a directed graph the two nodes in their order come with the simplex, which does not know an order itself. Nodes are
    the first tokens, or follow after the tokens where they are none themselves.
    """
    graph = tokens.graph
    pairs = queried_pairs(graph)
    nodes = pairs if tokens.low == 0 else pairs + tokens.total
    count = tokens.total + (graph.num_nodes if tokens.low else 0)
    if not tokens.low <= 1 <= tokens.high:
        return listed(nodes[0], count), listed(nodes[1], count)
    ends = pairs.t().sort(dim=1).values
    number = torch.where(ends[:, 0] < ends[:, 1], tokens.complex.find(ends), -1)
    row = tokens.first(1) + number
    rows = torch.where(number >= 0, row, nodes[0]), torch.where(number >= 0, row, nodes[1])
    return tuple(listed(own, count) for own in ((*rows, nodes[0], nodes[1]) if graph.directed else rows))


def reads_pairs(config: ModelConfig) -> bool:
    """Whether the edge head reads the tuples (i, j) and (j, i): order 2, all tuples. A sample may lack them."""
    return config.task == "edge" and config.choices.orders[:1] == (2,) and config.choices.sampled_side != "queries"


def pools_to_nodes(config: ModelConfig) -> bool:
    """Whether tokens fold into nodes before the head; with simplices of dimension 0 up, nodes are tokens already."""
    dims = config.choices.dims
    return config.task != "graph" and not reads_pairs(config) and (dims is None or dims[0] > 0)


def layout_key(config: ModelConfig, backend: str) -> tuple[object, ...]:
    """What a prepared batch depends on: models that agree in it can share one."""
    choices = config.choices
    tokens = (choices.orders, choices.dims, choices.patterns, choices.sample, choices.index, choices.basis)
    simplices = (config.truncate, config.laplacian, config.phi == "types", config.pool_over, config.degrees)
    virtual = config.virtual if choices.virtual else 0
    relation = config.resolved_relation != "none"
    options = (relation, config.edge_kinds, virtual, config.joint, config.task, config.directed, config.encodings)
    features = (config.node_features, config.edge_features)
    drawn = (choices.budget, config.repeats, config.sample_seed, config.connected_share) if choices.sample else ()
    return (*tokens, *simplices, *options, *features, *drawn, backend)
