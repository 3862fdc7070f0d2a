"""Where the compiled functions come from, and what happens without them."""

import subprocess

import pytest
import torch

import tuplet
from tuplet.native import library

needs_compiler = pytest.mark.skipif(library.load(torch.empty(0)) is None, reason="there is no C compiler here")


@pytest.fixture
def _afresh(monkeypatch, tmp_path):
    """An empty folder of compiled code, and nothing loaded."""
    monkeypatch.setenv("TUPLET_CACHE", str(tmp_path))
    library._load.cache_clear()
    yield
    library._load.cache_clear()


@needs_compiler
@pytest.mark.usefixtures("_afresh")
def test_it_is_compiled_once_and_then_found(monkeypatch, tmp_path):
    assert library.load(torch.empty(0)) is not None
    made = list((tmp_path / "native").iterdir())
    assert len(made) == 1
    assert made[0].suffix == ".so"
    library._load.cache_clear()
    monkeypatch.setattr(subprocess, "run", lambda *arguments, **options: pytest.fail("compiled again"))
    assert library.load(torch.empty(0)) is not None


@pytest.mark.usefixtures("_afresh")
@pytest.mark.parametrize("compiler", ["no-such-compiler", "false"])
def test_without_a_compiler_torch_serves(compiler, monkeypatch):
    """None is installed, or the one there is fails."""
    torch.manual_seed(0)
    model = tuplet.build("A2^LN+VT", dim=8, heads=2).train()
    monkeypatch.setenv("CC", compiler)
    assert library.load(torch.empty(0)) is None
    found = model(["DDW", "CF"])
    found.sum().backward()
    assert torch.isfinite(found).all()


@pytest.mark.usefixtures("_afresh")
def test_other_numbers_are_left_to_torch(monkeypatch):
    assert library.load(torch.empty(0, dtype=torch.bfloat16)) is None
    assert library.load(torch.empty(0, device="meta")) is None
    monkeypatch.setenv("TUPLET_NATIVE", "0")
    assert library.load(torch.empty(0)) is None


@pytest.mark.soak
@needs_compiler
@pytest.mark.usefixtures("_afresh")
def test_a_broken_file_is_made_anew_and_compilers_may_have_arguments(monkeypatch, tmp_path):
    monkeypatch.setenv("CC", "cc -DNOTHING")
    assert library.load(torch.empty(0)) is not None
    (made,) = (tmp_path / "native").iterdir()
    broken = tmp_path / "other" / "native" / made.name  # elsewhere: a loaded file is not looked at again
    broken.parent.mkdir(parents=True)
    broken.touch()
    monkeypatch.setenv("TUPLET_CACHE", str(tmp_path / "other"))
    library._load.cache_clear()
    assert library.load(torch.empty(0)) is not None
    assert broken.stat().st_size > 0


@pytest.mark.usefixtures("_afresh")
def test_without_a_folder_torch_serves(monkeypatch):
    def missing():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(library, "default_root", missing)
    assert library.load(torch.empty(0)) is None
