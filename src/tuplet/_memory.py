"""What memory there is: what the C library and the system tell of this process, and what a device has left."""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import platform
import time
from contextlib import suppress
from functools import cache

import torch


class _Told(ctypes.Structure):
    """``struct mallinfo2`` of malloc.h."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "mapped", "usmblks", "fsmblks", "used", "free", "keepcost")
    )


@cache
def glibc() -> ctypes.CDLL | None:
    """The C library, if it is glibc."""
    return ctypes.CDLL(None) if platform.libc_ver()[0] == "glibc" else None


def available_bytes(device: torch.device) -> int:
    """Memory that a new allocation on the device could get; what the process has freed and keeps is had first."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    with suppress(OSError), open("/proc/meminfo") as lines:  # every batch asks, and it stands near the top
        for line in lines:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024 + kept_lately()
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def resident_bytes() -> int:
    """Memory that the process has now, on Linux."""
    return _pages()[0] * mmap.PAGESIZE


def kept_bytes() -> int:
    """Memory that the process has freed and keeps for itself, where glibc tells (from 2.33 on); 0 elsewhere.

    What was given back to the system page by page stays on the list of what is free, so no more than the process has beside what it
    uses.
    """
    library = glibc()
    if library is None or not hasattr(library, "mallinfo2"):
        return 0
    library.mallinfo2.restype = _Told
    told = library.mallinfo2()
    resident, shared = _pages()
    return max(0, min(told.free, (resident - shared) * mmap.PAGESIZE - told.used - told.mapped))


class _Lately:
    """What ``kept_bytes`` told, and when: every batch asks, and it goes through all free blocks, of which there may be millions."""

    SECONDS = 1.0
    bytes, at = 0, -math.inf


def kept_lately() -> int:
    """``kept_bytes``, as of this second."""
    now = time.monotonic()
    if now - _Lately.at > _Lately.SECONDS:
        _Lately.bytes, _Lately.at = kept_bytes(), now
    return _Lately.bytes


def _pages() -> tuple[int, int]:
    """Of the process in memory, and of these what files or others have too."""
    with open("/proc/self/statm") as file:
        _, resident, shared, *_ = map(int, file.read().split())
    return resident, shared
