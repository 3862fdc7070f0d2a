"""The ``torch`` backend for rows: every query has keys of its own, few of them.

As for lines, scores live for one portion of the pairs and are computed again in the backward pass, from dot products that are kept
where there are few. There the keys collect from the queries that see them, by the same pairs transposed: nothing is scattered.
Shapes: R = T1·h rows, P pairs of a portion counted for each head, c head size.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from tuplet.attention.bags import Bags, Keyed, portions
from tuplet.attention.weights import Rule, narrow, wide


def _scores(dot: Tensor, table: Tensor, bags: Bags, rule: Rule) -> tuple[Tensor, Tensor, Tensor | None]:
    """(P,) scores before and after the relation, and the relation's number for each pair."""
    entry = None if rule.relation == "none" else table.reshape(-1).index_select(0, bags.kind)
    return *rule.score(dot, entry), entry


def forward(
    q: Tensor, k: Tensor, v: Tensor, table: Tensor, keyed: Keyed, rule: Rule
) -> tuple[Tensor, Tensor, Tensor | None]:
    """(T1, h, c) messages and (T1, h) log-sum-exps of the scores (-inf for a query without keys).

    Besides (P,) dot products for the backward pass, where pairs are few enough to be a single portion.
    """
    dtype, heads = q.dtype, q.shape[1]
    q, k, v, table = _ready(q, k, v, table)
    messages, masses = [], []
    for portion in portions(keyed, heads, len(q)):
        bags = portion.bags
        dot = bags.dots(q[portion.span], k)
        _, weight, entry = _scores(dot, table, bags, rule)
        if rule.normalised:
            largest = bags.row_maxima(weight)
            weight = (weight - largest.index_select(0, bags.row)).exp_()
            total = bags.row_sums(weight)  # at least 1, or 0 where there is no pair
            masses.append(largest.add_(total.log()))
            weight *= total.reciprocal_().index_select(0, bags.row)
        else:
            weight = weight.clamp_min(0)
            masses.append(weight.new_full((len(bags.offsets) - 1,), -torch.inf))
        if entry is not None and rule.relation == "reweight":
            weight *= entry
        messages.append(bags.sums(weight, v))
    return narrow(_joined(messages), dtype), _joined(masses).view(-1, heads), dot if len(messages) == 1 else None


def backward(
    grad_out: Tensor,
    grad_lse: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    table: Tensor,
    lse: Tensor,
    keyed: Keyed,
    rule: Rule,
    dots: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of q, k, v and the relation table; ``dots`` as ``forward`` found them, or None."""
    dtype, heads = q.dtype, q.shape[1]
    grad_out, q, k, v, wide_table = _ready(grad_out, q, k, v, table)
    grad_table = torch.zeros_like(wide_table).view(-1)
    grads_q = []
    grad_k = grad_v = None
    for portion in portions(keyed, heads, len(q)):
        span, bags, back = portion.span, portion.bags, portion.back
        dot = bags.dots(q[span], k) if dots is None else dots
        raw, score, entry = _scores(dot, wide_table, bags, rule)
        grad_weight = bags.dots(grad_out[span], v)
        reweight = entry if rule.relation == "reweight" else None
        inner = grad_weight if reweight is None else grad_weight * reweight
        if rule.normalised:
            weight = (score - lse[span].reshape(-1).index_select(0, bags.row)).exp_()
            # the sum over keys of weight · gradient, and the gradient that flows through the log-sum-exp itself
            shift = bags.row_sums(weight * inner)
            if grad_lse is not None:
                shift -= grad_lse[span].reshape(-1)
            grad_score = (inner - shift.index_select(0, bags.row)).mul_(weight)
        else:
            weight = score.clamp_min(0)
            grad_score = inner * (score > 0)
        grad_dot, grad_entry = rule.backward(grad_score, dot, raw, entry)
        if reweight is not None:
            grad_entry, weight = weight * grad_weight, weight * reweight
        if grad_entry is not None:
            grad_table.index_add_(0, bags.kind, grad_entry)
        grads_q.append(bags.sums(grad_dot, k))
        assert back.pair is not None
        grad_k = _added(grad_k, back.sums(grad_dot.index_select(0, back.pair), q[span]))
        grad_v = _added(grad_v, back.sums(weight.index_select(0, back.pair), grad_out[span]))
    assert grad_k is not None
    assert grad_v is not None
    grad_q, grad_k, grad_v = (narrow(x, dtype) for x in (_joined(grads_q), grad_k, grad_v))
    return grad_q, grad_k, grad_v, grad_table.view_as(table).to(table.dtype)


class RowAttention(torch.autograd.Function):
    """Messages and log-sum-exps of rows."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, table: Tensor, keyed: Keyed, rule: Rule
    ) -> tuple[Tensor, Tensor]:
        with torch.autocast(q.device.type, enabled=False):
            out, lse, dots = forward(q, k, v, table, keyed, rule)
        ctx.save_for_backward(q, k, v, table, lse, dots)
        ctx.settings = keyed, rule
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor | None, grad_lse: Tensor | None) -> Any:
        q, k, v, table, lse, dots = ctx.saved_tensors
        keyed, rule = ctx.settings
        grad_out = q.new_zeros(*q.shape[:2], v.shape[2]) if grad_out is None else grad_out
        with torch.autocast(q.device.type, enabled=False):
            grads = backward(grad_out, grad_lse, q, k, v, table, lse, keyed, rule, dots)
        return *grads, None, None


def _ready(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Tensors in the precision of sums, with the vectors of a token side by side: they are read at random several times."""
    return tuple(x.to(wide(x.dtype)).contiguous() for x in tensors)


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _added(total: Tensor | None, part: Tensor) -> Tensor:
    return part if total is None else total.add_(part)
