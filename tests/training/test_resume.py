"""A run that is stopped, in whatever way, and continued ends where the uninterrupted run ends, bit by bit."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from training_cases import one_sided, options, paths_and_cycles, sizes

from tuplet.errors import OptionError
from tuplet.training import RunError, load, read_options, train
from tuplet.training.checkpoint import Checkpoints
from tuplet.training.keeper import FolderKeeper
from tuplet.training.loop import Loop

HERE = Path(__file__).parent


def runs(folder):
    return sorted((folder / "runs").iterdir())


def assert_same_run(one, two):
    """Weights, best weights, optimiser, random numbers, schedule, history and results; times may differ."""
    assert len(runs(one)) == len(runs(two)) > 0
    for first, second in zip(runs(one), runs(two), strict=True):
        (a, about_a), (b, about_b) = (Checkpoints(run / "checkpoints").load() for run in (first, second))
        assert a.keys() == b.keys()
        assert any(name.startswith("random/") for name in a)
        assert any(name.startswith("optimiser/") for name in a)
        for name in a:
            assert torch.equal(a[name], b[name]), name
        for facts in (about_a, about_b):
            facts.pop("spent")
            for times in ("seconds", "train_seconds"):
                facts["history"].pop(times)
        assert about_a == about_b
        assert (first / "model" / "weights.safetensors").read_bytes() == (
            second / "model" / "weights.safetensors"
        ).read_bytes()
    tables = []
    for folder in (one, two):
        lines = (folder / "metrics.csv").read_text().splitlines()
        tables.append([line.rsplit(",", 1)[0] for line in lines])  # without the seconds
    assert tables[0] == tables[1]
    summaries = [json.loads((folder / "summary.json").read_text()) for folder in (one, two)]
    assert summaries[0]["test"] == summaries[1]["test"]
    assert (one / "model" / "weights.safetensors").read_bytes() == (two / "model" / "weights.safetensors").read_bytes()


def killed(folder, kills, seed):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE)}
    command = [sys.executable, str(HERE / "kill_runs.py"), str(folder), str(kills), str(seed)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["code"] == 0, done.stderr
    return told


def test_a_run_killed_a_few_times_ends_bit_identical(tmp_path):
    told = killed(tmp_path, kills=4, seed=0)
    assert told["killed"] == 4
    assert len(set(told["seen"])) >= 2  # at different places
    assert_same_run(tmp_path / "whole", tmp_path / "killed")


@pytest.mark.soak
def test_a_run_killed_twenty_times_ends_bit_identical(tmp_path):
    kills = int(os.environ.get("TUPLET_KILLS", "20"))
    told = killed(tmp_path, kills, seed=1)
    assert told["killed"] >= kills // 2
    assert len(set(told["seen"])) >= kills // 4
    assert_same_run(tmp_path / "whole", tmp_path / "killed")


class Ended(Exception):
    """What a signal does in the tests below."""


@pytest.fixture(params=[signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def end(request):
    """The signal, which the run leaves as it was."""

    def handler(*_):
        raise Ended

    before = signal.signal(request.param, handler)
    yield request.param
    assert signal.getsignal(request.param) is handler
    signal.signal(request.param, before)


@pytest.mark.parametrize("moment", [1, 2, 6])
def test_a_run_that_is_told_to_end_saves_first(tmp_path, monkeypatch, end, moment):
    """The step under way is finished and kept, in the middle of an epoch or at its end; and the run goes on from there."""
    setting, real, steps = options(epochs=3, checkpoint_seconds=1e9), Loop.step, 0
    train(sizes(12), setting, tmp_path / "whole", show=False)

    def step(self, batches):
        nonlocal steps
        steps += 1
        if steps == moment:
            signal.raise_signal(end)
        return real(self, batches)

    monkeypatch.setattr(Loop, "step", step)
    with pytest.raises(Ended):
        train(sizes(12), setting, tmp_path / "told", show=False)
    assert steps == moment
    (run,) = runs(tmp_path / "told")
    assert len(Checkpoints(run / "checkpoints").numbers()) == 1
    train(sizes(12), setting, tmp_path / "told", resume=True, show=False)
    monkeypatch.undo()
    assert_same_run(tmp_path / "whole", tmp_path / "told")


def test_a_run_that_is_told_twice_ends_at_once(tmp_path, monkeypatch, end):
    def step(self, batches):
        signal.raise_signal(end)
        signal.raise_signal(end)
        raise AssertionError("the second one was to be obeyed at once")

    monkeypatch.setattr(Loop, "step", step)
    with pytest.raises(Ended):
        train(sizes(12), options(epochs=3, checkpoint_seconds=1e9), tmp_path / "told", show=False)
    (run,) = runs(tmp_path / "told")
    assert Checkpoints(run / "checkpoints").numbers() == []


def test_a_run_that_need_not_listen_saves_once_and_goes_on(tmp_path, monkeypatch):
    """Where the signal is ignored, as some launchers have it."""
    before, steps, saves = signal.signal(signal.SIGTERM, signal.SIG_IGN), [], []
    real_step, real_save = Loop.step, FolderKeeper.save

    def step(self, batches):
        steps.append(batches)
        if len(steps) == 1:
            signal.raise_signal(signal.SIGTERM)
        return real_step(self, batches)

    monkeypatch.setattr(Loop, "step", step)
    monkeypatch.setattr(FolderKeeper, "save", lambda *given: (saves.append(given), real_save(*given)))
    try:
        train(sizes(12), options(epochs=3, checkpoint_seconds=1e9), tmp_path / "told", show=False)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)
    assert len(saves) == 2  # when it was told, and at the end


@pytest.mark.parametrize("schedule", ["cosine", "plateau"])
@pytest.mark.parametrize("task", [paths_and_cycles(6), one_sided(count=24)], ids=["accuracy", "undefined"])
@pytest.mark.filterwarnings("ignore:the rocauc of the validation part")
def test_an_error_at_every_step_is_survived(tmp_path, monkeypatch, task, schedule):
    """Stopped after each save in turn, in the middle of an epoch or at its end; each time it goes on one step."""
    changes = {
        "schedule": schedule,
        "plateau_patience": 1,
        "settle_norms": 2,
        "average": 2,
        "model_options": {"dropout": 0.3, "norm": "batch"},
    }
    setting = options(epochs=3, checkpoint_seconds=0, **changes)
    train(task, setting, tmp_path / "whole", show=False)
    real = FolderKeeper.save

    class Stop(Exception):
        pass

    def save_and_stop(self, state, fabric):
        real(self, state, fabric)
        raise Stop

    stops = 0
    monkeypatch.setattr(FolderKeeper, "save", save_and_stop)
    while True:
        try:
            train(task, setting, tmp_path / "stopped", resume=True, show=False)
            break
        except Stop:
            stops += 1
    assert stops == 3 * 1 + 3 * (-(-len(task.splits[0]["train"]) // 4) - 1)
    monkeypatch.undo()
    assert_same_run(tmp_path / "whole", tmp_path / "stopped")


def test_a_run_that_has_ended_is_not_run_again(tmp_path, monkeypatch):
    task, setting = paths_and_cycles(6), options(seeds=(0, 1))
    before = train(task, setting, tmp_path, show=False)
    monkeypatch.setattr("tuplet.training.runs.fit", None)
    after = train(task, setting, tmp_path, resume=True, show=False)
    assert after.results == before.results


def test_only_the_missing_seed_is_run(tmp_path):
    task = paths_and_cycles(6)
    train(task, options(seeds=(3, 4)), tmp_path / "both", show=False)
    train(task, options(seeds=(3, 4)), tmp_path / "part", show=False)
    for path in sorted((tmp_path / "part" / "runs" / "seed-4-fold-0").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    train(task, options(seeds=(3, 4)), tmp_path / "part", resume=True, show=False)
    assert_same_run(tmp_path / "both", tmp_path / "part")


def test_a_damaged_last_checkpoint_costs_a_step_and_nothing_else(tmp_path):
    task, setting = sizes(), options(checkpoint_seconds=0, model_options={"dropout": 0.3})
    for name in ("whole", "hurt"):
        train(task, setting, tmp_path / name, show=False)
    (run,) = runs(tmp_path / "hurt")
    (run / "result.json").unlink()
    newest = max((run / "checkpoints").glob("*.safetensors"))
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(bytes(content))
    with pytest.warns(UserWarning, match="a checkpoint is damaged"):
        train(task, setting, tmp_path / "hurt", resume=True, show=False)
    assert_same_run(tmp_path / "whole", tmp_path / "hurt")


@pytest.mark.parametrize("name", ["result.json", "model/config.json", "model/weights.safetensors"])
def test_a_damaged_result_is_made_again(tmp_path, name):
    task, setting = paths_and_cycles(6), options()
    for folder in ("whole", "hurt"):
        train(task, setting, tmp_path / folder, show=False)
    (run,) = runs(tmp_path / "hurt")
    (run / name).write_bytes((run / name).read_bytes()[:-9])
    with pytest.warns(UserWarning, match="a result is damaged and made again from the last checkpoint"):
        train(task, setting, tmp_path / "hurt", resume=True, show=False)
    assert_same_run(tmp_path / "whole", tmp_path / "hurt")


def test_options_come_from_the_folder_and_must_not_change(tmp_path):
    task, setting = paths_and_cycles(6), options()
    train(task, setting, tmp_path, show=False)
    assert read_options(tmp_path) == setting
    assert train(task, None, tmp_path, resume=True, show=False).results
    assert train(task, replace(setting, keep=5, checkpoint_seconds=1.0), tmp_path, resume=True, show=False).results
    with pytest.raises(OptionError, match=r"lr: expected 0.01, as the run in .* began; came 0.5"):
        train(task, replace(setting, lr=0.5), tmp_path, resume=True, show=False)
    with pytest.raises(OptionError, match=r"out: .* holds a run already; resume it"):
        train(task, setting, tmp_path, show=False)
    with pytest.raises(RunError, match="expected a run on the same data"):
        train(paths_and_cycles(7), setting, tmp_path, resume=True, show=False)


def test_a_checkpoint_of_other_data_is_refused(tmp_path):
    setting = options()
    train(paths_and_cycles(6), setting, tmp_path, show=False)
    (run,) = runs(tmp_path)
    (run / "result.json").unlink()
    with pytest.raises(RunError, match="checkpoint: expected one of the same data"):
        train(paths_and_cycles(7), setting, tmp_path, resume=True, show=False)


def test_two_runs_do_not_share_a_folder(tmp_path):
    from tuplet.training.files import locked

    with locked(tmp_path), pytest.raises(RunError, match="another process is training in"):
        train(paths_and_cycles(6), options(), tmp_path, show=False)
    assert load_or_none(tmp_path) is None


def load_or_none(folder):
    try:
        return load(folder)
    except RunError:
        return None
