"""A layer's whole attention as one operator: tokens over a pattern, and tokens and virtual tokens over each other.

Queries, keys and values come side by side as one projection makes them, and so do their gradients: nothing is taken apart,
stacked or added up on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tuplet.attention.fused import exchange, launch
from tuplet.attention.weights import Rule
from tuplet.kernels.beside import beside
from tuplet.patterns import Fused, FusedLines, FusedRows, unpack_fused


@torch.library.custom_op("tuplet::mix", mutates_args=())
def _mix(
    real: Tensor, other: Tensor | None, unreal: Tensor | None, table: Tensor, virtual_table: Tensor, pattern: Sequence[Tensor],
    virtual: Sequence[Tensor], pattern_numbers: Sequence[int], virtual_numbers: Sequence[int], upward: bool, joint: bool,
    kernel: str, relation: str, scale: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Messages of tokens and of virtual tokens, and log-sum-exps of both: of tokens those of the pattern, or in one softmax of
    all."""
    heads, width = real.shape[2:]
    seen, lse = None, real.new_empty(0, heads, dtype=torch.float32)
    if pattern:
        structure = unpack_fused(list(pattern), list(pattern_numbers))
        seen, lse = launch.forward(*_parts(real, other), table, structure, Rule(kernel, relation, scale))
    if unreal is None:
        assert seen is not None
        return seen, real.new_empty(0, heads, width), lse, lse.new_empty(0)
    exchanged = _exchange(virtual, virtual_numbers, Rule(kernel, relation, scale), joint, upward)
    message, up, both, up_lse = exchanged.forward(real, unreal, virtual_table, seen, lse)
    return message, up, both if len(both) else lse, up_lse


@_mix.register_fake
def _(
    real: Tensor, other: Any, unreal: Tensor | None, table: Tensor, virtual_table: Tensor, pattern: Sequence[Tensor],
    virtual: Any, pattern_numbers: Any, virtual_numbers: Any, upward: bool, *_rule: Any,
) -> Any:  # fmt: skip
    tokens, _, heads, width = real.shape
    up = 0 if unreal is None or not upward else len(unreal)
    lse = real.new_empty(tokens if pattern else 0, heads, dtype=torch.float32)
    up_lse = lse.new_empty(0) if unreal is None else lse.new_empty(up, heads)
    return real.new_empty(tokens, heads, width), real.new_empty(up, heads, width), lse, up_lse


