"""The arithmetic of one score, shared by the blocks of lines and the chunks of rows, forward and backward.

Names used throughout: ``dot`` = q·k, ``score`` = scaled (or its logarithm for a feature-map kernel) and changed by the
relation, ``weight`` = what multiplies the value.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from tuplet.errors import OptionError

TINY = 1e-37
"""What a sum of weights, or a product of feature maps, is at least: all but the smallest float32."""


@dataclass(frozen=True)
class Rule:
    """How scores become weights.

    Args:
        kernel: "softmax", "relu", or "positive" for dot products of feature maps.
        relation: "none", "bias" (added to the score), "scale" (multiplies it), "reweight" (multiplies the weight).
        scale: factor of the dot product.
    """

    kernel: str
    relation: str
    scale: float

    def __post_init__(self) -> None:
        if self.kernel not in ("softmax", "relu", "positive"):
            raise OptionError(f"kernel: expected softmax, relu or positive; came {self.kernel!r}")
        if self.relation not in ("none", "bias", "scale", "reweight"):
            raise OptionError(f"relation: expected none, bias, scale or reweight; came {self.relation!r}")

    @property
    def normalised(self) -> bool:
        return self.kernel != "relu"

    def score(self, dot: Tensor, entry: Tensor | None) -> tuple[Tensor, Tensor]:
        """The score before and after the relation; ``entry`` is the relation's learned number for each pair."""
        raw = dot.clamp_min(TINY).log() if self.kernel == "positive" else dot * self.scale
        if entry is None or self.relation == "reweight":
            return raw, raw
        return raw, raw + entry if self.relation == "bias" else raw * entry

    def backward(
        self, grad_score: Tensor, dot: Tensor, raw: Tensor, entry: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Gradients of ``dot`` and of ``entry`` (bias and scale only) from that of the score."""
        grad_raw, grad_entry = grad_score, None
        if entry is not None and self.relation == "bias":
            grad_entry = grad_score
        elif entry is not None and self.relation == "scale":
            grad_entry, grad_raw = grad_score * raw, grad_score * entry
        if self.kernel == "positive":
            return torch.where(dot > TINY, grad_raw / dot.clamp_min(TINY), 0), grad_entry
        return grad_raw * self.scale, grad_entry


def finite(largest: Tensor) -> Tensor:
    """Row maxima with those of empty rows (-inf) replaced by 0, so that their exponentials are 0 and not NaN."""
    return torch.where(torch.isinf(largest), 0, largest)


def narrow(x: Tensor, dtype: torch.dtype) -> Tensor:
    """``x`` in a precision that may hold less: what float16 cannot hold becomes its largest number, not infinity."""
    if dtype == torch.float16 and x.dtype != dtype:
        x = x.clamp(torch.finfo(dtype).min, torch.finfo(dtype).max)
    return x.to(dtype)


def own_precision(x: Tensor) -> AbstractContextManager[object]:
    """Where operators choose their precision themselves."""
    kind = x.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()


def wide(dtype: torch.dtype) -> torch.dtype:
    """The precision in which scores and sums are kept."""
    return torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype
