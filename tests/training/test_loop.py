"""The training loop: it learns, repeats itself, keeps the best weights, and evaluates graphs, not batches."""

import io

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

import tuplet
from tuplet.errors import OptionError
from tuplet.training import TrainOptions, accuracy, evaluate, fit, learning_rate, predict, progress_bar
from tuplet.training.metrics import ready

OPTIONS = TrainOptions(epochs=12, batch_size=4, lr=2e-2, warmup=2)


def path(n, label):
    edges = torch.stack([torch.arange(n - 1), torch.arange(1, n)])
    return Data(edge_index=to_undirected(edges), num_nodes=n, y=torch.tensor([label]))


def cycle(n, label):
    edges = torch.stack([torch.arange(n), (torch.arange(n) + 1) % n])
    return Data(edge_index=to_undirected(edges), num_nodes=n, y=torch.tensor([label]))


GRAPHS = [make(n, label) for n in range(3, 9) for label, make in enumerate((path, cycle))]


def tiny(seed=0, **options):
    torch.manual_seed(seed)
    settings = {"dim": 8, "depth": 1, "heads": 2, "outputs": 2, "pool": "mean", "norm": "layer", "degree": True}
    return tuplet.build("A2^LN", **{**settings, **options})


def test_overfits_paths_and_cycles():
    model = tiny()
    options = TrainOptions(epochs=60, batch_size=4, lr=2e-2, warmup=2, stop_at=1.0, patience=3)
    history = fit(model, GRAPHS, GRAPHS, cross_entropy, accuracy, options)
    assert evaluate(model, GRAPHS, accuracy) == 1.0
    assert len(history.seconds) < options.epochs
    assert history.val_metric[-3:] == [1.0] * 3
    assert history.train_loss[-1] < history.train_loss[0]
    assert not model.training


def test_one_seed_gives_one_result():
    runs = []
    for noise in (1, 2):
        model = tiny(dropout=0.3)
        torch.manual_seed(noise)  # what the caller drew before must not matter
        history = fit(model, GRAPHS, GRAPHS, cross_entropy, accuracy, OPTIONS)
        runs.append((history.train_loss, history.val_metric, model.state_dict()))
    assert runs[0][:2] == runs[1][:2]
    for one, two in zip(runs[0][2].values(), runs[1][2].values(), strict=True):
        assert torch.equal(one, two)


def test_leaves_the_callers_random_numbers_alone():
    model = tiny(dropout=0.3)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    fit(model, GRAPHS, GRAPHS, cross_entropy, accuracy, TrainOptions(epochs=1))
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("maximise", [True, False])
def test_best_weights_are_restored(maximise):
    seen = []

    def metric(outputs, targets):
        """Best in the fourth of six epochs, whatever the model says."""
        seen.append(outputs)
        value = [0.1, 0.5, 0.2, 0.9, 0.9, 0.3][len(seen) - 1]
        return value if maximise else -value

    model = tiny(norm="batch")
    options = TrainOptions(epochs=6, batch_size=4, lr=1e-2, maximise=maximise)
    history = fit(model, GRAPHS, GRAPHS, cross_entropy, metric, options)
    outputs, _ = predict(model, ready(model, GRAPHS, 4))
    assert history.best == 3
    assert torch.equal(outputs, seen[3])
    assert not torch.equal(outputs, seen[5])


def test_evaluation_does_not_depend_on_batches():
    model = tiny()
    for parameter in model.parameters():
        parameter.data.add_(0.1 * torch.randn_like(parameter))
    whole = predict(model, ready(model, GRAPHS[:7], 7))[0]
    for size in (1, 3, 5):
        torch.testing.assert_close(predict(model, ready(model, GRAPHS[:7], size))[0], whole)
        assert evaluate(model, GRAPHS[:7], accuracy, size) == evaluate(model, GRAPHS[:7], accuracy, 7)


def test_metric_sees_all_graphs_at_once():
    shapes = []
    evaluate(tiny(), GRAPHS[:7], lambda outputs, targets: shapes.append((outputs.shape, targets.shape)) or 0.0, 3)
    assert shapes == [((7, 2), (7,))]


def test_accuracy_counts_rows():
    outputs = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    assert accuracy(outputs, torch.tensor([0, 1, 0])) == pytest.approx(2 / 3)


def test_learning_rate_rises_then_follows_a_cosine():
    options = TrainOptions(epochs=10, lr=1.0, warmup=4)
    rates = [learning_rate(epoch, options) for epoch in range(10)]
    assert rates[:5] == pytest.approx([1e-6, 0.25, 0.5, 0.75, 1.0])
    assert rates[7] == pytest.approx(0.5)
    assert rates[4:] == sorted(rates[4:], reverse=True)
    assert learning_rate(0, TrainOptions(epochs=1, lr=0.3)) == 0.3


@pytest.mark.parametrize("wrong", [{"epochs": 0}, {"batch_size": 0}, {"lr": 0.0}, {"clip": -1.0}, {"patience": 0}])
def test_senseless_options_are_refused(wrong):
    with pytest.raises(OptionError, match=next(iter(wrong))):
        TrainOptions(**{"epochs": 1, **wrong})


def test_no_graphs_and_infinite_losses_are_refused():
    with pytest.raises(OptionError, match="train"):
        fit(tiny(), [], GRAPHS, cross_entropy, accuracy, OPTIONS)
    with pytest.raises(OptionError, match="loss became nan"):
        fit(tiny(), GRAPHS, GRAPHS, lambda outputs, _: outputs.sum() * float("nan"), accuracy, OPTIONS)


def test_progress_prints_lines_where_there_is_no_terminal():
    stream = io.StringIO()
    with progress_bar("tiny", stream) as report:
        fit(tiny(), GRAPHS, GRAPHS, cross_entropy, accuracy, TrainOptions(epochs=2), report)
    (line,) = stream.getvalue().splitlines()
    assert line.startswith("tiny: epoch 2 of 2, loss ")


def test_progress_draws_a_bar_in_a_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = io.StringIO()
    stream.isatty = lambda: True
    with progress_bar("tiny", stream) as report:
        report(1, 2, "epoch 1 of 2")
        report(2, 2, "epoch 2 of 2")
    assert "epoch 2 of 2" in stream.getvalue()
    assert "━" in stream.getvalue()
