"""Missing targets count in neither loss nor metric; where nothing is left to measure, the loss decides, then the last epoch."""

import math
from dataclasses import replace

import pytest
import torch
from training_cases import TASKS, everywhere, flags, one_sided, options, paths_and_cycles, sizes, tiny

from tuplet.errors import OptionError
from tuplet.training import History, TrainOptions, evaluate, fit, learning_rate
from tuplet.training.evaluation import Evaluation
from tuplet.training.objective import Objective


def test_missing_targets_leave_no_trace():
    """The gradient with a missing target is that of the other targets alone."""
    task = sizes(missing=False)
    blank = [graph.clone() for graph in task.graphs]
    for graph in blank[::2]:
        graph.y = torch.full((1, 2), torch.nan)
    half = replace(task, graphs=blank)
    members = task.splits[0]["train"]
    known = replace(task, splits=({"train": members[members % 2 == 1]},))
    objective = Objective(half)
    assert objective.count(objective.rows(members.tolist())) == 2 * len(known.splits[0]["train"])
    for one, two in ((half, known),):
        loss = [evaluate(tiny(one), t, "train").loss for t in (one, two)]
        assert loss[0] == pytest.approx(loss[1], rel=1e-6)


@pytest.mark.parametrize("name", ["graph", "node"])
def test_missing_classes_leave_no_trace(name):
    """Loss, metric and gradient with some classes missing are those of the other items alone."""
    task = TASKS[name]()
    members = task.splits[0]["train"]
    gone, known = members[::2], members[1::2]
    graphs = [graph.clone() for graph in task.graphs]
    if name == "node":
        graphs[0].y[gone] = -1
    else:
        for member in gone.tolist():
            graphs[member].y = torch.tensor([-1])
    blank = replace(task, graphs=graphs)
    model = tiny(task)
    found = []
    for case in (blank, replace(task, splits=({"train": known},))):
        objective = Objective(case)
        part = objective.part("train", 0)
        rows = objective.rows(part.members.tolist(), part.nodes)
        assert objective.count(rows) == len(known)
        outputs = model(model.prepare([case.graphs[member] for member in part.members.tolist()]))
        loss = objective.loss(outputs if part.nodes is None else outputs[part.nodes], rows)
        found.append([*torch.autograd.grad(loss, list(model.parameters()), allow_unused=True), loss])
        score = evaluate(model, case, "train")
        found[-1] += [torch.tensor([score.loss, score.metric])]
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-6)


def test_a_run_learns_from_the_classes_that_are_there():
    task = everywhere(paths_and_cycles(9))
    for graph in task.graphs[::5]:
        graph.y = torch.tensor([-1])
    model = tiny()
    assert fit(model, task, options(epochs=60, lr=2e-2, stop_at=1.0), seed=1).val_metric[-1] == 1.0
    nothing = replace(task, graphs=[graph.clone() for graph in task.graphs])
    for graph in nothing.graphs:
        graph.y = torch.tensor([-1])
    with pytest.raises(
        OptionError, match="train: expected at least one target to learn from in split 0; all are missing"
    ):
        fit(model, nothing, options())


def test_an_undefined_validation_metric_is_told_once_and_the_loss_decides(monkeypatch):
    told = iter([3.0, 1.0, 2.0, 1.0])
    real = Evaluation.score
    monkeypatch.setattr(Evaluation, "score", lambda self: replace(real(self), loss=next(told)))
    with pytest.warns(
        UserWarning, match="the rocauc of the validation part of split 0 .* is undefined: no target has both"
    ) as caught:
        history = fit(tiny(one_sided()), one_sided(), options(epochs=4))
    assert len([item for item in caught if "undefined" in str(item.message)]) == 1
    assert "the weights of its lowest loss are kept" in str(caught[0].message)
    assert all(map(math.isnan, history.val_metric))
    assert history.best == 1


def test_with_neither_metric_nor_loss_the_last_epoch_is_kept():
    task = flags()
    for member in task.splits[0]["val"].tolist():
        task.graphs[member].y = torch.full((1, 2), torch.nan)
    with pytest.warns(UserWarning, match="is undefined: no target is there"):
        history = fit(tiny(task), task, options(epochs=3))
    assert history.best == 2


def test_a_number_is_better_than_none_whatever_the_loss_and_of_equal_ones_that_of_the_lowest_loss():
    nan = math.nan
    history, kept = History(), []
    for metric, loss in [
        (nan, nan),
        (nan, 2.0),
        (nan, 3.0),
        (nan, nan),
        (0.1, 9.0),
        (nan, 0.0),
        (0.4, 9.0),
        (0.4, 9.0),
        (0.4, 1.0),
        (0.4, 2.0),
        (0.4, nan),
    ]:
        history.val_metric.append(metric)
        history.val_loss.append(loss)
        history.train_loss.append(0.0)
        if history.is_best(maximise=True):
            history.best = history.epochs - 1
        kept.append(history.best)
    assert kept == [0, 1, 1, 1, 4, 4, 6, 6, 8, 8, 8]
    assert history.watched(True) == (history.val_metric, True)


def test_the_plateau_follows_the_loss_where_the_metric_is_undefined():
    history = History(val_loss=[5.0, 4.0, 3.0], val_metric=[math.nan] * 3)
    setting = TrainOptions(lr=1.0, schedule="plateau", plateau_patience=2)
    assert learning_rate(3, setting, *history.watched(maximise=True)) == 1.0
    assert learning_rate(3, setting, history.val_metric) < 1.0
