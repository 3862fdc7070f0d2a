"""Pictures of results as SVG: bars beside the paper, learning curves, growth with n."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from textwrap import fill
from typing import Any

from tuplet._extras import require
from tuplet.experiments.comparison import Line
from tuplet.experiments.outcomes import Outcome
from tuplet.training.summary import spread

PAPER, GREY, GRID = "#b8bcc2", "#6b6b6b", "#ececec"
COLOURS = {"": "#5aa0c8", "groups": "#2166ac", "joint": "#d6604d"}
NAMES = {"": "ours", "groups": "ours, groups", "joint": "ours, joint"}
TITLE = 30
"""Letters in a line of the title of a small picture."""
TAG, LONG = re.compile(r"<[^>]+>"), re.compile(r"(\d\.\d\d)\d+")
"""Where coordinates stand, and a number with more digits than a hundredth of a point, which is enough; text has all of its own."""


def bars(title: str, lines: Sequence[Line]) -> str | None:
    """Paper and ours beside each other, with standard deviations; None if nothing of ours is there."""
    if not any(line.values for line in lines):
        return None
    rows = list(dict.fromkeys(line.row for line in lines if line.values or line.row.beside(line.column.key)))
    groups = [[line for line in lines if line.row is row and line.values] for row in rows]
    heights = [1 + len(group) for group in groups]
    figure, (axes,) = _figure(8.4, 0.8 + 0.19 * sum(heights) + 0.1 * len(rows))
    place, ticks, seen, shown = 0.0, [], set[str](), list[float]()
    for row, group in zip(rows, groups, strict=True):
        column = next(line.column for line in lines if line.row is row)
        published = row.beside(column.key)
        bunch = [] if published is None else [("paper", PAPER, published.mean, published.std or 0.0)]
        for line in group:
            mean, std = spread(line.values)
            bunch.append((_name(line), COLOURS[line.form], mean, 0.0 if math.isnan(std) else std))
        for number, (name, colour, mean, std) in enumerate(bunch):
            style = {"hatch": "//", "edgecolor": "white"} if name.endswith(")") else {}
            label = None if name in seen else name
            seen.add(name)
            shown.append(mean)
            axes.barh(
                place + number,
                mean,
                xerr=std or None,
                height=0.86,
                color=colour,
                label=label,
                ecolor="#333333",
                error_kw={"lw": 0.9},
                **style,
            )
        ticks.append(place + (len(bunch) - 1) / 2)
        place += len(bunch) + 0.6
    axes.set_yticks(ticks, [row.name for row in rows])
    axes.invert_yaxis()
    axes.margins(y=0.01)
    if _wide(shown):
        axes.set_xscale("log")
    axes.grid(axis="x", color=GRID, linewidth=0.8)
    axes.set_title(title, loc="left", fontsize=10)
    axes.legend(frameon=False, fontsize=8, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=4)
    return _svg(figure)


def curves(title: str, lines: Sequence[Line]) -> str | None:
    """Validation metric by epoch, a small picture a row and a line a run; None if there are none."""
    drawn = [line for line in lines if any(outcome.curve.get("epoch") for outcome in line.outcomes)]
    if not drawn:
        return None
    rows = list(dict.fromkeys(line.row for line in drawn))
    across = min(4, len(rows))
    down = math.ceil(len(rows) / across)
    names = [fill(row.name, TITLE) for row in rows]
    extra = 0.14 * max(name.count("\n") for name in names)
    figure, every = _figure(2.35 * across + 0.4, (1.75 + extra) * down + 0.5, down, across, sharey=True)
    for axes, row, name in zip(every, rows, names, strict=False):
        for line in (line for line in drawn if line.row is row):
            begun = [
                outcome for outcome in line.outcomes if outcome.curve.get("epoch")
            ]  # one may have stopped in its first epoch
            for number, outcome in enumerate(begun):
                _curve(axes, line, outcome, None if number else _name(line))
        axes.set_title(name, loc="left", fontsize=8)
        axes.grid(color=GRID, linewidth=0.6)
    for axes in every[len(rows) :]:
        axes.set_visible(False)
    if drawn[0].column.better == "lower":
        every[0].set_yscale("log")
    handles = {label: handle for axes in every for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), frameon=False, fontsize=8, loc="upper right", ncols=3)
    figure.suptitle(f"{title}: validation by epoch", x=0.01, ha="left", fontsize=10)
    return _svg(figure)


def growth(title: str, outcomes: Sequence[Outcome]) -> str | None:
    """Seconds and bytes against n, both logarithmic, a line a model; None if there are no measurements."""
    order = {row.slug: place for place, row in enumerate(outcomes[0].job.described()[0].rows)} if outcomes else {}
    drawn = sorted((item for item in outcomes if item.curve.get("n")), key=lambda item: order[item.job.row])
    if not drawn:
        return None
    figure, every = _figure(10.5, 4.6, 1, 2)
    palette = require("matplotlib", "train").colormaps["tab10"]
    for axes, field, label in zip(every, ("seconds", "bytes"), ("seconds", "peak memory, bytes"), strict=True):
        for number, outcome in enumerate(drawn):
            _, row, _ = outcome.job.described()
            style = {
                "color": palette(number % 10),
                "ls": ("-", "--", ":")[number // 10 % 3],
                "marker": "o",
                "ms": 3,
                "lw": 1.3,
            }
            axes.plot(outcome.curve["n"], outcome.curve[field], label=row.model, **style)
        axes.set(xscale="log", yscale="log", xlabel="n", ylabel=label)
        axes.grid(color=GRID, linewidth=0.8)
    every[1].legend(frameon=False, fontsize=7.5, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    figure.suptitle(f"{title}: one attention, forward and backward", x=0.01, ha="left", fontsize=10)
    return _svg(figure)


def _curve(axes: Any, line: Line, outcome: Outcome, label: str | None) -> None:
    points = [
        (epoch, value)
        for epoch, value in zip(outcome.curve["epoch"], outcome.curve["val"], strict=True)
        if value is not None
    ]
    values = [line.column.scale * value for _, value in points]
    drawn = ":" if not outcome.finished else "--" if line.changes else "-"
    style = {"color": COLOURS[line.form], "lw": 1.0, "alpha": 0.75, "ls": drawn}
    axes.plot([epoch for epoch, _ in points], values, label=label, **style)


def _name(line: Line) -> str:
    """In a legend; in brackets in what it is not what the table asks for."""
    return NAMES[line.form] + (f" ({', '.join(line.changes)})" if line.changes else "")


def _wide(values: Sequence[float]) -> bool:
    """Whether positive numbers lie so far apart that bars need a logarithmic scale."""
    return min(values) > 0 and max(values) / min(values) > 30


def _figure(width: float, height: float, down: int = 1, across: int = 1, **how: Any) -> tuple[Any, list[Any]]:
    figure = require("matplotlib.figure", "train").Figure(
        figsize=(width, height), layout="constrained", facecolor="white"
    )
    every = list(figure.subplots(down, across, squeeze=False, **how).flat)
    for axes in every:
        axes.set_axisbelow(True)
        axes.tick_params(labelsize=8, color=GREY)
        axes.spines[["top", "right"]].set_visible(False)
    return figure, every


def _svg(figure: Any) -> str:
    """The picture as an element of a page: text stays text, and nothing in it changes from one time to the next."""
    library = require("matplotlib", "train")
    buffer = io.StringIO()
    salt = f"{figure.get_size_inches()} {[axes.get_title(loc='left') for axes in figure.axes]}"
    with library.rc_context({"svg.fonttype": "none", "svg.hashsalt": salt, "font.family": "sans-serif"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    return TAG.sub(lambda tag: LONG.sub(r"\1", tag[0]), text[text.index("<svg") :])