@torch.library.custom_op("tuplet::mix_backward", mutates_args=())
def _gradient(
    grad: Tensor, grad_up: Tensor | None, real: Tensor, other: Tensor | None, unreal: Tensor | None, table: Tensor,
    virtual_table: Tensor, message: Tensor, up: Tensor, lse: Tensor, up_lse: Tensor,
    pattern: Sequence[Tensor], virtual: Sequence[Tensor], pattern_numbers: Sequence[int], virtual_numbers: Sequence[int],
    joint: bool, kernel: str, relation: str, scale: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    grad = grad.contiguous()
    rule = Rule(kernel, relation, scale)
    structure = unpack_fused(list(pattern), list(pattern_numbers)) if pattern else None
    upward = grad_up is not None
    # virtual tokens come first and leave keys and values alone, unless they see them; lines leave padding alone
    rows = isinstance(structure, FusedRows)
    make = _maker(rows if unreal is None else upward or real.shape[1] == 1)
    grad_real = make(real)
    grad_other = real.new_empty(0) if other is None else _maker(rows and unreal is None)(other)
    shift = None

    def of_virtual() -> tuple[Tensor, Tensor]:
        return real.new_empty(0), torch.zeros_like(virtual_table)

    if unreal is not None:
        exchanged = _exchange(virtual, virtual_numbers, rule, joint, upward)
        share, entries, shift = exchanged.backward(
            grad, grad if grad_up is None else grad_up.contiguous(), real, unreal, virtual_table, message, lse, up, up_lse,
            grad_real, structure is not None,
        )  # fmt: skip
        of_virtual = partial(exchanged.sums, share, entries, unreal, virtual_table)

    def of_pattern() -> tuple[Tensor, Tensor]:
        if structure is None:
            return real.new_empty(0), torch.zeros_like(table)
        into = _parts(grad_real, None if other is None else grad_other)
        return launch.backward(grad, None, *_parts(real, other), table, message, lse, structure, rule, into, shift)[2:]

    (_, grad_table), (grad_unreal, grad_virtual_table) = beside(of_pattern, of_virtual)
    return grad_real, grad_other, grad_unreal, grad_table, grad_virtual_table


@_gradient.register_fake
def _(
    grad: Tensor, grad_up: Any, real: Tensor, other: Any, unreal: Any, table: Tensor, virtual_table: Tensor, *_: Any
) -> Any:  # fmt: skip
    made = (real.new_empty(0) if x is None else torch.empty_like(x) for x in (other, unreal))
    return torch.empty_like(real), *made, torch.empty_like(table), torch.empty_like(virtual_table)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.set_materialize_grads(False)
    *tensors, pattern, virtual, pattern_numbers, virtual_numbers, _, joint, kernel, relation, scale = inputs
    ctx.save_for_backward(*tensors, *output, *pattern, *virtual)
    ctx.counts, ctx.settings = (
        (len(pattern), len(virtual)),
        (pattern_numbers, virtual_numbers, joint, kernel, relation, scale),
    )


def _backward(ctx: Any, grad: Tensor | None, grad_up: Tensor | None, *_: Any) -> tuple[Any, ...]:
    saved = ctx.saved_tensors  # once: each look recomputes, where a layer is computed again
    tensors, rest = saved[:9], saved[9:]
    structures = list(rest[: ctx.counts[0]]), list(rest[ctx.counts[0] :])
    grad = torch.zeros_like(tensors[5]) if grad is None else grad
    found = _gradient(grad, grad_up, *tensors, *structures, *ctx.settings)
    given = [None if x is None else gradient for x, gradient in zip(tensors[:5], found, strict=True)]
    nothing = [[None] * count for count in ctx.counts]
    return (*given, *nothing, None, None, None, None, None, None, None)


_mix.register_autograd(_backward, setup_context=_setup)


def mix(
    real: Tensor,
    other: Tensor | None,
    unreal: Tensor | None,
    tables: tuple[Tensor | None, Tensor | None],
    pattern: Fused | None,
    virtual: FusedLines | None,
    upward: bool,
    joint: bool,
    rule: Rule,
) -> tuple[Tensor, Tensor]:
    """(T1, h, c) messages of tokens and (V, h, c) of virtual tokens (none unless ``upward``).

    Args:
        real: (T1, 3, h, c) queries, keys and values of tokens; (T1, 1, h, c) queries where keys are other tokens, or none.
        other: (T2, 2, h, c) keys and values of other tokens.
        unreal: (V, 3, h, c) those of virtual tokens, a few a graph.
        tables: (types, h) numbers of the relation; (1, h) of that of tokens to virtual tokens.
        pattern: what tokens see of tokens; all its groups.
        virtual: tokens as queries, virtual tokens as keys.
        upward: whether virtual tokens see tokens.
        joint: whether tokens see tokens and virtual tokens in one softmax; otherwise these have no relation.
        rule: kernel, relation and scale.
    """
    table, virtual_table = (real.new_empty(0, real.shape[2]) if one is None else one for one in tables)
    tensors, numbers = ([], [0]) if pattern is None else pattern.pack()
    lines, more = ([], [0]) if virtual is None else virtual.pack()
    real, unreal = real.contiguous(), None if unreal is None else unreal.contiguous()
    message, up, *_ = _mix(
        real, other, unreal, table, virtual_table, tensors, lines, numbers, more, upward, joint, rule.kernel, rule.relation,
        rule.scale,
    )  # fmt: skip
    return message, up


def _maker(covered: bool) -> Callable[[Tensor], Tensor]:
    """What makes room for gradients: empty where all of it will be written."""
    return torch.empty_like if covered else torch.zeros_like


def _exchange(
    virtual: Sequence[Tensor], numbers: Sequence[int], rule: Rule, joint: bool, upward: bool
) -> exchange.Exchange:  # fmt: skip
    lines = unpack_fused(list(virtual), list(numbers))
    assert isinstance(lines, FusedLines)
    return exchange.Exchange(lines, rule if joint else replace(rule, relation="none"), joint, upward)


def _parts(real: Tensor, other: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values."""
    if other is None:
        return real[:, 0], real[:, 1], real[:, 2]
    return real[:, 0], other[:, 0], other[:, 1]
