"""Fused kernels for what tokens go through besides attention: norms, dense maps, and taking rows of tables.

``tuplet.kernels`` itself imports no triton; its modules ``norm`` and ``dense`` do.
"""

from tuplet.kernels.linear import RowLinear, linear
from tuplet.kernels.rows import Lists, add_up, lay_out, listed, pick, take, take_sum
from tuplet.kernels.sizes import HAS_TRITON, has_kernels

__all__ = [
    "HAS_TRITON",
    "Lists",
    "RowLinear",
    "add_up",
    "has_kernels",
    "lay_out",
    "linear",
    "listed",
    "pick",
    "take",
    "take_sum",
]
