"""What the transformers are compared with: GCN, GAT, GIN, GINE, GatedGCN, PNA, GPS, Graphormer, PPGN and 2-IGN."""

from tuplet.models.baselines.config import NAMES, BaselineConfig
from tuplet.models.baselines.degrees import degree_histogram
from tuplet.models.baselines.models import Baseline, NodeBaseline, PairBaseline, build_baseline
from tuplet.models.baselines.prepared import PreparedGraphs

__all__ = [
    "NAMES",
    "Baseline",
    "BaselineConfig",
    "NodeBaseline",
    "PairBaseline",
    "PreparedGraphs",
    "build_baseline",
    "degree_histogram",
]
