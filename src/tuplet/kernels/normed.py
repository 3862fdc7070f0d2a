"""Tokens after a batch norm, and what makes them again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

PARTS = 4
"""Tensors that make tokens again: t; mean and scale; weight; bias."""


@dataclass(frozen=True)
class Normed:
    """z = (t - mean) · scale · weight + bias. Whoever needs z on the way back keeps t instead, which the norm keeps anyway.

    Args:
        values: (T, d) z.
        origin: t (T, d); mean and scale, the first two rows of a matrix (.., d); weight (d,); bias (d,).
    """

    values: Tensor
    origin: tuple[Tensor, Tensor, Tensor, Tensor]


def values(x: Tensor | Normed) -> Tensor:
    """The tokens themselves."""
    return x.values if isinstance(x, Normed) else x


def origins(xs: Sequence[Tensor | Normed]) -> list[Tensor]:
    """What makes all of several sets of tokens again, ``PARTS`` tensors each; nothing, unless it is known of all of them."""
    known = [x.origin for x in xs if isinstance(x, Normed)]
    return [part for origin in known for part in origin] if len(known) == len(xs) else []
