"""Everything of a batch whose shape depends on data, built once before a baseline runs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tuplet.graphs import GraphBatch
from tuplet.models.attention import Layouts
from tuplet.models.baselines.config import ON_PAIRS, BaselineConfig
from tuplet.models.baselines.pairs import Pairs
from tuplet.models.baselines.paths import Paths
from tuplet.models.encoded import pair_width
from tuplet.models.prepare import make_layouts
from tuplet.models.reading import edge_simplices, queried_pairs
from tuplet.patterns import Dense
from tuplet.tokens import TupleParts, Tuples


@dataclass(frozen=True)
class PreparedGraphs:
    """A checked batch with the index lists that a baseline reads; ``model(prepared)`` runs it.

    Args:
        graph: the checked batch.
        edge_index: (2, E) source and target of each edge, as PyG's layers take them.
        looped: (2, E + N) the same with a loop at every node at the end (GCN, GAT), else None.
        weight: (E + N,) float64 1 / sqrt(d_u d_v) with d = 1 + degree (GCN), else None.
        layouts: every node sees every node of its graph (GPS), else None.
        pairs: all ordered pairs (Graphormer, PPGN, 2-IGN), else None.
        paths: edges of shortest paths, where Graphormer reads edges, else None.
        parts: what pairs are made of (PPGN, 2-IGN), else None.
        edge_simplex: (E,) 1-simplex of each edge, where encodings describe simplices, else None.
        node_pair, edge_pair: (N,) and (E,) number of (i, i), and of an edge, among all ordered pairs, where encodings
            describe pairs, else None.
        queries: for an edge task the two rows to read of each queried pair: its nodes, or (i, j) and (j, i) among all pairs.
        key: what it was prepared for.
    """

    graph: GraphBatch
    edge_index: Tensor
    looped: Tensor | None
    weight: Tensor | None
    layouts: Layouts | None
    pairs: Pairs | None
    paths: Paths | None
    parts: TupleParts | None
    edge_simplex: Tensor | None
    node_pair: Tensor | None
    edge_pair: Tensor | None
    queries: tuple[Tensor, Tensor] | None
    key: tuple[object, ...]


def prepare(config: BaselineConfig, graph: GraphBatch) -> PreparedGraphs:
    """All of the above for one checked batch."""
    name, on_pairs = config.name, config.name in ON_PAIRS
    edge_index = torch.stack([graph.row, graph.col])
    nodes = torch.arange(graph.num_nodes, device=graph.device)
    _ = graph.graph_of_node  # made now, so that the forward compiles as one graph
    looped = weight = layouts = pairs = paths = parts = None
    if name in ("GCN", "GAT"):
        looped = torch.cat([edge_index, nodes.expand(2, -1)], dim=1)
    if name == "GCN" and looped is not None:
        degree = torch.bincount(looped[1], minlength=graph.num_nodes).double()
        weight = (degree[looped[0]] * degree[looped[1]]).rsqrt()
    if name == "GPS":
        tokens = Tuples.all(graph, 1)
        layouts = make_layouts(config.common, (Dense((1, 1)),), tokens, tokens, "torch")
    if name == "Graphormer" or on_pairs:
        pairs = Pairs.prepare(graph, stacked=name != "2-IGN")
    if name == "Graphormer" and config.reads_edges and pairs is not None:
        assert graph.statistics is not None
        paths = Paths.prepare(graph, pairs, graph.statistics["pe_spd"][:, 0].long(), config.max_path)
    encoded = bool(pair_width(config.encodings))
    queries = None
    if config.task == "edge":
        u, v = queried_pairs(graph)
        queries = (graph.pair_number(u, v), graph.pair_number(v, u)) if on_pairs else (u, v)
    if on_pairs:
        parts = TupleParts.prepare(Tuples.all(graph, 2), config.directed, False, encoded)
    return PreparedGraphs(
        graph=graph,
        edge_index=edge_index,
        looped=looped,
        weight=weight,
        layouts=layouts,
        pairs=pairs,
        paths=paths,
        parts=parts,
        edge_simplex=edge_simplices(config.encodings, graph),
        node_pair=graph.pair_number(nodes, nodes) if encoded and not on_pairs else None,
        edge_pair=graph.pair_number(graph.row, graph.col) if encoded and config.reads_edges else None,
        queries=queries,
        key=prepared_key(config),
    )


def prepared_key(config: BaselineConfig) -> tuple[object, ...]:
    """What a prepared batch depends on: models that agree in it can share one."""
    options = (config.name, config.task, config.directed, config.reads_edges, config.encodings, config.max_path)
    return (*options, config.common.node_features, config.common.edge_features)
