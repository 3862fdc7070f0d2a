"""The two kinds of baselines, by their tokens: nodes, or ordered pairs of nodes."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tuplet.errors import InputError, OptionError
from tuplet.graphs import GraphBatch
from tuplet.models.attention import TokenAttention
from tuplet.models.baselines.config import ON_PAIRS, BaselineConfig
from tuplet.models.baselines.cost import estimate
from tuplet.models.baselines.explain import Attending, explain_nodes
from tuplet.models.baselines.gated_gcn import GatedGCNLayer
from tuplet.models.baselines.gps import GPSLayer
from tuplet.models.baselines.graphormer import DegreeInput, GraphormerLayer, PairBias
from tuplet.models.baselines.ign import IGNLayer
from tuplet.models.baselines.inputs import NodeInputs, PairInputs
from tuplet.models.baselines.memory import refuse_if_too_large
from tuplet.models.baselines.message_passing import GATLayer, GCNLayer, GINELayer, GINLayer, PNALayer
from tuplet.models.baselines.ppgn import PPGNLayer
from tuplet.models.baselines.prepared import PreparedGraphs, prepare, prepared_key
from tuplet.models.block import make_norm
from tuplet.models.cost import Cost
from tuplet.models.explain import Explanation
from tuplet.models.pooling import Head, pool
from tuplet.models.reading import read_for, with_statistics

_LAYERS: dict[str, Callable[[BaselineConfig], nn.Module]] = {
    "GCN": GCNLayer,
    "GAT": GATLayer,
    "GIN": GINLayer,
    "GINE": GINELayer,
    "PNA": PNALayer,
    "GPS": GPSLayer,
    "Graphormer": GraphormerLayer,
    "PPGN": PPGNLayer,
    "2-IGN": IGNLayer,
}


class Baseline(nn.Module, ABC):
    """graph -> first vectors -> layers × depth -> pooling -> head, with the face of ``tuplet.Transformer``.

    ``model(batch)`` takes whatever ``tuplet.read`` takes and returns (graphs | nodes | queried pairs, outputs).
    ``model.prepare(batch)`` does everything whose shape depends on data; the prepared forward compiles with
    ``torch.compile(model, fullgraph=True)``.

    Args:
        config: the options.
    """

    def __init__(self, config: BaselineConfig) -> None:
        super().__init__()
        self.config = config
        if config.name == "GatedGCN":
            layers = [GatedGCNLayer(config, last=number == config.depth - 1) for number in range(config.depth)]
        else:
            layers = [_LAYERS[config.name](config) for _ in range(config.depth)]  # type: ignore[misc]
        self.layers = nn.ModuleList(layers)

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    def _read(self, batch: Any) -> GraphBatch:
        return read_for(self.config.common, batch, self.device, self.dtype, stacklevel=5)

    def prepare(self, batch: Any) -> PreparedGraphs:
        """Check a batch, predict its memory, and build its index lists."""
        if isinstance(batch, PreparedGraphs):
            if batch.key != prepared_key(self.config):
                raise InputError(
                    "prepared", f"a batch prepared for {self.config.name} with the same options", "one of another model"
                )
            prepared = batch
        else:
            graph = self._read(batch)
            refuse_if_too_large(self.config, graph.sizes, graph.num_edges, self.parameters())
            prepared = prepare(self.config, with_statistics(self.config.statistics, graph, self.dtype))
            self._warn_if_centred(graph.num_graphs)
        self._learn_degrees(prepared)
        return prepared

    def _warn_if_centred(self, graphs: int) -> None:
        config = self.config
        centred = config.name == "GPS" and config.task == "graph" and config.norm == "batch" and config.pool != "max"
        if self.training and graphs == 1 and centred:
            warnings.warn(
                "a training batch of one graph: BatchNorm over its tokens makes their mean the same for every graph; "
                "use more graphs a batch, norm='layer' or pool='max'",
                stacklevel=4,
            )

    def _learn_degrees(self, prepared: PreparedGraphs) -> None:
        """PNA without the option ``degrees`` takes them from the first batch."""
        waiting = [layer for layer in self.layers if isinstance(layer, PNALayer) and not layer.known]
        if waiting:
            heard = torch.bincount(prepared.edge_index[1], minlength=prepared.graph.num_nodes)
            for layer in waiting:
                layer.learn_degrees(torch.bincount(heard))

    def forward(self, batch: Any) -> Tensor:
        """Predictions of shape (graphs | nodes | queried pairs, outputs)."""
        prepared = self.prepare(batch)
        return self.read_out(self.run(prepared), prepared)

    def cost(self, batch: Any) -> Cost:
        """Tokens, pairs, FLOPs and peak bytes of a training step on this batch, predicted without running it."""
        graph = batch.graph if isinstance(batch, PreparedGraphs) else self._read(batch)
        return estimate(self.config, graph, self.parameters())

    def explain(self, batch: Any, layer: int = -1) -> Explanation:
        """Attention weights of one layer in evaluation mode, with the nodes that rows and columns stand for.

        GAT, GPS and Graphormer have them; the others refuse.
        """
        raise OptionError(f"explain: {self.config.name} has no attention weights; GAT, GPS and Graphormer have")

    @abstractmethod
    def run(self, prepared: PreparedGraphs) -> Tensor:
        """(T, d) tokens after the last layer."""

    @abstractmethod
    def read_out(self, x: Tensor, prepared: PreparedGraphs) -> Tensor:
        """Predictions from tokens."""

    def finish(self) -> None:
        """First weights: linear maps keep the size of their input; attention and PyG's layers have rules of their own."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
        for module in self.modules():
            if isinstance(module, TokenAttention):
                module.reset_parameters()


