"""The training loop: it learns, repeats itself, keeps the best weights, and evaluates graphs, not batches."""

import io
import math
import warnings
from dataclasses import replace

import pytest
import torch
from torch import nn
from training_cases import TASKS, ends, everywhere, options, paths_and_cycles, sizes, tiny

from tuplet.datasets.task import Task
from tuplet.errors import InputError, OptionError
from tuplet.models.prepare import Prepared
from tuplet.training import TrainOptions, evaluate, fit, learning_rate, progress_bar, train
from tuplet.training.batches import cut, share, shuffled, token_counts
from tuplet.training.metrics import measure
from tuplet.training.objective import Objective
from tuplet.training.progress import describe
from tuplet.training.runs import make_model


def test_overfits_paths_and_cycles():
    task, model = everywhere(paths_and_cycles(9)), tiny()
    history = fit(model, task, options(epochs=60, lr=2e-2, stop_at=1.0))
    assert evaluate(model, task).metric == 1.0
    assert history.epochs < 60
    assert history.val_metric[-1] == 1.0 > max(history.val_metric[:-1])
    assert history.train_loss[-1] < history.train_loss[0]
    assert not model.training


def test_a_weight_that_is_held_still_stays_as_it_is():
    """Nor does it decay."""
    task, model = everywhere(paths_and_cycles(9)), tiny()
    still, other = model.layers[0].attention.query.weight, model.layers[0].attention.output.weight
    still.requires_grad_(False)
    before, was = still.clone(), other.detach().clone()
    fit(model, task, options(epochs=1, warmup=0, lr=1e-2, weight_decay=0.1))
    assert torch.equal(still, before)
    assert not torch.equal(other, was)


@pytest.mark.parametrize("name", TASKS)
def test_learns_every_kind_of_task(name):
    """Loss well below its beginning, and a better metric than a constant prediction gives."""
    task = TASKS[name]()
    torch.manual_seed(0)
    setting = options(epochs=40, lr=1e-2, warmup=4, model_options={"dim": 16})
    model = make_model(task, setting)
    history = fit(model, replace(task, splits=(dict.fromkeys(("train", "val"), task.splits[0]["train"]),)), setting)
    assert history.train_loss[-1] < 0.7 * history.train_loss[0]
    score = evaluate(model, task, "train")
    objective = Objective(task)
    part = objective.part("train", 0)
    rows = objective.rows(part.members.tolist(), part.nodes)
    targets = objective.targets[rows]
    constant = targets.nanmedian(0).values if targets.dim() == 2 else targets.bincount() / len(targets)
    if task.kind == "binary":
        constant = torch.logit(targets.nanmean(0), eps=1e-3)
    dull = measure(task.metric, constant.double().expand(len(rows), -1), targets)
    assert score.metric > dull if task.maximise else score.metric < 0.8 * dull


def test_one_seed_gives_one_result():
    task, runs = paths_and_cycles(), []
    for noise in (1, 2):
        model = tiny(dropout=0.3)
        torch.manual_seed(noise)  # what the caller drew before must not matter
        history = fit(model, task, options(), seed=5)
        runs.append((history.train_loss, history.val_metric, model.state_dict()))
    other = fit(tiny(dropout=0.3), task, options(), seed=6)
    assert runs[0][:2] == runs[1][:2]
    assert other.train_loss != runs[0][0]
    for one, two in zip(runs[0][2].values(), runs[1][2].values(), strict=True):
        assert torch.equal(one, two)


def test_leaves_the_callers_random_numbers_alone():
    model = tiny(dropout=0.3)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    fit(model, paths_and_cycles(), options(epochs=1))
    train(paths_and_cycles(6), options(epochs=1), show=False)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("maximise", [True, False])
def test_best_weights_are_restored(monkeypatch, maximise):
    task = paths_and_cycles()
    told = iter([0.1, 0.5, 0.2, 0.9, 0.9, 0.3])
    seen = []

    def metric(self, outputs, rows):
        """Best in the fourth of six epochs, whatever the model says."""
        seen.append(outputs.clone())
        return next(told) * (1 if maximise else -1)

    monkeypatch.setattr(Objective, "metric", metric)
    monkeypatch.setattr(Task, "maximise", property(lambda self: maximise))
    model = tiny(norm="batch")
    history = fit(model, task, options(epochs=6))
    monkeypatch.undo()
    assert history.best == 3
    outputs = evaluate(model, task, "val", batch_size=4).outputs
    assert torch.equal(outputs, seen[3])
    assert not torch.equal(outputs, seen[5])


