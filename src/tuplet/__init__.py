"""Higher-order graph transformers: attention whose tokens are k-tuples of nodes, or simplices."""

from typing import TYPE_CHECKING, Any

from tuplet import errors, wl
from tuplet.graphs import read
from tuplet.models import ModelConfig, Prepared, Transformer, build

if TYPE_CHECKING:
    from tuplet.training import GraphClassifier, GraphRegressor, load

__version__ = "0.1.0"
__all__ = [
    "GraphClassifier",
    "GraphRegressor",
    "ModelConfig",
    "Prepared",
    "Transformer",
    "build",
    "errors",
    "load",
    "read",
    "wl",
]


def __getattr__(name: str) -> Any:
    """What belongs to training is imported when it is asked for, so that ``import tuplet`` stays quick."""
    if name in ("GraphClassifier", "GraphRegressor", "load"):
        from tuplet import training

        return getattr(training, name)
    raise AttributeError(f"module 'tuplet' has no attribute {name!r}")
