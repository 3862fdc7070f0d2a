"""PPGN: matrices of pairs multiplied channel by channel, which is what gives 2-FWL its power."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tuplet.models.baselines.config import BaselineConfig
from tuplet.models.baselines.pairs import Pairs, lay_down, take
from tuplet.models.block import make_activation, make_norm


class PPGNLayer(nn.Module):
    """X ← N(W [X, m_1(X) · m_2(X)]) for X (n, n, d) (Maron et al., "Provably Powerful Graph Networks", 2019).

    m_1 and m_2 are MLPs of each pair by itself, two layers deep; the product is one of n × n matrices in each channel:
    Σ_w m_1(X)_iw ⊙ m_2(X)_wj. The norm is ours: products of products grow without one.
    """

    def __init__(self, config: BaselineConfig) -> None:
        super().__init__()
        dim, self.dim = config.dim, config.dim
        self.left, self.right = (
            nn.Sequential(
                nn.Linear(dim, dim),
                make_activation(config.activation),
                nn.Linear(dim, dim),
                make_activation(config.activation),
            )
            for _ in range(2)
        )
        self.merge = nn.Linear(2 * dim, dim)
        self.norm = make_norm(config.norm or "none", dim)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, pairs: Pairs) -> Tensor:
        """Pairs (P, d) after the layer."""
        factors = torch.cat([self.left(x), self.right(x)], dim=1)
        products = []
        for stack in pairs.stacks:
            left, right = take(factors, stack.pairs).permute(0, 3, 1, 2).split(self.dim, dim=1)  # (B, d, m, m)
            products.append((left @ right).permute(0, 2, 3, 1))
        product = lay_down(products, pairs.pair_places)
        return self.norm(self.merge(torch.cat([x, self.dropout(product)], dim=1)))
