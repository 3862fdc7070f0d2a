"""Real data on a CPU: a small model beats the constant on ZINC, Texas trains with the preset, CSL is told apart entirely."""

import os
from pathlib import Path

import pytest
import torch

from tuplet.datasets import load
from tuplet.training import resolve, train

DATA = Path(os.environ.get("TUPLET_DATA") or Path(__file__).parents[3] / "shared" / "data")
needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason=f"no packed data sets in {DATA}; TUPLET_DATA names the folder"
)


@needs_data
def test_a_small_model_on_500_molecules_of_zinc_beats_the_constant(tmp_path):
    task = load("zinc", data=DATA).limited(500, 200, 200)
    words = ["epochs=10", "warmup=2", "dim=32", "depth=2", "pool=mean", "seeds=0", "lr=3e-3", "accelerator=cpu"]
    summary = train(task, resolve("zinc", given={"model": "AS0:1^SN"}, settings=words), tmp_path, show=False)
    train_y, test_y = (torch.cat([graph.y for graph in task.part(part)]) for part in ("train", "test"))
    constant = float((test_y - train_y.median()).abs().mean())
    assert summary.test[0] < 0.7 * constant


@needs_data
def test_the_preset_of_texas_trains(tmp_path):
    task = load("webkb-texas", data=DATA)
    words = ["epochs=25", "warmup=3", "folds=0", "lr=2e-3", "accelerator=cpu"]
    summary = train(task, resolve("webkb-texas", settings=words), tmp_path, show=False)
    y = task.graphs[0].y
    split = task.splits[0]
    constant = float((y[split["train"]] == y[split["train"]].mode().values).float().mean())
    history = summary.results[0].history
    assert history.train_loss[-1] < 0.8 * history.train_loss[0]
    assert summary.val[0] > constant - 0.05


@needs_data
def test_bonds_of_zinc_are_told_from_other_pairs(tmp_path):
    task = load("edge-detection", data=DATA).limited(150, 50, 50)
    words = ["epochs=3", "warmup=1", "dim=16", "depth=2", "seeds=0", "lr=3e-3", "batch_size=16", "accelerator=cpu"]
    options = resolve("edge-detection", given={"model": "A2^LN"}, settings=words)
    assert train(task, options, tmp_path, show=False).test[0] > 0.7  # half of the pairs are bonds


@pytest.mark.soak
def test_circular_skip_links_are_told_apart(tmp_path):
    """One of the five folds, mean pooling, a tenth of the preset's epochs."""
    words = [
        "epochs=28",
        "warmup=3",
        "batch_size=10",
        "lr=1e-2",
        "dim=32",
        "pool=mean",
        "folds=0",
        "stop_at=1",
        "accelerator=cpu",
    ]
    assert (
        train(load("csl"), resolve("csl", given={"model": "A2^LN"}, settings=words), tmp_path, show=False).test[0]
        == 1.0
    )
