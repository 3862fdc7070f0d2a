"""The parser of model names and the options of build."""

import numpy as np
import pytest

import tuplet
from tuplet.errors import ModelNameError, OptionError
from tuplet.models import Choices, known_names, parse

PARSED = {
    "A1": Choices((1,)),
    "A7": Choices((7,)),
    "A2+index": Choices((2,), index=True),
    "A2+basis": Choices((2,), basis=True),
    "A2-Performer": Choices((2,), kernel="performer"),
    "A2-Linear": Choices((2,), kernel="linear"),
    "A2-ReLU": Choices((2,), kernel="relu"),
    "A2^Ngbh": Choices((2,), patterns=("Ngbh",)),
    "A2^Ngbh+": Choices((2,), patterns=("Ngbh+",)),
    "A3^LN": Choices((3,), patterns=("LN",)),
    "A2^VT": Choices((2,), patterns=("VT",)),
    "A2^LN+VT": Choices((2,), patterns=("LN", "VT")),
    "A2^Ngbh+VT": Choices((2,), patterns=("Ngbh", "VT")),
    "A2^Ngbh++VT": Choices((2,), patterns=("Ngbh+", "VT")),
    "A2^Ngbh++VT+scale": Choices((2,), patterns=("Ngbh+", "VT"), relation="scale"),
    "A2^VT+Ngbh+": Choices((2,), patterns=("VT", "Ngbh+")),
    "A2^Ngbh+scale": Choices((2,), patterns=("Ngbh",), relation="scale"),
    "A2^Ngbh++reweight": Choices((2,), patterns=("Ngbh+",), relation="reweight"),
    "A1,2": Choices((1, 2)),
    "A1,2^Ngbh": Choices((1, 2), patterns=("Ngbh",)),
    "A3(connected)": Choices((3,), "connected"),
    "A3(random:4096)": Choices((3,), "random", 4096),
    "A3(connected)^LN": Choices((3,), "connected", patterns=("LN",)),
    "AS1": Choices((), dims=(1, 1)),
    "AS0:1": Choices((), dims=(0, 1)),
    "AS0:3+reweight": Choices((), relation="reweight", dims=(0, 3)),
    "AS0:1-Performer": Choices((), kernel="performer", dims=(0, 1)),
    "AS0:1^SN": Choices((), patterns=("SN",), dims=(0, 1)),
    "AS1:2^SN+VS": Choices((), patterns=("SN", "VS"), dims=(1, 2)),
    "AS0:1^SN+VS+bias": Choices((), patterns=("SN", "VS"), relation="bias", dims=(0, 1)),
    "A3(random:5)-ReLU^LN+VT+index": Choices((3,), "random", 5, "relu", ("LN", "VT"), None, True),
}


@pytest.mark.parametrize("name", PARSED)
def test_names_mean_what_the_paper_says(name):
    assert parse(name) == PARSED[name]
    assert str(parse(name)) == name


@pytest.mark.parametrize("like", ["A1", "A2", "A3", "A4", "AS0", "AS1", "AS0:2", "AS1:3"])
def test_every_known_name_builds_at_any_order(like):
    for name in known_names(like):
        assert str(tuplet.build(name, dim=24, depth=1, heads=6).config.choices) == name


