"""The one model class: every transformer of the paper is a choice of tokens, pattern, kernel and relation."""

from __future__ import annotations

import warnings
from difflib import get_close_matches
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tuplet.attention import FavorFeatures, resolve_backend
from tuplet.errors import OptionError
from tuplet.graphs import GraphBatch, read
from tuplet.models.attention import TokenAttention
from tuplet.models.block import Block, make_norm
from tuplet.models.config import ModelConfig
from tuplet.models.cost import Cost, estimate, refuse_if_too_large
from tuplet.models.cross import CrossUpdate
from tuplet.models.explain import Explanation, explain_layer
from tuplet.models.pooling import NodePooling, make_head, pool
from tuplet.models.prepare import Places, Prepared, draw_sample, make_patterns, prepare, reads_pairs
from tuplet.tokens import NodeEmbedding, PairTable, TupleEmbedding


class Transformer(nn.Module):
    r"""graph -> tokens -> first features -> [attention over a pattern -> feed-forward] × depth -> pooling -> head.

    ``model(batch)`` takes whatever ``tuplet.graphs.read`` takes and returns (graphs | nodes | queried pairs, outputs).
    ``model.prepare(batch)`` does everything whose shape depends on data; the prepared forward has static shapes and
    compiles with ``torch.compile(model, fullgraph=True)``.

    Args:
        config: the options of ``tuplet.build``.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        choices = config.choices
        self.config = config
        self.backend = resolve_backend(config.backend)
        self.patterns = make_patterns(config)
        dim, virtual = config.dim, "VT" in choices.patterns
        query_order, key_order = choices.orders[0], choices.orders[-1]

        self.nodes = NodeEmbedding(config.node_features, config.edge_features, dim, config.degree, config.directed)
        self.pairs = PairTable(config.edge_features, dim) if max(choices.orders) > 1 else None
        self.tuples = TupleEmbedding(query_order, dim, config.directed, config.init, choices.index)
        self.keys = (
            TupleEmbedding(key_order, dim, config.directed, config.init, choices.index) if choices.cross else None
        )
        self.virtual = nn.Parameter(torch.randn(config.virtual, dim)) if virtual else None

        def attention(layer: int) -> TokenAttention:
            return TokenAttention(
                dim,
                config.heads,
                self.patterns,
                choices.kernel,  # type: ignore[arg-type]
                config.resolved_relation,
                config.softmax == "joint",
                virtual,
                virtual and layer < config.depth - 1,
                config.features,
            )

        self.layers = nn.ModuleList(Block(config, attention(layer)) for layer in range(config.depth))
        # outputs come from the queries, so nothing reads the keys after the last layer
        updates = config.depth - 1 if choices.cross else 0
        self.updates = nn.ModuleList(CrossUpdate(config, query_order, key_order) for _ in range(updates))
        self.final_norm = make_norm(config.norm if config.norm_position == "pre" else "none", dim)
        self.node_pooling = NodePooling(config, query_order) if self._pools_to_nodes() else None
        self.head = make_head(config, 2 * dim if config.task == "edge" else dim)
        self.apply(initialise)

    def _pools_to_nodes(self) -> bool:
        return self.config.task == "node" or (self.config.task == "edge" and not reads_pairs(self.config))

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def read(self, batch: Any) -> GraphBatch:
        """Check a batch against what the model was built for, on the model's device."""
        config = self.config
        graph = read(batch, undirected=config.undirected, directed=config.directed, device=self.device)
        config.node_features.check(graph.x, graph.num_nodes)
        config.edge_features.check(graph.edge_attr, graph.num_edges + int((graph.loop >= 0).sum()))
        for field, features, values in (
            ("x", config.node_features, graph.x),
            ("edge_attr", config.edge_features, graph.edge_attr),
        ):
            if features.columns == 0 and values is not None:
                option = "node" if field == "x" else "edge"
                warnings.warn(
                    f"{field} is ignored: the model was built without {option}_types or {option}_dim", stacklevel=3
                )
        return draw_sample(config, graph)

    def prepare(self, batch: Any) -> Prepared:
        """Check a batch, predict its memory, and build its tokens and layouts."""
        if isinstance(batch, Prepared):
            return batch
        graph = self.read(batch)
        if self.config.check_memory and self.backend != "reference":
            refuse_if_too_large(self.cost(graph), self.config, self.device)
        return prepare(self.config, self.patterns, graph, self.backend == "reference")

    def forward(self, batch: Any) -> Tensor:
        """Predictions of shape (graphs | nodes | queried pairs, outputs)."""
        prepared = batch if isinstance(batch, Prepared) else self.prepare(batch)
        nodes, x = self.embed(prepared)
        x = self.final_norm(self.run_layers(x, prepared, self.config.depth)[0])
        config = self.config
        if config.task == "graph":
            return self.head(pool(x, prepared.query_graph, prepared.layouts.graphs, config.pool))
        if self.node_pooling is not None and prepared.prefixes is not None:
            x = self.node_pooling(x, nodes, prepared.prefixes)
        if config.task == "node" or prepared.query_pairs is None:
            return self.head(x)
        return self.head(torch.cat([F.embedding(rows, x) for rows in prepared.query_pairs], dim=1))

    def embed(self, prepared: Prepared) -> tuple[Tensor, Tensor]:
        """First embeddings of nodes (N, d) and of the query tokens (T1, d)."""
        nodes = self.nodes(prepared.graph)
        return nodes, self._embed_tuples(self.tuples, nodes, prepared, prepared.query_places)

    def _embed_tuples(self, embedding: TupleEmbedding, nodes: Tensor, prepared: Prepared, places: Places) -> Tensor:
        table = None if self.pairs is None else self.pairs(prepared.graph)
        return embedding(nodes, table, places.nodes, places.pairs, places.index)

    def run_layers(self, x: Tensor, prepared: Prepared, depth: int) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Query tokens, key tokens (cross-attention only) and virtual tuples after ``depth`` layers."""
        y = e = virtual = None
        if self.keys is not None and prepared.key_places is not None:
            y = self._embed_tuples(self.keys, self.nodes(prepared.graph), prepared, prepared.key_places)
        if self.pairs is not None and prepared.pair_places is not None:
            e = F.embedding(prepared.pair_places, self.pairs(prepared.graph))
        if self.virtual is not None:
            virtual = self.virtual.repeat(prepared.layouts.graphs, 1)
        for number, layer in enumerate(list(self.layers)[:depth]):
            x, virtual = layer(x, y, virtual, prepared.layouts)
            if y is not None and prepared.cross is not None and number < len(self.updates):
                y, e = self.updates[number](x, y, e, prepared.cross)
        return x, y, virtual

    def cost(self, batch: Any) -> Cost:
        """Tokens, pairs, FLOPs and peak bytes of a training step on this batch, predicted without running it."""
        graph = batch if isinstance(batch, GraphBatch) else self.read(batch)
        item = next(self.parameters()).element_size()
        return estimate(self.config, self.patterns, graph, item * sum(p.numel() for p in self.parameters()), item)

    @torch.no_grad()
    def explain(self, batch: Any, layer: int = -1) -> Explanation:
        """Attention weights of one layer, with the tuple that each row and column stands for."""
        prepared = self.prepare(batch)
        number = range(self.config.depth)[layer]
        _, x = self.embed(prepared)
        x, y, virtual = self.run_layers(x, prepared, number)
        return explain_layer(self.layers[number], x, y, virtual, prepared)  # type: ignore[arg-type]

    @torch.no_grad()
    def redraw_features(self, generator: torch.Generator | None = None) -> None:
        """Draw new random features in every layer (Performer only; nothing happens otherwise)."""
        for module in self.modules():
            if isinstance(module, FavorFeatures):
                module.redraw(generator)


def initialise(module: nn.Module) -> None:
    """First weights: linear maps keep the size of their input; attention has rules of its own."""
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
    elif isinstance(module, TokenAttention):
        module.reset_parameters()


def build(name: str, **options: Any) -> Transformer:
    """A model by the paper's name: ``build("A2^LN+VT", dim=64, depth=10, heads=4, node_types=28, edge_types=4)``.

    ``options`` are the fields of ``ModelConfig``.
    """
    known = ModelConfig.__dataclass_fields__
    for option in options:
        if option not in known:
            close = get_close_matches(option, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"expected one of {', '.join(known)}"
            raise OptionError(f"{option}: no such option; {hint}")
    return Transformer(ModelConfig(name, **options))
