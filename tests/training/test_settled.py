"""Batch norms that have settled: training goes on with the statistics of evaluation."""

import networkx as nx
import pytest
import torch
from training_cases import options, paths_and_cycles, tiny

import tuplet
from tuplet.errors import OptionError
from tuplet.training import TrainOptions, fit
from tuplet.training.norms import settle_norms

GRAPHS = [nx.path_graph(4), nx.cycle_graph(5), nx.star_graph(3)]


def running(model):
    """All statistics that batch norms keep."""
    kept = ("running_mean", "running_var", "mean", "var")
    return {name: value.clone() for name, value in model.named_buffers() if name.split(".")[-1] in kept}


def by_epoch(**settings):
    """Statistics, and weights, at the end of each of four epochs."""
    model, seen, weights = tiny(norm="batch", encodings=["RWSE:4:4"]), [], []

    def log(_):
        seen.append(running(model))
        weights.append({name: value.detach().clone() for name, value in model.named_parameters()})

    fit(model, paths_and_cycles(), options(epochs=4, **settings), log=log)
    return seen[-4:], weights[-4:]


def same(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


def test_statistics_stay_from_the_epoch_on_and_weights_do_not():
    (settled, weights), (plain, _) = by_epoch(settle_norms=2), by_epoch()
    assert len(settled[0]) > 4
    assert not same(weights[1], weights[2])
    assert same(settled[1], settled[2])
    assert same(settled[1], settled[3])
    assert not same(settled[0], settled[1])
    assert same(settled[1], plain[1])
    assert not same(plain[1], plain[2])


@pytest.mark.parametrize("backend", ["reference", "torch", "triton"])
@pytest.mark.parametrize("name", ["A2^LN+VT", "A1,2^Ngbh", "AS0:1^SN+VS"])
def test_a_settled_model_trains_what_it_is_in_evaluation(name, backend):
    if backend == "triton":
        pytest.importorskip("triton")
    model = tuplet.build(name, dim=16, heads=4, depth=2, backend=backend, encodings=["RWSE:4:4"])
    model.train()
    model(GRAPHS)  # statistics other than those of the beginning
    before = running(model)
    settle_norms(model)
    model.zero_grad()
    trained = model(GRAPHS)
    trained.sum().backward()
    assert same(before, running(model))
    torch.testing.assert_close(trained, model.eval()(GRAPHS), rtol=1e-5, atol=1e-6)
    # no batch takes a mean away any more: biases before norms count
    assert all(layer.feed_forward[3].bias.grad.abs().max() > 0 for layer in (block.tokens for block in model.layers))


def test_there_is_something_to_settle():
    with pytest.raises(OptionError, match="settle_norms: expected a model with batch norms"):
        fit(tiny(norm="layer"), paths_and_cycles(), options(settle_norms=2))


def test_none_settles_before_the_first_epoch():
    with pytest.raises(OptionError, match="settle_norms: expected a number of at least 1; came 0"):
        TrainOptions(settle_norms=0)
