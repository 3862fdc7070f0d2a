"""How far our number is from the paper's, in standard deviations where there are any."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from tuplet.experiments.table import Published
from tuplet.training.summary import spread

WITHIN = 2.0
"""Standard deviations up to which two results agree."""
WITHIN_SHARE = 0.1
"""The same as a share of the paper's number, where it has no standard deviation."""
ENOUGH = 4
"""Runs from which our own standard deviation is believed."""


def verdict(ours: Sequence[float], paper: Published, better: Literal["lower", "higher"] | None) -> str:
    """ "within", "better" or "worse", and by how much.

    With fewer than four runs of ours the unit is the paper's standard deviation; from four on the root mean square of
    theirs and ours. Where the paper's is 0 only equal digits are within, whatever ours is, or scattered runs would agree with
    anything; and the difference itself is given. Where the paper has none, it is a share of the paper's number.

    Args:
        ours: our results, in the paper's unit.
        paper: what is published.
        better: which direction is; None where neither is.
    """
    mean, own = spread(ours)
    difference = mean - paper.mean
    if paper.std is None:
        if paper.mean == 0:
            return _said(
                difference, abs(difference) <= WITHIN_SHARE, better, f"{abs(difference):.2g}", f"{difference:+.2g}"
            )
        share = difference / abs(paper.mean)
        inside = abs(share) <= WITHIN_SHARE
        return _said(
            difference, inside, better, f"{abs(share):.0%}".replace("%", " %"), f"{share:+.0%}".replace("%", " %")
        )
    if paper.std == 0:
        inside = abs(difference) < 0.5 * 10.0**-paper.decimals
        size = f"{abs(difference):.{paper.decimals}f}, no deviation"
        return "within (equal)" if inside else _said(difference, False, better, size, "")
    enough = len(ours) >= ENOUGH
    deviations = difference / (math.sqrt((paper.std**2 + own**2) / 2) if enough else paper.std)
    whose = "σ" if enough else "σ of the paper"
    inside = abs(deviations) <= WITHIN
    return _said(difference, inside, better, f"{abs(deviations):.1f} {whose}", f"{deviations:+.1f} {whose}")


def _said(difference: float, inside: bool, better: Literal["lower", "higher"] | None, size: str, signed: str) -> str:
    if inside:
        return f"within ({signed})"
    if better is None:
        return f"differs ({'+' if difference > 0 else '-'}{size})"
    return f"{'better' if (difference < 0) == (better == 'lower') else 'worse'} by {size}"
