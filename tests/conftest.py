"""Settings of all tests: one thread a worker (the workers share the cores), the same examples in every run."""

import hypothesis
import pytest
import torch

torch.set_num_threads(1)
hypothesis.settings.register_profile("tuplet", deadline=None, derandomize=True, max_examples=12)
hypothesis.settings.load_profile("tuplet")


@pytest.fixture(autouse=True)
def _same_weights_every_run():
    torch.manual_seed(0)
