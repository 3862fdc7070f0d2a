"""Settings of all tests: one thread a worker (the workers share the cores), the same examples in every run.

Without a GPU, fused kernels run in Triton's interpreter, which has to be chosen before triton is imported. Virtual machines may report
matrix units (AMX) that they do not have: a product of torch in bfloat16 then ends the process, unless its library is told before.
"""

import os
from importlib.util import find_spec

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import hypothesis
import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
    if find_spec("triton") is not None:
        from tuplet.attention.fused import launch

        launch.PROGRAMS = 4  # the interpreter runs one after the other: a few say as much as many

torch.set_num_threads(1)
hypothesis.settings.register_profile("tuplet", deadline=None, derandomize=True, max_examples=8)
hypothesis.settings.load_profile("tuplet")


@pytest.fixture(autouse=True)
def _same_weights_every_run():
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _memory_for_the_others():
    """On a GPU several processes share the memory (tests/on_gpu.py): none keeps what its last test had."""
    yield
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
