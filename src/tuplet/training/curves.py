"""``curves.png``: loss and metric of every epoch of every run."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tuplet._extras import require
from tuplet.training.files import write
from tuplet.training.summary import Result, Summary

TRAIN, VAL, RATE, GREY = "#2166ac", "#b2182b", "#999999", "#6b6b6b"


def draw(path: Path, summary: Summary) -> None:
    """Left the losses and the learning rate, right the validation metric with the best epoch of each run marked."""
    figure = require("matplotlib.figure", "train").Figure(figsize=(11, 4.4), dpi=150, facecolor="white")
    left, right = figure.subplots(1, 2)
    figure.suptitle(_title(summary), x=0.01, ha="left", fontsize=11, weight="bold")
    _losses(left, summary.results)
    _metric(right, summary)
    for axes in (left, right):
        axes.set_xlabel("epoch")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(color="#ececec", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top"]].set_visible(False)
    right.spines[["right"]].set_visible(False)
    figure.tight_layout()
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    write(path, buffer.getvalue())


def _title(summary: Summary) -> str:
    (test, deviation), several = summary.test, len(summary.results) > 1
    text = f"{summary.model} on {summary.task}"
    if math.isnan(test):
        return text
    return f"{text}: test {summary.metric} {test:.4g}" + (
        f" ± {deviation:.2g}, {len(summary.results)} runs" if several else ""
    )


def _losses(axes: Any, results: Sequence[Result]) -> None:
    """Training and validation loss, on a logarithmic scale where all are positive; the learning rate behind them."""
    positive = True
    for number, result in enumerate(results):
        history = result.history
        epochs = range(1, history.epochs + 1)
        style = {"lw": 1.5, "alpha": 0.9 if len(results) == 1 else 0.6, "marker": "o" if history.epochs < 3 else None}
        axes.plot(epochs, history.train_loss, color=TRAIN, label=None if number else "training", **style)
        if not all(map(math.isnan, history.val_loss)):
            axes.plot(epochs, history.val_loss, color=VAL, label=None if number else "validation", **style)
        positive = positive and all(value > 0 for value in [*history.train_loss, *history.val_loss] if value == value)
    if positive:
        axes.set_yscale("log")
        plain = require("matplotlib.ticker", "train").LogFormatter(labelOnlyBase=False, minor_thresholds=(2, 0.8))
        for axis_formatter in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
            axis_formatter(plain)
    axes.set_ylabel("loss")
    behind = axes.twinx()
    longest = max(results, key=lambda result: result.history.epochs).history.lr
    behind.plot(range(1, len(longest) + 1), longest, color=RATE, lw=1, ls=":", label="learning rate")
    behind.set_ylabel("learning rate", color=GREY)
    behind.tick_params(colors=GREY)
    behind.set_ylim(bottom=0)
    behind.spines[["top"]].set_visible(False)
    lines = [*axes.get_lines(), *behind.get_lines()]
    shown = [line for line in lines if not line.get_label().startswith("_")]
    axes.legend(shown, [line.get_label() for line in shown], frameon=False, fontsize=9)


def _metric(axes: Any, summary: Summary) -> None:
    """The validation metric; a run without validation has nothing to show."""
    axes.set_ylabel(f"validation {summary.metric}")
    for result in summary.results:
        history = result.history
        if all(map(math.isnan, history.val_metric)):
            text = "no validation set" if all(map(math.isnan, history.val_loss)) else f"{summary.metric} undefined"
            axes.text(0.5, 0.5, text, color=GREY, ha="center", transform=axes.transAxes)
            return
        name = f"seed {result.seed}" + (f", fold {result.fold}" if result.fold else "")
        marker = "o" if history.epochs < 3 else None
        (line,) = axes.plot(range(1, history.epochs + 1), history.val_metric, lw=1.5, label=name, marker=marker)
        axes.plot([result.best_epoch], [result.val], "o", color=line.get_color(), ms=6)
    axes.set_title("dots: the epoch whose weights are reported", fontsize=9, color=GREY, loc="left")
    if 1 < len(summary.results) <= 10:
        axes.legend(frameon=False, fontsize=9)
