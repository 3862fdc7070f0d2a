"""Time and memory of a call, as ``tuplet.experiments.measure`` takes them, for the scripts beside this file."""

from tuplet.experiments.measure import peak_bytes, resident_bytes, seconds

__all__ = ["peak_bytes", "resident_bytes", "seconds"]
