"""What a training step will cost, before any of it runs: tokens, pairs, FLOPs and peak bytes.

The peak is counted, not fitted: below, each tensor that autograd keeps is one entry, in units of one vector of width d a
token. Attention keeps nothing of the size of the pairs but for rows, which are few a token; tiles enter as a constant.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import comb

import torch

from tuplet._memory import available_bytes
from tuplet.attention.kernels import favor_features
from tuplet.attention.listing import LINE_COMPILED, PAIRS_A_ROW, PAIRS_AT_ONCE, PAIRS_COMPILED
from tuplet.encodings import Spectral
from tuplet.errors import TooLargeError
from tuplet.kernels.sizes import GRADIENT_PROGRAMS, GRADIENT_ROWS
from tuplet.models.attention import FEW
from tuplet.models.config import ModelConfig
from tuplet.models.dense import WIDEST
from tuplet.models.encoded import pair_width
from tuplet.models.prepare import Patterns
from tuplet.models.table_cost import encoded_numbers, statistics_bytes, table_vectors, type_bytes
from tuplet.patterns import LocalNeighbour, SimplexNeighbour
from tuplet.patterns.structure import QUERIES_A_TILE, block_size
from tuplet.tokens import Simplices, Tokens

LINE_TENSORS, ROW_TENSORS = 6, 5
"""Tensors of the size of a tile of pairs, or of a portion of queries where there are no pairs, that exist at once."""
BYTES_A_BAGGED_PAIR = 32
"""Most bytes that exist at once for a pair of rows, counted for each head: scores and gradients."""
BYTES_A_LISTED_PAIR = 20
"""Where a pair of rows stands, both ways; once for all heads that see the same keys."""
EQUALITY_TENSORS = 4
"""The same for finding the equality patterns of a tile's pairs."""
BYTES_A_RELATED_PAIR = 72
"""Most bytes that exist at once for a pair of related simplices while pairs are found and sorted."""
BYTES_A_SIMPLEX = 400
"""The same for a simplex while cliques are enumerated and faces looked up."""
INDEX_TENSORS = 5
"""Tensors of 8 bytes a pair that exist at once while the types of a tile's pairs are looked up."""
RELEASED = 9
"""Vectors a token of the last layer that are gone when its attention is differentiated: feed-forward and concatenation."""


@dataclass(frozen=True)
class Cost:
    """Predicted cost of one training step on a batch.

    Args:
        tokens: query tokens of the batch (and key tokens, for cross-attention).
        pairs: query-key pairs that one layer scores.
        flops: floating-point operations of forward and backward, all layers.
        peak_bytes: most memory in use during the step: parameters, gradients, optimiser (AdamW), activations, indices.
        inference_bytes: the same for a forward without gradients.
        least_traffic: bytes that have to move however layers are fused: forward a layer reads and writes its tokens, backward it
            reads them and their gradients and writes gradients, all in the precision of the weights; and AdamW reads four
            numbers a weight and writes three.
        graphs: sizes of the largest graph and of the batch, for messages.
        table_bytes: what types and encodings of nodes and their pairs take, however few of these are tokens; for messages too.
        given_bytes: what of the peak a checked batch holds already, the statistics of its encodings.
    """

    tokens: int
    pairs: int
    flops: int
    peak_bytes: int
    inference_bytes: int
    least_traffic: int
    graphs: tuple[int, int]
    table_bytes: int = 0
    given_bytes: int = 0


@dataclass(frozen=True)
class _Sizes:
    """Numbers of tokens of each kind."""

    queries: int
    keys: int
    pairs_of_nodes: int
    virtual: int
    embedding: float


def most_tokens(config: ModelConfig, patterns: Patterns, item: int, device: torch.device, fused: bool) -> int:
    """How many sampled tuples could fit on the device at all."""
    kept = sum(_kept_a_layer(config, patterns, device, fused, True)) * config.depth if torch.is_grad_enabled() else 4
    return int(available_bytes(device) / (config.dim * item * kept))


