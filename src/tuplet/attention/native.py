"""Rows on a CPU, compiled: what a softmax over the pairs of a row is made of, from native.c.

The torch operators that do the same (``bags.py``, ``rows.py``) pass over all pairs a dozen times and start as many threads. Here it
is three functions: weights and log-sum-exps, weighted sums of vectors, and the gradients of scores. They are compiled once by the
machine's C compiler, when they are first wanted, and share torch's threads. Where there is no compiler, or ``TUPLET_NATIVE=0`` is
set, ``load`` gives None and the torch operators serve.
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
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tuplet._cache import default_root
from tuplet.attention.weights import Rule

if TYPE_CHECKING:
    from tuplet.attention.bags import Bags

SOURCE = Path(__file__).with_name("native.c")
REALS = {torch.float32: "float", torch.float64: "double"}
KERNELS = {"softmax": 0, "relu": 1}
RELATIONS = {"none": 0, "bias": 1, "scale": 2, "reweight": 0}
"""As native.c counts them; what multiplies weights is no part of a score."""
FLAGS = ["-O2", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC"]
ARCHITECTURES = {"AVX512": "-march=x86-64-v4", "AVX2": "-march=x86-64-v3"}


class Native:
    """The compiled functions for one type of numbers; tensors are contiguous and integers are int32."""

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        integer, real = ctypes.c_int, ctypes.c_double
        self._weigh, self._gather, self._grade = library.weigh, library.gather, library.grade
        common = [integer, ctypes.c_int64]
        self._weigh.argtypes = [
            *common,
            *[ctypes.c_void_p] * 6,
            integer,
            integer,
            real,
            *[ctypes.c_void_p] * 2,
            integer,
        ]
        self._gather.argtypes = [*common, *[ctypes.c_void_p] * 6, integer]
        self._grade.argtypes = [*common, *[ctypes.c_void_p] * 7, integer, *[ctypes.c_void_p] * 2, integer]
        for function in (self._weigh, self._gather, self._grade):
            function.restype = None

    def weigh(self, bags: Bags, q: Tensor, k: Tensor, table: Tensor, rule: Rule) -> tuple[Tensor, Tensor]:
        """(P,) weights, before what multiplies them, and (R,) log-sum-exps of the scores."""
        weight, lse = q.new_empty(len(bags.column)), q.new_empty(len(bags.offsets) - 1)
        pointers = _at(bags.offsets, bags.column, bags.kind, q, k, table)
        kinds = KERNELS[rule.kernel], RELATIONS[rule.relation]
        self._weigh(*_work(bags), *pointers, *kinds, rule.scale, *_at(weight, lse), q.shape[-1])
        return weight, lse

    def gather(self, bags: Bags, weight: Tensor, vectors: Tensor) -> Tensor:
        """(T1, h, c) sums of (T2, h, c) vectors with the weights of a row's pairs."""
        _, heads, size = vectors.shape
        out = vectors.new_empty((len(bags.offsets) - 1) // heads, heads, size)  # no view: autograd adds to it in place
        self._gather(*_work(bags), *_at(bags.offsets, bags.column, bags.pair, weight, vectors, out), size)
        return out

    def grade(
        self, bags: Bags, grad: Tensor, v: Tensor, weight: Tensor, factor: Tensor | None, grad_lse: Tensor | None,
        rule: Rule,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """(P,) gradients of the scores and, where there is a ``factor`` of the weights, that of their product with it."""
        grad_score = torch.empty_like(weight)
        grad_weight = None if factor is None else torch.empty_like(weight)
        pointers = _at(bags.offsets, bags.column, grad, v, weight, factor, grad_lse)
        self._grade(*_work(bags), *pointers, KERNELS[rule.kernel], *_at(grad_weight, grad_score), v.shape[-1])
        return grad_score, grad_weight


def load(x: Tensor, kernel: str = "softmax") -> Native | None:
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


def _work(bags: Bags) -> tuple[int, int]:
    """Threads and rows."""
    return torch.get_num_threads(), len(bags.offsets) - 1


def _at(*tensors: Tensor | None) -> list[int | None]:
    return [None if tensor is None else tensor.data_ptr() for tensor in tensors]
