"""The attention layer of every model: projections, groups of heads, relations, virtual tuples."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tuplet.attention import Rule, attend, feature_map, join
from tuplet.attention.kernels import Kernel
from tuplet.patterns import DefinedPairs, Pattern, Structure

Group = Structure | DefinedPairs


@dataclass(frozen=True)
class Layouts:
    """Who sees whom in one batch, laid out for one backend.

    Args:
        patterns: for each pattern, for each group, its pairs.
        from_virtual: tuples see virtual tuples, or None.
        to_virtual: virtual tuples see tuples, or None.
        key_graph: (T2,) graph of each key.
        virtual_graph: (G·m,) graph of each virtual tuple.
        graphs: G.
        kinds: how many keys each kind of token has (simplices of each dimension), in the order of the keys.
        values: the numbers that relation types stand for, where a function of them takes the place of a learned table.
    """

    patterns: tuple[tuple[Group, ...], ...]
    from_virtual: Group | None
    to_virtual: Group | None
    key_graph: Tensor
    virtual_graph: Tensor
    graphs: int
    kinds: tuple[int, ...] = ()
    values: Tensor | None = None


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
    ) -> None:
        super().__init__()
        self.heads = heads
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
        """Scores begin small and messages of full size, so that no softmax is saturated and no layer fades out.

        Relations begin spread out around "no effect", and pairs joined by an edge stand out: Ngbh+ begins by looking at
        neighbours, which are few among n nodes.
        """
        nn.init.xavier_uniform_(self.query.weight, gain=0.5)
        nn.init.xavier_uniform_(self.output.weight, gain=2**0.5)
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
        """(types, heads) numbers of a group: in the joint form each group has types of its own but for the tuple itself."""
        if self.rule.relation == "none":
            return None
        if layouts.values is not None:
            values = layouts.values.to(self.query.weight.dtype)[:, None]
            return (values.expand(-1, self.heads) if self.phi is None else self.phi(values))[:, heads]
        table = self.tables[pattern][:, heads]
        if not self.joint:
            return table
        shared = int(self.patterns[pattern].shared_self)
        own = self.patterns[pattern].types - shared
        return torch.cat([table[:shared], table[shared + group * own : shared + (group + 1) * own]])

    def project(
        self, x: Tensor, y: Tensor, virtual: Tensor | None, layouts: Layouts
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Queries, keys, values (T, h, c) of tuples and of virtual tuples, after the feature map."""
        split = (self.heads, -1)
        real = [self.query(x).unflatten(-1, split)]
        if self.key_value is not None:
            real += self.key_value(y).unflatten(-1, (2, *split)).unbind(1)
        if self.key is not None and self.values is not None:
            parts = [value(part) for value, part in zip(self.values, y.split(layouts.kinds), strict=True)]
            real += [self.key(y).unflatten(-1, split), torch.cat(parts).unflatten(-1, split)]
        unreal: list[Tensor] = []
        if self.virtual is not None and virtual is not None:
            unreal = list(self.virtual(virtual).unflatten(-1, (3, *split)).unbind(1))
        return self.map_features(real, unreal, layouts)

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
        message, upward = self.mix(*self.project(x, y, virtual, layouts), layouts)
        if upward is None or self.virtual_output is None:
            return self.output(message.flatten(1)), None
        return self.output(message.flatten(1)), self.virtual_output(upward.flatten(1))

    def mix(self, real: list[Tensor], unreal: list[Tensor], layouts: Layouts) -> tuple[Tensor, Tensor | None]:
        """Messages (T1, h, c) of tuples and (G·m, h, c) of virtual tuples, before the output projections."""
        parts = [self._attend(real, number, groups, layouts) for number, groups in enumerate(layouts.patterns)]
        if layouts.from_virtual is not None:
            rule, table = self.plain, None
            if self.joint and self.rule.relation != "none":
                rule, table = self.rule, self.tables[-1]
            parts.append([attend(real[0], unreal[1], unreal[2], layouts.from_virtual, table, rule)])
        if self.joint:
            message = join([part for group in parts for part in group], self.rule)
        else:
            sums = [interleave([message for message, _ in part]) for part in parts]
            message = sums[0]
            for other in sums[1:]:
                message = message + other
        if layouts.to_virtual is None or self.virtual_output is None:
            return message, None
        upward, _ = attend(unreal[0], real[1], real[2], layouts.to_virtual, None, self.plain)
        return message, upward

    def heads_of(self, groups: int, group: int) -> slice:
        """The heads that attend to a group: all of them in the joint form, else every ``groups``-th, dealt round-robin."""
        return slice(None) if self.joint else slice(group, None, groups)

    def _attend(
        self, real: list[Tensor], pattern: int, groups: tuple[Group, ...], layouts: Layouts
    ) -> list[tuple[Tensor, Tensor]]:
        """Messages and log-sum-exps of each group, for the heads that attend to it."""
        parts = []
        for group, pairs in enumerate(groups):
            heads = self.heads_of(len(groups), group)
            q, k, v = (tensor[:, heads] for tensor in real)
            parts.append(attend(q, k, v, pairs, self.table(pattern, group, heads, layouts), self.rule))
        return parts


def interleave(parts: list[Tensor]) -> Tensor:
    """(T, h, c) from the heads of each group, which were dealt round-robin."""
    if len(parts) == 1:
        return parts[0]
    if parts[0].shape[1] == parts[-1].shape[1]:
        return torch.stack(parts, dim=2).flatten(1, 2)
    heads, groups = sum(part.shape[1] for part in parts), len(parts)
    dealt = [head for group in range(groups) for head in range(group, heads, groups)]
    return torch.cat(parts, dim=1)[:, sorted(range(heads), key=dealt.__getitem__)]
