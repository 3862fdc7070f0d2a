"""Functions in C, compiled once by the machine's C compiler when they are first wanted; they share torch's threads.

Where there is no compiler, or ``TUPLET_NATIVE=0`` is set, ``load`` gives None and operators of torch do the same, in more passes.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tuplet._cache import default_root

FOLDER = Path(__file__).parent
REALS = {torch.float32: "float", torch.float64: "double"}
FLAGS = ["-O2", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC"]
if sys.platform == "linux":
    FLAGS.append("-Wl,-Bsymbolic")  # functions call each other, and nobody else's of the same name
ARCHITECTURES = {"AVX512": ["-march=x86-64-v4"], "AVX2": ["-march=x86-64-v3"]}
OLDER = {"AVX512": ["-mavx512f", "-mfma"], "AVX2": ["-mavx2", "-mfma"]}
"""The same for compilers that do not know those names."""


Several = list[Tensor] | tuple[Tensor, ...] | list[Tensor | None] | list[int]
Given = Tensor | Several | ctypes.Array[ctypes.c_int64] | int | float | None


class _Wanted:
    now = True


@contextmanager
def set_aside() -> Iterator[None]:
    """Here every product and every step between is an operator of torch: for those who count them."""
    _Wanted.now = False
    try:
        yield
    finally:
        _Wanted.now = True


class Library:
    """The compiled functions for one type of numbers."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))
        self._functions: dict[str, Any] = {}

    def run(self, name: str, *given: Given) -> None:
        """Call a function with the number of threads and what is given; tensors are contiguous, and of the types that it reads."""
        function = self._functions.get(name) or self._known(name, given)
        # hundreds of tensors in every step: a call for each would be felt
        passed = [x.data_ptr() if isinstance(x, Tensor) and x.is_contiguous() else _passed(x) for x in given]
        if function(torch.get_num_threads(), *passed):
            raise MemoryError(f"there is no memory for what {name} needs on the way")

    def _known(self, name: str, given: Sequence[Given]) -> Any:
        """A function, and what it takes: what it is given first is of the kinds that it is given ever after."""
        function = self._library[name]
        function.argtypes = [ctypes.c_int64, *map(_kind, given)]
        self._functions[name] = function  # last: other threads may ask for it
        return function


def load(x: Tensor) -> Library | None:
    """The functions for such tensors, if there are any."""
    return _load(REALS[x.dtype]) if x.is_cpu and x.dtype in REALS and _Wanted.now else None


@cache
def _load(real: str) -> Library | None:
    if os.environ.get("TUPLET_NATIVE") == "0":
        return None
    capability = torch.backends.cpu.get_cpu_capability()
    choices = [ARCHITECTURES.get(capability), OLDER.get(capability), []]
    for architecture in choices:
        if architecture is not None and (found := _compiled([*FLAGS, f"-DREAL={real}", *architecture])) is not None:
            return found
    return None


def _compiled(flags: list[str]) -> Library | None:
    """What the compiler makes of the sources with these flags, or has made of them on such a machine before."""
    compiler = shlex.split(os.environ.get("CC", "")) or ["cc"]
    sources = sorted(FOLDER.glob("*.c"))
    text = b"".join(path.read_bytes() for path in [*sorted(FOLDER.glob("*.h")), *sources])
    machine = platform.machine(), *platform.libc_ver()
    key = hashlib.blake2b(repr((compiler, flags, machine)).encode() + text, digest_size=8).hexdigest()
    with suppress(OSError, RuntimeError, subprocess.CalledProcessError):  # no folder, no compiler, or not this one
        path = default_root() / "native" / f"{key}.so"
        if path.exists():
            with suppress(OSError):  # a file that cannot be loaded is made anew
                return Library(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:  # complete or not there, for others too
            made = Path(folder) / path.name
            command = [*compiler, *flags, *map(str, sources), "-o", str(made), "-lm"]
            subprocess.run(command, check=True, capture_output=True)
            made.replace(path)
        return Library(path)
    return None


def _kind(value: Given) -> Any:
    if isinstance(value, int):
        return ctypes.c_int64
    return ctypes.c_double if isinstance(value, float) else ctypes.c_void_p


def _passed(value: Given) -> Any:
    """What stands for a tensor, or several, is where its numbers are."""
    if isinstance(value, Tensor):
        return _place(value)
    if isinstance(value, list | tuple):
        if isinstance(value[0], int):
            return integers(value)
        return (ctypes.c_void_p * len(value))(*(None if one is None else _place(one) for one in value))
    return value


def integers(values: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    """Numbers, or places, one after another: for those who pass the same ones again."""
    return (ctypes.c_int64 * len(values))(*values)


def _place(x: Tensor) -> int:
    assert x.is_contiguous(), "compiled functions read one number after another"
    return x.data_ptr()
