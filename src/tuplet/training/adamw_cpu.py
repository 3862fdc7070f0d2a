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
    plain = weights[0].dtype, torch.strided
    if not all((x.dtype, x.layout) == plain and x.is_contiguous() for x in (*weights, *grads)):
        return False
    means, squares, steps = ([one[name] for one in memory] for name in ("exp_avg", "exp_avg_sq", "step"))
    sizes = [weight.numel() for weight in weights]
    numbers = float(clip or 0), float(group["lr"]), float(group["weight_decay"]), *group["betas"], group["eps"]
    library.run("adamw", len(weights), sizes, weights, grads, means, squares, steps, *numbers)
    return True
