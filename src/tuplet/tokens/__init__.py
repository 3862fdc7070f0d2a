"""What attends: all k-tuples, connected or random ones, and their first features by isomorphism type."""

from tuplet.tokens.features import NodeEmbedding, PairTable, TupleEmbedding, pair_rows, position_pairs
from tuplet.tokens.sampling import ConnectedTuples, RandomTuples, connected_tuples, random_tuples
from tuplet.tokens.tuples import Tuples

__all__ = [
    "ConnectedTuples",
    "NodeEmbedding",
    "PairTable",
    "RandomTuples",
    "TupleEmbedding",
    "Tuples",
    "connected_tuples",
    "pair_rows",
    "position_pairs",
    "random_tuples",
]
