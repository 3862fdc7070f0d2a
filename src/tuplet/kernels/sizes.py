"""Sizes and precision of kernels, and where there are any."""

from __future__ import annotations

from importlib.util import find_spec

import torch
from torch import Tensor

HAS_TRITON = find_spec("triton") is not None
"""Whether the package triton is installed."""

GRADIENT_PROGRAMS, GRADIENT_ROWS = 128, 32
"""Programs that share the tokens, at most, where each has a share of the gradients of weights, and tokens of a tile."""

AT_ONCE = 264
"""Programs that a large device runs at once: two for each multiprocessor."""

COUNTS = [
    "rows", "rows0", "rows1", "rows2", "parts", "programs", "programs0", "programs1", "programs2", "graphs",
    "tiles", "longest", "lines", "queries", "keys", "tokens", "query_parts", "key_parts",
]  # fmt: skip
"""Names of numbers that differ from batch to batch: kernels are not compiled anew where one is a multiple of 16, or is 1."""


def has_kernels(x: Tensor) -> bool:
    """Whether fused kernels can work on ``x``: on a GPU, with triton, not in float64."""
    return x.is_cuda and x.dtype != torch.float64 and HAS_TRITON


def power(number: int, least: int) -> int:
    """The next power of two, as kernels want their sizes."""
    return max(least, 1 << max(number - 1, 0).bit_length())


def precision(x: Tensor) -> str:
    """How a kernel multiplies float32 matrices: as torch does."""
    return "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"
