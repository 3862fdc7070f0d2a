"""Values of options: text and YAML scalars become what the option is declared to be, or are refused by name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import numpy as np

from tuplet.errors import OptionError

WORDS = {"true": True, "false": False, "yes": True, "no": False, "on": True, "off": False, "1": True, "0": False}
NOTHING = ("none", "null", "")


def convert(name: str, kind: Any, value: Any) -> Any:
    """``value`` as the type ``kind`` of the option ``name``; numbers may come as text, or as numpy's."""
    value = value.tolist() if isinstance(value, np.ndarray) else plain_scalar(value)
    if get_origin(kind) in (Union, UnionType):
        if value is None or (isinstance(value, str) and value.lower() in NOTHING):
            return None
        (kind,) = (part for part in get_args(kind) if part is not NoneType)
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise OptionError(f"{name}: expected one of {', '.join(map(repr, get_args(kind)))}; came {value!r}")
        return value
    if get_origin(kind) is Sequence:
        (part,) = get_args(kind)
        listed = isinstance(value, Iterable) and not isinstance(value, str)
        items = list(_expect(name, listed, value, "a list", value))
        if part is str:  # names may be numbers
            items = [
                str(item) if isinstance(item, int | float) and not isinstance(item, bool) else item for item in items
            ]
        return tuple(convert(name, part, item) for item in items)
    if kind is Any:
        return value
    if kind is bool:
        flag = WORDS.get(str(value).lower())
        return _expect(name, flag is not None, flag, "true or false", value)
    if kind is int:
        whole = isinstance(value, float) and value.is_integer()
        text = isinstance(value, str) and re.fullmatch(r"[+-]?\d[\d_]*", value.strip())
        found = int(value) if whole or text else value
        return _expect(name, isinstance(found, int) and not isinstance(found, bool), found, "a whole number", value)
    if kind is float:
        found = _float(value)
        return _expect(name, isinstance(found, float), found, "a number", value)
    if kind is str:
        return _expect(name, isinstance(value, str) and value != "", value, "a text", value)
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise OptionError(f"{name}: expected options by name, as in {{dim: 64}}; came {value!r}")
    return dict(value)


def plain_scalar(value: Any) -> Any:
    """A number of numpy, of which grids of hyperparameters are made, as Python's own; anything else as it is."""
    return value.item() if isinstance(value, np.generic) else value


def guess(text: str) -> Any:
    """A value of unknown type from text: a Python literal, true / false / none, a list of words, or the text itself."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        pass
    word = text.strip()
    if word.lower() in ("true", "false"):
        return WORDS[word.lower()]
    if word.lower() in ("none", "null"):
        return None
    if word.startswith("[") and word.endswith("]"):
        return [guess(part.strip()) for part in word[1:-1].split(",") if part.strip()]
    return text


def _float(value: Any) -> Any:
    """PyYAML reads 1e-3 as text: only 1.0e-3 is a number in YAML 1.1."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _expect(name: str, fits: bool, found: Any, expected: str, came: Any) -> Any:
    if not fits:
        raise OptionError(f"{name}: expected {expected}; came {came!r}")
    return found
