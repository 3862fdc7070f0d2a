"""Everything a model is built from, as one frozen dataclass."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from math import comb
from typing import Any, Literal

import numpy as np

from tuplet._values import plain_scalar
from tuplet.attention import check_backend
from tuplet.encodings import Encoding
from tuplet.encodings import parse as parse_encoding
from tuplet.errors import OptionError
from tuplet.graphs import Features
from tuplet.models.encoded import refuse_lost
from tuplet.models.name import Choices, parse
from tuplet.patterns.relation import EdgeKinds, bell
from tuplet.patterns.simplex import GROUPS

CHOICES = {
    "task": ("graph", "node", "edge"),
    "pool": ("add", "mean", "max"),
    "norm": ("batch", "layer", "none"),
    "norm_position": ("post", "pre"),
    "activation": ("gelu", "relu"),
    "init": ("concat", "sum"),
    "softmax": (None, "groups", "joint"),
    "phi": ("types", "identity", "mlp"),
    "laplacian": ("inter", "block"),
    "pool_over": ("all", "nodes"),
    "relation": (None, "none", "bias", "scale", "reweight"),
    "undirected": ("require", "symmetrise"),
}
"""Values of options that have a few."""
EQUALITY_PATTERNS = 5_000_000
"""Of a pair of tuples, at most: those of A6+basis take seconds to enumerate, those of A7+basis all memory."""
EDGE_KINDS = 32
"""Kinds of edges that a relation tells apart, at most."""


@dataclass(frozen=True)
class ModelConfig:
    """Options of ``tuplet.build``.

    Args:
        name: a model name such as "A2^LN+VT" (see ``tuplet.models.name``).
        dim: width d of a token.
        depth: number of layers.
        heads: attention heads; divides ``dim``. With ``softmax="groups"`` at least one for each group of keys.
        task: "graph", "node" or "edge" (pairs in ``batch.edge_label_index``).
        outputs: width of the output.
        node_types, edge_types: number of values of a categorical feature, or a list with one number a column.
        node_dim, edge_dim: width of a real feature vector.
        virtual: virtual tokens a graph (used by VT and VS).
        softmax: "groups": head group j looks at the j-th neighbourhood with its own softmax (the paper's definition).
            "joint": one softmax over all neighbourhoods and virtual tokens (the published numbers). None picks joint for
            SN, as the paper has it, and groups for all others.
        relation: "none", "bias", "scale", "reweight"; None picks scale for SN with the joint softmax (bias with Performer),
            bias for Ngbh+, +basis and every other joint softmax, else none.
        edge_relation: the relation of LN and Ngbh+ tells kinds of edges apart, by the categorical features of the edge (i_j, u)
            that joins the nodes exchanged, where the paper's says only that there is one: True for all features, or a list with
            the columns of those that count. Bias, unless another relation is named.
        pool: pooling to graphs, and at each step to nodes: "mean", "add" or "max". A sum over n^k tuples grows with
            the graph: "add" can count, and wants a ``pool_unit``.
        pool_unit: graph outputs are made of sums divided by this number, such as the tokens of a typical graph: the same
            functions as without it, whose inputs and gradients begin as small as those of a mean. Read for "add" alone.
        norm: "batch" (over all tokens of the batch), "layer" or "none".
        norm_position: "post" or "pre".
        first_norm: a layer norm of the tokens before the first layer. A norm after that layer takes the size of what came in
            away, so that in long runs nothing else bounds it, nor the scores of the first attention.
        activation: of feed-forward, pooling and head: "gelu" or "relu".
        dropout: on the outputs of attention and feed-forward.
        init: "concat" (isomorphism types, injective) or "sum".
        degree: append node degrees to the input, and the number of cofaces to that of simplices. None means yes where
            dense attention over simplices has a relation (they stand on the diagonal of the Laplacian), else no.
        phi: what dense attention over simplices makes of an entry of the Hodge Laplacian: "types" looks a number up by the
            set of orientation-free relations; "identity" takes the signed entry itself and "mlp" a function of it, so
            that outputs depend on the numbering of nodes.
        laplacian: "inter" relates simplices across dimensions (𝓛_{0:K}), "block" within a dimension only (L).
        truncate: read relations of AS_{k1:k2} in the complex up to dimension k2; otherwise up to k2 + 1.
        pool_over: graph outputs from all tokens ("all") or from those that stand for a node ("nodes"): 0-simplices, or of all
            tuples those whose entries are one node.
        encodings: positional and structural encodings, as objects of ``tuplet.encodings`` or short forms ("RWSE:20:28").
        features: random features of the Performer kernel; None for c·ln c.
        repeats: whether sampled connected tuples may repeat an entry.
        connected_share: part of a random sample drawn among connected tuples.
        sample_seed: seed of random samples.
        directed: keep the direction of edges.
        undirected: "require" refuses a missing reverse edge, "symmetrise" adds it.
        backend: "auto", "torch", "triton" (fused kernels, on a GPU) or "reference".
        recompute: keep the input of every layer only, and compute the layer again in the backward pass: less memory, more time.
        check_memory: predict the memory of each call and refuse what does not fit.
    """

    name: str
    dim: int = 64
    depth: int = 3
    heads: int = 4
    task: Literal["graph", "node", "edge"] = "graph"
    outputs: int = 1
    node_types: int | Sequence[int] | None = None
    node_dim: int | None = None
    edge_types: int | Sequence[int] | None = None
    edge_dim: int | None = None
    virtual: int = 1
    softmax: Literal["groups", "joint"] | None = None
    relation: Literal["none", "bias", "scale", "reweight"] | None = None
    edge_relation: bool | Sequence[int] = False
    pool: Literal["add", "mean", "max"] = "mean"
    pool_unit: float = 1.0
    norm: Literal["batch", "layer", "none"] = "batch"
    norm_position: Literal["post", "pre"] = "post"
    first_norm: bool = False
    activation: Literal["gelu", "relu"] = "gelu"
    dropout: float = 0.0
    init: Literal["concat", "sum"] = "concat"
    degree: bool | None = None
    phi: Literal["types", "identity", "mlp"] = "types"
    laplacian: Literal["inter", "block"] = "inter"
    truncate: bool = False
    pool_over: Literal["all", "nodes"] = "all"
    encodings: tuple[Encoding, ...] = ()
    features: int | None = None
    repeats: bool = True
    connected_share: float = 0.0
    sample_seed: int = 0
    directed: bool = False
    undirected: Literal["require", "symmetrise"] = "require"
    backend: str = "auto"
    recompute: bool = False
    check_memory: bool = True

    def __post_init__(self) -> None:
        choices = parse(self.name)
        object.__setattr__(self, "_choices", choices)  # asked for many times a batch
        for field, allowed in CHOICES.items():
            if getattr(self, field) not in allowed:
                options = ", ".join(repr(option) for option in allowed)
                raise OptionError(f"{field}: expected one of {options}; came {getattr(self, field)!r}")
        for field in ("dim", "depth", "heads", "outputs", "virtual"):
            value = getattr(self, field)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise OptionError(f"{field}: expected a positive int; came {value!r}")
        for field, end in (("dropout", "1)"), ("connected_share", "1]")):
            value = getattr(self, field)
            if not isinstance(value, int | float) or not 0 <= value <= 1 or (end == "1)" and value == 1):
                raise OptionError(f"{field}: expected a number in [0, {end}; came {value!r}")
        for field in ("degree", "repeats", "directed", "recompute", "check_memory", "truncate", "first_norm"):
            if not isinstance(getattr(self, field), bool) and (field != "degree" or self.degree is not None):
                raise OptionError(f"{field}: expected True or False; came {getattr(self, field)!r}")
        if (
            isinstance(self.pool_unit, bool)
            or not isinstance(self.pool_unit, int | float)
            or not 0 < self.pool_unit < float("inf")
        ):
            raise OptionError(f"pool_unit: expected a positive number; came {self.pool_unit!r}")
        if self.features is not None and (not isinstance(self.features, int) or self.features < 1):
            raise OptionError(f"features: expected a positive int or None; came {self.features!r}")
        if not isinstance(self.sample_seed, int) or self.sample_seed < 0:
            raise OptionError(f"sample_seed: expected an int of at least 0; came {self.sample_seed!r}")
        if self.dim % self.heads:
            raise OptionError(f"heads: expected a divisor of dim = {self.dim}; came {self.heads}")
        if self.heads < self.groups:
            raise OptionError(
                f"heads: {self.name} has {self.groups} groups of keys and gives each at least one head, so heads >= {self.groups}; "
                f"came {self.heads}. With softmax='joint' any number of heads works."
            )
        if self.relation is not None and choices.relation not in (None, self.relation):
            raise OptionError(f"relation: the name {self.name!r} says {choices.relation!r}; came {self.relation!r}")
        untyped = not choices.basis and not choices.sparse and (choices.dims is None or choices.virtual)
        if self.relation not in (None, "none") and untyped and not self.joint:
            raise OptionError(
                f"relation: {self.name} has no relation types for {self.relation!r}; dense attention has them with +basis"
            )
        if self.relation == "none" and ("Ngbh+" in choices.patterns or choices.basis):
            raise OptionError(
                f"relation: {self.name} is its relation; came 'none'. Without it the model is Ngbh, or plain dense."
            )
        patterns = bell(sum(choices.orders) if choices.cross else 2 * max(choices.orders)) if choices.basis else 0
        if patterns > EQUALITY_PATTERNS:
            raise OptionError(
                f"name: expected at most {EQUALITY_PATTERNS:,} equality patterns of a query and a key, each with a learned number a "
                f"head; {self.name} has {patterns:,}. Up to A6+basis there are few enough"
            )
        if choices.kernel == "performer" and self.resolved_relation == "scale":
            raise OptionError(
                f"relation: 'scale' multiplies scores, which FAVOR+ knows up to a constant only; {self.name} can have 'bias' or 'reweight'"
            )
        self._check_simplicial()
        self._check_edge_relation()
        object.__setattr__(self, "encodings", _encodings(self.encodings))
        refuse_lost(self.encodings, choices.dims[1] if choices.dims else min(max(choices.orders) - 1, 1))
        check_backend(self.backend)
        for field, features in (("node_types", self.node_features), ("edge_types", self.edge_features)):
            object.__setattr__(self, field, features.types)  # as a tuple, so that a config can be hashed

    @classmethod
    def of(cls, name: str, **options: Any) -> ModelConfig:
        """The config of a name and options; an option that does not exist is refused with the nearest one."""
        known = cls.__dataclass_fields__
        for option in options:
            if option not in known:
                close = get_close_matches(option, known, n=1)
                hint = f"did you mean {close[0]}?" if close else f"expected one of {', '.join(known)}"
                raise OptionError(f"{option}: no such option; {hint}")
        return cls(name, **{option: plain_scalar(value) for option, value in options.items()})

    def _check_simplicial(self) -> None:
        """Refuse options of simplicial transformers where they have no meaning."""
        dims, related = self.choices.dims, not self.choices.patterns and self.resolved_relation != "none"
        for field, default in (("phi", "types"), ("laplacian", "inter"), ("truncate", False)):
            value = getattr(self, field)
            if value != default and dims is None:
                raise OptionError(f"{field}: an option of simplicial transformers; came {value!r} for {self.name}")
            if value != default and field in ("phi", "laplacian") and not related:
                raise OptionError(
                    f"{field}: {self.name} reads no Laplacian; dense attention over simplices does with +bias, +scale "
                    f"or +reweight; came {value!r}"
                )
        if self.pool_over == "nodes" and dims is not None and dims[0] > 0:
            raise OptionError(f"pool_over: {self.name} has no 0-simplices to pool over; came 'nodes'")
        if self.pool_over == "nodes" and self.choices.sampled_side == "queries":
            raise OptionError(f"pool_over: a sample may lack the tuples of nodes; came 'nodes' for {self.name}")

    def _check_edge_relation(self) -> None:
        """Refuse a relation that tells kinds of edges apart where there are none, or too many, or nothing reads it."""
        given = self.edge_relation
        if not isinstance(given, bool):
            columns = tuple(given) if isinstance(given, list | tuple) else ()
            if not columns or not all(type(column) is int for column in columns) or len(set(columns)) < len(columns):
                raise OptionError(
                    f"edge_relation: expected True, False or a list of different columns of edge_attr; came {given!r}"
                )
            object.__setattr__(self, "edge_relation", columns)  # so that a config can be hashed
        if given is False:
            return
        if not set(self.choices.patterns) & {"LN", "Ngbh+"}:
            raise OptionError(f"edge_relation: a relation of LN and Ngbh+; {self.name} has neither")
        if self.relation == "none":
            raise OptionError("edge_relation: expected a relation to tell edges apart by; came relation='none'")
        types = self.edge_features.types
        if types is None:
            raise OptionError(f"edge_relation: expected 2 to {EDGE_KINDS} kinds of edges, by edge_types; came none")
        if given is not True and not all(0 <= column < len(types) for column in given):
            raise OptionError(
                f"edge_relation: expected columns 0 to {len(types) - 1}, as edge_types has; came {given!r}"
            )
        count = self.edge_kinds.count
        if not 1 < count <= EDGE_KINDS:
            came, hint = f"edge_types={_plain(self.edge_types)!r}", ""
            usable = [column for column, values in enumerate(types) if 1 < values <= EDGE_KINDS]
            if given is not True:
                came = f"columns {list(given)} of {came}"
            elif usable:
                hint = f". A list says which columns count, such as edge_relation=[{usable[0]}]"
            raise OptionError(
                f"edge_relation: expected 2 to {EDGE_KINDS} kinds of edges; came {came}, which makes {count}{hint}"
            )

    @property
    def choices(self) -> Choices:
        """What the name says."""
        found: Choices = self.__dict__["_choices"]
        return found

    @property
    def node_features(self) -> Features:
        return Features.declare("x", _plain(self.node_types), self.node_dim)

    @property
    def edge_features(self) -> Features:
        return Features.declare("edge_attr", _plain(self.edge_types), self.edge_dim)

    @property
    def edge_kinds(self) -> EdgeKinds:
        """What kinds of edges the relation tells apart."""
        types, columns = self.edge_features.types or (), self.edge_relation
        if isinstance(columns, bool):
            columns = range(len(types)) if columns else ()
        return EdgeKinds(tuple(types[column] for column in columns), tuple(columns))

    @property
    def groups(self) -> int:
        """The most groups that a pattern of this model divides its heads among."""
        choices = self.choices
        if self.joint or not choices.sparse:
            return 1
        if choices.dims is not None:
            return len(GROUPS)
        return comb(max(choices.orders), min(choices.orders)) if choices.cross else choices.orders[0]

    @property
    def resolved_relation(self) -> str:
        """The relation in force, after names and defaults."""
        choices = self.choices
        stated = choices.relation or self.relation
        if stated is not None:
            return stated
        if "SN" in choices.patterns:
            if not self.joint:
                return "none"
            return "bias" if choices.kernel == "performer" else "scale"
        biased = "Ngbh+" in choices.patterns or choices.basis or self.edge_relation or (self.joint and choices.patterns)
        return "bias" if biased else "none"

    @property
    def joint(self) -> bool:
        """Whether one softmax spans all groups of keys and virtual tokens."""
        return self.softmax == "joint" or (self.softmax is None and "SN" in self.choices.patterns)

    @property
    def degrees(self) -> bool:
        """Whether degrees are part of the input."""
        if self.degree is not None:
            return self.degree
        dense = self.choices.dims is not None and not self.choices.patterns
        return dense and self.resolved_relation != "none"


def _encodings(given: Any) -> tuple[Encoding, ...]:
    """Encodings as a tuple, short forms read."""
    if isinstance(given, (str, Encoding)) or not isinstance(given, Iterable):
        raise OptionError(f"encodings: expected a list of encodings or short forms; came {given!r}")
    found = tuple(parse_encoding(item) if isinstance(item, str) else item for item in given)
    for encoding in found:
        if not isinstance(encoding, Encoding):
            raise OptionError(f"encodings: expected encodings or short forms; came {encoding!r}")
    if len(set(found)) < len(found):
        raise OptionError(f"encodings: expected each once; came {', '.join(map(str, found))}")
    return found


def _plain(types: Any) -> Any:
    """A list of numbers from any sequence of them, numpy's too."""
    return [plain_scalar(count) for count in types] if isinstance(types, Sequence | np.ndarray) else types