def estimate(
    config: ModelConfig, patterns: Patterns, tokens: tuple[Tokens, Tokens], parameter_bytes: int, item: int, fused: bool
) -> Cost:
    """Predict a step of a model with parameters of ``item`` bytes each on tokens (queries and keys), ``fused``: by kernels."""
    choices = config.choices
    queries, keys = tokens
    graph = queries.graph
    virtual = config.virtual * graph.num_graphs if choices.virtual else 0
    first = queries.total + (keys.total if choices.cross else 0)
    each = 3 if config.init == "concat" else 1
    embedding = _simplex_embedding(config, queries) if isinstance(queries, Simplices) else each * first
    vector = config.dim * item
    encoded, encoded_back, encoded_forward = (numbers / config.dim for numbers in encoded_numbers(config, graph))
    sizes = _Sizes(
        queries.total,
        keys.total,
        sum(n * n for n in graph.sizes) if choices.cross and choices.orders[1] > 1 else 0,
        virtual,
        embedding + first * config.first_norm + encoded,  # that norm keeps what it is given
    )
    pairs = sum(pattern.count_pairs(queries, keys) for pattern in patterns)
    groups = max((pattern.groups for pattern in patterns), default=1)
    longest = (
        max(keys.counts) if not choices.patterns else max(graph.sizes)
    )  # keys of a line: a graph, or an axis of it
    few = PAIRS_COMPILED if graph.device.type == "cpu" else PAIRS_A_ROW
    bagged = 0 if fused else _bagged_pairs(config, patterns, sizes, pairs, few)
    listed = config.virtual <= few and max(keys.counts) <= LINE_COMPILED and graph.device.type == "cpu"
    layer_queries, layer_keys = _kept_a_layer(config, patterns, graph.device, fused, listed)
    seen = 2 * config.virtual * sizes.queries * (listed and virtual > 0)
    layer = layer_queries * sizes.queries + layer_keys * sizes.keys + bagged / config.dim  # rows keep their weights
    update = 4 * (sizes.keys + sizes.pairs_of_nodes) if choices.cross else 0
    kept = config.depth * layer + (config.depth - 1) * update + sizes.embedding + sizes.pairs_of_nodes
    tile = 0 if fused else _tile_bytes(config, patterns, longest, pairs, bagged, graph.device, item)
    if config.recompute:  # the inputs of all layers, and everything of one
        inputs = sizes.queries + (sizes.keys + sizes.pairs_of_nodes if choices.cross else 0)
        kept = config.depth * inputs + max(layer, update * (config.depth > 1)) + sizes.embedding
    random = 2 * _feature_ratio(config) * (sizes.queries + sizes.keys) if choices.kernel == "performer" else 0
    held = 0 if fused else 4 * _held_tokens(config, keys.counts, graph.device)
    # the backward pass begins with everything kept and two gradients; or it peaks in the last attention, when gradients
    # of queries, keys and values, of random features, and a block of lines have come
    at_start = kept + 2 * max(sizes.queries, sizes.keys if config.depth > 1 else 0)
    released = 0 if fused else RELEASED
    at_embedding = table_vectors(config, graph) + each * first  # more than layers keep, where few tokens are sampled
    at_attention = kept - released * sizes.queries + 3 * sizes.queries + 2 * sizes.keys + held + random
    shares = _share_bytes(config, sizes) if fused else 0
    activations = (
        int(max((at_embedding + encoded_back) * vector, at_start * vector, at_attention * vector + tile)) + shares
    )
    tables, given = type_bytes(config, patterns, graph), statistics_bytes(graph)
    indices = _index_bytes(config, sizes) if choices.dims is None else _simplex_bytes(config, queries, pairs)
    indices += tables + given
    building = _building_bytes(config, patterns, queries)
    moved = 5 * config.depth * (sizes.queries + sizes.virtual)
    if choices.cross:  # updated between layers; the last one reads the keys, and gives them gradients
        moved += 5 * (config.depth - 1) * (sizes.keys + sizes.pairs_of_nodes) + 3 * sizes.keys
    forward = int(
        max(at_embedding + encoded_forward, 6 * sizes.queries + 2 * sizes.keys + held / 2 + update + random) * vector
    )
    return Cost(
        tokens=sizes.queries + (sizes.keys if choices.cross else 0),
        pairs=pairs + 2 * config.virtual * sizes.queries * (virtual > 0),
        flops=3 * _forward_flops(config, sizes, pairs, groups),
        peak_bytes=max(
            4 * parameter_bytes + activations + indices + seen * BYTES_A_LISTED_PAIR, 3 * parameter_bytes + building
        ),
        inference_bytes=max(
            parameter_bytes + forward + tile * 4 // 5 + indices + seen * BYTES_A_LISTED_PAIR, parameter_bytes + building
        ),
        least_traffic=moved * vector + 7 * parameter_bytes,
        graphs=(max(graph.sizes), graph.num_graphs),
        table_bytes=tables + (given + int(encoded_back * vector) if encoded else 0),
        given_bytes=given,
    )


