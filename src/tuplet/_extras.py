"""Optional dependencies, imported where they are used and named by the extra that installs them."""

from __future__ import annotations

import importlib
from types import ModuleType

from tuplet.errors import MissingExtraError


def require(module: str, extra: str) -> ModuleType:
    """Import ``module`` or say which extra of tuplet brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"{module} is not installed; it comes with the extra [{extra}]: pip install 'tuplet[{extra}]'"
        ) from error
