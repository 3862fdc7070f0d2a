"""Settings by data set and model that reproduce the paper's tables: the YAML files of ``tuplet/presets``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from tuplet._extras import require
from tuplet._values import convert
from tuplet.errors import OptionError
from tuplet.training.options import TrainOptions, refuse_unknown
from tuplet.training.settings import merge, read_yaml, split_settings

ANY = "*"
"""Stands for every model that a file does not name."""


@dataclass(frozen=True)
class PresetFile:
    """One file: settings of one or a few data sets.

    Args:
        datasets: their names.
        defaults: what all models share.
        models: what a model has of its own; the first is the one to try first, "*" stands for all others.
        variants: what a variant (of encodings, mostly) changes; under "models" for which models, if not for all, and what those have of
            their own.
        notes: what a reader of the paper should know.
    """

    datasets: tuple[str, ...]
    defaults: Mapping[str, Any]
    models: Mapping[str, Mapping[str, Any]]
    variants: Mapping[str, Mapping[str, Any]]
    notes: tuple[str, ...]


@cache
def preset_files() -> tuple[PresetFile, ...]:
    """All files, in the order of their names."""
    library = require("yaml", "train")
    found = []
    for path in sorted(files("tuplet").joinpath("presets").iterdir(), key=lambda item: item.name):
        if path.name.endswith(".yaml"):
            content = library.safe_load(path.read_text(encoding="utf-8"))
            found.append(
                PresetFile(
                    datasets=tuple(content["datasets"]),
                    defaults=content["defaults"],
                    models=content["models"],
                    variants=content.get("variants", {}),
                    notes=tuple(content.get("notes", ())),
                )
            )
    return tuple(found)


def preset(dataset: str, model: str | None = None, variant: str | None = None) -> dict[str, Any]:
    """Options by name for a data set and a model; empty for a data set that has no settings.

    Args:
        dataset: its name.
        model: a model name; the first of the file if None. One that the file does not name has what all models share.
        variant: "RWSE", "SignNet(8)", ..: see ``presets``.
    """
    file = next((file for file in preset_files() if dataset in file.datasets), None)
    if file is None:
        if variant is not None:
            raise OptionError(f"variant: expected none, since {dataset} has no presets; came {variant!r}")
        return {} if model is None else {"model": model}
    if variant is not None and variant not in file.variants:
        known = ", ".join(file.variants) or "none"
        raise OptionError(f"variant: expected one of {known} for {dataset}; came {variant!r}")
    model = next(iter(file.models)) if model is None else model
    own = file.models.get(model, file.models.get(ANY, {}))
    more = dict(file.variants[variant]) if variant is not None else {}
    fitting = more.pop("models", {model: {}})
    if model not in fitting:
        raise OptionError(f"variant: {variant} on {dataset} is for {', '.join(fitting)}; came {model}")
    return merge({"model": model}, file.defaults, own, more, fitting[model])


def presets() -> list[tuple[str, str, str]]:
    """Every data set, model and variant that has settings; "*" for all other models, "" for no variant."""
    return [
        (dataset, model, variant)
        for file in preset_files()
        for dataset in file.datasets
        for model in file.models
        for variant in ("", *file.variants)
        if not variant or model in file.variants[variant].get("models", [model])
    ]


def notes() -> list[str]:
    """What a reader of the paper should know of the settings, each with the data sets it is about."""
    return [f"{', '.join(file.datasets)}: {note}" for file in preset_files() for note in file.notes]


def lasting(settings: Mapping[str, Any], epochs: int) -> dict[str, Any]:
    """The settings for another number of epochs; the warm-up keeps its share of them."""
    planned, warmup = settings.get("epochs"), settings.get("warmup", 0)
    return {**settings, "epochs": epochs, "warmup": warmup * epochs // planned if planned else warmup}


def resolve(
    dataset: str | None = None,
    *,
    variant: str | None = None,
    config: str | Path | None = None,
    given: Mapping[str, Any] | None = None,
    settings: Sequence[str] = (),
) -> TrainOptions:
    """The options in force: preset, then the YAML file, then what the command line says, then ``--set key=value``.

    Where these say for how many epochs, and nothing of a warm-up, the preset's keeps its share of them.

    Args:
        dataset: whose preset is taken; None for the plain defaults.
        variant: of the preset.
        config: a YAML file.
        given: options by name, as text or values (``tuplet.training.settings.given``).
        settings: "key=value" words.
    """
    file = read_yaml(config) if config is not None else {}
    own, model = split_settings(settings)
    said = merge(file, given or {}, own)
    for name in said:
        refuse_unknown(name)
    base = preset(dataset, said.get("model"), variant) if dataset is not None else {}
    if "epochs" in said and "warmup" not in said:
        base = lasting(base, convert("epochs", int, said["epochs"]))
    return TrainOptions.of(merge(base, said, {"model_options": model}))
