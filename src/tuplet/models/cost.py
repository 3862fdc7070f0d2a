"""What a training step will cost, from sizes alone: tokens, pairs, FLOPs and peak bytes."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tuplet.errors import TooLargeError
from tuplet.graphs import GraphBatch
from tuplet.models.config import ModelConfig
from tuplet.patterns import Pattern


@dataclass(frozen=True)
class Cost:
    tokens: int
    pairs: int
    flops: int
    peak_bytes: int


def estimate(config: ModelConfig, patterns: tuple[Pattern, ...], graph: GraphBatch, parameter_bytes: int) -> Cost:
    return Cost(0, 0, 0, 0)


def refuse_if_too_large(cost: Cost, config: ModelConfig, device: torch.device) -> None:
    if cost.peak_bytes < 0:
        raise TooLargeError("no")
