"""Data sets: the paper's benchmarks by name, own data from files and memory, and their preparation."""

from tuplet.datasets.catalogue import CATALOGUE, Row
from tuplet.datasets.cfi import cfi
from tuplet.datasets.csl import CSL_NODES, CSL_SKIPS, Fold, csl, csl_folds
from tuplet.datasets.loading import load
from tuplet.datasets.packing import pack
from tuplet.datasets.preparation import prepare
from tuplet.datasets.strongly_regular import chang, rook, shrikhande, triangular
from tuplet.datasets.task import Skipped, Task

__all__ = [
    "CATALOGUE",
    "CSL_NODES",
    "CSL_SKIPS",
    "Fold",
    "Row",
    "Skipped",
    "Task",
    "cfi",
    "chang",
    "csl",
    "csl_folds",
    "load",
    "pack",
    "prepare",
    "rook",
    "shrikhande",
    "triangular",
]
