"""Where the time of a model's training steps goes, with the settings of its preset.

    python benchmarks/steps.py zinc "A2^LN+VT" [--precision tf32] [--set recompute=true] [--steps 40] [--kernels 16]

Steps follow each other without being waited for, as in training. Printed are milliseconds a step (five rounds) and of a validation,
the most memory, and on a GPU, of five profiled steps, launches, the sum of their times, the time in which at least one runs, and the
kernels: time a step, launches a step, time a launch, and the time in which nothing else runs.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from dataclasses import replace

import torch

from tuplet.datasets import load
from tuplet.experiments.bench import in_batches
from tuplet.training.batches import Members
from tuplet.training.inputs import ready
from tuplet.training.loop import Loop, ready_loop
from tuplet.training.options import TrainOptions
from tuplet.training.parallel import make_fabric
from tuplet.training.presets import preset
from tuplet.training.runs import make_model
from tuplet.training.settings import split_settings

ROUNDS, PROFILED = 5, 5


def make_loop(options: argparse.Namespace) -> tuple[Loop, list[Members]]:
    """A training run that is ready for steps, and batches for them, one after another from the beginning."""
    chosen = TrainOptions.of({**preset(options.data, options.model), "model": options.model, "seeds": [0]})
    settings = {**chosen.model_options, **split_settings(options.set)[1]}
    chosen = replace(chosen, precision=options.precision or chosen.precision, model_options=settings)
    task = load(options.data)
    torch.manual_seed(0)
    model = make_model(task, chosen)
    task = ready(task, model)
    members = task.splits[0]["train"].tolist()
    return ready_loop(model, task, chosen, make_fabric(chosen)), in_batches(members, chosen.batch_size, options.steps)


def run(loop: Loop, batches: list[Members]) -> float:
    """Milliseconds a step."""
    gpu = loop.fabric.device.type == "cuda"
    begin = time.perf_counter()
    for batch in batches:
        loop.step([batch])
    if gpu:
        torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - begin) / len(batches)


def validate(loop: Loop) -> float:
    """Milliseconds of a validation, as there is one after every epoch."""
    loop.validation.score()
    begin = time.perf_counter()
    loop.validation.score()  # which waits for the end
    return 1e3 * (time.perf_counter() - begin)


def print_kernels(loop: Loop, batches: list[Members], most: int) -> None:
    """What a GPU does in these steps."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        run(loop, batches)
    events = [event for event in seen.events() if str(event.device_type).endswith("CUDA")]
    spans = [(event.time_range.start, event.time_range.end, event.name) for event in events]
    launches: dict[str, int] = defaultdict(int)
    total: dict[str, float] = defaultdict(float)
    alone: dict[str, float] = defaultdict(float)
    for begin, end, name in spans:
        launches[name] += 1
        total[name] += end - begin
    begins = [(begin, 1, place) for place, (begin, _, _) in enumerate(spans)]
    ends = [(end, 0, place) for place, (_, end, _) in enumerate(spans)]
    running: set[int] = set()
    busy, last = 0.0, 0.0
    for now, starts, place in sorted(begins + ends):
        busy += (now - last) * bool(running)
        if len(running) == 1:
            alone[spans[next(iter(running))][2]] += now - last
        (running.add if starts else running.discard)(place)
        last = now
    each = 1e3 * len(batches)  # microseconds of all steps to milliseconds of one
    whole = sum(total.values()) / each
    print(f"{len(spans) / len(batches):.0f} launches, sum {whole:.3f} ms, at least one runs {busy / each:.3f} ms")
    print(f"{'ms':>8} {'launches':>9} {'us each':>8} {'ms alone':>9}  kernel")
    for name in sorted(total, key=lambda name: -total[name])[:most]:
        count, took = launches[name], total[name]
        numbers = f"{took / each:8.3f} {count / len(batches):9.1f} {took / count:8.1f} {alone[name] / each:9.3f}"
        print(f"{numbers}  {name[:80]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="a data set with presets; counting means its default target")
    parser.add_argument("model")
    parser.add_argument("--precision", default=None, help="instead of the preset's")
    parser.add_argument("--set", action="append", default=[], metavar="OPTION=VALUE", help="options of the model")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--kernels", type=int, default=16, help="how many to print")
    options = parser.parse_args()
    loop, batches = make_loop(options)
    run(loop, batches)
    how = "recorded" if loop.recorder is not None else "step by step"
    print(f"{options.model} on {options.data} in {loop.options.precision}, {how}")
    print("ms a step:", *(f"{run(loop, batches):.3f}" for _ in range(ROUNDS)))
    print(f"ms a validation: {validate(loop):.1f}")
    if loop.fabric.device.type == "cuda":
        print(f"most memory: {torch.cuda.max_memory_allocated() / 1e9:.3f} GB")
        print_kernels(loop, batches[:PROFILED], options.kernels)


if __name__ == "__main__":
    main()
