"""What follows on attention in a post-norm layer, in one on a CPU: s = x + Wo m, y = BN(s), t = y + FFN(y), z = BN(t).

Compiled (``native/post_norm.c``): three passes over the tokens forward and three backward, and what lies between two of them stays
in the cache. The biases of Wo and W2 stand before a norm that takes the mean away: they move the running means and nothing else,
and their gradients are zero.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from tuplet.models.dense_cpu import library_for


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
    assert message.shape == x.shape
    (first, last), (one, two) = norms, maps
    weights = output.weight, first.weight, first.bias, one.weight, one.bias, two.weight, last.weight, last.bias
    z: Tensor = _PostNorm.apply(x, message, *weights, output.bias, two.bias, norms, gelu, follow)
    return z


class _PostNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, message: Tensor, *given: Any) -> Tensor:
        *weights, output_bias, last_bias, norms, gelu, follow = given
        biases = output_bias.contiguous(), last_bias.contiguous()
        x, message, *weights = (tensor.contiguous() for tensor in (x, message, *weights))
        output, weight_s, bias_s, w1, _, w2, weight_t, _ = weights
        s, t, z = (torch.empty_like(x) for _ in range(3))
        hidden, found = x.new_empty(len(x), len(w1)), x.new_empty(4, x.shape[1])
        settings = len(w1), int(gelu), *(float(norm.eps) for norm in norms)
        running = [part for norm, ahead in zip(norms, biases, strict=True) for part in (ahead, *_running(norm, follow))]
        library_for(x).run("post_norm", *x.shape, *settings, x, message, *weights, s, hidden, t, z, found, *running)
        # y is found again from s, which costs less than keeping it
        ctx.save_for_backward(message, s, hidden, t, output, weight_s, bias_s, w1, w2, weight_t, found)
        ctx.settings = settings
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        message, s, hidden, t, output, weight_s, bias_s, w1, w2, weight_t, found = ctx.saved_tensors
        width, inner = s.shape[1], len(w1)
        sizes = w1.numel(), inner, w2.numel(), output.numel()
        grad_x, grad_message = torch.empty_like(s), torch.empty_like(message)
        sums, norms = s.new_empty(sum(sizes)), s.new_empty(4, width)
        given = message, s, hidden, t, output, weight_s, bias_s, w1, w2, weight_t, found
        left = grad_x, grad_message, sums, norms
        library_for(s).run("post_norm_backward", *s.shape, *ctx.settings, grad.contiguous(), *given, *left)
        grad_w1, grad_b1, grad_w2, grad_output = sums.split(sizes)
        first = grad_output.view_as(output), norms[0], norms[1]
        feed = grad_w1.view_as(w1), grad_b1, grad_w2.view_as(w2)
        zeros = s.new_zeros(2, width).unbind()
        return grad_x, grad_message, *first, *feed, norms[2], norms[3], *zeros, None, None, None


def _running(norm: nn.BatchNorm1d, follow: bool) -> tuple[float, Tensor | None, Tensor | None]:
    """By how much running statistics are to follow this batch's, and the statistics; none if there are none or they do not."""
    if not follow or norm.running_mean is None or norm.running_var is None or norm.num_batches_tracked is None:
        return 0.0, None, None
    norm.num_batches_tracked.add_(1)
    momentum = 1 / float(norm.num_batches_tracked) if norm.momentum is None else norm.momentum
    return float(momentum), norm.running_mean, norm.running_var
