"""Time and memory of a call, on whatever device there is."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch


def seconds(call: Callable[[], object], device: torch.device, repeats: int = 3, warm: bool = False) -> float:
    """Median time of a call after one to warm up, unless all is ``warm``."""
    if not warm:
        call()
    times = []
    for _ in range(repeats):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        started = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def peak_bytes(call: Callable[[], object], device: torch.device) -> int:
    """Most bytes that a call holds beyond what was there before, as the allocator of the device records them."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        call()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        call()
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most


def resident_bytes() -> tuple[int, int]:
    """Memory of this process now and at its peak, as the operating system counts it (Linux)."""
    with open("/proc/self/status") as lines:
        fields = dict(line.split(":", 1) for line in lines)
    return int(fields["VmRSS"].split()[0]) * 1024, int(fields["VmHWM"].split()[0]) * 1024
