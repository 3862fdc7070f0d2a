"""Every check of the paper passes, and every fault that it ships turns it red."""

import re
from pathlib import Path

import pytest

from tuplet.errors import OptionError
from tuplet.theory import CHECKS, Check, Result, check_named, run

FIRST = [(check, check.mutations[0]) for check in CHECKS]
OTHERS = [(check, mutation) for check in CHECKS for mutation in check.mutations[1:]]


@pytest.mark.parametrize("check", CHECKS, ids=[check.name for check in CHECKS])
def test_check_passes(check):
    report = run(check)
    assert report.result.failures == ()
    assert report.result.passed
    assert report.verdict == check.verdict
    assert report.result.remark
    assert report.result.must > 0
    assert report.result.must_not > 0


@pytest.mark.parametrize(
    "check, mutation",
    [pytest.param(*one, id=f"{one[0].name}-{one[1]}") for one in FIRST]
    + [pytest.param(*one, id=f"{one[0].name}-{one[1]}", marks=pytest.mark.soak) for one in OTHERS],
)
def test_fault_turns_the_check_red(check, mutation):
    report = run(check, mutation)
    assert not report.result.passed
    assert report.result.failures
    assert report.verdict == "CHECK FAILED"


def test_the_page_on_theory_says_what_the_checks_say():
    """Every check is on docs/theory.md, with its verdict and nothing else."""
    page = (Path(__file__).parents[2] / "docs" / "theory.md").read_text()
    words = {"holds": "holds", "hold": "holds", "condition": "holds under a condition", "fails": "fails as stated"}
    found = {}
    for names, verdict in re.findall(r"([a-z0-9+-]+(?:, [a-z0-9+-]+)*) — (holds?|condition|fails)", page):
        found |= dict.fromkeys(names.split(", "), words[verdict])
    assert found == {check.name: check.verdict for check in CHECKS}


def test_every_check_ships_a_fault_and_has_a_name_of_its_own():
    assert all(check.mutations for check in CHECKS)
    assert len({check.name for check in CHECKS}) == len(CHECKS)
    assert {check.verdict for check in CHECKS} == {"holds", "holds under a condition", "fails as stated"}


@pytest.mark.parametrize("name", ["index-relu", "match-m", "rook"])
def test_checks_are_deterministic(name):
    assert run(check_named(name)).result == run(check_named(name)).result


def test_a_check_without_cases_on_one_side_has_failed():
    """What cannot fail has shown nothing."""
    for result, missing in ((Result(0, 3), "no must case"), (Result(3, 0), "no must not case")):
        report = run(Check("empty", "nothing", "nowhere", lambda _, result=result: result, ("fault",)))
        assert report.verdict == "CHECK FAILED"
        assert missing in report.result.failures


def test_unknown_names_are_refused():
    with pytest.raises(OptionError, match="check: expected one of hierarchy"):
        check_named("riemann")
    with pytest.raises(OptionError, match="no mutation 'cosmic ray'"):
        run(check_named("rook"), "cosmic ray")