def _share_bytes(config: ModelConfig, sizes: _Sizes) -> int:
    """What the programs of a kernel leave behind that share the gradients of a layer's weights."""
    programs = min(GRADIENT_PROGRAMS, -(-sizes.queries // GRADIENT_ROWS))
    return programs * (5 * config.dim + 2) * config.dim * 4


def _simplex_embedding(config: ModelConfig, tokens: Simplices) -> float:
    """Vectors that the first features of simplices keep, dimension by dimension, and their concatenation."""
    levels = tokens.complex.counts[: tokens.high + 1]
    each = [4 if k == 1 else 3 for k in range(len(levels))] if config.init == "concat" else [1] * len(levels)
    return sum(a * b for a, b in zip(each, levels, strict=True)) + tokens.total * (len(tokens.sizes) > 1)


def _simplex_bytes(config: ModelConfig, tokens: Tokens, pairs: int) -> int:
    """Nodes and faces of simplices, graphs and places of tokens, and the pairs of SN or the type of each dense pair."""
    assert isinstance(tokens, Simplices)
    rows = sum(2 * (k + 1) * count for k, count in enumerate(tokens.complex.counts)) + 4 * tokens.total
    if config.choices.sparse:
        return 8 * rows + pairs * (9 if config.resolved_relation != "none" else 8)
    if config.choices.virtual or config.resolved_relation == "none":
        return 8 * rows
    return 8 * rows + pairs * (1 if config.phi == "types" else 4)


def _building_bytes(config: ModelConfig, patterns: Patterns, tokens: Tokens) -> int:
    """Most bytes in use while the layouts of simplices are built, before the model runs."""
    if not isinstance(tokens, Simplices) or (config.resolved_relation == "none" and not config.choices.sparse):
        return 0
    return BYTES_A_RELATED_PAIR * SimplexNeighbour(joint=True).count_pairs(tokens, tokens)


def _kept_a_layer(
    config: ModelConfig, patterns: Patterns, device: torch.device, fused: bool, listed: bool
) -> tuple[float, float]:
    """Vectors that autograd keeps for each query and each key token in one layer; ``listed``: virtual tokens are read as rows."""
    choices = config.choices
    virtual = choices.virtual
    own = device.type == "cpu" and not config.dropout  # a function of its own keeps the input of the activation alone
    hidden = 4 if config.activation == "gelu" and not own else 2  # GELU keeps its input and its output, ReLU one tensor
    stream = hidden + (2 if config.norm == "none" else 4)
    if own and config.norm == "batch" and config.norm_position == "post":
        stream = 3  # what the first norm made, and the input of the activation, are found again
    exact = torch.get_float32_matmul_precision() == "highest"  # then libraries multiply (``has_products``)
    plain = not config.dropout and config.norm_position == "post" and config.norm == "batch"
    if fused and plain and config.dim <= WIDEST and not exact:
        stream = 1  # the sum before the last norm, from which all else is made again
    if config.dropout:
        stream += 2 + 1  # the dropped hidden layer, and three masks of one byte
    query, key_value = 1.0, 2.0
    if choices.kernel == "performer":  # random features, and where operators of torch make them what these begin with
        features = _feature_ratio(config) * (1 if fused else 2)
        query, key_value = 1 + features, (2 if fused else 3) + features
    elif choices.kernel == "linear":
        query, key_value = 3.0, 4.0  # the exponential below zero, and the map itself
    groups = sum(pattern.groups for pattern in patterns) + virtual
    outputs = len(patterns) * (not _are_rows(config, patterns)) + 1
    if fused and _at_once(config, patterns):
        outputs = 1 + choices.cross  # where keys are other tokens, the queries' input is kept
    elif config.joint and groups > 1 and not (listed and _are_rows(config, patterns)):
        # messages of all groups, and once more where their shares multiply them
        outputs = (1 if choices.kernel == "relu" else 2) * groups + 1
    log_sums = groups * config.heads / config.dim
    if virtual and not fused:  # weights of tokens that see virtual ones, and are seen by them
        log_sums += 2 * config.virtual * config.heads / config.dim
    return query + outputs + stream + log_sums, key_value


def _at_once(config: ModelConfig, patterns: Patterns) -> bool:
    """Whether one fused operator does all of a layer's attention (``TokenAttention._at_once``)."""
    choices = config.choices
    # with one softmax lists of keys are walked one after another
    lists = _are_rows(config, patterns) or (choices.cross and choices.orders[0] == 1 and not choices.sample)
    apart = config.joint and not lists and any(pattern.groups > 1 for pattern in patterns)
    one = len(patterns) < 2 and not apart and not choices.basis
    few = not choices.virtual or config.virtual * config.heads * config.dim <= FEW
    return one and few and choices.kernel in ("softmax", "relu")


def _feature_ratio(config: ModelConfig) -> float:
    """Random features over head size."""
    return favor_features(config.dim // config.heads, config.features) * config.heads / config.dim


def _held_tokens(config: ModelConfig, keys: tuple[int, ...], device: torch.device) -> int:
    """Key tokens that a block of lines gathers at once: whole graphs for dense and virtual patterns, else few."""
    whole = not config.choices.patterns or config.choices.virtual
    if config.choices.cross and not whole:  # lines of one token on one side are read as rows, which gather nothing
        return 0
    return max(keys) if whole else min(max(keys), block_size(device) // 64)


def _are_rows(config: ModelConfig, patterns: Patterns) -> bool:
    """Whether every query of the patterns has its own list of keys."""
    choices = config.choices
    if choices.cross and choices.orders[0] > choices.orders[1]:
        return True
    return all(isinstance(pattern, LocalNeighbour | SimplexNeighbour) for pattern in patterns)


def _bagged_pairs(config: ModelConfig, patterns: Patterns, sizes: _Sizes, pairs: int, few: int) -> int:
    """Pairs of rows that are worked on at once, counted for each head."""
    if not patterns or not _are_rows(config, patterns):
        return 0
    groups = 1 if config.joint else max(pattern.groups for pattern in patterns)
    limit = max(PAIRS_AT_ONCE, few * max(sizes.queries, sizes.keys) * config.heads)
    return min(pairs * config.heads // groups, limit)


def _factorised(config: ModelConfig) -> bool:
    return config.choices.kernel in ("performer", "linear") and config.resolved_relation == "none"


def _tile_bytes(
    config: ModelConfig,
    patterns: Patterns,
    longest: int,
    pairs: int,
    bagged: int,
    device: torch.device,
    item: int,
) -> int:
    """Most bytes of pairs that exist at once."""
    choices = config.choices
    groups = max((pattern.groups for pattern in patterns), default=1)
    heads = config.heads if config.joint else -(-config.heads // groups)
    if not patterns:
        return 0
    if _are_rows(config, patterns):
        lists = config.heads if config.joint or groups == 1 else 1
        return bagged * BYTES_A_BAGGED_PAIR + bagged // lists * BYTES_A_LISTED_PAIR
    if _factorised(config):  # no pairs, but a portion of queries with their messages and gradients
        return min(longest, block_size(device) // 16) * config.dim * item * ROW_TENSORS
    at_once = min(pairs // groups, max(block_size(device), QUERIES_A_TILE * longest))
    typed = INDEX_TENSORS * 8 // item if choices.dims is not None and config.resolved_relation != "none" else 0
    basis = config.heads * EQUALITY_TENSORS if choices.basis else 0
    return at_once * item * (heads * LINE_TENSORS + typed + basis)


def _index_bytes(config: ModelConfig, sizes: _Sizes) -> int:
    """Rows of tokens in nodes, pairs, graphs and cross sides: 8 bytes each."""
    orders = config.choices.orders
    pairs = [comb(order, 2) * (2 if config.directed else 1) for order in orders]
    squares = [order**2 * (pair_width(config.encodings) > 0) for order in orders]
    per_query = orders[0] + pairs[0] + squares[0] + 2
    total = per_query * sizes.queries + 3 * sizes.pairs_of_nodes
    if config.choices.cross:
        total += (orders[1] + pairs[1] + squares[1] + 1 + 2 * comb(max(orders), min(orders))) * sizes.keys
    return 8 * total


def _forward_flops(config: ModelConfig, sizes: _Sizes, pairs: int, groups: int) -> int:
    d = config.dim
    project = 2 * d * d * (2 * sizes.queries + 2 * sizes.keys)
    feed_forward = 8 * d * d * (sizes.queries + sizes.virtual)
    heads_share = d if config.joint else d / groups
    attention = 4 * pairs * heads_share
    if (
        config.choices.kernel in ("performer", "linear")
        and config.resolved_relation == "none"
        and not config.choices.patterns
    ):
        features = (
            favor_features(d // config.heads, config.features)
            if config.choices.kernel == "performer"
            else d // config.heads
        )
        attention = 4 * (sizes.queries + sizes.keys) * d * features
    virtual = 8 * d * config.virtual * sizes.queries if sizes.virtual else 0
    update = 4 * d * d * (sizes.keys + sizes.pairs_of_nodes) if config.choices.cross else 0
    embedding = 2 * d * d * sizes.queries
    return int(config.depth * (project + feed_forward + attention + virtual + update) + embedding)


def refuse_if_too_large(cost: Cost, config: ModelConfig, device: torch.device) -> None:
    """Raise, with the numbers and what to use instead, if the call would need more memory than there is."""
    training = torch.is_grad_enabled()
    needed = cost.peak_bytes if training else cost.inference_bytes
    available = available_bytes(device) + cost.given_bytes
    if needed <= available:
        return
    n, graphs = cost.graphs
    tables = cost.table_bytes > needed / 2
    rest = f", and types and encodings of nodes and their pairs take {cost.table_bytes / 1e9:.1f} GB" if tables else ""
    raise TooLargeError(
        f"{config.name} needs about {needed / 1e9:.1f} GB for a {'training step' if training else 'forward pass'} and "
        f"{device} has {available / 1e9:.1f} GB: {graphs} graph(s) of at most n = {n} nodes are {cost.tokens:,} tokens and "
        f"{cost.pairs:,} pairs a layer at dim = {config.dim}, depth = {config.depth}{rest}. {_advice(config, tables)}"
    )


def _advice(config: ModelConfig, tables: bool) -> str:
    """What to use instead; ``tables``: what is too large is what is held for pairs of nodes, not for tokens."""
    choices = config.choices
    if tables:
        local = tuple(dict.fromkeys(name.replace("Ngbh+", "LN").replace("Ngbh", "LN") for name in choices.patterns))
        large = (one for one in config.encodings if one.level == "pair" or isinstance(one, Spectral))
        encodings = ", ".join(map(str, large))
        cheaper = [str(replace(choices, patterns=local))] * (local != choices.patterns)
        cheaper += [f"RWSE or DEG instead of {encodings}"] * (encodings != "")
        return f"Cheaper: {', '.join(cheaper)}; or use fewer graphs a batch, or smaller ones."
    if choices.dims is not None:
        low, high = choices.dims
        fewer = replace(choices, kernel="softmax", patterns=("SN",), relation=None, dims=(low, max(low, high - 1)))
        cheaper = ([] if choices.patterns else [str(replace(fewer, dims=choices.dims))]) + [str(fewer)] * (high > low)
        names = f"Cheaper: {', '.join(cheaper)}; or use" if cheaper else "Use"
        return f"{names} fewer graphs a batch, a smaller dim or depth."
    order, sampled = max(choices.orders), choices.sample is not None
    cheaper = [] if sampled else [f"A{order}(random:4096)^Ngbh"] + ([f"A{order}(connected)^LN"] if order > 1 else [])
    if order > 1:
        cheaper += [f"A{order - 1}^LN", f"A{order - 1}-Performer"]
    names = f"Cheaper: {', '.join(cheaper)}; or use" if cheaper else "Use"
    return f"{names} fewer graphs a batch, a smaller dim or depth."
