"""``tuplet theory``: every statement of the paper as a check, in a table."""

from __future__ import annotations

import json
import sys
import textwrap
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tuplet.cli.table import align
from tuplet.errors import OptionError
from tuplet.theory import CHECKS, Report, Result, check_named, run
from tuplet.training import progress_bar


def run_theory(names: list[str], as_json: bool, jobs: int) -> int:
    """Run the checks named, or all; exit code 1 if a check itself failed."""
    known = [check.name for check in CHECKS]
    for name in names:
        if name not in known:
            raise OptionError(f"theory: no check {name!r}; there are {', '.join(known)}")
    if jobs < 1:
        raise OptionError(f"--jobs: expected a positive number; came {jobs}")
    reports = _reports(names or known, jobs)
    print(_as_json(reports) if as_json else _as_table(reports))
    return 0 if all(report.result.passed for report in reports) else 1


def _run(name: str) -> tuple[Result, float]:
    import torch

    torch.set_num_threads(1)  # several processes share the cores
    report = run(check_named(name))
    return report.result, report.seconds


def _reports(names: list[str], jobs: int) -> list[Report]:
    found: dict[str, Report] = {}
    with progress_bar("theory", sys.stderr) as report_progress:
        if jobs == 1 or len(names) == 1:
            for name in names:
                found[name] = Report(check_named(name), *_run(name))
                report_progress(len(found), len(names), name)
        else:
            with ProcessPoolExecutor(min(jobs, len(names)), mp_context=get_context("spawn")) as pool:
                for name, outcome in zip(names, pool.map(_run, names), strict=True):
                    found[name] = Report(check_named(name), *outcome)
                    report_progress(len(found), len(names), name)
    return [found[name] for name in names]


def _as_table(reports: list[Report]) -> str:
    rows = []
    for report in reports:
        result = report.result
        error = "-" if result.error is None else f"{result.error:.0e}"
        cases = (f"{result.must:,}", f"{result.must_not:,}")
        rows.append((report.check.name, report.check.paper, *cases, error, report.verdict, f"{report.seconds:.1f}"))
    header = ("check", "in the paper", "must", "must not", "worst error", "verdict", "seconds")
    lines = [align(header, rows, right=(2, 3, 4, 6)), ""]
    for report in reports:
        lines.append(f"{report.check.name}: {report.check.statement}.")
        remark = "; ".join("FAILED: " + f for f in report.result.failures) or report.result.remark
        lines += textwrap.wrap(remark, 118, initial_indent="    ", subsequent_indent="    ")
    passed = sum(report.result.passed for report in reports)
    lines += ["", f"{passed} of {len(reports)} checks passed"]
    return "\n".join(lines)


def _as_json(reports: list[Report]) -> str:
    return json.dumps(
        [
            {
                "name": report.check.name,
                "statement": report.check.statement,
                "paper": report.check.paper,
                "must": report.result.must,
                "must_not": report.result.must_not,
                "error": report.result.error,
                "verdict": report.verdict,
                "passed": report.result.passed,
                "failures": list(report.result.failures),
                "remark": report.result.remark,
                "seconds": round(report.seconds, 2),
            }
            for report in reports
        ],
        indent=1,
        ensure_ascii=False,
    )
