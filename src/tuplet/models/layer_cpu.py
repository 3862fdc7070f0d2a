"""A layer of tokens and virtual tokens in one function on a CPU (``native/layer.c``): projections, attention both ways, what follows on it.

Each of the three is a function by itself. To begin and to end one takes a good part of the time that its work takes for a batch of small
graphs, so they are one where they can be: where all pairs are listed at once, and no relation multiplies weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from tuplet.attention import Keyed, Portion, RowAttention, Rule, codes, single_portion
from tuplet.models.dense import together
from tuplet.models.dense_cpu import LinearParts, library_for, places_of_parts
from tuplet.models.post_norm_cpu import TENSORS, After, running_of
from tuplet.native import integers


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
        keyed: who sees whom.
        rule: of attention.
    """

    x: Tensor
    virtual: Tensor
    maps: Sequence[nn.Linear]
    virtual_map: nn.Linear
    kinds: Sequence[int]
    heads: int
    table: Tensor
    keyed: Keyed
    rule: Rule

    def message(self) -> Tensor:
        """(T + V, h, c) messages of tokens and then of virtual ones."""
        sets = [(self.x, self.maps), (self.virtual, [self.virtual_map])]
        given, tensors = together(sets, self.heads, self.x.shape[1], self.kinds)
        q, k, v = LinearParts.apply(*given, *tensors)
        found: Tensor = RowAttention.apply(q, k, v, self.table, self.keyed, self.rule)[0]
        return found

    def portion(self) -> Portion | None:
        """All pairs, where they are listed at once for a compiled function; None otherwise."""
        shape = len(self.x) + len(self.virtual), self.heads, self.x.shape[1] // self.heads
        like = self.x.new_empty(1).expand(shape)
        portion = None if self.rule.relation == "reweight" else single_portion(self.keyed, like)
        fits = portion is not None and portion.bags.library(like, like, like, self.table, self.rule) is not None
        return portion if fits else None

    @property
    def weights(self) -> list[Tensor]:
        """Weights and then biases of all maps, and of that of virtual tokens."""
        own = *(one.weight for one in self.maps), *(one.bias for one in self.maps)
        return [*own, self.virtual_map.weight, self.virtual_map.bias]


def layer(attention: Mutual, portion: Portion, several: Sequence[After], follow: bool) -> tuple[Tensor, ...]:
    """``post_norm`` of ``several`` kinds of tokens, the virtual ones among them or not, with their messages."""
    weights = [*attention.weights, *(weight for after in several for weight in _weights(after))]
    given = attention.table, attention.x, attention.virtual
    found: tuple[Tensor, ...] = _Layer.apply(attention, portion, several, follow, *given, *weights)
    return found


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, attention: Mutual, portion: Portion, several: Sequence[After], follow: bool, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        table, x, virtual, *weights = tensors = tuple(tensor.contiguous() for tensor in tensors)
        bags, heads, missing = portion.bags, attention.heads, 2 - len(several)
        inner, width, pairs, tokens = (
            several[0].maps[0].out_features,
            x.shape[1],
            len(bags.column),
            len(x) + len(virtual),
        )
        sizes = len(x), len(virtual), width, inner, heads, pairs, int(several[0].gelu), len(several)
        left = [torch.empty_like(one) for one in (x, virtual)[: len(several)]]
        room = x.new_empty(tokens * (6 * width + inner + heads) + pairs * heads + 8 * width)
        parts, (own, own_biases, others, other_biases) = _projections(attention, weights)
        seen = bags.offsets, bags.column, bags.kind, table, *codes(attention.rule)
        after = [part for one in _after(several, weights, follow) for part in one] + [
            None,
            0.0,
            0.0,
            0.0,
            0.0,
        ] * missing
        given = x, virtual, *parts, own, own_biases, others, other_biases, *seen, *after
        library_for(x).run("layer", *sizes, *given, room, *left, *[None] * missing)
        ctx.save_for_backward(room, *tensors)
        ctx.settings = attention, portion, several, sizes
        return tuple(left)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        room, table, x, virtual, *weights = ctx.saved_tensors
        attention, portion, several, sizes = ctx.settings
        bags, back, missing = portion.bags, portion.back, 2 - len(several)
        tokens, others, width, _, heads, pairs, *_ = sizes
        spare = x.new_empty(4 * (tokens + others) * width + 2 * pairs * heads)
        numels = [weight.numel() for weight in weights]
        grad_x, grad_virtual, sums = torch.empty_like(x), torch.empty_like(virtual), x.new_empty(sum(numels))
        grad_table = torch.zeros_like(table)
        parts, (own, _, other, _) = _projections(attention, weights)
        seen = bags.offsets, bags.column, bags.kind, back.offsets, back.column, back.pair
        after = [part for one in _after(several, weights, False) for part in one[:3]] + [None, 0.0, 0.0] * missing
        given = x, virtual, *parts, own, other, *seen, table, *codes(attention.rule), *after
        above = *(grad.contiguous() for grad in grads), *[None] * missing
        found = spare, grad_x, grad_virtual, grad_table, sums
        library_for(x).run("layer_backward", *sizes, *given, room, *above, *found)
        each = zip(sums.split_with_sizes(numels), weights, strict=True)
        return None, None, None, None, grad_table, grad_x, grad_virtual, *(grad.view_as(one) for grad, one in each)


def _weights(after: After) -> tuple[Tensor, ...]:
    """In the order in which ``layer.c`` takes them, and leaves their gradients."""
    (first, last), (one, two) = after.norms, after.maps
    norms = first.weight, first.bias, last.weight, last.bias
    return one.weight, one.bias, two.weight, after.output.weight, *norms, after.output.bias, two.bias


def _after(
    several: Sequence[After], weights: Sequence[Tensor], follow: bool
) -> list[tuple[Any, float, float, float, float]]:
    """Of each kind of tokens, whose weights come last, where they and running statistics are, and numbers of the norms."""
    found, each = [], TENSORS - 1
    for number, after in enumerate(several):
        first = len(weights) - each * (len(several) - number)
        (pace, *running), (other_pace, *other) = (running_of(norm, follow) for norm in after.norms)
        places = [weight.data_ptr() for weight in weights[first : first + each]]
        places += [0 if one is None else one.data_ptr() for one in (*running, *other)]
        eps, other_eps = (float(norm.eps) for norm in after.norms)
        found.append((integers(places), eps, other_eps, pace, other_pace))
    return found


def _projections(attention: Mutual, weights: Sequence[Tensor]) -> tuple[tuple[Any, ...], list[list[int]]]:
    """Which rows of tokens each part of the maps is for; and where the parts of weights and biases are, of tokens and of virtual ones."""
    width, count = attention.x.shape[1], len(attention.maps)
    ends = list(accumulate(attention.kinds))
    ranges = [0, 0, 0, *ends[:-1]], [ends[-1]] * 2 + ends
    cut = (
        weights[:count],
        weights[count : 2 * count],
        weights[2 * count : 2 * count + 1],
        weights[2 * count + 1 : 2 * count + 2],
    )
    return (len(ends) + 2, *ranges), [places_of_parts(layers, width) for layers in cut]
