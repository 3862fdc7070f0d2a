"""The one exception family of tuplet: every message says what was expected, what came, and what to do."""

from __future__ import annotations


class TupletError(Exception):
    """Base of everything tuplet raises on purpose."""


class InputError(TupletError, ValueError):
    """A graph or batch that cannot be used. ``field`` names the offending attribute."""

    def __init__(self, field: str, expected: str, came: str, hint: str = "") -> None:
        self.field = field
        ended = came.removesuffix(".")  # what came may be another error's sentence
        super().__init__(f"{field}: expected {expected}; came {ended}." + (f" {hint}" if hint else ""))


class OptionError(TupletError, ValueError):
    """An option of a model, a sampler or a trainer that has no meaning, alone or in combination."""


class ModelNameError(TupletError, ValueError):
    """A model name that the grammar does not know."""


class BackendError(TupletError, RuntimeError):
    """An explicitly requested backend that cannot run here. It is never replaced silently."""


class TooLargeError(TupletError, MemoryError):
    """Work that would not fit in the device's memory, refused before anything is allocated."""


class RunError(TupletError, RuntimeError):
    """A run folder, a checkpoint or a saved model that cannot be written or read."""


class UnfinishedError(RunError):
    """A run that its deadline stopped at a checkpoint: nothing is lost, and ``resume`` goes on from there."""


class MissingExtraError(TupletError, ImportError):
    """An optional dependency that is not installed."""
