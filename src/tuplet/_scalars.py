"""Numbers as grids of hyperparameters hold them."""

from __future__ import annotations

from typing import Any

import numpy as np


def plain_scalar(value: Any) -> Any:
    """A number of numpy as Python's own, which is what options are checked to be; anything else as it is."""
    return value.item() if isinstance(value, np.generic) else value
