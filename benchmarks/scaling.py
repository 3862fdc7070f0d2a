"""How the attention call alone grows with n: time and peak memory of every pattern, beside theory (Table 1).

    python benchmarks/scaling.py [--device cuda] [--json FILE] [--plot FILE] [--rows A2,A2^LN]

One random graph of average degree 3 at each n; one attention, forward and backward, given queries, keys and values; the
projections and the feed-forward around it are left out. Exponents are those of the last octave measured. At the end, one
training step of a one-layer A2^LN on n = 400 at degrees 3 and 30, in processes of their own, by resident memory.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from dataclasses import asdict, dataclass

import networkx as nx
import torch

import tuplet
from measure import peak_bytes, resident_bytes, seconds
from tuplet.models.attention import TokenAttention

DIM, DEGREE = 64, 3


@dataclass(frozen=True)
class Row:
    """One pattern: its model, the sizes to measure, the exponents of n in theory (time, memory), and heads."""

    name: str
    sizes: tuple[int, ...]
    time: float
    memory: float
    heads: int = 4


ROWS = (
    Row("A1", (2500, 5000, 10000), 2, 1, heads=1),
    Row("A2", (30, 60, 120), 4, 2, heads=1),
    Row("A2-Performer", (75, 150, 300), 2, 2),
    Row("A2-Linear", (75, 150, 300), 2, 2),
    Row("A2-ReLU", (30, 60, 120), 4, 2, heads=1),
    Row("A2^Ngbh", (75, 150, 300), 3, 2),
    Row("A2^Ngbh+", (75, 150, 300), 3, 2),
    Row("A2^LN", (100, 200, 400), 2, 2),
    Row("A2^VT", (100, 200, 400), 2, 2),
    Row("A3", (7, 14, 28), 6, 3, heads=1),
    Row("A3^Ngbh", (15, 30, 60), 4, 3),
    Row("A3^LN", (15, 30, 60), 3, 3),
    Row("AS0:1", (500, 1000, 2000), 2, 1, heads=1),
    Row("AS0:1+bias", (500, 1000, 2000), 2, 1, heads=1),
    Row("AS0:1-Linear", (5000, 10000, 20000), 1, 1),
    Row("AS0:1^SN", (5000, 10000, 20000), 1, 1),
    Row("AS0:1^VS", (5000, 10000, 20000), 1, 1),
    Row("A1,2", (75, 150, 300), 3, 2, heads=1),
    Row("A1,2^Ngbh", (100, 200, 400), 2, 2),
)


@dataclass(frozen=True)
class Point:
    """What one size cost."""

    n: int
    seconds: float
    bytes: int


def attention_call(row: Row, n: int, device: torch.device):
    """A function that runs one attention of the model, forward and backward, on a random graph of n nodes."""
    graph = nx.gnm_random_graph(n, n * DEGREE // 2, seed=0)
    model = tuplet.build(row.name, dim=DIM, depth=2, heads=row.heads, check_memory=False).to(device)
    prepared = model.eval().prepare(graph)
    attention: TokenAttention = model.layers[0].attention
    shape = row.heads, DIM // row.heads
    counts = [prepared.queries.total, prepared.keys.total, prepared.keys.total]
    real = [torch.randn(count, *shape, device=device, requires_grad=True) for count in counts]
    count = 3 if prepared.layouts.from_virtual is not None else 0
    virtual = [torch.randn(1, *shape, device=device, requires_grad=True) for _ in range(count)]

    def call() -> None:
        messages = attention.mix(*attention.map_features(real, virtual, prepared.layouts), prepared.layouts)
        sum(message.sum() for message in messages if message is not None).backward()
        for tensor in (*real, *virtual):
            tensor.grad = None

    return call


def exponent(small: float, large: float, ratio: float) -> float:
    return math.log(large / small) / math.log(ratio)


def measure(row: Row, device: torch.device) -> list[Point]:
    points = []
    for n in row.sizes:
        call = attention_call(row, n, device)
        points.append(Point(n, seconds(call, device), peak_bytes(call, device)))
    return points


def table(results: dict[str, list[Point]]) -> str:
    lines = [
        f"{'model':<14}{'n':>6}{'seconds':>10}{'MB':>9}   {'time ~ n^':>9}{'theory':>8}   {'memory ~ n^':>11}{'theory':>8}"
    ]
    for row in (row for row in ROWS if row.name in results):
        before, last = results[row.name][-2:]
        ratio = last.n / before.n
        grown = exponent(before.seconds, last.seconds, ratio), exponent(before.bytes, last.bytes, ratio)
        lines.append(
            f"{row.name:<14}{last.n:>6}{last.seconds:>10.3f}{last.bytes / 1e6:>9.1f}   {grown[0]:>9.2f}{row.time:>8.0f}   "
            f"{grown[1]:>11.2f}{row.memory:>8.0f}"
            + ("" if abs(grown[1] - row.memory) <= 0.3 else "   memory off by more than 0.3")
        )
    return "\n".join(lines)


def plot(results: dict[str, list[Point]], path: str) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(11, 4.5))
    for axis, field, label in zip(axes, ("seconds", "bytes"), ("seconds", "peak bytes"), strict=True):
        for number, (name, points) in enumerate(results.items()):
            style = ("-", "--", ":")[number // 10]
            axis.loglog([p.n for p in points], [getattr(p, field) for p in points], style, marker="o", ms=3, label=name)
        axis.set(xlabel="n", ylabel=f"{label} of one attention, forward and backward")
        axis.grid(alpha=0.3)
    axes[1].legend(fontsize=7, ncols=2)
    figure.tight_layout()
    figure.savefig(path, dpi=150)


def resident_step(degree: int) -> float:
    """MB above the process's base that one training step of a one-layer A2^LN takes on n = 400."""
    model = tuplet.build("A2^LN", dim=64, depth=1, heads=4)
    model(nx.path_graph(3)).sum().backward()
    base, _ = resident_bytes()
    model(nx.gnm_random_graph(400, 400 * degree // 2, seed=0)).sum().backward()
    return (resident_bytes()[1] - base) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rows", default=",".join(row.name for row in ROWS if "," not in row.name) + ",cross")
    parser.add_argument("--json")
    parser.add_argument("--plot")
    parser.add_argument("--resident-step", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.resident_step:
        print(resident_step(options.resident_step))
        return
    device = torch.device(options.device)
    wanted = options.rows.split(",")
    results: dict[str, list[Point]] = {}
    for row in ROWS:
        if row.name in wanted or ("," in row.name and "cross" in wanted):
            results[row.name] = measure(row, device)
            print(f"measured {row.name}", file=sys.stderr)
    print(table(results))
    if options.json:
        with open(options.json, "w") as file:
            json.dump({name: [asdict(point) for point in points] for name, points in results.items()}, file, indent=1)
    if options.plot:
        plot(results, options.plot)
    if device.type == "cpu":
        steps = {}
        for degree in (3, 30):
            command = [sys.executable, __file__, "--resident-step", str(degree)]
            steps[degree] = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        print(
            f"one-layer A2^LN, d = 64, n = 400, one training step above the process's base: {steps[3]:.0f} MB at degree 3, "
            f"{steps[30]:.0f} MB at degree 30 ({steps[30] / steps[3]:.2f} ×)"
        )


if __name__ == "__main__":
    main()
