"""The paper's names for models, parsed into choices; ``GRAMMAR`` below is the grammar.

A "+" at the end of "Ngbh", or before another "+", belongs to it: "A2^Ngbh+VT" is Ngbh and VT, "A2^Ngbh++VT" is
Ngbh+ and VT.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from tuplet.errors import ModelNameError

KERNELS = {"Performer": "performer", "Linear": "linear", "ReLU": "relu"}
TUPLE_PATTERNS = ("Ngbh", "Ngbh+", "LN", "VT")
SIMPLEX_PATTERNS = ("SN", "VS")
VIRTUAL = ("VT", "VS")
RELATIONS = ("bias", "scale", "reweight")
EXTRAS = (*RELATIONS, "index", "basis")
BASELINES = ("GCN", "GAT", "GIN", "GINE", "GatedGCN", "PNA", "GPS", "Graphormer", "PPGN", "2-IGN")
"""Names that are whole (``models/baselines``)."""
GRAMMAR = """\
    name    := base ["(" sample ")"] ["-" kernel] ["^" pattern {"+" pattern}] {"+" extra}
    base    := A k | A k1,k2 | AS k | AS k1:k2          sample := connected | random:N
    pattern := Ngbh | Ngbh+ | LN | VT | SN | VS         extra  := bias | scale | reweight | index | basis
    kernel  := Performer | Linear | ReLU"""
_HEAD = re.compile(r"A(?:S(\d+)(?::(\d+))?|(\d+)(?:,(\d+))?)(?:\(([^()]*)\))?(?:-([A-Za-z]+))?", re.ASCII)


@dataclass(frozen=True)
class Choices:
    """What a name says: tokens, pattern, kernel, relation.

    Args:
        orders: (k,), or (k1, k2) for cross-attention; () for simplices.
        sample: None for all tuples, "connected", or "random".
        budget: N of random:N.
        kernel: "softmax", "performer", "linear" or "relu".
        patterns: names of patterns; empty for dense.
        relation: "bias", "scale", "reweight", or None where the name does not say.
        index, basis: the extras of that name.
        dims: (k1, k2), the dimensions of simplices; None for tuples.
    """

    orders: tuple[int, ...]
    sample: str | None = None
    budget: int = 0
    kernel: str = "softmax"
    patterns: tuple[str, ...] = ()
    relation: str | None = None
    index: bool = False
    basis: bool = False
    dims: tuple[int, int] | None = None

    @property
    def cross(self) -> bool:
        return len(self.orders) == 2

    @property
    def virtual(self) -> bool:
        """Whether there are virtual tuples or simplices."""
        return bool(set(self.patterns) & set(VIRTUAL))

    @property
    def sparse(self) -> tuple[str, ...]:
        """The patterns other than virtual tokens."""
        return tuple(pattern for pattern in self.patterns if pattern not in VIRTUAL)

    @property
    def sampled_side(self) -> str | None:
        """Which tokens are a sample: "queries", "keys" (of two orders the higher, of equal ones the keys), or None."""
        if self.sample is None:
            return None
        return "keys" if self.cross and self.orders[0] <= self.orders[1] else "queries"

    def __str__(self) -> str:
        """The canonical spelling."""
        sample = (
            "" if self.sample is None else f"(random:{self.budget})" if self.sample == "random" else f"({self.sample})"
        )
        kernel = {value: f"-{key}" for key, value in KERNELS.items()}.get(self.kernel, "")
        patterns = "^" + "+".join(self.patterns) if self.patterns else ""
        extras = [self.relation] * (self.relation is not None) + ["index"] * self.index + ["basis"] * self.basis
        base = f"A{','.join(map(str, self.orders))}"
        if self.dims is not None:
            base = f"AS{self.dims[0]}" + f":{self.dims[1]}" * (self.dims[0] < self.dims[1])
        return f"{base}{sample}{kernel}{patterns}" + "".join(f"+{extra}" for extra in extras)


def parse(name: str) -> Choices:
    """The choices behind a name; a name outside the grammar is refused with the grammar and the nearest valid name."""
    if not isinstance(name, str):
        raise ModelNameError(f"model name: expected a string such as 'A2^LN'; came {type(name).__name__}")
    head = _HEAD.match(name)
    if head is None:
        raise _unknown(name, "a name begins with A and an order, or AS and a dimension")
    low, high, order, second, sample, kernel = head.groups()
    orders = tuple(int(text) for text in (order, second) if text is not None)
    dims = None if low is None else (int(low), int(high or low))
    if orders and min(orders) < 1:
        raise _unknown(name, "orders begin at 1")
    if dims is not None and dims[0] > dims[1]:
        raise _unknown(name, "dimensions of simplices go from the lower to the higher")
    if kernel is not None and kernel not in KERNELS:
        raise _unknown(name, f"no kernel {kernel!r}")
    kind, budget = _sample(name, sample)
    patterns, extras = _tail(name, name[head.end() :])
    choices = Choices(
        orders,
        kind,
        budget,
        KERNELS.get(kernel or "", "softmax"),
        patterns,
        next((extra for extra in extras if extra in RELATIONS), None),
        "index" in extras,
        "basis" in extras,
        dims,
    )
    _refuse_contradictions(name, choices, extras)
    return choices


def _sample(name: str, sample: str | None) -> tuple[str | None, int]:
    if sample is None or sample == "connected":
        return sample, 0
    number = re.fullmatch(r"random:(\d+)", sample, re.ASCII)
    if number is None or int(number[1]) < 1:
        raise _unknown(name, f"no sample {sample!r}")
    return "random", int(number[1])


def _tail(name: str, tail: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Patterns and extras behind the base; ``tail`` begins with "^" or "+"."""
    patterns: list[str] = []
    extras: list[str] = []
    may_be_pattern = tail.startswith("^")
    while tail:
        word = re.match(r"[+^]([A-Za-z]+)", tail)
        if word is None or (tail[0] == "^") != (may_be_pattern and not patterns and not extras):
            raise _unknown(name, f"cannot read {tail!r}")
        part, tail = word[1], tail[word.end() :]
        if part == "Ngbh" and re.match(r"\+(\+|$)", tail):
            part, tail = "Ngbh+", tail[1:]
        if may_be_pattern and part in TUPLE_PATTERNS + SIMPLEX_PATTERNS and not extras:
            patterns.append(part)
        elif part in EXTRAS and (patterns or not may_be_pattern):
            extras.append(part)
        else:
            raise _unknown(name, f"no pattern or extra {part!r} there")
    return tuple(patterns), tuple(extras)


