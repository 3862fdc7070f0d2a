"""Jobs that measure how an attention grows with n, for the paper's Table 1."""

from __future__ import annotations

import torch

from tuplet.errors import OptionError
from tuplet.experiments.jobs import Job
from tuplet.experiments.outcomes import Outcome, Places, about, rounded
from tuplet.experiments.scaling import exponents, grow


def run_growth(job: Job, places: Places, until: float, slow: float | None = None) -> Outcome:
    """Measure one row on one device. It takes seconds and is not interrupted, so the deadline is not looked at.

    Args:
        job: which row.
        places: where to leave the result.
        until: not looked at.
        slow: seconds of a call beyond which no larger size is tried.
    """
    del until
    _, row, column = job.described()
    device = torch.device(column.device or "cpu")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise OptionError(f"device: {column.title} is measured on a GPU, and torch finds none here")
    assert row.model is not None
    points = list(grow(row.model, row.start, device, row.set.get("model_options", {}), slow))
    if len(points) < 2:
        raise OptionError(f"start: expected at least two sizes from {row.start} nodes on; came {len(points)}")
    time, memory = exponents(points)
    last = points[-1]
    values = {"time": time, "memory": memory, "n": last.n, "seconds": last.seconds, "peak_memory_bytes": last.bytes}
    curve: dict[str, list[float]] = {
        "n": [point.n for point in points],
        "seconds": [rounded(point.seconds) for point in points],
        "bytes": [point.bytes for point in points],
    }
    outcome = Outcome(job, True, values, curve, dict(row.set), about(places, device))
    outcome.write(places)
    return outcome
