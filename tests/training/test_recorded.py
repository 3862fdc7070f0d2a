"""Recorded training steps against the plain loop, on a GPU."""

import copy

import pytest
import torch
from torch_geometric.data import Data
from training_cases import sizes, split

from tuplet.datasets.task import Task
from tuplet.kernels.beside import Late
from tuplet.training import TrainOptions, loop
from tuplet.training.recorded import Recorder
from tuplet.training.runs import make_model, ready

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
MODELS = ["A2^LN+VT", "A2^Ngbh+", "A2", "A2-Performer", "A1,2^Ngbh", "A3^LN", "AS0:1^SN+VS", "AS0:1^SN"]


def links(count):
    """Is a pair of nodes an edge? Of graphs whose nodes differ: where they are all alike, gradients are rounding alone, of which Adam
    makes steps as long as of any other."""
    graphs = []
    for number in range(count):
        n = 5 + number % 4
        generator = torch.Generator().manual_seed(number)
        pairs = torch.combinations(torch.arange(n))
        pairs = pairs[torch.randperm(len(pairs), generator=generator)]
        joined, others = pairs[: n + 1], pairs[n + 1 :]
        asked = torch.cat([joined[: 2 + number % 2], others[:2]])
        label = torch.arange(len(asked)) < 2 + number % 2
        ends = torch.cat([joined, joined.flip(1)]).t()
        graphs.append(Data(edge_index=ends, num_nodes=n, edge_label_index=asked.t(), edge_label=label.float()[:, None]))
    return Task("links", graphs, (split(count),), "edge", "binary", 1, "bce", "rocauc")


def hold_still(model, task):
    """No gradient for parameters part of which nothing can see in training: biases of keys, which a softmax does not see, or of values,
    whose sum is one that a batch norm takes away. Theirs is rounding, of which Adam makes steps as long as of any other, and
    what is evaluated, with means that follow behind, does see them."""
    other = copy.deepcopy(model).double().train()
    graphs = ready(task, other).graphs
    outputs = other([graphs[number] for number in range(16)])
    (outputs * torch.linspace(-1, 2, outputs.numel(), dtype=torch.double).view_as(outputs)).sum().backward()
    for parameter, exact in zip(model.parameters(), other.parameters(), strict=True):
        if exact.grad is not None and ((exact.grad != 0) & (exact.grad.abs() < 1e-11)).any():
            parameter.requires_grad_(False)


def trained(name, monkeypatch, record, make=sizes, change=lambda model: None, **options):
    task = make(40)
    if not record:
        monkeypatch.setattr(loop, "make_recorder", lambda *arguments: None)
    settings = {"dim": 16, "depth": 2, "heads": 4, "virtual": 3, "encodings": ["RWSE:4:6"]}
    chosen = TrainOptions(model=name, model_options=settings, epochs=3, batch_size=8, lr=1e-3, **options)
    torch.manual_seed(0)
    model = make_model(task, chosen)
    hold_still(model, task)
    change(model)
    # at the end of each epoch: fit itself goes back to the best one, which for links hangs on the order of a few pairs
    states = []
    history = loop.fit(model, ready(task, model), chosen, log=lambda _: states.append(state(model)))
    return history, states[-1], states[0]


def state(model):
    return {key: value.cpu().clone() for key, value in model.state_dict().items() if "num_batches" not in key}


@pytest.mark.parametrize(
    ("name", "make", "options"),
    [
        *((name, sizes, {}) for name in MODELS),
        *((name, links, {}) for name in ("A2^LN+VT", "A1", "AS0:1^SN")),
        ("A2^LN+VT", sizes, {"settle_norms": 1}),
        ("A1,2^Ngbh", sizes, {"settle_norms": 2}),
        ("A2^LN+VT", sizes, {"average": 2}),
    ],
)
def test_recorded_steps_are_those_of_the_plain_loop(name, make, options, monkeypatch):
    found, weights, begun = trained(name, monkeypatch, True, make, **options)
    expected, others, _ = trained(name, monkeypatch, False, make, **options)
    torch.testing.assert_close(found.train_loss, expected.train_loss, rtol=2e-4, atol=1e-6)
    # not the metric, which is an area under a curve for links: one pair more or less in order is a step of it
    torch.testing.assert_close(found.val_loss, expected.val_loss, rtol=2e-4, atol=1e-6)
    running = {key for key in weights if "running" in key}
    for key in running:
        torch.testing.assert_close(weights[key], others[key], rtol=1e-3, atol=2e-4)
    # weights not number by number: where a gradient is all but zero, Adam makes a step of its rounding
    apart, moved = (
        torch.cat([(weights[key] - than[key]).flatten() for key in weights.keys() - running]).norm()
        for than in (others, begun)
    )
    assert apart <= 0.002 * moved


@pytest.mark.parametrize("precision", ["fp32", "tf32"])
def test_recorded_runs_repeat_bit_by_bit(precision, monkeypatch):
    first, weights, _ = trained("A2^LN+VT", monkeypatch, True, precision=precision)
    second, others, _ = trained("A2^LN+VT", monkeypatch, True, precision=precision)
    assert first.train_loss == second.train_loss
    assert all(torch.equal(value, others[key]) for key, value in weights.items())


@pytest.mark.parametrize("name", ["A2^LN+VT", "A1,2^Ngbh", "AS0:1^SN+VS"])
def test_gradients_that_are_put_off_are_the_same_to_the_last_bit(name, monkeypatch):
    untouched, put_off = Late.untouched, []

    def seen(late, tensors):
        put_off.append(len(late.results))
        assert untouched(late, tensors)
        return True

    monkeypatch.setattr(Late, "untouched", seen)
    _, weights, _ = trained(name, monkeypatch, True, precision="tf32")
    assert max(put_off) > 5
    monkeypatch.setattr(Recorder, "late", False)
    _, others, _ = trained(name, monkeypatch, True, precision="tf32")
    assert all(torch.equal(value, others[key]) for key, value in weights.items())


def test_weights_that_are_used_twice(monkeypatch):
    """Their gradients are added up on the way, which must not be done before they are there."""

    def share(model):
        model.layers[1] = model.layers[0]

    found, *_ = trained("A2^LN+VT", monkeypatch, True, change=share, precision="tf32")
    expected, *_ = trained("A2^LN+VT", monkeypatch, False, change=share, precision="tf32")
    torch.testing.assert_close(found.train_loss, expected.train_loss, rtol=2e-3, atol=1e-5)


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_other_precisions_learn_too(precision, monkeypatch):
    history, *_ = trained("A2^LN+VT", monkeypatch, True, precision=precision)
    expected, *_ = trained("A2^LN+VT", monkeypatch, True)
    torch.testing.assert_close(history.train_loss, expected.train_loss, rtol=0.05, atol=0.05)
