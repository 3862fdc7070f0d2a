"""The arithmetic of verdicts, and lines of a comparison."""

from dataclasses import replace

import pytest

from tuplet.experiments.comparison import HEADER, compare, filled
from tuplet.experiments.jobs import Job
from tuplet.experiments.outcomes import Outcome
from tuplet.experiments.table import Published, read_table
from tuplet.experiments.verdict import verdict

ABOUT = {"git": {"commit": "0123456789abcdef", "changed": True}}


@pytest.mark.parametrize(
    "ours, paper, better, expected",
    [
        ([0.074], "0.069 ± 0.005", "lower", "within (+1.0 σ of the paper)"),
        ([0.084], "0.069 ± 0.005", "lower", "worse by 3.0 σ of the paper"),
        ([0.054], "0.069 ± 0.005", "lower", "better by 3.0 σ of the paper"),
        ([80.0], "70.0 ± 2.0", "higher", "better by 5.0 σ of the paper"),
        ([60.0, 60.0, 60.0], "70.0 ± 2.0", "higher", "worse by 5.0 σ of the paper"),
        ([9.0, 11.0, 9.0, 11.0], "16.0 ± 3.0", "lower", "better by 2.6 σ"),  # sqrt((9 + 4/3) / 2) = 2.273
        ([100.0], "100.00 ± 0.00", "higher", "within (equal)"),
        ([100.0] * 5, "100.00 ± 0.00", "higher", "within (equal)"),
        ([90.0], "100.00 ± 0.00", "higher", "worse by 10.00, no deviation"),
        ([80.0, 60.0, 70.0, 70.0, 90.0], "90.00 ± 0.00", "higher", "worse by 16.00, no deviation"),
        ([2.0, 4.0, 2.0, 4.0], "5.00 ± 0.00", "lower", "better by 2.00, no deviation"),
        ([0.0105], "0.0100", "lower", "within (+5 %)"),
        ([0.015], "0.0100", "lower", "worse by 50 %"),
        ([10.0], "20", "lower", "better by 50 %"),
        ([600.0], "500", None, "differs (+20 %)"),
        ([400.0], "500", None, "differs (-20 %)"),
    ],
)
def test_a_verdict_says_direction_and_size(ours, paper, better, expected):
    assert verdict(ours, Published.read(paper), better) == expected


def outcome(seed, test, form="groups", epochs=None, finished=True):
    values = {"test": test, "epochs": 2000 if finished else 312, "planned": 2000, "val": 0.0912, "parameters": 1000}
    values |= {"seconds_per_epoch": 0.5, "peak_memory_bytes": 2e9}
    job = Job("zinc", "a2-ln", "mae", seed, form, epochs)
    return Outcome(job, finished, {k: v for k, v in values.items() if v is not None}, about=ABOUT)


def lines(outcomes):
    table = read_table("zinc")
    return [
        dict(zip(HEADER, line.cells(), strict=True))
        for line in compare(table, outcomes)["mae"]
        if line.row.slug == "a2-ln"
    ]


def test_a_line_has_mean_deviation_runs_and_cost():
    (line,) = lines([outcome(0, 0.08), outcome(1, 0.09)])
    assert line["model"] == "A2^LN"
    assert line["softmax"] == "groups"
    assert line["paper"] == "0.086 ± 0.006"
    assert line["ours"] == "0.085 ± 0.007"
    assert line["runs"] == "2"
    assert line["verdict"] == "within (-0.2 σ of the paper)"
    assert (line["parameters"], line["s/epoch"], line["peak memory"]) == ("1,000", "0.5", "2.00 GB")
    assert line["commit"] == "012345678+"


def test_a_run_of_several_places_names_them_all_and_shares_no_facts_with_others():
    moved = replace(
        outcome(0, 0.08),
        about={**ABOUT, "device": "cpu", "before": [{"device": "NVIDIA H200", "git": {"commit": "fedc"}}]},
    )
    here = [replace(outcome(seed, 0.08), about={**ABOUT, "device": "cpu"}) for seed in (1, 2)]
    slow = replace(moved, values={**moved.values, "seconds_per_epoch": 70.0})
    (line,) = lines([slow, *here])
    assert (line["device"], line["commit"], line["s/epoch"]) == ("cpu, H200 then cpu", "fedc, 012345678+", "0.5")


