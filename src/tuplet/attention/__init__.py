"""How attention is computed: one function, interchangeable backends, kernels and relations."""

from tuplet.attention.api import BACKENDS, Backend, attend, join, resolve_backend
from tuplet.attention.kernels import FavorFeatures, FeatureMap, Kernel, feature_map
from tuplet.attention.kronecker import kronecker_attend
from tuplet.attention.weights import Rule

__all__ = [
    "BACKENDS",
    "Backend",
    "FavorFeatures",
    "FeatureMap",
    "Kernel",
    "Rule",
    "attend",
    "feature_map",
    "join",
    "kronecker_attend",
    "resolve_backend",
]
