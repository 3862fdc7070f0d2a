"""The ``triton`` backend as one operator: opaque to ``torch.compile``, with a backward pass of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tuplet.attention.fused import launch
from tuplet.attention.weights import Rule
from tuplet.patterns import Fused, unpack_fused


@torch.library.custom_op("tuplet::fused_attend", mutates_args=())
def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    table: Tensor,
    tensors: Sequence[Tensor],
    integers: Sequence[int],
    kernel: str,
    relation: str,
    scale: float,
) -> tuple[Tensor, Tensor]:
    return launch.forward(q, k, v, table, unpack_fused(list(tensors), list(integers)), Rule(kernel, relation, scale))


@_attend.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, table: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return q.new_empty(q.shape[0], q.shape[1], v.shape[2]), q.new_empty(q.shape[:2], dtype=torch.float32)


@torch.library.custom_op("tuplet::fused_attend_backward", mutates_args=())
def _attend_backward(
    grad_out: Tensor, grad_lse: Tensor | None, q: Tensor, k: Tensor, v: Tensor, table: Tensor, out: Tensor, lse: Tensor,
    tensors: Sequence[Tensor], integers: Sequence[int], kernel: str, relation: str, scale: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    structure, rule = unpack_fused(list(tensors), list(integers)), Rule(kernel, relation, scale)
    return launch.backward(grad_out, grad_lse, q, k, v, table, out, lse, structure, rule)


@_attend_backward.register_fake
def _(
    grad_out: Tensor, grad_lse: Tensor | None, q: Tensor, k: Tensor, v: Tensor, table: Tensor, *_: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return tuple(torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v, table))  # type: ignore[return-value]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)
    q, k, v, table, tensors, integers, kernel, relation, scale = inputs
    ctx.save_for_backward(q, k, v, table, *output, *tensors)
    ctx.settings = (list(integers), kernel, relation, scale)
    ctx.count = len(tensors)


def _backward(ctx: Any, grad_out: Tensor | None, grad_lse: Tensor | None) -> tuple[Any, ...]:
    q, k, v, table, out, lse, *tensors = ctx.saved_tensors
    grad_out = torch.zeros_like(out) if grad_out is None else grad_out
    grads = _attend_backward(grad_out, grad_lse, q, k, v, table, out, lse, tensors, *ctx.settings)
    return (*grads, [None] * ctx.count, None, None, None, None)


_attend.register_autograd(_backward, setup_context=_setup)


def attend(q: Tensor, k: Tensor, v: Tensor, structure: Fused, table: Tensor, rule: Rule) -> tuple[Tensor, Tensor]:
    """Messages (T1, h, c) and log-sum-exps (T1, h); head h attends to group h mod groups of the structure."""
    tensors, integers = structure.pack()
    return _attend(q, k, v, table, tensors, integers, rule.kernel, rule.relation, rule.scale)
