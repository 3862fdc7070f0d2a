"""The ``torch`` backend for rows: every query gathers its own keys, a chunk of pairs at a time.

As for lines, scores live for one chunk and are computed again in the backward pass.
Shapes: P pairs of a chunk, h heads, c head size.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tuplet.attention.weights import TINY, Rule, finite, narrow, wide
from tuplet.patterns.structure import Rows, Walk


def _scores(
    q: Tensor, k: Tensor, query: Tensor, key: Tensor, kind: Tensor | None, table: Tensor, rule: Rule
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    """Gathered queries and keys (P, h, c), and (P, h) dot products, scores before and after the relation, its numbers."""
    queries = q.index_select(0, query).to(wide(q.dtype))
    keys = k.index_select(0, key).to(wide(k.dtype))
    dot = (queries * keys).sum(-1)
    entry = None
    if rule.relation != "none":
        entry = table[0].expand_as(dot) if kind is None else table.index_select(0, kind)
    raw, score = rule.score(dot, entry)
    return queries, keys, dot, raw, score, entry


def forward(q: Tensor, k: Tensor, v: Tensor, table: Tensor, rows: Rows | Walk, rule: Rule) -> tuple[Tensor, Tensor]:
    """(T1, h, c) messages and (T1, h) log-sum-exps of the scores (-inf for a query without keys)."""
    out = q.new_zeros(q.shape[0], q.shape[1], v.shape[2])
    lse = torch.full(q.shape[:2], -torch.inf, dtype=wide(q.dtype), device=q.device)
    table = table.to(wide(q.dtype))
    for first, end, pairs in rows.steps():
        place, key, kind = rows.chunk(first, end, pairs)
        _, _, _, _, score, entry = _scores(q, k, place + first, key, kind, table, rule)
        if rule.normalised:
            largest = torch.full_like(lse[first:end], -torch.inf)
            largest.scatter_reduce_(0, place[:, None].expand_as(score), score, "amax")
            largest = finite(largest)
            weight = (score - largest.index_select(0, place)).exp()
            total = torch.zeros_like(largest).index_add_(0, place, weight)
            lse[first:end] = largest + total.log()
        else:
            weight = score.clamp_min(0)
        if entry is not None and rule.relation == "reweight":
            weight = weight * entry
        values = v.index_select(0, key).to(weight.dtype)
        message = weight.new_zeros(end - first, *values.shape[1:]).index_add_(0, place, weight[..., None] * values)
        out[first:end] = narrow(message / total.clamp_min(TINY)[..., None] if rule.normalised else message, out.dtype)
    return out, lse


def backward(
    grad_out: Tensor,
    grad_lse: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    table: Tensor,
    out: Tensor,
    lse: Tensor,
    rows: Rows | Walk,
    rule: Rule,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of q, k, v and the relation table."""
    sums = wide(q.dtype)
    grad_q, grad_k, grad_v = (torch.zeros(x.shape, dtype=sums, device=x.device) for x in (q, k, v))
    grad_table = torch.zeros_like(table, dtype=sums)
    wide_table = table.to(sums)
    for first, end, pairs in rows.steps():
        place, key, kind = rows.chunk(first, end, pairs)
        queries, keys, dot, raw, score, entry = _scores(q, k, place + first, key, kind, wide_table, rule)
        rows_grad = grad_out[first:end].to(sums)
        grad = rows_grad.index_select(0, place)
        grad_weight = (grad * v.index_select(0, key).to(sums)).sum(-1)
        reweight = entry if rule.relation == "reweight" else None
        inner = grad_weight if reweight is None else grad_weight * reweight
        if rule.normalised:
            weight = (score - finite(lse[first:end]).index_select(0, place)).exp()
            shift = grad_lse[first:end] - (rows_grad * out[first:end].to(sums)).sum(-1)
            grad_score = weight * (inner + shift.index_select(0, place))
        else:
            weight = score.clamp_min(0)
            grad_score = inner * (score > 0)
        grad_dot, grad_entry = rule.backward(grad_score, dot, raw, entry)
        if reweight is not None:
            grad_entry, weight = weight * grad_weight, weight * reweight
        if grad_entry is not None:
            if kind is None:
                grad_table[0] += grad_entry.sum(0)
            else:
                grad_table.index_add_(0, kind, grad_entry)
        grad_v.index_add_(0, key, weight[..., None] * grad)
        grad_k.index_add_(0, key, grad_dot[..., None] * queries)
        grad_q[first:end].index_add_(0, place, grad_dot[..., None] * keys)
    return narrow(grad_q, q.dtype), narrow(grad_k, k.dtype), narrow(grad_v, v.dtype), grad_table.to(table.dtype)
