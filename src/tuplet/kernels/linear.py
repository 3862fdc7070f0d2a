"""A linear map of many rows: torch's own, and where there are kernels with a quick gradient of the bias."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from tuplet.kernels.sizes import has_kernels


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, still: bool = False) -> Tensor:
    """(T, outputs) W x + b of rows (T, inputs); ``still``: before a norm that takes the mean away (see ``dense.linear``)."""
    if not has_kernels(x):
        return F.linear(x, weight, bias)
    from tuplet.kernels import dense

    return dense.linear(x, weight, bias, still)


class RowLinear(nn.Linear):
    """``nn.Linear`` of rows (T, inputs)."""

    def forward(self, x: Tensor, still: bool = False) -> Tensor:
        return linear(x, self.weight, self.bias, still)
