"""How settings learn from a part of a data set: many variants in the time of one long run.

    python benchmarks/subset.py zinc "A2^LN+VT" --train 1000 --val 500 --epochs 60 --set depth=4 --set softmax=joint

Settings are the preset's but for what is said. Printed are the training loss of the last epoch, and the mean of the last three
validation metrics beside the best one, which of few graphs is luck. So is a part of every difference: try another ``--seed``.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import replace

import torch

from tuplet.datasets import load
from tuplet.training.inputs import ready
from tuplet.training.loop import fit
from tuplet.training.options import TrainOptions
from tuplet.training.presets import preset
from tuplet.training.runs import make_model
from tuplet.training.settings import split_settings

WARMUP, LAST = 5, 3
"""Epochs."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("model")
    parser.add_argument("--train", type=int, default=2000, help="graphs to learn from (%(default)s)")
    parser.add_argument("--val", type=int, default=1000, help="graphs of the validation part (%(default)s)")
    parser.add_argument("--epochs", type=int, default=120)
    parser.add_argument("--seed", type=int, default=0, help="of weights and the order of graphs (%(default)s)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as for tuplet train")
    options = parser.parse_args()
    chosen = TrainOptions.of({**preset(options.data, options.model), "model": options.model, "seeds": [options.seed]})
    training, model_options = split_settings(options.set)
    settings = {**chosen.model_options, **model_options}
    warmup = min(WARMUP, options.epochs)
    chosen = replace(chosen, epochs=options.epochs, warmup=warmup, model_options=settings, **training)
    torch.manual_seed(options.seed)
    task = load(options.data).limited(train=options.train, val=options.val)
    model = make_model(task, chosen)
    begin = time.perf_counter()
    history = fit(model, ready(task, model), chosen, seed=options.seed)
    last = statistics.fmean(history.val_metric[-LAST:])
    best = history.val_metric[history.best]
    print(
        f"{options.model} {' '.join(options.set)}, seed {options.seed}: training loss {history.train_loss[-1]:.3f}, validation {task.metric} {last:.3f} "
        f"(best {best:.3f}, epoch {history.best + 1}), {time.perf_counter() - begin:.0f} s"
    )


if __name__ == "__main__":
    main()
