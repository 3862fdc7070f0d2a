"""2-IGN: every linear map of matrices of pairs that commutes with renaming nodes, and activations between them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tuplet.models.baselines.config import BaselineConfig
from tuplet.models.baselines.pairs import Pairs
from tuplet.models.block import make_activation, make_norm
from tuplet.models.pooling import pool


class EquivariantLinear(nn.Module):
    """L_{2→2} (Maron et al., "Invariant and Equivariant Graph Networks", 2019): 15 maps and 2 biases, in O(n²) work.

    With D_i = X_ii, R_i = mean_j X_ij, C_i = mean_j X_ji, S = mean_ij X_ij and T = mean_i X_ii, each followed by a matrix:

        Y_ij = X_ij + X_ji + (D, R, C)_i + (D, R, C)_j + S + T + b + [i = j] ((D, R, C)_i + S + T + b')

    which is 2 + 3 + 3 + 2 + 3 + 2 = 15. Means instead of sums only rescale the matrices of a graph by n or n², and
    keep the size of entries, as in the authors' code.
    """

    def __init__(self, width_in: int, width_out: int) -> None:
        super().__init__()
        self.width = width_out
        self.pair = nn.Linear(width_in, 2 * width_out, bias=False)
        self.node = nn.Linear(3 * width_in, 3 * width_out, bias=False)
        self.graph = nn.Linear(2 * width_in, 2 * width_out)

    def forward(self, x: Tensor, pairs: Pairs) -> Tensor:
        """(P, d') from (P, d)."""
        nodes, graphs, owner = len(pairs.diagonal), len(pairs.n), pairs.node_graph
        diagonal = F.embedding(pairs.diagonal, x)
        rows, columns = (pool(x, ends, nodes, "mean").to(x.dtype) for ends in (pairs.first, pairs.second))
        whole, trace = (pool(part, owner, graphs, "mean").to(x.dtype) for part in (rows, diagonal))
        straight, mirrored = self.pair(x).split(self.width, dim=1)
        first, second, on_diagonal = self.node(torch.cat([diagonal, rows, columns], dim=1)).split(self.width, dim=1)
        everywhere, at_diagonal = self.graph(torch.cat([whole, trace], dim=1)).split(self.width, dim=1)
        first = first + F.embedding(owner, everywhere)  # what is the same everywhere enters through the row
        y = straight + F.embedding(pairs.mirrored, mirrored)
        y = y + F.embedding(pairs.first, first) + F.embedding(pairs.second, second)
        return y.index_add(0, pairs.diagonal, (on_diagonal + F.embedding(owner, at_diagonal)).to(y.dtype))


class IGNLayer(nn.Module):
    """X ← X + D(σ(N(L_{2→2}(X)))); residual and norm are ours."""

    def __init__(self, config: BaselineConfig) -> None:
        super().__init__()
        self.linear = EquivariantLinear(config.dim, config.dim)
        self.norm = make_norm(config.norm or "none", config.dim)
        self.activation = make_activation(config.activation)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, pairs: Pairs) -> Tensor:
        """Pairs (P, d) after the layer."""
        return x + self.dropout(self.activation(self.norm(self.linear(x, pairs))))
