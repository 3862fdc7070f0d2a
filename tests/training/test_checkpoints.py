"""Checkpoints: what is written comes back bit by bit; a damaged one gives way to the one before; a full disk harms nothing."""

import errno
import os
import resource
import signal
import warnings

import pytest
import torch
from training_cases import options, paths_and_cycles

from tuplet.training import RunError, train
from tuplet.training import files as training_files
from tuplet.training.checkpoint import Checkpoints
from tuplet.training.files import seal, unseal, write


def tensors(number):
    return {"a/b": torch.arange(6.0).view(2, 3) + number, "random": torch.get_rng_state(), "n": torch.tensor(number)}


def filled(folder, count=3, keep=2):
    checkpoints = Checkpoints(folder, keep)
    for number in range(1, count + 1):
        checkpoints.save(tensors(number), {"epoch": number, "loss": 0.1 + 0.2})
    return checkpoints


def flip(path, place=-3):
    content = bytearray(path.read_bytes())
    content[place] ^= 4
    path.write_bytes(bytes(content))


def test_what_is_saved_comes_back_exactly(tmp_path):
    found, facts = filled(tmp_path).load()
    assert facts == {"epoch": 3, "loss": 0.30000000000000004}
    for name, value in tensors(3).items():
        assert torch.equal(found[name], value)
        assert found[name].dtype == value.dtype


def test_the_last_ones_are_kept_and_rubbish_goes(tmp_path):
    checkpoints = filled(tmp_path, 5, keep=2)
    assert checkpoints.numbers() == [4, 5]
    (tmp_path / "checkpoint-00000006.safetensors").write_bytes(b"tensors whose facts were never written")
    (tmp_path / "checkpoint-00000006.json.part").write_bytes(b"{")
    again = Checkpoints(tmp_path, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"checkpoint-0000000{number}.{end}" for number in (4, 5) for end in ("json", "safetensors")
    ]
    assert again.load()[1]["epoch"] == 5


def test_no_checkpoint_is_none(tmp_path):
    assert Checkpoints(tmp_path / "new").load() is None


@pytest.mark.parametrize("end", ["json", "safetensors"])
@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "remove"])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path, end, damage):
    checkpoints = filled(tmp_path)
    path = tmp_path / f"checkpoint-00000003.{end}"
    if damage == "flip":
        flip(path, -30)
    elif damage == "remove":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[: 40 if damage == "truncate" else 0])
    if (end, damage) == ("json", "remove"):
        found = checkpoints.load()  # without its facts it never was one
    else:
        with pytest.warns(UserWarning, match="a checkpoint is damaged and the one before it is used"):
            found = checkpoints.load()
    assert found[1]["epoch"] == 2
    checkpoints.save(tensors(9), {"epoch": 9})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert checkpoints.load()[1]["epoch"] == 9


def test_every_single_flipped_bit_of_the_facts_is_noticed(tmp_path):
    path = tmp_path / "facts.json"
    content = seal({"epoch": 3, "history": [0.25, None], "text": "é"})
    for place in range(len(content)):
        for bit in range(8):
            changed = bytearray(content)
            changed[place] ^= 1 << bit
            path.write_bytes(bytes(changed))
            try:
                found = unseal(path, "facts")
            except RunError:
                continue
            assert found == {"epoch": 3, "history": [0.25, None], "text": "é"}  # white space only


def test_all_damaged_is_an_error(tmp_path):
    checkpoints = filled(tmp_path)
    for path in tmp_path.glob("*.safetensors"):
        flip(path)
    with (
        pytest.warns(UserWarning, match="damaged"),
        pytest.raises(RunError, match="expected a good checkpoint; all 2 are damaged"),
    ):
        checkpoints.load()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
def test_a_full_disk_leaves_the_old_content(tmp_path, monkeypatch, code):
    path = tmp_path / "file"
    write(path, b"old")

    def full(number):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(training_files.os, "fsync", full)
    with pytest.raises(RunError, match="what was saved before is still good"):
        write(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_run_on_a_disk_that_fills_up_stops_in_words_and_goes_on_later(tmp_path):
    """A real limit on the size of files: the kernel refuses to write more."""
    task = paths_and_cycles(7)
    setting = options(epochs=6, checkpoint_seconds=0, model_options={"dropout": 0.2})
    whole = train(task, setting, tmp_path / "whole", show=False)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    assert signal.getsignal(signal.SIGXFSZ) == signal.SIG_IGN  # so that Python sees an error and not a signal
    first = options(epochs=6, checkpoint_seconds=0, model_options={"dropout": 0.2})
    sizes = [path.stat().st_size for path in (tmp_path / "whole").rglob("checkpoint-*.safetensors")]
    try:
        # the first checkpoints have no best weights yet and are smaller than the later ones
        resource.setrlimit(resource.RLIMIT_FSIZE, (max(sizes) - 1000, hard))
        with pytest.raises(
            RunError, match=r"checkpoint-\d+\.safetensors: expected a file that can be written; came 'File too large'"
        ):
            train(task, first, tmp_path / "full", show=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list((tmp_path / "full").rglob("checkpoint-*.json"))
    later = train(task, first, tmp_path / "full", resume=True, show=False)
    assert later.results[0].history.train_loss == whole.results[0].history.train_loss
    weights = [(tmp_path / name / "model" / "weights.safetensors").read_bytes() for name in ("whole", "full")]
    assert weights[0] == weights[1]