def test_evaluation_does_not_depend_on_batches():
    task = sizes()
    model = tiny(task)
    for parameter in model.parameters():
        parameter.data.add_(0.1 * torch.randn_like(parameter))
    whole = evaluate(model, task, "train", batch_size=100)
    for size in (1, 3, 5):
        part = evaluate(model, task, "train", batch_size=size)
        torch.testing.assert_close(part.outputs, whole.outputs, rtol=0, atol=1e-6)
        assert part.metric == pytest.approx(whole.metric, abs=1e-6)


def test_the_metric_is_over_all_targets_in_their_own_units():
    """By hand: mean absolute error of the targets that are there, after the standardisation is undone."""
    task = sizes()
    model = tiny(task)
    score = evaluate(model, task, "train")
    y = torch.cat([task.graphs[i].y for i in task.splits[0]["train"]]).double()
    told = score.outputs.double() * torch.tensor(task.std) + torch.tensor(task.mean)
    there = ~y.isnan()
    assert there.float().mean() < 1
    assert score.metric == pytest.approx(float((told - y)[there].abs().mean()), abs=1e-9)
    standard = ((y - torch.tensor(task.mean)) / torch.tensor(task.std))[there]
    assert score.loss == pytest.approx(float((score.outputs.double()[there] - standard).abs().mean()), abs=1e-6)


def test_accumulated_batches_make_the_step_of_one_large_batch():
    task = sizes()
    curves = []
    for changes in ({"batch_size": 6}, {"batch_size": 2, "accumulate": 3}):
        model = tiny(task)
        curves.append(fit(model, task, options(epochs=3, precision="fp64", **changes)).train_loss)
    assert curves[0] == pytest.approx(curves[1], abs=1e-12)


def test_bf16_and_tf32_stay_near_fp32():
    task = sizes()
    curves = {
        precision: fit(tiny(task), task, options(epochs=4, precision=precision)).train_loss
        for precision in ("fp32", "tf32", "bf16", "fp64")
    }
    assert curves["fp32"] == pytest.approx(curves["fp64"], rel=1e-4)
    assert curves["tf32"] == pytest.approx(curves["fp32"], rel=1e-3)
    assert curves["bf16"] == pytest.approx(curves["fp32"], rel=0.05)
    assert curves["bf16"] != curves["fp32"]


def test_compiled_steps_learn_the_same(monkeypatch):
    """Through a backend that needs no C++ compiler; what is compiled is the training step only."""
    real, calls = torch.compile, []

    def compile(model, **how):
        calls.append(how)
        return real(model, backend="aot_eager", **how)

    monkeypatch.setattr(torch, "compile", compile)
    task = paths_and_cycles(6)
    curves = [fit(tiny(task), task, options(epochs=2, compile=flag)).train_loss for flag in (False, True)]
    assert len(calls) == 1
    assert curves[0] == pytest.approx(curves[1], rel=1e-5)


def test_clipping_limits_the_gradient(monkeypatch):
    seen = []
    monkeypatch.setattr(nn.utils, "clip_grad_norm_", lambda parameters, most: seen.append(most))
    fit(tiny(), paths_and_cycles(6), options(epochs=1, clip=0.25))
    assert set(seen) == {0.25}
    seen.clear()
    fit(tiny(), paths_and_cycles(6), options(epochs=1, clip=None))
    assert not seen


def test_learning_rate_rises_then_follows_a_cosine():
    setting = TrainOptions(epochs=10, lr=1.0, warmup=4)
    rates = [learning_rate(epoch, setting) for epoch in range(10)]
    assert rates[:5] == pytest.approx([1e-6, 0.25, 0.5, 0.75, 1.0])
    assert rates[7] == pytest.approx(0.5)
    assert rates[4:] == sorted(rates[4:], reverse=True)
    assert learning_rate(0, TrainOptions(epochs=1, lr=0.3)) == 0.3
    assert learning_rate(7, TrainOptions(epochs=10, lr=0.3, schedule="constant")) == 0.3


