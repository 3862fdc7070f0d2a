"""Small parts that several encoders share: MLPs, a batch norm that knows about padding, GIN, and a linear map of raw rows."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tuplet.graphs import GraphBatch
from tuplet.kernels import RowLinear, has_kernels


def mlp(*widths: int, gain: float = 2**0.5) -> nn.Sequential:
    """Linear maps of the given widths with GELU between them; by default they start with a variance that GELU keeps up."""
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(widths):
        linear = nn.Linear(fan_in, fan_out)
        nn.init.xavier_uniform_(linear.weight, gain=gain)
        layers += [linear, nn.GELU()]
    return nn.Sequential(*layers[:-1])


def by_rows(encoder: nn.Module) -> bool:
    """Whether an encoder maps raw rows one by one (it says so by its ``by_rows``), so that padding is no more than rows to leave out."""
    return bool(getattr(encoder, "by_rows", False))


class MaskedBatchNorm(nn.Module):
    """Batch norm over the last dimension that takes its statistics from the rows a mask keeps; the other rows become 0.

    One row, or none, is allowed in training: its variance counts as 0. The running statistics begin as the plain mean over
    batches, so that they fit from the first batch on.

    Args:
        width: number of channels.
        momentum: least weight of the newest batch in the running statistics.
    """

    mean: Tensor
    var: Tensor
    seen: Tensor

    def __init__(self, width: int, momentum: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__()
        self.momentum, self.eps = momentum, eps
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("var", torch.ones(width))
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """x (.., width), mask (..) or None."""
        if self.training and x.dim() == 2 and len(x) > 0 and has_kernels(x):
            from tuplet.kernels.norm import masked_batch_norm

            running = self.mean, self.var, self.seen
            live = None if mask is None else mask.bool()
            return masked_batch_norm(x, live, self.weight, self.bias, running, self.momentum, self.eps)
        kept = x.new_ones(x.shape[:-1]) if mask is None else mask.to(x.dtype)
        kept = kept[..., None]
        mean, var = self.mean, self.var
        if self.training:
            axes, count = tuple(range(x.dim() - 1)), kept.sum()
            mean = (x * kept).sum(axes) / count.clamp_min(1)
            var = ((x - mean).square() * kept).sum(axes) / count.clamp_min(1)
            with torch.no_grad():
                enough = count > 1  # a single row says nothing about the spread
                self.seen += enough
                share = enough / self.seen.clamp(1, 1 / self.momentum)
                self.mean.lerp_(mean, share)
                self.var.lerp_(var * count / (count - 1).clamp_min(1), share)
        return ((x - mean) * torch.rsqrt(var + self.eps) * self.weight + self.bias) * kept


class GIN(nn.Module):
    """Graph isomorphism network on C signals at once: h_v ← h_v + GELU(norm(MLP((1 + ε) h_v + Σ_{u ~ v} h_u))).

    Xu et al., "How Powerful are Graph Neural Networks?" (ICLR 2019); the residual is ours, from the second layer on.
    In a directed graph a node hears from both ends of its edges.

    Args:
        width_in: width of a signal.
        hidden: width inside and at the end.
        layers: number of rounds.
    """

    def __init__(self, width_in: int, hidden: int, layers: int) -> None:
        super().__init__()
        widths = [width_in] + [hidden] * layers
        # the sum over neighbours makes signals grow, also where no norm has seen a batch yet: start small
        self.maps = nn.ModuleList(mlp(a, hidden, hidden, gain=0.5) for a in widths[:-1])
        self.norms = nn.ModuleList(MaskedBatchNorm(hidden) for _ in range(layers))
        self.eps = nn.Parameter(torch.zeros(layers))

    @staticmethod
    def held(graph: GraphBatch, signals: int, hidden: int, layers: int) -> tuple[int, int]:
        """As ``Encoding.held``, for C signals: eight vectors a node in a layer, and one an edge, which sums over neighbours keep."""
        edges = graph.num_edges * (2 if graph.directed else 1)
        each = signals * hidden
        return each * layers * (8 * graph.num_nodes + edges), each * (5 * graph.num_nodes + edges)

    def forward(self, x: Tensor, mask: Tensor, graph: GraphBatch) -> Tensor:
        """(N, C, hidden) from signals x (N, C, width_in), of which mask (N, C) says which are there; the others stay 0."""
        for layer, (update, norm) in enumerate(zip(self.maps, self.norms, strict=True)):
            heard = torch.zeros_like(x).index_add(0, graph.row, x[graph.col])
            if graph.directed:
                heard = heard.index_add(0, graph.col, x[graph.row])
            fresh = F.gelu(norm(update((1 + self.eps[layer]) * x + heard), mask)) * mask[..., None]
            x = x + fresh if layer else fresh
        return x


class RowEncoder(nn.Module):
    """One field of raw rows (R, c) to vectors (R, width): a batch norm of the raw numbers by option, and a linear map.

    Args:
        field: of the raw statistics.
        columns: c.
        width: of the vectors.
        norm: whether there is a batch norm.
        order: rows are nodes (1) or ordered pairs of nodes (2), whose padding the norm leaves out; 0 for simplices.
        dim: of the simplices.
    """

    by_rows = True

    def __init__(self, field: str, columns: int, width: int, norm: bool, order: int = 0, dim: int = 0) -> None:
        super().__init__()
        self.field, self.order, self.dim = field, order, dim
        self.norm = MaskedBatchNorm(columns) if norm else None
        self.linear = RowLinear(columns, width)

    def forward(self, raw: Mapping[str, Tensor], graph: GraphBatch) -> Tensor:
        x = raw[self.field].to(self.linear.weight.dtype)
        if self.norm is not None:
            x = self.norm(x, graph.live(self.order) if self.order else graph.live_simplices(self.dim))
        return self.linear(x)


class SimplexEncoder(nn.Module):
    """One encoder a dimension: a dict dimension -> (S_k, width)."""

    def __init__(self, encoders: Mapping[int, nn.Module]) -> None:
        super().__init__()
        self.encoders = nn.ModuleDict({str(k): encoder for k, encoder in encoders.items()})
        self.by_rows = all(by_rows(encoder) for encoder in encoders.values())

    def forward(self, raw: Mapping[str, Tensor], graph: GraphBatch) -> dict[int, Tensor]:
        return {int(k): encoder(raw, graph) for k, encoder in self.encoders.items()}
