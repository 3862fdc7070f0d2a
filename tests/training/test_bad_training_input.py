"""One table of malformed input: options, files, checkpoints, folders, permissions; and the sentence that each must give."""

import atexit
import json
import os
import shutil
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest
import torch
from training_cases import options, paths_and_cycles, sizes

from tuplet.errors import TupletError
from tuplet.training import TrainOptions, load, preset, read_options, resolve, train
from tuplet.training.checkpoint import Checkpoints
from tuplet.training.files import seal
from tuplet.training.settings import from_yaml, override


@contextmanager
def nobody():
    """As a user who owns nothing: permissions do not bind root."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def file(tmp_path, content, name="config.yaml"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@cache
def finished():
    """A finished run; made once, and copied by those who break it."""
    folder = Path(mkdtemp())
    atexit.register(shutil.rmtree, folder)
    train(paths_and_cycles(5), options(epochs=1), folder / "run", show=False)
    return folder / "run"


def trained(tmp_path):
    return Path(shutil.copytree(finished(), tmp_path / "run"))


def fails(task=None, out=None, **changes):
    train(task or paths_and_cycles(5), options(**changes), out, show=False)


def broken_model(tmp_path, name, change):
    """A trained model of which one file was changed by ``change``."""
    path = trained(tmp_path) / "model" / name
    path.write_bytes(change(path.read_bytes()))
    load(tmp_path / "run")


def other_config(tmp_path, **changes):
    """A model folder whose config says something else, with a fitting checksum."""
    path = trained(tmp_path) / "model" / "config.json"
    config = {**json.loads(path.read_bytes()), **changes}
    config.pop("sha256")
    path.write_bytes(seal(config))
    load(tmp_path / "run")


def resumed(tmp_path, change):
    folder = trained(tmp_path)
    change(folder)
    train(paths_and_cycles(5), options(epochs=1), folder, resume=True, show=False)


def closed_folder(tmp_path):
    (tmp_path / "closed").mkdir(mode=0o555)
    tmp_path.chmod(0o755)
    with nobody():
        fails(out=tmp_path / "closed")


def other_rights(tmp_path):
    """A run folder that belongs to someone else: its model can be read, its checkpoints cannot be written."""
    folder = trained(tmp_path)
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    with nobody():
        train(paths_and_cycles(5), options(epochs=1), folder, resume=True, show=False)


def hurt_all(folder):
    next(folder.rglob("result.json")).unlink()
    for path in folder.rglob("checkpoint-*.safetensors"):
        path.write_bytes(path.read_bytes()[:-1])


def other_checkpoint(folder):
    next(folder.rglob("result.json")).unlink()
    checkpoints = Checkpoints(next(folder.rglob("checkpoints")))
    _, facts = checkpoints.load()
    checkpoints.save({"model/weight": torch.zeros(3)}, facts)


BAD = {
    # options
    "an option that does not exist": (
        lambda tmp: TrainOptions.of({"batchsize": 3}),
        "batchsize: no such training option; did you mean batch_size?",
    ),
    "no epochs": (lambda tmp: TrainOptions(epochs=0), "epochs: expected a number of at least 1; came 0"),
    "half an epoch": (lambda tmp: TrainOptions(epochs=1.5), "epochs: expected a whole number; came 1.5"),
    "a negative learning rate": (lambda tmp: TrainOptions(lr=-1), "lr: expected a positive number; came -1.0"),
    "an infinite clip": (lambda tmp: TrainOptions(clip=float("inf")), "clip: expected a positive number; came inf"),
    "a rate that is a word": (lambda tmp: TrainOptions(lr="fast"), "lr: expected a number; came 'fast'"),
    "an unknown precision": (
        lambda tmp: TrainOptions(precision="fp16"),
        "precision: expected one of 'fp32', 'tf32', 'bf16', 'fp64'; came 'fp16'",
    ),
    "a truth value that is none": (
        lambda tmp: TrainOptions(compile="maybe"),
        "compile: expected true or false; came 'maybe'",
    ),
    "seeds backwards": (
        lambda tmp: TrainOptions(seeds="4-0"),
        "seeds: expected at least one number, each once; came '4-0'",
    ),
    "a seed twice": (lambda tmp: TrainOptions(seeds="1,1"), "seeds: expected at least one number, each once"),
    "negative seeds": (lambda tmp: TrainOptions(seeds=[-1]), "seeds: expected numbers such as 0-4"),
    "a warm-up longer than the run": (
        lambda tmp: TrainOptions(epochs=5, warmup=9),
        "warmup: expected at most epochs = 5; came 9",
    ),
    "a plateau factor above 1": (
        lambda tmp: TrainOptions(plateau_factor=2),
        "plateau_factor: expected a number between 0 and 1",
    ),
    "model options that are a list": (
        lambda tmp: TrainOptions(model_options=["dim"]),
        "model_options: expected options by name",
    ),
    "no model name": (lambda tmp: TrainOptions(model=""), "model: expected a text; came ''"),
    # overrides, presets
    "a setting without a value": (lambda tmp: override(TrainOptions(), ["lr"]), "--set: expected key=value; came 'lr'"),
    "a setting nobody has": (
        lambda tmp: override(TrainOptions(), ["droput=0.1"]),
        "--set: droput is no option of training or model; did you mean dropout?",
    ),
    "a variant that does not exist": (
        lambda tmp: preset("csl", "A2", "SPE"),
        "variant: expected one of LapPE, RWSE for csl; came 'SPE'",
    ),
    # YAML
    "no such config": (lambda tmp: from_yaml(tmp / "none.yaml"), "config: expected a YAML file; "),
    "a config that is no YAML": (lambda tmp: from_yaml(file(tmp, "lr: [1, 2")), "config: expected YAML in "),
    "a config that is no text": (lambda tmp: from_yaml(file(tmp, b"\xff\xfe\x00\x81")), "config: expected YAML in "),
    "a config that is a list": (lambda tmp: from_yaml(file(tmp, "- lr")), "config: expected options by name in "),
    "a config with code": (
        lambda tmp: from_yaml(file(tmp, "lr: !!python/object/apply:os.getcwd []")),
        "config: expected YAML in ",
    ),
    "a config that is a folder": (lambda tmp: resolve("zinc", config=tmp), "config: expected a YAML file; "),
    # what is to be trained
    "an unknown model": (lambda tmp: fails(model="B2"), "unknown model name 'B2': a name begins with A and an order"),
    "an unknown model option": (lambda tmp: fails(model_options={"width": 3}), "width: no such option"),
    "outputs against the task": (
        lambda tmp: fails(model_options={"outputs": 9}),
        "model_options: outputs is 2 by the task rings; came 9",
    ),
    "a GPU that is not there": (lambda tmp: fails(accelerator="cuda"), "accelerator: expected 'auto' or 'cpu'"),
    "more processes than cores": (lambda tmp: fails(devices=5000), "processes that its cores can run here; came 5000"),
    "patience without validation": (
        lambda tmp: fails(unvalidated(), patience=2),
        "patience: 2 needs a validation part; split 0 has none",
    ),
    "no target to learn from": (
        lambda tmp: fails(blank()),
        "train: expected at least one target to learn from in split 0; all are missing",
    ),
    "a class below -1": (
        lambda tmp: fails(below()),
        "y: expected classes 0..1, or -1 where one is missing; came -2..1",
    ),
    "a standard deviation of zero": (lambda tmp: fails(flat()), "mean, std: expected 2 numbers each, std positive"),
    "an infinite target": (
        lambda tmp: fails(infinite()),
        "y: expected finite numbers, or NaN where a target is missing",
    ),
    # folders and permissions
    "a file where the folder should be": (
        lambda tmp: fails(out=file(tmp, "", "f") / "run"),
        "out: expected a folder that can be written to; ",
    ),
    "a folder without permission": (closed_folder, "out: expected a folder that can be written to; "),
    "a run of someone else": (other_rights, "out: expected a folder that can be written to; "),
    "a folder with a run": (
        lambda tmp: fails(out=trained(tmp)),
        "holds a run already; resume it (--resume), or choose another folder",
    ),
    "options of no run": (lambda tmp: read_options(tmp), "expected a run folder with config.yaml; there is none"),
    "a run folder that is not there": (
        lambda tmp: load(tmp / "none"),
        "expected the folder of a run or a model; there is none",
    ),
    "a device that is not there": (
        lambda tmp: load(trained(tmp), "gpu:7"),
        "device: expected one that torch has here, as 'cpu'; came 'gpu:7'",
    ),
    "a folder without a model": (
        lambda tmp: load(tmp),
        "expected a run folder or a model folder with config.json; there is none",
    ),
    # saved models
    "a flipped bit in the weights": (
        lambda tmp: broken_model(tmp, "weights.safetensors", lambda b: b[:-1] + bytes([b[-1] ^ 1])),
        "weights.safetensors: expected the content that was saved",
    ),
    "weights cut short": (
        lambda tmp: broken_model(tmp, "weights.safetensors", lambda b: b[:100]),
        "its checksum does not fit",
    ),
    "a config cut short": (
        lambda tmp: broken_model(tmp, "config.json", lambda b: b[:100]),
        "came a file that is no JSON",
    ),
    "a config changed by hand": (
        lambda tmp: broken_model(tmp, "config.json", lambda b: b.replace(b'"outputs": 2', b'"outputs": 3')),
        "whose checksum does not fit",
    ),
    "a config without a checksum": (
        lambda tmp: broken_model(tmp, "config.json", lambda b: b"{}"),
        "came JSON without a checksum",
    ),
    "a config of the future": (
        lambda tmp: other_config(tmp, format=99),
        "expected format 1; came 99. Use a newer tuplet.",
    ),
    "a config of an unknown model": (
        lambda tmp: other_config(tmp, model={"name": "Z9", "options": {}}),
        "expected a model that this tuplet can build",
    ),
    "weights of another model": (
        lambda tmp: other_config(tmp, model={"name": "A1", "options": {}}),
        "weights.safetensors: expected the weights of A1",
    ),
    # what a run goes on from
    "all checkpoints damaged": (
        lambda tmp: resumed(tmp, hurt_all),
        "expected a good checkpoint; all 1 are damaged. Remove them to begin again.",
    ),
    "a checkpoint of another model": (
        lambda tmp: resumed(tmp, other_checkpoint),
        "checkpoint: expected the state of this model; came another",
    ),
    "damaged options": (
        lambda tmp: resumed(tmp, lambda f: (f / "config.yaml").write_text("epochs: many")),
        "epochs: expected a whole number; came 'many'",
    ),
}


def unvalidated():
    task = paths_and_cycles(5)
    return replace(task, splits=({"train": task.splits[0]["train"]},))


def blank():
    task = paths_and_cycles(5)
    for graph in task.graphs:
        graph.y = torch.tensor([-1])
    return task


def below():
    task = paths_and_cycles(5)
    task.graphs[0].y = torch.tensor([-2])
    return task


def flat():
    task = sizes()
    object.__setattr__(task, "std", (1.0, 0.0))
    return task


def infinite():
    task = sizes()
    task.graphs[3].y = torch.tensor([[1.0, torch.inf]])
    return task


@pytest.mark.parametrize("name", BAD)
@pytest.mark.filterwarnings("ignore:a checkpoint is damaged")
def test_bad_input_is_told_in_a_sentence(tmp_path, name):
    make, words = BAD[name]
    with pytest.raises(TupletError) as caught:
        make(tmp_path)
    assert words in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_the_tables_are_long_enough_and_every_sentence_says_something():
    """With the table of malformed data, in tests/datasets, there are more than 130."""
    assert len(BAD) >= 50
    assert min(len(words) for _, words in BAD.values()) >= 15
