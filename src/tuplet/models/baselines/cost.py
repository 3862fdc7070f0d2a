"""What a training step of a baseline will cost, before any of it runs; the same numbers as for transformers."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from tuplet.graphs import GraphBatch
from tuplet.models.baselines.config import ON_PAIRS, BaselineConfig
from tuplet.models.baselines.memory import predicted_bytes
from tuplet.models.cost import Cost


def estimate(config: BaselineConfig, graph: GraphBatch, parameters: Iterable[nn.Parameter]) -> Cost:
    """Predict a step on a checked batch.

    Tokens are nodes, or ordered pairs of nodes for PPGN and 2-IGN. Pairs are those of a token and one that it hears from in
    a layer: edges and the loops that a layer adds; all pairs of nodes for Graphormer, and for GPS besides edges; pairs for
    2-IGN, whose sums visit each once; and the triples of PPGN's products, where (i, j) hears from (i, w) and (w, j).
    """
    own = list(parameters)
    sizes, edges = graph.sizes, graph.num_edges
    squares, cubes = sum(n**2 for n in sizes), sum(n**3 for n in sizes)
    pairs = {
        "GCN": edges + graph.num_nodes,
        "GAT": edges + graph.num_nodes,
        "GPS": edges + squares,
        "Graphormer": squares + config.virtual_node * (2 * graph.num_nodes + graph.num_graphs),
        "2-IGN": squares,
        "PPGN": cubes,
    }.get(config.name, edges)
    tokens, item = squares if config.name in ON_PAIRS else graph.num_nodes, own[0].element_size()
    numbers = 5 * config.depth * tokens * config.dim + 7 * sum(one.numel() for one in own)
    return Cost(
        tokens=tokens,
        pairs=pairs,
        flops=3 * config.depth * _layer_flops(config, graph, pairs),
        peak_bytes=predicted_bytes(config, sizes, edges, own, training=True),
        inference_bytes=predicted_bytes(config, sizes, edges, own, training=False),
        least_traffic=numbers * item,
        graphs=(max(sizes), graph.num_graphs),
    )


def _layer_flops(config: BaselineConfig, graph: GraphBatch, pairs: int) -> int:
    """Of one layer, forward: matrices of d × d, and what is done channel by channel for each pair."""
    name, d, towers = config.name, config.dim, config.heads
    nodes, edges, told = graph.num_nodes, graph.num_edges, config.reads_edges
    matrices: float = {
        "GCN": nodes,
        "GAT": nodes + (pairs if told else 0),
        "GIN": 2 * nodes,
        "GINE": 2 * nodes,
        "GatedGCN": 4 * nodes + edges,
        "PNA": nodes + (13 * nodes + (4 if told else 2) * edges) / towers,
        "GPS": (2 + 4 + 4) * nodes,
        "Graphormer": (4 + 4) * (nodes + config.virtual_node * graph.num_graphs),
        "PPGN": 6 * sum(n**2 for n in graph.sizes),
        "2-IGN": 2 * pairs + 9 * nodes + 4 * graph.num_graphs,
    }[name]
    a_pair = {"GatedGCN": 8, "PNA": 8, "GPS": 4, "Graphormer": 4, "2-IGN": 8}.get(name, 2)
    return int(2 * d * d * matrices) + a_pair * d * pairs
