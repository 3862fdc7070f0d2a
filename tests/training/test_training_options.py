"""Options: one dataclass, and YAML, command line, overrides and presets that agree with it."""

import argparse
from dataclasses import fields

import pytest
import yaml

import tuplet
from tuplet.encodings import parse
from tuplet.errors import OptionError
from tuplet.training import TrainOptions, preset, presets, resolve
from tuplet.training.settings import add_arguments, from_yaml, given, help_texts, override, split_settings, to_yaml


def parsed(*words):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return given(parser.parse_args(words))


def test_every_option_is_documented_and_on_the_command_line():
    texts = help_texts()
    assert list(texts) == [item.name for item in fields(TrainOptions)]
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    shown = parser.format_help()
    for item in fields(TrainOptions):
        assert len(texts[item.name]) > 5
        if item.name != "model_options":
            assert "--" + item.name.replace("_", "-") in shown


def test_yaml_comes_back_as_it_went(tmp_path):
    options = TrainOptions(
        "AS0:1^SN",
        {"dim": 32, "encodings": ["RWSE:20:28"]},
        epochs=7,
        lr=3e-5,
        seeds="0-2,7",
        folds=[1],
        clip=None,
        stop_at=0.5,
    )
    (tmp_path / "config.yaml").write_text(to_yaml(options))
    assert from_yaml(tmp_path / "config.yaml") == options
    assert options.seeds == (0, 1, 2, 7)


def test_encodings_as_objects_are_written_as_short_forms():
    options = TrainOptions(model_options={"encodings": [tuplet.encodings.RWSE(4, 5)], "node_types": (3, 4)})
    plain = yaml.safe_load(to_yaml(options))
    assert plain["model_options"] == {"encodings": ["RWSE:4:5"], "node_types": [3, 4]}


def test_text_becomes_what_the_option_is(tmp_path):
    """PyYAML reads 1e-3 as text; a command line has nothing but text."""
    (tmp_path / "config.yaml").write_text("lr: 1e-3\nepochs: '12'\nclip: none\ncompile: yes\nfolds: all\nseeds: 3\n")
    options = from_yaml(tmp_path / "config.yaml")
    assert (options.lr, options.epochs, options.clip, options.compile) == (1e-3, 12, None, True)
    assert (options.folds, options.seeds) == (None, (3,))
    said = parsed("--lr", "2e-4", "--seeds", "0-4", "--no-tensorboard", "--batch-tokens", "5000", "--precision", "bf16")
    options = TrainOptions.of(said)
    assert (options.lr, options.seeds, options.tensorboard) == (2e-4, (0, 1, 2, 3, 4), False)
    assert (options.batch_tokens, options.precision) == (5000, "bf16")


def test_the_command_line_says_nothing_that_was_not_said():
    assert parsed() == {}
    assert parsed("--epochs", "3") == {"epochs": "3"}


def test_overrides_reach_training_and_model():
    options = override(
        TrainOptions(model_options={"dim": 8, "heads": 2}),
        ["lr=3e-4", "dim=96", "encodings=[RWSE:20:28, DEG]", "degree=true"],
    )
    assert options.lr == 3e-4
    assert options.model_options == {"dim": 96, "heads": 2, "encodings": ["RWSE:20:28", "DEG"], "degree": True}


def test_a_word_that_an_option_knows_is_that_word():
    _, model = split_settings(["norm=none", "relation=none", "softmax=none", "virtual=3", "encodings=[RWSE:20:28]"])
    assert model == {"norm": "none", "relation": "none", "softmax": None, "virtual": 3, "encodings": ["RWSE:20:28"]}


@pytest.mark.parametrize(
    ("given", "warmup"), [({}, 50), ({"epochs": "5"}, 0), ({"epochs": 4000}, 100), ({"epochs": 100, "warmup": 7}, 7)]
)
def test_another_number_of_epochs_keeps_the_share_of_warm_up(given, warmup):
    assert resolve("zinc", given=given).warmup == warmup


def test_layers_are_preset_file_command_line_set(tmp_path):
    (tmp_path / "my.yaml").write_text("model: A2^LN\nlr: 1.0e-5\nepochs: 900\nmodel_options: {dim: 32, depth: 2}\n")
    options = resolve(
        "zinc", config=tmp_path / "my.yaml", given={"epochs": "800"}, settings=["depth=1", "batch_size=4"]
    )
    assert (options.model, options.lr, options.epochs, options.batch_size, options.warmup) == (
        "A2^LN",
        1e-5,
        800,
        4,
        20,
    )
    (tmp_path / "empty.yaml").write_text("model_options:\n")
    assert resolve("csl", config=tmp_path / "empty.yaml") == resolve("csl")
    shared = {"heads": 4, "dropout": 0.0, "pool": "add", "pool_unit": 559, "encodings": ["RWSE:20:28"]}
    assert options.model_options == {**shared, "depth": 1, "dim": 32}


@pytest.mark.parametrize("came", ["dim=16", "3", "[dim: 16]", "false"])
def test_options_of_the_model_that_are_none_are_refused(tmp_path, came):
    (tmp_path / "odd.yaml").write_text(f"model_options: {came}\n")
    with pytest.raises(OptionError, match="model_options: expected options by name"):
        resolve("csl", config=tmp_path / "odd.yaml")


