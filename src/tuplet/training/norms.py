"""BatchNorm over the batch of all processes: the statistics, and so the gradients, of one process with the whole batch.

torch's SyncBatchNorm runs on GPUs only; these run wherever ``torch.distributed`` does.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tuplet.attention.weights import wide
from tuplet.encodings.layers import MaskedBatchNorm
from tuplet.errors import OptionError


class _Total(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        summed = x.clone()
        torch.distributed.all_reduce(summed)
        return summed

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Tensor:
        summed = gradients[0].clone()
        torch.distributed.all_reduce(summed)
        return summed


def total(x: Tensor) -> Tensor:
    """The sum over all processes; gradients are summed over all processes too."""
    summed: Tensor = _Total.apply(x)
    return summed


class SharedBatchNorm(nn.BatchNorm1d):
    """BatchNorm over the rows (R, d) of all processes. One row in all, or none, is normalised by the running statistics."""

    counted = True
    """Whether the rows of this process belong to the batch."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return super().forward(x)
        rows = x.to(wide(x.dtype))
        part = 1.0 if self.counted else 0.0
        count = float(total(rows.new_tensor(part * len(rows))))
        mean = total(part * rows.sum(0)) / max(count, 1)
        var = total(part * (rows - mean).square().sum(0)) / max(count, 1)
        if count <= 1:
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps)
        self._remember(mean.detach(), var.detach() * count / (count - 1))
        out = (rows - mean) * torch.rsqrt(var + self.eps)
        return (out * self.weight + self.bias if self.affine else out).to(x.dtype)

    @torch.no_grad()
    def _remember(self, mean: Tensor, var: Tensor) -> None:
        """Move the running statistics towards those of this batch."""
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked.add_(1)
        weight = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), weight)
        self.running_var.lerp_(var.to(self.running_var.dtype), weight)


class SharedMaskedBatchNorm(MaskedBatchNorm):
    """``MaskedBatchNorm`` over the rows of all processes."""

    counted = True
    """Whether the rows of this process belong to the batch."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """x (.., width), mask (..) or None."""
        if not self.training:
            return super().forward(x, mask)
        kept = (x.new_ones(x.shape[:-1]) if mask is None else mask.to(x.dtype))[..., None]
        part = 1.0 if self.counted else 0.0
        axes, count = tuple(range(x.dim() - 1)), total(part * kept.sum())
        mean = total(part * (x * kept).sum(axes)) / count.clamp_min(1)
        var = total(part * ((x - mean).square() * kept).sum(axes)) / count.clamp_min(1)
        with torch.no_grad():
            enough = count > 1
            self.seen += enough
            weight = enough / self.seen.clamp(1, 1 / self.momentum)
            self.mean.lerp_(mean, weight)
            self.var.lerp_(var * count / (count - 1).clamp_min(1), weight)
        return ((x - mean) * torch.rsqrt(var + self.eps) * self.weight + self.bias) * kept


Shared = SharedBatchNorm | SharedMaskedBatchNorm


def batch_norms(model: nn.Module) -> list[nn.Module]:
    """All that take statistics of a batch."""
    return [one for one in model.modules() if isinstance(one, MaskedBatchNorm | nn.modules.batchnorm._BatchNorm)]


def settle_norms(model: nn.Module) -> None:
    """Let every BatchNorm of a model keep the statistics that it has, while the rest of the model trains on."""
    for norm in batch_norms(model):
        norm.eval()


def share_norms(model: nn.Module) -> list[Shared]:
    """Let every BatchNorm of a model see the batch of all processes; one of a kind that cannot is refused.

    Parameters, buffers and their names stay as they are.
    """
    shared: list[Shared] = []
    for name, module in model.named_modules():
        if isinstance(module, MaskedBatchNorm):
            module.__class__ = SharedMaskedBatchNorm
            shared.append(module)  # type: ignore[arg-type]
        elif isinstance(module, nn.BatchNorm1d):
            module.__class__ = SharedBatchNorm
            shared.append(module)  # type: ignore[arg-type]
        elif isinstance(module, nn.modules.batchnorm._NormBase) or hasattr(module, "running_mean"):
            raise OptionError(
                f"devices: {type(module).__name__} ({name}) keeps statistics of its batch and cannot be synchronised over "
                "processes; use devices=1, or another norm"
            )
    return shared
