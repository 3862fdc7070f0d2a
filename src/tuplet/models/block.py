"""One layer: attention and feed-forward with residuals and norms, for tuples and virtual tuples alike."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tuplet.models.attention import Layouts, TokenAttention
from tuplet.models.config import ModelConfig


class TokenBatchNorm(nn.BatchNorm1d):
    """BatchNorm over all tokens of the batch; a lone token, or none at all, is normalised by the running statistics."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training and x.shape[0] <= 1:
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps)
        return super().forward(x)


def make_norm(kind: str, dim: int) -> nn.Module:
    """The norm of that name."""
    return TokenBatchNorm(dim) if kind == "batch" else nn.LayerNorm(dim) if kind == "layer" else nn.Identity()


def make_activation(kind: str) -> nn.Module:
    """The activation of that name."""
    return nn.GELU() if kind == "gelu" else nn.ReLU()


class Stream(nn.Module):
    """Residuals, norms and feed-forward of one kind of tokens.

    post: h <- N(h + D(message)), h <- N(h + D(FFN h)).   pre: h <- h + D(message of N h), h <- h + D(FFN N h).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.pre = config.norm_position == "pre"
        self.attention_norm = make_norm(config.norm, config.dim)
        self.feed_forward_norm = make_norm(config.norm, config.dim)
        self.dropout = nn.Dropout(config.dropout)
        self.feed_forward = nn.Sequential(
            nn.Linear(config.dim, 2 * config.dim),
            make_activation(config.activation),
            nn.Dropout(config.dropout),
            nn.Linear(2 * config.dim, config.dim),
        )

    def enter(self, x: Tensor) -> Tensor:
        """What attention sees of ``x``."""
        return self.attention_norm(x) if self.pre else x

    def leave(self, x: Tensor, message: Tensor) -> Tensor:
        """``x`` after its message and the feed-forward."""
        x = x + self.dropout(message)
        if self.pre:
            return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        x = self.attention_norm(x)
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))


class Block(nn.Module):
    """Attention over a pattern, then feed-forward; the same for the virtual tuples, if there are any."""

    def __init__(self, config: ModelConfig, attention: TokenAttention) -> None:
        super().__init__()
        self.attention = attention
        self.tokens = Stream(config)
        updated = attention.virtual_output is not None
        self.virtual = Stream(config) if updated else None
        # virtual tuples that are only read still enter through the norm of a pre-norm layer
        read_only = attention.virtual is not None and not updated and config.norm_position == "pre"
        self.virtual_norm = make_norm(config.norm, config.dim) if read_only else None

    def enter(self, x: Tensor, y: Tensor | None, virtual: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """What attention sees of queries, keys (the queries, unless there are others) and virtual tuples."""
        entered = self.tokens.enter(x)
        if virtual is not None and self.virtual is not None:
            virtual = self.virtual.enter(virtual)
        elif virtual is not None and self.virtual_norm is not None:
            virtual = self.virtual_norm(virtual)
        return entered, entered if y is None else y, virtual

    def forward(
        self, x: Tensor, y: Tensor | None, virtual: Tensor | None, layouts: Layouts
    ) -> tuple[Tensor, Tensor | None]:
        """(T, d) tokens and (G·m, d) virtual tuples after the layer; ``y`` are the keys' features if they are other tokens."""
        message, upward = self.attention(*self.enter(x, y, virtual), layouts)
        x = self.tokens.leave(x, message)
        if self.virtual is None or virtual is None or upward is None:
            return x, None
        return x, self.virtual.leave(virtual, upward)


class SplitLinear(nn.Module):
    """A linear map of a concatenation, each part mapped where it lives and then spread: W [a, b_i, c_j] = A a + (B b)_i + (C c)_j."""

    def __init__(self, parts: int, dim: int) -> None:
        super().__init__()
        self.maps = nn.ModuleList(nn.Linear(dim, dim, bias=part == 0) for part in range(parts))

    def forward(self, first: Tensor, others: list[tuple[Tensor, Tensor | None]]) -> Tensor:
        """``others`` are pairs (vectors, row of each token; None where token and row are the same)."""
        out = self.maps[0](first)
        for linear, (vectors, rows) in zip(list(self.maps)[1:], others, strict=True):
            part = linear(vectors)
            out = out + (part if rows is None else F.embedding(rows, part))
        return out


def scatter_mean(x: Tensor, rows: Tensor, count: int) -> Tensor:
    """Mean of the rows of ``x`` that go to each of ``count`` places; zero where none goes."""
    sums = x.new_zeros(count, x.shape[1]).index_add(0, rows, x)
    numbers = x.new_zeros(count).index_add(0, rows, torch.ones_like(x[:, 0]))
    return sums / numbers.clamp_min(1)[:, None]
