"""The paper's benchmarks; synthetic ones are generated."""

from tuplet.datasets.csl import CSL_NODES, CSL_SKIPS, Fold, csl, csl_folds

__all__ = ["CSL_NODES", "CSL_SKIPS", "Fold", "csl", "csl_folds"]
