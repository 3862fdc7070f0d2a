"""All tests of fused kernels and recorded steps on the GPU at hand, in several processes: most of their time is compiling.

    python tests/on_gpu.py [--processes 8] [--minutes 8] [PATH ..]

Prints for each file how many tests passed, failed, were skipped or not reached in time, and the names of those that failed; ends with
code 1 if any did, else with code 2 if any were not reached. Needs nothing but pytest.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from pathlib import Path

PATHS = [
    "tests/attention/test_fused_models.py",
    "tests/attention/test_fused_norm.py",
    "tests/attention/test_arithmetic.py",
    "tests/attention/test_mixing.py",
    "tests/attention/test_factorised.py",
    "tests/attention/test_favor.py",
    "tests/kernels",
    "tests/models/test_device.py",
    "tests/training/test_recorded.py",
    "tests/training/test_resident.py",
    "tests/attention/test_fused.py",  # the most by far: what time does not reach is here
]
LAST = 60
"""Seconds that a test which began in time may take after it; then its process is ended."""
OUTCOMES = ("passed", "failed", "skipped", "not reached")


def pytest_collection_modifyitems(items: list) -> None:
    """As a plugin of one process: every so manieth test, from the first of its own; and which files they are in."""
    number, processes = map(int, os.environ["SHARE"].split("/"))
    items[:] = items[number::processes]
    Path(os.environ["LISTED"]).write_text("".join(f"{item.location[0]}\n" for item in items))


def pytest_runtest_protocol(item) -> bool | None:
    """None begins when the time is over."""
    if time.time() < float(os.environ["UNTIL"]):
        return None
    item.session.shouldstop = "the time is over"
    return True


def begin(number: int, processes: int, until: float, folder: Path, paths: list[str]) -> subprocess.Popen:
    """One process with its share of the tests; which they are, what came out and what it said go to a file each."""
    here = Path(__file__).parent
    environment = {**os.environ, "SHARE": f"{number}/{processes}", "UNTIL": str(until), "OMP_NUM_THREADS": "1"}
    environment["LISTED"] = str(folder / f"{number}.list")
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(here), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "pytest", "-p", Path(__file__).stem, "-p", "no:cacheprovider", "-o", "addopts="]
    command += [f"--junitxml={folder / f'{number}.xml'}", "-o", "junit_family=xunit1", *paths]
    with open(folder / f"{number}.txt", "w") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT, cwd=here.parent)


def outcome(case: ElementTree.Element) -> str:
    kinds = {child.tag for child in case}
    return "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    parser.add_argument("--minutes", type=float, default=float("inf"), help="after which no test begins")
    parser.add_argument("paths", nargs="*", default=PATHS)
    options = parser.parse_args()
    started = time.time()
    found: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(OUTCOMES, 0))
    failed, broken = [], []
    with tempfile.TemporaryDirectory() as name:
        folder, until = Path(name), started + 60 * options.minutes
        running = [begin(i, options.processes, until, folder, options.paths) for i in range(options.processes)]
        for number, process in enumerate(running):
            try:
                process.wait(None if options.minutes == float("inf") else max(0.0, until + LAST - time.time()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            report, listed = folder / f"{number}.xml", folder / f"{number}.list"
            for file in listed.read_text().splitlines() if listed.exists() else ():
                found[file]["not reached"] += 1
            try:
                cases = list(ElementTree.parse(report).iter("testcase"))
            except (OSError, ElementTree.ParseError):  # it was ended, or never began
                broken.append((folder / f"{number}.txt").read_text()[-2000:])
                continue
            for case in cases:
                file, kind = case.get("file", "?"), outcome(case)
                found[file][kind] += 1
                found[file]["not reached"] -= 1
                if kind == "failed":
                    first = next(iter(case)).get("message", "").strip().splitlines()
                    failed.append(f"{file}::{case.get('name')}  {first[0] if first else ''}")
    width = max(map(len, found), default=4)
    print(f"{'file':{width}}", *(f"{kind:>11}" for kind in OUTCOMES))
    for file, counts in sorted(found.items()):
        print(f"{file:{width}}", *(f"{counts[kind]:11}" for kind in OUTCOMES))
    print(f"{time.time() - started:.0f} seconds, {options.processes} processes")
    print(*sorted(failed), *broken, sep="\n")
    if failed or broken:
        return 1
    return 2 if any(counts["not reached"] for counts in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
