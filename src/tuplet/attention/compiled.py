"""Attention over the pairs of every row, forward and backward, compiled (``native/rows.c``).

The torch operators that do the same (``rows.py``) pass over all pairs a dozen times and start threads as often. Here a
forward pass is one function, a backward pass two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tuplet.attention.weights import Rule
from tuplet.native import Library

if TYPE_CHECKING:
    from tuplet.attention.bags import Bags, Turned

KERNELS = ("softmax", "relu")
RELATIONS = ("none", "bias", "scale", "reweight")
"""As rows.c counts them."""


def forward(
    library: Library, bags: Bags, q: Tensor, k: Tensor, v: Tensor, table: Tensor, rule: Rule
) -> tuple[Tensor, Tensor, Tensor]:
    """(T1, h, c') messages, (R,) log-sum-exps and (P,) weights, before a relation multiplies them; both for each head, innermost."""
    rows, each = len(bags.offsets) - 1, q.shape[1] // bags.heads
    out, lse = v.new_empty(len(q), *v.shape[1:]), q.new_empty(rows * each)
    weight = q.new_empty(len(bags.column) * each)
    factor = torch.empty_like(weight) if rule.relation == "reweight" else weight
    given = bags.offsets, bags.column, bags.kind, q, k, v, table
    library.run("attend", rows, each, q.shape[2], v.shape[2], *given, *codes(rule), weight, factor, lse, 0, out)
    return out, lse, weight


def backward(
    library: Library, bags: Bags, back: Turned, grad: Tensor, grad_lse: Tensor | None, q: Tensor, k: Tensor, v: Tensor,
    table: Tensor, weight: Tensor, rule: Rule, grad_table: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of q, k and v; that of the table is added to ``grad_table`` (types · h,). ``back`` are the bags transposed."""
    grad_q, grad_dot = torch.empty_like(q), torch.empty_like(weight)
    grad_entry = None if rule.relation == "none" else torch.empty_like(weight)
    given = bags.offsets, bags.column, bags.kind, grad, grad_lse, q, k, v, table, weight
    rows, each, found = len(bags.offsets) - 1, q.shape[1] // bags.heads, (grad_dot, grad_entry, 0, grad_q)
    library.run("attend_backward", rows, each, q.shape[2], v.shape[2], *given, *codes(rule), *found)
    if grad_entry is not None:
        library.run("sum_kinds", len(bags.kind), each, bags.kind, grad_entry, grad_table)
    if rule.relation == "reweight":
        weight = (weight.view(-1, each) * table.view(-1, each).index_select(0, bags.kind)).view(-1)
    # of a shape of their own, no views, so that autograd adds to them in place
    keys = (len(back.offsets) - 1) // bags.heads
    grad_k, grad_v = k.new_empty(keys, *k.shape[1:]), v.new_empty(keys, *v.shape[1:])
    pairs = back.offsets, back.column, back.pair
    sums = grad_dot, q, grad_k, weight, grad, grad_v, 0
    library.run("gather", len(back.offsets) - 1, each, q.shape[2], v.shape[2], *pairs, *sums)
    return grad_q, grad_k, grad_v


def codes(rule: Rule) -> tuple[int, int, float]:
    """A rule as compiled functions take it."""
    return KERNELS.index(rule.kernel), RELATIONS.index(rule.relation), float(rule.scale)
