"""What follows on attention in a post-norm layer, in one on a CPU: s = x + Wo m, y = BN(s), t = y + FFN(y), z = BN(t).

Residuals are where products begin to add up, forward and backward, so that they cost no pass over the tokens of their own. The
biases of Wo and W2 stand before a norm that takes the mean away: they move the running means and nothing else, and their
gradients are zero.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from tuplet.models.dense_cpu import feed, feed_backward, portions


def post_norm(
    x: Tensor,
    message: Tensor,
    output: nn.Linear,
    norms: tuple[nn.BatchNorm1d, nn.BatchNorm1d],
    maps: tuple[nn.Linear, nn.Linear],
    gelu: bool,
    follow: bool,
) -> Tensor:
    """(T, d) BN(y + FFN(y)) of y = BN(x + Wo message) in training mode; ``follow``: running statistics do."""
    (first, last), (one, two) = norms, maps
    weights = output.weight, first.weight, first.bias, one.weight, one.bias, two.weight, last.weight, last.bias
    z: Tensor = _PostNorm.apply(x, message, *weights, output.bias, two.bias, norms, gelu, follow)
    return z


class _PostNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, message: Tensor, *given: Any) -> Tensor:
        output, gamma, beta, w1, b1, w2, last_gamma, last_beta, *biases, norms, gelu, follow = given
        s = torch.empty_like(x)
        for rows, own, into in portions(x, message, s):
            torch.addmm(rows, own, output.t(), out=into)
        y, *found = _normed(s, gamma, beta, norms[0], biases[0], follow)
        t, hidden = feed(y, w1, b1, w2, gelu, residual=True)
        z, *last_found = _normed(t, last_gamma, last_beta, norms[1], biases[1], follow)
        ctx.save_for_backward(message, s, y, hidden, t, output, gamma, w1, w2, last_gamma, *found, *last_found)
        ctx.settings = [norm.eps for norm in norms], gelu
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        message, s, y, hidden, t, output, gamma, w1, w2, last_gamma, *found = ctx.saved_tensors
        eps, gelu = ctx.settings
        ctx.maybe_clear_saved_tensors()  # memory is given back as soon as what it holds has been used
        grad, *grads_last = _normed_backward(grad, t, last_gamma, found[2:], eps[1])
        del t
        grad, grad_w1, grad_b1, grad_w2 = feed_backward(grad, y, hidden, w1, w2, gelu, residual=True)
        del y, hidden
        grad, *grads_first = _normed_backward(grad, s, gamma, found[:2], eps[0])
        del s
        grad_message, grad_output = torch.empty_like(message), torch.zeros_like(output)
        for above, own, into in portions(grad, message, grad_message):
            grad_output.addmm_(above.t(), own)
            torch.mm(above, output, out=into)
        zeros = (torch.zeros_like(gamma), torch.zeros_like(last_gamma))
        grads = grad_output, *grads_first, grad_w1, grad_b1, grad_w2, *grads_last, *zeros
        return grad, grad_message, *grads, None, None, None


def _normed(
    x: Tensor, weight: Tensor, bias: Tensor, norm: nn.BatchNorm1d, ahead: Tensor, follow: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """BN(x), and the mean and the factor that it found; the running mean is that of x + ``ahead``."""
    if not follow or norm.running_mean is None or norm.running_var is None or norm.num_batches_tracked is None:
        return torch.native_batch_norm(x, weight, bias, None, None, True, 0.0, norm.eps)
    norm.num_batches_tracked.add_(1)
    momentum = 1 / float(norm.num_batches_tracked) if norm.momentum is None else norm.momentum
    found = torch.native_batch_norm(x, weight, bias, norm.running_mean, norm.running_var, True, momentum, norm.eps)
    norm.running_mean.add_(ahead, alpha=momentum)
    return found


def _normed_backward(
    grad: Tensor, x: Tensor, weight: Tensor, found: list[Tensor], eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x, weight and bias."""
    every = [True, True, True]
    grads: tuple[Tensor, Tensor, Tensor]
    grads = torch.ops.aten.native_batch_norm_backward(grad, x, weight, None, None, *found, True, eps, every)
    return grads
