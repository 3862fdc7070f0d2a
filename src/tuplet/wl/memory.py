"""Work that would not fit is refused before anything is allocated."""

from __future__ import annotations

import torch

from tuplet.errors import TooLargeError
from tuplet.models.cost import available_bytes
from tuplet.wl.rank import KEPT

TABLES = 2
"""Tables of kept entries that are alive at once: sorted rows in pieces, and the table that they are joined into."""


def refuse_if_too_large(name: str, held: int, entries: int, what: str, advice: str) -> None:
    """Raise, with the numbers, if a refinement would need more memory than there is.

    Args:
        name: of the test.
        held: bytes that it holds for its tuples or simplices.
        entries: elements of all its multisets, of which ``KEPT`` at most are kept at a time.
        what: what there is so much of, in words and numbers.
        advice: what to do instead.
    """
    needed = held + 8 * TABLES * min(entries, KEPT)
    available = available_bytes(torch.device("cpu"))
    if needed > available:
        raise TooLargeError(
            f"{name} needs about {needed / 1e9:,.1f} GB and {available / 1e9:,.1f} GB are available: {what}. {advice}"
        )
