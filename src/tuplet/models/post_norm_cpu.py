"""What follows on attention in a post-norm layer, in one on a CPU: s = x + Wo m, y = BN(s), t = y + FFN(y), z = BN(t).

Residuals are added where norms read them anyway, forward and backward, so that they cost no pass over the tokens of their own. The
biases of Wo and W2 stand before a norm that takes the mean away: they move the running means and nothing else, and their
gradients are zero.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from tuplet.models.dense_cpu import feed, feed_backward, portions
from tuplet.native.tokens import add_and_normalise, normalise, normalise_backward


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
        x = x.contiguous()
        s = torch.empty_like(x)
        for own, into in portions(message, s):
            torch.mm(own, output.t(), out=into)
        y, mean_s, variance_s = add_and_normalise(s, x, gamma, beta, norms[0].eps)
        t, hidden = feed(y, w1, b1, w2, gelu)
        z, mean_t, variance_t = add_and_normalise(t, y, last_gamma, last_beta, norms[1].eps)
        if follow:
            _follow(norms[0], mean_s, variance_s, biases[0], len(x))
            _follow(norms[1], mean_t, variance_t, biases[1], len(x))
        found = mean_s, variance_s, mean_t, variance_t
        # y is found again from s, which costs less than keeping it
        ctx.save_for_backward(message, s, hidden, t, output, gamma, beta, w1, w2, last_gamma, *found)
        ctx.settings = [norm.eps for norm in norms], gelu
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        message, s, hidden, t, output, gamma, beta, w1, w2, last_gamma, *found = ctx.saved_tensors
        mean_s, variance_s, mean_t, variance_t = found
        eps, gelu = ctx.settings
        ctx.maybe_clear_saved_tensors()  # memory is given back as soon as what it holds has been used
        above, *grads_last = normalise_backward(grad, None, t, last_gamma, mean_t, variance_t, eps[1])
        del t
        y = normalise(s, gamma, beta, mean_s, variance_s, eps[0])
        grad, grad_w1, grad_b1, grad_w2 = feed_backward(above, y, hidden, w1, w2, gelu)
        del y, hidden
        grad, *grads_first = normalise_backward(grad, above, s, gamma, mean_s, variance_s, eps[0])
        del s, above
        grad_message, grad_output = torch.empty_like(message), torch.zeros_like(output)
        for above, own, into in portions(grad, message, grad_message):
            grad_output.addmm_(above.t(), own)
            torch.mm(above, output, out=into)
        zeros = (torch.zeros_like(gamma), torch.zeros_like(last_gamma))
        grads = grad_output, *grads_first, grad_w1, grad_b1, grad_w2, *grads_last, *zeros
        return grad, grad_message, *grads, None, None, None


def _follow(norm: nn.BatchNorm1d, mean: Tensor, variance: Tensor, ahead: Tensor, rows: int) -> None:
    """Move the running statistics towards those of what the norm saw, to which the bias ``ahead`` of it belongs."""
    if norm.running_mean is None or norm.running_var is None or norm.num_batches_tracked is None:
        return
    norm.num_batches_tracked.add_(1)
    momentum = 1 / float(norm.num_batches_tracked) if norm.momentum is None else norm.momentum
    norm.running_mean.lerp_((mean + ahead).to(norm.running_mean.dtype), momentum)
    norm.running_var.lerp_((variance * (rows / (rows - 1))).to(norm.running_var.dtype), momentum)
