"""Freed memory stays with a process while it trains, where it counts as available, and no longer."""

import platform
import subprocess
import sys

import pytest
import torch

from tuplet import _memory
from tuplet._memory import glibc

PROGRAM = """
import resource
import torch
from tuplet.training.pages import give_back, keep_freed

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        torch.ones(1 << 20)  # 4 MB, freed at once
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident():
    return int(open("/proc/self/statm").read().split()[1])

torch.set_num_threads(1)
keep_freed()
faults()
kept = faults()
full = [torch.ones(1 << 20) for _ in range(50)]
most = resident()
del full
held = resident()
give_back()
print(kept, most, held, resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="for glibc")
def test_what_is_freed_is_used_again_and_given_back_at_the_end():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    kept, most, held, after = map(int, done.stdout.split())
    assert kept < 200  # pages of 4 KiB; each round would be 20,000 of them
    assert held > most - 2000  # 50 blocks of 1,000 pages and more
    assert after < most - 40_000


GROWING = """
import torch
from tuplet._memory import resident_bytes
from tuplet.training.pages import Kept, keep_freed

torch.set_num_threads(1)
keep_freed()
kept = Kept()
kept.look()
first = resident_bytes()
for share in (0.2, 1.0, 1.0, 1.0):
    blocks = [torch.ones(1 << 20) for _ in range(int(share * first) >> 22)]
    del blocks
    before = resident_bytes()
    kept.look()
    print(before / first, resident_bytes() / first)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="for glibc")
def test_what_is_kept_does_not_grow_without_end():
    done = subprocess.run([sys.executable, "-c", GROWING], capture_output=True, text=True, check=True)
    little, much, again, always = (list(map(float, line.split())) for line in done.stdout.splitlines())
    assert 1.15 < little[0] < 1.25
    assert little[1] == pytest.approx(little[0], abs=0.02)
    assert much[0] > 1.9
    assert much[1] < 1.15
    for needed in (again, always):  # what a step needs that began with nothing kept is no growth
        assert needed[0] > 1.9
        assert needed[1] == pytest.approx(needed[0], abs=0.02)


AVAILABLE = """
import torch
from tuplet._memory import kept_bytes
from tuplet.training.pages import give_back, keep_freed

torch.set_num_threads(1)
keep_freed()
before = kept_bytes()
blocks = [torch.ones(1 << 20) for _ in range(300)]
used = kept_bytes()
del blocks
held = kept_bytes()
give_back()
after = kept_bytes()
large = [torch.ones(1 << 26) for _ in range(4)]  # blocks of their own, beside what is free and has been given back
print(before, used, held, after, kept_bytes())
"""


@pytest.mark.skipif(not hasattr(glibc(), "mallinfo2"), reason="for glibc from 2.33 on")
def test_what_a_process_keeps_is_told():
    done = subprocess.run([sys.executable, "-c", AVAILABLE], capture_output=True, text=True, check=True)
    before, used, held, after, beside = (int(number) / 1e6 for number in done.stdout.split())
    assert max(before, used, after, beside) < 300
    assert 1200 < held - used < 1300  # 300 blocks of 4.2 MB


def test_what_a_process_keeps_is_there_for_its_next_step(monkeypatch):
    """Otherwise a run would be refused a step because other processes have taken all that it does not have itself."""
    before = _memory.available_bytes(torch.device("cpu"))
    monkeypatch.setattr(_memory, "kept_bytes", lambda: 10**15)
    monkeypatch.setattr(_memory._Lately, "at", -1e9)
    monkeypatch.setattr(_memory._Lately, "bytes", 0)
    assert (_memory.available_bytes(torch.device("cpu")) > 10**15) == (sys.platform == "linux")
    assert before < 10**15
