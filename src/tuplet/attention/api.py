"""The one attention function: picks the backend, and joins groups where one softmax spans them."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from tuplet.attention import reference, torch_backend
from tuplet.attention.weights import TINY, Rule, finite
from tuplet.errors import BackendError, OptionError
from tuplet.patterns import DefinedPairs, Structure

Backend = Literal["auto", "reference", "torch"]
BACKENDS = ("reference", "torch")


def resolve_backend(name: str) -> str:
    """The backend that ``name`` stands for; a requested one is never replaced."""
    if name == "auto":
        return "torch"
    if name not in BACKENDS:
        raise BackendError(f"backend: expected 'auto' or one of {', '.join(BACKENDS)}; came {name!r}")
    return name


def attend(
    q: Tensor, k: Tensor, v: Tensor, structure: Structure | DefinedPairs, table: Tensor | None, rule: Rule
) -> tuple[Tensor, Tensor]:
    """Attention of one group of keys, on the backend its structure was laid out for.

    Args:
        q: (T1, h, c) queries (after the feature map of a kernelised attention).
        k: (T2, h, c) keys.
        v: (T2, h, c') values.
        structure: the pairs, as a definition (``reference``) or a layout (``torch``).
        table: (types, h) learned numbers of the relation, None without one.
        rule: kernel, relation and scale.

    Returns:
        (T1, h, c') messages, zero for a query without keys, and (T1, h) log-sum-exps of the scores.
    """
    if table is None:
        if rule.relation != "none":
            raise OptionError(f"relation: {rule.relation!r} needs a table of its numbers; came none")
        table = q.new_zeros(1, q.shape[1])
    backend = reference if isinstance(structure, DefinedPairs) else torch_backend
    return backend.attend(q, k, v, structure, table, rule)


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
