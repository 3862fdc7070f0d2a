"""The ``torch`` backend for rows: every query has keys of its own, few of them.

Pairs are worked on in portions. Weights, one number for each pair and head, are kept for the backward pass where there is a single
portion, and otherwise found again. There the keys collect from the queries that see them, by the same pairs transposed: nothing is
scattered. On a CPU the steps are compiled functions (``native.py``), elsewhere operators of torch.
Shapes: R = T1·h rows, P pairs of a portion counted for each head, c head size.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from tuplet.attention.bags import Bags, Keyed, portions
from tuplet.attention.weights import Rule, narrow, wide


def _weigh(q: Tensor, k: Tensor, table: Tensor, bags: Bags, rule: Rule) -> tuple[Tensor, Tensor]:
    """(P,) weights, before a relation multiplies them, and (R,) log-sum-exps of the scores, -inf for a row without pairs."""
    if (compiled := bags.compiled(q, rule.kernel)) is not None:
        return compiled.weigh(bags, q, k, table, rule)
    score = rule.score(bags.dots(q, k), _entries(table, bags, rule))[1]
    if not rule.normalised:
        return score.clamp_min(0), score.new_full((len(bags.offsets) - 1,), -torch.inf)
    largest = bags.row_maxima(score)
    weight = (score - largest.index_select(0, bags.row)).exp_()
    total = bags.row_sums(weight)  # at least 1, or 0 where there is no pair
    lse = largest.add_(total.log())
    return weight.mul_(total.reciprocal_().index_select(0, bags.row)), lse


def _grade(
    grad_out: Tensor, v: Tensor, weight: Tensor, factor: Tensor | None, grad_lse: Tensor | None, bags: Bags, rule: Rule
) -> tuple[Tensor, Tensor | None]:
    """(P,) gradients of the scores and, where a ``factor`` multiplies the weights, of its products with them."""
    if (compiled := bags.compiled(v, rule.kernel)) is not None:
        return compiled.grade(bags, grad_out, v, weight, factor, grad_lse, rule)
    grad_weight = bags.dots(grad_out, v)
    inner = grad_weight if factor is None else grad_weight * factor
    grad_product = None if factor is None else grad_weight
    if not rule.normalised:
        return inner * (weight > 0), grad_product
    # the sum over keys of weight · gradient, and the gradient that flows through the log-sum-exp itself
    shift = bags.row_sums(weight * inner)
    if grad_lse is not None:
        shift -= grad_lse
    return (inner - shift.index_select(0, bags.row)).mul_(weight), grad_product


def _entries(table: Tensor, bags: Bags, rule: Rule) -> Tensor | None:
    """(P,) the relation's number for each pair."""
    return None if rule.relation == "none" else table.view(-1).index_select(0, bags.kind)


def _factors(table: Tensor, bags: Bags, rule: Rule) -> Tensor | None:
    """(P,) what multiplies the weights after the softmax."""
    return _entries(table, bags, rule) if rule.relation == "reweight" else None


def forward(
    q: Tensor, k: Tensor, v: Tensor, table: Tensor, keyed: Keyed, rule: Rule
) -> tuple[Tensor, Tensor, Tensor | None]:
    """(T1, h, c) messages and (T1, h) log-sum-exps of the scores (-inf for a query without keys).

    Besides (P,) weights for the backward pass, where pairs are few enough to be a single portion.
    """
    dtype, heads = q.dtype, q.shape[1]
    q, k, v, table = _ready(q, k, v, table)
    messages, masses = [], []
    for portion in portions(keyed, heads, len(q)):
        bags = portion.bags
        weight, lse = _weigh(q[portion.span], k, table, bags, rule)
        factor = _factors(table, bags, rule)
        messages.append(bags.sums(weight if factor is None else weight * factor, v))
        masses.append(lse)
    return narrow(_joined(messages), dtype), _joined(masses).view(-1, heads), weight if len(messages) == 1 else None


def backward(
    grad_out: Tensor,
    grad_lse: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    table: Tensor,
    keyed: Keyed,
    rule: Rule,
    kept: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of q, k, v and the relation table; ``kept`` are the weights that ``forward`` gave, or None."""
    dtype, heads = q.dtype, q.shape[1]
    grad_out, q, k, v, wide_table = _ready(grad_out, q, k, v, table)
    grad_table = torch.zeros_like(wide_table).view(-1)
    grads_q = []
    grad_k = grad_v = None
    for portion in portions(keyed, heads, len(q)):
        span, bags, back = portion.span, portion.bags, portion.back
        weight = _weigh(q[span], k, wide_table, bags, rule)[0] if kept is None else kept
        entry = _entries(wide_table, bags, rule)
        factor = _factors(wide_table, bags, rule)
        masses = None if grad_lse is None else grad_lse[span].reshape(-1).contiguous()
        grad_score, grad_product = _grade(grad_out[span], v, weight, factor, masses, bags, rule)
        dot = bags.dots(q[span], k) if rule.reads_dots else None
        raw = None if dot is None else rule.score(dot, None)[0]
        grad_dot, grad_entry = rule.backward(grad_score, dot, raw, entry)
        if factor is not None and grad_product is not None:
            grad_entry, weight = weight * grad_product, weight * factor
        if grad_entry is not None:
            grad_table.index_add_(0, bags.kind, grad_entry)
        grads_q.append(bags.sums(grad_dot, k))
        grad_k = _added(grad_k, back.sums(grad_dot, q[span]))
        grad_v = _added(grad_v, back.sums(weight, grad_out[span]))
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
            out, lse, kept = forward(q, k, v, table, keyed, rule)
        ctx.save_for_backward(q, k, v, table, kept)
        ctx.settings = keyed, rule
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor | None, grad_lse: Tensor | None) -> Any:
        q, k, v, table, kept = ctx.saved_tensors
        keyed, rule = ctx.settings
        grad_out = q.new_zeros(*q.shape[:2], v.shape[2]) if grad_out is None else grad_out
        with torch.autocast(q.device.type, enabled=False):
            grads = backward(grad_out, grad_lse, q, k, v, table, keyed, rule, kept)
        return *grads, None, None


def _ready(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Tensors in the precision of sums, with the vectors of a token side by side: they are read at random several times."""
    return tuple(x.to(wide(x.dtype)).contiguous() for x in tensors)


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _added(total: Tensor | None, part: Tensor) -> Tensor:
    return part if total is None else total.add_(part)
