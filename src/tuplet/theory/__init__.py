"""The paper's theorems as checks that run, and what random models tell apart."""

from tuplet.errors import OptionError
from tuplet.theory import (
    dense,
    growth,
    hierarchy,
    ign,
    ign_rounds,
    index,
    kernelised,
    match,
    neighbours,
    simplices,
    spectrum,
)
from tuplet.theory.check import Check, Report, Result, run
from tuplet.theory.power import Bound, Expressivity, expressivity, read_pairs

CHECKS: tuple[Check, ...] = (
    *hierarchy.CHECKS,
    *dense.CHECKS,
    *index.CHECKS,
    *ign.CHECKS,
    *ign_rounds.CHECKS,
    *kernelised.CHECKS,
    *neighbours.CHECKS,
    *simplices.CHECKS,
    *spectrum.CHECKS,
    *match.CHECKS,
    *growth.CHECKS,
)
"""Every statement, in the order of the paper."""


def check_named(name: str) -> Check:
    """The check of that name."""
    for check in CHECKS:
        if check.name == name:
            return check
    raise OptionError(f"check: expected one of {', '.join(check.name for check in CHECKS)}; came {name!r}")


__all__ = [
    "CHECKS",
    "Bound",
    "Check",
    "Expressivity",
    "Report",
    "Result",
    "check_named",
    "expressivity",
    "read_pairs",
    "run",
]