@pytest.mark.parametrize(("dataset", "model", "variant"), presets())
def test_every_preset_builds_its_model(dataset, model, variant):
    options = TrainOptions.of(preset(dataset, "A2^Ngbh+" if model == "*" else model, variant or None))
    of_data = {"edge_types": 4} if options.model_options.get("edge_relation") else {}
    built = tuplet.build(options.model, **of_data, **options.model_options).config
    assert built.name == options.model
    assert all(getattr(built, key) == value for key, value in options.model_options.items() if key != "encodings")
    assert list(built.encodings) == [parse(text) for text in options.model_options.get("encodings", [])]
    assert "virtual" not in options.model_options or built.choices.virtual  # what does nothing is not said


# layers, heads, d, dropout, batch, lr, epochs, warm-up, virtual, pool, encodings, written down a second time
PROTOCOL = [
    ("zinc", "A2^LN", None, 10, 4, 64, 0.0, 32, 5e-4, 2000, 50, None, "add", ["RWSE:20:28"]),
    ("zinc", "A2^LN+VT", None, 10, 4, 64, 0.0, 32, 5e-4, 2000, 50, 6, "add", ["RWSE:20:28"]),
    ("zinc", "A2^Ngbh+", None, 8, 4, 64, 0.0, 32, 5e-4, 2000, 50, None, "add", ["RWSE:20:28"]),
    ("zinc", "A2^VT", None, 10, 4, 64, 0.0, 32, 1e-3, 2000, 50, 10, "add", ["RWSE:20:28"]),
    ("zinc", "A1,2^Ngbh", None, 10, 4, 64, 0.0, 32, 1e-3, 2000, 50, None, "add", ["RWSE:20:28", "EdgeRWSE:16:16"]),
    ("zinc", "AS0:1^SN+VS", None, 10, 4, 64, 0.0, 32, 1e-3, 2000, 50, 1, "add", ["RWSE:20:28"]),
    ("zinc", "AS0:1^SN", "SPE(All)", 10, 4, 96, 0.0, 128, 1e-3, 2000, 50, None, "add",
     ["SPE:37:37:functions=16:layers=8:hidden=64", "RWSE:20:16"]),
    ("zinc", "AS0:1^SN+VS", "SignNet(8)", 10, 4, 96, 0.0, 128, 1e-3, 2000, 50, 6, "add",
     ["SignNet:8:16:rho=mlp:phi_layers=8:rho_layers=4", "RWSE:20:16"]),
    ("zinc", "A2^Ngbh++VT", None, 8, 4, 64, 0.0, 32, 5e-4, 2000, 50, 1, "add", ["RWSE:20:28"]),
    ("alchemy", "A2^LN+VT", None, 16, 8, 128, 0.0, 128, 5e-4, 1000, 50, 6, "add",
     ["SPE:12:12:functions=16:layers=8:hidden=64", "RWSE:20:16", "EdgeRWSE:16:16"]),
    ("alchemy", "A2^Ngbh++VT", None, 8, 4, 64, 0.0, 32, 5e-4, 2000, 50, 6, "add",
     ["SPE:12:12:functions=16:layers=8:hidden=64", "RWSE:20:16", "EdgeRWSE:16:16"]),
    ("csl", "AS0:1^VS", None, 3, 4, 64, 0.0, 32, 1e-3, 200, 50, None, "add", None),
    ("molhiv", "A2^LN+VT", None, 10, 4, 64, 0.05, 32, 1e-4, 100, 5, 1, "mean", ["RWSE:16:16"]),
    ("peptides-func", "AS0:1^SN+VS", None, 8, 4, 120, 0.1, 128, 5e-4, 300, 10, 5, "mean", ["LapPE:10:16:model=deepset"]),
    ("csl", "A3^LN", None, 3, 4, 64, 0.0, 32, 1e-3, 200, 50, None, "add", None),
    ("csl", "A2^VT", "RWSE", 3, 4, 64, 0.0, 32, 1e-3, 200, 50, 3, "add", ["RWSE:20:28"]),
    ("edge-detection", "A2", "RWSE", 6, 4, 64, 0.0, 96, 1e-3, 200, 50, None, None, ["RWSE:20:16"]),
    ("counting", "A1", None, 3, 4, 256, 0.0, 256, 1e-3, 300, 50, None, "add", None),
    ("counting", "A2^Ngbh", None, 3, 4, 64, 0.0, 64, 1e-3, 300, 50, None, "add", None),
    ("webkb-texas", "AS0:1+bias", None, 2, 4, 64, 0.2, 1, 5e-4, 200, 10, None, None, ["LapPE:4:16", "EdgeRWSE:16:16"]),
]  # fmt: skip


@pytest.mark.parametrize("row", PROTOCOL, ids=lambda row: "-".join(map(str, row[:3])))
def test_presets_are_the_published_settings(row):
    options = TrainOptions.of(preset(*row[:3]))
    model = options.model_options
    found = [model.get(key) for key in ("depth", "heads", "dim", "dropout")]
    found += [options.batch_size, options.lr, options.epochs, options.warmup]
    found += [model.get(key) for key in ("virtual", "pool", "encodings")]
    assert found == list(row[3:])
    assert options.weight_decay == (0.0 if row[0].startswith("peptides") else 1e-5)
    assert (options.clip, options.schedule) == (1.0, "cosine")


def test_a_data_set_without_presets_has_the_defaults():
    assert resolve("mine.csv") == TrainOptions()
    assert resolve("mine.csv", given={"model": "A1"}).model == "A1"
    with pytest.raises(OptionError, match=r"variant: expected none, since mine.csv has no presets"):
        resolve("mine.csv", variant="RWSE")
    with pytest.raises(OptionError, match=r"variant: SPE\(8\) on zinc is for AS0:1\^SN, AS0:1\^SN\+VS; came A1"):
        resolve("zinc", variant="SPE(8)", given={"model": "A1"})
