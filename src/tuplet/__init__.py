"""Higher-order graph transformers: attention whose tokens are k-tuples of nodes, or simplices."""

from tuplet import errors, wl
from tuplet.graphs import read
from tuplet.models import ModelConfig, Prepared, Transformer, build

__version__ = "0.1.0"
__all__ = ["ModelConfig", "Prepared", "Transformer", "build", "errors", "read", "wl"]
