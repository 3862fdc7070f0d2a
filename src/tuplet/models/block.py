"""One layer: attention and feed-forward with residuals and norms, for tuples and virtual tuples alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tuplet.kernels import Lists, RowLinear, add_up, has_kernels, take_sum
from tuplet.kernels.normed import Normed, values
from tuplet.models import dense_cpu, layer_cpu, post_norm_cpu
from tuplet.models.attention import Layouts, TokenAttention
from tuplet.models.config import ModelConfig
from tuplet.models.dense import feed_forward, has_products, linear

if TYPE_CHECKING:
    from tuplet.kernels.post_norm import PostNorm


class _Pass:
    """Whether what runs now has run before, in a forward pass that kept nothing."""

    again = False


@contextmanager
def computed_again() -> Iterator[None]:
    """What runs here has run before: running statistics have followed already."""
    _Pass.again = True
    try:
        yield
    finally:
        _Pass.again = False


def running_again() -> bool:
    """Whether what runs now is ``computed_again``."""
    return _Pass.again


class TokenBatchNorm(nn.BatchNorm1d):
    """BatchNorm over all tokens of the batch; a lone token, or none at all, is normalised by the running statistics."""

    def forward(self, x: Tensor, added: Tensor | None = None, live: Tensor | None = None) -> Tensor:
        """BN(x + added); statistics are those of the ``live`` rows (T,), of all rows if None."""
        if self.training and x.shape[0] > 1 and (live is not None or has_kernels(x)):
            from tuplet.kernels.norm import add_batch_norm

            return add_batch_norm(self, x, added, live, follow=not _Pass.again)
        x = x if added is None else x + added
        if self.training and x.shape[0] <= 1:
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps)
        if self.training and _Pass.again:  # the same operation, on statistics that are thrown away
            assert self.running_mean is not None
            assert self.running_var is not None
            aside = self.running_mean.clone(), self.running_var.clone()
            return F.batch_norm(x, *aside, self.weight, self.bias, True, 0.0, self.eps)
        return super().forward(x)


def make_norm(kind: str, dim: int) -> nn.Module:
    """The norm of that name."""
    return TokenBatchNorm(dim) if kind == "batch" else nn.LayerNorm(dim) if kind == "layer" else nn.Identity()


def make_activation(kind: str) -> nn.Module:
    """The activation of that name."""
    return nn.GELU() if kind == "gelu" else nn.ReLU()


def takes_statistics(norm: nn.Module, x: Tensor) -> bool:
    """Whether the norm is one over the batch of all tokens ``x``, in training and not settled."""
    return isinstance(norm, TokenBatchNorm) and norm.training and x.shape[0] > 1


def statistics(norms: Sequence[nn.Module]) -> list[Tensor]:
    """Running means and variances of batch norms, where there are any."""
    found = [one for norm in norms if isinstance(norm, TokenBatchNorm) for one in (norm.running_mean, norm.running_var)]
    return [one for one in found if one is not None]


def normed(norm: nn.Module, x: Tensor, added: Tensor | None, live: Tensor | None) -> Tensor:
    """norm(x + added); only a batch norm asks which rows are ``live``."""
    if isinstance(norm, TokenBatchNorm):
        return norm(x, added, live)
    found: Tensor = norm(x if added is None else x + added)
    return found


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

    def enter(self, x: Tensor | Normed, live: Tensor | None = None) -> Tensor | Normed:
        """What attention sees of ``x``."""
        return normed(self.attention_norm, values(x), None, live) if self.pre else x

    def leave(self, x: Tensor, message: Tensor, output: nn.Linear, live: Tensor | None = None) -> Tensor:
        """``x`` after its message, which ``output`` projects, and the feed-forward; ``live`` rows count in a batch norm."""
        if self.is_compiled(x, output, live, message):
            return post_norm_cpu.post_norm([self.after_on_cpu(x, output)], [message], follow=not _Pass.again)[0]
        still = self._is_plain(x)
        message = linear(message, output, still=still)
        if self.pre:
            x = x + self.dropout(message)
            return x + self.dropout(self._feed(normed(self.feed_forward_norm, x, None, live)))
        x = normed(self.attention_norm, x, self.dropout(message), live)
        return normed(self.feed_forward_norm, x, self.dropout(self._feed(x, still)), live)

    def is_fused(self, x: Tensor) -> bool:
        """Whether there is one operator for all of it."""
        return has_products(x) and self._is_plain(x)

    def is_compiled(self, x: Tensor, output: nn.Linear, live: Tensor | None, *messages: Tensor) -> bool:
        """Whether there is one function on a CPU for all of it."""
        if live is not None or not self._is_plain(x):
            return False
        return dense_cpu.fits(x, *messages, output.weight, *statistics((self.attention_norm, self.feed_forward_norm)))

    def after_on_cpu(self, x: Tensor, output: nn.Linear) -> post_norm_cpu.After:
        """The same as something to be done, where it ``is_compiled``."""
        first, activation, _, last = self.feed_forward
        norms, gelu = (self.attention_norm, self.feed_forward_norm), isinstance(activation, nn.GELU)
        return post_norm_cpu.After(x, output, norms, (first, last), gelu)  # type: ignore[arg-type]

    def _is_plain(self, x: Tensor) -> bool:
        """Whether norms are those of a batch in training and follow on the residuals, and nothing is dropped."""
        norms = self.attention_norm, self.feed_forward_norm
        return all(takes_statistics(norm, x) for norm in norms) and not self.pre and self.dropout.p == 0

    def after(self, x: Tensor | Normed, message: Tensor, output: nn.Linear, live: Tensor | None) -> PostNorm:
        """The same as something to be done, where ``is_fused``."""
        from tuplet.kernels.post_norm import PostNorm

        first, activation, _, last = self.feed_forward
        norms, gelu = (self.attention_norm, self.feed_forward_norm), isinstance(activation, nn.GELU)
        return PostNorm(x, message, output, norms, (first, last), gelu, live)  # type: ignore[arg-type]

    def _feed(self, x: Tensor, still: bool = False) -> Tensor:
        first, activation, dropout, last = self.feed_forward
        return feed_forward(x, first, activation, dropout, last, still)  # type: ignore[arg-type]


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

    def enter(
        self, x: Tensor | Normed, y: Tensor | None, virtual: Tensor | Normed | None, layouts: Layouts
    ) -> tuple[Tensor | Normed, Tensor | Normed, Tensor | Normed | None]:
        """What attention sees of queries, keys (the queries, unless there are others) and virtual tuples."""
        entered = self.tokens.enter(x, layouts.live)
        if virtual is not None and self.virtual is not None:
            virtual = self.virtual.enter(virtual, layouts.live_virtual)
        elif virtual is not None and self.virtual_norm is not None:
            virtual = normed(self.virtual_norm, values(virtual), None, layouts.live_virtual)
        return entered, entered if y is None else y, virtual

    def forward(
        self, x: Tensor | Normed, y: Tensor | None, virtual: Tensor | Normed | None, layouts: Layouts
    ) -> tuple[Tensor | Normed, Tensor | Normed | None]:
        """(T, d) tokens and (G·m, d) virtual tuples after the layer; ``y`` are the keys' features if they are other tokens."""
        attention = self.attention
        leaving: list[Leaving] = [(self.tokens, x, attention.output, layouts.live)]
        if self.virtual is not None and virtual is not None and attention.upward(layouts) is not None:
            assert attention.virtual_output is not None
            leaving.append((self.virtual, virtual, attention.virtual_output, layouts.live_virtual))
        if (
            y is None
            and isinstance(x, Tensor)
            and isinstance(virtual, Tensor)
            and self._is_one(x, virtual, layouts, leaving)
        ):
            once = attention.mutual(x, virtual, layouts)
            portions = once.portions()
            if portions is not None:
                several = [stream.after_on_cpu(values(own), output) for stream, own, output, _ in leaving]
                return _two(layer_cpu.layer(once, portions, several, follow=not _Pass.again))
        return _two(leave(leaving, attention.messages(*self.enter(x, y, virtual, layouts), layouts)))

    def _is_one(self, x: Tensor, virtual: Tensor, layouts: Layouts, leaving: list[Leaving]) -> bool:
        """Whether there is one function on a CPU for all of it, unless there are too many pairs; not where nothing goes back, since it
        keeps all that the way back needs."""
        attention = self.attention
        plain = attention.rule.relation != "reweight" and torch.is_grad_enabled() and _are_compiled(leaving)
        return plain and attention.is_mutual(x, virtual, layouts)


