"""How settings learn from a part of a data set: many variants in the time of one long run.

    python benchmarks/subset.py zinc "A2^LN+VT" --train 1000 --val 500 --epochs 60 --set depth=4 --set softmax=joint --seeds 0-2

Settings are the preset's but for what is said. Printed are the training loss of the last epoch, and the mean of the last three
validation metrics beside the best one, which of few graphs is luck. So is a part of every difference, hence several seeds. For
regression of graphs there is also what a few of them cannot move: the median error of the weights that are kept, and the part
of all errors that the worst graphs have.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import replace

import torch
from torch import nn

from tuplet.datasets import Task, load
from tuplet.training import evaluate
from tuplet.training.inputs import ready
from tuplet.training.loop import fit
from tuplet.training.objective import Objective
from tuplet.training.options import TrainOptions
from tuplet.training.presets import preset
from tuplet.training.runs import make_model
from tuplet.training.settings import split_settings

WARMUP, LAST = 5, 3
"""Epochs."""
WORST = 50
"""One graph in so many is called one of the worst."""


def spread(model: nn.Module, task: Task) -> str:
    """How the errors on the validation part are spread over its graphs."""
    objective, outputs = Objective(task), evaluate(model, task, "val").outputs
    rows = objective.rows(task.splits[0]["val"].tolist())
    errors = sorted(objective.metric(outputs[i : i + 1], rows[i : i + 1]) for i in range(len(rows)))
    worst = sum(errors[-max(1, len(errors) // WORST) :]) / sum(errors)
    return f"median {statistics.median(errors):.3f}, {worst:.0%} of all errors by one graph in {WORST}, "


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("model")
    parser.add_argument("--train", type=int, default=2000, help="graphs to learn from (%(default)s)")
    parser.add_argument("--val", type=int, default=1000, help="graphs of the validation part (%(default)s)")
    parser.add_argument("--epochs", type=int, default=120)
    parser.add_argument("--seeds", default="0", help="of weights and the order of graphs: 0-2 or 0,2 (%(default)s)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as for tuplet train")
    options = parser.parse_args()
    values = {**preset(options.data, options.model), "model": options.model, "seeds": options.seeds}
    chosen = TrainOptions.of(values)
    training, model_options = split_settings(options.set)
    settings = {**chosen.model_options, **model_options}
    warmup = min(WARMUP, options.epochs)
    chosen = replace(chosen, epochs=options.epochs, warmup=warmup, model_options=settings, **training)
    task = load(options.data).limited(train=options.train, val=options.val)
    for seed in chosen.seeds:
        torch.manual_seed(seed)
        model = make_model(task, chosen)
        begin = time.perf_counter()
        history = fit(model, ready(task, model), chosen, seed=seed)
        seconds = time.perf_counter() - begin
        last, best = statistics.fmean(history.val_metric[-LAST:]), history.val_metric[history.best]
        spread_out = spread(model, ready(task, model)) if (task.kind, task.level) == ("regression", "graph") else ""
        print(
            f"{options.model} {' '.join(options.set)}, seed {seed}: training loss {history.train_loss[-1]:.3f}, validation "
            f"{task.metric} {last:.3f} (best {best:.3f}, epoch {history.best + 1}), {spread_out}{seconds:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
