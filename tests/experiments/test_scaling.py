"""Growth with n, and steps that fit or do not."""

import math
from dataclasses import replace
from itertools import islice

import pytest
import torch

from tuplet.errors import OptionError
from tuplet.experiments import growth_jobs, step_jobs
from tuplet.experiments.jobs import Job
from tuplet.experiments.molecules import molecule
from tuplet.experiments.outcomes import Places, read_outcome
from tuplet.experiments.scaling import DEGREE, Point, exponents, grow, random_graph
from tuplet.experiments.step_jobs import Refused, Step

CPU = torch.device("cpu")


def test_exponents_are_those_of_the_upper_half():
    flat = [Point(n, 1.0, 1000) for n in (8, 16, 32, 64)]
    steep = [Point(n, n**3 * 1e-6, n**2) for n in (128, 256, 512, 1024)]
    assert exponents([*flat, *steep]) == pytest.approx((3, 2))
    assert exponents(steep[:2]) == pytest.approx((3, 2))
    assert all(map(math.isnan, exponents(flat[:1])))


@pytest.mark.parametrize("name", ["A2^LN", "A1,2^Ngbh", "AS0:1^SN", "AS0:1^VS", "2-IGN"])
def test_sizes_double(name):
    points = list(islice(grow(name, 6, CPU, {}, slow=math.inf), 2))
    assert [point.n for point in points] == [6, 12]
    assert all(point.seconds > 0 and point.bytes > 0 for point in points)


def test_growth_stops_where_a_call_is_slow():
    assert len(list(grow("A1", 6, CPU, {}, slow=0.0))) == 1


def test_random_graphs_have_the_degree_that_is_asked_for():
    for degree in (DEGREE, 20):
        graph = random_graph(200, degree)
        assert graph.num_edges == 200 * degree
        assert graph.is_undirected()
        assert not graph.has_self_loops()


def test_a_job_of_growth_writes_points_and_exponents(tmp_path, monkeypatch):
    points = [Point(n, n**2 * 1e-6, 64 * n) for n in (16, 32, 64, 128)]
    monkeypatch.setattr(growth_jobs, "grow", lambda *_: points)
    places, job = Places(tmp_path), Job("complexity", "a1", "cpu", 0)
    growth_jobs.run_growth(job, places, math.inf)
    outcome = read_outcome(places, job)
    assert outcome.values["time"] == pytest.approx(2)
    assert outcome.values["memory"] == pytest.approx(1)
    assert outcome.values["n"] == 128
    assert outcome.curve["n"] == [16, 32, 64, 128]
    monkeypatch.setattr(growth_jobs, "grow", lambda *_: points[:1])
    with pytest.raises(OptionError, match="expected at least two sizes from 512 nodes on; came 1"):
        growth_jobs.run_growth(job, places, math.inf)
    if not torch.cuda.is_available():
        with pytest.raises(OptionError, match="is measured on a GPU"):
            growth_jobs.run_growth(Job("complexity", "a1", "cuda", 0), places, math.inf)


def test_a_batch_is_halved_until_it_fits(tmp_path, monkeypatch):
    tried = []

    def pretend(sizes, options):
        tried.append(len(sizes))
        return Step(12.5, 3 * 10**9, 1000) if len(sizes) <= 8 else Refused("too large for this device")

    monkeypatch.setattr(step_jobs, "_tried", pretend)
    places, job = Places(tmp_path), Job("scalability", "a2-ln", "molhiv", 0, "groups")
    step_jobs.run_step(job, places, math.inf)
    values = read_outcome(places, job).values
    assert tried == [32, 16, 8]
    assert (values["fits"], values["batch"], values["n"]) == (True, 8, 222)
    assert values["said"] == "yes: batch 8 of 32 (16 do not fit), 12.5 ms, 3 GB"
    assert values["refused"] == {"32": "too large for this device", "16": "too large for this device"}
    monkeypatch.setattr(step_jobs, "_tried", lambda *_: Refused("too large for this device"))
    values = step_jobs.run_step(job, places, math.inf).values
    assert (values["fits"], values["said"]) == (False, "no: too large for this device")


def test_what_takes_too_long_is_not_said_not_to_fit(tmp_path, monkeypatch):
    monkeypatch.setattr(step_jobs, "OPERATIONS", {"cpu": 10.0, "cuda": 10.0})
    values = step_jobs.run_step(Job("scalability", "a2-vt", "zinc", 0), Places(tmp_path), math.inf).values
    assert values["fits"] is None
    assert values["said"].startswith("not decided: a step takes ")
    assert list(values["refused"]) == ["32", "16", "8", "4", "2", "1"]
    values = step_jobs.run_step(Job("scalability", "a2-vt", "largest", 0), Places(tmp_path), math.inf).values
    assert values["largest"] is None
    slow = Refused("a step takes 1e+15 operations", slow=True)
    step = Step(12.5, 3 * 10**9, 1000)
    monkeypatch.setattr(step_jobs, "_tried", lambda sizes, _: step if len(sizes) <= 16 else slow)
    values = step_jobs.run_step(Job("scalability", "a2-vt", "zinc", 0), Places(tmp_path), math.inf).values
    assert values["said"] == "yes: batch 16 of 32 (32 are too slow), 12.5 ms, 3 GB"


def test_the_largest_graph_is_found_by_halving(tmp_path, monkeypatch):
    step = Step(1.0, 10**9, 1)
    monkeypatch.setattr(step_jobs, "_tried", lambda sizes, *_: step if sizes[0] <= 300 else Refused("too large"))
    job = Job("scalability", "a2-ln", "largest", 0, "groups")
    values = step_jobs.run_step(job, Places(tmp_path), math.inf).values
    assert 266 <= values["largest"] <= 300
    assert values["said"].endswith("then: too large")
    monkeypatch.setattr(step_jobs, "_tried", lambda *_: Refused("too large"))
    assert step_jobs.run_step(job, Places(tmp_path), math.inf).values["largest"] == 0


def test_a_step_is_tried_for_what_it_costs(monkeypatch):
    options = Job("scalability", "as01-sn", "zinc", 0, "groups").options()
    small = replace(options, model_options={**options.model_options, "depth": 1})
    step = step_jobs._tried([9, 6], small)
    assert step.milliseconds > 0
    assert step.bytes > 0
    assert step.parameters > 1000
    monkeypatch.setattr(step_jobs, "OPERATIONS", {"cpu": 10.0, "cuda": 10.0})
    assert "operations; up to 1e+01 are tried here" in step_jobs._tried([9, 6], small).reason


def test_a_molecule_has_the_size_that_is_asked_for():
    graph = molecule(50, torch.Generator().manual_seed(0))
    assert graph.num_nodes == 50
    assert not graph.has_isolated_nodes()


def test_launches_have_no_say_in_the_exponent_of_time():
    waiting = [Point(2**k, 1e-3 * (1 + 0.1 * (k % 2)), 4**k) for k in range(8)]
    busy = [Point(2**k, 1e-2 * 4 ** (k - 8), 4**k) for k in range(8, 11)]
    time, memory = exponents(waiting + busy)
    assert (time, memory) == (pytest.approx(2.0), pytest.approx(2.0))
    assert exponents(waiting)[0] < 0.2  # nothing else is there
