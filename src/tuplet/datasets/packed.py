"""Many graphs as a few flat tensors: small in memory, quick to load, and cut into PyG ``Data`` where one is asked for."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.data import Data

from tuplet.errors import InputError
from tuplet.graphs import repeat
from tuplet.graphs.door import is_read, joined

Transform = Callable[[Data], Data]


@dataclass(frozen=True)
class Field:
    """One attribute of all graphs.

    Args:
        values: (R, ..) rows of all graphs, one graph after another.
        ptr: (G+1,) first row of each graph; None if each graph has one row.
        dtype: that a graph's attribute has; ``values`` may be stored in a smaller one.
        columns: whether rows become columns, as in ``edge_index`` (2, E).
        number: whether a graph's attribute is a plain number.
    """

    values: Tensor
    ptr: Tensor | None = None
    dtype: torch.dtype = torch.int64
    columns: bool = False
    number: bool = False

    def rows(self, first: int, last: int) -> Tensor:
        """(R', ..) stored rows of the graphs first, .., last - 1."""
        if self.ptr is None:
            return self.values[first:last]
        return self.values[self._starts[first] : self._starts[last]]

    @cached_property
    def _starts(self) -> list[int]:
        return [] if self.ptr is None else self.ptr.tolist()

    def of(self, graph: int) -> Any:
        """The attribute of one graph, a copy of its own."""
        rows = self.rows(graph, graph + 1)
        if self.number:
            return rows[0].item()
        return (rows.t() if self.columns else rows).to(self.dtype, copy=True, memory_format=torch.contiguous_format)

    def part(self, first: int, last: int) -> Field:
        ptr = None if self.ptr is None else self.ptr[first : last + 1] - self.ptr[first]
        return replace(self, values=self.rows(first, last), ptr=ptr)

    def take(self, positions: Tensor) -> Field:
        rows, counts = self.places(positions)
        return replace(
            self, values=self.values[rows], ptr=None if self.ptr is None else F.pad(counts.cumsum(0), (1, 0))
        )

    def places(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """(R',) rows of some graphs in the order given, and (G',) how many each has."""
        if self.ptr is None:
            return positions, torch.ones_like(positions)
        first = self.ptr[positions]
        counts = self.ptr[positions + 1] - first
        ends = counts.cumsum(0)
        total = int(ends[-1]) if len(ends) else 0
        return torch.arange(total).add_(repeat(first + counts - ends, counts, total)), counts

    @staticmethod
    def join(fields: Sequence[Field]) -> Field:
        lengths = [field.ptr.diff() for field in fields if field.ptr is not None]
        joined = torch.cat(lengths) if lengths else None
        ptr = None if joined is None else torch.cat([joined.new_zeros(1), joined.cumsum(0)])
        return replace(fields[0], values=torch.cat([field.values for field in fields]), ptr=ptr)


class PackedGraphs(Sequence[Data]):
    """A sequence of graphs kept as ``Field``s; ``graphs[i]`` makes a new ``Data`` each time.

    Args:
        num_nodes: (G,) nodes of each graph.
        fields: attributes by name.
    """

    def __init__(self, num_nodes: Tensor, fields: Mapping[str, Field]) -> None:
        self.num_nodes = num_nodes
        self.fields: dict[str, Field] = {}
        for name, field in fields.items():  # those with as many rows of each graph share where these begin
            alike = next((own.ptr for own in self.fields.values() if _equal(own.ptr, field.ptr)), field.ptr)
            self.fields[name] = field if alike is field.ptr else replace(field, ptr=alike)

    @classmethod
    def from_graphs(cls, graphs: Sequence[Data], only: Iterable[str] | None = None) -> PackedGraphs:
        """Pack graphs that have the same attributes: tensors that PyG can join, and numbers.

        Args:
            graphs: at least one.
            only: names of the attributes to keep; all by default.
        """
        names = _names(graphs[0]) if only is None else sorted(only)
        for number, data in enumerate(graphs):
            if only is None and set(_names(data)) != set(names):
                odd = sorted(set(_names(data)) ^ set(names))
                raise InputError(odd[0], "the same attributes in every graph", f"a difference in graph {number}")
        sizes = torch.tensor([data.num_nodes for data in graphs], dtype=torch.int64)
        return cls(sizes, {name: _field(name, [data[name] for data in graphs], graphs[0]) for name in names})

    @overload
    def __getitem__(self, position: int) -> Data: ...
    @overload
    def __getitem__(self, position: slice) -> Sequence[Data]: ...
    def __getitem__(self, position: int | slice) -> Data | Sequence[Data]:
        if isinstance(position, slice):
            return [self[number] for number in range(*position.indices(len(self)))]
        number = position + len(self) if position < 0 else position
        if not 0 <= number < len(self):
            raise IndexError(f"graph {position} of {len(self)}")
        values = {name: field.of(number) for name, field in self.fields.items()}
        return Data(num_nodes=int(self.num_nodes[number]), **values)

    def __len__(self) -> int:
        return len(self.num_nodes)

    def part(self, first: int, last: int) -> PackedGraphs:
        """The graphs first, .., last - 1, still packed."""
        fields = {name: field.part(first, last) for name, field in self.fields.items()}
        return PackedGraphs(self.num_nodes[first:last], fields)

    def take(self, positions: Tensor) -> PackedGraphs:
        """Some of the graphs, in the order given, still packed."""
        return PackedGraphs(
            self.num_nodes[positions], {name: field.take(positions) for name, field in self.fields.items()}
        )

    def rows_of(self, positions: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
        """What ``read`` looks at of some graphs: rows in the order given, as a graph alone would have them, and how many each has."""
        found, known = {}, dict[int, tuple[Tensor, Tensor]]()
        for name, field in self.fields.items():
            if is_read(name) and not field.number:
                if id(field.ptr) not in known:
                    known[id(field.ptr)] = field.places(positions)
                places, counts = known[id(field.ptr)]
                values = field.values.index_select(0, places)
                found[name] = (values.t() if field.columns else values).to(field.dtype).contiguous(), counts
        return found

    @classmethod
    def join(cls, parts: Sequence[PackedGraphs]) -> PackedGraphs:
        """Parts with the same attributes, one after another."""
        fields = {name: Field.join([part.fields[name] for part in parts]) for name in parts[0].fields}
        return cls(torch.cat([part.num_nodes for part in parts]), fields)

    def only(self, names: Iterable[str]) -> PackedGraphs:
        """The same graphs with some of their attributes."""
        return PackedGraphs(self.num_nodes, {name: self.fields[name] for name in names if name in self.fields})

    def with_fields(self, **fields: Field) -> PackedGraphs:
        """The same graphs with more attributes, or others."""
        return PackedGraphs(self.num_nodes, self.fields | fields)

    def stored_as(self, dtype: torch.dtype) -> PackedGraphs:
        """The same graphs, whole numbers stored in ``dtype``, which must hold them."""
        fields = {}
        for name, field in self.fields.items():
            whole = not field.values.is_floating_point()
            fields[name] = replace(field, values=field.values.to(dtype)) if whole else field
        return PackedGraphs(self.num_nodes, fields)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Plain arrays that ``np.savez`` writes and ``np.load(allow_pickle=False)`` reads."""
        arrays: dict[str, np.ndarray] = {"num_nodes": self.num_nodes.numpy()}
        about = []
        for place, (name, field) in enumerate(self.fields.items()):
            about.append(describe(name, field))
            arrays[f"values{place}"] = field.values.numpy()
            if field.ptr is not None:
                arrays[f"ptr{place}"] = field.ptr.numpy()
        return {**arrays, "fields": np.array(json.dumps(about))}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> PackedGraphs:
        fields = {}
        for place, about in enumerate(json.loads(str(arrays["fields"]))):
            ptr = torch.from_numpy(arrays[f"ptr{place}"]) if f"ptr{place}" in arrays else None
            fields[about["name"]] = field_from(about, torch.from_numpy(arrays[f"values{place}"]), ptr)
        return cls(torch.from_numpy(arrays["num_nodes"]), fields)


class WithFields(Sequence[Data]):
    """Graphs of any sequence, each with the attributes of a ``PackedGraphs`` added, then a transform, at every access."""

    def __init__(
        self, base: Sequence[Data], added: PackedGraphs | None = None, transform: Transform | None = None
    ) -> None:
        self.base, self.added, self.transform = base, added, transform

    @overload
    def __getitem__(self, position: int) -> Data: ...
    @overload
    def __getitem__(self, position: slice) -> Sequence[Data]: ...
    def __getitem__(self, position: int | slice) -> Data | Sequence[Data]:
        if isinstance(position, slice):
            return [self[number] for number in range(*position.indices(len(self)))]
        number = position + len(self) if position < 0 else position
        data = copy.copy(self.base[number])
        if self.added is not None:
            for name, field in self.added.fields.items():
                data[name] = field.of(number)
        return data if self.transform is None else self.transform(data)

    def __len__(self) -> int:
        return len(self.base)


class Checked(Sequence[Data]):
    """Graphs that a model has checked, those that are asked for: batches of them are not checked again."""

    def __init__(self, graphs: Sequence[Data]) -> None:
        self.graphs = graphs

    @overload
    def __getitem__(self, position: int) -> Data: ...
    @overload
    def __getitem__(self, position: slice) -> Sequence[Data]: ...
    def __getitem__(self, position: int | slice) -> Data | Sequence[Data]:
        return self.graphs[position]

    def __len__(self) -> int:
        return len(self.graphs)


def batch_of(graphs: Sequence[Data], members: Sequence[int]) -> Data | list[Data]:
    """Some of the graphs, for ``read``: where they are packed, one object that holds them all, made in a few steps a field."""
    checked = isinstance(graphs, Checked)
    graphs = graphs.graphs if isinstance(graphs, Checked) else graphs
    base, added = graphs, None
    if isinstance(graphs, WithFields) and graphs.transform is None:
        base, added = graphs.base, graphs.added
    if not isinstance(base, PackedGraphs):
        return [graphs[member] for member in members]
    positions = torch.as_tensor(members, dtype=torch.int64) % len(base)  # the last one may be called -1
    fields = base.rows_of(positions) | ({} if added is None else added.rows_of(positions))
    return joined(base.num_nodes[positions], fields, checked)


def _equal(one: Tensor | None, other: Tensor | None) -> bool:
    return one is not None and other is not None and (one is other or torch.equal(one, other))


def describe(name: str, field: Field) -> dict[str, Any]:
    """What JSON says of a field beside its values."""
    dtype = str(field.dtype).removeprefix("torch.")
    return {"name": name, "dtype": dtype, "columns": field.columns, "number": field.number}


def field_from(about: Mapping[str, Any], values: Tensor, ptr: Tensor | None) -> Field:
    return Field(values, ptr, getattr(torch, about["dtype"]), about["columns"], about["number"])


def _names(data: Data) -> list[str]:
    return sorted(name for name in data.keys() if name != "num_nodes")  # noqa: SIM118


def _field(name: str, values: list[Any], like: Data) -> Field:
    first = values[0]
    if isinstance(first, (int, float)) and not isinstance(first, bool):
        packed = torch.tensor(values)
        return Field(packed, None, packed.dtype, number=True)
    if not isinstance(first, Tensor) or first.dim() == 0:
        raise InputError(name, "a tensor with rows, or a number", type(first).__name__)
    columns = like.__cat_dim__(name, first) == -1
    rows = [value.t() if columns else value for value in values]
    ptr = torch.zeros(len(rows) + 1, dtype=torch.int64)
    ptr[1:] = torch.tensor([len(value) for value in rows]).cumsum(0)
    try:
        joined = torch.cat(rows).contiguous()
    except (RuntimeError, TypeError) as error:
        raise InputError(name, "the same columns in every graph", str(error).splitlines()[0]) from error
    return Field(joined, ptr, joined.dtype, columns)
