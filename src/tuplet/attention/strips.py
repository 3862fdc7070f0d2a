"""The ``torch`` backend for strips: lines of many tokens on one side and the same few on the other, as virtual tokens give.

Softmax without a relation, on a CPU. A strip is a handful of products batched over its heads, straight from and to where its
tokens lie: unlike in blocks of lines, nothing is gathered or padded. Weights are kept for the backward pass; with m <= c of
them for each head of a token, they are no more than its queries.
Shapes: G strips of L long and m short tokens, T long tokens in all, h heads of size c; scores and weights are (h, m, T).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from tuplet.attention.known import notes_on
from tuplet.attention.weights import Rule, narrow, wide
from tuplet.patterns.structure import Lines, Structure

SHORTEST = 128
"""Tokens of the long side on average at least; below, a product a strip does not pay."""


@dataclass(frozen=True)
class Strips:
    """The long sides of all strips are all tokens in order, and so are the short sides.

    Args:
        lengths: L of each strip.
        width: m.
        downward: the queries are the long side.
    """

    lengths: list[int]
    width: int
    downward: bool

    @classmethod
    def find(cls, lines: Lines, queries: int, keys: int) -> Strips | None:
        """The strips that lines are, or None if they are none."""
        downward = queries >= keys
        long, short = (lines.query, lines.key) if downward else (lines.key, lines.query)
        most, count = max(queries, keys), len(long.start)
        if lines.relation is not None or lines.skip_self or long.start.device.type != "cpu":
            return None
        if not count or most < SHORTEST * count or any(side.order.numel() for side in (long, short)):
            return None
        start, order = torch.sort(long.start)
        length, width = long.length[order], int(short.length[0])
        even = bool((length > 0).all() and (short.length == width).all() and width * count == min(queries, keys))
        even &= bool((long.stride == 1).all() and (short.stride == 1).all() and int(length.sum()) == most)
        firsts = length.cumsum(0) - length, width * torch.arange(count)
        if not even or not all(map(torch.equal, (start, short.start[order]), firsts)):
            return None
        return cls(length.tolist(), width, downward)

    def products(self, few: Tensor, many: Tensor) -> Tensor:
        """(h, m, T) products of vectors (G·m, h, c) of the short side with those of the long side (T, h, c)."""
        parts = zip(self._few(few), self._split(many.permute(1, 2, 0), 2), strict=True)
        return torch.cat([torch.bmm(left, right) for left, right in parts], 2)

    def to_many(self, weights: Tensor, few: Tensor) -> Tensor:
        """(T, h, c) sums of the short side's vectors (G·m, h, c)."""
        out = weights.new_empty(weights.shape[2], *few.shape[1:])
        sides = self._split(weights.transpose(1, 2), 1), self._few(few), self._split(out.transpose(0, 1), 1)
        for part, vectors, into in zip(*sides, strict=True):
            torch.bmm(part, vectors, out=into)
        return out

    def to_few(self, weights: Tensor, many: Tensor) -> Tensor:
        """(G·m, h, c) sums of the long side's vectors (T, h, c)."""
        parts = zip(self._split(weights, 2), self._split(many.transpose(0, 1), 1), strict=True)
        return torch.cat([torch.bmm(part, vectors).transpose(0, 1) for part, vectors in parts])

    def softmax_(self, scores: Tensor) -> Tensor:
        """Turn (h, m, T) scores into weights; (T1, h) log-sum-exps of the scores."""
        masses = []
        for part in self._whole_queries(scores):
            largest = part.amax(self._keys, keepdim=True)
            total = part.sub_(largest).exp_().sum(self._keys, keepdim=True)
            part.div_(total)
            masses.append(largest.add_(total.log_()).squeeze(self._keys).t())
        return torch.cat(masses)

    def softmax_backward_(self, grad: Tensor, weights: Tensor, grad_lse: Tensor | None) -> None:
        """Turn the gradient of weights (h, m, T) into that of scores."""
        parts = zip(self._whole_queries(grad), self._whole_queries(weights), strict=True)
        first = 0
        for part, weight in parts:
            # the sum over keys of weight · gradient, and the gradient that flows through the log-sum-exp itself
            shift = (weight * part).sum(self._keys, keepdim=True)
            if grad_lse is not None:
                count = shift.shape[3 - self._keys]
                shift -= grad_lse[first : first + count].t().unsqueeze(self._keys)
                first += count
            part.sub_(shift).mul_(weight)

    @property
    def _keys(self) -> int:
        """The axis of keys in (h, m, L) scores."""
        return 1 if self.downward else 2

    def _whole_queries(self, scores: Tensor) -> Sequence[Tensor]:
        """All scores of some queries: of all of them where the long side asks, else strip by strip."""
        return [scores] if self.downward else self._split(scores, 2)

    def _split(self, x: Tensor, axis: int) -> Sequence[Tensor]:
        """What belongs to each strip, along the axis of the long side."""
        return x.split(self.lengths, axis)

    def _few(self, x: Tensor) -> Sequence[Tensor]:
        """(h, m, c) vectors of each strip."""
        return x.unflatten(0, (-1, self.width)).transpose(1, 2).unbind()


def find(group: Structure, q: Tensor, k: Tensor, rule: Rule) -> Strips | None:
    """The strips that a group is, if it is any and the rule is theirs; found once for each structure."""
    if not isinstance(group, Lines) or (rule.kernel, rule.relation) != ("softmax", "none"):
        return None
    known = notes_on((group,))
    if "strips" not in known:
        known["strips"] = Strips.find(group, len(q), len(k))
    found: Strips | None = known["strips"]
    return found if found is not None and found.width <= q.shape[2] else None


class StripAttention(torch.autograd.Function):
    """Messages (T1, h, c) and log-sum-exps (T1, h) of strips."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, strips: Strips, rule: Rule) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(q, k, v)
        dtype = q.dtype
        q, k, v = (x.to(wide(dtype)) for x in (q, k, v))
        few, many = (k, q) if strips.downward else (q, k)
        with torch.autocast(q.device.type, enabled=False):
            weights = strips.products(few * rule.scale, many)
            lse = strips.softmax_(weights)
            out = strips.to_many(weights, v) if strips.downward else strips.to_few(weights, v)
        ctx.kept = weights, strips, rule  # nothing outside sees the weights
        ctx.set_materialize_grads(False)
        return narrow(out, dtype), lse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None, grad_lse: Tensor | None) -> Any:
        dtype = ctx.saved_tensors[0].dtype
        q, k, v = (x.to(wide(dtype)) for x in ctx.saved_tensors)
        weights, strips, rule = ctx.kept
        grad = q.new_zeros(*q.shape[:2], v.shape[2]) if grad is None else grad.to(wide(dtype))
        few, many, short, long = (k, q, v, grad) if strips.downward else (q, k, grad, v)
        with torch.autocast(q.device.type, enabled=False):
            scores = strips.products(short, long)
            strips.softmax_backward_(scores, weights, grad_lse)
            grad_many, grad_few = strips.to_many(scores, few * rule.scale), strips.to_few(scores, many).mul_(rule.scale)
            grad_v = strips.to_few(weights, grad) if strips.downward else strips.to_many(weights, grad)
        grads = (grad_many, grad_few, grad_v) if strips.downward else (grad_few, grad_many, grad_v)
        return *(narrow(x, dtype) for x in grads), None, None
