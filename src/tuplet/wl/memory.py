"""Work that would not fit, or would not end, is refused before anything is allocated."""

from __future__ import annotations

import warnings

import torch

from tuplet._memory import available_bytes
from tuplet.errors import TooLargeError
from tuplet.wl.rank import KEPT

LONG_SECONDS, MOST_SECONDS = 20, 300
"""Estimated seconds of one round beyond which a test says how long it will take, and beyond which it is refused."""
TABLES = 2
"""Tables of kept entries that are alive at once: sorted rows in pieces, and the table that they are joined into."""


def refuse_if_too_large(name: str, held: int, entries: int, seconds: float, what: str, advice: str) -> None:
    """Raise, with the numbers, if a refinement would need more memory than there is, or minutes for a round.

    Args:
        name: of the test.
        held: bytes that it holds for its tuples or simplices.
        entries: elements of all its multisets, of which ``KEPT`` at most are kept at a time.
        seconds: that a round takes, roughly.
        what: what there is so much of, in words and numbers.
        advice: what to do instead.
    """
    needed = held + 8 * TABLES * min(entries, KEPT)
    available = available_bytes(torch.device("cpu"))
    if needed > available:
        raise TooLargeError(
            f"{name} needs about {needed / 1e9:,.1f} GB and {available / 1e9:,.1f} GB are available: {what}. {advice}"
        )
    if seconds > MOST_SECONDS:
        raise TooLargeError(
            f"{name} takes about {seconds / 60:,.0f} minutes a round, and more than {MOST_SECONDS // 60} are refused: "
            f"{what}. {advice}"
        )
    if seconds > LONG_SECONDS:
        warnings.warn(f"{name} takes about {seconds:.0f} seconds a round: {what}", stacklevel=2)
