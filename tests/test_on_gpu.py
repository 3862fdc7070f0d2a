"""The script that spreads the tests of a GPU over processes, on a file of its own."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parent / "on_gpu.py"
TESTS = """
import pytest

def test_one(): pass
def test_two(): assert 1 == 2
def test_three(): pytest.skip("not here")
def test_four(): pass
"""


def run(*arguments):
    return subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, check=False)


def test_every_test_is_run_once_and_failures_are_named(tmp_path):
    path = tmp_path / "test_some.py"
    path.write_text(TESTS)
    done = run("--processes", "2", str(path))
    assert done.returncode == 1
    header, counts, _, *failed = done.stdout.splitlines()
    assert header.split() == ["file", "passed", "failed", "skipped", "not", "reached"]
    assert counts.split()[-4:] == ["2", "1", "1", "0"]
    assert "test_two" in failed[0]
    assert "1 == 2" in failed[0]


def test_tests_that_time_does_not_reach_are_counted(tmp_path):
    path = tmp_path / "test_some.py"
    path.write_text(TESTS)
    done = run("--processes", "1", "--minutes", "0", str(path))
    assert done.returncode == 2
    assert done.stdout.splitlines()[1].split()[-4:] == ["0", "0", "0", "4"]
