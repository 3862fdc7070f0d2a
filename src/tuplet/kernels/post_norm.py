"""What follows on attention in a post-norm layer, as one operator: s = x + Wo m, y = BN(s), t = y + FFN(y), z = BN(t).

The biases of Wo and W2 stand before a norm that takes the mean away: they move the running means and nothing else, and their
gradients are zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tuplet.kernels import norm_kernels, post_norm_kernels
from tuplet.kernels.beside import beside, dealt, later
from tuplet.kernels.dense import add_shares
from tuplet.kernels.halves import type_of
from tuplet.kernels.norm import WARPS, momentum_of, normalise, room_for, settle, sizes_of
from tuplet.kernels.normed import PARTS, Normed, origins, values
from tuplet.kernels.project import weights_gradient
from tuplet.kernels.sizes import AT_ONCE, GRADIENT_PROGRAMS, GRADIENT_ROWS, power, precision

ROWS, FEED_WARPS, GRADIENT_WARPS = 32, 4, 8
PROGRAMS = 256
"""Programs that share the tokens forward, at most, and tokens of a tile."""


@dataclass(frozen=True)
class PostNorm:
    """What follows on attention for some tokens.

    Args:
        x: (T, d) tokens; where it is known what they were made of, s is not kept and is made again on the way back.
        message: (T, d), before the output projection.
        output: the projection.
        norms: the two batch norms.
        maps: the two maps of the feed-forward.
        gelu: its activation; else ReLU.
        live: (T,) which rows are no padding; None if all.
    """

    x: Tensor | Normed
    message: Tensor
    output: nn.Linear
    norms: tuple[nn.BatchNorm1d, nn.BatchNorm1d]
    maps: tuple[nn.Linear, nn.Linear]
    gelu: bool
    live: Tensor | None

    @property
    def parameters(self) -> list[Tensor]:
        """In the order of the operator: all that have gradients other than zero, then the biases before a norm."""
        (first, last), (one, two) = self.norms, self.maps
        maps = [self.output.weight, first.weight, first.bias, one.weight, one.bias, two.weight, last.weight, last.bias]
        return [*maps, self.output.bias, two.bias]

    def follow(self, found: Tensor) -> None:
        """Move the running statistics towards those that were ``found``."""
        first, last = self.norms
        if (
            first.running_mean is None
            or first.running_var is None
            or last.running_mean is None
            or last.running_var is None
        ):
            return
        _follow(
            first.running_mean, first.running_var, last.running_mean, last.running_var, found, self.output.bias,
            self.maps[1].bias, momentum_of(first), momentum_of(last),
        )  # fmt: skip


def post_norm(*streams: PostNorm, follow: bool = True) -> list[Normed]:
    """BN(y + FFN(y)) of y = BN(x + Wo message) in training mode, for several sets of tokens; rows that are not live do not
    count; ``follow``: running statistics do."""
    lives = [one.message.new_empty(0, dtype=torch.bool) if one.live is None else one.live for one in streams]
    outputs = _post_norm(
        [values(one.x).contiguous() for one in streams], origins([one.x for one in streams]), [one.message.contiguous() for one in streams],
        [parameter for one in streams for parameter in one.parameters], lives,
        [norm.eps for one in streams for norm in one.norms], streams[0].gelu,
    )  # fmt: skip
    if follow:
        for one, found in zip(streams, outputs[3::KEPT], strict=True):
            one.follow(found)
    made = zip(streams, outputs[::KEPT], outputs[2::KEPT], outputs[3::KEPT], strict=True)
    return [Normed(z, tuple(x.detach() for x in (t, found[1], *_affine(one)))) for one, z, t, found in made]  # type: ignore[arg-type]


def _affine(one: PostNorm) -> tuple[Tensor, Tensor]:
    return one.norms[1].weight, one.norms[1].bias


KEPT = 4
"""Tensors that the operator returns for each stream: z, s, t, and what the norms found."""
PARAMETERS, GRADIENTS = 10, 5
"""Tensors of each stream that it takes, and that its way back returns."""


@torch.library.custom_op("tuplet::post_norm", mutates_args=())
def _post_norm(
    xs: Sequence[Tensor], origin: Sequence[Tensor], messages: Sequence[Tensor], parameters: Sequence[Tensor],
    lives: Sequence[Tensor], eps: Sequence[float], gelu: bool,
) -> list[Tensor]:  # fmt: skip
    """``origin`` is for the way back (see ``origins``)."""
    streams = zip(
        xs, messages, dealt(parameters, [PARAMETERS] * len(xs)), lives, dealt(eps, [2] * len(xs)), strict=True
    )
    found = beside(*(partial(_forward, *one, gelu) for one in streams))
    return [tensor for tensors in found for tensor in tensors]


@_post_norm.register_fake
def _(xs: Sequence[Tensor], *_: Any) -> list[Tensor]:
    found = [(*(torch.empty_like(x) for _ in range(3)), x.new_empty(2, 3, x.shape[1], dtype=torch.float32)) for x in xs]
    return [tensor for tensors in found for tensor in tensors]


@torch.library.custom_op("tuplet::post_norm_backward", mutates_args=())
def _gradients(
    grads: Sequence[Tensor], messages: Sequence[Tensor], kept: Sequence[Tensor], parameters: Sequence[Tensor],
    lives: Sequence[Tensor], gelu: bool,
) -> list[Tensor]:  # fmt: skip
    """For each stream those of x and of the message; flat of W1, W2 and b1, and of Wo; and (2, 3, width) of weights and biases of
    the norms, and of the biases before them. ``kept`` are t, what the norms found, and s or what makes x again."""
    count = len(grads)
    each = dealt(kept, [len(kept) // count] * count), dealt(parameters, [PARAMETERS] * count)
    streams = zip(grads, messages, *each, lives, strict=True)
    found = beside(*(partial(_backward_one, *one, gelu) for one in streams))
    return [tensor for tensors in found for tensor in tensors]


@_gradients.register_fake
def _(grads: Sequence[Tensor], messages: Sequence[Tensor], kept: Any, parameters: Sequence[Tensor], *_: Any) -> Any:
    found = []
    for grad, message, own in zip(grads, messages, dealt(parameters, [PARAMETERS] * len(grads)), strict=True):
        output, w1, b1, w2 = own[0], *own[3:6]
        flat = w1.new_empty(w1.numel() + w2.numel() + len(b1), dtype=torch.float32)
        flat_output = w1.new_empty(output.numel() + len(output), dtype=torch.float32)
        norms = w1.new_empty(2, 3, grad.shape[1], dtype=torch.float32)
        found += [torch.empty_like(grad), torch.empty_like(message), flat, flat_output, norms]
    return found


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Sequence[Tensor]) -> None:
    ctx.set_materialize_grads(False)
    xs, origin, messages, parameters, lives, _, ctx.gelu = inputs
    ctx.count, ctx.known = len(xs), len(origin)
    before = dealt(origin, [PARTS] * len(xs)) if origin else [[s] for s in output[1::KEPT]]
    kept = zip(output[2::KEPT], output[3::KEPT], before, strict=True)
    ctx.save_for_backward(
        *messages, *lives, *parameters, *(tensor for t, found, own in kept for tensor in (t, found, *own))
    )


def _backward(ctx: Any, grads: Sequence[Tensor]) -> tuple[Any, ...]:
    saved, count = list(ctx.saved_tensors), ctx.count
    messages, lives, rest = saved[:count], saved[count : 2 * count], saved[2 * count :]
    parameters, kept = rest[: PARAMETERS * count], rest[PARAMETERS * count :]
    ts = kept[:: len(kept) // count]
    given = [torch.zeros_like(t) if grad is None else grad for grad, t in zip(grads[::KEPT], ts, strict=True)]
    found = _gradients(given, messages, kept, parameters, lives, ctx.gelu)
    of_parameters: list[Tensor] = []
    for (_, _, flat, flat_output, norms), own in zip(
        dealt(found, [GRADIENTS] * count), dealt(parameters, [PARAMETERS] * count), strict=True
    ):
        output, _, _, w1, b1, w2, *_ = own
        g1, g2, c1 = flat.split([w1.numel(), w2.numel(), len(b1)])
        grad_output = flat_output[: output.numel()]
        (weight_s, bias_s, output_bias), (weight_t, bias_t, b2) = norms
        of_parameters += [grad_output.view_as(output), weight_s, bias_s, g1.view_as(w1), c1, g2.view_as(w2)]
        of_parameters += [weight_t, bias_t, output_bias, b2]
    return found[::GRADIENTS], [None] * ctx.known, found[1::GRADIENTS], of_parameters, [None] * count, None, None


_post_norm.register_autograd(_backward, setup_context=_setup)


def _forward(
    x: Tensor, message: Tensor, parameters: Sequence[Tensor], live: Tensor, eps: Sequence[float], gelu: bool
) -> tuple[Tensor, ...]:
    output, weight_s, bias_s, w1, b1, w2, weight_t, bias_t, *_ = parameters
    (rows, width), masked = x.shape, {"MASKED": len(live) > 0}
    s, t, z = (torch.empty_like(x) for _ in range(3))
    found = x.new_empty(2, 3, width, dtype=torch.float32)
    programs = min(PROGRAMS, -(-rows // ROWS))
    shares, new = room_for(x, programs), room_for(x, programs)
    low = _low(message)
    post_norm_kernels.add_message[(programs,)](
        x, message, output, live, s, *shares, rows, width, programs, **masked, **low, ROWS=ROWS, WIDTH=power(width, 16),
        num_warps=FEED_WARPS,
    )  # fmt: skip
    settle(shares, programs, found[0], eps[0])
    post_norm_kernels.feed[(programs,)](
        s, *found[0, :2], weight_s, bias_s, live, w1, b1, w2, t, *new, rows, width, len(w1), programs, **masked, **low,
        GELU=gelu, **_sizes(w1, ROWS), num_warps=FEED_WARPS,
    )  # fmt: skip
    settle(new, programs, found[1], eps[1])
    normalise(t, found[1], weight_t, bias_t, z)
    return z, s, t, found


def _backward_one(
    grad: Tensor, message: Tensor, kept: Sequence[Tensor], parameters: Sequence[Tensor], live: Tensor, gelu: bool
) -> tuple[Tensor, ...]:
    grad, (t, found, *before) = grad.contiguous(), kept
    output, weight_s, bias_s, w1, b1, w2, weight_t, *_ = parameters
    (rows, width), hidden, masked = t.shape, len(w1), {"MASKED": len(live) > 0}
    (mean_s, scale_s, _), (mean_t, scale_t, _) = found
    parts, tile = sizes_of(t)
    shares = room_for(t, parts)
    norms = torch.empty(2, 3, width, dtype=torch.float32, device=t.device)

    def measure() -> None:
        norm_kernels.measure_gradient[(parts,)](
            grad, t, live, mean_t, scale_t, *shares, rows, width, parts, **masked, **tile, num_warps=WARPS
        )

    s, *origin = before if len(before) == 1 else (torch.empty_like(t), *before)
    beside(measure, *([partial(_restore, s, message, output, origin)] if origin else []))
    programs = min(GRADIENT_PROGRAMS, -(-rows // GRADIENT_ROWS))
    # what is not needed any more is written over: the gradient of y by that of x, and s, unless it is kept, by that of the message
    grad_y = torch.empty_like(s)
    grad_message = s if origin and message.dtype == s.dtype else torch.empty_like(message)
    share = s.new_empty(programs, 2 * w1.numel() + hidden, dtype=torch.float32)
    new, low = room_for(s, programs), _low(message)
    post_norm_kernels.feed_gradient[(programs,)](
        grad, t, mean_t, scale_t, weight_t, *shares, s, mean_s, scale_s, weight_s, bias_s, live, w1, b1, w2, grad_y, share,
        *new, norms, rows, width, hidden, parts, programs, **masked, **low, GELU=gelu, **_sizes(w1, GRADIENT_ROWS),
        PARTS=power(parts, 1), num_warps=GRADIENT_WARPS,
    )  # fmt: skip
    parts, programs = programs, min(AT_ONCE, -(-rows // ROWS))
    post_norm_kernels.message_gradient[(programs,)](
        grad_y, s, output, live, mean_s, scale_s, weight_s, *new, grad_y, grad_message, *norms[0, :2], rows,
        width, parts, programs, **masked, **low, ROWS=ROWS, WIDTH=power(width, 16), PARTS=power(parts, 1),
        num_warps=FEED_WARPS,
    )  # fmt: skip
    of_output = partial(weights_gradient, grad_y, message, [], 1, [rows], torch.float32)
    return grad_y, grad_message, *later(partial(add_shares, share), of_output, read=[share, grad_y, message]), norms


def _restore(s: Tensor, message: Tensor, output: Tensor, origin: Sequence[Tensor]) -> None:
    """s = x + Wo m, of x as a norm made it."""
    rows, width = s.shape
    post_norm_kernels.add_message_again[(-(-rows // ROWS),)](
        *origin, message, output, s, rows, width, **_low(message), ROWS=ROWS, WIDTH=power(width, 16), num_warps=FEED_WARPS,
    )  # fmt: skip


@torch.library.custom_op("tuplet::follow_both", mutates_args=("mean_s", "var_s", "mean_t", "var_t"))
def _follow(
    mean_s: Tensor, var_s: Tensor, mean_t: Tensor, var_t: Tensor, found: Tensor, bias_s: Tensor, bias_t: Tensor,
    momentum_s: float, momentum_t: float,
) -> None:  # fmt: skip
    width = found.shape[2]

    def follow() -> None:
        post_norm_kernels.follow[(1,)](
            mean_s, var_s, mean_t, var_t, found, bias_s, bias_t, width, momentum_s, momentum_t, WIDTH=power(width, 16)
        )

    later(follow, read=[found], hold=True)


def _low(message: Tensor) -> dict[str, Any]:
    """Matrices are multiplied in the precision of the message: in autocast in its low one."""
    return {"LOW": type_of(message.dtype), "PRECISION": precision(message)}


def _sizes(w1: Tensor, rows: int) -> dict[str, int]:
    return {"ROWS": rows, "WIDTH": power(w1.shape[1], 16), "HIDDEN": power(w1.shape[0], 16)}
