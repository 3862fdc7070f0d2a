"""The ``torch`` backend for lines: blocks of small dense attentions by batched matrix products.

Scores exist for one tile at a time. The backward pass computes them again from the saved log-sum-exp, so what is kept
is O(T·d) and nothing of the size of the pairs. Shapes: B lines of a block, h heads, q queries, k keys, c head size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from tuplet.attention.weights import TINY, Rule, finite, narrow, wide
from tuplet.patterns.structure import QUERIES_A_TILE, Lines, block_size, load


@dataclass(frozen=True)
class _Tile:
    """Some queries of one block of lines, and all its keys."""

    query: Tensor  # (B, q) tokens
    query_exists: Tensor  # (B, q)
    type: Tensor | None  # (B, q, k)
    hidden: Tensor | None  # (B, 1, q or 1, k) pairs that do not exist

    def scores(
        self, queries: Tensor, keys: Tensor, table: Tensor, rule: Rule
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """(B, h, q, k) dot products, scores before and after the relation, and the relation's number for each pair."""
        dot = queries @ keys.transpose(-1, -2)
        entry = None
        if rule.relation != "none":
            entry = table[:1, :, None, None] if self.type is None else table.t()[:, self.type].transpose(0, 1)
        raw, score = rule.score(dot, entry)
        if self.hidden is not None:
            score = score.masked_fill(self.hidden, -torch.inf)
        return dot, raw, score, entry

    def sum_by_type(self, values: Tensor, types: int) -> Tensor:
        """(types, h) sums of (B, h, q, k) values over the pairs of each type."""
        if self.type is None:
            return values.sum((0, 2, 3))[None]
        if types > 8:
            rows = values.permute(0, 2, 3, 1).reshape(-1, values.shape[1])
            return rows.new_zeros(types, rows.shape[1]).index_add_(0, self.type.reshape(-1), rows)
        masks = ((self.type == kind).to(values.dtype) for kind in range(types))
        return torch.stack([torch.einsum("bhqk,bqk->h", values, mask) for mask in masks])


