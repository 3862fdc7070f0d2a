"""A moving average of the weights: what is validated and kept, while the weights themselves learn on."""

import pytest
import torch
from training_cases import options, paths_and_cycles, sizes, tiny

from tuplet.errors import OptionError
from tuplet.training import TrainOptions, evaluate, fit
from tuplet.training.average import follow, standing_in


def by_epoch(model, task, settings):
    """Weights and statistics at the end of each epoch, as they learn on."""
    seen = []

    def log(history):
        if history.epochs:
            seen.append({name: value.clone() for name, value in model.state_dict().items()})

    return fit(model, task, settings, log=log), seen


def largest_difference(one, other):
    return max(float((one[name] - other[name]).abs().max()) for name in one)


@pytest.mark.parametrize("epochs", [2, 3, 5])
def test_what_is_kept_is_the_average(epochs):
    """By its definition: the mean of all epochs while there are few, then 1 / average of the way at each."""
    task, settings = sizes(), options(epochs=epochs, average=3, lr=1e-2)
    model = tiny(task, norm="batch")
    history, seen = by_epoch(model, task, settings)
    expected = dict(seen[0])
    for number, weights in enumerate(seen[1 : history.best + 1], start=2):
        share = 1 / min(number, 3)
        expected = {name: value + share * (weights[name] - value) for name, value in expected.items()}
    kept = model.state_dict()
    real = [name for name in kept if kept[name].is_floating_point()]
    assert largest_difference({name: kept[name] for name in real}, expected) < 1e-6
    assert history.best > 0
    assert largest_difference({name: kept[name] for name in real}, seen[history.best]) > 1e-4
    assert all(torch.equal(kept[name], seen[history.best][name]) for name in kept if name not in real)


def test_learning_does_not_see_it():
    task = paths_and_cycles()
    (plain, own), (averaged, other) = (
        by_epoch(tiny(norm="batch"), task, options(epochs=4, average=average)) for average in (None, 3)
    )
    assert plain.train_loss == averaged.train_loss
    assert all(largest_difference(one, two) == 0 for one, two in zip(own, other, strict=True))
    assert plain.val_loss[0] == averaged.val_loss[0]
    assert plain.val_loss[1:] != averaged.val_loss[1:]


def test_over_one_epoch_it_is_the_weights():
    task = paths_and_cycles()
    plain, one = (fit(tiny(norm="batch"), task, options(epochs=3, average=average)) for average in (None, 1))
    assert plain.val_loss == one.val_loss


def test_it_is_what_the_validation_metric_is_of():
    task = sizes()
    model = tiny(task)
    history = fit(model, task, options(epochs=4, average=3))
    assert evaluate(model, task, "val").metric == pytest.approx(history.val_metric[history.best], rel=1e-6)


def test_a_model_is_itself_again_whatever_happens():
    model, average = tiny(norm="batch"), {}
    before = {name: value.clone() for name, value in model.state_dict().items()}
    follow(average, model, 1.0)
    average = {name: value + 1 for name, value in average.items()}
    during = {}

    def work():
        during.update({name: value.clone() for name, value in model.state_dict().items()})
        raise RuntimeError("while it lasts")

    with pytest.raises(RuntimeError, match="while it lasts"), standing_in(average, model):
        work()
    assert all(torch.equal(value, average[name]) for name, value in during.items())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_it_is_over_an_epoch_at_least():
    with pytest.raises(OptionError, match="average: expected a number of at least 1; came 0"):
        TrainOptions(average=0)
