"""What tests of kernels share."""

from importlib import import_module

import pytest
from kernel_cases import DEVICE


@pytest.fixture
def _few_programs(monkeypatch):
    """The interpreter runs one after the other: few, so that each still has several tiles."""
    for module in ("post_norm", "project", "update") if DEVICE == "cpu" else ():
        for name in ("PROGRAMS", "GRADIENT_PROGRAMS", "AT_ONCE"):
            monkeypatch.setattr(import_module(f"tuplet.kernels.{module}"), name, 7, raising=False)
