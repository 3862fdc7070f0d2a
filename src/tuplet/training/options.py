"""The settings of a training run: one frozen dataclass from which command line and YAML are derived."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any, Literal, get_type_hints

from tuplet._values import convert
from tuplet.errors import OptionError
from tuplet.training.values import numbers


@dataclass(frozen=True)
class TrainOptions:
    """Settings of a training run; where the paper has one, the default is the paper's (appendix E).

    Values are converted to the declared types, so that text from a command line or a YAML file ("1e-3", "0-4") will do.

    Args:
        model: name of the model, as for ``tuplet.build``.
        model_options: options of ``tuplet.build``; what the task itself says (features, outputs) need not be repeated.
        epochs: at most this many passes over the training set.
        batch_size: graphs a batch.
        batch_tokens: tokens a batch at most, instead of a number of graphs; a graph with more makes a batch of its own.
        accumulate: batches whose gradients make one step; the loss is the mean over all of them.
        lr: the highest learning rate.
        weight_decay: of AdamW.
        schedule: after the warm-up "cosine" (half a cosine down to 0), "plateau" (lower where validation stagnates) or "constant".
        warmup: epochs in which the learning rate rises linearly from 1e-6 lr.
        plateau_factor: what the plateau schedule multiplies the learning rate by.
        plateau_patience: epochs without improvement after which it does.
        min_lr: the plateau schedule goes no lower, and ends the run when it would.
        settle_norms: epochs after which batch norms keep the statistics they have, in training as in evaluation; none for never. What
            they take away then no longer depends on the other graphs of a batch, which sums over tokens multiply.
        average: validate and keep not the weights but a moving average of them, over about so many epochs: at the end of each it goes
            this share (1 / average) of the way to the weights. None for the weights themselves.
        clip: largest norm of the gradient of all weights together; none for no limit.
        precision: of training steps: "fp32", "tf32", "bf16" (mixed) or "fp64"; evaluation is in fp32 (or fp64) always.
        compile: compile training steps with torch.compile.
        seeds: one run a seed (of weights, order of graphs and dropout): "0-4", "0,3" or a list.
        folds: numbers of the task's splits to run, in the form of seeds; all of them if not given.
        patience: stop after so many epochs without improvement on the validation set.
        stop_at: stop once the validation metric is this good.
        accelerator: "auto", "cpu" or "cuda".
        devices: processes, each with its share of every batch.
        checkpoint_seconds: at most about this much work is lost when a run is killed; 0 saves after every step.
        keep: how many checkpoints are kept.
        tensorboard: write logs for TensorBoard.
    """

    model: str = "A2^LN"
    model_options: Mapping[str, Any] = field(default_factory=dict)
    epochs: int = 100
    batch_size: int = 32
    batch_tokens: int | None = None
    accumulate: int = 1
    lr: float = 1e-3
    weight_decay: float = 1e-5
    schedule: Literal["cosine", "plateau", "constant"] = "cosine"
    warmup: int = 0
    plateau_factor: float = 0.5
    plateau_patience: int = 10
    min_lr: float = 0.0
    settle_norms: int | None = None
    average: int | None = None
    clip: float | None = 1.0
    precision: Literal["fp32", "tf32", "bf16", "fp64"] = "fp32"
    compile: bool = False
    seeds: tuple[int, ...] = (0,)
    folds: tuple[int, ...] | None = None
    patience: int | None = None
    stop_at: float | None = None
    accelerator: Literal["auto", "cpu", "cuda"] = "auto"
    devices: int = 1
    checkpoint_seconds: float = 60.0
    keep: int = 2
    tensorboard: bool = True

    def __post_init__(self) -> None:
        for name, kind in field_types().items():
            value = getattr(self, name)
            value = _numbers(name, value) if name in ("seeds", "folds") else convert(name, kind, value)
            object.__setattr__(self, name, value)
        for name, (least, words) in LEAST.items():
            value = getattr(self, name)
            if value is not None and not least(value):
                raise OptionError(f"{name}: expected {words}; came {value}")
        if self.warmup > self.epochs:
            raise OptionError(f"warmup: expected at most epochs = {self.epochs}; came {self.warmup}")

    def refuse_without_validation(self, fold: int) -> None:
        """Refuse options that read a validation metric, where a split has no validation part."""
        for name, said in (
            ("schedule", self.schedule == "plateau"),
            ("patience", self.patience is not None),
            ("stop_at", self.stop_at is not None),
        ):
            if said:
                raise OptionError(f"{name}: {getattr(self, name)!r} needs a validation part; split {fold} has none")

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> TrainOptions:
        """From a mapping; a key that is no option is refused with the nearest one."""
        for name in values:
            refuse_unknown(name)
        return cls(**values)

    def plain(self) -> dict[str, Any]:
        """As a dict of numbers, texts, lists and dicts, for YAML and JSON; ``of`` reads it again."""
        found = {item.name: getattr(self, item.name) for item in fields(self)}
        found["model_options"] = {key: _plain(value) for key, value in self.model_options.items()}
        return {key: list(value) if isinstance(value, tuple) else value for key, value in found.items()}


UNBOUND = ("accelerator", "devices", "checkpoint_seconds", "keep", "tensorboard")
"""Options that a run may change when it is continued: what it computes does not depend on them."""


def _number_above(low: float, or_equal: bool = True) -> Callable[[float], bool]:
    return (lambda value: low <= value < float("inf")) if or_equal else (lambda value: low < value < float("inf"))


LEAST: dict[str, tuple[Callable[[Any], bool], str]] = {
    **{
        name: (_number_above(1), "a number of at least 1")
        for name in (
            "epochs",
            "batch_size",
            "batch_tokens",
            "accumulate",
            "plateau_patience",
            "patience",
            "settle_norms",
            "average",
            "devices",
            "keep",
        )
    },
    **{
        name: (_number_above(0), "a number of at least 0")
        for name in ("warmup", "weight_decay", "min_lr", "checkpoint_seconds")
    },
    **{name: (_number_above(0, False), "a positive number") for name in ("lr", "clip")},
    "plateau_factor": (lambda value: 0 < value < 1, "a number between 0 and 1"),
    "stop_at": (lambda value: value == value, "a number"),
}
"""What each number must be, as a test and in words."""


def field_types() -> dict[str, Any]:
    """The declared type of each option."""
    return get_type_hints(TrainOptions)


def refuse_unknown(name: str) -> None:
    """Refuse a name that is no option, and name the nearest one."""
    known = field_types()
    if name not in known:
        close = get_close_matches(str(name), known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"expected one of {', '.join(known)}"
        raise OptionError(f"{name}: no such training option; {hint}")


def _numbers(name: str, value: Any) -> tuple[int, ...] | None:
    return None if name == "folds" and value in (None, "all", "none") else numbers(name, value)


def _plain(value: Any) -> Any:
    """Encodings as their short forms, tuples as lists."""
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
