"""The ``reference`` backend: attention straight from its definition. It is what the fast backends are tested against.

Every pair of the pattern is written into a (T1, T2) mask; the rest is a softmax, or a ReLU, and a matrix product.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tuplet.attention.weights import TINY, Rule
from tuplet.patterns import DefinedPairs


def attention_weights(q: Tensor, k: Tensor, pairs: DefinedPairs, table: Tensor, rule: Rule) -> tuple[Tensor, Tensor]:
    """(h, T1, T2) weights, zero outside the pattern, and (T1, h) log-sum-exps of the scores."""
    mask = torch.zeros(pairs.queries, pairs.keys, dtype=torch.bool, device=q.device)
    mask[pairs.query, pairs.key] = True
    kind = torch.zeros(pairs.queries, pairs.keys, dtype=torch.long, device=q.device)
    kind[pairs.query, pairs.key] = pairs.type

    score = torch.einsum("qhc,khc->hqk", q, k)
    score = torch.log(score.clamp_min(TINY)) if rule.kernel == "positive" else score * rule.scale
    entry = table[kind if rule.relation != "none" else kind * 0].permute(2, 0, 1)  # (h, T1, T2)
    if rule.relation == "bias":
        score = score + entry
    elif rule.relation == "scale":
        score = score * entry

    if rule.kernel == "relu":
        weight = torch.relu(score) * mask
        lse = torch.full(q.shape[:2], -torch.inf, dtype=q.dtype, device=q.device)
    else:
        score = score.masked_fill(~mask, -torch.inf)
        empty = ~mask.any(1)[:, None]
        # a query without keys has no softmax: its row is filled with zeros first and emptied afterwards
        weight = torch.softmax(score.masked_fill(empty, 0), dim=-1).masked_fill(empty, 0)
        lse = torch.logsumexp(score.masked_fill(empty, 0), dim=-1).masked_fill(empty[:, 0], -torch.inf).t()
    if rule.relation == "reweight":
        weight = weight * entry
    return weight, lse


def attend(q: Tensor, k: Tensor, v: Tensor, pairs: DefinedPairs, table: Tensor, rule: Rule) -> tuple[Tensor, Tensor]:
    """Messages (T1, h, c) and log-sum-exps (T1, h) of one group of keys."""
    weight, lse = attention_weights(q, k, pairs, table, rule)
    return torch.einsum("hqk,khc->qhc", weight, v), lse
