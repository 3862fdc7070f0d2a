"""Residuals, batch norms and activations of many tokens, by tokens.c; without it by operators of torch, in more passes."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from tuplet.native.library import Library, load

PORTION = 256
"""Rows of a portion, as tokens.c has it."""


def add_and_normalise(
    x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Add ``residual`` to ``x`` in place; (T, d) batch norm of it in training mode, and (d,) the mean and the variance."""
    library = _library(x, residual, weight, bias)
    if library is None:
        out, mean, scale = torch.native_batch_norm(x.add_(residual), weight, bias, None, None, True, 0.0, eps)
        return out, mean, scale.pow(-2).sub_(eps).clamp_min_(0)
    mean, variance = x.new_empty(2, x.shape[1])
    library.run("add_and_measure", *x.shape, x, residual.contiguous(), _shares(x), mean, variance)
    return normalise(x, weight, bias, mean, variance, eps), mean, variance


def normalise(x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, eps: float) -> Tensor:
    """Batch norm with these means and variances."""
    library = _library(x, weight, bias)
    if library is None:
        return F.batch_norm(x, mean, variance, weight, bias, False, 0.0, eps)
    out = torch.empty_like(x)
    factor = weight * (variance + eps).rsqrt_()
    library.run("normalise", *x.shape, x, mean, factor.contiguous(), bias.contiguous(), out)
    return out


def normalise_backward(
    grad: Tensor, more: Tensor | None, x: Tensor, weight: Tensor, mean: Tensor, variance: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x, weight and bias of a batch norm, from ``grad`` and, if there is ``more``, from their sum."""
    scale = (variance + eps).rsqrt_()
    library = _library(x, weight, grad, grad if more is None else more)
    if library is None:
        grad = grad if more is None else grad + more
        every = [True, True, True]
        grads: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.native_batch_norm_backward(
            grad, x, weight, None, None, mean, scale, True, eps, every
        )
        return grads
    grad_x, (grad_weight, grad_bias) = torch.empty_like(x), weight.new_empty(2, len(weight))
    found = _shares(x), grad_x, grad_weight, grad_bias
    grad, weight = grad.contiguous(), weight.contiguous()
    library.run("normalise_backward", *x.shape, grad, more, x, mean, scale, weight, *found)
    return grad_x, grad_weight, grad_bias


def activate(x: Tensor, bias: Tensor, gelu: bool) -> Tensor:
    """Add the bias to ``x`` in place, and φ(x)."""
    library = _library(x, bias)
    if library is None:
        return (F.gelu if gelu else F.relu)(x.add_(bias))
    out = torch.empty_like(x)
    library.run("activate", *x.shape, x, bias.contiguous(), int(gelu), out)
    return out


def activate_backward(x: Tensor, grad: Tensor, gelu: bool) -> tuple[Tensor, Tensor]:
    """φ(x), and the gradient of x, which takes the place of ``grad``."""
    library = _library(x, grad)
    if library is None:
        return (F.gelu(x), torch.ops.aten.gelu_backward(grad, x)) if gelu else (F.relu(x), grad * (x > 0))
    out = torch.empty_like(x)
    library.run("activate_backward", *x.shape, x, int(gelu), grad, out)
    return out, grad


def _library(*tensors: Tensor) -> Library | None:
    """Compiled functions, where all tensors have one type."""
    return load(tensors[0]) if len({x.dtype for x in tensors}) == 1 else None


def _shares(x: Tensor) -> Tensor:
    return x.new_empty(-(-len(x) // PORTION), 2, x.shape[1])
