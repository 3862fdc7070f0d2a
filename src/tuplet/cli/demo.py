"""``tuplet demo``: what local attention sees and dense attention does not, on circular skip links (Table 2 of the paper).

Fold 0 of CSL, order 2, no positional encodings. The paper trains 200 epochs at width 64 with add pooling; here the width is
32, the pooling a mean (which learns in fewer steps), and the run ends when A2^LN knows every validation graph, so that two
CPU cores need a few minutes. A2 is stopped after two epochs: it attends 1681 x 1681 pairs a graph, and cannot improve.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from tuplet._extras import require
from tuplet.cli.table import align
from tuplet.datasets import csl, csl_folds
from tuplet.datasets.task import Task
from tuplet.errors import OptionError
from tuplet.models import build
from tuplet.training import History, TrainOptions, evaluate, fit, progress_bar

WIDTH = {"dim": 32, "depth": 3, "heads": 4, "pool": "mean", "outputs": 10}
BATCH = 10
RUNS = {
    "A2^LN": TrainOptions(
        "A2^LN", WIDTH, epochs=28, batch_size=BATCH, lr=1e-2, warmup=3, stop_at=1.0, accelerator="cpu"
    ),
    "A2": TrainOptions("A2", WIDTH, epochs=2, batch_size=BATCH, lr=1e-2, accelerator="cpu"),
}
PAPER = {"A2^LN": 100.00, "A2": 10.00}
WHY = """\
A2 stays at 10 % whatever its weights are (Theorem 3.2): tuples that look alike at first get the same update in every
layer, so its colour histogram is never finer than the first one. All CSL graphs have 41 diagonal pairs, 164 edges and
1476 non-edges, hence one histogram and one output for all ten classes. A2^LN looks along the edges and sees the skips."""


@dataclass(frozen=True)
class Result:
    """One trained model.

    Args:
        name: of the model.
        test_accuracy, paper: in percent.
        spread: largest difference between any two test graphs in any output, in float32 ...
        exact_spread: ... and in float64, with the same weights: what is left of it is rounding.
        history: of the training.
        outputs: (30, 10) logits of the test graphs.
    """

    name: str
    test_accuracy: float
    paper: float
    spread: float
    exact_spread: float
    history: History
    outputs: Tensor

    @property
    def seconds(self) -> float:
        return sum(self.history.seconds)


def demo(out: str, seed: int = 0) -> int:
    """Train both models, print a table, write ``csl.png`` and ``summary.json``; 0 if both agree with the paper."""
    require("matplotlib", "train")
    from tuplet.cli.picture import draw

    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"--out: cannot make the folder {out!r}: {error.strerror}") from error

    task = _task(seed)
    labels = torch.cat([graph.y for graph in task.part("test")])
    train, val, test = (len(task.part(part)) for part in ("train", "val", "test"))
    print(f"CSL, fold 0: {train} graphs to train on, {val} to validate, {test} to test, ten classes")

    with _one_thread():
        results = [_run(name, task, seed) for name in RUNS]

    print(f"\n{_table(results)}\n\n{WHY}\n")
    picture, summary = folder / "csl.png", folder / "summary.json"
    draw(picture, results, labels)
    summary.write_text(json.dumps(_summary(results, seed), indent=2) + "\n")
    print(f"picture: {picture}\nsummary: {summary}")
    return 0 if all(round(result.test_accuracy, 2) == result.paper for result in results) else 1


def _task(seed: int) -> Task:
    """Fold 0 of CSL."""
    fold = csl_folds(seed)[0]
    split = {part: torch.tensor(getattr(fold, part)) for part in ("train", "val", "test")}
    return Task("CSL", csl(seed), (split,), "graph", "classification", 10, "cross_entropy", "accuracy")


def _run(name: str, task: Task, seed: int) -> Result:
    """Train one model and look at what it says of the test graphs."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = build(name, **WIDTH)
    with progress_bar(name.ljust(5)) as report:
        history = fit(model, task, RUNS[name], seed=seed, report=report)
    score = evaluate(model, task, batch_size=BATCH)
    exact = evaluate(model.double(), task, batch_size=BATCH)
    spreads = _spread(score.outputs), _spread(exact.outputs)
    return Result(name, 100 * score.metric, PAPER[name], *spreads, history, score.outputs)


@contextmanager
def _one_thread() -> Iterator[None]:
    """The same sums in the same order on every machine; the tensors are too small for more threads to pay."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _spread(outputs: Tensor) -> float:
    return (outputs.amax(0) - outputs.amin(0)).max().item()


def _table(results: list[Result]) -> str:
    header = ("model", "test accuracy", "paper, Table 2", "epochs", "seconds to train")
    rows = [
        (
            result.name,
            f"{result.test_accuracy:.2f} %",
            f"{result.paper:.2f} %",
            str(len(result.history.seconds)),
            f"{result.seconds:.0f}",
        )
        for result in results
    ]
    return align(header, rows, right=range(1, 5))


def _summary(results: list[Result], seed: int) -> dict[str, object]:
    return {
        "data": "CSL, fold 0",
        "seed": seed,
        "model": WIDTH,
        "results": [
            {
                "name": result.name,
                "test_accuracy": round(result.test_accuracy, 4),
                "paper": result.paper,
                "output_spread": {"float32": result.spread, "float64": result.exact_spread},
                "seconds": round(result.seconds, 1),
                "options": RUNS[result.name].plain(),
                "history": result.history.plain(),
            }
            for result in results
        ],
    }
