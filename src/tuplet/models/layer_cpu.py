"""A layer of tokens and virtual tokens in one function on a CPU (``native/layer.c``): projections, attention both ways, what follows on it.

Each of the three is a function by itself, and so is each softmax. To begin and to end one takes a good part of the time that its work takes
for a batch of small graphs, and what they find for the same tokens has to be added up, so they are one where they can be: where all pairs
are listed at once, and no relation multiplies weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from tuplet.attention import Rule
from tuplet.attention.compiled import codes
from tuplet.attention.listing import Keyed, Portion, single_portion
from tuplet.attention.rows import RowAttention
from tuplet.models.dense import together
from tuplet.models.dense_cpu import LinearParts, library_for, places_of_parts
from tuplet.models.post_norm_cpu import WEIGHTS, After, Running, running_of
from tuplet.native import integers


@dataclass(frozen=True)
class Sight:
    """Tokens that see others, all with one softmax.

    Args:
        keyed: who sees whom.
        query, count: which tokens, among all, virtual ones after the others: where they begin, and how many.
        key: where the keys begin.
        related: whether the relation has a say.
    """

    keyed: Keyed
    query: int
    count: int
    key: int
    related: bool


@dataclass(frozen=True)
class Mutual:
    """Attention of tokens and virtual tokens that see each other, before its output projections.

    Args:
        x, virtual: (T, d) and (V, d) tokens.
        maps: to queries, to keys, and to values for each of the ``kinds`` of tokens, so many of each; or to all of them.
        virtual_map: to all three, of virtual tokens.
        kinds: T if there is one.
        heads: h.
        table: of the relation.
        sights: who sees whom; one in which all do, or several.
        rule: of attention.
    """

    x: Tensor
    virtual: Tensor
    maps: Sequence[nn.Linear]
    virtual_map: nn.Linear
    kinds: Sequence[int]
    heads: int
    table: Tensor
    sights: Sequence[Sight]
    rule: Rule

    def message(self) -> Tensor:
        """(T + V, h, c) messages of tokens and then of virtual ones, where there is one sight."""
        (sight,) = self.sights
        sets = [(self.x, self.maps), (self.virtual, [self.virtual_map])]
        given, tensors = together(sets, self.heads, self.x.shape[1], self.kinds)
        q, k, v = LinearParts.apply(*given, *tensors)
        found: Tensor = RowAttention.apply(q, k, v, self.table, sight.keyed, self.rule)[0]
        return found

    def portions(self) -> list[Portion] | None:
        """All pairs of each sight, where they are listed at once for a compiled function; None otherwise."""
        found = []
        for sight in self.sights:
            rule = self.rule if sight.related else replace(self.rule, relation="none")
            q, k = (self._like(count) for count in (sight.count, sight.keyed.keys))
            portion = single_portion(sight.keyed, q)
            if portion is None or portion.bags.library(q, k, k, self.table, rule) is None:
                return None
            found.append(portion)
        return found

    def _like(self, tokens: int) -> Tensor:
        return self.x.new_empty(1).expand(tokens, self.heads, self.x.shape[1] // self.heads)

    @property
    def weights(self) -> list[Tensor]:
        """Weights and then biases of all maps, and of that of virtual tokens."""
        own = *(one.weight for one in self.maps), *(one.bias for one in self.maps)
        return [*own, self.virtual_map.weight, self.virtual_map.bias]


def layer(attention: Mutual, portions: Sequence[Portion], several: Sequence[After], follow: bool) -> tuple[Tensor, ...]:
    """``post_norm`` of ``several`` kinds of tokens, the virtual ones among them or not, with their messages."""
    x, virtual, ends = attention.x, attention.virtual, list(accumulate(attention.kinds))
    first, inner = several[0], several[0].maps[0].out_features
    plan = _Plan(
        sizes=(*x.shape, len(virtual), inner, attention.heads, int(first.gelu), len(several)),
        ranges=(len(ends) + 2, [0, 0, 0, *ends[:-1]], [ends[-1]] * 2 + ends),
        maps=len(attention.maps),
        rule=codes(attention.rule),
        eps=[(float(after.norms[0].eps), float(after.norms[1].eps)) for after in several],
        sights=attention.sights,
        portions=portions,
    )
    weights = [*attention.weights, *(weight for after in several for weight in after.weights)]
    running = [[running_of(norm, follow) for norm in after.norms] for after in several]
    found: tuple[Tensor, ...] = _Layer.apply(plan, running, attention.table, x, virtual, *weights)
    return found


@dataclass(frozen=True)
class _Plan:
    """What a layer is told both ways.

    Args:
        sizes: tokens, width, virtual tokens, inner width, heads, whether the activation is GELU, kinds of tokens that leave.
        ranges: how many parts the maps of tokens have, and for each where its rows begin and end.
        maps: how many these are.
        rule: of attention.
        eps: of both norms of each kind that leaves.
        sights, portions: who sees whom, and the pairs.
    """

    sizes: tuple[int, ...]
    ranges: tuple[int, list[int], list[int]]
    maps: int
    rule: tuple[int, int, float]
    eps: list[tuple[float, float]]
    sights: Sequence[Sight]
    portions: Sequence[Portion]

    @property
    def numbers(self) -> list[int]:
        """How many weights each sight has, one for each pair and head."""
        return [len(one.bags.column) * one.heads // one.bags.heads for one in self.portions]

    def seen(self, back: bool) -> tuple[int, Any]:
        """How many sights there are, and each as layer.c has it, on the way ``back`` with the pairs by key."""
        found: list[int] = []
        for number, (sight, portion) in enumerate(zip(self.sights, self.portions, strict=True)):
            bags, before = portion.bags, self.sights[:number]
            found += [
                sight.count * bags.heads,
                sight.keyed.keys * bags.heads,
                portion.heads // bags.heads,
                len(bags.column),
            ]
            found += [sight.query, sight.key, int(sight.related)]
            found += [
                int(any(one.query == sight.query for one in before)),
                int(any(one.key == sight.key for one in before)),
            ]
            found += [part.data_ptr() for part in (bags.offsets, bags.column, bags.kind)]
            turned = (portion.back.offsets, portion.back.column, portion.back.pair) if back else ()
            found += [part.data_ptr() for part in turned] or [0, 0, 0]
        return len(self.sights), integers(found)

    def projections(self, weights: Sequence[Tensor]) -> list[list[int]]:
        """Where the parts of weights and of biases are, of tokens and then of virtual ones."""
        own, last = self.maps, 2 * self.maps
        cut = weights[:own], weights[own:last], weights[last : last + 1], weights[last + 1 : last + 2]
        return [places_of_parts(layers, self.sizes[1]) for layers in cut]

    def after(self, weights: Sequence[Tensor], running: Sequence[Sequence[Running]]) -> list[Any]:
        """For each of two kinds, where weights and running statistics are, eps, and how fast statistics follow if they do."""
        found: list[Any] = []
        for kind, eps in enumerate(self.eps):
            first = 2 * self.maps + 2 + kind * WEIGHTS
            own = running[kind] if running else [(0.0, None, None, None)] * 2
            places = [weight.data_ptr() for weight in weights[first : first + WEIGHTS]]
            places += [0 if one is None else one.data_ptr() for _, *some in own for one in some]
            found += [integers(places), *eps, *(pace for pace, *_ in own if running)]
        return found + [None, *[0.0] * (4 if running else 2)] * (2 - len(self.eps))

    def none(self) -> list[None]:
        """For virtual tokens, where they do not leave."""
        return [None] * (2 - len(self.eps))


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, plan: _Plan, running: list[list[Running]], *tensors: Tensor) -> tuple[Tensor, ...]:
        table, x, virtual, *weights = tensors = tuple(tensor.contiguous() for tensor in tensors)
        tokens, width, others, _, heads, *_ = plan.sizes
        log_sums = heads * sum(sight.count for sight in plan.sights)
        room = x.new_empty(4 * (tokens + others) * width)
        rest = x.new_empty((2 * (tokens + others) + 8) * width + log_sums + sum(plan.numbers))
        left = [torch.empty_like(one) for one in (x, virtual)[: len(plan.eps)]]
        seen = *plan.seen(back=False), table, *plan.rule
        given = x, virtual, *plan.ranges, *plan.projections(weights), *seen, *plan.after(weights, running)
        library_for(x).run("layer", *plan.sizes, *given, room, rest, *left, *plan.none())
        ctx.save_for_backward(room, rest, *tensors)
        ctx.plan = plan
        return tuple(left)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        plan: _Plan = ctx.plan
        room, rest, table, x, virtual, *weights = ctx.saved_tensors
        tokens, width, others, *_ = plan.sizes
        spare = x.new_empty(4 * (tokens + others) * width + 2 * max(plan.numbers))
        counts = [weight.numel() for weight in weights]
        found = torch.empty_like(x), torch.empty_like(virtual), torch.zeros_like(table), x.new_empty(sum(counts))
        own, _, other, _ = plan.projections(weights)
        seen = *plan.seen(back=True), table, *plan.rule
        given = x, virtual, *plan.ranges, own, other, *seen, *plan.after(weights, ())
        above = *(grad.contiguous() for grad in grads), *plan.none()
        library_for(x).run("layer_backward", *plan.sizes, *given, room, rest, *above, spare, *found)
        grad_x, grad_virtual, grad_table, sums = found
        each = zip(sums.split_with_sizes(counts), weights, strict=True)
        return None, None, grad_table, grad_x, grad_virtual, *(grad.view_as(one) for grad, one in each)
