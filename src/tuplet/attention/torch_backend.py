"""The ``torch`` backend as one operator: opaque to ``torch.compile``, with a backward pass of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tuplet.attention import lines, rows
from tuplet.attention.weights import Rule, wide
from tuplet.patterns import Lines, Structure, unpack


@torch.library.custom_op("tuplet::attend", mutates_args=())
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
    structure = unpack(list(tensors), list(integers))
    backend = lines if isinstance(structure, Lines) else rows
    with torch.autocast(q.device.type, enabled=False):  # the operator chooses its own precision
        return backend.forward(q, k, v, table, structure, Rule(kernel, relation, scale))


@_attend.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, table: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return q.new_empty(q.shape[0], q.shape[1], v.shape[2]), q.new_empty(q.shape[:2], dtype=wide(q.dtype))


@torch.library.custom_op("tuplet::attend_backward", mutates_args=())
def _attend_backward(
    grad_out: Tensor, grad_lse: Tensor, q: Tensor, k: Tensor, v: Tensor, table: Tensor, out: Tensor, lse: Tensor,
    tensors: Sequence[Tensor], integers: Sequence[int], kernel: str, relation: str, scale: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    structure = unpack(list(tensors), list(integers))
    backend = lines if isinstance(structure, Lines) else rows
    rule = Rule(kernel, relation, scale)
    with torch.autocast(q.device.type, enabled=False):
        return backend.backward(grad_out, grad_lse, q, k, v, table, out, lse, structure, rule)


@_attend_backward.register_fake
def _(
    grad_out: Tensor, grad_lse: Tensor, q: Tensor, k: Tensor, v: Tensor, table: Tensor, *_: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return tuple(torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v, table))  # type: ignore[return-value]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, table, tensors, integers, kernel, relation, scale = inputs
    ctx.save_for_backward(q, k, v, table, *output, *tensors)
    ctx.settings = (list(integers), kernel, relation, scale)
    ctx.count = len(tensors)


def _backward(ctx: Any, grad_out: Tensor, grad_lse: Tensor) -> tuple[Any, ...]:
    q, k, v, table, out, lse, *tensors = ctx.saved_tensors
    grads = _attend_backward(grad_out, grad_lse, q, k, v, table, out, lse, tensors, *ctx.settings)
    return (*grads, [None] * ctx.count, None, None, None, None)


_attend.register_autograd(_backward, setup_context=_setup)


def attend(q: Tensor, k: Tensor, v: Tensor, structure: Structure, table: Tensor, rule: Rule) -> tuple[Tensor, Tensor]:
    """Messages (T1, h, c) and log-sum-exps (T1, h) of one group of keys."""
    tensors, integers = structure.pack()
    return _attend(q, k, v, table, tensors, integers, rule.kernel, rule.relation, rule.scale)
