"""What an encoding is: raw statistics of a graph, computed once, and a module that turns them into vectors."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from tuplet.errors import InputError, OptionError
from tuplet.graphs import GraphBatch

Level = Literal["node", "pair", "simplex"]


class Encoding(ABC):
    """A positional or structural encoding and its options. Subclasses are frozen dataclasses: hashable, and their repr rebuilds them.

    An encoding has two halves. ``compute`` takes statistics from the graph alone, nothing learned, so they can be stored with
    the data. ``encoder`` makes the learned half: raw statistics in, one vector of width ``width`` a row out.

    The rows of a node encoding are nodes; those of a pair encoding all ordered pairs (i, j) of a graph, row-major, so that
    they are its 2-tuples; those of a simplex encoding the simplices of a dimension, in the order of ``Complex.simplices``.
    """

    level: ClassVar[Level]
    positional: ClassVar[int] = 2
    """How many leading options the short form gives by place: the raw size and the width, unless a class says otherwise."""
    matrices: ClassVar[int] = 5
    """How many matrices of the size of a graph, or of its simplices, exist at once while statistics are computed."""

    @property
    @abstractmethod
    def width(self) -> int:
        """Width of an encoded vector."""

    @property
    @abstractmethod
    def fields(self) -> tuple[str, ...]:
        """Attributes of a PyG ``Data`` that hold the raw statistics; the options that shape them are in the names.

        Every field can be joined over graphs along its first dimension, as PyG's collation does.
        """

    @abstractmethod
    def rows(self, graph: GraphBatch) -> dict[str, tuple[int, ...]]:
        """How many rows of each field belong to each graph."""

    @abstractmethod
    def compute(self, graph: GraphBatch, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
        """Raw statistics of a whole batch, on its device.

        The arithmetic is float64; real results are stored as ``dtype``, by default ``torch.get_default_dtype()``.
        """

    @abstractmethod
    def encoder(self) -> nn.Module:
        """A module with ``forward(raw, graph)``: (rows, width), or for simplices a dict dimension -> (S_k, width)."""

    def held(self, graph: GraphBatch) -> tuple[int, int]:
        """Numbers that the encoder keeps for the way back, and most that it has at once without gradients, raw ones and vectors
        aside; 0 where they are few beside those of tokens."""
        return 0, 0

    def check(self, raw: Mapping[str, Tensor], graph: GraphBatch) -> None:
        """Refuse raw statistics that lack a field or have the wrong number of rows for the graph.

        Afterwards the encoder's forward compiles as one graph: what it reads of the batch has been made.
        """
        _ = graph.row, graph.n, graph.graph_of_node
        for field, counts in self.rows(graph).items():
            if field not in raw:
                raise InputError(field, f"the raw statistics of {self}", "none", f"Apply Precompute([{self!r}]) first.")
            if len(raw[field]) != sum(counts):
                raise InputError(field, f"{sum(counts)} rows for this batch", f"{len(raw[field])}")

    def __str__(self) -> str:
        """The short form that ``parse`` reads: name, positional options, then the other options that are not the default."""
        text = type(self).__name__
        for place, field in enumerate(dataclasses.fields(self)):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            written = "/".join(map(str, value)) if isinstance(value, tuple) else str(value)
            if place < self.positional:
                text += f":{written}"
            elif value != field.default:
                text += f":{field.name}={written}"
        return text


def resolve(dtype: torch.dtype | None) -> torch.dtype:
    return torch.get_default_dtype() if dtype is None else dtype


def expect_positive(**options: Any) -> None:
    """Refuse options that are not positive ints."""
    for name, value in options.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise OptionError(f"{name}: expected a positive int; came {value!r}")


def expect_flag(**options: Any) -> None:
    for name, value in options.items():
        expect_one_of(name, value, (True, False))


def expect_one_of(name: str, value: Any, known: tuple[Any, ...]) -> None:
    if value not in known:
        raise OptionError(f"{name}: expected one of {', '.join(map(repr, known))}; came {value!r}")
