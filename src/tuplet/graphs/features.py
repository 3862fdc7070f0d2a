"""What the features of nodes or edges are: nothing, categorical columns, or a real vector."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tuplet.errors import InputError, OptionError


@dataclass(frozen=True)
class Features:
    """Declared features of nodes (field ``x``) or edges (field ``edge_attr``).

    Args:
        field: the attribute they are read from.
        types: number of values of each categorical column, or None.
        dim: width of a real vector, or None.
    """

    field: str
    types: tuple[int, ...] | None = None
    dim: int | None = None

    @classmethod
    def declare(cls, field: str, types: int | list[int] | tuple[int, ...] | None, dim: int | None) -> Features:
        """From the options ``node_types`` / ``node_dim`` (``edge_types`` / ``edge_dim``), of which at most one is given."""
        option = "node" if field == "x" else "edge"
        if types is not None and dim is not None:
            raise OptionError(f"{option}_types and {option}_dim: expected at most one of them; came both")
        columns = tuple(types) if isinstance(types, (list, tuple)) else None if types is None else (types,)
        if columns is not None and not (columns and all(map(_is_positive, columns))):
            raise OptionError(f"{option}_types: expected a positive int or a list of them; came {types!r}")
        if dim is not None and not _is_positive(dim):
            raise OptionError(f"{option}_dim: expected a positive int; came {dim!r}")
        return cls(field, columns, dim)

    @property
    def columns(self) -> int:
        return self.dim or len(self.types or ())

    def check(self, values: Tensor | None, rows: int, dtype: torch.dtype = torch.float64) -> None:
        """Refuse values that are not what was declared, or real ones that the model's ``dtype`` cannot hold."""
        if self.columns == 0:
            return
        option = "node" if self.field == "x" else "edge"
        if values is None:
            if rows == 0:
                return
            raise InputError(self.field, f"{self.columns} column(s), as the model was built with", f"no {self.field}")
        if values.shape[1] != self.columns:
            raise InputError(self.field, f"{self.columns} column(s), as the model was built with", f"{values.shape[1]}")
        if self.types is None:
            if not bool(torch.isfinite(values.to(dtype)).all()):
                largest = float(values.abs().max())
                raise InputError(self.field, f"numbers that {dtype} can hold", f"one of magnitude {largest:.3g}")
            return
        if values.is_floating_point():
            raise InputError(self.field, f"integers, since {option}_types was given", str(values.dtype))
        if len(values) == 0:
            return
        bounds = zip(self.types, values.amin(0).tolist(), values.amax(0).tolist(), strict=True)
        for column, (count, low, high) in enumerate(bounds):
            if low < 0 or high >= count:
                raise InputError(self.field, f"values 0..{count - 1} in column {column}", f"values {low}..{high}")


def _is_positive(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
