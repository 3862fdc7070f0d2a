"""GPS: message passing and attention over all nodes side by side, then a feed-forward."""

from __future__ import annotations

from torch import Tensor, nn
from torch_geometric.nn import GINEConv
from torch_geometric.utils import softmax

from tuplet.models.attention import TokenAttention
from tuplet.models.baselines.config import BaselineConfig
from tuplet.models.baselines.pairs import Pairs
from tuplet.models.baselines.prepared import PreparedGraphs
from tuplet.models.block import make_activation, make_norm
from tuplet.patterns import Dense


class GPSLayer(nn.Module):
    """Rampášek et al., "Recipe for a General, Powerful, Scalable Graph Transformer" (2022), with GINE and softmax attention.

        l = N(x + D(GINE(x, e))),   a = N(x + D(Attention(x))),   x ← N(l + a + D(FFN(l + a)))

    Equal to PyG's ``GPSConv`` with the same weights (tests hold it to that), but over ragged graphs without padding, with
    the attention of ``A1``, and with a norm that takes a batch of a single node.
    """

    looks_at = "all nodes"

    def __init__(self, config: BaselineConfig) -> None:
        super().__init__()
        dim, kind = config.dim, config.norm or "none"
        mlp = nn.Sequential(nn.Linear(dim, dim), make_activation(config.activation), nn.Linear(dim, dim))
        self.local = GINEConv(mlp)
        self.attention = TokenAttention(dim, config.heads, (Dense((1, 1)),))
        self.local_norm, self.attention_norm, self.norm = (make_norm(kind, dim) for _ in range(3))
        self.dropout = nn.Dropout(config.dropout)
        self.feed_forward = nn.Sequential(
            nn.Linear(dim, 2 * dim),
            make_activation(config.activation),
            nn.Dropout(config.dropout),
            nn.Linear(2 * dim, dim),
        )

    def forward(self, x: Tensor, e: Tensor | None, prepared: PreparedGraphs) -> tuple[Tensor, Tensor | None]:
        """Nodes (N, d) after the layer, and edges as they came."""
        assert prepared.layouts is not None
        heard = self.local_norm(x + self.dropout(self.local(x, prepared.edge_index, e)))
        message, _ = self.attention(x, x, None, prepared.layouts)
        both = heard + self.attention_norm(x + self.dropout(message))
        return self.norm(both + self.dropout(self.feed_forward(both))), e

    def weights(self, x: Tensor, e: Tensor | None, prepared: PreparedGraphs) -> tuple[Tensor, Tensor, Tensor]:
        """The node that looks, the one looked at, and the weight (Σ n², h)."""
        assert prepared.layouts is not None
        (q, k, _), _ = self.attention.project(x, x, None, prepared.layouts)
        pairs = Pairs.prepare(prepared.graph, stacked=False)
        score = (q[pairs.first] * k[pairs.second]).sum(-1) * self.attention.rule.scale
        return pairs.first, pairs.second, softmax(score, pairs.first)