WRONG = {
    "": "A2",
    "A": "A2",
    "B2": "A2",
    "A0": "A1",
    "A2^NL": "A2^LN",
    "A2^Neighbor": "A2^",
    "A2-performer": "A2-Performer",
    "A2^LN+VS": "A2^LN+VT",
    "A2^LN^VT": "A2^LN+VT",
    "A2+LN": "A2",
    "A2^LN+": "A2^LN",
    "A2^LN+LN": "A2^LN",
    "A2^Ngbh+++VT": "A2^Ngbh++VT",
    "A2(conected)": "A2(connected)",
    "A2(random)": "A2(random:4096)",
    "A2(random:0)": "A2(random:4096)",
    "A2+bias": "A2+basis",
    "A2^LN+basis": "A2+basis",
    "A2^Ngbh+scale+bias": "A2^Ngbh",
    "A2^VT+scale": "A2^VT",
    "A1,2^LN": "A1,2^Ngbh",
    "A2 ^LN": "A2^LN",
    "A2^SN": "A2^LN",
    "AS": "AS0:1",
    "AS1:0": "AS0:1",
    "AS0:1^LN": "AS0:1^SN",
    "AS0:1^VT": "AS0:1^VS",
    "AS0:1(connected)": "AS0:1",
    "AS0:1+basis": "AS0:1+bias",
    "AS0:1+index": "AS0:1",
    "AS0:1^VS+bias": "AS0:1",
    "AS0,1": "AS0:1",
    "A２": "A2",
    "A2(random:٣)": "A2(random:4096)",
    "a2^ln": "A2^LN'",
    "as0:1^sn": "AS0:1^SN'",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_name_gets_the_grammar_and_the_nearest_valid_name(name):
    with pytest.raises(ModelNameError) as error:
        tuplet.build(name)
    message = str(error.value)
    assert "name    := base" in message
    assert f"Did you mean '{WRONG[name]}" in message
    parse(message.split("Did you mean '")[1].split("'")[0])


@pytest.mark.parametrize(
    ("came", "meant"),
    [("GINN", "GIN"), ("gcn", "GCN"), ("Graphormr", "Graphormer"), ("PPGM", "PPGN"), ("2IGN", "2-IGN")],
)
def test_a_wrong_name_of_a_baseline_gets_the_right_one(came, meant):
    with pytest.raises(ModelNameError, match=f"Did you mean '{meant}'"):
        tuplet.build(came)


WRONG_OPTIONS = [
    ({"dim": 10, "heads": 4}, "heads: expected a divisor of dim = 10"),
    ({"heads": 1}, "heads >= 2"),
    ({"dim": 0}, "dim: expected a positive int"),
    ({"depth": 1.5}, "depth: expected a positive int"),
    ({"task": "graphs"}, "task: expected one of 'graph'"),
    ({"dropout": 1.0}, "dropout: expected a number"),
    ({"node_types": 3, "node_dim": 2}, "node_types and node_dim"),
    ({"node_types": []}, "node_types"),
    ({"node_types": 3.0}, "node_types: expected a positive int or a list of them; came 3.0"),
    ({"edge_types": [3.0]}, "edge_types: expected a positive int or a list of them; came [3.0]"),
    ({"edge_dim": -1}, "edge_dim"),
    ({"softmax": "both"}, "softmax: expected one of"),
    ({"relation": "factor"}, "relation: expected one of"),
    ({"features": 0}, "features: expected a positive int"),
    ({"degree": "no"}, "degree: expected True or False"),
    ({"connected_share": 2.0}, "connected_share: expected a number"),
    ({"sample_seed": -1}, "sample_seed"),
    ({"dropout": "a"}, "dropout: expected a number"),
    ({"edge_relation": 1}, "edge_relation: expected True, False or a list of different columns of edge_attr; came 1"),
    ({"edge_relation": []}, "a list of different columns of edge_attr; came []"),
    ({"edge_relation": [0, 0], "edge_types": [2, 3]}, "a list of different columns of edge_attr; came [0, 0]"),
    ({"edge_relation": [[0]], "edge_types": [2, 3]}, "a list of different columns of edge_attr; came [[0]]"),
    ({"edge_relation": [2], "edge_types": [2, 3]}, "expected columns 0 to 1, as edge_types has; came [2]"),
    ({"edge_relation": True}, "expected 2 to 32 kinds of edges, by edge_types; came none"),
    ({"edge_relation": True, "edge_types": 1}, "came edge_types=1, which makes 1"),
    ({"edge_relation": True, "edge_types": [1, 1]}, "came edge_types=[1, 1], which makes 1"),
    ({"edge_relation": [2], "edge_types": [5, 7, 1]}, "came columns [2] of edge_types=[5, 7, 1], which makes 1"),
    (
        {"edge_relation": True, "edge_types": [40, 7]},
        "makes 280. A list says which columns count, such as edge_relation=[1]",
    ),
    ({"edge_relation": True, "edge_types": 3, "relation": "none"}, "expected a relation to tell edges apart by"),
    ({"widht": 3}, "widht: no such option"),
    ({"haeds": 3}, "did you mean heads"),
]


@pytest.mark.parametrize("options, message", WRONG_OPTIONS, ids=str)
def test_wrong_options_are_refused_by_name(options, message):
    with pytest.raises(OptionError) as error:
        tuplet.build("A2^LN", **options)
    assert message in str(error.value)


def test_contradicting_relations_are_refused():
    with pytest.raises(OptionError, match="the name"):
        tuplet.build("A2^Ngbh++scale", relation="bias")
    with pytest.raises(OptionError, match="is its relation"):
        tuplet.build("A2^Ngbh+", relation="none")
    with pytest.raises(OptionError, match="no relation types"):
        tuplet.build("A2", relation="bias")
    with pytest.raises(OptionError, match=r"edge_relation: a relation of LN and Ngbh\+; AS0:1\^SN has neither"):
        tuplet.build("AS0:1^SN", edge_relation=True, edge_types=3)


def test_an_unknown_backend_is_refused():
    with pytest.raises(tuplet.errors.BackendError, match="triton"):
        tuplet.build("A2", backend="cuda")


def test_counts_may_be_numbers_of_numpy():
    options = {"dim": np.int64(8), "heads": np.int32(2), "dropout": np.float32(0.5), "edge_types": np.array([3, 2])}
    for name in ("A2^LN", "GINE"):
        config = tuplet.build(name, **options, node_types=[np.int64(4)]).config
        assert (config.dim, config.dropout, config.node_types, config.edge_types) == (8, 0.5, (4,), (3, 2))


@pytest.mark.parametrize(
    "name, patterns", [("A7+basis", "190,899,322"), ("A9+basis", "682,076,806,159"), ("A6,7+basis", "27,644,437")]
)
def test_more_equality_patterns_than_memory_holds_are_refused(name, patterns):
    with pytest.raises(OptionError, match=f"name: expected at most .* {name.replace('+', '.')} has {patterns}"):
        tuplet.build(name, dim=8, heads=2)
