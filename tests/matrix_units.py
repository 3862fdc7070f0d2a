"""Matrix products as plain torch has them in a lower precision, on any machine."""

from __future__ import annotations

import torch
from torch import Tensor


class Product(torch.autograd.Function):
    """A matrix product whose factors are rounded first, forward and backward, as a matrix unit rounds them."""

    @staticmethod
    def forward(ctx, a: Tensor, b: Tensor, precision: str) -> Tensor:
        a, b = rounded(a, precision), rounded(b, precision)
        ctx.save_for_backward(a, b)
        ctx.precision = precision
        return a @ b

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        a, b = ctx.saved_tensors
        grad = rounded(grad, ctx.precision)
        return grad @ b.mT, a.mT @ grad, None


def rounded(x: Tensor, precision: str) -> Tensor:
    """The numbers that a matrix unit of that precision sees; tf32 keeps 10 bits after the first, to nearest even."""
    if precision == "tf32":
        bits = x.contiguous().view(torch.int32)
        return ((bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)
    return x.bfloat16() if precision in ("bf16", "amp") else x
