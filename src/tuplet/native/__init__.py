"""What a CPU does between matrix products, compiled: attention over rows of pairs, and norms, residuals and activations of tokens."""

from tuplet.native.library import Library, load, set_aside, wanted

__all__ = ["Library", "load", "set_aside", "wanted"]
