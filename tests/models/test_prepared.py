"""A prepared batch serves models of the same options, and no others."""

import pytest
import torch
from torch_geometric.data import Data
from zoo import build

import tuplet
from tuplet.errors import InputError


def test_a_batch_prepared_for_another_model_is_refused():
    """No silent change of pattern, backend or task."""
    prepared = build("A2^LN", node_types=None, edge_types=None).prepare(["CF", "DDW"])
    for name, options in (
        ("A2^Ngbh", {}),
        ("A2^LN", {"backend": "reference"}),
        ("A2^LN", {"task": "node"}),
        ("A2^LN+VT", {}),
    ):
        with pytest.raises(InputError, match="prepared"):
            build(name, node_types=None, edge_types=None, **options)(prepared)
    wider = build("A2^LN", node_types=None, edge_types=None, dim=24)
    assert torch.equal(wider(prepared), wider(["CF", "DDW"]))


@pytest.mark.parametrize(
    "name, own, others",
    [
        ("A2^LN", {"node_types": 3}, [{"node_types": 2}, {"node_types": [3, 3]}, {"node_dim": 1}, {}]),
        ("A2^LN", {"edge_types": 4}, [{"edge_types": 3}, {"edge_dim": 1}, {}]),
        ("A3(random:20)", {}, [{"sample_seed": 1}, {"connected_share": 0.5}]),
        ("A3(connected)", {}, [{"repeats": False}]),
        (
            "GINE",
            {"edge_types": 4, "node_types": 3},
            [{"edge_types": 4, "node_types": 2}, {"edge_types": 3, "node_types": 3}],
        ),
    ],
)
def test_a_batch_prepared_for_other_features_or_another_sample_is_refused(name, own, others):
    """It would be read without a check, or be another sample than the model's."""
    graph = Data(
        edge_index=torch.tensor([[0, 1], [1, 0]]),
        num_nodes=3,
        x=torch.tensor([0, 1, 2]),
        edge_attr=torch.tensor([3, 3]),
    )
    prepared = tuplet.build(name, dim=8, heads=4, **own).prepare(graph)
    assert tuplet.build(name, dim=16, heads=4, **own).eval()(prepared).isfinite().all()
    for options in others:
        with pytest.raises(InputError, match="prepared: expected a batch prepared for"):
            tuplet.build(name, dim=8, heads=4, **options)(prepared)
    if "random" in name:
        with pytest.raises(InputError, match="prepared: expected a batch prepared for"):
            tuplet.build("A3(random:21)", dim=8, heads=4)(prepared)
