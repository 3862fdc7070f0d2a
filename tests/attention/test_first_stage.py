"""Kernels are read by Triton's compiler, not only by its interpreter."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")
pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU all tests of kernels compile them")
WANTED = {
    "exchange", "exchange_gradient", "feed", "feed_gradient", "forward", "backward_line", "forward_rows", "backward_rows",
    "message_gradient", "normalise_gradient", "project_gradient", "project_weights_gradient", "update", "update_gradient",
    "update_weights_gradient",
}  # fmt: skip


def test_the_compiler_reads_the_kernels_of_training_steps():
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    script = Path(__file__).with_name("first_stage.py")
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert set(done.stdout.split()) >= WANTED
