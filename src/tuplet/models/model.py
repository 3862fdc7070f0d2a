"""The one model class: every transformer of the paper is a choice of tokens, pattern, kernel and relation."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tuplet._memory import available_bytes
from tuplet.attention import FavorFeatures, resolve_backend
from tuplet.encodings import computing_bytes
from tuplet.errors import InputError, OptionError
from tuplet.graphs import GraphBatch
from tuplet.kernels import Lists, take
from tuplet.kernels.normed import Normed, values
from tuplet.models.attention import TokenAttention
from tuplet.models.block import Block, computed_again, make_norm
from tuplet.models.config import ModelConfig
from tuplet.models.cost import BYTES_A_SIMPLEX, Cost, estimate, most_tokens, refuse_if_too_large
from tuplet.models.cross import CrossUpdate
from tuplet.models.encoded import EncodingTable, pair_width
from tuplet.models.explain import Explanation, explain_layer
from tuplet.models.pooling import Head, NodePooling, SimplexPooling, pool
from tuplet.models.prepare import (
    Prepared,
    draw_sample,
    layout_key,
    make_layouts,
    make_patterns,
    make_tokens,
    pools_to_nodes,
    prepare,
)
from tuplet.models.reading import read_for, with_statistics
from tuplet.tokens import NodeEmbedding, PairTable, SimplexEmbedding, Tokens, TupleEmbedding
from tuplet.tokens.features import FIRST_EDGE
from tuplet.tokens.sampling import LIMIT
from tuplet.topology import cliques, complex_of


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
        self.patterns = make_patterns(config)
        dim, virtual = config.dim, choices.virtual
        kinds = 1 if choices.dims is None else choices.dims[1] - choices.dims[0] + 1
        edges_count = max(choices.orders) > 1 if choices.dims is None else choices.dims[1] > 0

        # simplices have their numbers of cofaces, which are node degrees but for direction
        node_degrees = config.degrees and (choices.dims is None or config.directed)
        self.nodes = NodeEmbedding(config.node_features, config.edge_features, dim, node_degrees, config.directed)
        self.pairs = PairTable(config.edge_features, dim) if edges_count else None
        self.encodings = EncodingTable(config.encodings, dim) if config.encodings else None
        self.tokens = make_embedding(config, 0)
        self.keys = make_embedding(config, 1) if choices.cross else None
        self.virtual = nn.Parameter(torch.randn(config.virtual, dim)) if virtual else None

        def attention(layer: int) -> TokenAttention:
            return TokenAttention(
                dim,
                config.heads,
                self.patterns,
                choices.kernel,  # type: ignore[arg-type]
                config.resolved_relation,
                config.joint,
                virtual,
                virtual and layer < config.depth - 1,
                config.features,
                kinds,
                config.phi,
                config.depth,
            )

        self.layers = nn.ModuleList(Block(config, attention(layer)) for layer in range(config.depth))
        # outputs come from the queries, so nothing reads the keys after the last layer
        updates = config.depth - 1 if choices.cross else 0
        self.updates = nn.ModuleList(CrossUpdate(config, *choices.orders) for _ in range(updates))
        # of every token by itself: a batch of tokens that are all alike has no spread
        first = "layer" if config.first_norm else "none"
        self.first_norm = make_norm(first, dim)
        self.first_key_norm = make_norm(first, dim) if choices.cross else None
        self.final_norm = make_norm(config.norm if config.norm_position == "pre" else "none", dim)
        self.node_pooling = make_node_pooling(config) if pools_to_nodes(config) else None
        self.head = Head(config, 2 * dim if config.task == "edge" else dim)
        self.apply(initialise)

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def backend(self) -> str:
        """The backend in force where the weights are now."""
        parameter = next(self.parameters())
        return resolve_backend(self.config.backend, parameter.device, parameter.dtype)

    def read(self, batch: Any) -> GraphBatch:
        """Check a batch against what the model was built for, on the model's device, and draw its sample."""
        return self._complete(self._checked(batch))

    def _checked(self, batch: Any) -> GraphBatch:
        parameter = next(self.parameters())
        return read_for(self.config, batch, parameter.device, parameter.dtype, stacklevel=5)

    def _complete(self, graph: GraphBatch) -> GraphBatch:
        """The batch with the statistics and the sample that did not come with it."""
        config, parameter = self.config, next(self.parameters())
        if config.encodings:
            graph = with_statistics(config.encodings, graph, parameter.dtype)
        limit = LIMIT
        if config.check_memory and config.choices.sample is not None:
            fused = self.backend == "triton"
            limit = most_tokens(config, self.patterns, parameter.element_size(), parameter.device, fused)
        return draw_sample(config, graph, limit)

    def check(self, batch: Any) -> None:
        """Refuse a batch whose graphs, features or complexes are not what the model was built for; nothing is made of it."""
        config, graph = self.config, self._checked(batch)
        read = config.choices.dims is not None or any(encoding.level == "simplex" for encoding in config.encodings)
        if read and graph.simplices is not None:
            complex_of(graph, len(graph.simplices))

    def prepare(self, batch: Any) -> Prepared:
        """Check a batch, predict its memory, and build its tokens and layouts."""
        if isinstance(batch, Prepared):
            if batch.key != layout_key(self.config, self.backend):
                raise InputError(
                    "prepared", f"a batch prepared for {self.config.name} with the same options", "one of another model"
                )
            return batch
        config = self.config
        self._refuse_float16_sums()
        graph = self.read(batch)
        tokens = make_tokens(config, graph, self._most_simplices(graph))
        self._warn_of_empty(tokens[0])
        if config.check_memory and self.backend != "reference":
            refuse_if_too_large(self._estimate(tokens), config, self.device)
        if self.training and graph.num_graphs == 1 and _is_centred(config):
            warnings.warn(
                "a training batch of one graph: BatchNorm over its tokens makes their mean the same for every graph; "
                "use more graphs a batch, norm='layer' or pool='max'",
                stacklevel=3,
            )
        return prepare(config, self.patterns, tokens, self.backend)

    def _most_simplices(self, graph: GraphBatch) -> int:
        """How many simplices may be enumerated, if none came along: no more than the memory left could hold."""
        if not self.config.check_memory or self.config.choices.dims is None or graph.simplices is not None:
            return cliques.LIMIT
        return min(available_bytes(self.device) // BYTES_A_SIMPLEX, cliques.LIMIT)

    def _warn_of_empty(self, tokens: Tokens) -> None:
        empty = sum(count == 0 for count in tokens.counts)
        if empty and self.config.task == "graph":
            warnings.warn(
                f"{empty} graph(s) have no token for {self.config.name}: their output is a constant, whatever their features",
                stacklevel=4,
            )

    def _refuse_float16_sums(self) -> None:
        """The sum form adds up n^k products, which float16 cannot hold: better a sentence than NaN."""
        device = self.device.type
        narrow = torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device) == torch.float16
        if self.config.choices.kernel == "relu" and (narrow or next(self.parameters()).dtype == torch.float16):
            raise OptionError(f"{self.config.name}: sums exceed float16; use bfloat16 or float32")

    def forward(self, batch: Any) -> Tensor:
        """Predictions of shape (graphs | nodes | queried pairs, outputs)."""
        prepared = self.prepare(batch)
        nodes, x, y, e = self.embed(prepared)
        x = self.final_norm(self.run_layers(x, y, e, prepared, self.config.depth)[0])
        config = self.config
        if config.task == "graph":
            rows = prepared.query_graph
            tokens = len(rows.rows if isinstance(rows, Lists) else rows)
            if prepared.node_queries is not None:
                x = take(x, prepared.node_queries)
            x = x if tokens == len(x) else x[:tokens]  # the way back of a part of all is a copy of all
            return self.head(pool(x, rows, prepared.layouts.graphs, config.pool))
        if isinstance(self.node_pooling, NodePooling) and prepared.prefixes is not None:
            x = self.node_pooling(x, nodes, prepared.prefixes)
        elif isinstance(self.node_pooling, SimplexPooling) and prepared.incidence is not None:
            folded = self.node_pooling(x, nodes, prepared.incidence)
            x = folded if config.task == "node" else torch.cat([x, folded])
        if config.task == "node" or prepared.query_pairs is None:
            return self.head(x[: len(nodes)])
        read = [take(x, rows) for rows in prepared.query_pairs]
        if len(read) == 4:
            read = [read[0] + read[2], read[1] + read[3]]
        return self.head(torch.cat(read, dim=1))

    def embed(self, prepared: Prepared) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """First features of nodes (N, d) and queries (T1, d), and in cross-attention of keys (T2, d) and pairs of nodes."""
        nodes = self.nodes(prepared.graph)
        table = None if self.pairs is None else self.pairs(prepared.graph)
        extra: list[Any] = []
        if self.encodings is not None:
            encoded = self.encodings(prepared.graph)
            for more in (encoded.nodes, encoded.simplices.get(0)):
                nodes = nodes if more is None else nodes + more
            if table is not None and prepared.edge_simplex is not None and 1 in encoded.simplices:
                edges = F.embedding(prepared.edge_simplex, encoded.simplices[1])
                table = torch.cat([table[:FIRST_EDGE], table[FIRST_EDGE:] + edges])
            extra = [encoded.pairs] if self.config.choices.dims is None else [encoded.pairs, encoded.simplices]
        x = self.tokens(nodes, table, prepared.query_parts, *extra)
        y = e = None
        if self.keys is not None and prepared.key_parts is not None:
            y = self.keys(nodes, table, prepared.key_parts, *extra)
        if table is not None and prepared.pair_places is not None:
            e = take(table, prepared.pair_places)
        return nodes, x, y, e

    def run_layers(
        self, x: Tensor, y: Tensor | None, e: Tensor | None, prepared: Prepared, depth: int
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Queries, keys (cross-attention only) and virtual tokens after ``depth`` layers."""
        virtual = None if self.virtual is None else self.virtual.repeat(prepared.layouts.graphs, 1)
        tokens: Tensor | Normed = self.first_norm(x).to(x.dtype)  # autocast makes it wider
        if y is not None and self.first_key_norm is not None:
            y = self.first_key_norm(y).to(y.dtype)
        others: Tensor | Normed | None = virtual
        for number, layer in enumerate(list(self.layers)[:depth]):
            tokens, others = self._run(layer, tokens, y, others, prepared.layouts)
            if y is not None and prepared.cross is not None and number < len(self.updates):
                y, e = self._run(self.updates[number], values(tokens), y, e, prepared.cross)
        return values(tokens), y, None if others is None else values(others)

    def _run(self, module: nn.Module, *inputs: Any) -> Any:
        """What a module makes of its inputs; with ``recompute`` nothing else is kept for the backward pass."""
        if not (self.config.recompute and self.training and torch.is_grad_enabled()):
            return module(*inputs)
        drawn = self.config.dropout > 0
        return checkpoint(
            module,
            *(values(one) if isinstance(one, Normed) else one for one in inputs),
            use_reentrant=False,
            preserve_rng_state=drawn,
            context_fn=lambda: (nullcontext(), computed_again()),
        )

    def cost(self, batch: Any) -> Cost:
        """Tokens, pairs, FLOPs and peak bytes of a training step on this batch, predicted without running it."""
        if isinstance(batch, Prepared):
            return self._estimate((batch.queries, batch.keys))
        given = self._checked(batch)
        graph = self._complete(given)
        cost = self._estimate(make_tokens(self.config, graph, self._most_simplices(graph)))
        # statistics that did not come with the batch are computed before the step
        missing = [one for one in self.config.encodings if not (given.statistics or {}).keys() >= set(one.fields)]
        reading = computing_bytes(missing, given) + cost.given_bytes
        weights = next(self.parameters()).element_size() * self._weights
        return replace(
            cost,
            peak_bytes=max(cost.peak_bytes, 3 * weights + reading),
            inference_bytes=max(cost.inference_bytes, weights + reading),
        )

    def _estimate(self, tokens: tuple[Tokens, Tokens]) -> Cost:
        item = next(self.parameters()).element_size()
        return estimate(self.config, self.patterns, tokens, item * self._weights, item, self.backend == "triton")

    @cached_property
    def _weights(self) -> int:
        """How many there are: counted once, since every batch asks what it will cost."""
        return sum(parameter.numel() for parameter in self.parameters())

    @torch.no_grad()
    def explain(self, batch: Any, layer: int = -1) -> Explanation:
        """Attention weights of one layer in evaluation mode, with the tuples that rows and columns stand for."""
        depth = self.config.depth
        if not -depth <= layer < depth:
            raise OptionError(f"layer: expected a number from {-depth} to {depth - 1}; came {layer}")
        training = self.training
        self.eval()
        try:
            prepared = self.prepare(batch)
            if self.backend == "triton":  # kernels keep no list of pairs
                layouts = make_layouts(self.config, self.patterns, prepared.queries, prepared.keys, "torch")
                prepared = replace(prepared, layouts=layouts)
            _, x, y, e = self.embed(prepared)
            x, y, virtual = self.run_layers(x, y, e, prepared, layer % depth)
            return explain_layer(self.layers[layer], x, y, virtual, prepared)  # type: ignore[arg-type]
        finally:
            self.train(training)

    @torch.no_grad()
    def redraw_features(self, generator: torch.Generator | None = None) -> None:
        """Draw new random features in every layer (Performer only; nothing happens otherwise)."""
        for module in self.modules():
            if isinstance(module, FavorFeatures):
                module.redraw(generator)


def make_embedding(config: ModelConfig, side: int) -> nn.Module:
    """The first features of queries (side 0) or keys (side 1)."""
    choices = config.choices
    if choices.dims is not None:
        return SimplexEmbedding(*choices.dims, config.dim, config.init, config.degrees, pair_width(config.encodings))
    order, pairs = choices.orders[side], pair_width(config.encodings)
    return TupleEmbedding(order, config.dim, config.directed, config.init, choices.index, pairs)


def make_node_pooling(config: ModelConfig) -> NodePooling | SimplexPooling:
    """How tokens fold into nodes."""
    return SimplexPooling(config) if config.choices.dims is not None else NodePooling(config, config.choices.orders[0])


def _is_centred(config: ModelConfig) -> bool:
    """Whether the pooled tokens of a training batch are centred by the norm just before: all tokens are, a part of them is not."""
    all_pooled = config.pool_over == "all" or config.choices.orders[:1] == (1,) or config.choices.dims == (0, 0)
    return config.task == "graph" and config.norm == "batch" and config.pool != "max" and all_pooled


def initialise(module: nn.Module) -> None:
    """First weights: linear maps keep the size of their input; attention has rules of its own."""
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
    elif isinstance(module, TokenAttention):
        module.reset_parameters()


def build(name: str, **options: Any) -> Any:
    """A model by the paper's name: ``build("A2^LN+VT", dim=64, depth=10, heads=4, node_types=28, edge_types=4)``.

    Baselines have names too: GCN, GAT, GIN, GINE, GatedGCN, PNA, GPS, Graphormer, PPGN, 2-IGN. ``options`` are the fields
    of ``ModelConfig``, or of ``tuplet.models.baselines.BaselineConfig``.
    """
    from tuplet.models.baselines import NAMES, BaselineConfig, build_baseline

    if name in NAMES:
        return build_baseline(BaselineConfig.of(name, **options))
    return Transformer(ModelConfig.of(name, **options))
