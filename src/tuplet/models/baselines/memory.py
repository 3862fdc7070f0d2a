"""Memory of a baseline, predicted from the sizes of its graphs alone: what autograd keeps, in vectors of width d."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from tuplet._memory import available_bytes
from tuplet.errors import TooLargeError
from tuplet.models.baselines.config import ON_PAIRS, BaselineConfig
from tuplet.models.baselines.pairs import group_by_size
from tuplet.models.baselines.paths import EDGES_AT_ONCE

KEPT = {"PPGN": 12, "2-IGN": 3, "Graphormer": 1.2}
"""Vectors that autograd keeps for a pair in one layer: of width d, or for Graphormer of one number a head.

PPGN: two MLPs with inputs and outputs of their activations (2 · 4), the factors and their product in stacks, the concatenation, less
what they share; 2-IGN: norm, activation, result; Graphormer: the weights, and a share of what their gradient needs.
"""
AROUND = {"PPGN": 9, "2-IGN": 6.5, "Graphormer": 1.5}
"""The same once for the whole model: first vectors, gradients in flight; and all there is without gradients."""
NODE_VECTORS = 15
"""Vectors of width d that Graphormer keeps for a node in one layer."""
INDEX_BYTES = 88
"""Rows and places of a pair: eleven integers."""
LOOKED_BYTES, STEP_BYTES = 8, 40
"""For an edge that may be looked at while shortest paths are followed (most are not), and for a step of a path, which is kept."""


@dataclass(frozen=True)
class Held:
    """Vectors of width d that message passing holds, each for (a node, an edge).

    Args:
        layer: that autograd keeps in one layer.
        around: once for the whole model: first vectors, messages and gradients in flight.
        forward: all there is without gradients.
    """

    layer: tuple[float, float]
    around: tuple[float, float]
    forward: tuple[float, float]


MESSAGES = {
    "GCN": Held((3, 0), (2, 2), (5, 2)),
    "GIN": Held((7, 0), (1, 1), (3, 1)),
    "GINE": Held((7, 1), (0, 2), (1, 3)),
    "GAT": Held((5, 1.3), (2, 3), (5, 2)),
    "GatedGCN": Held((5, 5), (0, 1), (3, 5)),
    "PNA": Held((23, 3), (19, 5), (19, 5)),
    "GPS": Held((16, 1), (7, 1), (8, 2.7)),
}
"""Measured with batch norm and GELU; PNA has twelve aggregates a node, and GatedGCN gates and norms of edges."""
TOLD = {"GAT": 2, "PNA": 1}
"""Vectors more for an edge in one layer, where edges have vectors; loops of GAT are edges too."""


def predicted_bytes(
    config: BaselineConfig, sizes: Sequence[int], edges: int, parameters: Iterable[nn.Parameter], training: bool
) -> int:
    """Peak of a training step (with AdamW), or of a forward without gradients.

    Args:
        config: the options.
        sizes: nodes of each graph.
        edges: directed edges of all graphs together.
        parameters: of the model.
        training: which of the two.
    """
    own = list(parameters)
    item = own[0].element_size()
    weights = (4 if training else 1) * item * sum(parameter.numel() for parameter in own)
    if config.name in MESSAGES:
        return weights + int(item * config.dim * _message_vectors(config, sum(sizes), edges, training))
    return weights + _pair_bytes(config, sizes, item, training) + _path_bytes(config, sizes, edges, item)


def _message_vectors(config: BaselineConfig, nodes: int, edges: int, training: bool) -> float:
    held, layers = MESSAGES[config.name], config.depth if training else 0
    at_node, at_edge = held.around if training else held.forward
    found = (at_node + layers * held.layer[0]) * nodes + (at_edge + layers * held.layer[1]) * edges
    found += edges if config.edge_features.columns else 0
    more = TOLD.get(config.name, 0) if config.reads_edges else 0
    return found + more * max(layers, 1) * (edges + nodes * (config.name == "GAT"))


def _pair_bytes(config: BaselineConfig, sizes: Sequence[int], item: int, training: bool) -> int:
    sizes = [n + config.virtual_node for n in sizes]
    pairs = sum(n * n for n in sizes)
    if config.name != "2-IGN":  # in stacks, padding counts
        pairs = sum(len(group) * sizes[group[0]] ** 2 for group in group_by_size(sizes))
    vectors = AROUND[config.name] + (KEPT[config.name] * config.depth if training else 0)
    width = config.dim if config.name in ON_PAIRS else config.heads
    nodes = NODE_VECTORS * sum(sizes) * config.dim * (config.depth if training else 1)
    return int(item * (pairs * vectors * width + nodes)) + INDEX_BYTES * pairs


def _path_bytes(config: BaselineConfig, sizes: Sequence[int], edges: int, item: int) -> int:
    """Shortest paths of all pairs, where Graphormer reads edges: by chance degree² / n of them have length two."""
    if config.name != "Graphormer" or not config.reads_edges:
        return 0
    pairs, degree = sum(n * n for n in sizes), edges / sum(sizes)
    ways = degree**2 / max(sizes)
    looked = min(pairs * degree * (1 + ways), EDGES_AT_ONCE)
    return int(LOOKED_BYTES * looked + pairs * (config.max_path + ways) * (STEP_BYTES + 2 * item * config.heads))


def refuse_if_too_large(
    config: BaselineConfig, sizes: Sequence[int], edges: int, parameters: Iterable[nn.Parameter]
) -> None:
    """Raise, with the numbers and what to use instead, if a call would need more memory than there is."""
    if not config.check_memory:
        return
    own, training = list(parameters), torch.is_grad_enabled()
    needed, available = predicted_bytes(config, sizes, edges, own, training), available_bytes(own[0].device)
    if needed > available:
        counted = f"{edges:,} edges" if config.name in MESSAGES else f"{sum(n * n for n in sizes):,} pairs"
        cheaper = "Use" if config.name in MESSAGES else "Cheaper: GPS, GINE; or use"
        raise TooLargeError(
            f"{config.name} needs about {needed / 1e9:.1f} GB for a {'training step' if training else 'forward pass'} and "
            f"{own[0].device} has {available / 1e9:.1f} GB: {len(sizes)} graph(s) of at most n = {max(sizes)} nodes have "
            f"{counted} at dim = {config.dim}, depth = {config.depth}. {cheaper} fewer graphs a batch, a smaller dim or depth."
        )
