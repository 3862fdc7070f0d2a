"""How attention is computed: one function, interchangeable backends, kernels and relations."""

from tuplet.attention.api import (
    BACKENDS,
    Backend,
    Group,
    are_mutual,
    attend,
    attend_apart,
    attend_joined,
    check_backend,
    join,
    mutually,
    resolve_backend,
    seen_apart,
)
from tuplet.attention.kernels import FavorFeatures, FeatureMap, Kernel, feature_map
from tuplet.attention.kronecker import kronecker_attend
from tuplet.attention.weights import Rule

__all__ = [
    "BACKENDS",
    "Backend",
    "FavorFeatures",
    "FeatureMap",
    "Group",
    "Kernel",
    "Rule",
    "are_mutual",
    "attend",
    "attend_apart",
    "attend_joined",
    "check_backend",
    "feature_map",
    "join",
    "kronecker_attend",
    "mutually",
    "resolve_backend",
    "seen_apart",
]
