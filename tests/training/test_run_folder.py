"""What a training leaves behind: options, tables, pictures, summary, model; and that it does so without the optional parts."""

import csv
import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml
from training_cases import TASKS, options, paths_and_cycles, sizes

from tuplet.errors import MissingExtraError, OptionError
from tuplet.training import TrainOptions, load, train
from tuplet.training.inputs import fingerprint
from tuplet.training.summary import git_state, spread


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    task = paths_and_cycles(8, folds=2)
    return folder, task, train(task, options(epochs=4, seeds="0-1", tensorboard=True), folder, show=False)


def test_the_folder_holds_what_the_readme_says(run):
    folder, _, summary = run
    assert {path.name for path in folder.iterdir()} == {
        ".lock", "config.yaml", "metrics.csv", "curves.png", "summary.json", "model", "runs",
    }  # fmt: skip
    assert sorted(path.name for path in (folder / "runs").iterdir()) == [
        f"seed-{seed}-fold-{fold}" for seed in (0, 1) for fold in (0, 1)
    ]
    assert sorted(path.name for path in (folder / "model").iterdir()) == ["config.json", "weights.safetensors"]
    assert summary.folder == str(folder)


def test_the_config_is_complete(run):
    folder, _, _ = run
    written = yaml.safe_load((folder / "config.yaml").read_text())
    assert written.keys() == TrainOptions().plain().keys()
    assert written["seeds"] == [0, 1]


def test_the_summary_agrees_with_its_runs(run):
    folder, _, summary = run
    told = json.loads((folder / "summary.json").read_text())
    tests = [result.test for result in summary.results]
    mean = sum(tests) / 4
    assert told["test"] == pytest.approx(mean)
    assert told["test_std"] == pytest.approx(math.sqrt(sum((x - mean) ** 2 for x in tests) / 3))
    assert [(row["seed"], row["fold"]) for row in told["runs"]] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert told["parameters"] == sum(parameter.numel() for parameter in load(folder).model.parameters())
    assert told["peak_memory_bytes"] > 1e7
    assert told["seconds"] == pytest.approx(sum(result.seconds for result in summary.results), abs=1e-3)
    assert told["seconds_per_epoch"] == pytest.approx(told["seconds"] / 16, abs=1e-3)
    assert told["versions"]["torch"] == torch.__version__
    assert told["git"] is None or len(told["git"]["commit"]) == 40
    assert "±" in str(summary)


def test_the_table_has_a_row_an_epoch(run):
    folder, _, summary = run
    with open(folder / "metrics.csv") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4 * 4
    first = summary.results[0].history
    assert [float(row["train_loss"]) for row in rows[:4]] == first.train_loss
    assert [float(row["val_metric"]) for row in rows[:4]] == first.val_metric
    assert [row["epoch"] for row in rows[:4]] == ["1", "2", "3", "4"]


