"""A graph comes in: read from PyG, networkx or graph6, checked once, errors that name the field."""

from tuplet.graphs.batch import GraphBatch, offsets, repeat
from tuplet.graphs.door import read
from tuplet.graphs.features import Features
from tuplet.graphs.memory import remembered
from tuplet.graphs.padded import PaddedBatch

__all__ = ["Features", "GraphBatch", "PaddedBatch", "offsets", "read", "remembered", "repeat"]
