"""Rows on a CPU, compiled: attention over the pairs of every row, forward and backward, from native.c.

The torch operators that do the same (``rows.py``) pass over all pairs a dozen times and start threads as often. Here a forward pass is
one function, a backward pass three. They are compiled once by the machine's C compiler, when they are first wanted, and share
torch's threads. Where there is no compiler, or ``TUPLET_NATIVE=0`` is set, ``load`` gives None and the torch operators serve.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tuplet._cache import default_root
from tuplet.attention.weights import Rule

if TYPE_CHECKING:
    from tuplet.attention.bags import Bags

SOURCE = Path(__file__).with_name("native.c")
REALS = {torch.float32: "float", torch.float64: "double"}
KERNELS = ("softmax", "relu")
RELATIONS = ("none", "bias", "scale", "reweight")
"""As native.c counts them."""
FLAGS = ["-O2", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC"]
ARCHITECTURES = {"AVX512": "-march=x86-64-v4", "AVX2": "-march=x86-64-v3"}


class Native:
    """The compiled functions for one type of numbers; tensors are contiguous, and bags have 32-bit integers."""

    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))
        integer, at = ctypes.c_int, ctypes.c_void_p
        work: list[Any] = [integer, ctypes.c_int64, integer]
        rule: list[Any] = [integer, integer, ctypes.c_double]
        self.library.attend.argtypes = [*work, integer, *[at] * 7, *rule, *[at] * 4]
        self.library.attend_backward.argtypes = [*work, integer, *[at] * 10, *rule, *[at] * 3]
        self.library.gather.argtypes = [*work, *[at] * 6]

    def forward(
        self, bags: Bags, q: Tensor, k: Tensor, v: Tensor, table: Tensor, rule: Rule
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(T1, h, c') messages, (R,) log-sum-exps and (P,) weights, before a relation multiplies them."""
        out, lse = v.new_empty(len(q), *v.shape[1:]), q.new_empty(len(bags.offsets) - 1)
        weight = q.new_empty(len(bags.column))
        factor = torch.empty_like(weight) if rule.relation == "reweight" else weight
        given = _at(bags.offsets, bags.column, bags.kind, q, k, v, table)
        self.library.attend(*_work(bags, q), v.shape[-1], *given, *_numbers(rule), *_at(weight, factor, lse, out))
        return out, lse, weight

    def backward(
        self, bags: Bags, back: Bags, grad: Tensor, grad_lse: Tensor | None, q: Tensor, k: Tensor, v: Tensor,
        table: Tensor, weight: Tensor, rule: Rule,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:  # fmt: skip
        """Gradients of q, k and v, and (P,) those of the relation's numbers; ``back`` are the bags transposed."""
        grad_q, grad_dot = torch.empty_like(q), torch.empty_like(weight)
        grad_entry = None if rule.relation == "none" else torch.empty_like(weight)
        given = _at(bags.offsets, bags.column, bags.kind, grad, grad_lse, q, k, v, table, weight)
        found = _at(grad_dot, grad_entry, grad_q)
        self.library.attend_backward(*_work(bags, q), v.shape[-1], *given, *_numbers(rule), *found)
        if rule.relation == "reweight":
            weight = weight * table.view(-1).index_select(0, bags.kind)
        return grad_q, self._gather(back, grad_dot, q), self._gather(back, weight, grad), grad_entry

    def _gather(self, back: Bags, factor: Tensor, vectors: Tensor) -> Tensor:
        """(T2, h, c) sums of (T1, h, c) vectors over the pairs of transposed bags; no view, so that autograd adds to it in place."""
        _, heads, size = vectors.shape
        out = vectors.new_empty((len(back.offsets) - 1) // heads, heads, size)
        self.library.gather(*_work(back, vectors), *_at(back.offsets, back.column, back.pair, factor, vectors, out))
        return out


def load(x: Tensor, kernel: str) -> Native | None:
    """The functions for such tensors and this kernel, if there are any."""
    if (
        x.device.type != "cpu"
        or x.dtype not in REALS
        or kernel not in KERNELS
        or os.environ.get("TUPLET_NATIVE") == "0"
    ):
        return None
    return _load(REALS[x.dtype])


@cache
def _load(real: str) -> Native | None:
    flags = [*FLAGS, f"-DREAL={real}"]
    if (architecture := ARCHITECTURES.get(torch.backends.cpu.get_cpu_capability())) is not None:
        flags.append(architecture)
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        return None
    key = hashlib.blake2b(repr((compiler, flags)).encode() + SOURCE.read_bytes(), digest_size=8).hexdigest()
    path = default_root() / "native" / f"{key}.so"
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=path.parent) as folder:  # complete or not there, for others too
                made = Path(folder) / path.name
                subprocess.run([compiler, *flags, str(SOURCE), "-o", str(made), "-lm"], check=True, capture_output=True)
                made.replace(path)
        return Native(path)
    except (OSError, subprocess.CalledProcessError):
        return None


def _work(bags: Bags, x: Tensor) -> tuple[int, int, int]:
    """Threads, rows, and the size of vectors."""
    return torch.get_num_threads(), len(bags.offsets) - 1, x.shape[-1]


def _numbers(rule: Rule) -> tuple[int, int, float]:
    return KERNELS.index(rule.kernel), RELATIONS.index(rule.relation), rule.scale


def _at(*tensors: Tensor | None) -> list[int | None]:
    return [None if tensor is None else tensor.data_ptr() for tensor in tensors]
