"""Tokens and virtual tokens of a graph that see each other, by fused kernels: two launches forward, two backward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tuplet.attention.fused import exchange_kernels, line_kernels
from tuplet.attention.fused.arithmetic import KERNELS, RELATIONS
from tuplet.attention.weights import Rule
from tuplet.kernels.dense import add_shares
from tuplet.kernels.sizes import AT_ONCE, power, precision
from tuplet.patterns.fused import FusedLines

ROWS, WARPS = 32, 4
"""Tokens of a tile."""
REGISTERS = {"tf32": 168, "ieee": 255}
"""Of a thread on the way back: so few that three programs run at once on a multiprocessor, of which one works while others wait for
memory; where there are no tensor cores, all that there are."""
TURNS = 2
"""Tiles that a program takes one after the other in the largest graph: graphs differ in size, and the largest is waited for."""
MOST = 1024
"""Programs that share the tokens of all graphs one way, about, if ``AT_ONCE`` are too few. Each has all virtual tokens of its graph to
read, and its share of their gradients to leave behind."""


@dataclass(frozen=True)
class Exchange:
    """What tokens and virtual tokens of a graph exchange.

    Args:
        lines: tokens as queries, virtual tokens as keys.
        rule: kernel, scale, and where one softmax spans tokens and virtual tokens the relation of their pairs.
        joint: whether one does.
        upward: whether virtual tokens see tokens.
    """

    lines: FusedLines
    rule: Rule
    joint: bool
    upward: bool

    def forward(
        self, real: Tensor, unreal: Tensor, table: Tensor, base: Tensor | None, before: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(T, h, c) what tokens see, with ``base``; (V, h, c) what virtual tokens see; log-sum-exps of both.

        Args:
            real: (T, 3, h, c) queries, keys and values of tokens; (T, 1, h, c) queries where nothing else is asked for.
            unreal: (V, 3, h, c) those of virtual tokens, the same number for each graph.
            table: (1, h) the relation's numbers.
            base: (T, h, c) what tokens saw of each other, written over; None if nothing.
            before: (T, h) log-sum-exps of that.
        """
        tokens, _, heads, width = real.shape
        tiles = self._tiles(unreal)
        seen = len(unreal) if self.upward else 0
        joint = self.joint and base is not None and self.rule.normalised
        out = real.new_empty(tokens, heads, width) if base is None else base
        lse = before.new_empty(tokens if joint else 0, heads)
        outs = before.new_empty(tiles, seen, heads, width)
        lses = before.new_empty(tiles, seen, heads)
        exchange_kernels.exchange[(self.lines.lines * tiles * (1 + self.upward),)](
            real, unreal, table, before, out, lse, outs, lses, *self._given(real, unreal),
            ADD=base is not None, **self._choices(unreal, joint),
        )  # fmt: skip
        up, up_lse = real.new_empty(seen, heads, width), lses.new_empty(seen, heads)
        if seen:
            line_kernels.merge[(seen * heads,)](
                outs, lses, up, up_lse, seen, heads, width, tiles, KERNEL=KERNELS[self.rule.kernel].value,
                SPLITS=power(tiles, 1), VALUES=power(width, 16), num_warps=1,
            )  # fmt: skip
        return out, up, lse, up_lse

    def backward(
        self, grad: Tensor, grad_up: Tensor, real: Tensor, unreal: Tensor, table: Tensor, out: Tensor, lse: Tensor, up: Tensor,
        up_lse: Tensor, into: Tensor, seeing: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        """Shares of the gradients of ``unreal`` and of ``table``, for ``sums``; those of ``real`` are written ``into`` a tensor of its
        shape. Where tokens were ``seeing`` each other too, (T, h) the shift of ``gradients`` for that part."""
        tiles, joint = self._tiles(unreal), self.joint and seeing and self.rule.normalised
        shift = up_lse.new_empty(len(real) if seeing else 0, real.shape[2])
        share = up_lse.new_empty(tiles, *unreal.shape) if self.upward else up_lse.new_zeros(tiles, *unreal.shape)
        programs = self.lines.lines * tiles
        related = self.rule.relation != "none"
        entries = up_lse.new_empty(programs if related else 0, unreal.shape[2])
        exchange_kernels.exchange_gradient[(programs * (1 + self.upward),)](
            real, unreal, table, out, lse, grad, up, grad_up, up_lse, into, shift, share, entries, *self._given(real, unreal),
            SEEING=seeing, **self._choices(unreal, joint), maxnreg=REGISTERS[precision(unreal)],
        )  # fmt: skip
        return share, entries, shift

    def sums(self, share: Tensor, entries: Tensor, unreal: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
        """(V, 3, h, c) gradients of ``unreal`` and (1, h) of ``table``, from the shares of all programs."""
        entry = torch.zeros_like(table) if self.rule.relation == "none" else add_shares(entries)[None]
        return add_shares(share, unreal.dtype), entry

    def _sizes(self, unreal: Tensor) -> dict[str, int]:
        """Products of matrices want at least 16 of everything."""
        _, _, heads, width = unreal.shape
        heads, virtual = power(heads, 1), len(unreal) // max(1, self.lines.lines)
        rows = min(ROWS, power(self.lines.longest[0], 16))
        least = -(-16 // heads)
        return {"ROWS": rows, "HEADS": heads, "VIRTUAL": power(virtual, least), "WIDTH": power(width, least)}

    def _tiles(self, unreal: Tensor) -> int:
        """Programs that share the tokens of a graph."""
        lines, tiles = max(1, self.lines.lines), -(-self.lines.longest[0] // self._sizes(unreal)["ROWS"])
        least, most = -(-AT_ONCE // lines), -(-MOST // lines)
        return max(1, min(tiles, max(least, min(-(-tiles // TURNS), most))))

    def _given(self, real: Tensor, unreal: Tensor) -> tuple[Any, ...]:
        _, parts, heads, width = real.shape
        virtual = len(unreal) // max(1, self.lines.lines)
        sizes = (self.lines.lines, self._tiles(unreal), self.lines.longest[0], virtual, heads, width, self.rule.scale)
        return self.lines.query, self.lines.query_order, *sizes, parts * heads * width, 3 * heads * width

    def _choices(self, unreal: Tensor, joint: bool) -> dict[str, Any]:
        return {
            "KERNEL": KERNELS[self.rule.kernel].value,
            "RELATION": RELATIONS[self.rule.relation].value,
            "JOINT": joint,
            "UPWARD": self.upward,
            "ORDERED": self.lines.query_order.numel() > 0,
            "PRECISION": precision(unreal),
            **self._sizes(unreal),
            "num_warps": WARPS,
        }