def test_tensorboard_can_read_the_events(run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder, _, summary = run
    events = EventAccumulator(str(folder / "runs" / "seed-1-fold-1" / "events"))
    events.Reload()
    told = [event.value for event in events.Scalars("train/loss")]
    assert told == pytest.approx(summary.results[3].history.train_loss, rel=1e-6)


def test_the_picture_is_one(run):
    folder, _, _ = run
    content = (folder / "curves.png").read_bytes()
    assert content.startswith(b"\x89PNG")
    assert len(content) > 20_000


def test_the_model_is_that_of_the_best_run(run):
    folder, task, summary = run
    trained = load(folder)
    best = summary.best
    assert best.val == max(result.val for result in summary.results)
    assert (trained.config["seed"], trained.config["fold"]) == (best.seed, best.fold)
    assert trained.evaluate(task, "val")["accuracy"] == best.val
    assert trained.evaluate(task)["accuracy"] == best.test


@pytest.mark.parametrize("name", TASKS)
def test_end_to_end(tmp_path, name):
    """Train, save, load, and the same numbers as in training: every level and kind of task."""
    task = TASKS[name]()
    summary = train(task, options(epochs=2, model_options={"encodings": ["RWSE:3:4"]}), tmp_path, show=False)
    trained = load(tmp_path)
    for part, expected in (("val", summary.results[0].val), ("test", summary.results[0].test)):
        told = trained.evaluate(task, part, batch_size=3)
        assert told[task.metric] == pytest.approx(expected, abs=1e-6)


def test_a_training_without_a_folder_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    summary = train(paths_and_cycles(6), options(), show=False)
    assert summary.folder is None
    assert not list(tmp_path.iterdir())


def test_simplices_samples_and_baselines_train(tmp_path):
    for number, (name, more) in enumerate(
        (
            ("AS0:1^SN", {}),
            ("A2(connected)", {}),
            ("A3(random:20)", {}),
            ("GPS", {"degree": ...}),
            ("PNA", {"degree": ...}),
        )
    ):
        task = sizes(12)
        setting = options(model=name, epochs=1)
        own = {key: value for key, value in setting.model_options.items() if key not in more}
        train(task, replace(setting, model_options=own), tmp_path / str(number), show=False)
        assert load(tmp_path / str(number)).evaluate(task)["mae"] > 0


def test_many_graphs_are_prepared_through_the_cache(tmp_path, monkeypatch):
    from tuplet.training import inputs

    monkeypatch.setenv("TUPLET_CACHE", str(tmp_path / "cache"))
    task, setting = sizes(12), options(epochs=2, model_options={"encodings": ["RWSE:3:4"]})
    direct = train(task, setting, show=False)
    monkeypatch.setattr(inputs, "FEW", 5)
    assert train(task, setting, show=False).results[0].history.train_loss == direct.results[0].history.train_loss
    assert list((tmp_path / "cache" / "prepared").iterdir())
    train(task, setting, tmp_path / "run", show=False, root=tmp_path / "elsewhere")
    (kept,) = (tmp_path / "elsewhere" / "prepared").iterdir()
    assert kept.is_dir()
    load(tmp_path / "run").evaluate(task, "train", root=tmp_path / "third")
    assert list((tmp_path / "third" / "prepared").iterdir())


def test_only_the_graphs_that_are_used_are_prepared():
    from tuplet.training.inputs import narrowed

    task = paths_and_cycles(folds=2)
    assert narrowed(task, [0, 1]) is task
    some = narrowed(task.limited(3, 2, 2), [1])
    assert len(some.graphs) == 7
    assert some.splits[0] == {}
    for part in ("train", "val", "test"):
        wanted = [graph.edge_index for graph in task.limited(3, 2, 2).part(part, 1)]
        assert all(map(torch.equal, wanted, [graph.edge_index for graph in some.part(part, 1)]))


def test_mean_and_deviation_leave_out_what_is_no_number():
    assert spread([1.0, 3.0, math.nan]) == (2.0, pytest.approx(math.sqrt(2)))
    assert math.isnan(spread([1.0])[1])
    assert all(map(math.isnan, spread([])))


def test_training_runs_without_the_optional_packages(tmp_path):
    """rich, rdkit, gudhi, jsonargparse, tensorboard and scikit-learn out of reach: plain lines, and a warning."""
    program = f"""
import sys
for name in ("rich", "rdkit", "gudhi", "jsonargparse", "tensorboard", "sklearn"):
    sys.modules[name] = None
sys.path.insert(0, {str(Path(__file__).parent)!r})
import torch
torch.set_num_threads(1)
from training_cases import options, paths_and_cycles
from tuplet.training import GraphRegressor, train, load
GraphRegressor(epochs=1).get_params()
train(paths_and_cycles(6), options(tensorboard=True), {str(tmp_path / "run")!r})
print(load({str(tmp_path / "run")!r}).evaluate(paths_and_cycles(6)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "A2^LN on rings: epoch 3 of 3, loss" in done.stdout
    assert "no logs for TensorBoard" in done.stderr
    assert (tmp_path / "run" / "summary.json").exists()
    assert (tmp_path / "run" / "curves.png").exists()


def test_without_matplotlib_only_the_picture_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.warns(UserWarning, match=r"curves.png is left out: matplotlib.figure is not installed"):
        train(paths_and_cycles(6), options(), tmp_path, show=False)
    assert (tmp_path / "summary.json").exists()
    assert not (tmp_path / "curves.png").exists()


def test_without_fabric_a_sentence_says_what_to_install(monkeypatch):
    for name in ("lightning", "lightning.fabric", "lightning_fabric"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(
        MissingExtraError, match=r"lightning_fabric is not installed; it comes with the extra \[train\]"
    ):
        train(paths_and_cycles(6), options(), show=False)


def test_a_training_that_cannot_begin_leaves_the_folder_free(tmp_path):
    with pytest.raises(OptionError, match="width: no such option"):
        train(paths_and_cycles(6), options(model_options={"width": 3}), tmp_path, show=False)
    with pytest.raises(OptionError, match="lr: expected a loss that stays finite"):
        train(paths_and_cycles(6), options(lr=1e30, clip=None), tmp_path, show=False)
    with pytest.raises(OptionError, match="lr: expected a loss that stays finite"):
        train(paths_and_cycles(6), options(lr=1e32, clip=None), tmp_path, resume=True, show=False)
    told = {"dataset": "rings", "largest": 6}
    train(paths_and_cycles(6), options(), tmp_path, show=False, source=told)
    assert load(tmp_path).config["source"] == told


def test_a_repository_is_changed_when_its_files_are(tmp_path):
    """New files do not count, since a run leaves some: what follows it would look changed."""

    def git(*words):
        author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *author, *words], cwd=tmp_path, check=True, capture_output=True)

    (tmp_path / "model.py").write_text("one")
    for words in (["init"], ["add", "model.py"], ["commit", "-m", "first"]):
        git(*words)
    (tmp_path / "result.json").write_text("{}")
    before = git_state(tmp_path)
    (tmp_path / "model.py").write_text("two")
    after = git_state(tmp_path)
    assert len(before["commit"]) == 40
    assert (before["changed"], after["changed"]) == (False, True)
    assert before["commit"] == after["commit"]


def test_a_fingerprint_does_not_depend_on_rounding():
    """Means are sums, whose last digits depend on the number of threads."""
    task = sizes()
    rounded = replace(task, mean=tuple(value * (1 + 1e-15) for value in task.mean))
    assert rounded.mean != task.mean
    assert fingerprint(rounded) == fingerprint(task)
    for other in (replace(task, mean=None, std=None), replace(task, std=(1.0, 1.0)), sizes(23)):
        assert fingerprint(other) != fingerprint(task)
