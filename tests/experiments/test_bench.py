"""``tuplet bench``: rows, ratios, and graphs like molecules."""

import json

import pytest
import torch

from tuplet.cli import main
from tuplet.cli.bench import every_model
from tuplet.errors import OptionError, TooLargeError
from tuplet.experiments import bench as module
from tuplet.experiments.bench import YARDSTICK, bench
from tuplet.experiments.molecules import LARGEST, MOST_BONDS, SMALLEST, molecules
from tuplet.models.catalogue import CATALOGUE


def test_random_molecules_look_like_molecules():
    graphs = molecules(200).graphs
    sizes = torch.tensor([graph.num_nodes for graph in graphs])
    assert SMALLEST <= int(sizes.min()) <= int(sizes.max()) <= LARGEST
    assert 21 < float(sizes.double().mean()) < 25
    bonds = torch.tensor([graph.num_edges for graph in graphs]) / sizes
    assert 1.9 < float(bonds.mean()) < 2.3  # ZINC: 49.8 directed bonds on 23.2 atoms
    for graph in graphs[:20]:
        assert int(torch.bincount(graph.edge_index[0]).max()) <= MOST_BONDS
        assert graph.is_undirected()
        assert not graph.has_isolated_nodes()


@pytest.mark.parametrize("name", ["A2^LN", "AS0:1^SN+VS", "GPS", "yardstick"])
def test_a_row_has_its_numbers(name):
    if name == "yardstick" and not YARDSTICK.is_file():
        pytest.skip("needs a checkout with benchmarks/")
    (row,) = bench(molecules(40), [name], steps=1, depth=1)
    assert row.model == name
    assert row.milliseconds > 0
    assert row.products > 0
    assert row.ratio == row.milliseconds / row.products
    assert row.graphs == pytest.approx(32e3 / row.milliseconds)
    assert row.megabytes > 1
    assert row.parameters > 1000
    assert (row.floor == row.floor) == (name != "yardstick")  # NaN where a model does not say what it has to do
    if name != "yardstick":
        assert row.flops > 1e6
        assert 0 < row.floor < row.milliseconds


def test_the_products_are_those_of_the_linear_maps():
    """One layer of A1, d = 64: four projections (one product for q, k, v) and a feed-forward, each with two gradients."""
    task = molecules(4)
    options = module._options("A1", None, 1)
    model = module._make("A1", task, options)
    with module._Products() as found, module.set_aside():
        model(list(task.graphs)).sum().backward()
    tokens = sum(graph.num_nodes for graph in task.graphs)
    forward = {right[1] for left, right, _ in found.found if left[0] == tokens and left[1] == 64}
    assert {64, 128, 192} <= forward


def test_the_command_prints_json(capsys):
    assert main(["bench", "A1", "--steps", "1", "--depth", "1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["rows"][0]["model"] == "A1"
    assert told["rows"][0]["ratio"] > 0
    assert told["rows"][0]["over_floor"] > 1
    recorded, batching = told["rows"][0]["recorded"], told["rows"][0]["batching"]
    assert batching is None if recorded else 0 < batching < told["rows"][0]["milliseconds"]
    assert (told["rows"][0]["launches"] > 0) == torch.cuda.is_available()


def test_all_models_are_measured_and_what_does_not_fit_is_said(monkeypatch, capsys):
    def few(_, names, **__):
        if names == ["A2+index"]:
            raise TooLargeError("too many tuples")
        return bench(molecules(4), ["A1"], steps=1, depth=1)

    assert [*(kind.name for kind in CATALOGUE), "GPS"] == [name for name in every_model() if name != "yardstick"]
    monkeypatch.setattr("tuplet.cli.bench.CATALOGUE", CATALOGUE[:2])
    monkeypatch.setattr("tuplet.cli.bench.bench", few)
    assert main(["bench", "--all", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert len(told["rows"]) == len(every_model()) - 1
    assert told["refused"] == {"A2+index": "too many tuples"}
    assert main(["bench", "A2+index"]) == 2, "where nothing is left to show, that is an error"
    assert "too many tuples" in capsys.readouterr().err


def test_a_missing_yardstick_is_said(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "YARDSTICK", tmp_path / "yardstick.py")
    with pytest.raises(OptionError, match="of a checkout"):
        next(bench(molecules(2), ["yardstick"]))
