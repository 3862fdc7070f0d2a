"""The one training loop: AdamW, a schedule a pure function of the past, the weights of the best validation epoch."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from tuplet.attention.weights import wide
from tuplet.errors import OptionError
from tuplet.training import adamw_cpu
from tuplet.training.average import follow, standing_in
from tuplet.training.batches import Members, checked_for, packed_for, prepare, share, shuffled, token_counts
from tuplet.training.evaluation import Evaluation, Score, warn_undefined
from tuplet.training.keeper import Keeper
from tuplet.training.norms import batch_norms, settle_norms, share_norms
from tuplet.training.objective import Objective
from tuplet.training.options import TrainOptions
from tuplet.training.pages import Kept, give_back, keep_freed
from tuplet.training.parallel import MATMUL, make_fabric, matmul_precision, sum_gradients
from tuplet.training.progress import Report, describe
from tuplet.training.recorded import Recorder, make_recorder
from tuplet.training.schedule import learning_rate
from tuplet.training.state import History, State

if TYPE_CHECKING:
    from tuplet.datasets.task import Task


def fit(
    model: nn.Module,
    task: Task,
    options: TrainOptions,
    *,
    seed: int = 0,
    fold: int = 0,
    fabric: Any = None,
    objective: Objective | None = None,
    keeper: Keeper | None = None,
    report: Report | None = None,
    log: Callable[[History], None] | None = None,
) -> History:
    """Train ``model`` in place; it ends in evaluation mode with the weights of its best validation epoch (see ``History.best``).

    Args:
        model: takes what its ``prepare`` makes of a list of graphs, and gives a row of outputs for each target.
        task: graphs, splits and what is asked.
        options: the settings; ``model``, ``seeds`` and ``folds`` are not read here.
        seed: of the order of graphs and of dropout.
        fold: number of the split.
        fabric: of the processes; made from the options if None.
        objective: targets, loss and metric of the task, if they have been gathered before.
        keeper: saves the state now and then, and knows where to go on.
        report: told at every step how far the run is (see ``progress_bar``).
        log: told the history after every epoch, and once at the beginning.
    """
    fabric = fabric or make_fabric(options)
    objective = objective or Objective(task, fabric.device)
    return Loop(model, objective, options, seed, fold, fabric, keeper or Keeper(), report, log).run()


def ready_loop(model: nn.Module, task: Task, options: TrainOptions, fabric: Any) -> Loop:
    """A run on the first split that is ready for single steps: for those who measure them."""
    loop = Loop(model, Objective(task, fabric.device), options, 0, 0, fabric, Keeper(), None, None)
    loop.begin()
    return loop


def make_optimiser(model: nn.Module, options: TrainOptions, device: torch.device) -> torch.optim.Optimizer:
    """AdamW as one kernel; on a GPU its learning rate lives there, so that steps can be recorded."""
    if device.type != "cuda":
        return torch.optim.AdamW(model.parameters(), options.lr, weight_decay=options.weight_decay, fused=True)
    rate = torch.tensor(options.lr, device=device)
    decay = options.weight_decay
    return torch.optim.AdamW(model.parameters(), rate, weight_decay=decay, fused=True, capturable=True)


class Loop:
    """What ``fit`` works with: a model, its optimiser, batches, and where the run is."""

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        options: TrainOptions,
        seed: int,
        fold: int,
        fabric: Any,
        keeper: Keeper,
        report: Report | None,
        log: Callable[[History], None] | None,
    ) -> None:
        task = objective.task
        self.task, self.objective, self.options, self.fabric = task, objective, options, fabric
        self.seed, self.fold, self.warned = seed, fold, False
        self.keeper, self.report, self.log = keeper, report, log
        self.model = model.to(fabric.device)
        if options.precision == "fp64":
            self.model.double()
        self.train = self.objective.part("train", fold)
        if len(self.train.members) == 0:
            raise OptionError(f"train: expected at least one graph to learn from in split {fold}; came none")
        if objective.count(objective.rows(self.train.members.tolist(), self.train.nodes)) == 0:
            raise OptionError(f"train: expected at least one target to learn from in split {fold}; all are missing")
        if len(self.train.members) < fabric.world_size:
            raise OptionError(
                f"devices: expected at most {len(self.train.members)}, the graphs to learn from; came {fabric.world_size}"
            )
        if options.settle_norms is not None and not batch_norms(model):
            raise OptionError(
                f"settle_norms: expected a model with batch norms, as norm='batch' has; {options.model} has none"
            )
        self.norms = share_norms(model) if fabric.world_size > 1 else []
        self.graphs = packed_for(model, task.graphs)
        self.tokens = token_counts(model, task.graphs) if options.batch_tokens is not None else None
        held_out = self.objective.part("val", fold)
        if len(held_out.members) == 0:
            options.refuse_without_validation(fold)
        self.validation = Evaluation(model, self.graphs, self.objective, held_out, options, fabric)
        self.forward: Callable[..., Any] = torch.compile(model, dynamic=True) if options.compile else model
        optimiser = make_optimiser(model, options, fabric.device)
        self.parameters = list(model.parameters())
        self.state = State(model, optimiser, loss=torch.zeros((), dtype=torch.float64, device=fabric.device))
        self.recorder: Recorder | None = None
        self.kept = Kept()
        self.only: Any = None
        self.told = 0.0
        self.began: tuple[float, float] | None = None

    def run(self) -> History:
        """Epoch after epoch until the run is done; then the best weights."""
        state, options = self.state, self.options
        cuda = [self.fabric.device] if self.fabric.device.type == "cuda" else []
        with torch.random.fork_rng(devices=cuda):
            torch.manual_seed(self.seed + 1_000_003 * self.fabric.global_rank)
            try:
                self.begin()
                if self.log is not None:
                    self.log(state.history)
                with self.keeper.listening():
                    while not state.done:
                        self._epoch()
            finally:
                if self.fabric.device.type == "cpu":
                    give_back()
        if self.report is not None:
            self.report(1, 1, describe(state.history, options, self.task.metric, over=True))
        self.model.load_state_dict(state.best)
        self.model.eval()
        return state.history

    def begin(self) -> None:
        """Go to where the last checkpoint was, and get ready for steps."""
        self.keeper.restore(self.state, self.fabric)
        self._fill_gradients()
        if self.fabric.device.type == "cpu":
            keep_freed()
        self.recorder = make_recorder(self.model, self.objective, self.options, self.fabric, self.state)
        self.validation.record(self.recorder)
        if self.recorder is None:
            self.graphs = checked_for(self.model, self.graphs, self.train.members.tolist())
        self._learn()

    def _epoch(self) -> None:
        """The rest of an epoch: its steps, validation, and whether it was the best or the last."""
        state, options = self.state, self.options
        begin = time.perf_counter() - state.spent
        history, maximise = state.history, self.task.maximise
        rate = learning_rate(state.epoch, options, *history.watched(maximise))
        for group in state.optimiser.param_groups:
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        steps = shuffled(self.train.members, options, self.tokens, self.seed, state.epoch)
        self._learn()
        for number in range(state.step, len(steps)):
            self._tell(number, len(steps))
            due = self.step(steps[number])
            state.step, state.spent = number + 1, time.perf_counter() - begin
            if due and state.step < len(steps):
                self.keeper.save(state, self.fabric)
        history.train_loss.append(self._finite() / max(state.count, 1))  # which waits for the steps to end
        history.train_seconds.append(time.perf_counter() - begin)
        if options.average is not None:
            follow(state.average, self.model, 1 / min(state.epoch + 1, options.average))
        with standing_in(state.average, self.model):
            score = self.validation.score()
            self._warn_once(score)
            history.lr.append(rate)
            history.val_loss.append(score.loss)
            history.val_metric.append(score.metric)
            history.seconds.append(time.perf_counter() - begin)
            if history.is_best(maximise):
                history.best = state.epoch
                state.best = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        state.epoch, state.step, state.count, state.spent = state.epoch + 1, 0, 0.0, 0.0
        state.loss.zero_()
        state.done = self._ends()
        if self.fabric.broadcast(self.keeper.due() or state.done):
            self.keeper.save(state, self.fabric)
        if self.log is not None:
            self.log(history)

    def _learn(self) -> None:
        """Put the model into training mode, its batch norms not when they have settled."""
        self.model.train()
        settled = self.options.settle_norms
        if settled is not None and self.state.epoch >= settled:
            settle_norms(self.model)
            if self.recorder is not None and self.state.epoch == settled:
                self.recorder.forget_steps()

    def step(self, batches: list[Members]) -> bool:
        """One step on one or several batches; whether a checkpoint is due."""
        state, options, fabric = self.state, self.options, self.fabric
        if self.recorder is not None:
            self.recorder.step(batches[0])
            state.count += self.objective.count_of(batches[0])
            due = self.keeper.due()
            if due:
                self._finite()
            return due
        rows = [self.objective.rows(members, self.train.nodes) for members in batches]
        count = sum(self.objective.count(some) for some in rows)
        for parameter in self.parameters:
            parameter.grad = None
        due = self.keeper.due() and fabric.global_rank == 0
        extra = torch.tensor([0.0, due], dtype=torch.float64, device=fabric.device)
        with matmul_precision(MATMUL[options.precision]):
            for members in batches:
                extra[0] += self._backward(members, max(count, 1.0))
            self._fill_gradients()
            if fabric.world_size > 1:
                extra = sum_gradients(fabric, self.model, extra)
                due = bool(extra[1])
        state.loss += extra[0]
        state.count += count
        if due or fabric.device.type == "cpu":  # elsewhere looking at the loss would mean waiting for it
            self._finite()
        if not adamw_cpu.update(state.optimiser, options.clip):
            if options.clip is not None:
                nn.utils.clip_grad_norm_(self.parameters, options.clip)
            state.optimiser.step()
        if fabric.device.type == "cpu":
            self.kept.look()
        return due

    def _fill_gradients(self) -> None:
        """A weight that a batch does not use has the gradient 0, not none; one that is held still has none, and stays as it is."""
        for parameter in self.parameters:
            if parameter.grad is None and parameter.requires_grad:
                parameter.grad = torch.zeros_like(parameter)

    def _backward(self, members: Members, count: float) -> torch.Tensor:
        """Add the gradients of one batch, or of this process's share of it; the sum of its losses."""
        own, counted = share(members, self.fabric.global_rank, self.fabric.world_size)
        for norm in self.norms:
            norm.counted = counted
        ready = self._prepared(own)
        with self.fabric.autocast() if self.options.precision == "bf16" else nullcontext():
            outputs = self.forward(ready)
        if self.train.nodes is not None:
            outputs = outputs[self.train.nodes]
        loss = self.objective.loss(outputs.to(wide(outputs.dtype)), self.objective.rows(own, self.train.nodes))
        if not counted:
            loss = loss * 0
        self.fabric.backward(loss / count)
        return loss.detach().double()

    def _prepared(self, members: Members) -> Any:
        """A batch ready to run; the one graph of a node task is prepared once."""
        if self.fabric.world_size > 1:
            with warnings.catch_warnings():  # a share of one graph is not a batch of one graph
                warnings.filterwarnings("ignore", "a training batch of one graph")
                return prepare(self.model, self.graphs, members)
        if len(self.graphs) > 1:
            return prepare(self.model, self.graphs, members)
        if self.only is None:
            self.only = prepare(self.model, self.graphs, members)
        return self.only

    def _finite(self) -> float:
        """The sum of losses so far, refused if it is no number any more."""
        value = self.state.loss.item()
        if not math.isfinite(value):
            raise OptionError(
                f"lr: expected a loss that stays finite; it became {value} in epoch {self.state.epoch + 1}. Try less than "
                f"{self.options.lr:g}, a longer warm-up, or precision fp32."
            )
        return value

    def _warn_once(self, score: Score) -> None:
        """Say that the validation metric is undefined, and by what the weights are chosen instead."""
        if score.undefined and not self.warned and self.fabric.global_rank == 0:
            self.warned = True
            chosen = "the weights of its lowest loss are kept, or the last ones if that is undefined too"
            warn_undefined(score, self.task.metric, f"the validation part of split {self.fold} ({chosen})")

    def _ends(self) -> bool:
        """Whether the run is done: all epochs, good enough, no longer improving, or a learning rate below the least."""
        history, options = self.state.history, self.options
        epoch, latest = self.state.epoch, history.val_metric[-1]
        good = options.stop_at is not None and (
            latest >= options.stop_at if self.task.maximise else latest <= options.stop_at
        )
        stale = options.patience is not None and epoch - 1 - history.best >= options.patience
        rate = learning_rate(epoch, options, *history.watched(self.task.maximise))
        low = options.schedule == "plateau" and epoch >= options.warmup and rate < options.min_lr
        return epoch >= options.epochs or good or stale or low

    def _tell(self, step: int, steps: int) -> None:
        """Report where the run is, and how long it will take at the pace since it began or was continued."""
        if self.report is None or (step and time.monotonic() - self.told < 0.05):
            return
        self.told = time.monotonic()
        done = (self.state.epoch + step / steps) / self.options.epochs
        if self.began is None:
            self.began = time.monotonic(), done
        passed, gained = time.monotonic() - self.began[0], done - self.began[1]
        left = passed * (1 - done) / gained if gained > 0 else None
        pace = len(self.train.members) * self.options.epochs * gained / passed if gained > 0 else None
        text = describe(self.state.history, self.options, self.task.metric, pace, left)
        self.report(self.state.epoch * steps + step, self.options.epochs * steps, text)
