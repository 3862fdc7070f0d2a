"""How one attention grows with n: time and peak memory at sizes that double until they no longer fit, and the exponents of both.

What is measured is Table 1's subject: the attention alone, forward and backward, given queries, keys and values; projections and
feed-forward, which cost O(n^k d²) whatever the pattern, are left out. A model without attention (k-IGN) is measured as a whole. The
graph is random, with mean degree 3.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

import tuplet
from tuplet.errors import TooLargeError
from tuplet.experiments.measure import peak_bytes, seconds

DIM, DEGREE = 64, 3
SLOW = {"cpu": 2.0, "cuda": 2.0}
"""Seconds of a call beyond which no larger size is tried."""
BUSY = 4
"""Times the quickest call from which on a call is more than launches."""
SHARE = 0.8
"""Of the device's memory, beyond which no larger size is tried."""


@dataclass(frozen=True)
class Point:
    """What one size cost.

    Args:
        n: nodes.
        seconds: of one call, the median of three.
        bytes: most memory beyond what was there before.
    """

    n: int
    seconds: float
    bytes: int


def grow(
    name: str, start: int, device: torch.device, options: Mapping[str, Any], slow: float | None = None
) -> Iterator[Point]:
    """Measure a model at n = start, 2 start, 4 start, .. until the next size would be too slow or too large.

    Args:
        name: of the model.
        start: the smallest size.
        device: where.
        options: of the model, such as heads.
        slow: seconds of a call beyond which no larger size is tried.
    """
    slow = SLOW[device.type] if slow is None else slow
    n, points = start, list[Point]()
    while True:
        try:
            call = attention_call(name, n, device, options)
            point = Point(n, seconds(call, device), peak_bytes(call, device))
        except (TooLargeError, torch.OutOfMemoryError):
            return
        finally:
            if device.type == "cuda":
                torch.cuda.empty_cache()
        yield point
        points.append(point)
        if point.seconds > slow or _next(points) > SHARE * _memory(device):
            return
        n *= 2


def exponents(points: Sequence[Point]) -> tuple[float, float]:
    """Of time and memory against n: slopes of straight lines through the upper half of the points, three of them at least.

    Where a call takes hardly longer than the quickest, a GPU waits for launches: such points have no say in the exponent of time, as
    long as there are two others.
    """
    upper = points[min(len(points) // 2, max(0, len(points) - 3)) :]
    quickest = min(point.seconds for point in points)
    busy = [point for point in upper if point.seconds >= BUSY * quickest]
    return slope(busy if len(busy) > 1 else upper, "seconds"), slope(upper, "bytes")


def slope(points: Sequence[Point], field: str) -> float:
    """Least squares on logarithms; NaN with fewer than two points."""
    if len(points) < 2:
        return math.nan
    x, y = [math.log(point.n) for point in points], [math.log(getattr(point, field)) for point in points]
    return statistics.linear_regression(x, y).slope


def random_graph(n: int, degree: int = DEGREE) -> Data:
    """n nodes of this mean degree, edges drawn at random, the same for the same arguments."""
    generator = torch.Generator().manual_seed(n)
    ends = torch.randint(n, (2, 4 * n * degree), generator=generator)
    ends = ends[:, ends[0] < ends[1]]
    drawn = torch.unique(ends[0] * n + ends[1])
    kept = drawn[torch.randperm(len(drawn), generator=generator)[: n * degree // 2]]
    return Data(edge_index=to_undirected(torch.stack([kept // n, kept % n]), num_nodes=n), num_nodes=n)


def attention_call(
    name: str, n: int, device: torch.device, options: Mapping[str, Any], graphs: int = 1
) -> Callable[[], None]:
    """A function that runs one attention of the model, forward and backward, on a random graph of n nodes, or several."""
    torch.manual_seed(0)
    model = tuplet.build(name, dim=DIM, depth=2, check_memory=False, **options).to(device).eval()
    prepared = model.prepare([random_graph(n)] * graphs)
    attention = getattr(model.layers[0], "attention", None)
    if attention is None:
        return _whole(model, prepared)
    heads = model.config.heads
    counts = [prepared.queries.total, prepared.keys.total, prepared.keys.total]
    virtual_counts = [graphs] * 3 if prepared.layouts.from_virtual is not None else []
    real, virtual = (
        [torch.randn(count, heads, DIM // heads, device=device, requires_grad=True) for count in some]
        for some in (counts, virtual_counts)
    )

    def call() -> None:
        messages = attention.mix(*attention.map_features(real, virtual, prepared.layouts), prepared.layouts)
        torch.stack([message.sum() for message in messages if message is not None]).sum().backward()
        for tensor in (*real, *virtual):
            tensor.grad = None

    return call


def _whole(model: nn.Module, prepared: Any) -> Callable[[], None]:
    def call() -> None:
        model(prepared).sum().backward()
        model.zero_grad()

    return call


def _next(points: Sequence[Point]) -> float:
    """Bytes that twice the size would take, as far as the last two tell."""
    if len(points) < 2:
        return 0.0
    before, last = points[-2:]
    return last.bytes * max(2.0, last.bytes / max(1, before.bytes))


def _memory(device: torch.device) -> float:
    from tuplet._memory import available_bytes

    return float(available_bytes(device))
