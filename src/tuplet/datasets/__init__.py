"""The paper's benchmarks; synthetic ones are generated."""

from tuplet.datasets.cfi import cfi
from tuplet.datasets.csl import CSL_NODES, CSL_SKIPS, Fold, csl, csl_folds
from tuplet.datasets.strongly_regular import rook, shrikhande

__all__ = ["CSL_NODES", "CSL_SKIPS", "Fold", "cfi", "csl", "csl_folds", "rook", "shrikhande"]
