"""Where things are kept that can be made or fetched again."""

from __future__ import annotations

import os
from pathlib import Path


def default_root() -> Path:
    """Fetched and prepared data and compiled code: ``$TUPLET_CACHE``, else ``$XDG_CACHE_HOME/tuplet``, else ``~/.cache/tuplet``."""
    named = os.environ.get("TUPLET_CACHE")
    return (
        Path(named).expanduser()
        if named
        else Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "tuplet"
    )
