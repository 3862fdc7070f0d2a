"""Which graphs do random weights tell apart? Outputs in float64, with a threshold that relabelled copies set.

A model that can separate two graphs does so for almost all weights; one that cannot gives them equal outputs but for
rounding. How large rounding is, is measured: every graph is run once more with its nodes renamed, which changes nothing
but the order of sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from tuplet.graphs.door import as_data
from tuplet.models import ModelConfig, Transformer
from tuplet.models.baselines import NAMES, Baseline, BaselineConfig, build_baseline
from tuplet.models.baselines.config import ON_PAIRS
from tuplet.testing import permute

MARGIN = 100.0
"""How many times the error between relabelled copies a difference must be to count."""
DEFAULTS: dict[str, Any] = {"dim": 16, "depth": 5, "heads": 4, "outputs": 8, "pool": "add"}
"""Options of a random model; the sum at the end is there because a histogram counts."""
TOKENS_A_BATCH = 100_000


@dataclass(frozen=True)
class Draw:
    """Outputs of one draw of weights.

    Args:
        outputs: (G, o), divided by the largest magnitude.
        noise: largest difference between a graph and its relabelled copy.
    """

    outputs: Tensor
    noise: float

    @property
    def threshold(self) -> float:
        return MARGIN * max(self.noise, torch.finfo(torch.float64).eps)

    def gap(self, i: int, j: int) -> float:
        """Difference of two graphs over the threshold: above 1 they are told apart."""
        return float((self.outputs[i] - self.outputs[j]).abs().max()) / self.threshold

    def gaps(self) -> Tensor:
        """(G, G) the same for all pairs."""
        return torch.cdist(self.outputs, self.outputs, p=float("inf")) / self.threshold


def random_model(name: str, seed: int, **options: Any) -> Transformer:
    """A model with random weights in float64, evaluation mode.

    The sum form has layer norms, so that it does not grow with depth. The others have none, and scores four times as large
    as a model in training begins with: near-uniform means bring differences down layer by layer, and what a model
    separates in its last layers would drown in rounding. Depth 5 is as many rounds as 2-WL needs on the atlas.
    """
    torch.manual_seed(seed)
    config = ModelConfig.of(name, **{**DEFAULTS, **options})
    relu = config.choices.kernel == "relu"
    if "norm" not in options:
        config = replace(config, norm="layer" if relu else "none")
    model = Transformer(config).double().eval()
    if not relu:
        with torch.no_grad():
            for layer in model.layers:
                layer.attention.query.weight.mul_(4)  # type: ignore[union-attr, operator]
    return model


def random_baseline(name: str, seed: int, **options: Any) -> Baseline:
    """A baseline with random weights in float64, evaluation mode, and layer norms, so that sums do not grow with depth.

    PPGN multiplies what it has multiplied before, and rounding with it: it is wider and less deep than the others.
    """
    torch.manual_seed(seed)
    own = {"norm": "layer", **({"dim": 32, "depth": 4} if name == "PPGN" else {})}
    return build_baseline(BaselineConfig.of(name, **{**DEFAULTS, **own, **options})).double().eval()


def draw(name: str, graphs: Sequence[Any], seed: int, **options: Any) -> Draw:
    """One draw of weights on all graphs, and on a relabelled copy of each."""
    model = (random_baseline if name in NAMES else random_model)(name, seed, **options)
    data = [as_data(graph) for graph in graphs]
    generator = torch.Generator().manual_seed(seed)
    copies = [permute(graph, torch.randperm(int(graph.num_nodes or 0), generator=generator)) for graph in data]
    out = run(model, data + copies)
    first, second = out[: len(data)], out[len(data) :]
    scale = out.abs().max().clamp_min(1e-300)
    return Draw(first / scale, float((first - second).abs().max() / scale))


@torch.no_grad()
def run(model: Transformer | Baseline, graphs: Sequence[Data]) -> Tensor:
    """(G, o) outputs, in batches of bounded size."""
    order = _order(model.config)
    parts: list[Tensor] = []
    batch: list[Data] = []
    tokens = 0
    for graph in graphs:
        size = int(graph.num_nodes or 0) ** order
        if batch and tokens + size > TOKENS_A_BATCH:
            parts.append(model(batch))
            batch, tokens = [], 0
        batch.append(graph)
        tokens += size
    return torch.cat([*parts, model(batch)])


def _order(config: ModelConfig | BaselineConfig) -> int:
    """Nodes of a token."""
    if isinstance(config, BaselineConfig):
        return 2 if config.name in ON_PAIRS else 1
    return config.choices.orders[0] if config.choices.orders else 1