def _refuse_contradictions(name: str, choices: Choices, extras: tuple[str, ...]) -> None:
    if len(set(choices.patterns)) < len(choices.patterns) or len(set(extras)) < len(extras):
        raise _unknown(name, "a pattern or extra is named twice")
    if {"Ngbh", "Ngbh+"} <= set(choices.patterns):
        raise _unknown(name, "Ngbh+ sees everything that Ngbh sees")
    if sum(extra in RELATIONS for extra in extras) > 1:
        raise _unknown(name, "bias, scale and reweight exclude each other")
    if choices.basis and choices.patterns:
        raise _unknown(name, "basis is a relation of dense attention")
    foreign = set(choices.patterns) & set(SIMPLEX_PATTERNS if choices.dims is None else TUPLE_PATTERNS)
    if foreign:
        kind, right = ("tuples", TUPLE_PATTERNS) if choices.dims is None else ("simplices", SIMPLEX_PATTERNS)
        raise _unknown(name, f"{sorted(foreign)[0]} is no pattern of {kind}, which have {', '.join(right)}")
    if choices.dims is not None and (choices.sample or choices.index or choices.basis):
        raise _unknown(name, "samples, index and basis belong to tuples")
    if choices.dims is None and choices.relation and not choices.patterns and not choices.basis:
        raise _unknown(name, f"dense attention over tuples has no relation for {choices.relation!r}; add +basis")
    if choices.relation and choices.patterns and not choices.sparse:
        raise _unknown(name, "virtual tokens alone have no relation")
    if choices.cross and set(choices.patterns) - {"Ngbh"}:
        raise _unknown(name, "cross-attention is dense or Ngbh")


def _unknown(name: str, why: str) -> ModelNameError:
    close = _nearest(name, BASELINES, 0.7) or _nearest(name, known_names(name[:2].upper() + name[2:]), 0.0)
    return ModelNameError(f"unknown model name {name!r}: {why}. Did you mean {close!r}? The grammar:\n{GRAMMAR}")


def _nearest(name: str, known: Sequence[str], cutoff: float) -> str | None:
    """The most similar name, capitals or not."""
    folded = {one.lower(): one for one in known}
    return next((folded[one] for one in difflib.get_close_matches(name.lower(), folded, n=1, cutoff=cutoff)), None)


def known_names(like: str = "A2") -> list[str]:
    """One name of every kind, at the order or the two orders that ``like`` mentions (order 2 if it mentions none)."""
    if like.startswith("AS"):
        return _simplicial_names(like)
    orders = [max(1, min(int(order), 9)) for order in re.findall(r"\d+", like)[:2]] or [2]
    cross = f"A{orders[0]},{orders[1] if len(orders) > 1 else orders[0] + 1}"
    crosses = [cross, f"{cross}^Ngbh", f"{cross}(connected)^Ngbh"]
    if re.match(r"A\d+,", like):
        return crosses
    names: list[str] = []
    for sample in ("", "(connected)", "(random:4096)"):
        base = f"A{orders[0]}{sample}"
        kernels = [f"{base}-{kernel}" for kernel in KERNELS]
        patterns = [f"{base}^{pattern}" for pattern in ("Ngbh", "Ngbh+", "LN", "VT", "LN+VT", "Ngbh+VT", "Ngbh++VT")]
        names += [base, f"{base}+index", f"{base}+basis", *kernels, *patterns]
    return names + crosses


def _simplicial_names(like: str) -> list[str]:
    """The simplicial part of ``known_names``, at the dimensions that ``like`` mentions (0:1 if it mentions none)."""
    dims = sorted(min(int(dim), 9) for dim in re.findall(r"\d+", like)[:2]) or [0, 1]
    base = f"AS{':'.join(map(str, dict.fromkeys(dims)))}"
    extras = [f"{base}+{relation}" for relation in RELATIONS]
    kernels = [f"{base}-{kernel}" for kernel in KERNELS]
    return [base, *extras, *kernels, *(f"{base}^{pattern}" for pattern in ("SN", "VS", "SN+VS"))]
