"""Memory of training steps on a CPU, kept by the C library from one step to the next.

A step frees what the next one asks for. By default glibc gives large blocks back to the system, which has to clear their pages when
they are asked for again. Where there is no glibc, nothing happens here.
"""

from __future__ import annotations

import ctypes
import platform

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Parameters of ``mallopt``, as malloc.h numbers them."""


def keep_freed() -> None:
    """From now on blocks of up to 32 MiB, the most that glibc allows, come from memory that stays with the process."""
    if platform.libc_ver()[0] == "glibc":
        library = ctypes.CDLL(None)
        library.mallopt(MMAP_THRESHOLD, 1 << 25)
        library.mallopt(TRIM_THRESHOLD, 2**31 - 1)


def give_back() -> None:
    """What is free goes back to the system: now, and what is more than 64 MiB from now on, where glibc's own rule ends up too."""
    if platform.libc_ver()[0] == "glibc":
        library = ctypes.CDLL(None)
        library.mallopt(TRIM_THRESHOLD, 1 << 26)
        library.malloc_trim(0)
