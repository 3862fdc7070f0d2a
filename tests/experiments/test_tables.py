"""The files of the paper's tables: every row is readable, complete, and builds the model that it names."""

from importlib.resources import files

import pytest
import torch

import tuplet
from tuplet.errors import OptionError
from tuplet.experiments.jobs import Job, select
from tuplet.experiments.table import TABLES, Published, _row, read_table
from tuplet.training.presets import preset

FEATURES = {
    "csl": {"outputs": 10},
    "counting": {"outputs": 1},
    "edge-detection": {"task": "edge", "outputs": 2, "node_types": 28},
    "zinc": {"node_types": 28, "edge_types": 4},
    "molhiv": {"node_types": [119, 5], "edge_types": [5, 6]},
    "peptides-func": {"node_types": [119, 5], "edge_types": [5, 6], "outputs": 10},
    "peptides-struct": {"node_types": [119, 5], "edge_types": [5, 6], "outputs": 11},
    "alchemy": {"node_types": 6, "edge_types": 4, "outputs": 12},
    "webkb-cornell": {"task": "node", "outputs": 5, "node_dim": 30, "directed": True},
    "webkb-texas": {"task": "node", "outputs": 5, "node_dim": 30, "directed": True},
    "webkb-wisconsin": {"task": "node", "outputs": 5, "node_dim": 30, "directed": True},
}
"""What each data set says of its graphs, with fewer features than the real ones."""
ROWS = [(key, row.slug) for key in TABLES for row in read_table(key).rows]


def test_every_folder_is_a_table():
    folder = files("tuplet").joinpath("experiments", "tables")
    assert sorted(item.name for item in folder.iterdir()) == sorted(TABLES)


@pytest.mark.parametrize("key", TABLES)
def test_a_table_says_what_it_shows(key):
    table = read_table(key)
    assert table.paper.startswith("Table ")
    assert table.title
    assert len({row.slug for row in table.rows}) == len(table.rows)
    assert len({row.name for row in table.rows}) == len(table.rows)
    for column in table.columns:
        assert column.title
        assert column.better in ("lower", "higher", None)
        assert table.kind == "growth" or preset(column.dataset), f"{column.dataset} has no presets"


@pytest.mark.parametrize("key, slug", ROWS)
def test_a_row_has_published_numbers_and_something_to_run_or_a_source(key, slug):
    row = read_table(key).row(slug)
    assert row.paper
    assert row.model is not None or row.adopted is not None
    for published in row.paper.values():
        assert published.mean == published.mean
        assert published.std is None or published.std >= 0


def test_sources_that_the_paper_names_are_named():
    """Only for three tables does the paper leave open whose numbers it adopted."""
    silent = {key for key, slug in ROWS if "not said" in (read_table(key).row(slug).adopted or "")}
    assert silent == {"molhiv", "lrgb", "webkb"}


def test_rows_without_a_column_are_the_known_ones():
    """The paper has no chordal 4-cycle, one split of Alchemy, no memory, and no largest graph."""
    missing = {
        (table.key, column.key)
        for table in map(read_table, TABLES)
        for column in table.columns
        if any(column.key not in row.paper for row in table.rows)
    }
    assert missing == {
        ("counting", "chordal4"),
        ("alchemy-pe", "authors"),
        ("alchemy-pe", "official"),
        ("complexity", "cpu-memory"),
        ("complexity", "cuda-memory"),
        ("scalability", "largest"),
    }


@pytest.mark.parametrize("key", [key for key in TABLES if key != "complexity"])
def test_every_row_builds_its_model_with_the_options_of_its_task(key):
    table = read_table(key)
    built = set()
    for job in select(table, seeds=(0,)):
        options, column = job.options(), job.described()[2]
        assert options.seeds == (0,)
        assert options.model == table.row(job.row).model
        assert dict(options.model_options).get("softmax", "") == job.form
        if (job.row, job.form, column.dataset) in built:
            continue
        built.add((job.row, job.form, column.dataset))
        small = {"depth": 1, **{name: value for name, value in options.model_options.items() if name != "depth"}}
        assert tuplet.build(options.model, **FEATURES[column.dataset], **small).config.dim == small["dim"]


def test_rows_of_table_1_build_their_models():
    for job in select(read_table("complexity"), columns=["cpu"]):
        row = job.described()[1]
        assert row.start >= 2
        assert row.expected["cpu-memory"] == row.expected["cuda-memory"]
        assert row.paper["cpu-time"] == row.paper["cuda-time"]
        assert tuplet.build(row.model, dim=16, depth=1, **row.set.get("model_options", {})) is not None


def test_settings_are_those_of_the_presets():
    job = Job("zinc", "a2-ln-vt", "mae", 3, "groups")
    options = job.options()
    expected = preset("zinc", "A2^LN+VT")
    for name in ("lr", "epochs", "warmup", "batch_size", "weight_decay"):
        assert getattr(options, name) == expected[name]
    assert options.model_options == {**expected["model_options"], "softmax": "groups"}
    released = Job("zinc", "a2-ngbh-plus-as-released", "mae", 0, "joint").options()
    assert (released.model, released.model_options["virtual"]) == ("A2^Ngbh++VT", 1)
    like = Job("time", "a1-2-dense", "epochs", 0).options()
    assert like.model == "A1,2"
    assert like.model_options["encodings"] == preset("zinc", "A1,2^Ngbh")["model_options"]["encodings"]


def test_numbers_are_read_as_they_are_printed():
    assert Published.read("0.069 ± 0.005") == Published("0.069 ± 0.005", 0.069, 0.005)
    assert Published.read("863,269").mean == 863269
    assert Published.read("0.2430").decimals == 4
    assert (Published.read(True).text, Published.read(False).mean) == ("yes", 0.0)
    with pytest.raises(OptionError, match=r"paper: expected a number such as .* came 'many'"):
        Published.read("many")


def test_wrong_names_are_refused_with_the_nearest():
    with pytest.raises(OptionError, match="Did you mean 'zinc'"):
        read_table("zink")
    table = read_table("zinc")
    with pytest.raises(OptionError, match=r"--rows: .* came 'a2-lm'"):
        table.row("a2-lm")
    with pytest.raises(OptionError, match="--columns: expected one of mae; came 'map'"):
        table.column("map")
    assert table.row("A2^LN+VT") is table.row("a2-ln-vt")
    with pytest.raises(OptionError, match=r"zinc/01-x.yaml: .* came 'modell'. Did you mean 'model'"):
        _row("zinc", "01-x.yaml", {"name": "x", "modell": "A2"}, ["mae"])
    with pytest.raises(OptionError, match="expected columns mae in paper; came 'rmse'"):
        _row("zinc", "01-x.yaml", {"name": "x", "paper": {"rmse": "1"}}, ["mae"])


def test_a_checkpoint_of_the_largest_named_models_stays_below_16_mib():
    from tuplet.training.checkpoint import to_bytes
    from tuplet.training.loop import make_optimiser
    from tuplet.training.state import State

    for row in ("a2-performer", "a2-ln-vt", "as01-sn-vs"):
        options = Job("zinc", row, "mae", 0).options()
        assert options.keep == 1
        model = tuplet.build(options.model, **FEATURES["zinc"], **options.model_options)
        optimiser = make_optimiser(model, options, torch.device("cpu"))
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimiser.step()
        state = State(model, optimiser, best=dict(model.state_dict()))
        assert len(to_bytes(state.tensors())) < 16 * 2**20
