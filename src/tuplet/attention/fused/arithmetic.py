"""The arithmetic of one score inside a kernel; ``tuplet.attention.weights.Rule`` says the same thing in torch."""

# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

TINY = tl.constexpr(1e-37)
SOFTMAX, RELU, POSITIVE = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
NONE, BIAS, SCALE, REWEIGHT = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2), tl.constexpr(3)
KERNELS = {"softmax": SOFTMAX, "relu": RELU, "positive": POSITIVE}
RELATIONS = {"none": NONE, "bias": BIAS, "scale": SCALE, "reweight": REWEIGHT}


@triton.jit
def scores(dot, entry, scale, KERNEL: tl.constexpr, RELATION: tl.constexpr):
    """The score before and after the relation; ``entry`` is the relation's learned number for each pair."""
    raw = tl.log(tl.maximum(dot, TINY)) if KERNEL == POSITIVE else dot * scale
    score = raw
    if RELATION == BIAS:
        score = raw + entry
    elif RELATION == SCALE:
        score = raw * entry
    return raw, score


@triton.jit
def gradients(
    dot, entry, exists, grad_weight, lse, shift, scale, KERNEL: tl.constexpr, RELATION: tl.constexpr
):  # fmt: skip
    """Of each pair: the gradient of the dot product, the final weight, and the gradient of the relation's number.

    ``shift`` is the gradient of the query's log-sum-exp less the sum over its keys of weight times gradient.
    """
    raw, score = scores(dot, entry, scale, KERNEL, RELATION)
    inner = grad_weight * entry if RELATION == REWEIGHT else grad_weight
    if KERNEL == RELU:
        weight = tl.where(exists, tl.maximum(score, 0.0), 0.0)
        grad_score = tl.where(exists & (score > 0), inner, 0.0)
    else:
        # no score exceeds its log-sum-exp, but a padded query meets that of another one: keep it finite
        weight = tl.where(exists, tl.exp(tl.minimum(score - lse, 0.0)), 0.0)
        grad_score = weight * (inner + shift)
    grad_entry = grad_score
    grad_raw = grad_score
    if RELATION == SCALE:
        grad_entry = grad_score * raw
        grad_raw = grad_score * entry
    elif RELATION == REWEIGHT:
        grad_entry = weight * grad_weight
        weight = weight * entry
    grad_dot = grad_raw * scale
    if KERNEL == POSITIVE:
        grad_dot = tl.where(dot > TINY, grad_raw / tl.maximum(dot, TINY), 0.0)
    return grad_dot, weight, grad_entry
