"""How one attention grows with n: time and peak memory of every row of Table 1 on the device at hand, beside theory.

    python benchmarks/scaling.py [--device cuda] [--rows a2 a2-ln] [--slow SECONDS] [--results DIR] [--plot FILE.svg]

The jobs are those of ``tuplet reproduce complexity``, measured anew: sizes double until a call is slow or does not fit, and exponents
are fitted to the upper half. Results go to ``results/complexity``, a file a row and device. On a CPU it ends with one training step
of a one-layer A2^LN on n = 400 at degrees 3 and 30, in processes of their own, by resident memory.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
from pathlib import Path

import torch

import tuplet
from tuplet.cli.reproduce import comparison_text
from tuplet.experiments.growth_jobs import run_growth
from tuplet.experiments.jobs import select
from tuplet.experiments.measure import resident_bytes
from tuplet.experiments.outcomes import Places
from tuplet.experiments.plots import growth
from tuplet.experiments.render import report_on
from tuplet.experiments.scaling import random_graph
from tuplet.experiments.table import read_table


def resident_step(degree: int) -> float:
    """MB above the process's base that one training step of a one-layer A2^LN takes on n = 400."""
    model = tuplet.build("A2^LN", dim=64, depth=1, heads=4)
    model(random_graph(3)).sum().backward()
    base, _ = resident_bytes()
    model(random_graph(400, degree)).sum().backward()
    return (resident_bytes()[1] - base) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rows", nargs="+", default=[], help="as their files are called; all if not given")
    parser.add_argument("--slow", type=float, help="seconds of a call beyond which no larger size is tried")
    parser.add_argument("--results", default="results")
    parser.add_argument("--plot", help="an SVG file; results/complexity/DEVICE.svg if not given")
    parser.add_argument("--commit", help="commit to write into results (what the repository says)")
    parser.add_argument("--resident-step", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.resident_step:
        print(resident_step(options.resident_step))
        return
    places = Places(Path(options.results), commit=options.commit)
    for job in select(read_table("complexity"), options.rows, [options.device]):
        values = run_growth(job, places, math.inf, options.slow).values
        print(
            f"{job.row}: time ~ n^{values['time']:.2f}, memory ~ n^{values['memory']:.2f}, up to n = {values['n']}",
            flush=True,
        )
    (report,) = report_on(places.results, ["complexity"])
    print(f"\n{comparison_text(report)}")
    picture = growth(
        options.device.upper(), [outcome for outcome in report.outcomes if outcome.job.run == options.device]
    )
    path = Path(options.plot or places.results / "complexity" / f"{options.device}.svg")
    path.write_text(picture or "", encoding="utf-8")
    print(f"\npicture: {path}")
    if options.device == "cpu":
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
