"""The one attention function: picks the backend, deals heads to groups, and joins groups where one softmax spans them."""

from __future__ import annotations

import os
from typing import Literal, TypeGuard

import torch
from torch import Tensor

from tuplet.attention import reference, torch_backend
from tuplet.attention.listing import Keyed
from tuplet.attention.weights import TINY, Rule, finite
from tuplet.errors import BackendError, OptionError
from tuplet.kernels import HAS_TRITON
from tuplet.patterns import DefinedPairs, Fused, FusedLines, FusedRows, Structure

Backend = Literal["auto", "reference", "torch", "triton"]
BACKENDS = ("reference", "torch", "triton")
Group = Structure | DefinedPairs | Fused


def check_backend(name: str) -> None:
    """Refuse a name that is no backend."""
    if name != "auto" and name not in BACKENDS:
        raise BackendError(f"backend: expected 'auto' or one of {', '.join(BACKENDS)}; came {name!r}")


def resolve_backend(name: str, device: torch.device, dtype: torch.dtype) -> str:
    """The backend that ``name`` stands for, for weights on ``device``; a requested one is never replaced."""
    check_backend(name)
    missing = _why_not_fused(device, dtype)
    if name == "auto":
        return "triton" if device.type == "cuda" and not missing else "torch"
    if name == "triton" and missing:
        raise BackendError(f"backend: 'triton' {missing}; 'auto' picks what there is")
    return name


def _why_not_fused(device: torch.device, dtype: torch.dtype) -> str:
    """What is missing for the fused kernels, in words; nothing if they can run. Triton's interpreter runs them on a CPU."""
    if not HAS_TRITON:
        return "needs the package triton, which is not installed"
    if device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        return f"needs a GPU; the model is on {device.type!r}"
    return "has no float64; use 'torch'" if dtype == torch.float64 else ""


def attend(q: Tensor, k: Tensor, v: Tensor, group: Group, table: Tensor | None, rule: Rule) -> tuple[Tensor, Tensor]:
    """Attention of one group of keys, on the backend its structure was laid out for.

    Args:
        q: (T1, h, c) queries (after the feature map of a kernelised attention).
        k: (T2, h, c) keys.
        v: (T2, h, c') values.
        group: the pairs, as a definition (``reference``) or a layout (``torch``, ``triton``).
        table: (types, h) learned numbers of the relation, None without one.
        rule: kernel, relation and scale.

    Returns:
        (T1, h, c') messages, zero for a query without keys, and (T1, h) log-sum-exps of the scores.
    """
    table = _numbers(q, table, rule)
    if isinstance(group, DefinedPairs):
        return reference.attend(q, k, v, group, table, rule)
    if isinstance(group, FusedLines | FusedRows):
        from tuplet.attention.fused import operator

        return operator.attend(q, k, v, group, table, rule)
    return torch_backend.attend(q, k, v, group, table, rule)


def attend_apart(
    q: Tensor, k: Tensor, v: Tensor, groups: tuple[Group, ...], table: Tensor | None, rule: Rule
) -> Tensor:
    """(T1, h, c') messages of heads that are dealt to groups round-robin: head h attends to group h mod groups alone."""
    if len(groups) == 1:  # also where a fused structure holds all groups
        return attend(q, k, v, groups[0], table, rule)[0]
    if _plain(groups):
        message = torch_backend.attend_apart(q, k, v, groups, _numbers(q, table, rule), rule)
        if message is not None:
            return message
    parts = []
    for number, group in enumerate(groups):
        heads = slice(number, None, len(groups))
        own = None if table is None else table[:, heads]
        parts.append(attend(q[:, heads], k[:, heads], v[:, heads], group, own, rule)[0])
    if parts[0].shape[1] == parts[-1].shape[1]:
        return torch.stack(parts, dim=2).flatten(1, 2)
    dealt = [head for group in range(len(groups)) for head in range(group, q.shape[1], len(groups))]
    return torch.cat(parts, dim=1)[:, sorted(range(q.shape[1]), key=dealt.__getitem__)]


def attend_joined(q: Tensor, parts: list[tuple[Tensor, Tensor, Group, Tensor | None]], rule: Rule) -> Tensor:
    """(T1, h, c') messages of one softmax over the union of groups, each with keys, values and a table of its own."""
    keys, values, groups, tables = zip(*parts, strict=True)
    if _plain(groups):
        numbers = tuple(_numbers(q, table, rule) for table in tables)
        message = torch_backend.attend_joined(q, keys, values, groups, numbers, rule)
        if message is not None:
            return message
    return join([attend(q, k, v, group, table, rule) for k, v, group, table in parts], rule)


def are_mutual(q: Tensor, groups: tuple[Group, ...], rule: Rule) -> bool:
    """Whether ``mutually`` can see to these groups."""
    return _plain(groups) and torch_backend.all_rows(groups, q, rule)


def mutually(
    x: Tensor, virtual: Tensor, heads: int, parts: list[tuple[Group, Tensor | None]], upward: Group, rule: Rule
) -> tuple[Tensor, Keyed]:
    """Table and ``Keyed`` with which one ``RowAttention`` gives messages of tokens ``x`` and, after them, of virtual ones, where queries,
    keys and values stand in the same order.

    Tokens see ``parts`` with one softmax, each a group with its table, the last of them virtual ones; these see tokens, ``upward``,
    without a relation. Groups ``are_mutual``.
    """
    neutral = x.new_full((1, heads), float(rule.relation != "bias"))
    groups = *(group for group, _ in parts), upward
    tables = *(neutral if table is None else table for _, table in parts), neutral
    return torch_backend.mutually(len(x), len(x) + len(virtual), groups, tables, rule.relation)  # type: ignore[arg-type]


def seen_apart(groups: tuple[Group, ...], keys: int) -> Keyed:
    """``Keyed`` of groups that are dealt to heads, which ``are_mutual``, with so many keys."""
    assert _plain(groups)
    return Keyed.apart(groups, keys)


def _plain(groups: tuple[Group, ...]) -> TypeGuard[tuple[Structure, ...]]:
    """Whether all groups are laid out for the ``torch`` backend."""
    return all(isinstance(group, Structure) for group in groups)


def _numbers(q: Tensor, table: Tensor | None, rule: Rule) -> Tensor:
    """The table of a relation; one without effect where there is no relation."""
    if table is None and rule.relation != "none":
        raise OptionError(f"relation: {rule.relation!r} needs a table of its numbers; came none")
    return q.new_zeros(1, q.shape[1]) if table is None else table


def join(parts: list[tuple[Tensor, Tensor]], rule: Rule) -> Tensor:
    """One attention over the union of several groups of keys, from the messages and log-sum-exps of each."""
    if not rule.normalised:
        return torch.stack([message for message, _ in parts]).sum(0)
    scores = torch.stack([lse for _, lse in parts])  # (parts, T, h)
    largest = finite(scores.detach().amax(0))
    masses = (scores - largest).exp()
    shares = (masses / masses.sum(0).clamp_min(TINY))[..., None]
    messages = torch.stack([message for message, _ in parts])
    return (shares * messages).sum(0).to(messages.dtype)
