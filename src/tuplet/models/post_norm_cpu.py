"""What follows on attention in a post-norm layer, in one on a CPU: s = x + Wo m, y = BN(s), t = y + FFN(y), z = BN(t).

Compiled (``native/post_norm.c``): three passes over the tokens forward and three backward, and what lies between two of them stays
in the cache. The biases of Wo and W2 stand before a norm that takes the mean away: they move the running means and nothing else,
and their gradients are zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from tuplet.models.dense_cpu import library_for


@dataclass(frozen=True)
class After:
    """What follows on the attention of one kind of tokens.

    Args:
        x: (T, d) tokens before it.
        output: Wo.
        norms: in training mode.
        maps: W1 and W2.
        gelu: the activation is GELU, else ReLU.
    """

    x: Tensor
    output: nn.Linear
    norms: tuple[nn.BatchNorm1d, nn.BatchNorm1d]
    maps: tuple[nn.Linear, nn.Linear]
    gelu: bool

    @property
    def weights(self) -> tuple[Tensor, ...]:
        """W1, b1, W2, Wo, weight and bias of both norms, and the biases of Wo and W2."""
        (first, last), (one, two) = self.norms, self.maps
        norms = first.weight, first.bias, last.weight, last.bias
        return one.weight, one.bias, two.weight, self.output.weight, *norms, self.output.bias, two.bias


WEIGHTS = 10
"""Of one kind of tokens."""


def post_norm(several: Sequence[After], messages: Sequence[Tensor], follow: bool) -> tuple[Tensor, ...]:
    """(T, d) BN(y + FFN(y)) of y = BN(x + Wo message) for each kind of tokens; ``follow``: running statistics do.

    Messages are a tensor each, or one for all kinds in turn (see ``apart``).
    """
    tensors = [tensor for after in several for tensor in (after.x, *after.weights)]
    found: tuple[Tensor, ...] = _PostNorm.apply(several, follow, len(messages), *messages, *tensors)
    return found


class _PostNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, several: Sequence[After], follow: bool, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        tensors = tuple(tensor.contiguous() for tensor in tensors)
        own = [tensors[first : first + 1 + WEIGHTS] for first in range(count, len(tensors), 1 + WEIGHTS)]
        messages = apart(tensors[:count], [len(x) for x, *_ in own])
        saved, ctx.settings, left = [], [], []
        for after, (x, *weights, output_bias, last_bias), message in zip(several, own, messages, strict=True):
            w1, b1, w2, output, weight_s, bias_s, weight_t, bias_t = weights
            s, t, z = (torch.empty_like(x) for _ in range(3))
            found = x.new_empty(4, x.shape[1])
            settings = len(w1), int(after.gelu), *(float(norm.eps) for norm in after.norms)
            ahead = zip((output_bias, last_bias), after.norms, strict=True)
            running = [part for bias, norm in ahead for part in (bias, *running_of(norm, follow))]
            given = x, message, output, weight_s, bias_s, w1, b1, w2, weight_t, bias_t
            library_for(x).run("post_norm", *x.shape, *settings, *given, s, t, z, found, *running)
            saved += [s, t, output, weight_s, bias_s, w1, b1, w2, weight_t, found]
            ctx.settings.append(settings)
            left.append(z)
        ctx.count = count
        ctx.save_for_backward(*tensors[:count], *saved)
        return tuple(left)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        tensors = ctx.saved_tensors
        messages, saved = tensors[: ctx.count], tensors[ctx.count :]
        grad_messages, found = [torch.empty_like(message) for message in messages], []
        own = [saved[first : first + 10] for first in range(0, len(saved), 10)]
        counts = [len(s) for s, *_ in own]
        parts = zip(apart(messages, counts), apart(grad_messages, counts), strict=True)
        if ctx.count == 1:
            grad_messages[0][sum(counts) :].zero_()
        for grad, kept, settings, (message, grad_message) in zip(grads, own, ctx.settings, parts, strict=True):
            s, _, output, _, _, w1, _, w2, _, _ = kept
            sizes = w1.numel(), len(w1), w2.numel(), output.numel()
            grad_x, sums, norms = torch.empty_like(s), s.new_empty(sum(sizes)), s.new_empty(4, s.shape[1])
            left = grad_x, grad_message, sums, norms
            library_for(s).run("post_norm_backward", *s.shape, *settings, grad.contiguous(), message, *kept, *left)
            grad_w1, grad_b1, grad_w2, grad_output = sums.split(sizes)
            weight_s, bias_s, weight_t, bias_t = norms.unbind()
            feed = grad_w1.view_as(w1), grad_b1, grad_w2.view_as(w2)
            zeros = s.new_zeros(2, s.shape[1]).unbind()
            found += [grad_x, *feed, grad_output.view_as(output), weight_s, bias_s, weight_t, bias_t, *zeros]
        return None, None, None, *grad_messages, *found


def apart(messages: Sequence[Tensor], counts: list[int]) -> Sequence[Tensor]:
    """A message (T, d) for each kind of tokens, so many of each: a tensor each, or one for all, after which others may follow."""
    if len(messages) == 1 and len(messages[0]) > counts[0]:
        *messages, _ = messages[0].split([*counts, len(messages[0]) - sum(counts)])
    assert [len(message) for message in messages] == counts
    return messages


Running = tuple[float, Tensor | None, Tensor | None, Tensor | None]
"""See ``running_of``."""


def running_of(norm: nn.BatchNorm1d, follow: bool) -> Running:
    """By how much running statistics are to follow this batch's, less than 0 for the mean of all batches; how many these were; and the
    statistics. None if there are none or they do not follow."""
    if not follow or norm.running_mean is None or norm.running_var is None or norm.num_batches_tracked is None:
        return 0.0, None, None, None
    momentum = -1.0 if norm.momentum is None else float(norm.momentum)
    return momentum, norm.num_batches_tracked, norm.running_mean, norm.running_var