def test_forms_shortened_and_unfinished_runs_have_lines_of_their_own():
    found = lines(
        [outcome(0, 0.08), outcome(0, 0.09, "joint"), outcome(0, 0.2, epochs=10), outcome(1, None, finished=False)]
    )
    assert [(line["softmax"], line["runs"]) for line in found] == [
        ("groups", "1, 1 unfinished"),
        ("groups", "1, 10 of 2000 epochs"),
        ("joint", "1"),
    ]
    assert found[1]["verdict"].startswith("shortened; worse by")
    (line,) = lines([outcome(0, 0.08, epochs=4000)])
    assert line["runs"] == "1, 4000 epochs instead of 2000"
    assert line["verdict"].startswith("lengthened; within")
    (line,) = lines([outcome(1, None, finished=False)])
    assert line["ours"] == "epoch 312 of 2000, val 0.0912"
    assert line["verdict"] == "unfinished"


@pytest.mark.parametrize("number", [None, float("nan")])  # as it is read, and as it comes from a run
def test_beside_a_run_whose_metric_is_undefined_no_verdict_is_given(number):
    lost = outcome(1, 0.0)
    lost = replace(lost, values={**lost.values, "test": number})
    (line,) = lines([outcome(0, 0.05), lost, outcome(2, 0.05)])
    assert (line["ours"], line["runs"], line["verdict"]) == ("0.050 ± 0.000", "2, 1 undefined", "undefined")
    (line,) = lines([lost])
    assert (line["ours"], line["runs"], line["verdict"]) == ("undefined", "0, 1 undefined", "undefined")


def test_beside_a_run_that_failed_no_verdict_is_given():
    failed = outcome(1, None, finished=False)
    failed = replace(failed, values={**failed.values, "failed": "OptionError: lr: expected a loss that stays finite"})
    (line,) = lines([outcome(0, 0.05), failed, outcome(2, None, finished=False)])
    assert (line["ours"], line["runs"], line["verdict"]) == ("0.050", "1, 1 failed, 1 unfinished", "failed")
    (line,) = lines([failed])
    assert line["ours"] == "failed: OptionError: lr: expected a loss that stays finite"


def test_rows_that_were_not_run_say_why():
    shown = {line.row.slug: line.verdict for line in compare(read_table("zinc"), [])["mae"]}
    assert shown["cin"] == shown["gps"] == "adopted"
    assert shown["a2-ln"] == "not run"


def test_percentages_and_marks():
    table = read_table("edge-csl")
    done = Outcome(Job("edge-csl", "a2-ln", "csl", 0, "groups"), True, {"test": 0.9})
    (line,) = [line for line in compare(table, [done])["csl"] if line.outcomes]
    assert (line.ours, line.verdict) == ("90.00", "worse by 10.00, no deviation")
    table = read_table("scalability")
    fits = Outcome(Job("scalability", "a2-dense", "zinc", 0), True, {"fits": True, "said": "yes: batch 32"})
    fails = Outcome(Job("scalability", "a2-vt", "zinc", 0), True, {"fits": False, "said": "no: too large"})
    slow = Outcome(Job("scalability", "a2-ln", "zinc", 0), True, {"fits": None, "said": "not decided: too slow"})
    every = compare(table, [fits, fails, slow])["zinc"]
    found = {line.row.slug: (line.ours, line.runs, line.verdict) for line in every if line.outcomes}
    assert found == {
        "a2-dense": ("yes: batch 32", "1", "better"),
        "a2-ln": ("not decided: too slow", "0, 1 not decided", "not decided"),
        "a2-vt": ("no: too large", "1", "worse"),
    }


def test_empty_columns_are_left_out():
    header, cells = filled(compare(read_table("zinc"), [])["mae"])
    assert header == ["model", "paper", "verdict"]
    assert all(len(row) == 3 for row in cells)
