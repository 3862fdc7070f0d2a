"""First vectors of nodes, edges and pairs: features, self loops and encodings, by the same rules as for transformers."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tuplet.models.baselines.config import BaselineConfig
from tuplet.models.baselines.prepared import PreparedGraphs
from tuplet.models.encoded import EncodingTable, pair_width
from tuplet.tokens import NodeEmbedding, PairTable, TupleEmbedding
from tuplet.tokens.features import FIRST_EDGE, Encoder


class NodeInputs(nn.Module):
    """Vectors of nodes (N, d), and of edges (E, d) where the model reads them.

    Encodings of nodes join nodes and those of edges join edges. Of an encoding of ordered pairs, (i, i) joins the node i and
    (i, j) the edge from i to j; Graphormer has all pairs in its bias instead.
    """

    def __init__(self, config: BaselineConfig) -> None:
        super().__init__()
        dim, width = config.dim, pair_width(config.encodings)
        self.nodes = NodeEmbedding(config.node_features, config.edge_features, dim, False, config.directed)
        self.edges = Encoder(config.edge_features, dim) if config.reads_edges else None
        self.encodings = EncodingTable(config.encodings, dim) if config.encodings else None
        self.node_pairs = nn.Linear(width, dim, bias=False) if width else None
        on_edges = width and config.reads_edges and config.name != "Graphormer"
        self.edge_pairs = nn.Linear(width, dim, bias=False) if on_edges else None

    def forward(self, prepared: PreparedGraphs) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Nodes, edges or None, and encodings of all pairs (P, width) or None."""
        graph = prepared.graph
        x, e = self.nodes(graph), None
        if self.edges is not None:
            values = None if graph.edge_attr is None else graph.edge_attr[: graph.num_edges]
            e = self.edges(values, graph.num_edges)
        if self.encodings is None:
            return x, e, None
        encoded = self.encodings(graph)
        for more in (encoded.nodes, encoded.simplices.get(0)):
            x = x if more is None else x + more
        if e is not None and 1 in encoded.simplices and prepared.edge_simplex is not None:
            e = e + F.embedding(prepared.edge_simplex, encoded.simplices[1])
        if self.node_pairs is not None and encoded.pairs is not None and prepared.node_pair is not None:
            x = x + self.node_pairs(F.embedding(prepared.node_pair, encoded.pairs))
        if (
            self.edge_pairs is not None
            and encoded.pairs is not None
            and prepared.edge_pair is not None
            and e is not None
        ):
            e = e + self.edge_pairs(F.embedding(prepared.edge_pair, encoded.pairs))
        return x, e, encoded.pairs


class PairInputs(nn.Module):
    """Vectors of ordered pairs (P, d) by isomorphism type, as those of 2-tuples: equal exactly when the types are."""

    def __init__(self, config: BaselineConfig) -> None:
        super().__init__()
        dim = config.dim
        self.nodes = NodeEmbedding(config.node_features, config.edge_features, dim, False, config.directed)
        self.table = PairTable(config.edge_features, dim)
        self.encodings = EncodingTable(config.encodings, dim) if config.encodings else None
        self.tuples = TupleEmbedding(2, dim, config.directed, pair_width=pair_width(config.encodings))

    def forward(self, prepared: PreparedGraphs) -> Tensor:
        x, table, pairs = self.nodes(prepared.graph), self.table(prepared.graph), None
        if self.encodings is not None:
            encoded = self.encodings(prepared.graph)
            pairs = encoded.pairs
            for more in (encoded.nodes, encoded.simplices.get(0)):
                x = x if more is None else x + more
            if 1 in encoded.simplices and prepared.edge_simplex is not None:
                edges = F.embedding(prepared.edge_simplex, encoded.simplices[1])
                table = torch.cat([table[:FIRST_EDGE], table[FIRST_EDGE:] + edges])
        assert prepared.parts is not None
        return self.tuples(x, table, prepared.parts, pairs)
