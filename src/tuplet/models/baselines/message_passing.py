"""GCN, GAT, GIN, GINE and PNA: PyG's own layers, each with norm, activation and residual around it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, GINConv, GINEConv, PNAConv

from tuplet.models.baselines.config import BaselineConfig
from tuplet.models.baselines.prepared import PreparedGraphs
from tuplet.models.block import make_activation, make_norm
from tuplet.models.pooling import pool


class Convolution(nn.Module):
    """What the five have in common: h ← h + D(σ(N(conv(h)))), as in Dwivedi et al., "Benchmarking graph neural networks" (2023)."""

    def __init__(self, config: BaselineConfig) -> None:
        super().__init__()
        self.norm = make_norm(config.norm or "none", config.dim)
        self.activation = make_activation(config.activation)
        self.dropout = nn.Dropout(config.dropout)

    def convolve(self, x: Tensor, e: Tensor | None, prepared: PreparedGraphs) -> Tensor:
        """(N, d) messages for nodes x (N, d), with edges e (E, d) or None."""
        raise NotImplementedError("a message-passing layer says in a subclass how it convolves")

    def forward(self, x: Tensor, e: Tensor | None, prepared: PreparedGraphs) -> tuple[Tensor, Tensor | None]:
        """Nodes after the layer, and edges as they came."""
        return x + self.dropout(self.activation(self.norm(self.convolve(x, e, prepared)))), e


class GCNLayer(Convolution):
    """x_v ← W Σ_{u ∈ N(v) ∪ {v}} x_u / sqrt(d_u d_v), d = 1 + degree (Kipf and Welling 2017). Edge features are not read."""

    def __init__(self, config: BaselineConfig) -> None:
        super().__init__(config)
        self.conv = GCNConv(config.dim, config.dim, normalize=False)  # the weights come with the prepared batch

    def convolve(self, x: Tensor, e: Tensor | None, prepared: PreparedGraphs) -> Tensor:
        assert prepared.weight is not None
        return self.conv(x, prepared.looped, prepared.weight.to(x.dtype))


class GATLayer(Convolution):
    """Attention over neighbours and the node itself (Veličković et al. 2018), heads concatenated.

    Edge features enter the scores. The loop of a node has the mean of those of its incoming edges, as PyG has it.
    """

    looks_at = "neighbours and itself"

    def __init__(self, config: BaselineConfig) -> None:
        super().__init__(config)
        width = config.dim if config.reads_edges else None
        self.conv = GATConv(config.dim, config.dim // config.heads, config.heads, add_self_loops=False, edge_dim=width)

    def convolve(self, x: Tensor, e: Tensor | None, prepared: PreparedGraphs) -> Tensor:
        return self.conv(x, prepared.looped, _with_loops(e, prepared))

    def weights(self, x: Tensor, e: Tensor | None, prepared: PreparedGraphs) -> tuple[Tensor, Tensor, Tensor]:
        """The node that looks, the one looked at, and the weight (E + N, h)."""
        _, (edges, weight) = self.conv(x, prepared.looped, _with_loops(e, prepared), return_attention_weights=True)
        return edges[1], edges[0], weight


def _with_loops(e: Tensor | None, prepared: PreparedGraphs) -> Tensor | None:
    """Vectors of edges (E, d), and after them those of the loops (N, d)."""
    if e is None:
        return None
    return torch.cat([e, pool(e, prepared.edge_index[1], prepared.graph.num_nodes, "mean").to(e.dtype)])


class GINLayer(Convolution):
    """x_v ← MLP((1 + ε) x_v + Σ_{u ∈ N(v)} x_u), ε learned (Xu et al. 2019). Edge features are not read."""

    def __init__(self, config: BaselineConfig) -> None:
        super().__init__(config)
        self.conv = GINConv(make_mlp(config), train_eps=True)

    def convolve(self, x: Tensor, e: Tensor | None, prepared: PreparedGraphs) -> Tensor:
        return self.conv(x, prepared.edge_index)


class GINELayer(Convolution):
    """x_v ← MLP((1 + ε) x_v + Σ_{u ∈ N(v)} ReLU(x_u + e_uv)), ε learned (Hu et al. 2020)."""

    def __init__(self, config: BaselineConfig) -> None:
        super().__init__(config)
        self.conv = GINEConv(make_mlp(config), train_eps=True)

    def convolve(self, x: Tensor, e: Tensor | None, prepared: PreparedGraphs) -> Tensor:
        return self.conv(x, prepared.edge_index, e)


class PNALayer(Convolution):
    """Mean, min, max and deviation of messages, each scaled by 1, log(d + 1) / δ and its inverse (Corso et al. 2020).

    δ is the mean of log(d + 1) over the nodes of the training set, from the option ``degrees``, or from the first batch that
    the model sees. It is a buffer, 0 as long as it is not known. ``heads`` towers share the width.
    """

    def __init__(self, config: BaselineConfig) -> None:
        super().__init__(config)
        self.conv = PNAConv(
            config.dim,
            config.dim,
            aggregators=["mean", "min", "max", "std"],
            scalers=["identity", "amplification", "attenuation"],
            deg=torch.ones(1, dtype=torch.long),
            edge_dim=config.dim if config.reads_edges else None,
            towers=config.heads,
            divide_input=True,
        )
        self.known = False
        self.register_load_state_dict_post_hook(_ask_whether_known)
        if config.degrees is not None:
            self.learn_degrees(torch.tensor(config.degrees))

    @torch.no_grad()
    def learn_degrees(self, histogram: Tensor) -> None:
        """Set δ from how many nodes have 0, 1, 2, .. incoming edges; where none has any, δ is 1."""
        counts = histogram.double()
        degree = torch.arange(len(counts), device=counts.device)
        means = [(counts * values).sum() / counts.sum() for values in (degree, torch.log1p(degree.double()))]
        scaler = self.conv.aggr_module
        for buffer, mean in zip((scaler.avg_deg_lin, scaler.avg_deg_log), means, strict=True):
            buffer.fill_(float(mean) or 1.0)
        self.known = True

    def convolve(self, x: Tensor, e: Tensor | None, prepared: PreparedGraphs) -> Tensor:
        return self.conv(x, prepared.edge_index, e)


def _ask_whether_known(layer: nn.Module, _: object) -> None:
    assert isinstance(layer, PNALayer)
    layer.known = bool(layer.conv.aggr_module.avg_deg_log > 0)


def make_mlp(config: BaselineConfig) -> nn.Sequential:
    """Two linear maps with a norm and an activation between them."""
    dim = config.dim
    activation = make_activation(config.activation)
    return nn.Sequential(nn.Linear(dim, dim), make_norm(config.norm or "none", dim), activation, nn.Linear(dim, dim))
