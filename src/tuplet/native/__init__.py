"""What a CPU does in a training step, compiled: attention over rows of pairs and their lists, linear maps, feed-forwards, what follows on
attention, AdamW."""

from tuplet.native.library import Library, load, set_aside

__all__ = ["Library", "load", "set_aside"]
