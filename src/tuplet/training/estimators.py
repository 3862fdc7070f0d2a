"""The face of scikit-learn: estimators of graphs with fit, predict and score. scikit-learn itself is not needed."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch_geometric.data import Data

from tuplet._extras import require
from tuplet.datasets.own import load_graphs
from tuplet.datasets.task import NO_CLASS, Kind, Loss
from tuplet.errors import InputError, OptionError
from tuplet.graphs.smiles import ATOM_TYPES, BOND_TYPES, Unreadable, try_smiles
from tuplet.training.inputs import ready
from tuplet.training.loop import fit
from tuplet.training.options import TrainOptions
from tuplet.training.predictions import Predictions
from tuplet.training.progress import progress_bar
from tuplet.training.runs import make_model
from tuplet.training.store import TaskInfo, model_options
from tuplet.training.trained import Trained, refuse_alone

LISTED = 10
"""Graphs that a warning names."""


class GraphEstimator:
    """What ``GraphRegressor`` and ``GraphClassifier`` share.

    Args:
        model: name of a model, as for ``tuplet.build``.
        dim, depth, heads: its width, layers and heads.
        encodings: its positional and structural encodings, as short forms.
        epochs, batch_size, lr, warmup, weight_decay: of the training.
        validation: part of the graphs that is held out to choose the best epoch; 0 takes the last epoch.
        patience: stop after so many epochs without improvement on them.
        seed: of weights, split and order.
        strings: what a text stands for: "smiles" or "graph6".
        errors: what prediction does with graphs and SMILES that cannot be read: "raise" names the first of them, as scikit-learn
            would; "nan" predicts NaN for them, with a warning that lists them. ``fit`` always raises.
        model_options: further options of ``tuplet.build``.
        train_options: further options of ``tuplet.training.TrainOptions``.
        show: print how far the training is.
    """

    kind: ClassVar[Kind]

    def __init__(
        self,
        model: str = "A2^LN",
        *,
        dim: int = 64,
        depth: int = 3,
        heads: int = 4,
        encodings: Sequence[str] = (),
        epochs: int = 100,
        batch_size: int = 32,
        lr: float = 1e-3,
        warmup: int = 0,
        weight_decay: float = 1e-5,
        validation: float = 0.1,
        patience: int | None = None,
        seed: int = 0,
        strings: str = "smiles",
        errors: str = "raise",
        model_options: Mapping[str, Any] | None = None,
        train_options: Mapping[str, Any] | None = None,
        show: bool = False,
    ) -> None:
        self.model, self.dim, self.depth, self.heads, self.encodings = model, dim, depth, heads, encodings
        self.epochs, self.batch_size, self.lr, self.warmup, self.weight_decay = (
            epochs,
            batch_size,
            lr,
            warmup,
            weight_decay,
        )
        self.validation, self.patience, self.seed = validation, patience, seed
        self.strings, self.errors = strings, errors
        self.model_options, self.train_options, self.show = model_options, train_options, show

    @classmethod
    def get_param_names(cls) -> list[str]:
        """Names of the constructor's arguments."""
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments as they are now."""
        return {name: getattr(self, name) for name in self.get_param_names()}

    def set_params(self, **params: Any) -> GraphEstimator:
        """Change some of them."""
        for name, value in params.items():
            if name not in self.get_param_names():
                raise OptionError(f"{name}: expected one of {', '.join(self.get_param_names())}")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        usual = inspect.signature(type(self).__init__).parameters
        told = [f"{name}={value!r}" for name, value in self.get_params().items() if value != usual[name].default]
        return f"{type(self).__name__}({', '.join(told)})"

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "trained_")

    def __sklearn_tags__(self) -> Any:
        library = require("sklearn.utils", "dev")
        regressor = self.kind == "regression"
        return library.Tags(
            estimator_type="regressor" if regressor else "classifier",
            target_tags=library.TargetTags(required=True),
            regressor_tags=library.RegressorTags() if regressor else None,
            classifier_tags=None if regressor else library.ClassifierTags(),
            input_tags=library.InputTags(two_d_array=False),
        )

    def _fit(self, graphs: Sequence[Any], labels: np.ndarray, loss: Loss | None) -> None:
        """Train a model on graphs and labels (G,) or (G, t)."""
        refuse_alone("X", graphs)
        if len(graphs) == 0:
            raise InputError("X", "at least one graph", "an empty list")
        if len(graphs) != len(labels):
            raise InputError("y", f"{len(graphs)} targets, one a graph", f"{len(labels)}")
        if not isinstance(self.validation, int | float | np.number) or not 0 <= self.validation < 1:
            raise OptionError(f"validation: expected a number in [0, 1); came {self.validation!r}")
        if not isinstance(self.seed, int | np.integer) or self.seed < 0:
            raise OptionError(f"seed: expected a whole number of at least 0; came {self.seed!r}")
        data, molecules = self._graphs(graphs)
        for number, item in enumerate(data):
            if isinstance(item, Unreadable):
                raise InputError(f"X[{number}]", "a molecule", item.reason)
        held_out = int(len(data) * self.validation)
        order = np.random.default_rng(self.seed).permutation(len(data))
        split = {"train": order[held_out:].tolist(), "val": order[:held_out].tolist()}
        if not held_out:
            del split["val"]
        task = load_graphs(
            data, labels=list(torch.as_tensor(labels)), split=split, kind=self.kind, loss=loss, level="graph"
        )
        if molecules:
            task = replace(task, node_types=ATOM_TYPES, edge_types=BOND_TYPES)
        options = self._options()
        seed = options.seeds[0]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = make_model(task, options)
        task = ready(task, model)
        if self.show:
            with progress_bar(options.model) as report:
                fit(model, task, options, seed=seed, report=report)
        else:
            fit(model, task, options, seed=seed)
        config = {"model": {"name": options.model, "options": model_options(model, options.model_options)}}
        self.trained_ = Trained(model, TaskInfo.of(task), config)

    def _options(self) -> TrainOptions:
        own: dict[str, Any] = {
            "dim": self.dim,
            "depth": self.depth,
            "heads": self.heads,
            "encodings": [*self.encodings],
        }
        names = ("model", "epochs", "batch_size", "lr", "warmup", "weight_decay", "patience")
        values = {name: getattr(self, name) for name in names} | {"seeds": (self.seed,)}
        more = {**own, **(self.model_options or {})}
        return TrainOptions.of({**values, "model_options": more, **(self.train_options or {})})

    def _graphs(self, items: Sequence[Any]) -> tuple[list[Any], bool]:
        """Graphs, ``Unreadable`` in place of a text that is no molecule; and whether they are molecules."""
        if self.strings not in ("smiles", "graph6"):
            raise OptionError(f"strings: expected 'smiles' or 'graph6'; came {self.strings!r}")
        refuse_alone("X", items)
        if self.strings == "graph6" or not any(isinstance(item, str) for item in items):
            return list(items), False
        return [_molecule(item) for item in items], True

    def _predict(self, items: Sequence[Any]) -> Predictions:
        """Predictions for all graphs; what fails is raised or warned of, as ``errors`` says."""
        if not hasattr(self, "trained_"):
            raise OptionError(f"{type(self).__name__}: expected fit before predict")
        if self.errors not in ("raise", "nan"):
            raise OptionError(f"errors: expected 'raise' or 'nan'; came {self.errors!r}")
        told = self.trained_.predict(self._graphs(items)[0], batch_size=self.batch_size)
        failed = [(number, error) for number, error in enumerate(told.errors) if error is not None]
        if failed and self.errors == "raise":
            number, error = failed[0]
            hint = "With errors='nan' its prediction is NaN."
            raise InputError(f"X[{number}]", "a graph that the model can read", error, hint)
        if failed:
            listed = "; ".join(f"X[{number}]: {error.rstrip('.')}" for number, error in failed[:LISTED])
            more = f"; and {len(failed) - LISTED} more" if len(failed) > LISTED else ""
            warnings.warn(f"{len(failed)} graph(s) that cannot be predicted have NaN: {listed}{more}", stacklevel=3)
        return told


class GraphRegressor(GraphEstimator):
    """Real targets from graphs, PyG, networkx, graph6 or SMILES, as an estimator of scikit-learn.

    >>> cross_val_score(GraphRegressor("A1,2^Ngbh", epochs=50), smiles, solubility, cv=5)
    """

    kind: ClassVar[Kind] = "regression"

    def fit(self, X: Sequence[Any], y: Any) -> GraphRegressor:
        """Train on graphs and targets (G,) or (G, t); NaN is a missing target."""
        targets = np.asarray(y, dtype=np.float32)
        self.flat_ = targets.ndim == 1
        self._fit(X, targets[:, None] if self.flat_ else targets, "l1")
        return self

    def predict(self, X: Sequence[Any]) -> np.ndarray:
        """(G,) or (G, t), as the targets were.

        A graph or SMILES that cannot be read raises an error that names it; with ``errors="nan"`` its prediction is NaN.
        """
        values = self._predict(X).values.numpy()
        return values[:, 0] if self.flat_ else values

    def score(self, X: Sequence[Any], y: Any) -> float:
        """The coefficient of determination R², the mean over targets; missing targets do not count. NaN if a prediction is."""
        targets = np.asarray(y, dtype=np.float64)
        told = self.predict(X).reshape(len(targets), -1)
        targets = targets.reshape(told.shape)
        there = ~np.isnan(targets)
        left = np.where(there, (targets - told) ** 2, 0).sum(0)
        whole = np.nansum((targets - np.nanmean(targets, 0)) ** 2, 0)
        return float(np.mean(np.where(whole > 0, 1 - left / np.where(whole > 0, whole, 1), left == 0)))


class GraphClassifier(GraphEstimator):
    """Classes from graphs, PyG, networkx, graph6 or SMILES, as an estimator of scikit-learn."""

    kind: ClassVar[Kind] = "classification"

    def fit(self, X: Sequence[Any], y: Any) -> GraphClassifier:
        """Train on graphs and classes (G,), numbers or texts; None or NaN is a missing class."""
        labels, there = _labels(y)
        self.classes_, numbers = np.unique(labels[there].tolist(), return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError("y", "at least two classes", f"{len(self.classes_)}")
        classes = np.full(len(labels), NO_CLASS, dtype=np.int64)
        classes[there] = numbers
        self._fit(X, classes, None)
        return self

    def predict(self, X: Sequence[Any]) -> np.ndarray:
        """(G,) the most probable class.

        A graph or SMILES that cannot be read raises an error that names it; with ``errors="nan"`` its class is NaN.
        """
        numbers = self._predict(X).labels.numpy()
        classes: np.ndarray = self.classes_[numbers]
        failed = numbers == NO_CLASS
        if failed.any():
            classes = classes.astype(float if np.issubdtype(classes.dtype, np.number) else object)
            classes[failed] = np.nan
        return classes

    def predict_proba(self, X: Sequence[Any]) -> np.ndarray:
        """(G, classes) probabilities, in the order of ``classes_``; NaN where there are none."""
        return self._predict(X).values.numpy()

    def score(self, X: Sequence[Any], y: Any) -> float:
        """The share of graphs whose class is right: of those that have a class in ``y``; one without a prediction is wrong."""
        labels, there = _labels(y)
        return float(np.mean(self.predict(X)[there] == labels[there]))


def _molecule(item: Any) -> Data | Unreadable:
    """The graph of a SMILES, or which text is none, and why."""
    graph = try_smiles(item)
    return Unreadable(f"{str(item)[:60]!r}: {graph.reason}") if isinstance(graph, Unreadable) else graph


def _labels(y: Any) -> tuple[np.ndarray, np.ndarray]:
    """(G,) labels, and (G,) which of them are there."""
    labels = np.asarray(y, dtype=object).reshape(-1)
    return labels, np.array([label is not None and label == label for label in labels.tolist()], dtype=bool)
