"""``tuplet bench``: how fast training steps are here."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch

from tuplet.cli.table import align
from tuplet.datasets import load
from tuplet.errors import TooLargeError
from tuplet.experiments.bench import MODELS, YARDSTICK, Measured, bench
from tuplet.experiments.molecules import molecules
from tuplet.models.catalogue import CATALOGUE
from tuplet.training.inputs import narrowed
from tuplet.training.summary import device_name

GRAPHS = 320
"""Graphs that steps are measured on."""
YARDSTICKS = ["yardstick"] * YARDSTICK.is_file()
"""What is there only in a checkout."""


def every_model() -> list[str]:
    """Every kind of model there is, and what they are compared with."""
    return [*(kind.name for kind in CATALOGUE), "GPS", *YARDSTICKS]


def run_bench(
    models: Sequence[str], data: str | None, steps: int, precision: str | None, depth: int | None, as_json: bool
) -> int:
    """Print a table, or JSON, with a row a model."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    task = molecules(GRAPHS)
    if data is not None:
        task = narrowed(load("zinc", data=data).limited(train=GRAPHS, val=1, test=1), [0])
    rows, refused = [], {}
    for name in dict.fromkeys(models or [*MODELS, *YARDSTICKS]):
        try:
            (measured,) = bench(task, [name], steps=steps, precision=precision, depth=depth)
        except TooLargeError as error:
            refused[name] = str(error)
            continue
        rows.append(measured)
        if not as_json:
            print(f"{name}: {measured.milliseconds:.1f} ms a step", flush=True)
    if not rows:
        raise TooLargeError("; ".join(refused.values()))
    place = f"{device_name(device)}, torch {torch.__version__}, {torch.get_num_threads()} threads"
    if as_json:
        found = [_finite({**asdict(row), "ratio": row.ratio, "over_floor": row.over_floor}) for row in rows]
        print(json.dumps({"device": place, "graphs": task.name, "rows": found, "refused": refused}, indent=2))
        return 0
    print(
        f"\n{_table(rows)}\n\n{task.name}, batches of 32, {place}. MB: most memory of the device, or on a CPU of the process."
    )
    print(
        '"over products" is the time of a step over that of its linear maps\' matrix products alone; "floor" what arithmetic or memory'
    )
    print("would take at the rates of a large product and of a copy here, whichever is slower.")
    for name, why in refused.items():
        print(f"{name} is left out: {why}")
    return 0


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    """The same with null where a number is not known: JSON has no NaN."""
    return {key: None if isinstance(value, float) and math.isnan(value) else value for key, value in row.items()}


def _floors(row: Measured) -> list[tuple[float, str]]:
    """Numbers about the floor and how to print them."""
    return [(row.flops / 1e9, ".1f"), (row.traffic / 1e6, ".0f"), (row.floor, ".3f"), (row.over_floor, ".1f")]


def _table(rows: Sequence[Measured]) -> str:
    header = [
        "model",
        "precision",
        "ms/step",
        "batching, ms",
        "graphs/s",
        "MB",
        "parameters",
        "products, ms",
        "over products",
        "GFLOP",
        "least MB moved",
        "floor, ms",
        "over floor",
        "launches",
        "recorded",
    ]
    cells = [
        [
            row.model,
            row.precision,
            f"{row.milliseconds:.1f}",
            "" if math.isnan(row.batching) else f"{row.batching:.1f}",
            f"{row.graphs:,.0f}",
            f"{row.megabytes:,.0f}",
            f"{row.parameters:,}",
            f"{row.products:.1f}",
            f"{row.ratio:.2f}",
            *(f"{number:{form}}" if not math.isnan(number) else "" for number, form in _floors(row)),
            str(row.launches or ""),
            "yes" if row.recorded else "no",
        ]
        for row in rows
    ]
    return align(header, cells, right=range(2, 13))