def test_plateau_lowers_the_rate_where_nothing_improves_and_ends_the_run():
    setting = TrainOptions(epochs=99, lr=1.0, schedule="plateau", plateau_patience=2, plateau_factor=0.1, min_lr=0.05)
    seen = [5.0, 4.0, 4.0, 4.5, 3.0, 3.0]
    assert [learning_rate(n, setting, seen[:n]) for n in range(7)] == pytest.approx([1, 1, 1, 1, 0.1, 0.1, 0.1])
    assert learning_rate(4, setting, [1.0, 2.0, 3.0, 4.0], maximise=True) == 1.0
    task = paths_and_cycles(8)
    history = fit(
        tiny(), task, options(epochs=99, warmup=0, lr=1e-9, schedule="plateau", plateau_patience=2, min_lr=9e-10)
    )
    assert history.epochs == 3


def test_early_stop_counts_epochs_without_improvement():
    history = fit(tiny(), paths_and_cycles(8), options(epochs=50, lr=1e-9, patience=3))
    assert history.epochs == 4
    assert history.best == 0


def test_without_validation_the_last_epoch_counts():
    task = paths_and_cycles(8)
    task = replace(task, splits=({"train": task.splits[0]["train"]},))
    history = fit(tiny(), task, options(epochs=3))
    assert history.best == 2
    assert all(map(math.isnan, history.val_metric))
    assert "nan" not in describe(history, options(), task.metric)


@pytest.mark.parametrize("setting", [{"schedule": "plateau"}, {"patience": 3}, {"stop_at": 0.5}])
def test_what_reads_validation_needs_it(setting):
    task = paths_and_cycles(8)
    task = replace(task, splits=({"train": task.splits[0]["train"]},))
    ((name, value),) = setting.items()
    with pytest.raises(OptionError, match=f"{name}: {value!r} needs a validation part; split 0 has none"):
        fit(tiny(), task, options(**setting))


def test_batches_by_tokens_hold_no_more_than_asked_and_every_graph_once():
    task = paths_and_cycles(14)
    tokens = token_counts(tiny(), task.graphs)
    assert tokens[:3] == [9, 9, 16]
    setting = options(batch_tokens=120)
    steps = shuffled(torch.arange(len(task.graphs)), setting, tokens, seed=1, epoch=4)
    batches = [batch for step in steps for batch in step]
    assert sorted(member for batch in batches for member in batch) == list(range(len(task.graphs)))
    assert all(sum(tokens[i] for i in batch) <= 120 or len(batch) == 1 for batch in batches)
    assert any(len(batch) == 1 and tokens[batch[0]] > 120 for batch in batches)
    assert steps == shuffled(torch.arange(len(task.graphs)), setting, tokens, seed=1, epoch=4)
    assert steps != shuffled(torch.arange(len(task.graphs)), setting, tokens, seed=1, epoch=5)
    assert fit(tiny(), task, replace(setting, epochs=1)).epochs == 1


@pytest.mark.parametrize(
    "name", ["A1", "A2^LN", "A1,2^Ngbh", "A2(random:7)^Ngbh", "A2(connected)", "AS0:1^SN", "AS1", "AS0:2"]
)
def test_tokens_are_counted_as_the_model_counts_them(name):
    from tuplet.training.inputs import ready

    task = paths_and_cycles(7)
    model = make_model(task, options(model=name, model_options={"heads": 4, "degree": None}))
    expected = [model.cost(graph).tokens for graph in task.graphs]
    assert token_counts(model, task.graphs) == expected
    assert token_counts(model, ready(task, model).graphs) == expected


def test_shares_of_processes_make_up_the_batch():
    batch = [4, 8, 1, 9, 3]
    shares = [share(batch, rank, 2) for rank in range(2)]
    assert sorted(shares[0][0] + shares[1][0]) == sorted(batch)
    assert all(counted for _, counted in shares)
    assert share([4], 1, 2) == ([4], False)
    assert cut([1, 2, 3], options(batch_size=2), None) == [[1, 2], [3]]


