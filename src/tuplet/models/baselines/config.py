"""Everything a baseline is built from, as one frozen dataclass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal

from tuplet._values import plain_scalar
from tuplet.encodings import DEG, SPD, Encoding
from tuplet.errors import ModelNameError, OptionError
from tuplet.graphs import Features
from tuplet.models.config import ModelConfig
from tuplet.models.encoded import pair_width, simplex_dims
from tuplet.models.name import BASELINES

NAMES = BASELINES
"""Every baseline, as ``tuplet.build`` calls it."""
ON_PAIRS = ("PPGN", "2-IGN")
"""Those whose tokens are ordered pairs of nodes."""
_HEADED = ("GAT", "PNA", "GPS", "Graphormer")
_WITHOUT_EDGES = ("GCN", "GIN")
_ALWAYS_EDGES = ("GINE", "GatedGCN", "GPS")


@dataclass(frozen=True)
class BaselineConfig:
    """Options of a baseline. Those that ``ModelConfig`` has too mean the same.

    Args:
        name: one of ``NAMES``.
        dim: width d of a node or pair.
        depth: number of layers.
        heads: attention heads of GAT, GPS and Graphormer, towers of PNA; divides ``dim``. The others have none.
        task: "graph", "node" or "edge" (pairs in ``batch.edge_label_index``).
        outputs: width of the output.
        node_types, edge_types: number of values of a categorical feature, or a list with one number a column.
        node_dim, edge_dim: width of a real feature vector. GCN and GIN do not read features of edges.
        dropout: on what a layer adds.
        pool: pooling to graphs: "mean", "add" or "max".
        pool_unit: graph outputs are made of sums divided by this number; read for "add" alone.
        norm: "batch", "layer" or "none"; None picks "layer" for Graphormer and "batch" for all others, as in their papers.
        activation: "gelu" or "relu".
        encodings: positional and structural encodings, as objects of ``tuplet.encodings`` or short forms ("RWSE:20:28").
        directed: keep the direction of edges: a node hears from the nodes whose edges point to it.
        undirected: "require" refuses a missing reverse edge, "symmetrise" adds it.
        degrees: PNA only: how many nodes of the training set have 0, 1, 2, .. incoming edges (``degree_histogram``). None
            takes the degrees of the first batch that the model sees; they are part of its state from then on.
        max_distance: Graphormer only: largest distance with a bias of its own.
        max_path: Graphormer only: how many edges of a shortest path are read.
        virtual_node: Graphormer only: one more node a graph, with a vector and a bias of its own, that sees and is seen by all
            others. Graphs are still pooled from their own nodes.
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
    dropout: float = 0.0
    pool: Literal["add", "mean", "max"] = "mean"
    pool_unit: float = 1.0
    norm: Literal["batch", "layer", "none"] | None = None
    activation: Literal["gelu", "relu"] = "gelu"
    encodings: tuple[Encoding, ...] = ()
    directed: bool = False
    undirected: Literal["require", "symmetrise"] = "require"
    degrees: tuple[int, ...] | None = None
    max_distance: int = 20
    max_path: int = 5
    virtual_node: bool = False
    check_memory: bool = True

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            close = get_close_matches(str(self.name), NAMES, n=1, cutoff=0.4)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise ModelNameError(f"name: expected one of {', '.join(NAMES)}; came {self.name!r}{hint}")
        if self.norm is None:
            object.__setattr__(self, "norm", "layer" if self.name == "Graphormer" else "batch")
        common = self.common
        for field in ("node_types", "edge_types", "encodings"):  # as tuples, so that a config can be hashed
            object.__setattr__(self, field, getattr(common, field))
        for field, default, owner in (
            ("degrees", None, "PNA"),
            ("max_distance", 20, "Graphormer"),
            ("max_path", 5, "Graphormer"),
            ("virtual_node", False, "Graphormer"),
        ):
            value = getattr(self, field)
            if value != default and self.name != owner:
                raise OptionError(f"{field}: an option of {owner}; came {value!r} for {self.name}")
            if field in ("max_distance", "max_path") and (
                not isinstance(value, int) or isinstance(value, bool) or value < 1
            ):
                raise OptionError(f"{field}: expected a positive int; came {value!r}")
        if not isinstance(self.virtual_node, bool):
            raise OptionError(f"virtual_node: expected True or False; came {self.virtual_node!r}")
        if self.degrees is not None:
            object.__setattr__(self, "degrees", _histogram(self.degrees))
        for encoding in self.encodings:
            if encoding.level == "simplex" and self.name in _WITHOUT_EDGES:
                raise OptionError(
                    f"encodings: {encoding} describes edges, which {self.name} does not read; "
                    "use GINE, GatedGCN, GAT, PNA or GPS"
                )

    @classmethod
    def of(cls, name: str, **options: Any) -> BaselineConfig:
        """The config of a name and options; an option that does not exist is refused with the nearest one."""
        known = cls.__dataclass_fields__
        for option in options:
            if option not in known:
                close = get_close_matches(option, known, n=1)
                hint = f"did you mean {close[0]}?" if close else f"expected one of {', '.join(known)}"
                raise OptionError(f"{option}: no such option of {name}; {hint}")
        return cls(name, **{option: plain_scalar(value) for option, value in options.items()})

    @property
    def common(self) -> ModelConfig:
        """The options that transformers have too, for the parts that are shared with them; refused there, in the same words."""
        return ModelConfig(
            "A2",  # whose tokens carry what is known of nodes, edges and pairs
            dim=self.dim,
            depth=self.depth,
            heads=self.heads if self.name in _HEADED else 1,
            task=self.task,
            outputs=self.outputs,
            node_types=self.node_types,
            node_dim=self.node_dim,
            edge_types=self.edge_types,
            edge_dim=self.edge_dim,
            pool=self.pool,
            pool_unit=self.pool_unit,
            norm=self.norm or "batch",
            norm_position="pre" if self.name == "Graphormer" else "post",
            activation=self.activation,
            dropout=self.dropout,
            encodings=self.encodings,
            directed=self.directed,
            undirected=self.undirected,
            check_memory=self.check_memory,
        )

    @property
    def node_features(self) -> Features:
        return self.common.node_features

    @property
    def edge_features(self) -> Features:
        """The features of edges that the model reads."""
        return Features("edge_attr") if self.name in _WITHOUT_EDGES else self.common.edge_features

    @property
    def reads_edges(self) -> bool:
        """Whether there is a vector for each edge."""
        told = bool(self.edge_features.columns) or any(
            1 in simplex_dims(e) for e in self.encodings if e.level == "simplex"
        )
        if self.name in _WITHOUT_EDGES or self.name in ON_PAIRS:
            return False
        on_edges = self.name != "Graphormer" and bool(pair_width(self.encodings))
        return self.name in _ALWAYS_EDGES or told or on_edges

    @property
    def degree_encoding(self) -> DEG:
        """Graphormer's centrality encoding."""
        return DEG(width=self.dim)

    @property
    def distance_encoding(self) -> SPD:
        """Graphormer's spatial encoding, a number a head."""
        return SPD(self.max_distance, self.heads)

    @property
    def statistics(self) -> tuple[Encoding, ...]:
        """Encodings whose raw statistics the model reads: worth ``Precompute`` once for a data set."""
        own = (self.degree_encoding, self.distance_encoding) if self.name == "Graphormer" else ()
        return (*self.encodings, *own)


def _histogram(given: Any) -> tuple[int, ...]:
    expected = (
        "degrees: expected how many nodes have 0, 1, 2, .. incoming edges, as ints of at least 0, not all of them 0"
    )
    try:
        counts = tuple(int(count) for count in given)
    except (TypeError, ValueError) as error:
        raise OptionError(f"{expected}; came {given!r}") from error
    if any(count < 0 for count in counts) or not sum(counts):
        raise OptionError(f"{expected}; came {given!r}")
    return counts
