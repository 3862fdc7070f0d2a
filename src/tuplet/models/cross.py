"""The update of both orders in cross-attention (appendix "Cross Attention", the three lines with ψ_e and ψ_v)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from tuplet.models.block import SplitLinear, make_activation, make_norm, scatter_mean
from tuplet.models.config import ModelConfig
from tuplet.patterns import CrossNeighbour
from tuplet.tokens import Tuples, position_pairs


@dataclass(frozen=True)
class CrossIndex:
    """Where the parts of ψ_e and ψ_v stand.

    Args:
        first_node: (T1,) node at the first place of each query.
        nodes: N.
        pair_nodes: two (pairs,) tensors, the nodes of each ordered pair; none for keys of order 1.
        contained: for each choice of places the (T2,) query in each key (k1 <= k2), or the (T1,) key in each query.
        key_pairs: for each two places of a key (a < b; both orders when directed) the (T2,) pair that stands there.
    """

    first_node: Tensor
    nodes: int
    pair_nodes: tuple[Tensor, ...]
    contained: tuple[Tensor, ...]
    key_pairs: tuple[Tensor, ...]

    @classmethod
    def prepare(cls, queries: Tuples, keys: Tuples, directed: bool) -> CrossIndex:
        pairs = Tuples.all(queries.graph, 2)
        choices = CrossNeighbour(queries.order, keys.order).places
        longer = keys if queries.order <= keys.order else queries
        return cls(
            queries.node(0),
            queries.graph.num_nodes,
            (pairs.node(0), pairs.node(1)) if keys.order > 1 else (),
            tuple(longer.code(places) for places in choices),
            tuple(keys.code(places) for places in position_pairs(keys.order, directed)),
        )


class CrossUpdate(nn.Module):
    """e_uv <- ψ_e(e_uv, X_u, X_v) and Y_J <- ψ_v(Y_J, X of the queries in J, e of the pairs in J), each with residual and norm.

    For k1 = 1, k2 = 2 these are the paper's lines. In general X_u is the mean of the queries that begin with u, and the
    queries in J are its sub-tuples of length k1; for k1 > k2 it is the mean of the queries that contain J at the same places.
    Pairs are all ordered pairs of nodes, so that e exists for non-edges too; keys of order 1 have no pairs. Keys and pairs
    are normed after their residual whatever ``norm_position`` says of the queries, and have no dropout.
    """

    def __init__(self, config: ModelConfig, query_order: int, key_order: int) -> None:
        super().__init__()
        self.upward = query_order > key_order
        choices = CrossNeighbour(query_order, key_order).groups
        pairs = len(position_pairs(key_order, config.directed))
        self.activation = make_activation(config.activation)
        self.pair_in = SplitLinear(3, config.dim) if pairs else None
        self.pair_out = nn.Linear(config.dim, config.dim) if pairs else None
        self.pair_norm = make_norm(config.norm, config.dim) if pairs else None
        self.key_in = SplitLinear(1 + choices + pairs, config.dim)
        self.key_out = nn.Linear(config.dim, config.dim)
        self.key_norm = make_norm(config.norm, config.dim)

    def forward(self, x: Tensor, y: Tensor, e: Tensor | None, index: CrossIndex) -> tuple[Tensor, Tensor | None]:
        """Features of keys (T2, d) and of pairs (None for keys of order 1) after the layer."""
        parts: list[tuple[Tensor, Tensor | None]] = []
        if e is not None and self.pair_in is not None and self.pair_out is not None and self.pair_norm is not None:
            nodes = scatter_mean(x, index.first_node, index.nodes)
            hidden = self.activation(self.pair_in(e, [(nodes, rows) for rows in index.pair_nodes]))
            e = self.pair_norm(e + self.pair_out(hidden))
            parts += [(e, rows) for rows in index.key_pairs]
        if self.upward:
            parts += [(scatter_mean(x, rows, y.shape[0]), None) for rows in index.contained]
        else:
            parts += [(x, rows) for rows in index.contained]
        hidden = self.activation(self.key_in(y, parts))
        return self.key_norm(y + self.key_out(hidden)), e
