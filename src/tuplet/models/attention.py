"""The attention layer of every model: projections, groups of heads, relations, virtual tuples."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tuplet.attention import (
    Group,
    Rule,
    are_mutual,
    attend,
    attend_apart,
    attend_joined,
    feature_map,
    mutually,
    seen_apart,
)
from tuplet.attention.kernels import Kernel
from tuplet.kernels.normed import Normed
from tuplet.models import dense_cpu
from tuplet.models.dense import linear, linear_parts, side_by_side
from tuplet.models.layer_cpu import Mutual, Sight
from tuplet.patterns import FusedLines, FusedRows, Pattern

FULL = 3
"""Layers whose messages begin with full size; in deeper models they begin smaller, and with the same size all together."""
FEW = 4096
"""A kernel takes all virtual tuples of a graph at once, if their number times heads times width is no more than this."""


@dataclass(frozen=True)
class Layouts:
    """Who sees whom in one batch, laid out for one backend.

    Args:
        patterns: for each pattern, for each group, its pairs; a fused layout has those of all groups in one.
        from_virtual: tuples see virtual tuples, or None.
        to_virtual: virtual tuples see tuples, or None.
        key_graph: (T2,) graph of each key.
        virtual_graph: (G·m,) graph of each virtual tuple.
        graphs: G.
        kinds: how many keys each kind of token has (simplices of each dimension), in the order of the keys.
        values: the numbers that relation types stand for, where a function of them takes the place of a learned table.
        live: (T1,) which queries are not padding, None where none is.
        live_virtual: (G·m,) the same of the virtual tuples.
    """

    patterns: tuple[tuple[Group, ...], ...]
    from_virtual: Group | None
    to_virtual: Group | None
    key_graph: Tensor
    virtual_graph: Tensor
    graphs: int
    kinds: tuple[int, ...] = ()
    values: Tensor | None = None
    live: Tensor | None = None
    live_virtual: Tensor | None = None


class TokenAttention(nn.Module):
    r"""Multi-head attention of tokens over a sum of patterns (Definition 3.1 and section 4.2).

    softmax="groups": heads are dealt round-robin to the groups of a pattern, group j attends to the j-th neighbourhood with
    its own softmax, and the results are concatenated; virtual tuples are attended with all heads; patterns are added.
    softmax="joint": all heads attend to the union of all groups and virtual tuples, told apart by the relation.
    Either way one output projection follows. Tuples and virtual tuples have projections of their own (Q^1, V^2 in the paper).

    Args:
        dim, heads: d and h.
        patterns: the patterns that are summed.
        kernel: "softmax", "relu", "performer" or "linear".
        relation: "none", "bias", "scale" or "reweight".
        joint: softmax="joint".
        virtual: whether there are virtual tuples.
        upward: whether the virtual tuples are updated, which nothing reads after the last layer.
        features: random features of FAVOR+.
        kinds: dimensions of simplices, each of which has value weights V^k of its own; 1 for tuples.
        phi: "types" looks relations up in a learned table; "identity" and "mlp" are functions of ``Layouts.values``.
        depth: layers of the model, whose messages add up.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        patterns: tuple[Pattern, ...],
        kernel: Kernel = "softmax",
        relation: str = "none",
        joint: bool = False,
        virtual: bool = False,
        upward: bool = False,
        features: int | None = None,
        kinds: int = 1,
        phi: str = "types",
        depth: int = 1,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.depth = depth
        self.patterns = patterns
        self.joint = joint
        self.query = nn.Linear(dim, dim)
        keyed = bool(patterns) or upward
        self.key_value = nn.Linear(dim, 2 * dim) if keyed and kinds == 1 else None
        self.key = nn.Linear(dim, dim) if keyed and kinds > 1 else None
        self.values = nn.ModuleList(nn.Linear(dim, dim) for _ in range(kinds)) if keyed and kinds > 1 else None
        self.output = nn.Linear(dim, dim)
        self.virtual = nn.Linear(dim, 3 * dim) if virtual else None
        self.virtual_output = nn.Linear(dim, dim) if upward else None
        self.features = feature_map(kernel, dim // heads, features)
        positive = self.features is not None
        scale = 1.0 if positive else (dim // heads) ** -0.5
        self.rule = Rule("positive" if positive else kernel, relation, scale)
        self.plain = Rule(self.rule.kernel, "none", scale)
        self.tables = nn.ParameterList()
        self.phi: nn.Module | None = None
        if phi == "mlp":
            self.phi = nn.Sequential(nn.Linear(1, 4 * heads), nn.GELU(), nn.Linear(4 * heads, heads))
        if relation != "none" and phi == "types":
            sizes = [self._types(pattern) for pattern in patterns] + [1] * (joint and virtual)
            self.tables.extend(nn.Parameter(torch.empty(size, heads)) for size in sizes)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Scores begin small, so that no softmax is saturated, and messages of full size, so that no layer fades out; but messages
        are averages of what tokens have in common, and beyond three layers' worth of them little would be left of a token's own.

        Relations begin spread out around "no effect", and pairs joined by an edge stand out: Ngbh+ begins by looking at
        neighbours, which are few among n nodes.
        """
        nn.init.xavier_uniform_(self.query.weight, gain=0.5)
        nn.init.xavier_uniform_(self.output.weight, gain=2**0.5 * min(1, FULL / self.depth))
        if self.key_value is not None:
            for part, gain in zip(self.key_value.weight.chunk(2), (0.5, 2**0.5), strict=True):
                nn.init.xavier_uniform_(part, gain=gain)
        if self.key is not None and self.values is not None:
            nn.init.xavier_uniform_(self.key.weight, gain=0.5)
            for value in self.values:
                nn.init.xavier_uniform_(value.weight, gain=2**0.5)  # type: ignore[arg-type]
        for table in self.tables:
            neutral = 0.0 if self.rule.relation == "bias" else 1.0
            nn.init.normal_(table, neutral, 1.0 if self.rule.relation == "bias" else 0.5)
        for table, pattern in zip(self.tables, self.patterns, strict=False):
            own = pattern.types - pattern.shared_self
            for row in range(pattern.shared_self, len(table)):
                if pattern.shared_self + (row - pattern.shared_self) % own in pattern.edge_types:
                    table[row] += 2.0

    def _types(self, pattern: Pattern) -> int:
        own = pattern.types - pattern.shared_self
        return pattern.shared_self + own * (pattern.groups if self.joint else 1)

    def table(self, pattern: int, group: int, heads: slice, layouts: Layouts) -> Tensor | None:
        """(types, heads) numbers of a group: in the joint form each group has types of its own but for the tuple itself, and one structure
        of all groups has the types of all."""
        if self.rule.relation == "none":
            return None
        if layouts.values is not None:
            values = layouts.values.to(self.query.weight.dtype)[:, None]
            return (values.expand(-1, self.heads) if self.phi is None else self.phi(values))[:, heads]
        table = self.tables[pattern][:, heads]
        if not self.joint or len(layouts.patterns[pattern]) == 1:
            return table
        shared = int(self.patterns[pattern].shared_self)
        own = self.patterns[pattern].types - shared
        return torch.cat([table[:shared], table[shared + group * own : shared + (group + 1) * own]])

    def packed(
        self, x: Tensor | Normed, y: Tensor | Normed, virtual: Tensor | Normed | None, layouts: Layouts
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Queries, keys and values side by side.

        (T1, 3, h, c) of tokens, or their queries alone and (T2, 2, h, c) keys and values of the tokens they attend to;
        (G·m, 3, h, c) of virtual tuples.
        """

        kinds: tuple[int, ...] = ()
        sets: list[tuple[Tensor | Normed, list[nn.Linear]]]
        if self.key is not None and self.values is not None:  # simplices, whose dimensions have values of their own
            sets, kinds = [(x, [self.query, self.key, *self.values])], layouts.kinds
        elif self.key_value is not None and y is x:
            sets = [(x, [self.query, self.key_value])]
        else:
            sets = [(x, [self.query])] + ([] if self.key_value is None else [(y, [self.key_value])])
        real = len(sets)
        if self.virtual is not None and virtual is not None:
            sets.append((virtual, [self.virtual]))
        width = self.query.in_features // self.heads
        found = [part.unflatten(-1, (-1, self.heads, width)) for part in side_by_side(sets, kinds)]
        return found[0], found[1] if real > 1 else None, found[-1] if len(sets) > real else None

    def project(
        self, x: Tensor | Normed, y: Tensor | Normed, virtual: Tensor | Normed | None, layouts: Layouts
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Queries, keys, values (T, h, c) of tuples and of virtual tuples, after the feature map."""
        if isinstance(x, Normed) or isinstance(y, Normed) or isinstance(virtual, Normed) or not dense_cpu.fits(x):
            real, other, unreal = (
                () if part is None else part.unbind(1) for part in self.packed(x, y, virtual, layouts)
            )
            return self.map_features([*real, *other], list(unreal), layouts)
        if self.key is not None and self.values is not None:
            parts = linear_parts(x, 3, self.heads, self.query, self.key, *self.values, kinds=layouts.kinds)
        elif self.key_value is not None and y is x:
            parts = linear_parts(x, 3, self.heads, self.query, self.key_value)
        else:
            keyed = () if self.key_value is None else linear_parts(y, 2, self.heads, self.key_value)
            parts = *linear_parts(x, 1, self.heads, self.query), *keyed
        known = self.virtual is not None and virtual is not None
        few = linear_parts(virtual, 3, self.heads, self.virtual) if known else ()  # type: ignore[arg-type]
        return self.map_features([*parts], [*few], layouts)

    def map_features(
        self, real: list[Tensor], unreal: list[Tensor], layouts: Layouts
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Queries and keys after the feature map of a kernelised attention; the same ones without a map."""
        if self.features is None:
            return real, unreal
        sets = [(real, layouts.key_graph), (unreal, layouts.virtual_graph)]
        keyed = [(part, graph) for part, graph in sets if len(part) > 1]
        keys = iter(self.features.keys([part[1] for part, _ in keyed], [graph for _, graph in keyed], layouts.graphs))
        mapped = []
        for part, _ in sets:
            queries = [self.features.queries(part[0])] if part else []
            mapped.append([*queries, next(keys), *part[2:]] if len(part) > 1 else queries)
        return mapped[0], mapped[1]

    def forward(self, x: Tensor, y: Tensor, virtual: Tensor | None, layouts: Layouts) -> tuple[Tensor, Tensor | None]:
        """Messages for tokens (T1, d) that attend to tokens ``y`` (T2, d), and for virtual tuples (G·m, d)."""
        message = self.messages(x, y, virtual, layouts)
        if self.upward(layouts) is None or self.virtual_output is None:
            return linear(message[0][: len(x)], self.output), None
        own, virtual = message if len(message) > 1 else message[0].split([len(x), len(layouts.virtual_graph)])
        return linear(own, self.output), linear(virtual, self.virtual_output)

    def upward(self, layouts: Layouts) -> Group | None:
        """How virtual tuples see tuples, None where they do not."""
        return None if self.virtual_output is None else layouts.to_virtual

    def messages(
        self, x: Tensor | Normed, y: Tensor | Normed, virtual: Tensor | Normed | None, layouts: Layouts
    ) -> list[Tensor]:
        """The same before the output projections: one tensor each, or one in which those of virtual tuples follow on the others, read or
        not."""
        if self._at_once(layouts):
            found = self._mixed_at_once(*self.packed(x, y, virtual, layouts), layouts)
        elif (
            self.joint
            and isinstance(x, Tensor)
            and x is y
            and isinstance(virtual, Tensor)
            and self.is_mutual(x, virtual, layouts)
        ):
            found = self.mutual(x, virtual, layouts).message(), None
        else:
            found = self.mix(*self.project(x, y, virtual, layouts), layouts)
        return [message.flatten(1) for message in found if message is not None]

    def _at_once(self, layouts: Layouts) -> bool:
        """Whether one operator does all of it: one pattern, all its groups in one structure, and a few virtual tuples."""
        groups = [group for pattern in layouts.patterns for group in pattern]
        groups += [] if layouts.from_virtual is None else [layouts.from_virtual]
        fused = all(isinstance(group, FusedLines | FusedRows) for group in groups)
        few = len(layouts.virtual_graph) * self.heads * self.query.in_features <= FEW * layouts.graphs
        return fused and len(layouts.patterns) <= 1 and few and self.features is None and self._one_table(layouts)

    def _one_table(self, layouts: Layouts) -> bool:
        return not self.joint or all(len(groups) == 1 for groups in layouts.patterns)

    def _mixed_at_once(
        self, real: Tensor, other: Tensor | None, unreal: Tensor | None, layouts: Layouts
    ) -> tuple[Tensor, Tensor | None]:
        from tuplet.attention.fused.mixing import mix

        upward = self.upward(layouts) is not None
        pattern = layouts.patterns[0][0] if layouts.patterns else None
        related = self.rule.relation != "none"
        tables = (
            self.table(0, 0, slice(None), layouts) if pattern is not None else None,
            self.tables[-1] if self.joint and related and unreal is not None else None,
        )
        message, up = mix(real, other, unreal, tables, pattern, layouts.from_virtual, upward, self.joint, self.rule)  # type: ignore[arg-type]
        return message, up if upward else None

    def is_mutual(self, x: Tensor, virtual: Tensor, layouts: Layouts) -> bool:
        """Whether tuples and virtual ones see each other by lists of keys, so that on a CPU one function may do all of it."""
        keyed = self.key is not None or self.key_value is not None
        if not keyed or self.features is not None or (len(layouts.patterns) > 1 and not self.joint):
            return False
        groups = *(group for pattern in layouts.patterns for group in pattern), layouts.from_virtual, layouts.to_virtual
        every = all(group is not None for group in groups)
        return every and dense_cpu.fits(x, virtual, self.query.weight) and are_mutual(x, groups, self.rule)  # type: ignore[arg-type]

    def mutual(self, x: Tensor, virtual: Tensor, layouts: Layouts) -> Mutual:
        """The same as something to be done, where it ``is_mutual``."""
        keyed = self.key_value if self.key is None else self.key
        assert keyed is not None
        assert self.virtual is not None
        assert layouts.to_virtual is not None
        maps, kinds = [self.query, keyed, *(self.values or ())], layouts.kinds or (len(x),)
        table, sights = self._sights(x, virtual, layouts)
        return Mutual(x, virtual, maps, self.virtual, kinds, self.heads, table, sights, self.rule)

    def _sights(self, x: Tensor, virtual: Tensor, layouts: Layouts) -> tuple[Tensor, list[Sight]]:
        """The relation's numbers, and who sees whom. With one softmax for all that is one sight, in the last layer too, where nobody reads
        what virtual tuples see: its pairs are then those of all layers."""
        assert layouts.from_virtual is not None
        assert layouts.to_virtual is not None
        tokens, others = len(x), len(virtual)
        if self.joint:
            table, keyed = mutually(x, virtual, self.heads, self._parts(layouts), layouts.to_virtual, self.rule)
            return table, [Sight(keyed, 0, tokens + others, 0, related=True)]
        related = bool(layouts.patterns) and self.rule.relation != "none"
        own = self.table(0, 0, slice(None), layouts) if related else None
        sights = [Sight(seen_apart(groups, tokens), 0, tokens, 0, related) for groups in layouts.patterns]
        sights.append(Sight(seen_apart((layouts.from_virtual,), others), 0, tokens, tokens, related=False))
        if self.upward(layouts) is not None:
            sights.append(Sight(seen_apart((layouts.to_virtual,), tokens), tokens, others, 0, related=False))
        return x.new_zeros(1, self.heads) if own is None else own, sights

    def mix(self, real: list[Tensor], unreal: list[Tensor], layouts: Layouts) -> tuple[Tensor, Tensor | None]:
        """Messages (T1, h, c) of tuples and (G·m, h, c) of virtual tuples, before the output projections."""
        message = self._joined(real, unreal, layouts) if self.joint else self._added(real, unreal, layouts)
        group = self.upward(layouts)
        return message, None if group is None else attend(unreal[0], real[1], real[2], group, None, self.plain)[0]

    def heads_of(self, groups: int, group: int) -> slice:
        """The heads that attend to a group: all of them in the joint form, else every ``groups``-th, dealt round-robin."""
        return slice(None) if self.joint else slice(group, None, groups)

    def _added(self, real: list[Tensor], unreal: list[Tensor], layouts: Layouts) -> Tensor:
        """The sum over patterns, each with its own softmax a group, and virtual tuples."""
        parts = []
        for number, groups in enumerate(layouts.patterns):
            q, k, v = real
            parts.append(attend_apart(q, k, v, groups, self.table(number, 0, slice(None), layouts), self.rule))
        if layouts.from_virtual is not None:
            parts.append(attend(real[0], unreal[1], unreal[2], layouts.from_virtual, None, self.plain)[0])
        message = parts[0]
        for other in parts[1:]:
            message = message + other
        return message

    def _joined(self, real: list[Tensor], unreal: list[Tensor], layouts: Layouts) -> Tensor:
        """One softmax over all groups of all patterns and the virtual tuples."""
        parts: list[tuple[Tensor, Tensor, Group, Tensor | None]] = []
        for group, table in self._parts(layouts):
            _, k, v = unreal if group is layouts.from_virtual else real
            parts.append((k, v, group, table))
        return attend_joined(real[0], parts, self.rule)

    def _parts(self, layouts: Layouts) -> list[tuple[Group, Tensor | None]]:
        """In the joint form, what tuples see, and the numbers of the relation: all groups of all patterns, then virtual tuples."""
        parts = [
            (group, self.table(number, place, slice(None), layouts))
            for number, groups in enumerate(layouts.patterns)
            for place, group in enumerate(groups)
        ]
        if layouts.from_virtual is not None:
            parts.append((layouts.from_virtual, self.tables[-1] if self.rule.relation != "none" else None))
        return parts
