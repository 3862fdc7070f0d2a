"""Memory of training steps on a CPU, kept by the C library from one step to the next.

A step frees what the next one asks for. By default glibc gives large blocks back to the system, which has to clear their pages when
they are asked for again. But batches differ in size, blocks do not fit where others were, and what is kept grows: it goes back when it
has become a fifth more. Where there is no glibc, nothing happens here.
"""

from __future__ import annotations

from tuplet._memory import glibc, resident_bytes

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Parameters of ``mallopt``, as malloc.h numbers them."""


def keep_freed() -> None:
    """From now on blocks of up to 32 MiB, the most that glibc allows, come from memory that stays with the process."""
    library = glibc()
    if library is not None:
        library.mallopt(MMAP_THRESHOLD, 1 << 25)
        library.mallopt(TRIM_THRESHOLD, 2**31 - 1)


class Kept:
    """What stays with the process, looked at after each step: what is free goes back when there is ``GROWN`` times as much in all as a
    step needs, which is what there is after the first one and after each one since something went back."""

    GROWN = 1.2

    def __init__(self) -> None:
        self.most, self.bare = 0.0, True

    def look(self) -> None:
        library = glibc()
        if library is None:
            return
        now = resident_bytes()
        if self.bare:
            self.most, self.bare = max(self.most, self.GROWN * now), False
        elif now > self.most:
            library.malloc_trim(0)
            self.bare = True


def give_back() -> None:
    """What is free goes back to the system: now, and what is more than 64 MiB from now on, where glibc's own rule ends up too."""
    library = glibc()
    if library is not None:
        library.mallopt(TRIM_THRESHOLD, 1 << 26)
        library.malloc_trim(0)
