"""Options from YAML files and from a command line that is derived from the dataclass, and ``key=value`` overrides."""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, replace
from difflib import get_close_matches
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin

from tuplet._extras import require
from tuplet._values import convert, guess
from tuplet.errors import OptionError
from tuplet.training.options import TrainOptions, field_types


def to_yaml(options: TrainOptions) -> str:
    """All options as YAML, in the order of the dataclass."""
    text: str = require("yaml", "train").safe_dump(options.plain(), sort_keys=False, allow_unicode=True)
    return text


def from_yaml(source: str | Path) -> TrainOptions:
    """Options from a YAML file; what it does not name has its default."""
    return TrainOptions.of(read_yaml(source))


def read_yaml(path: str | Path) -> dict[str, Any]:
    """A YAML file that holds a mapping; nothing in it is executed."""
    library = require("yaml", "train")
    try:
        values = library.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionError(f"config: expected a YAML file; {str(path)!r} gave {error.strerror!r}") from error
    except (library.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise OptionError(f"config: expected YAML in {str(path)!r}; came something else: {reason}") from error
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise OptionError(f"config: expected options by name in {str(path)!r}; came a {type(values).__name__}")
    return values


def merge(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Options by name, later ones first; options of the model are merged one by one, and none of them (an empty key) change nothing."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            if key != "model_options":
                merged[key] = value
            elif value is not None:
                merged[key] = {**merged.get(key, {}), **convert(key, Mapping, value)}
    return merged


def override(options: TrainOptions, settings: Sequence[str]) -> TrainOptions:
    """Options with some replaced by ``key=value`` words: training options by name, all others are the model's.

    >>> override(options, ["lr=3e-4", "dim=96", "encodings=[RWSE:20:28]"])
    """
    own, model = split_settings(settings)
    return replace(options, **own, model_options={**options.model_options, **model}) if own or model else options


def split_settings(settings: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """``key=value`` words, apart: options of the training as text, options of the model as values.

    A name that neither the training nor any model has is refused here if it looks like one of the training's.
    """
    from tuplet.models import ModelConfig
    from tuplet.models.baselines import BaselineConfig
    from tuplet.models.config import CHOICES

    known = field_types()
    of_models = {*ModelConfig.__dataclass_fields__, *BaselineConfig.__dataclass_fields__} - {"name"}
    own: dict[str, Any] = {}
    model: dict[str, Any] = {}
    for setting in settings:
        key, sign, value = setting.partition("=")
        key = key.strip().removeprefix("model_options.").replace("-", "_")
        if not sign or not key:
            raise OptionError(f"--set: expected key=value; came {setting!r}")
        if key == "model_options":
            raise OptionError(f"--set: expected an option of the model by its own name, as in dim=64; came {setting!r}")
        if key in known:
            own[key] = value
        elif key in of_models:
            word = value.strip()  # norm=none is the name of a norm, not nothing
            model[key] = word if word in CHOICES.get(key, ()) else guess(value)
        else:
            close = get_close_matches(key, [*known, *of_models], n=1)
            hint = f"did you mean {close[0]}?" if close else "tuplet train --help lists the training's"
            raise OptionError(f"--set: {key} is no option of training or model; {hint}")
    return own, model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One argument for each option; those that are not given leave no trace, so that presets and files have their say."""
    texts = help_texts()
    for item in fields(TrainOptions):
        if item.name == "model_options":
            continue
        kind = field_types()[item.name]
        default = "none" if item.default is None else item.default
        text = f"{texts[item.name]} ({_shown(default)})".replace("%", "%%")
        flag = "--" + item.name.replace("_", "-")
        if kind is bool:
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS, help=text)
        else:
            parser.add_argument(flag, default=argparse.SUPPRESS, metavar=_metavar(kind), help=text)


def given(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options that stood on the command line, as text."""
    return {name: getattr(arguments, name) for name in field_types() if hasattr(arguments, name)}


def help_texts() -> dict[str, str]:
    """What the dataclass's docstring says about each option, on one line."""
    lines = inspect.cleandoc(TrainOptions.__doc__ or "").partition("Args:\n")[2].splitlines()
    texts: dict[str, str] = {}
    for line in lines:
        named = re.match(r"    (\w+): (.*)", line)
        if named is not None:
            name = named[1]
            texts[name] = named[2]
        elif line.strip():
            texts[name] += " " + line.strip()
    return {name: text.rstrip(".") for name, text in texts.items()}


def _metavar(kind: Any) -> str:
    if get_origin(kind) is UnionType:
        kind = next(part for part in get_args(kind) if part is not type(None))
    if get_origin(kind) is Literal:
        return "{" + ",".join(get_args(kind)) + "}"
    return {int: "N", float: "X", str: "NAME"}.get(kind, "LIST")


def _shown(default: Any) -> str:
    if default is MISSING:
        return ""
    return (
        ",".join(map(str, default))
        if isinstance(default, tuple)
        else str(default).lower()
        if isinstance(default, bool)
        else str(default)
    )
