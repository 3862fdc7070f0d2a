"""Running jobs on generated graphs: resumed bit by bit, within a budget, skipping what is done, and past failures."""

import json
import math
import sys
import time
from dataclasses import replace
from pathlib import Path
from shutil import rmtree

import dying
import pytest
import torch

from tuplet.cli import main
from tuplet.errors import OptionError
from tuplet.experiments import outcomes, training_jobs
from tuplet.experiments import run as module
from tuplet.experiments.comparison import commits_of, device_of
from tuplet.experiments.jobs import Job
from tuplet.experiments.outcomes import POINTS, Outcome, Places, is_done, read_all, read_file, read_outcome, thinned
from tuplet.experiments.run import Failure, perform, run_jobs
from tuplet.experiments.table import TABLES
from tuplet.experiments.training_jobs import run_training
from tuplet.training.checkpoint import Checkpoints
from tuplet.training.files import locked, make_folder
from tuplet.training.runs import CHECKPOINTS
from tuplet.training.state import History

JOB = Job("edge-csl", "gin", "csl", 1, epochs=2)
NO_DATA = Job("edge-csl", "gin", "edge", 0, epochs=1)


@pytest.fixture
def places(tmp_path, monkeypatch):
    monkeypatch.delenv("TUPLET_DATA", raising=False)
    return Places(tmp_path / "results", tmp_path / "work", root=str(tmp_path / "root"), commit="abc")


def heard():
    found = []
    return found, lambda job, came: found.append((job, came))


def weights(places):
    return (places.folder(JOB) / "model" / "weights.safetensors").read_bytes()


def without_times(outcome):
    times = ("seconds", "seconds_per_epoch", "peak_memory_bytes")
    return {key: value for key, value in outcome.values.items() if key not in times}, outcome.curve


def test_a_job_stopped_and_carried_at_every_step_ends_with_the_same_bits(places, tmp_path):
    whole = run_training(JOB, places, math.inf)
    expected = weights(places)
    other = Places(tmp_path / "results2", tmp_path / "work2", root=places.root)
    states = []
    for _ in range(20):
        outcome = run_training(JOB, other, time.monotonic())
        states.append(outcome.finished)
        assert read_outcome(other, JOB).finished == outcome.finished
        if outcome.finished:
            break
        assert "test" not in outcome.values
        assert not is_done(other, JOB)
        other = Places(other.results, other.work.rename(tmp_path / f"carried-{len(states)}"), root=places.root)
    assert states == [False] * 5 + [True]  # three steps an epoch; the last one ends the run
    assert weights(other) == expected
    assert without_times(outcome) == without_times(whole)
    assert whole.values["epochs"] == 2
    assert whole.values["planned"] == 200


def test_a_result_is_a_small_file_with_all_that_is_known(places):
    run_training(JOB, places, math.inf)
    path = places.result(JOB)
    assert path == places.results / "edge-csl" / "gin" / "csl-seed-1-epochs-2.json"
    assert path.stat().st_size < 8000
    facts = json.loads(path.read_text())
    for key in ("table", "row", "run", "form", "seed", "epochs", "finished", "device", "versions", "git", "command"):
        assert key in facts
    for key in ("test", "val", "best_epoch", "epochs", "planned", "seconds", "seconds_per_epoch", "parameters"):
        assert isinstance(facts["values"][key], int | float)
    assert facts["values"]["peak_memory_bytes"] > 1e6
    assert facts["options"]["folds"] == [1]
    assert facts["command"] == "tuplet reproduce edge-csl --rows gin --columns csl --seeds 1 --epochs 2"
    assert read_file(path).job == JOB
    assert is_done(places, JOB)
    assert not list(places.folder(JOB).rglob("checkpoint-*")), "a finished job keeps no checkpoints"
    younger = {key: value for key, value in facts["options"].items() if key != "settle_norms"}
    path.write_text(json.dumps({**facts, "options": younger}))
    assert is_done(places, JOB), "an option that did not exist then had the value that it has by itself"
    del younger["epochs"]
    path.write_text(json.dumps({**facts, "options": younger}))
    with pytest.raises(OptionError, match=r"expected epochs = 2, .* made with 100"):
        is_done(places, JOB)
    path.write_text(json.dumps(facts, indent=1))
    changed = path.read_text().replace('"lr": 0.001', '"lr": 0.002')
    path.write_text(changed)
    with pytest.raises(OptionError, match=r"expected lr = 0.001, .* made with 0.002"):
        is_done(places, JOB)
    facts["options"]["model_options"] |= {"dim": 7, "virtual": 3}
    path.write_text(json.dumps(facts))
    with pytest.raises(
        OptionError, match=r"model_options = {'dim': 64}, .* made with {'dim': 7, 'virtual': 3}\. Remove"
    ):
        is_done(places, JOB)
    facts["options"]["model_options"] = {"dim": 64, "virtual_node": False, **JOB.options().model_options}
    path.write_text(json.dumps(facts))
    assert is_done(places, JOB), "an option that is named and has the value that it has by itself changes nothing"


