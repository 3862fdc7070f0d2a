"""The picture of ``tuplet demo``: two graphs, two learning curves, two clouds of outputs."""

from __future__ import annotations

from math import cos, pi, sin
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tuplet._extras import require
from tuplet.datasets import CSL_NODES, CSL_SKIPS

if TYPE_CHECKING:
    from tuplet.cli.demo import Result

COLOURS = {"A2^LN": "#1b7837", "A2": "#b2182b"}
BLUE, GREY = "#2166ac", "#6b6b6b"
TITLE = "Ten classes of circular skip links: A2^LN tells them apart, A2 cannot"
DRAWN = (5, 16)
"""The skips of the two graphs on the left."""


def draw(path: Path, results: list[Result], labels: Tensor) -> None:
    """Write the picture: graphs, validation accuracy by epoch, test outputs in two dimensions."""
    figure = require("matplotlib.figure", "train").Figure(figsize=(13, 6.6), dpi=150, facecolor="white")
    grid = figure.add_gridspec(
        2, 3, width_ratios=(1, 1.7, 1.2), left=0.02, right=0.985, top=0.84, bottom=0.14, wspace=0.24, hspace=0.4
    )
    figure.text(0.02, 0.94, TITLE, fontsize=16, weight="bold")
    for row, skip in enumerate(DRAWN):
        _graph(figure.add_subplot(grid[row, 0]), skip)
    _curves(figure.add_subplot(grid[:, 1]), results)
    limit = 1.15 * max(_project(result.outputs).abs().max().item() for result in results)
    for row, result in enumerate(results):
        _cloud(figure.add_subplot(grid[row, 2]), result, labels, limit)
    _legend(figure)
    figure.savefig(path)


def _graph(axes: Any, skip: int) -> None:
    """A circulant graph on a circle, its skip links in colour."""
    place = [(sin(2 * pi * node / CSL_NODES), cos(2 * pi * node / CSL_NODES)) for node in range(CSL_NODES)]
    for step, colour, width in ((skip, BLUE, 0.8), (1, GREY, 1.4)):
        for node, (x, y) in enumerate(place):
            u, v = place[(node + step) % CSL_NODES]
            axes.plot([x, u], [y, v], color=colour, linewidth=width, zorder=1)
    axes.scatter(*zip(*place, strict=True), s=14, color="#222222", zorder=2)
    axes.set_title(f"skip {skip}: node i is linked to i ± 1, i ± {skip}", fontsize=10)
    axes.set_aspect("equal")
    axes.axis("off")


def _curves(axes: Any, results: list[Result]) -> None:
    """Validation accuracy of both models, and chance."""
    axes.axhline(10, color=GREY, linewidth=1, linestyle="--", zorder=1)
    for result in results:
        percent = [100 * value for value in result.history.val_metric]
        label = f"{result.name}: {result.test_accuracy:.0f} % on the test graphs after {len(percent)} epochs"
        axes.plot(range(1, len(percent) + 1), percent, color=COLOURS[result.name], lw=2, marker="o", ms=5, label=label)
    axes.text(1.01, 10, "chance", color=GREY, fontsize=9, va="center", transform=axes.get_yaxis_transform())
    axes.set(ylim=(0, 119), yticks=range(0, 101, 20))
    axes.set_xlim(left=0.4)
    axes.set_xlabel("epoch")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_ylabel("validation accuracy (%)")
    axes.set_title("validation accuracy while training", fontsize=10)
    axes.legend(loc="upper left", frameon=False, fontsize=10)
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _cloud(axes: Any, result: Result, labels: Tensor, limit: float) -> None:
    """Test outputs on their two principal components, coloured by class; both models on one scale."""
    place = _project(result.outputs)
    x, y = place.t().tolist()
    axes.scatter(x, y, c=[f"C{label}" for label in labels.tolist()], s=36, edgecolor="white", linewidth=0.5)
    caption = f"largest difference between two graphs: {result.spread:.2g}"
    if place.abs().max() < limit / 100:
        caption += f"\nthat is rounding: in float64 it is {result.exact_spread:.2g}"
        axes.annotate(
            "all ten classes",
            (0, 0),
            (limit / 4, limit / 3),
            fontsize=10,
            arrowprops={"arrowstyle": "-", "color": GREY, "shrinkB": 5},
        )
    axes.set(xlim=(-limit, limit), ylim=(-limit, limit), xticks=[], yticks=[])
    axes.set_title(f"{result.name}: outputs for the 30 test graphs", fontsize=10, color=COLOURS[result.name])
    axes.set_xlabel(caption, fontsize=9, color=GREY)
    axes.spines[:].set_color("#bbbbbb")


def _legend(figure: Any) -> None:
    """The colours of the classes, below the clouds."""
    line = require("matplotlib.lines", "train").Line2D
    marks = [
        line([], [], linestyle="", marker="o", color=f"C{label}", label=str(skip))
        for label, skip in enumerate(CSL_SKIPS)
    ]
    title = "class by skip; principal components of the outputs, both on one scale"
    figure.legend(
        handles=marks,
        title=title,
        title_fontsize=8,
        ncols=10,
        loc="lower right",
        bbox_to_anchor=(0.99, 0.0),
        frameon=False,
        fontsize=8,
        handletextpad=0.0,
        columnspacing=0.7,
    )


def _project(outputs: Tensor) -> Tensor:
    """(G, 2) coordinates on the two principal components."""
    centred = outputs.double() - outputs.double().mean(0)
    _, _, axes = torch.linalg.svd(centred, full_matrices=False)
    return centred @ axes[:2].t()
