"""A model on disk: ``weights.safetensors`` and ``config.json``, from which it is built again; nothing in them is executed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tuplet.errors import RunError, TupletError
from tuplet.training.checkpoint import read_tensors, to_bytes
from tuplet.training.files import digest, make_folder, seal, unseal, write
from tuplet.training.summary import versions

if TYPE_CHECKING:
    from tuplet.datasets.task import Task

FORMAT = 1
WEIGHTS, CONFIG = "weights.safetensors", "config.json"


@dataclass(frozen=True)
class TaskInfo:
    """What a model was trained for: a task without its graphs; the fields are those of ``tuplet.datasets.Task``."""

    name: str
    level: str
    kind: str
    outputs: int
    loss: str
    metric: str
    node_types: Any = None
    node_dim: int | None = None
    edge_types: Any = None
    edge_dim: int | None = None
    directed: bool = False
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    shift: tuple[float, ...] | None = None
    scale: tuple[float, ...] | None = None
    targets: tuple[str, ...] = ()

    @classmethod
    def of(cls, task: Task) -> TaskInfo:
        found: dict[str, Any] = {item.name: getattr(task, item.name) for item in fields(cls)}
        return cls(**found)

    @classmethod
    def read(cls, plain: Mapping[str, Any]) -> TaskInfo:
        found: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in plain.items()
        }
        return cls(**found)

    def plain(self) -> dict[str, Any]:
        found = {item.name: getattr(self, item.name) for item in fields(self)}
        return {key: list(value) if isinstance(value, tuple) else value for key, value in found.items()}

    def natural(self, outputs: Tensor) -> Tensor:
        """Outputs in the units of the targets, as float64."""
        outputs = outputs.double()
        if self.kind != "regression" or self.mean is None or self.std is None:
            return outputs
        return outputs * outputs.new_tensor(self.std) + outputs.new_tensor(self.mean)


def model_options(model: nn.Module, given: Mapping[str, Any]) -> dict[str, Any]:
    """All options of a model, defaults included, as plain values: a later version's defaults will not change it."""
    config = getattr(model, "config", None)
    if not is_dataclass(config):
        return {key: _plain(value) for key, value in given.items()}
    return {item.name: _plain(getattr(config, item.name)) for item in fields(config) if item.name != "name"}


def _plain(value: Any) -> Any:
    """Encodings as short forms, sequences as lists."""
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def save_model(
    folder: Path, model: nn.Module, name: str, options: Mapping[str, Any], task: TaskInfo, facts: Mapping[str, Any]
) -> None:
    """Write a model folder; the config, which holds the checksum of the weights, comes last.

    Args:
        folder: made if it is not there.
        model: whose weights are saved.
        name, options: what ``tuplet.build`` made it from.
        task: what it was trained for.
        facts: anything else worth knowing (options of the training, seed, metrics).
    """
    make_folder("out", folder)
    content = to_bytes(model.state_dict())
    write(folder / WEIGHTS, content)
    config = {
        "format": FORMAT,
        "model": {"name": name, "options": model_options(model, options)},
        "task": task.plain(),
        "weights": {"sha256": digest(content), "bytes": len(content)},
        "versions": versions(),
        **facts,
    }
    write(folder / CONFIG, seal(config))


def load_model(folder: Path) -> tuple[nn.Module, TaskInfo, dict[str, Any]]:
    """The model of a folder in evaluation mode, what it was trained for, and the whole config."""
    from tuplet import build

    if not (folder / CONFIG).is_file():
        raise RunError(
            f"{folder}: expected a run folder or a model folder with {CONFIG}; there is none, or training has not ended"
        )
    config = unseal(folder / CONFIG, "the config of a saved model")
    if not isinstance(config.get("format"), int) or config["format"] > FORMAT:
        raise RunError(
            f"{folder / CONFIG}: expected format {FORMAT}; came {config.get('format')!r}. Use a newer tuplet."
        )
    try:
        name, options = config["model"]["name"], config["model"]["options"]
        task = TaskInfo.read(config["task"])
        checksum = config["weights"]["sha256"]
        with torch.random.fork_rng(devices=[]):
            model = build(name, **options)
    except (KeyError, TypeError, TupletError) as error:
        raise RunError(f"{folder / CONFIG}: expected a model that this tuplet can build; came {error}") from error
    weights = read_tensors(folder / WEIGHTS, checksum)
    kinds = {value.dtype for value in weights.values() if value.is_floating_point()}
    if kinds == {torch.float64}:
        model.double()
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise RunError(f"{folder / WEIGHTS}: expected the weights of {name}; came others ({reason})") from error
    return model.eval(), task, config
