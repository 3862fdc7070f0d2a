"""Methods that remember what they found."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

Method = TypeVar("Method", bound=Callable[..., Any])


def remembered(method: Method) -> Method:
    """A method of an immutable object that computes an answer once for each set of arguments, as ``cached_property`` does."""

    @wraps(method)
    def ask(self: Any, *arguments: Any) -> Any:
        known = self.__dict__.setdefault(f"_{method.__name__}_known", {})
        if arguments not in known:
            known[arguments] = method(self, *arguments)
        return known[arguments]

    return cast(Method, ask)
