"""What a CPU does in a training step, compiled: attention over rows of pairs and their lists, linear maps, feed-forwards, what follows on
attention, AdamW."""

from tuplet.native.library import Library, integers, load, set_aside
from tuplet.native.order import in_order, library_of

__all__ = ["Library", "in_order", "integers", "library_of", "load", "set_aside"]
