"""What attends: all k-tuples, connected or random ones, simplices; and their first features."""

from tuplet.tokens.base import Tokens
from tuplet.tokens.features import (
    NodeEmbedding,
    PairTable,
    TupleEmbedding,
    TupleParts,
    constant_lists,
    node_lists,
    pair_lists,
    position_pairs,
)
from tuplet.tokens.sampling import ConnectedTuples, RandomTuples, connected_tuples, random_tuples
from tuplet.tokens.simplices import SimplexEmbedding, SimplexParts, Simplices
from tuplet.tokens.tuples import Tuples

__all__ = [
    "ConnectedTuples",
    "NodeEmbedding",
    "PairTable",
    "RandomTuples",
    "SimplexEmbedding",
    "SimplexParts",
    "Simplices",
    "Tokens",
    "TupleEmbedding",
    "TupleParts",
    "Tuples",
    "connected_tuples",
    "constant_lists",
    "node_lists",
    "pair_lists",
    "position_pairs",
    "random_tuples",
]
