"""Attention of order s over one sequence: a query looks at all (s-1)-tuples of tokens (Sanford, Hsu and Telgarsky 2023).

    f(X) = softmax(XQ ((XK^1) ⋆ .. ⋆ (XK^{s-1}))ᵀ) ((XV^1) ⋆ .. ⋆ (XV^{s-1}))

with the column-wise Kronecker product ⋆ (paper, appendix "Related work", equation of the s-order self-attention; their
Definition 7). Row (j_1..j_{s-1}) of such a product is the element-wise product of rows j_1, .., j_{s-1}, so

    score(i; j_1..j_{s-1}) = Σ_c q_ic K^1_{j_1 c} ··· K^{s-1}_{j_{s-1} c},    value(j_1..j_{s-1}) = V^1_{j_1} ⊙ ··· ⊙ V^{s-1}_{j_{s-1}}.

s = 2 is ordinary attention without the factor 1/√c. In the graph form (their Definition 8) a tuple counts only where edges
allow it. We read "edges among the corresponding inputs" as: every two different nodes among i, j_1, .., j_{s-1} are joined
by an edge, while a node may stand in a tuple more than once. ``mask`` says which two tokens may stand together, so for a graph
it is the adjacency matrix with a true diagonal.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from tuplet.errors import OptionError, TooLargeError

BUDGET = 1 << 21
"""Numbers that a portion of the queries holds at once."""
LIMIT = 1 << 28
"""Numbers that a single query may hold at once before the work is refused."""


def kronecker_attend(q: Tensor, keys: Sequence[Tensor], values: Sequence[Tensor], mask: Tensor | None = None) -> Tensor:
    """Attention of order s = 1 + len(keys) over one sequence of n tokens.

    Neither ⋆ is ever formed. Queries are taken in portions and each portion is computed again in the backward pass, so
    that memory is that of one portion, n^{s-2}·max(n, c, c') numbers a query; time is O(n^s (c + c')).

    Args:
        q: (n, c) queries XQ.
        keys: s - 1 tensors (n, c), XK^1, .., XK^{s-1}.
        values: s - 1 tensors (n, c'), XV^1, .., XV^{s-1}.
        mask: (n, n) booleans, which two tokens may stand together; a tuple counts if all pairs of its s tokens (read from
            left to right, the query first) may. None: all tuples count.

    Returns:
        (n, c'); zero for a query whose tuples are all masked.
    """
    _refuse_shapes(q, keys, values, mask)
    n, width = q.shape[0], max(q.shape[0], q.shape[1], values[0].shape[1])
    held = n ** (len(keys) - 1) * width
    if held > LIMIT:
        raise TooLargeError(
            f"attention of order {len(keys) + 1} over n = {n} tokens holds {held:,} numbers for one query; at most {LIMIT:,} "
            "are allowed. Use a shorter sequence or a lower order."
        )
    step = max(1, BUDGET // max(held, 1))
    sides = (*keys, *values)
    learns = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (q, *sides))
    parts = []
    for first in range(0, n, step):
        queries, rows = q[first : first + step], None if mask is None else mask[first : first + step]
        if learns:
            again = checkpoint(_portion, queries, rows, mask, *sides, use_reentrant=False, preserve_rng_state=False)
            parts.append(again)
        else:
            parts.append(_portion(queries, rows, mask, *sides))
    return torch.cat(parts) if parts else values[0].new_zeros(values[0].shape)


def _portion(q: Tensor, rows: Tensor | None, mask: Tensor | None, *sides: Tensor) -> Tensor:
    """(b, c') messages of b queries, whose rows of the mask are given."""
    places = len(sides) // 2
    keys, values = sides[:places], sides[places:]
    n = len(keys[0])
    partial = q  # (b, c), then (b·n, c) with one key chosen, (b·n², c) with two ..
    for key in keys[:-1]:
        partial = (partial[:, None] * key).flatten(0, 1)
    score = (partial @ keys[-1].t()).reshape(len(q), n**places)
    if rows is not None and mask is not None:
        hidden = ~_together(rows, mask, places)
        empty = hidden.all(1, keepdim=True)
        # a query without tuples has no softmax: its row is filled with zeros first and emptied afterwards
        score = score.masked_fill(hidden, -torch.inf).masked_fill(empty, 0)
        weight = torch.softmax(score, dim=1).masked_fill(empty, 0)
    else:
        weight = torch.softmax(score, dim=1)
    message = weight.reshape(-1, n) @ values[-1]  # the last place is summed, then the one before it ..
    for value in reversed(values[:-1]):
        message = (message.reshape(-1, n, value.shape[1]) * value).sum(1)
    return message


def _together(rows: Tensor, mask: Tensor, places: int) -> Tensor:
    """(b, n^{s-1}) whether all pairs of the query and the tuple's tokens may stand together."""
    n = len(mask)

    def spread(pairs: Tensor, *axes: int) -> Tensor:
        shape = [1] * (places + 1)
        for axis, size in zip(axes, pairs.shape, strict=True):
            shape[axis] = size
        return pairs.reshape(shape)

    allowed = torch.ones((len(rows), *[n] * places), dtype=torch.bool, device=mask.device)
    for place in range(1, places + 1):
        allowed &= spread(rows, 0, place)
    for one, other in combinations(range(1, places + 1), 2):
        allowed &= spread(mask, one, other)
    return allowed.reshape(len(rows), n**places)


def _refuse_shapes(q: Tensor, keys: Sequence[Tensor], values: Sequence[Tensor], mask: Tensor | None) -> None:
    if not keys or len(keys) != len(values):
        raise OptionError(f"keys, values: expected s - 1 of each, at least one; came {len(keys)} and {len(values)}")
    if q.dim() != 2 or any(key.shape != q.shape for key in keys):
        shapes = [tuple(tensor.shape) for tensor in (q, *keys)]
        raise OptionError(f"q, keys: expected the same shape (n, c) for all; came {shapes}")
    shape = (len(q), values[0].shape[-1])
    if any(value.shape != shape for value in values):
        raise OptionError(f"values: expected shape {shape} for all; came {[tuple(value.shape) for value in values]}")
    if mask is not None and (mask.dtype != torch.bool or mask.shape != (len(q), len(q))):
        raise OptionError(
            f"mask: expected booleans of shape {(len(q), len(q))}; came {mask.dtype}, {tuple(mask.shape)}"
        )
