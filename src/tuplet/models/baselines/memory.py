"""Memory of the baselines that hold something for every ordered pair of nodes, predicted from sizes alone.

Message passing and the attention of GPS hold nothing of that size, so they are not asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import nn

from tuplet.errors import TooLargeError
from tuplet.models.baselines.config import ON_PAIRS, BaselineConfig
from tuplet.models.baselines.pairs import group_by_size
from tuplet.models.cost import available_bytes

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
PATH_BYTES = 72
"""Integers of one step of one shortest path while paths are found, several of them where paths part and meet."""


def predicted_bytes(
    config: BaselineConfig, sizes: Sequence[int], parameters: Iterable[nn.Parameter], training: bool
) -> int:
    """Peak of a training step (with AdamW), or of a forward without gradients; 0 for models that hold no pairs."""
    if config.name not in KEPT:
        return 0
    pairs = sum(n * n for n in sizes)
    if config.name != "2-IGN":  # in stacks, padding counts
        pairs = sum(len(group) * sizes[group[0]] ** 2 for group in group_by_size(sizes))
    own = list(parameters)
    item = own[0].element_size()
    vectors = AROUND[config.name] + (KEPT[config.name] * config.depth if training else 0)
    width = config.dim if config.name in ON_PAIRS else config.heads
    nodes = NODE_VECTORS * sum(sizes) * config.dim * (config.depth if training else 1)
    weights = (4 if training else 1) * sum(parameter.numel() for parameter in own)
    steps = config.max_path if config.name == "Graphormer" and config.reads_edges else 0
    found = int(item * (pairs * vectors * width + nodes + weights)) + INDEX_BYTES * pairs
    return found + steps * pairs * (PATH_BYTES + 2 * item * config.heads)


def refuse_if_too_large(config: BaselineConfig, sizes: Sequence[int], parameters: Iterable[nn.Parameter]) -> None:
    """Raise, with the numbers and what to use instead, if a call would need more memory than there is."""
    if not config.check_memory or config.name not in KEPT:
        return
    own, training = list(parameters), torch.is_grad_enabled()
    needed, available = predicted_bytes(config, sizes, own, training), available_bytes(own[0].device)
    if needed > available:
        raise TooLargeError(
            f"{config.name} needs about {needed / 1e9:.1f} GB for a {'training step' if training else 'forward pass'} and "
            f"{own[0].device} has {available / 1e9:.1f} GB: {len(sizes)} graph(s) of at most n = {max(sizes)} nodes are "
            f"{sum(n * n for n in sizes):,} pairs at dim = {config.dim}, depth = {config.depth}. "
            "Cheaper: GPS, GINE; or use fewer graphs a batch, a smaller dim or depth."
        )
