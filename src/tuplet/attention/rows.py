"""The ``torch`` backend for rows: every query has keys of its own, few of them.

Pairs are worked on in portions. Weights, one number for each pair and head, are kept for the backward pass where there is a single
portion, and otherwise found again. There the keys collect from the queries that see them, by the same pairs transposed: nothing is
scattered. On a CPU the steps are compiled functions (``compiled.py``), elsewhere operators of torch.
Shapes: R = T1·h rows, P pairs of a portion counted for each head, c head size.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from tuplet.attention import compiled
from tuplet.attention.bags import Bags, Turned
from tuplet.attention.listing import Keyed, Portion, portions
from tuplet.attention.weights import Rule, narrow, own_precision, wide

Kept = tuple[Portion, Tensor]
"""All pairs in a portion, and their (P,) weights."""


def forward(
    q: Tensor, k: Tensor, v: Tensor, table: Tensor, keyed: Keyed, rule: Rule
) -> tuple[Tensor, Tensor, Kept | None]:
    """(T1, h, c) messages and (T1, h) log-sum-exps of the scores (-inf for a query without keys).

    Besides what is kept for the backward pass, where pairs are few enough to be a single portion.
    """
    dtype, heads = q.dtype, q.shape[1]
    q, k, v, table = _ready(q, k, v, table)
    messages, masses = [], []
    for some in portions(keyed, q):
        portion, message, lse, weight = _attend(q, k, v, table, some, rule)
        messages.append(message)
        masses.append(lse)
    kept = (portion, weight) if len(messages) == 1 else None
    return narrow(_joined(messages), dtype), _joined(masses).view(-1, heads), kept


def _attend(
    q: Tensor, k: Tensor, v: Tensor, table: Tensor, portion: Portion, rule: Rule
) -> tuple[Portion, Tensor, Tensor, Tensor]:
    """The portion as it was read; its messages, (R,) log-sum-exps, and (P,) weights before a relation multiplies them."""
    q = q[portion.span]
    if (library := portion.bags.library(q, k, v, table, rule)) is not None:
        return portion, *compiled.forward(library, portion.bags, q, k, v, table, rule)
    portion = portion.apart
    bags = portion.bags
    entry = _entries(table, bags, rule)
    weight = rule.score(bags.dots(q, k), entry)[1]
    if rule.normalised:
        lse = bags.row_maxima(weight)
        weight = (weight - lse.index_select(0, bags.row)).exp_()
        total = bags.row_sums(weight)  # at least 1, or 0 where there is no pair
        lse.add_(total.log())
        weight *= total.reciprocal_().index_select(0, bags.row)
    else:
        weight = weight.clamp_min(0)
        lse = weight.new_full((len(bags.offsets) - 1,), -torch.inf)
    message = bags.sums(weight if entry is None or rule.relation != "reweight" else weight * entry, v)
    return portion, message, lse, weight


def backward(
    grad_out: Tensor,
    grad_lse: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    table: Tensor,
    keyed: Keyed,
    rule: Rule,
    kept: Kept | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of q, k, v and the relation table; ``kept`` is what ``forward`` gave."""
    dtype = q.dtype
    grad_out, q, k, v, wide_table = _ready(grad_out, q, k, v, table)
    grad_table = torch.zeros_like(wide_table).view(-1)
    grads_q = []
    grad_k = grad_v = None
    for some in portions(keyed, q) if kept is None else kept[:1]:
        library = some.bags.library(q[some.span], k, v, wide_table, rule)
        if kept is None or (library is None and some.apart is not some):  # weights kept are in another order then
            portion, _, _, weight = _attend(q, k, v, wide_table, some, rule)
        else:
            portion, weight = some, kept[1]
        span, bags = portion.span, portion.bags
        masses = None if grad_lse is None else grad_lse[span].reshape(-1).contiguous()
        given = grad_out[span], masses, q[span], k, v, wide_table, weight, rule
        if library is not None:
            own_q, own_k, own_v = compiled.backward(library, bags, portion.back, *given, grad_table)
        else:
            own_q, own_k, own_v, grad_entry = _attend_backward(bags, portion.back, *given)
            if grad_entry is not None:
                grad_table.index_add_(0, bags.kind, grad_entry)
        grads_q.append(own_q)
        grad_k, grad_v = _added(grad_k, own_k), _added(grad_v, own_v)
    assert grad_k is not None
    assert grad_v is not None
    grad_q, grad_k, grad_v = (narrow(x, dtype) for x in (_joined(grads_q), grad_k, grad_v))
    return grad_q, grad_k, grad_v, grad_table.view_as(table).to(table.dtype)


def _attend_backward(
    bags: Bags, back: Turned, grad: Tensor, grad_lse: Tensor | None, q: Tensor, k: Tensor, v: Tensor, table: Tensor,
    weight: Tensor, rule: Rule,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:  # fmt: skip
    """Gradients of q, k and v, and (P,) those of the relation's numbers; ``back`` are the bags transposed."""
    entry = _entries(table, bags, rule)
    reweight = entry if rule.relation == "reweight" else None
    grad_weight = bags.dots(grad, v)
    inner = grad_weight if reweight is None else grad_weight * reweight
    if rule.normalised:
        # the sum over keys of weight · gradient, and the gradient that flows through the log-sum-exp itself
        shift = bags.row_sums(weight * inner)
        if grad_lse is not None:
            shift -= grad_lse
        grad_score = (inner - shift.index_select(0, bags.row)).mul_(weight)
    else:
        grad_score = inner * (weight > 0)
    dot = bags.dots(q, k)
    grad_dot, grad_entry = rule.backward(grad_score, dot, rule.score(dot, None)[0], entry)
    if reweight is not None:
        grad_entry, weight = weight * grad_weight, weight * reweight
    return bags.sums(grad_dot, k), back.sums(grad_dot, q), back.sums(weight, grad), grad_entry


def _entries(table: Tensor, bags: Bags, rule: Rule) -> Tensor | None:
    """(P,) the relation's number for each pair."""
    return None if rule.relation == "none" else table.view(-1).index_select(0, bags.kind)


class RowAttention(torch.autograd.Function):
    """Messages and log-sum-exps of rows."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, table: Tensor, keyed: Keyed, rule: Rule
    ) -> tuple[Tensor, Tensor]:
        with own_precision(q):
            out, lse, kept = forward(q, k, v, table, keyed, rule)
        ctx.portion, weight = (None, None) if kept is None else kept
        ctx.save_for_backward(q, k, v, table, weight)
        ctx.settings = keyed, rule
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor | None, grad_lse: Tensor | None) -> Any:
        q, k, v, table, weight = ctx.saved_tensors
        keyed, rule = ctx.settings
        kept = None if weight is None else (ctx.portion, weight)
        grad_out = q.new_zeros(*q.shape[:2], v.shape[2]) if grad_out is None else grad_out
        with own_precision(q):
            grads = backward(grad_out, grad_lse, q, k, v, table, keyed, rule, kept)
        return *grads, None, None


def _ready(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Tensors in the precision of sums, with the vectors of a token side by side: they are read at random several times."""
    return tuple(x.to(wide(x.dtype)).contiguous() for x in tensors)


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _added(total: Tensor | None, part: Tensor) -> Tensor:
    return part if total is None else total.add_(part)