@dataclass(frozen=True)
class _Block:
    """A block of lines with the tokens of its keys."""

    lines: Lines
    span: slice
    queries: int
    key: Tensor  # (B, k) tokens
    key_exists: Tensor  # (B, k)
    ragged: bool

    def tiles(self, scored: bool = True) -> Iterator[_Tile]:
        """The block's queries in portions; those whose pairs are not ``scored`` weigh only their own vectors."""
        device = self.key.device
        key_place = torch.arange(self.key.shape[1], device=device)
        portion = load(1, self.key.shape[1] if scored else 0, keys_held=True)
        step = max(QUERIES_A_TILE, block_size(device) // (self.key.shape[0] * portion))
        for begin in range(0, self.queries, step):
            place = torch.arange(begin, min(begin + step, self.queries), device=device)
            query, exists = self.lines.query.tokens(self.span, place)
            relation = self.lines.relation
            types = None if relation is None else relation.types(self.span, query, self.key, place, key_place)
            hidden = ~self.key_exists[:, None, None, :] if self.ragged else None
            if self.lines.skip_self:
                itself = (query[:, :, None] == self.key[:, None, :])[:, None]
                hidden = itself if hidden is None else hidden | itself
            yield _Tile(query, exists, types, hidden)


def _blocks(lines: Lines) -> Iterator[_Block]:
    for first, end, queries, keys, ragged in lines.steps():
        place = torch.arange(keys, device=lines.key.start.device)
        key, exists = lines.key.tokens(slice(first, end), place)
        yield _Block(lines, slice(first, end), queries, key, exists, bool(ragged))


def _take(x: Tensor, token: Tensor, exists: Tensor | None = None) -> Tensor:
    """(T, h, c) at (B, w) tokens as (B, h, w, c) in the precision of sums; zero where ``exists`` is given and false."""
    rows = x.index_select(0, token.reshape(-1)).reshape(*token.shape, *x.shape[1:]).to(wide(x.dtype))
    if exists is not None:
        rows = rows * exists[(..., *[None] * (x.dim() - 1))]
    return rows.transpose(1, 2)


def _put(out: Tensor, token: Tensor, exists: Tensor, values: Tensor) -> None:
    """Write (B, h, w, c) to (T + 1, h, c); the last row takes what stands at padded places."""
    target = torch.where(exists, token, out.shape[0] - 1).reshape(-1)
    out.index_copy_(0, target, narrow(values.transpose(1, 2).reshape(target.numel(), *out.shape[1:]), out.dtype))


def _room(like: Tensor, width: int | None = None, fill: float = 0.0) -> Tensor:
    """A result for every row of ``like`` (T, h, c) and one spare row for padding."""
    shape = (like.shape[0] + 1, like.shape[1]) if width is None else (like.shape[0] + 1, like.shape[1], width)
    return torch.full(shape, fill, dtype=wide(like.dtype) if width is None else like.dtype, device=like.device)


def _factorised(lines: Lines, rule: Rule) -> bool:
    """Whether κ = φ(q)·φ(k) can be summed over the keys before the queries are known (section 4.1)."""
    return rule.kernel == "positive" and rule.relation == "none" and not lines.skip_self


def forward(q: Tensor, k: Tensor, v: Tensor, table: Tensor, lines: Lines, rule: Rule) -> tuple[Tensor, Tensor]:
    """(T1, h, c) messages and (T1, h) log-sum-exps of the scores (-inf for a query without keys)."""
    out, lse = _room(q, v.shape[2]), _room(q, fill=-torch.inf)
    table = table.to(wide(q.dtype))
    for block in _blocks(lines):
        if _factorised(lines, rule):
            keys, values = _take(k, block.key, block.key_exists), _take(v, block.key, block.key_exists)
            memory, mass = keys.transpose(-1, -2) @ values, keys.sum(2)
            for tile in block.tiles(scored=False):
                queries = _take(q, tile.query)
                total = (queries @ mass[..., None]).clamp_min(TINY)
                _put(out, tile.query, tile.query_exists, queries @ memory / total)
                _put(lse, tile.query, tile.query_exists, total[..., 0].log())
            continue
        keys, values = _take(k, block.key), _take(v, block.key)
        for tile in block.tiles():
            message, mass = _tile_forward(tile, _take(q, tile.query), keys, values, table, rule)
            _put(out, tile.query, tile.query_exists, message)
            _put(lse, tile.query, tile.query_exists, mass)
    return out[:-1], lse[:-1]


def _tile_forward(
    tile: _Tile, queries: Tensor, keys: Tensor, values: Tensor, table: Tensor, rule: Rule
) -> tuple[Tensor, Tensor]:
    """(B, h, q, c) messages and (B, h, q) log-sum-exps of one tile; a function, so that its scores are gone after it."""
    _, _, score, entry = tile.scores(queries, keys, table, rule)
    if rule.normalised:
        largest = finite(score.amax(-1, keepdim=True))
        weight = (score - largest).exp()
        total = weight.sum(-1, keepdim=True)
        weight = weight / total.clamp_min(TINY)
        mass = (largest + total.log())[..., 0]
    else:
        weight = score.clamp_min(0)
        mass = queries.new_full(queries.shape[:-1], -torch.inf)
    if entry is not None and rule.relation == "reweight":
        weight = weight * entry
    return weight @ values, mass


def backward(
    grad_out: Tensor,
    grad_lse: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    table: Tensor,
    out: Tensor,
    lse: Tensor,
    lines: Lines,
    rule: Rule,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of q, k, v and the relation table."""
    grad_q, grad_k, grad_v = (_room(x, x.shape[2]) for x in (q, k, v))
    grad_table = torch.zeros_like(table, dtype=wide(table.dtype))
    wide_table = table.to(wide(q.dtype))
    for block in _blocks(lines):
        if _factorised(lines, rule):
            _factorised_backward(block, grad_out, grad_lse, q, k, v, out, (grad_q, grad_k, grad_v))
            continue
        keys, values = _take(k, block.key), _take(v, block.key)
        sum_k, sum_v = torch.zeros_like(keys), torch.zeros_like(values)
        for tile in block.tiles():
            queries, grad = _take(q, tile.query), _take(grad_out, tile.query, tile.query_exists)
            # sum over keys of weight · gradient, and the gradient that flows through the log-sum-exp itself
            shift = _take(grad_lse, tile.query, tile.query_exists)[..., None]
            shift = shift - (grad * _take(out, tile.query)).sum(-1, keepdim=True)
            mass = finite(_take(lse, tile.query)[..., None])
            grad_dot, weight, by_type = _tile_backward(tile, queries, keys, values, grad, shift, mass, wide_table, rule)
            if by_type is not None:
                grad_table += by_type
            sum_v += weight.transpose(-1, -2) @ grad
            sum_k += grad_dot.transpose(-1, -2) @ queries
            _put(grad_q, tile.query, tile.query_exists, grad_dot @ keys)
            del grad_dot, weight  # before the next tile's come
        _put(grad_k, block.key, block.key_exists, sum_k)
        _put(grad_v, block.key, block.key_exists, sum_v)
    return grad_q[:-1], grad_k[:-1], grad_v[:-1], grad_table.to(table.dtype)


def _tile_backward(
    tile: _Tile,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    grad: Tensor,
    shift: Tensor,
    mass: Tensor,
    table: Tensor,
    rule: Rule,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """(B, h, q, k) gradients of the dot products and final weights of one tile, and (types, h) of the relation."""
    dot, raw, score, entry = tile.scores(queries, keys, table, rule)
    grad_weight = grad @ values.transpose(-1, -2)
    reweight = entry if rule.relation == "reweight" else None
    inner = grad_weight if reweight is None else grad_weight * reweight
    if rule.normalised:
        # no score exceeds its log-sum-exp, but a padded query meets that of another one: keep it finite
        weight = (score - mass).clamp_max(0).exp()
        grad_score = weight * (inner + shift)
    else:
        weight = score.clamp_min(0)
        grad_score = inner * (score > 0)
    grad_dot, grad_entry = rule.backward(grad_score, dot, raw, entry)
    if reweight is not None:
        grad_entry, weight = weight * grad_weight, weight * reweight
    return grad_dot, weight, None if grad_entry is None else tile.sum_by_type(grad_entry, len(table))


def _factorised_backward(
    block: _Block,
    grad_out: Tensor,
    grad_lse: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    grads: tuple[Tensor, Tensor, Tensor],
) -> None:
    """out = φ(q)·M / φ(q)·z with M = Σ φ(k) ⊗ v and z = Σ φ(k)."""
    keys, values = _take(k, block.key, block.key_exists), _take(v, block.key, block.key_exists)
    memory, mass = keys.transpose(-1, -2) @ values, keys.sum(2)
    grad_memory, grad_mass = torch.zeros_like(memory), torch.zeros_like(mass)
    for tile in block.tiles(scored=False):
        queries, grad = _take(q, tile.query), _take(grad_out, tile.query, tile.query_exists)
        total = (queries @ mass[..., None]).clamp_min(TINY)
        grad_total = _take(grad_lse, tile.query, tile.query_exists)[..., None]
        grad_total = (grad_total - (grad * _take(out, tile.query)).sum(-1, keepdim=True)) / total
        grad = grad / total
        _put(grads[0], tile.query, tile.query_exists, grad @ memory.transpose(-1, -2) + grad_total * mass[:, :, None])
        grad_memory += queries.transpose(-1, -2) @ grad
        grad_mass += (queries * grad_total).sum(2)
    _put(grads[1], block.key, block.key_exists, values @ grad_memory.transpose(-1, -2) + grad_mass[:, :, None])
    _put(grads[2], block.key, block.key_exists, keys @ grad_memory)
