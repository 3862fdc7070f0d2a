"""The update of both orders in cross-attention (appendix "Cross Attention", the three lines with ψ_e and ψ_v)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from tuplet.kernels import Lists, RowLinear, listed
from tuplet.kernels.rows import SMALL
from tuplet.models.block import (
    SplitLinear,
    make_activation,
    make_norm,
    normed,
    running_again,
    scatter_mean,
    takes_statistics,
)
from tuplet.models.config import ModelConfig
from tuplet.models.dense import has_products
from tuplet.patterns import CrossNeighbour
from tuplet.tokens import Tuples, node_lists, position_pairs


@dataclass(frozen=True)
class CrossIndex:
    """Where the parts of ψ_e and ψ_v stand.

    Args:
        first_node: (T1,) node at the first place of each query; None where queries are nodes.
        nodes: N.
        pair_nodes: two (pairs,) tensors, the nodes of each ordered pair; none for keys of order 1.
        contained: for each choice of places the (T2,) query in each key (k1 <= k2), or the (T1,) key in each query.
        key_pairs: for each two places of a key (a < b; both orders when directed) the (T2,) pair that stands there.
        live_pairs, live_keys: which of them are not padding, None where none is.
    """

    first_node: Tensor | Lists | None
    nodes: int
    pair_nodes: tuple[Tensor | Lists, ...]
    contained: tuple[Tensor | Lists, ...]
    key_pairs: tuple[Tensor | Lists | None, ...]
    live_pairs: Tensor | None
    live_keys: Tensor | None

    @classmethod
    def prepare(cls, queries: Tuples, keys: Tuples, directed: bool) -> CrossIndex:
        pairs = pairs_among(queries, keys)
        choices = CrossNeighbour(queries.order, keys.order).places
        longer, shorter = (keys, queries) if queries.order <= keys.order else (queries, keys)
        every = queries.nodes is None and queries.order == 1

        def part(tuples: Tuples, places: tuple[int, ...], count: int) -> Tensor | Lists:
            if len(places) == 1:
                return node_lists(tuples, places[0])
            return listed(tuples.code(places), count)

        def pair(places: tuple[int, int]) -> Tensor | Lists | None:
            if keys.nodes is None and keys.order == 2 and places == (0, 1):
                return None  # such a key is the pair
            return part(keys, places, pairs.total)

        return cls(
            None if every else node_lists(queries, 0),
            queries.graph.num_nodes,
            (node_lists(pairs, 0), node_lists(pairs, 1)) if keys.order > 1 else (),
            tuple(part(longer, places, queries.graph.total(shorter.order)) for places in choices),
            tuple(pair(places) for places in position_pairs(keys.order, directed)),
            pairs.live,
            keys.live,
        )


def pairs_among(queries: Tuples, keys: Tuples) -> Tuples:
    """All ordered pairs of nodes: the keys, if they are that."""
    return keys if keys.order == 2 and keys.nodes is None else Tuples.all(queries.graph, 2)


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
        self.pair_out = RowLinear(config.dim, config.dim) if pairs else None
        self.pair_norm = make_norm(config.norm, config.dim) if pairs else None
        self.key_in = SplitLinear(1 + choices + pairs, config.dim)
        self.key_out = RowLinear(config.dim, config.dim)
        self.key_norm = make_norm(config.norm, config.dim)

    def forward(self, x: Tensor, y: Tensor, e: Tensor | None, index: CrossIndex) -> tuple[Tensor, Tensor | None]:
        """Features of keys (T2, d) and of pairs (None for keys of order 1) after the layer."""
        if e is not None and self._is_fused(x, e, index):
            return self._fused(x, y, e, index)
        parts: list[tuple[Tensor, Tensor | Lists | None]] = []
        still = takes_statistics(self.key_norm, y)
        if e is not None and self.pair_in is not None and self.pair_out is not None and self.pair_norm is not None:
            nodes = scatter_mean(x, index.first_node, index.nodes)
            hidden = self.activation(self.pair_in(e, [(nodes, rows) for rows in index.pair_nodes]))
            e = normed(self.pair_norm, e, self.pair_out(hidden, still), index.live_pairs)
            parts += [(e, rows) for rows in index.key_pairs]
        if self.upward:
            parts += [(scatter_mean(x, rows, y.shape[0]), None) for rows in index.contained]
        else:
            parts += [(x, rows) for rows in index.contained]
        hidden = self.activation(self.key_in(y, parts))
        return normed(self.key_norm, y, self.key_out(hidden, still), index.live_keys), e

    def _is_fused(self, x: Tensor, e: Tensor, index: CrossIndex) -> bool:
        """Whether two operators do all of it: queries are nodes, keys their ordered pairs, and norms are batch norms."""
        plain = index.first_node is None and index.key_pairs == (None,)
        if not plain or not takes_statistics(self.key_norm, e) or not has_products(x):
            return False
        return len(x) <= SMALL or all(isinstance(rows, Lists) for rows in (*index.pair_nodes, *index.contained))

    def _fused(self, x: Tensor, y: Tensor, e: Tensor, index: CrossIndex) -> tuple[Tensor, Tensor]:
        from tuplet.kernels.project import Maps, project
        from tuplet.kernels.update import update

        parts: Any = self.pair_in, self.key_in
        (pair, *pair_maps), (key, key_pair, *key_maps) = (part.maps for part in parts)
        of_pairs, of_keys = project(*(Maps(x, maps, [len(x)]) for maps in (pair_maps, key_maps)))
        gelu, follow = isinstance(self.activation, nn.GELU), not running_again()
        maps: Any = (pair, self.pair_out), (key, self.key_out)
        norms: Any = self.pair_norm, self.key_norm
        e = update(e, None, of_pairs, index.pair_nodes, maps[0], norms[0], gelu, index.live_pairs, follow)
        beside: Any = e, key_pair.weight
        return update(y, beside, of_keys, index.contained, maps[1], norms[1], gelu, index.live_keys, follow), e
