"""A moving average of the weights over the epochs: between steps of a high learning rate lies what all of them are near."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


@torch.no_grad()
def follow(average: dict[str, Tensor], model: nn.Module, share: float) -> None:
    """Move an average, empty at first, towards what a model holds: a <- a + share (w - a).

    Running statistics of batch norms are averaged like weights; what is no real number is taken as it is.
    """
    for name, value in model.state_dict().items():
        if name not in average:
            average[name] = value.clone()
        elif value.is_floating_point():
            average[name].lerp_(value, share)
        else:
            average[name].copy_(value)


@contextmanager
def standing_in(average: dict[str, Tensor], model: nn.Module) -> Iterator[None]:
    """While this lasts, a model holds an average, if there is one; in the same memory, which recorded steps refer to."""
    own = model.state_dict()
    before = {name: own[name].clone() for name in average}
    _write(average, own)
    try:
        yield
    finally:
        _write(before, own)


@torch.no_grad()
def _write(values: dict[str, Tensor], places: dict[str, Tensor]) -> None:
    for name, value in values.items():
        places[name].copy_(value)
