"""Methods that remember what they found, and objects that are told."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

Method = TypeVar("Method", bound=Callable[..., Any])
Thing = TypeVar("Thing")


def remembered(method: Method) -> Method:
    """A method of an immutable object that computes an answer once for each set of arguments, as ``cached_property``
    does; or a function whose first argument is such an object."""

    @wraps(method)
    def ask(self: Any, *arguments: Any, **options: Any) -> Any:
        known = self.__dict__.setdefault(f"_{method.__name__}_known", {})
        asked = (arguments, *options.items())
        if asked not in known:
            known[asked] = method(self, *arguments, **options)
        return known[asked]

    return cast(Method, ask)


def told(thing: Thing, **answers: Any) -> Thing:
    """``thing``, an immutable object, which need not find out the cached properties whose values are given."""
    thing.__dict__.update(answers)
    return thing
