"""Settings of all tests: one thread a worker (the workers share the cores), the same examples in every run.

Without a GPU, fused kernels run in Triton's interpreter, which has to be chosen before triton is imported.
"""

import os

import hypothesis
import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

torch.set_num_threads(1)
hypothesis.settings.register_profile("tuplet", deadline=None, derandomize=True, max_examples=12)
hypothesis.settings.load_profile("tuplet")


@pytest.fixture(autouse=True)
def _same_weights_every_run():
    torch.manual_seed(0)
