"""A step of AdamW on a CPU, compiled (``native/adamw.c``): models have hundreds of small weights, and torch prepares every one of them
for its own step, and once more to bound the length of the gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from tuplet.native import integers, load

MEMORY = "exp_avg", "exp_avg_sq", "step"
_KNOWN: WeakKeyDictionary[torch.optim.Optimizer, tuple[list[int], list[Any]]] = WeakKeyDictionary()
"""Of each optimiser, where weights and memory were in its last step, how long these are, and what is passed for that."""


def update(optimiser: torch.optim.Optimizer, clip: float | None) -> bool:
    """One step on gradients that are no longer than ``clip`` all together; False where it is left to torch.

    The optimiser's memory is torch's own, which makes it in its first step, alike to the weights.
    """
    group, *others = optimiser.param_groups
    if (
        not isinstance(optimiser, torch.optim.AdamW)
        or others
        or group["amsgrad"]
        or group["maximize"]
        or not group["fused"]
    ):
        return False
    weights = [weight for weight in group["params"] if weight.grad is not None]
    grads, memory = [weight.grad for weight in weights], [optimiser.state.get(weight, {}) for weight in weights]
    if not weights or not all(memory) or (library := load(weights[0])) is None:
        return False
    dtype = weights[0].dtype
    means, squares, steps = ([one[name] for one in memory] for name in MEMORY)
    found = [x.data_ptr() for some in (weights, means, squares, steps) for x in some]
    found += [x.numel() for x in weights]
    known, passed = _KNOWN.get(optimiser, ([], []))
    if found != known:  # what stands where it stood, and is as long, is what it was
        if not _alike((*weights, *means, *squares), dtype):
            return False
        passed = [integers(found[first : first + len(weights)]) for first in range(0, len(found), len(weights))]
        _KNOWN[optimiser] = found, passed
    if not _alike(grads, dtype):
        return False
    own, *remembered, sizes = passed
    above = integers([grad.data_ptr() for grad in grads])
    numbers = float(clip or 0), float(group["lr"]), float(group["weight_decay"]), *group["betas"], group["eps"]
    library.run("adamw", len(weights), sizes, own, above, *remembered, *numbers)
    return True


def _alike(tensors: Sequence[Tensor], dtype: torch.dtype) -> bool:
    """Whether all are of a type, with one number after another."""
    return all(x.dtype == dtype and x.layout == torch.strided and x.is_contiguous() for x in tensors)
