"""First features of tuples by isomorphism type (appendix "Initialization", Remark 4)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, permutations, product
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tuplet.graphs import Features, GraphBatch
from tuplet.graphs.memory import remembered
from tuplet.kernels import Lists, RowLinear, linear, take, take_sum
from tuplet.tokens.tuples import Tuples

SAME, NO_EDGE, FIRST_EDGE = 0, 1, 2
"""Rows of the pair table: both entries are one node; no edge; then one row an edge."""


def position_pairs(order: int, directed: bool) -> tuple[tuple[int, int], ...]:
    """Pairs of places whose relation belongs to the isomorphism type: a < b, and both orders when edges have a direction."""
    return tuple(permutations(range(order), 2) if directed else combinations(range(order), 2))


def pair_rows(tuples: Tuples, a: int, b: int) -> Tensor:
    """(T,) row of the pair table for the entries at places a and b."""
    graph = tuples.graph
    if tuples.order == 2 and tuples.nodes is None:  # written where it is known, instead of looked up everywhere
        rows = torch.full((tuples.total,), NO_EDGE, device=tuples.device)
        rows[_edge_tuples(graph, a, b)] = torch.arange(FIRST_EDGE, FIRST_EDGE + graph.num_edges, device=tuples.device)
        return rows.index_fill_(0, graph.node_pairs, SAME)
    u, v = tuples.node(a), tuples.node(b)
    edge = graph.edge_number(u, v)
    rows = torch.where(edge >= 0, edge + FIRST_EDGE, NO_EDGE)
    return torch.where(u == v, SAME, rows)


def _edge_tuples(graph: GraphBatch, a: int, b: int) -> Tensor:
    """(E,) the 2-tuple in which the edge goes from the entry at place a to that at place b."""
    return graph.edge_pairs if a < b else graph.pair_number(graph.col, graph.row)


@remembered
def pair_lists(tuples: Tuples, a: int, b: int, listed: bool | None = None) -> Tensor | Lists:
    """The same, with the tokens of each row of the table where kernels ask for them: on a GPU, or if ``listed``.

    Most tuples are "no edge": the tokens of the first two rows are not listed.
    """
    rows = pair_rows(tuples, a, b)
    if not (rows.device.type == "cuda" if listed is None else listed):
        return rows
    graph, edges = tuples.graph, tuples.graph.num_edges
    if tuples.order > 2 or tuples.nodes is not None:
        return Lists.sort(rows, FIRST_EDGE + edges, FIRST_EDGE)
    bounds = torch.arange(-FIRST_EDGE, edges + 1, device=rows.device).clamp_min_(0)
    return Lists(rows, _edge_tuples(graph, a, b), bounds[:-1], bounds[1:], FIRST_EDGE)


@remembered
def node_lists(tuples: Tuples, axis: int, listed: bool | None = None) -> Tensor | Lists:
    """(T,) the node at ``axis``, with the tuples of each node where kernels ask for them: on a GPU, or if ``listed``."""
    rows, graph = tuples.node(axis), tuples.graph
    if not (rows.device.type == "cuda" if listed is None else listed):
        return rows
    if tuples.nodes is not None:
        return Lists.sort(rows, graph.num_nodes)
    return Lists(rows, tuples.by_entry(axis) if axis else rows.new_empty(0), *tuples.node_bounds)


def constant_lists(tuples: Tuples, listed: bool | None = None) -> Tensor | Lists:
    """(N,) the tuple (i, .., i) of each node i, with the node of each such tuple where kernels ask for it: on a GPU, or if ``listed``."""
    rows = tuples.of_nodes
    if not (rows.device.type == "cuda" if listed is None else listed):
        return rows
    begin, constant = tuples.node(0), torch.ones_like(tuples.node(0))
    for axis in range(1, tuples.order):
        constant *= tuples.entry(axis) == tuples.entry(0)
    return Lists(rows, rows[:0], begin, begin + constant)


class Encoder(nn.Module):
    """Declared features to vectors: the sum of one embedding a categorical column, or a linear map of a real vector.

    Without features every row gets the same learned vector.
    """

    def __init__(self, features: Features, dim: int) -> None:
        super().__init__()
        self.features = features
        self.constant = nn.Parameter(torch.randn(dim) * 0.5)
        self.tables = nn.ModuleList(nn.Embedding(count, dim) for count in features.types or ())
        self.linear = nn.Linear(features.dim, dim, bias=False) if features.dim else None

    def forward(self, values: Tensor | None, rows: int) -> Tensor:
        if values is None or self.features.columns == 0:
            return self.constant.expand(rows, -1)
        # the constant joins as a bias, or a table of few rows: it has a quick gradient there
        if self.linear is not None:
            return linear(values.to(self.linear.weight.dtype), self.linear.weight, self.constant)
        tables = [table.weight for table in self.tables if isinstance(table, nn.Embedding)]
        out = take(tables[0] + self.constant, values[:, 0].long())
        for column, table in enumerate(tables[1:], start=1):
            out = out + take(table, values[:, column].long())
        return out


class NodeEmbedding(nn.Module):
    """Vectors of nodes from their features, self loops and, by option, degrees.

    Degrees are one of the paper's two remedies for a softmax that cannot count (proof of Theorem 4.3): log(1 + degree)
    is one more input column (in- and out-degree for directed graphs).
    """

    def __init__(self, features: Features, edges: Features, dim: int, degree: bool, directed: bool) -> None:
        super().__init__()
        self.encoder = Encoder(features, dim)
        self.loops = Encoder(edges, dim)
        self.degree = nn.Linear(2 if directed else 1, dim, bias=False) if degree else None

    def forward(self, graph: GraphBatch) -> Tensor:
        out = self.encoder(graph.x, graph.num_nodes)
        if graph.padded:  # which has no loops
            return out if self.degree is None else out + self.degree(torch.log1p(graph.degrees().to(out.dtype)))
        # row 0 says "no loop"; a loop brings the features of its edge along
        values = None if graph.edge_attr is None else graph.edge_attr[graph.num_edges :]
        count = graph.num_nodes if values is None else len(values)
        loops = F.pad(self.loops(values, count), (0, 0, 1, 0))
        row = graph.loop - graph.num_edges + 1 if values is not None else torch.ones_like(graph.loop)
        out = out + F.embedding(torch.where(graph.loop < 0, 0, row), loops)
        if self.degree is not None:
            out = out + self.degree(torch.log1p(graph.degrees().to(out.dtype)))
        return out


class PairTable(nn.Module):
    """One vector for "same node", one for "no edge", one for every edge of the batch: (2 + E, d)."""

    def __init__(self, features: Features, dim: int) -> None:
        super().__init__()
        self.encoder = Encoder(features, dim)
        self.special = nn.Parameter(torch.randn(2, dim) * 0.5)

    def forward(self, graph: GraphBatch) -> Tensor:
        values = None if graph.edge_attr is None else graph.edge_attr[: graph.num_edges]
        return torch.cat([self.special, self.encoder(values, graph.num_edges)])


@dataclass(frozen=True)
class TupleParts:
    """What tuples are made of: rows of the node table and of the pair table.

    Args:
        nodes: for each place the (T,) node; here and below with the tokens of each row where kernels ask for them.
        pairs: for each pair of places the (T,) row of the pair table.
        index: (T, k) tuple indices, only where the model reads them.
        encoded: for each ordered pair of places (a place with itself included) the (T,) number of the two entries among all
            ordered pairs of nodes; only where the model has encodings of pairs.
    """

    nodes: list[Tensor | Lists]
    pairs: list[Tensor | Lists]
    index: Tensor | None
    encoded: list[Tensor | Lists]

    @classmethod
    def prepare(cls, tuples: Tuples, directed: bool, index: bool, encoded: bool = False) -> TupleParts:
        nodes = [node_lists(tuples, axis) for axis in range(tuples.order)]
        pairs = [pair_lists(tuples, a, b) for a, b in position_pairs(tuples.order, directed)]
        entries = torch.stack([tuples.entry(axis) for axis in range(tuples.order)], dim=1) if index else None
        places = product(range(tuples.order), repeat=2) if encoded else ()
        codes = [tuples.code(pair) for pair in places]
        gpu = tuples.device.type == "cuda"
        return cls(nodes, pairs, entries, [Lists.sort(code, tuples.graph.total(2)) if gpu else code for code in codes])


class TupleEmbedding(nn.Module):
    """First features of k-tuples: equal exactly when the ordered isomorphism types are.

    "concat": MLP(x_{i_1}, .., x_{i_k}, e_{i_1 i_2}, ..) over all entries and pairs of entries. The MLP's first layer acts
    on a concatenation, so it is a sum of one linear map a part, taken before the parts are spread over the tuples:
    nothing wider than d exists for a tuple. It is injective on categorical features for all but a null set of weights
    (real features of more than d numbers may meet in d numbers, as under any linear map). "sum" adds node and pair
    vectors as they are; it forgets which entry is which, so it is not injective (the paper's optional form).

    Args:
        order: k.
        dim: d.
        directed: whether both orders of a pair count.
        init: "concat" or "sum".
        index: append the tuple's indices (Theorem 3.3). Theory only: the model is then not permutation invariant.
        pair_width: width of encodings of ordered pairs of nodes, 0 without any.
    """

    def __init__(
        self,
        order: int,
        dim: int,
        directed: bool = False,
        init: Literal["concat", "sum"] = "concat",
        index: bool = False,
        pair_width: int = 0,
    ) -> None:
        super().__init__()
        self.order = order
        self.pairs = position_pairs(order, directed)
        concat = init == "concat"
        self.node_maps = nn.ModuleList(RowLinear(dim, dim) for _ in range(order)) if concat else None
        self.pair_maps = nn.ModuleList(RowLinear(dim, dim, bias=False) for _ in self.pairs) if concat else None
        self.output = RowLinear(dim, dim) if concat else None
        self.index = nn.Linear(order, dim, bias=False) if index else None
        count = order * order if pair_width else 0
        self.encoded_maps = nn.ModuleList(RowLinear(pair_width, dim, bias=False) for _ in range(count))

    def forward(self, nodes: Tensor, table: Tensor | None, parts: TupleParts, encoded: Tensor | None = None) -> Tensor:
        """(T, d) from node vectors (N, d), the pair table (2 + E, d; None for k = 1) and encodings of pairs (sum of n², width)."""
        taken = []
        for place, rows in enumerate(parts.nodes):
            taken.append((nodes if self.node_maps is None else self.node_maps[place](nodes), rows))
        for place, rows in enumerate(parts.pairs):
            assert table is not None
            taken.append((table if self.pair_maps is None else self.pair_maps[place](table), rows))
        for encoded_map, rows in zip(self.encoded_maps, parts.encoded, strict=True):
            assert encoded is not None
            taken.append((encoded_map(encoded), rows))
        out = take_sum(take(*taken[0]), taken[1:])
        if self.index is not None and parts.index is not None:
            out = out + self.index(parts.index.to(out.dtype))
        return out if self.output is None else self.output(F.gelu(out))