def test_no_graphs_and_infinite_losses_are_refused(monkeypatch):
    task = paths_and_cycles(6)
    empty = replace(task, splits=({"train": torch.empty(0, dtype=torch.long)},))
    with pytest.raises(OptionError, match="train: expected at least one graph"):
        fit(tiny(), empty, options())
    monkeypatch.setattr(Objective, "loss", lambda self, outputs, rows: outputs.sum() * float("nan"))
    with pytest.raises(OptionError, match="lr: expected a loss that stays finite; it became nan in epoch 1"):
        fit(tiny(), task, options())


@pytest.mark.parametrize(
    "field, value, words",
    [
        ("y", None, "y of graph 0: expected a tensor"),
        ("y", torch.tensor([0.5]), "classes as integers"),
        ("y", torch.tensor([2]), "classes 0..1, or -1 where one is missing; came 0..2"),
        ("y", torch.tensor([-2]), "classes 0..1, or -1 where one is missing; came -2..1"),
        ("y", torch.tensor([0, 1]), r"1 row\(s\) of 1 target"),
    ],
)
def test_targets_that_do_not_fit_are_refused(field, value, words):
    task = paths_and_cycles(6)
    task.graphs[0][field] = value
    with pytest.raises(InputError, match=words):
        Objective(task)


def test_the_graph_of_a_node_task_is_prepared_once(monkeypatch):
    task = ends()
    model = tiny(task)
    calls, real = [], type(model).prepare

    def prepare(self, batch):
        calls.append(type(batch))
        return real(self, batch)

    monkeypatch.setattr(type(model), "prepare", prepare)
    fit(model, task, options(epochs=5))
    assert sum(kind is not Prepared for kind in calls) == 2  # once to learn from, once to validate


def test_a_batch_norm_of_one_process_is_left_alone():
    model = tiny(norm="batch")
    before = {type(module) for module in model.modules()}
    fit(model, paths_and_cycles(6), options(epochs=1))
    assert {type(module) for module in model.modules()} == before


def test_progress_prints_lines_where_there_is_no_terminal():
    stream = io.StringIO()
    with progress_bar("tiny", stream) as report:
        fit(tiny(), paths_and_cycles(6), options(epochs=2), report=report)
    (line,) = stream.getvalue().splitlines()
    assert line.startswith("tiny: epoch 2 of 2, loss ")
    assert "val accuracy" in line
    assert "GB" in line


def test_a_reader_that_has_seen_enough_ends_no_training():
    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    with progress_bar("tiny", Closed()) as report:
        history = fit(tiny(), paths_and_cycles(6), options(epochs=2), seed=0, report=report)
    assert history.epochs == 2


def test_progress_tells_pace_memory_and_time_left():
    told = []
    fit(
        tiny(),
        paths_and_cycles(8),
        options(epochs=3),
        report=lambda done, total, text: told.append((done, total, text)),
    )
    assert told[0][2].startswith("epoch 1 of 3")
    middle = next(text for done, total, text in told if "epoch 2 of 3" in text)
    for words in ("loss", "val accuracy", "graphs/s", "GB", "left"):
        assert words in middle
    assert [done for done, total, _ in told[:-1]] == sorted(done for done, _, _ in told[:-1])


def test_progress_draws_a_bar_in_a_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = io.StringIO()
    stream.isatty = lambda: True
    with progress_bar("tiny", stream) as report:
        report(1, 2, "epoch 1 of 2")
        report(2, 2, "epoch 2 of 2")
    assert "epoch 2 of 2" in stream.getvalue()
    assert "━" in stream.getvalue()


def test_a_model_without_prepare_trains_too():
    """Any module that takes a PyG batch and gives a row a graph."""

    class Degrees(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(2, 2)

        def forward(self, batch):
            inside = batch.batch[batch.edge_index[0]].bincount(minlength=batch.num_graphs).float()
            return self.linear(torch.stack([inside / 10, (batch.ptr[1:] - batch.ptr[:-1]) / 10], 1))

    history = fit(Degrees(), paths_and_cycles(), options(epochs=5, lr=0.1))
    assert history.train_loss[-1] < history.train_loss[0]


def test_a_generated_batch_of_one_graph_warns():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(tiny(norm="batch"), paths_and_cycles(5), options(epochs=1, batch_size=1))
    assert any("a training batch of one graph" in str(item.message) for item in caught)