def _two(left: Sequence[Tensor | Normed]) -> tuple[Tensor | Normed, Tensor | Normed | None]:
    return left[0], left[1] if len(left) > 1 else None


Leaving = tuple[Stream, "Tensor | Normed", nn.Linear, "Tensor | None"]
"""What ``Stream.leave`` takes beside a message."""


def leave(leaving: list[Leaving], messages: list[Tensor]) -> Sequence[Tensor | Normed]:
    """``Stream.leave`` of several streams, in one where there is an operator for it; for ``messages`` see ``apart``."""
    if all(stream.is_fused(values(x)) for stream, x, *_ in leaving):
        from tuplet.kernels.post_norm import post_norm

        given = zip(leaving, messages, strict=True)
        tasks = [stream.after(x, message, output, live) for (stream, x, output, live), message in given]
        return post_norm(*tasks, follow=not _Pass.again)
    tokens = [values(x) for _, x, *_ in leaving]
    streams = [(stream, x, output, live) for (stream, _, output, live), x in zip(leaving, tokens, strict=True)]
    if _are_compiled(leaving, *messages):
        several = [stream.after_on_cpu(x, output) for stream, x, output, _ in streams]
        return post_norm_cpu.post_norm(several, messages, follow=not _Pass.again)
    messages = list(post_norm_cpu.apart(messages, [len(x) for x in tokens]))
    return [
        stream.leave(x, message, output, live)
        for (stream, x, output, live), message in zip(streams, messages, strict=True)
    ]


