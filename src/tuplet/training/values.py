"""Lists of numbers, such as seeds, from text and YAML scalars."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tuplet._values import plain_scalar
from tuplet.errors import OptionError


def numbers(name: str, value: Any) -> tuple[int, ...]:
    """Whole numbers from a number, a list of them, or a text such as "0-4" or "0,2,5"."""
    parts = value.split(",") if isinstance(value, str) else value if isinstance(value, Sequence) else [value]
    found: list[int] = []
    for part in map(plain_scalar, parts):
        span = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part if isinstance(part, str) else "")
        if span is not None:
            found += range(int(span[1]), int(span[2] or span[1]) + 1)
        elif isinstance(part, int) and not isinstance(part, bool) and part >= 0:
            found.append(part)
        else:
            raise OptionError(f"{name}: expected numbers such as 0-4 or 0,2,5; came {value!r}")
    if not found or len(set(found)) < len(found):
        raise OptionError(f"{name}: expected at least one number, each once; came {value!r}")
    return tuple(found)
