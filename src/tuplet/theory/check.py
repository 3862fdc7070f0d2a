"""A statement of the paper as a check that runs, and what came of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from tuplet.errors import OptionError

Verdict = Literal["holds", "holds under a condition", "fails as stated"]


@dataclass(frozen=True)
class Result:
    """What a check found.

    Args:
        must: cases in which something has to be so (pairs to separate, entries to reproduce).
        must_not: cases in which it must not be so (pairs to keep together, entries that must vanish).
        error: the worst error over all cases; None where nothing is measured.
        failures: what went against expectation, in words; empty if the check passed.
        remark: the condition, the counterexample, or what was seen beyond the statement.
    """

    must: int
    must_not: int
    error: float | None = None
    failures: tuple[str, ...] = ()
    remark: str = ""

    @property
    def passed(self) -> bool:
        """Nothing went against expectation, and something could have, on both sides."""
        return not self.failures and self.must > 0 and self.must_not > 0


@dataclass(frozen=True)
class Check:
    """One statement.

    Args:
        name: short, for the command line and the tests.
        statement: what the paper says, in a line.
        paper: where it says it.
        run: ``run(mutation)`` checks; the mutation is the name of a deliberate fault, or None.
        mutations: the faults that must turn the check red.
        verdict: what a passing check means for the statement: it holds, it needs a condition (named in the remark), or the
            paper's wording fails and the check has shown the counterexample.
    """

    name: str
    statement: str
    paper: str
    run: Callable[[str | None], Result]
    mutations: tuple[str, ...]
    verdict: Verdict = "holds"


@dataclass(frozen=True)
class Report:
    """A check, its result, and how long it took."""

    check: Check
    result: Result
    seconds: float

    @property
    def verdict(self) -> str:
        return self.check.verdict if self.result.passed else "CHECK FAILED"


def run(check: Check, mutation: str | None = None) -> Report:
    """Run one check, with a fault if one is named. A check that finds no case on one side has failed, and says so."""
    if mutation is not None and mutation not in check.mutations:
        raise OptionError(f"{check.name}: no mutation {mutation!r}; there are {', '.join(check.mutations)}")
    started = time.perf_counter()
    result = check.run(mutation)
    for side in ("must", "must_not"):
        if getattr(result, side) == 0:
            result = replace(result, failures=(*result.failures, f"no {side.replace('_', ' ')} case"))
    return Report(check, result, time.perf_counter() - started)