def _are_compiled(leaving: list[Leaving], *messages: Tensor) -> bool:
    """Whether there is one function on a CPU for what all of them do."""
    return all(stream.is_compiled(values(x), output, live, *messages) for stream, x, output, live in leaving)


class SplitLinear(nn.Module):
    """A linear map of a concatenation, each part mapped where it lives and then spread: W [a, b_i, c_j] = A a + (B b)_i + (C c)_j."""

    def __init__(self, parts: int, dim: int) -> None:
        super().__init__()
        self.maps = nn.ModuleList(RowLinear(dim, dim, bias=part == 0) for part in range(parts))

    def forward(self, first: Tensor, others: list[tuple[Tensor, Tensor | Lists | None]]) -> Tensor:
        """``others`` are pairs (vectors, row of each token; None where token and row are the same)."""
        out, taken = self.maps[0](first), []
        for part_map, (vectors, rows) in zip(list(self.maps)[1:], others, strict=True):
            part = part_map(vectors)
            if rows is None:
                out = out + part
            else:
                taken.append((part, rows))
        return take_sum(out, taken)


def scatter_mean(x: Tensor, rows: Tensor | Lists | None, count: int) -> Tensor:
    """Mean of the rows of ``x`` that go to each of ``count`` places; zero where none goes. None: each to its own."""
    if rows is None:
        return x
    if isinstance(rows, Lists):
        return add_up(x, rows) / (rows.end - rows.begin).clamp_min(1).to(x.dtype)[:, None]
    sums = x.new_zeros(count, x.shape[1]).index_add(0, rows, x)
    numbers = x.new_zeros(count).index_add(0, rows, torch.ones_like(x[:, 0]))
    return sums / numbers.clamp_min(1)[:, None]
