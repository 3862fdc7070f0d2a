"""Who attends to whom: one file a pattern, each a definition and a layout of the same thing."""

from tuplet.patterns.base import DefinedPairs, Kept, Pattern, PlainGraph, define
from tuplet.patterns.cross import CrossNeighbour
from tuplet.patterns.dense import Dense
from tuplet.patterns.fused import Fused, FusedLines, FusedRows, fuse, unpack_fused
from tuplet.patterns.local import LocalNeighbour
from tuplet.patterns.neighbour import Neighbour
from tuplet.patterns.relation import EdgeKinds
from tuplet.patterns.simplex import SimplexDense, SimplexNeighbour
from tuplet.patterns.structure import Lines, Rows, Structure, Walk, unpack
from tuplet.patterns.virtual import Virtual, virtual_layout, virtual_pairs

__all__ = [
    "CrossNeighbour",
    "DefinedPairs",
    "Dense",
    "EdgeKinds",
    "Fused",
    "FusedLines",
    "FusedRows",
    "Kept",
    "Lines",
    "LocalNeighbour",
    "Neighbour",
    "Pattern",
    "PlainGraph",
    "Rows",
    "SimplexDense",
    "SimplexNeighbour",
    "Structure",
    "Virtual",
    "Walk",
    "define",
    "fuse",
    "unpack",
    "unpack_fused",
    "virtual_layout",
    "virtual_pairs",
]
