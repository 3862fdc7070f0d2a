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

LOG2E, LOG2E_REST, LN2 = (
    tl.constexpr(1.4426950216293335),
    tl.constexpr(1.9259629911e-8),
    tl.constexpr(0.6931471805599453),
)
"""log2(e) as the sum of a float32 and what that leaves, and ln(2)."""


@triton.jit
def exp(x, PRECISION: tl.constexpr):
    """e^x. GPUs have powers of two: where products are exact, what rounding x·log2(e) loses, up to x/2 units, is made up for."""
    if PRECISION == "ieee":
        # below -110, e^x is 0, and for -infinity what is lost would be no number
        x = tl.maximum(x, -110.0, propagate_nan=tl.PropagateNan.ALL)
        power = x * LOG2E
        lost = tl.fma(x, LOG2E, -power) + x * LOG2E_REST
        value = tl.exp2(power)
        return value + value * (lost * LN2)
    else:
        return tl.exp(x)


@triton.jit
def operand(x, PRECISION: tl.constexpr):
    """``x`` as one side of a product: tensor cores cut off what TF32 has no digits for, which makes every product a little too
    small; so it is rounded before."""
    if PRECISION == "tf32" and x.dtype == tl.float32:
        bits = (x.to(tl.int32, bitcast=True) + 0x1000) & -0x2000
        return tl.where(x == x, bits.to(tl.float32, bitcast=True), x)  # one that is no number could become one
    else:
        return x


@triton.jit
def share_of(out, total):
    """Rows divided by their totals. The division of rows would be a rough one."""
    return out * tl.div_rn(tl.full(total.shape, 1.0, tl.float32), tl.maximum(total, TINY))[:, None]


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
def weights(score, exists, lse, rest, PRECISION: tl.constexpr):
    """Weights of a softmax from log-sum-exps, and what those have lost by rounding."""
    # no score exceeds its log-sum-exp, but a padded query meets that of another one: keep it finite
    return tl.where(exists, exp(tl.minimum(score - lse, 0.0) - rest, PRECISION), 0.0)


@triton.jit
def gradients(
    dot, entry, exists, grad_weight, lse, rest, shift, scale, KERNEL: tl.constexpr, RELATION: tl.constexpr,
    PRECISION: tl.constexpr
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
        weight = weights(score, exists, lse, rest, PRECISION)
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
