"""Attention weights of one layer of GAT, GPS or Graphormer, with the nodes that each of them belongs to."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from tuplet.models.baselines.prepared import PreparedGraphs
from tuplet.models.explain import Explanation, GroupWeights, Token
from tuplet.tokens import Tuples


@runtime_checkable
class Attending(Protocol):
    """A layer in which nodes look at nodes.

    ``looks_at`` says at which. ``weights`` takes what the layer's ``forward`` does and gives the node that looks (P,), the
    node looked at (P,), and the weight (P, h).
    """

    looks_at: str

    def weights(self, x: Tensor, beside: Any, prepared: PreparedGraphs) -> tuple[Tensor, Tensor, Tensor]: ...


def explain_nodes(layer: Attending, x: Tensor, beside: Any, prepared: PreparedGraphs) -> Explanation:
    """Every weight of a layer, from nodes x (N, d) and what comes beside them: vectors of edges, or biases of pairs."""
    query, key, weight = layer.weights(x, beside, prepared)
    nodes: list[Token] = list(Tuples.all(prepared.graph, 1).tolist())
    nodes += [(graph, "virtual 0") for graph in range(len(x) - len(nodes))]
    heads = tuple(range(weight.shape[1]))
    return Explanation(nodes, [GroupWeights(layer.looks_at, heads, query, key, weight, nodes, nodes)])