class NodeBaseline(Baseline):
    """Tokens are nodes: GCN, GAT, GIN, GINE, GatedGCN, PNA, GPS, Graphormer.

    Graph outputs pool nodes, pair outputs read the two nodes; also where Graphormer has a virtual node.
    """

    def __init__(self, config: BaselineConfig) -> None:
        super().__init__(config)
        attends = config.name == "Graphormer"
        self.inputs = NodeInputs(config)
        self.degree = DegreeInput(config) if attends else None
        self.bias = PairBias(config) if attends else None
        self.virtual = nn.Parameter(torch.randn(config.dim)) if config.virtual_node else None
        self.final_norm = make_norm(config.norm or "none", config.dim) if attends else nn.Identity()
        self.head = Head(config.common, 2 * config.dim if config.task == "edge" else config.dim)
        self.finish()

    def run(self, prepared: PreparedGraphs) -> Tensor:
        return self.final_norm(self.run_layers(prepared, self.config.depth)[0])[: prepared.graph.num_nodes]

    def run_layers(self, prepared: PreparedGraphs, depth: int) -> tuple[Tensor, Any]:
        """Nodes (N, d), and virtual ones if there are any, after ``depth`` layers, and what comes beside them: vectors of
        edges, or Graphormer's biases of pairs."""
        x, beside, encoded = self.inputs(prepared)
        if self.degree is not None and self.bias is not None:
            x, beside = self.degree(x, prepared), self.bias(beside, encoded, prepared)
        if self.virtual is not None:
            x = torch.cat([x, self.virtual.to(x.dtype).expand(prepared.graph.num_graphs, -1)])
        for layer in list(self.layers)[:depth]:
            x, beside = layer(x, beside, prepared)
        return x, beside

    @torch.no_grad()
    def explain(self, batch: Any, layer: int = -1) -> Explanation:
        depth, training = self.config.depth, self.training
        if not -depth <= layer < depth:
            raise OptionError(f"layer: expected a number from {-depth} to {depth - 1}; came {layer}")
        attending = self.layers[layer]
        if not isinstance(attending, Attending):
            return super().explain(batch, layer)
        self.eval()
        try:
            prepared = self.prepare(batch)
            return explain_nodes(attending, *self.run_layers(prepared, layer % depth), prepared)
        finally:
            self.train(training)

    def read_out(self, x: Tensor, prepared: PreparedGraphs) -> Tensor:
        graph = prepared.graph
        if self.config.task == "graph":
            return self.head(pool(x, graph.graph_of_node, graph.num_graphs, self.config.pool))
        if prepared.queries is None:
            return self.head(x)
        return self.head(torch.cat([F.embedding(rows, x) for rows in prepared.queries], dim=1))


class PairBaseline(Baseline):
    """Tokens are ordered pairs: PPGN, 2-IGN.

    A graph is the pooled diagonal beside the pooled rest, a node the pair (i, i) beside the pooled pairs (i, j), and a
    queried pair (i, j) beside (j, i).
    """

    def __init__(self, config: BaselineConfig) -> None:
        super().__init__(config)
        self.inputs = PairInputs(config)
        self.head = Head(config.common, 2 * config.dim)
        self.finish()

    def run(self, prepared: PreparedGraphs) -> Tensor:
        x = self.inputs(prepared)
        for layer in self.layers:
            x = layer(x, prepared.pairs)
        return x

    def read_out(self, x: Tensor, prepared: PreparedGraphs) -> Tensor:
        pairs, how = prepared.pairs, self.config.pool
        assert pairs is not None
        if prepared.queries is not None:
            return self.head(torch.cat([F.embedding(rows, x) for rows in prepared.queries], dim=1))
        diagonal = F.embedding(pairs.diagonal, x)
        if self.config.task == "node":
            rows = pool(x, pairs.first, len(diagonal), how)
            return self.head(torch.cat([diagonal.to(rows.dtype), rows], dim=1))
        graphs = len(pairs.n)
        rest = pool(F.embedding(pairs.outside, x), pairs.graph[pairs.outside], graphs, how)
        return self.head(torch.cat([pool(diagonal, pairs.node_graph, graphs, how), rest], dim=1))


def build_baseline(config: BaselineConfig) -> Baseline:
    """The model of a config."""
    common = config.common
    if common.edge_features.columns and not config.edge_features.columns:
        warnings.warn(
            f"edge features are ignored: {config.name} does not read them; GINE, GatedGCN, GAT, PNA and GPS do",
            stacklevel=2,
        )
    return PairBaseline(config) if config.name in ON_PAIRS else NodeBaseline(config)
