"""Several processes: the same losses as one, BatchNorm over the whole batch, errors that arrive as sentences."""

import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from training_cases import options, paths_and_cycles, sizes

from tuplet.encodings.layers import MaskedBatchNorm
from tuplet.errors import InputError, OptionError, TooLargeError
from tuplet.training import RunError, load, parallel, train
from tuplet.training.norms import SharedBatchNorm, SharedMaskedBatchNorm, share_norms

TASK = sizes(14)
SETTING = options(
    epochs=3,
    batch_size=4,  # 8 graphs to learn from; the batches of evaluation leave one process without a share at the end
    precision="fp64",
    model="A2^LN+VT",
    model_options={"encodings": ["RWSE:3:4"]},
)


def test_two_processes_learn_what_one_learns(tmp_path):
    """BatchNorm over tokens and over raw statistics, missing targets, a last batch with one graph: to 1e-6 in float64."""
    members = TASK.splits[0]["train"]
    task = replace(TASK, splits=({**TASK.splits[0], "train": torch.cat([members, TASK.splits[0]["test"][:1]])},))
    assert len(task.splits[0]["train"]) % SETTING.batch_size == 1
    one = train(task, SETTING, tmp_path / "one", show=False)
    two = train(task, replace(SETTING, devices=2), tmp_path / "two", show=False)
    first, second = one.results[0].history, two.results[0].history
    assert second.train_loss == pytest.approx(first.train_loss, abs=1e-6)
    assert second.train_loss == pytest.approx(first.train_loss, abs=1e-11)
    assert second.val_metric == pytest.approx(first.val_metric, abs=1e-9)
    assert two.test[0] == pytest.approx(one.test[0], abs=1e-9)
    weights = [load(tmp_path / name).model.state_dict() for name in ("one", "two")]
    for name, value in weights[0].items():
        torch.testing.assert_close(weights[1][name], value, rtol=0, atol=1e-8, msg=name)


def fail(fabric, kind, *words):
    raise kind(*words)


@pytest.mark.parametrize(
    "kind, words",
    [(OptionError, ["lr: no"]), (InputError, ["y", "a", "b"]), (RunError, ["disk"]), (TooLargeError, ["big"])],
)
def test_an_error_is_told_from_process_to_process(tmp_path, kind, words):
    path = tmp_path / "error.json"
    with pytest.raises(kind) as there:
        parallel._child(None, pickle.dumps((fail, (kind, *words))), str(path))
    here = parallel._revive(path)
    assert type(here) is kind
    assert str(here) == str(there.value)


@pytest.mark.soak
def test_an_error_in_a_process_arrives_as_a_sentence(tmp_path):
    task = replace(TASK, splits=({"train": TASK.splits[0]["train"][:1]},))
    with pytest.raises(OptionError, match="devices: expected at most 1, the graphs to learn from; came 2"):
        train(task, replace(SETTING, devices=2), tmp_path, show=False)


def test_norms_keep_their_weights_and_names():
    model = nn.ModuleDict({"a": nn.BatchNorm1d(3), "b": MaskedBatchNorm(3), "c": nn.LayerNorm(3)})
    before = list(model.state_dict())
    shared = share_norms(model)
    assert [type(module) for module in shared] == [SharedBatchNorm, SharedMaskedBatchNorm]
    assert list(model.state_dict()) == before
    x = torch.randn(5, 3)
    model.eval()
    assert torch.equal(model["a"](x), nn.BatchNorm1d(3).eval()(x))
    assert torch.equal(model["b"](x), MaskedBatchNorm(3).eval()(x))


def test_a_norm_that_cannot_be_shared_is_refused():
    with pytest.raises(OptionError, match=r"devices: InstanceNorm1d \(0\) keeps statistics of its batch"):
        share_norms(nn.Sequential(nn.InstanceNorm1d(3)))


@pytest.mark.soak
def test_torchrun_learns_what_one_process_learns(tmp_path):
    """Processes that torchrun began, as on several machines."""
    program = tmp_path / "program.py"
    program.write_text(
        f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import torch
torch.set_num_threads(1)
from test_processes import SETTING, TASK
from tuplet.training import train
train(TASK, SETTING, {str(tmp_path / "two")!r}, show=False)
"""
    )
    one = train(TASK, SETTING, tmp_path / "one", show=False)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=29561", str(program)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=600, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr
    two = train(TASK, None, tmp_path / "two", resume=True, show=False)
    assert two.results[0].history.train_loss == pytest.approx(one.results[0].history.train_loss, abs=1e-9)


def test_graphs_a_task_and_a_fold_too_few():
    with pytest.raises(OptionError, match=r"folds: expected numbers 0\.\.0, the splits of rings; came 3"):
        train(paths_and_cycles(6), options(folds=(3,)), show=False)