@pytest.mark.parametrize("table", TABLES)
def test_results_that_are_kept_were_made_with_the_settings_of_today(table):
    """Or they would have to be run again: ``tuplet reproduce`` says so, job by job."""
    kept = Places(Path(__file__).parents[2] / "results")
    for outcome in read_all(kept.results, table):
        assert is_done(kept, outcome.job) == outcome.finished


def test_a_result_of_other_settings_keeps_no_other_job_from_running(places, capsys, monkeypatch):
    monkeypatch.setattr("tuplet.cli.reproduce.run_jobs", lambda jobs, *_, **__: [Failure(job, "ran") for job in jobs])
    old, new = (Job("edge-csl", "gin", "csl", seed, epochs=2) for seed in (0, 1))
    options = {**old.options().plain(), "lr": 0.5}
    Outcome(old, True, {"test": 1.0, "planned": 200}, {}, options).write(places)
    damaged = places.result(Job("edge-csl", "a2", "csl", 0))
    damaged.parent.mkdir()
    damaged.write_text('{"table": "edge-')
    command = ["reproduce", "edge-csl", "--rows", "gin", "--columns", "csl", "--seeds", "0,1", "--epochs", "2"]
    assert main([*command, "--results", str(places.results), "--work", str(places.work)]) == 1
    printed, complaint = capsys.readouterr()
    assert f"a result is left out. {damaged}: expected" in complaint
    assert "1, 2 of 200 epochs, lr = 0.5" in printed
    assert "2 jobs, 0 done before" in printed
    assert f"failed: {old.name}: {places.result(old)}: expected lr = 0.001" in printed
    assert f"failed: {new.name}: ran" in printed
    assert (
        main(["reproduce", "edge-csl", "--rows", "a2", "--columns", "csl", "--list", "--results", str(places.results)])
        == 0
    )
    assert f"damaged: {damaged}: expected" in capsys.readouterr().out


def test_an_interrupted_job_writes_what_its_checkpoint_holds(places, monkeypatch):
    run_training(JOB, places, time.monotonic())
    place = training_jobs._run_folder(places.folder(JOB), JOB) / CHECKPOINTS
    assert Checkpoints(place).load() is not None
    places.result(JOB).unlink()
    monkeypatch.setattr(training_jobs, "train", interrupted)
    with pytest.raises(KeyboardInterrupt):
        perform(JOB, places, math.inf)
    assert read_outcome(places, JOB).finished is False


def test_a_training_that_diverges_leaves_a_result_that_says_so(places, monkeypatch):
    options = replace(JOB.options(), lr=1e30, warmup=0, clip=None, precision="fp32")
    monkeypatch.setattr(Job, "options", lambda _: options)
    came = perform(JOB, places, math.inf)
    assert isinstance(came, Failure)
    outcome = read_outcome(places, JOB)
    assert not outcome.finished
    assert outcome.values["failed"] == came.reason
    assert "expected a loss that stays finite" in came.reason
    assert not is_done(places, JOB)


def test_a_folder_that_another_process_holds_is_no_failed_training(places):
    folder = make_folder("work", places.folder(JOB))
    with locked(folder):
        came = perform(JOB, places, math.inf)
    assert "another process is training" in came.reason
    assert read_outcome(places, JOB) is None


def interrupted(*_, **__):
    raise KeyboardInterrupt


def test_no_job_begins_after_the_budget(places):
    found, told = heard()
    assert run_jobs([JOB], places, told, until=time.monotonic() - 1) == []
    assert found == []


