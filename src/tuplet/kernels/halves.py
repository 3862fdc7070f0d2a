"""Matrices of 16-bit numbers that are as precise as tf32.

tf32 and float16 have the same ten bits of mantissa; what float16 lacks is range. A tile that is divided by the power of two of
its largest entry needs no more of it than there is: what would vanish is 2^-29 of that entry. Tensor cores read such tiles in
either direction, which they cannot do with float32 ones, at half the bytes.
"""

# mypy: ignore-errors

from __future__ import annotations

import torch
import triton
import triton.language as tl


def type_of(dtype: torch.dtype) -> tl.dtype:
    """The type in which a kernel multiplies matrices for results of ``dtype``."""
    return tl.bfloat16 if dtype == torch.bfloat16 else tl.float16 if dtype == torch.float16 else tl.float32


@triton.jit
def halved(x, PRECISION: tl.constexpr):
    """(h, s) with x = h·s for a product of matrices: where that is to be made in tf32, h is of float16 and s a power of two."""
    if PRECISION == "tf32" and x.dtype == tl.float32:
        exponent = tl.max(tl.max(tl.abs(x), 1), 0).to(tl.int32, bitcast=True) >> 23
        shift = tl.minimum(tl.maximum(268 - exponent, 1), 253)  # of the factor that brings the largest entry to 2^14
        half = (x * (shift << 23).to(tl.float32, bitcast=True)).to(tl.float16)
        size = ((254 - shift) << 23).to(tl.float32, bitcast=True)
    else:
        half, size = x, 1.0
    return half, size
