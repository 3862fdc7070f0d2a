"""Small baselines, and the graphs that their tests run on."""

import warnings

from tuplet import testing
from tuplet.models.baselines import (
    NAMES,
    BaselineConfig,
    build_baseline,
)

TASKS = ("graph", "node", "edge")
WITHOUT_EDGES = ("GCN", "GIN")
WITH_EDGES = tuple(name for name in NAMES if name not in WITHOUT_EDGES)
ODD = ("@", "A?", "D??", "C~", "DDW", "F?B~w")  # one node, no edges, complete, a path, a star with isolated nodes
GRAPHS = testing.graphs(max_nodes=6, node_types=3, edge_types=2, queries=3)
OPTIONS = {"dim": 12, "depth": 2, "heads": 3, "outputs": 2}
FEATURES = {"node_types": 3, "edge_types": 2}


def make(name, **options):
    """A small model in float64, evaluation mode; with edge features only where they are read."""
    if name in WITHOUT_EDGES:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="edge features are ignored")
            return build_baseline(BaselineConfig(name, **{**OPTIONS, **options})).double().eval()
    return build_baseline(BaselineConfig(name, **{**OPTIONS, **options})).double().eval()
