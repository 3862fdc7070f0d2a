"""The ``torch`` backend: which way of computing suits a structure.

Any structure is one operator, opaque to ``torch.compile``, with a backward pass of its own. Run eagerly, rows are
functions instead that keep a little for it, and rows of several groups are one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from tuplet.attention import lines, rows
from tuplet.attention.listing import Keyed, are_rows
from tuplet.attention.weights import Rule, own_precision, wide
from tuplet.patterns import Lines, Structure, unpack

Structures = tuple[Structure, ...]
Tensors = tuple[Tensor, ...]


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
    rule = Rule(kernel, relation, scale)
    with own_precision(q):
        if isinstance(structure, Lines):
            return lines.forward(q, k, v, table, structure, rule)
        return rows.forward(q, k, v, table, Keyed.apart((structure,), len(k)), rule)[:2]


@_attend.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, table: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return q.new_empty(q.shape[0], q.shape[1], v.shape[2]), q.new_empty(q.shape[:2], dtype=wide(q.dtype))


@torch.library.custom_op("tuplet::attend_backward", mutates_args=())
def _attend_backward(
    grad_out: Tensor, grad_lse: Tensor, q: Tensor, k: Tensor, v: Tensor, table: Tensor, out: Tensor, lse: Tensor,
    tensors: Sequence[Tensor], integers: Sequence[int], kernel: str, relation: str, scale: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    structure = unpack(list(tensors), list(integers))
    rule = Rule(kernel, relation, scale)
    with own_precision(q):
        if isinstance(structure, Lines):
            return lines.backward(grad_out, grad_lse, q, k, v, table, out, lse, structure, rule)
        return rows.backward(grad_out, grad_lse, q, k, v, table, Keyed.apart((structure,), len(k)), rule)


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


def all_rows(structures: Structures, q: Tensor, rule: Rule) -> bool:
    """Whether all structures are read as rows, by functions: not while a compiler looks on."""
    return not torch.compiler.is_compiling() and all(are_rows(group, q, rule.kernel) for group in structures)


def attend(q: Tensor, k: Tensor, v: Tensor, structure: Structure, table: Tensor, rule: Rule) -> tuple[Tensor, Tensor]:
    """Messages (T1, h, c) and log-sum-exps (T1, h) of one group of keys."""
    if all_rows((structure,), q, rule):
        return rows.RowAttention.apply(q, k, v, table, Keyed.apart((structure,), len(k)), rule)
    tensors, integers = structure.pack()
    return _attend(q, k, v, table, tensors, integers, rule.kernel, rule.relation, rule.scale)


def attend_apart(q: Tensor, k: Tensor, v: Tensor, structures: Structures, table: Tensor, rule: Rule) -> Tensor | None:
    """Messages (T1, h, c) of heads that are dealt round-robin to several groups; None where they are no rows."""
    if not all_rows(structures, q, rule):
        return None
    keyed = Keyed.apart(structures, len(k))
    return rows.RowAttention.apply(q, k, v, table, keyed, rule)[0]


def attend_joined(
    q: Tensor, keys: Tensors, values: Tensors, structures: Structures, tables: Tensors, rule: Rule
) -> Tensor | None:
    """Messages (T1, h, c) of one softmax over the union of several groups, each with keys of its own; None where they are no rows."""
    if not all_rows(structures, q, rule):
        return None
    keyed = Keyed.joined(structures, [len(k) for k in keys], [len(table) for table in tables])
    k, v, table = map(torch.cat, (keys, values, tables))
    return rows.RowAttention.apply(q, k, v, table, keyed, rule)[0]


def mutually(tokens: int, keys: int, structures: Structures, tables: Tensors, relation: str) -> tuple[Tensor, Keyed]:
    """Relation table and ``Keyed`` of ``tokens`` and of virtual ones after them, ``keys`` in all, where structures are ``all_rows``.

    Tokens see groups of tokens, and last of these the virtual ones, with one softmax. The last structure is that of virtual ones, which
    see tokens, without a relation: its table has no effect.
    """
    *groups, downward, upward = structures
    firsts = tuple(accumulate(map(len, tables), initial=0))
    below = Keyed((upward,), keys, True, (0,), firsts[-2:-1])
    first_keys = (0,) * len(groups) + (tokens,)
    keyed = Keyed((*groups, downward), keys, True, first_keys, firsts[:-2], tokens, below)
    return tables[0] if relation == "none" else torch.cat(tables), keyed
