"""A step of AdamW on a CPU, compiled (``native/adamw.c``): models have hundreds of small weights, and torch prepares every one of them
for its own step, and once more to bound the length of the gradients."""

from __future__ import annotations

import torch

from tuplet.native import load


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
    dtype, kept = weights[0].dtype, [[one[name] for one in memory] for name in ("exp_avg", "exp_avg_sq")]
    for x in (*weights, *grads, *kept[0], *kept[1]):
        if x.dtype != dtype or x.layout != torch.strided or not x.is_contiguous():
            return False
    several = weights, grads, *kept, [one["step"] for one in memory]
    places = [[x.data_ptr() for x in some] for some in several]
    sizes = [weight.numel() for weight in weights]
    numbers = float(clip or 0), float(group["lr"]), float(group["weight_decay"]), *group["betas"], group["eps"]
    library.run("adamw", len(weights), sizes, *places, *numbers)
    return True
