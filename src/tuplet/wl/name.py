"""The names of the tests: ``1-WL``, ``k-WL``, ``k-FWL``, ``delta-k-WL``, ``delta-k-LWL``, ``delta-k-LWL+``, ``SWL``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tuplet.errors import OptionError

ACCEPTED = (
    "1-WL, k-WL, k-FWL, delta-k-WL, delta-k-LWL, delta-k-LWL+ with a number k >= 1 (such as 2-FWL), or SWL with dim="
)
MOST_ORDER = 64
"""Colours are an array with an axis for each place of a tuple, and numpy has no more axes."""
_TUPLES = re.compile(r"(\d{1,9})-(WL|FWL)|delta-(\d{1,9})-(WL|LWL|LWL\+)")


@dataclass(frozen=True)
class WLTest:
    """What a name says.

    Args:
        name: as it was given.
        k: order of the tuples; 0 for SWL.
        dim: highest dimension of the simplices of SWL, None for tests on tuples.
        lines: whether a tuple sees, for each j, the multiset of colours of all its j-neighbours.
        local: whether it sees, for each j, those of its local j-neighbours with their adjacency.
        counted: whether a local j-neighbour comes with the number of j-neighbours of its colour (LWL+).
        folklore: whether it sees, for each node u, the vector of its k neighbours through u (k-FWL).
    """

    name: str
    k: int
    dim: int | None = None
    lines: bool = False
    local: bool = False
    counted: bool = False
    folklore: bool = False


def parse(name: str, dim: int | None = None) -> WLTest:
    """The test behind a name; other names, k out of range, and a ``dim`` without SWL are refused."""
    if name == "SWL":
        if not isinstance(dim, int) or isinstance(dim, bool) or dim < 0:
            raise OptionError(f"dim: SWL expects the highest dimension of its simplices, an int >= 0; came {dim!r}")
        return WLTest(name, 0, dim)
    found = _TUPLES.fullmatch(name) if isinstance(name, str) else None
    if found is None:
        raise OptionError(f"test: expected one of {ACCEPTED}; came {name!r}")
    if dim is not None:
        raise OptionError(f"dim: only SWL has a dimension; came {dim!r} with {name}")
    k = int(found[1] or found[3])
    if not 1 <= k <= MOST_ORDER:
        raise OptionError(f"test: expected tuples of order k >= 1 and at most {MOST_ORDER}; came {name!r}")
    kind = found[2] or f"delta-{found[4]}"
    if kind in ("WL", "FWL") and k == 1:
        return WLTest(name, 1, local=True)
    return WLTest(
        name,
        k,
        lines=kind in ("WL", "delta-WL"),
        local=kind.startswith("delta"),
        counted=kind == "delta-LWL+",
        folklore=kind == "FWL",
    )
