"""What a CPU does in a layer, compiled: attention over rows of pairs, linear maps, feed-forwards, and what follows on attention."""

from tuplet.native.library import Library, load, set_aside

__all__ = ["Library", "load", "set_aside"]
