"""Metrics against scikit-learn's, with missing targets, over all rows at once."""

import math

import pytest
import torch
from sklearn import metrics as sklearn

from tuplet.errors import OptionError
from tuplet.training.metrics import measure, why_undefined


def drawn(columns, rows=40, missing=0.2):
    generator = torch.Generator().manual_seed(columns)
    outputs = torch.randn(rows, columns, generator=generator)
    targets = (torch.rand(rows, columns, generator=generator) < 0.4).double()
    targets[torch.rand(rows, columns, generator=generator) < missing] = torch.nan
    return outputs, targets


@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize(
    "name, reference", [("rocauc", sklearn.roc_auc_score), ("ap", sklearn.average_precision_score)]
)
def test_areas_are_means_over_columns(name, reference, columns):
    outputs, targets = drawn(columns)
    expected = []
    for x, y in zip(outputs.t(), targets.t(), strict=True):
        there = ~y.isnan()
        expected.append(reference(y[there].numpy(), x[there].numpy()))
    assert measure(name, outputs, targets) == pytest.approx(sum(expected) / columns, abs=1e-6)


def test_a_column_with_one_kind_of_target_is_left_out():
    outputs, targets = drawn(3)
    targets[:, 1] = 1.0
    assert measure("ap", outputs, targets) == pytest.approx(measure("ap", outputs[:, ::2], targets[:, ::2]))
    assert math.isnan(measure("rocauc", outputs[:, 1:2], targets[:, 1:2]))


@pytest.mark.parametrize("name", ["mae", "mse"])
def test_errors_are_means_over_the_targets_that_are_there(name):
    outputs, targets = drawn(3)
    there = ~targets.isnan()
    difference = (outputs.double() - targets)[there]
    expected = difference.abs().mean() if name == "mae" else difference.square().mean()
    assert measure(name, outputs, targets) == pytest.approx(float(expected), abs=1e-12)


def test_accuracy_of_classes_and_of_flags():
    outputs = torch.tensor([[1.0, 0.0, -1.0], [0.0, 1.0, 0.0], [0.0, 1.0, 0.5]])
    assert measure("accuracy", outputs, torch.tensor([0, 1, 0])) == 2 / 3
    flags = torch.tensor([[1.0, 0.0], [torch.nan, 1.0]])
    assert measure("accuracy", outputs, torch.tensor([0, -1, 0])) == 1 / 2  # -1 is a missing class
    # logits between 0 and 1 are still logits: 0.2 means more likely than not
    assert measure("accuracy", torch.tensor([[0.2, 0.3], [0.9, 0.4]]), flags) == 2 / 3


def test_nothing_to_measure_is_nan_and_unknown_names_are_refused():
    assert math.isnan(measure("mae", torch.zeros(2, 1), torch.full((2, 1), torch.nan)))
    assert math.isnan(measure("accuracy", torch.zeros(0, 2), torch.zeros(0, dtype=torch.long)))
    assert math.isnan(measure("accuracy", torch.zeros(2, 2), torch.tensor([-1, -1])))
    with pytest.raises(OptionError, match="metric: expected 'mae'"):
        measure("f1", torch.zeros(2, 1), torch.zeros(2, 1))


def test_a_metric_that_is_undefined_says_why():
    nothing = torch.full((3, 1), torch.nan)
    assert why_undefined("mae", torch.zeros(3, 1), nothing) == "no target is there"
    assert why_undefined("accuracy", torch.zeros(2, 2), torch.tensor([-1, -1])) == "no target is there"
    assert why_undefined("rocauc", torch.zeros(3, 1), torch.ones(3, 1)) == "no target has both a 0 and a 1 there"
    assert why_undefined("mae", nothing, torch.zeros(3, 1)) == "the model's outputs are no numbers"