def test_a_failure_does_not_stop_the_others(places):
    found, told = heard()
    failures = run_jobs([NO_DATA, JOB], places, told, until=math.inf)
    assert [failure.job for failure in failures] == [NO_DATA]
    assert "expected the packed form" in failures[0].reason
    assert [isinstance(came, Failure) for _, came in found] == [True, False]
    assert "Traceback" in (places.folder(NO_DATA) / module.ERROR).read_text()
    assert read_outcome(places, NO_DATA) is None


def test_a_result_names_what_trained_and_not_what_wrote_it_down(places):
    run_training(JOB, places, math.inf)
    made = read_outcome(places, JOB)
    places.result(JOB).unlink()
    run_training(JOB, replace(places, commit="deadbeef"), math.inf)
    again = read_outcome(places, JOB)
    assert again.about == made.about
    assert commits_of(again) == ["abc"]
    assert again.values == made.values


def test_a_training_that_goes_on_elsewhere_names_all_that_trained_it(places, monkeypatch):
    run_training(JOB, places, time.monotonic())
    run_training(JOB, places, time.monotonic())
    assert commits_of(read_outcome(places, JOB)) == ["abc"], "the same place is named once"
    monkeypatch.setattr(outcomes, "device_name", lambda _: "NVIDIA H200")
    outcome = run_training(JOB, replace(places, commit="def"), math.inf)
    assert outcome.finished
    assert read_outcome(places, JOB).about == {**outcome.about, "command": JOB.command}
    assert commits_of(outcome) == ["abc", "def"]
    assert device_of(outcome) == "cpu then H200"
    for folder in (places.folder(JOB), places.result(JOB).parent):
        rmtree(folder)
    assert commits_of(run_training(JOB, places, math.inf)) == ["abc"], "nothing is left of those before"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process cannot forget how large it was")
def test_a_job_does_not_inherit_the_memory_of_what_ran_before_it(places):
    run_training(JOB, places, math.inf)
    alone = read_outcome(places, JOB).values["peak_memory_bytes"]
    large = torch.ones(2**28)  # 1 GiB, which is gone when the next job begins
    del large
    other = replace(JOB, seed=2)
    run_training(other, places, math.inf)
    assert read_outcome(places, other).values["peak_memory_bytes"] < alone + 2**29


def test_several_processes_run_all_jobs(places):
    jobs = [NO_DATA, *(Job("edge-csl", row, "csl", 0, epochs=1) for row in ("gin", "transformer"))]
    found, told = heard()
    failures = run_jobs(jobs, places, told, until=math.inf, processes=2)
    assert [failure.job for failure in failures] == [NO_DATA]
    assert {job for job, _ in found} == set(jobs)
    for job in jobs[1:]:
        assert is_done(places, job)
        assert "epoch 1 of 1" in (places.folder(job) / module.LOG).read_text()


def test_a_process_that_dies_is_replaced(places, monkeypatch):
    monkeypatch.setattr(module, "_work", dying.work)
    jobs = [Job("edge-csl", "gin", "csl", seed) for seed in range(4)]
    found, told = heard()
    failures = run_jobs(jobs, places, told, until=math.inf, processes=2)
    assert len(found) == 4
    assert 1 <= len(failures) <= 2
    assert "its process ended with code 3" in failures[0].reason


def test_a_process_whose_job_fails_runs_no_other(places, monkeypatch):
    monkeypatch.setattr(module, "_work", dying.broken)
    jobs = [Job("edge-csl", "gin", "csl", 0), Job("edge-csl", "gin", "csl", 1)]
    found, told = heard()
    failures = module._Pool(places, told, math.inf, 1).run(list(jobs))
    assert [failure.job for failure in failures] == jobs[:1]
    assert [job for job, _ in found] == jobs


def test_curves_are_thinned():
    many = History(*([float(epoch) for epoch in range(2000)] for _ in range(5)))
    curve = thinned(many)
    assert len(curve["epoch"]) == POINTS
    assert curve["epoch"][-1] == 2000
    assert curve["val"][-1] == 1999.0
    few = History(*([math.pi] * 3 for _ in range(5)))
    assert thinned(few) == {"epoch": [1, 2, 3], "train_loss": [3.14159] * 3, "val": [3.14159] * 3}


def test_numbers_that_are_none_are_written_as_none(places):
    Outcome(JOB, True, {"test": math.nan, "many": (1, 2.0)}).write(places)
    assert read_outcome(places, JOB).values == {"test": None, "many": [1, 2.0]}
