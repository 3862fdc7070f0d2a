"""The folder of packed data sets, and small files that tests share."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def packed():
    folder = Path(os.environ.get("TUPLET_DATA", Path(__file__).parents[3] / "shared" / "data"))
    if not (folder / "zinc12k").is_dir():
        pytest.skip(f"no packed data sets at {folder}; set TUPLET_DATA to the folder that holds zinc12k/zinc12k.npz")
    return folder


@pytest.fixture(autouse=True)
def _nothing_outside(tmp_path, monkeypatch):
    """No test reads a folder that the environment names, or writes to the user's cache."""
    monkeypatch.delenv("TUPLET_DATA", raising=False)
    monkeypatch.setenv("TUPLET_CACHE", str(tmp_path / "cache"))
