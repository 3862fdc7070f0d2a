"""A saved model in use: predictions for graphs or molecules, and its metric on a task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from tuplet.errors import InputError, OptionError, RunError, TupletError
from tuplet.graphs.door import as_data
from tuplet.graphs.from_networkx import is_networkx
from tuplet.graphs.smiles import ATOM_TYPES, BOND_TYPES, Unreadable, from_smiles
from tuplet.training.aligned import aligned
from tuplet.training.batches import cut, prepare, token_counts
from tuplet.training.evaluation import evaluate, warn_undefined
from tuplet.training.inputs import fingerprint, narrowed, ready
from tuplet.training.options import TrainOptions
from tuplet.training.parallel import matmul_precision
from tuplet.training.predictions import Predictions
from tuplet.training.store import CONFIG, TaskInfo, load_model

if TYPE_CHECKING:
    from tuplet.datasets.task import Task


NOT_FINITE = "outputs: expected finite numbers; came others: features of the graph, or weights of the model, are NaN or too large"
"""Instead of a prediction."""


class Trained:
    """A model with what it was trained for.

    Args:
        model: in evaluation mode.
        task: what it was trained for.
        config: the content of ``config.json``.
    """

    def __init__(self, model: nn.Module, task: TaskInfo, config: dict[str, Any]) -> None:
        self.model, self.task, self.config = model, task, config

    def __repr__(self) -> str:
        return f"Trained({self.config['model']['name']!r} for {self.task.name!r}: {self.task.level} {self.task.kind})"

    def to(self, device: torch.device | str) -> Trained:
        """The same, on a device."""
        try:
            self.model.to(device)
        except (RuntimeError, AssertionError) as error:  # torch without CUDA asserts
            reason = str(error).splitlines()[0]
            raise OptionError(
                f"device: expected one that torch has here, as 'cpu'; came {device!r} ({reason})"
            ) from error
        return self

    def reads_smiles(self) -> bool:
        """Whether the model's features are those of molecules, so that a text is a SMILES."""
        return (self.task.node_types, self.task.edge_types) == (ATOM_TYPES, BOND_TYPES)

    def predict(
        self,
        items: Iterable[Any],
        *,
        batch_size: int = 32,
        batch_tokens: int | None = None,
        progress: Callable[[int, int, str], None] | None = None,
    ) -> Predictions:
        """Predictions for graphs (PyG, networkx, graph6) or molecules (SMILES, where the model was trained on molecules).

        They do not depend on the batches. A graph that cannot be read, or that does not fit, is a row with an error text, as is an
        ``Unreadable`` in its place.

        Args:
            items: the graphs.
            batch_size: graphs at once ...
            batch_tokens: ... or tokens at once.
            progress: told how far it is (see ``progress_bar``).
        """
        refuse_alone("items", items)
        read = [self._read(item) for item in items]
        graphs = [item for item in read if isinstance(item, Data)]
        places = [place for place, item in enumerate(read) if isinstance(item, Data)]
        options = TrainOptions(batch_size=batch_size, batch_tokens=batch_tokens)
        found: dict[int, Tensor | str] = {place: item for place, item in enumerate(read) if isinstance(item, str)}
        tokens = token_counts(self.model, graphs) if batch_tokens is not None else None
        for batch in cut(range(len(graphs)), options, tokens):
            for member, rows in zip(batch, self._run(graphs, batch), strict=True):
                found[places[member]] = rows
            if progress is not None:
                progress(len(found), len(read), f"{len(found)} of {len(read)} graphs")
        return self._gather([found[place] for place in range(len(read))])

    def evaluate(
        self,
        task: Task,
        part: str = "test",
        *,
        fold: int | None = None,
        batch_size: int = 32,
        root: str | Path | None = None,
    ) -> dict[str, float]:
        """Metric, loss, number of rows, and of those with a target, of one part of a task; by default of the split that the model was
        trained on.

        Args:
            task: like the one the model was trained for; classes are known by their names.
            part: "train", "val" or "test".
            fold: number of the split; 0 if there is one alone.
            batch_size: graphs at once; the result does not depend on it.
            root: where prepared data are kept, as for ``tuplet.datasets.load``.
        """
        task = aligned(task, self.task)
        for field in ("level", "kind", "outputs"):
            if getattr(task, field) != getattr(self.task, field):
                expected, came = getattr(self.task, field), getattr(task, field)
                raise OptionError(
                    f"task: expected {field} = {expected!r}, as the model was trained; {task.name} has {came!r}"
                )
        if fold is None:
            fold = int(self.config.get("fold", 0)) if len(task.splits) > 1 else 0
        if not 0 <= fold < len(task.splits):
            raise OptionError(
                f"fold: expected a number 0..{len(task.splits) - 1}, the splits of {task.name}; came {fold}"
            )
        filled = [name for name, items in task.splits[fold].items() if len(items)]
        if part not in filled:
            raise OptionError(f"part: expected {' or '.join(filled)}, the parts that are not empty; came {part!r}")
        task = narrowed(replace(task, mean=self.task.mean, std=self.task.std), [fold], [part])
        task = ready(task, self.model, root=root)
        score = evaluate(self.model, task, part, fold=fold, batch_size=batch_size)
        warn_undefined(score, self.task.metric, f"the {part} part", self.task.targets)
        rows = {"rows": float(len(score.outputs)), "known": float(score.known)}
        return {self.task.metric: score.metric, "loss": score.loss, **rows}

    def learned_from(self, task: Task) -> bool:
        """Whether the model's run had these graphs, targets and splits, as far as it says."""
        known, folds = self.config.get("data"), self.config.get("training", {}).get("folds")
        return known is None or known == fingerprint(
            narrowed(task, range(len(task.splits)) if folds is None else folds)
        )

    def _read(self, item: Any) -> Data | str:
        """A graph, or why there is none."""
        if isinstance(item, Unreadable):
            return item.reason
        try:
            if isinstance(item, str) and self.reads_smiles():
                return from_smiles(item)
            graph = as_data(item)
        except TupletError as error:
            if isinstance(error, ImportError):
                raise
            return str(error)
        return graph if isinstance(graph, Data) else f"items: expected one graph; came {type(item).__name__}."

    @torch.no_grad()
    def _run(self, graphs: Sequence[Data], members: Sequence[int]) -> list[Tensor | str]:
        """Rows of each graph of a batch; if the batch fails, graph by graph, so that one bad graph spoils no other."""
        self.model.eval()
        device = next(self.model.parameters()).device
        try:
            with matmul_precision("highest"), torch.autocast(device.type, enabled=False):
                outputs = self.model(prepare(self.model, graphs, members))
        except (TupletError, torch.OutOfMemoryError) as error:
            if len(members) == 1:
                return [str(error)]
            return [rows for member in members for rows in self._run(graphs, [member])]
        counts = [self._count(graphs[member]) for member in members]
        found = self.task.natural(outputs).cpu().split(counts)
        return [rows if bool(rows.isfinite().all()) else NOT_FINITE for rows in found]

    def _count(self, graph: Data) -> int:
        if self.task.level == "node":
            return int(graph.num_nodes or 0)
        return int(graph.edge_label_index.shape[1]) if self.task.level == "edge" else 1

    def _gather(self, found: Sequence[Tensor | str]) -> Predictions:
        missing = torch.full((1, self.task.outputs), torch.nan, dtype=torch.double)
        rows = [missing if isinstance(item, str) else item for item in found]
        owner = torch.arange(len(rows)).repeat_interleave(torch.tensor([len(item) for item in rows], dtype=torch.long))
        errors = tuple(item if isinstance(item, str) else None for item in found)
        return Predictions(torch.cat(rows) if rows else missing[:0], owner, errors, self.task)


def refuse_alone(name: str, items: Any) -> None:
    """Refuse one graph or text where a list is expected: a text would be read letter by letter."""
    if isinstance(items, str | Data) or is_networkx(items) or not isinstance(items, Iterable):
        raise InputError(name, "a list of graphs or SMILES", f"{type(items).__name__} alone")


def load(path: str | Path, device: torch.device | str = "cpu") -> Trained:
    """A trained model from a run folder, or from the model folder in it, which can be moved anywhere.

    Args:
        path: the folder.
        device: where to put the model.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise RunError(f"{path}: expected the folder of a run or a model; there is none")
    model, task, config = load_model(folder if (folder / CONFIG).is_file() else folder / "model")
    return Trained(model, task, config).to(device)
