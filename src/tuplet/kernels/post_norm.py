"""What follows on attention in a post-norm layer, as one operator: s = x + Wo m, y = BN(s), t = y + FFN(y), z = BN(t).

The biases of Wo and W2 stand before a norm that takes the mean away: they move the running means and nothing else, and their
gradients are zero.
"""

from __future__ import annotations

from typing import Any

import torch
import triton.language as tl
from torch import Tensor, nn

from tuplet.kernels import norm_kernels, post_norm_kernels
from tuplet.kernels.dense import add_shares
from tuplet.kernels.norm import WARPS, room_for, sizes_of
from tuplet.kernels.sizes import power, precision

ROWS, GRADIENT_ROWS = 32, 16
"""Tokens of a tile, forward and backward."""
FEED_WARPS, GRADIENT_WARPS = 4, 8
PROGRAMS, GRADIENT_PROGRAMS = 256, 128
"""Programs that share the tokens, forward and backward, at most."""


@torch.library.custom_op("tuplet::post_norm", mutates_args=())
def _post_norm(
    x: Tensor, message: Tensor, output: Tensor, weight_s: Tensor, bias_s: Tensor, w1: Tensor, b1: Tensor, w2: Tensor,
    weight_t: Tensor, bias_t: Tensor, output_bias: Tensor, b2: Tensor, live: Tensor | None, eps_s: float, eps_t: float,
    gelu: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    rows, width = x.shape
    parts, sizes = sizes_of(x)
    low = message.dtype != x.dtype
    added = message @ output.to(message.dtype).t() if low else x
    s = torch.empty_like(x) if low else torch.addmm(x, message, output.t())
    shares = room_for(x, parts)
    masked = {"MASKED": live is not None}
    mask = x if live is None else live
    norm_kernels.add_and_measure[(parts,)](
        x if low else s, added, mask, s, *shares, rows, width, parts, ADD=low, **masked, **sizes, num_warps=WARPS
    )
    t, z = torch.empty_like(x), torch.empty_like(x)
    found = x.new_empty(2, 3, width, dtype=torch.float32)
    programs = min(PROGRAMS, -(-rows // ROWS))
    later = room_for(x, programs)
    post_norm_kernels.feed[(programs,)](
        s, *shares, weight_s, bias_s, mask, w1, b1, w2, t, *later, *found[0], rows, width, w1.shape[0], parts, programs,
        eps_s, **masked, **_choices(gelu, message), **_sizes(w1, ROWS), PARTS=power(parts, 1), num_warps=FEED_WARPS,
    )  # fmt: skip
    norm_kernels.normalise[(-(-rows // sizes["ROWS"]),)](
        t, *later, weight_t, bias_t, z, *found[1], rows, width, programs, eps_t, **sizes, PARTS=power(programs, 1),
        num_warps=WARPS,
    )  # fmt: skip
    return z, s, t, found


@_post_norm.register_fake
def _(x: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return (*(torch.empty_like(x) for _ in range(3)), x.new_empty(2, 3, x.shape[1], dtype=torch.float32))  # type: ignore[return-value]


@torch.library.custom_op("tuplet::post_norm_backward", mutates_args=())
def _gradient(
    grad: Tensor, message: Tensor, s: Tensor, t: Tensor, found: Tensor, output: Tensor, weight_s: Tensor, bias_s: Tensor,
    w1: Tensor, b1: Tensor, w2: Tensor, weight_t: Tensor, live: Tensor | None, gelu: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Of x; of the message; of Wo; flat of W1, W2 and b1; and (2, 3, width) of weights and biases of the norms,
    and of the biases before them."""
    grad = grad.contiguous()
    (rows, width), hidden = s.shape, w1.shape[0]
    parts, sizes = sizes_of(s)
    shares = room_for(s, parts)
    masked, mask = {"MASKED": live is not None}, s if live is None else live
    mean_s, scale_s, _ = found[0]
    mean_t, scale_t, _ = found[1]
    norms = torch.empty(2, 3, width, dtype=torch.float32, device=s.device)
    norm_kernels.measure_gradient[(parts,)](
        grad, t, mask, mean_t, scale_t, *shares, rows, width, parts, **masked, **sizes, num_warps=WARPS
    )
    programs = min(GRADIENT_PROGRAMS, -(-rows // GRADIENT_ROWS))
    grad_y, grad_x = torch.empty_like(s), torch.empty_like(s)
    share = s.new_empty(programs, 2 * w1.numel() + hidden, dtype=torch.float32)
    later = room_for(s, programs)
    post_norm_kernels.feed_gradient[(programs,)](
        grad, t, mean_t, scale_t, weight_t, *shares, s, mean_s, scale_s, weight_s, bias_s, mask, w1, b1, w2, grad_y, share,
        *later, norms, rows, width, hidden, parts, programs, **masked, **_choices(gelu, message),
        **_sizes(w1, GRADIENT_ROWS), PARTS=power(parts, 1), num_warps=GRADIENT_WARPS,
    )  # fmt: skip
    norm_kernels.normalise_gradient[(-(-rows // sizes["ROWS"]),)](
        grad_y, s, mask, mean_s, scale_s, weight_s, *later, grad_x, *norms[0, :2], rows, width, programs, **masked, **sizes,
        PARTS=power(programs, 1), num_warps=WARPS,
    )  # fmt: skip
    low = grad_x.to(message.dtype)
    return grad_x, low @ output.to(low.dtype), (low.t() @ message).to(output.dtype), add_shares(share), norms


@_gradient.register_fake
def _(grad: Tensor, message: Tensor, s: Tensor, t: Tensor, found: Tensor, output: Tensor, *rest: Any) -> Any:
    w1 = rest[2]
    flat = s.new_empty(2 * w1.numel() + len(w1), dtype=torch.float32)
    norms = s.new_empty(2, 3, s.shape[1], dtype=torch.float32)
    return torch.empty_like(s), torch.empty_like(message), torch.empty_like(output), flat, norms


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.set_materialize_grads(False)
    _, message, *weights, live, _, _, ctx.gelu = inputs
    ctx.save_for_backward(message, *output[1:], *weights[:7], live)


def _backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Any, ...]:
    *saved, live = ctx.saved_tensors
    w1, b1, w2 = saved[7:10]
    grad_x, grad_message, grad_output, flat, norms = _gradient(grad, *saved, live, ctx.gelu)
    g1, g2, c1 = flat.split([w1.numel(), w2.numel(), len(b1)])
    (weight_s, bias_s, output_bias), (weight_t, bias_t, b2) = norms
    weights = (grad_output, weight_s, bias_s, g1.view_as(w1), c1, g2.view_as(w2), weight_t, bias_t, output_bias, b2)
    return (grad_x, grad_message, *weights, None, None, None, None)


_post_norm.register_autograd(_backward, setup_context=_setup)


@torch.library.custom_op("tuplet::follow_both", mutates_args=("mean_s", "var_s", "mean_t", "var_t"))
def _follow(
    mean_s: Tensor, var_s: Tensor, mean_t: Tensor, var_t: Tensor, found: Tensor, bias_s: Tensor, bias_t: Tensor,
    momentum_s: float, momentum_t: float,
) -> None:  # fmt: skip
    width = found.shape[2]
    post_norm_kernels.follow[(1,)](
        mean_s, var_s, mean_t, var_t, found, bias_s, bias_t, width, momentum_s, momentum_t, WIDTH=power(width, 16)
    )


def post_norm(
    x: Tensor,
    message: Tensor,
    output: nn.Linear,
    norms: tuple[nn.BatchNorm1d, nn.BatchNorm1d],
    maps: tuple[nn.Linear, nn.Linear],
    gelu: bool,
    live: Tensor | None,
    follow: bool = True,
) -> Tensor:
    """BN(y + FFN(y)) of y = BN(x + Wo message) in training mode; rows that are not ``live`` do not count.

    Args:
        x: (T, d) tokens.
        message: (T, d), before the output projection.
        output: the projection.
        norms: the two batch norms.
        maps: the two maps of the feed-forward.
        gelu: its activation; else ReLU.
        live: (T,) which rows are no padding; None if all.
        follow: whether running statistics do.
    """
    (first, last), (one, two) = norms, maps
    z, _, _, found = _post_norm(
        x.contiguous(), message.contiguous(), output.weight, first.weight, first.bias, one.weight, one.bias, two.weight,
        last.weight, last.bias, output.bias, two.bias, live, first.eps, last.eps, gelu,
    )  # fmt: skip
    if follow and first.running_mean is not None and last.running_mean is not None:
        assert first.running_var is not None
        assert last.running_var is not None
        _follow(
            first.running_mean, first.running_var, last.running_mean, last.running_var, found, output.bias, two.bias,
            _momentum(first), _momentum(last),
        )  # fmt: skip
    return z


def _momentum(norm: nn.BatchNorm1d) -> float:
    return 0.1 if norm.momentum is None else norm.momentum


def _choices(gelu: bool, message: Tensor) -> dict[str, Any]:
    """Matrices are multiplied in the precision of the message: in autocast in its low one."""
    low = (
        tl.bfloat16 if message.dtype == torch.bfloat16 else tl.float16 if message.dtype == torch.float16 else tl.float32
    )
    return {"GELU": gelu, "LOW": low, "PRECISION": precision(message)}


def _sizes(w1: Tensor, rows: int) -> dict[str, int]:
    return {"ROWS": rows, "WIDTH": power(w1.shape[1], 16), "HIDDEN": power(w1.shape[0], 16)}
