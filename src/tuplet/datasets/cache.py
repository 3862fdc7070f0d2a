"""Packed graphs on disk: raw arrays in a folder named by a key, written beside it and renamed when complete.

A folder ``<key>/`` holds ``0.bin``, ``1.bin``, .. and ``manifest.json``, which says of each file the dtype, shape and BLAKE2 checksum.
It is written as ``.<key>.<host>.<process>.tmp/``, part after part, synced, and renamed: a killed writer leaves no folder under
the key, and its leavings are swept away by the next one. A folder whose checksums do not agree is thrown away. No pickle.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from tuplet.datasets.packed import PackedGraphs, describe, field_from
from tuplet.errors import InputError

MANIFEST = "manifest.json"
FORMAT = 1
STALE = 24 * 3600.0
"""Seconds after which leavings of a writer on another machine are taken for dead."""


class Cache:
    """One entry.

    Args:
        folder: of all entries.
        key: of this one, fit for a file name.
    """

    def __init__(self, folder: Path, key: str) -> None:
        self.folder, self.key = folder, key
        self.path = folder / key

    def read(self) -> PackedGraphs | None:
        """What was written, mapped into memory; None if there is nothing, or nothing whole (then it is thrown away)."""
        if not self.path.exists():
            return None
        try:
            return _load(self.path, self.key)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            warnings.warn(f"{self.path} is damaged ({error}); it is thrown away and made again", stacklevel=3)
            shutil.rmtree(self.path, ignore_errors=True)
            return None

    def get(self, make: Callable[[Path], Iterable[PackedGraphs]], force: bool = False) -> PackedGraphs:
        """What was written under the key; if there is nothing, or by force, what ``make`` gives, written first.

        Args:
            make: gives the parts; it is told a folder for files of its own, which goes with the rest if all is killed.
            force: throw away what is there.
        """
        if force:
            shutil.rmtree(self.path, ignore_errors=True)
        found = self.read()
        if found is None:
            self.write(make)
            found = self.read()
        if found is None:
            raise InputError(
                "root", "a folder whose files can be read again", f"{self.folder}", "Name another with root=."
            )
        return found

    def write(self, make: Callable[[Path], Iterable[PackedGraphs]]) -> None:
        """Write parts, one after another, as one entry; nothing is left under the key unless all were written."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._sweep()
            temporary = self.folder / f".{self.key}.{socket.gethostname()}.{os.getpid()}.{uuid.uuid4().hex[:8]}.tmp"
            temporary.mkdir()
        except OSError as error:
            raise _unwritable(self.folder, error) from error
        try:
            with _writer(temporary, self.key) as writer:
                for part in make(temporary):
                    writer.append(part)
            _sync(temporary)
            self._install(temporary)
        except OSError as error:
            if isinstance(error, InputError):
                raise
            raise _unwritable(self.folder, error) from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def _install(self, temporary: Path) -> None:
        try:
            os.rename(temporary, self.path)
        except OSError:
            if not self.path.exists():
                raise  # another writer of the same entry may have been first: then what is there is as good
        _sync(self.folder)

    def _sweep(self) -> None:
        """Remove what killed writers left."""
        for left in self.folder.glob(".*.tmp"):
            parts = left.name.split(".")
            process = parts[-3] if len(parts) > 4 else ""
            here = ".".join(parts[2:-3]) == socket.gethostname() and process.isdecimal()
            try:
                dead = not _alive(int(process)) if here else time.time() - left.stat().st_mtime > STALE
            except OSError:
                continue
            if dead:
                shutil.rmtree(left, ignore_errors=True)


class _Writer:
    """Appends parts to raw files; the first part says which fields there are."""

    def __init__(self, folder: Path, key: str) -> None:
        self.folder, self.key = folder, key
        self.about: list[dict[str, Any]] = []
        self.files: list[IO[bytes]] = []
        self.columns: list[dict[str, Any]] = []
        self.names: list[str] | None = None

    def append(self, part: PackedGraphs) -> None:
        names = list(part.fields)
        if self.names is None:
            self.names = names
            self.about = [describe(name, field) for name, field in part.fields.items()]
        elif names != self.names:
            raise InputError("fields", f"{', '.join(self.names)} in every graph", f"{', '.join(names)}")
        tensors = [part.num_nodes]
        for name in names:
            field = part.fields[name]
            lengths = torch.empty(0, dtype=torch.int64) if field.ptr is None else field.ptr.diff()
            tensors += [field.values, lengths]
        for place, tensor in enumerate(tensors):
            self._write(place, np.ascontiguousarray(tensor.numpy()))

    def _write(self, place: int, array: np.ndarray) -> None:
        if place == len(self.files):
            self.files.append((self.folder / f"{place}.bin").open("wb"))
            about = {"dtype": array.dtype.str, "rows": 0, "shape": list(array.shape[1:]), "hash": _hash()}
            self.columns.append(about)
        column = self.columns[place]
        if column["dtype"] != array.dtype.str or column["shape"] != list(array.shape[1:]):
            came = f"{array.dtype.str} {array.shape[1:]} after {column['dtype']} {column['shape']}"
            raise InputError("fields", "the same columns in every graph", came)
        content = array.tobytes()
        self.files[place].write(content)
        column["hash"].update(content)
        column["rows"] += len(array)

    def finish(self) -> None:
        for file in self.files:
            file.flush()
            os.fsync(file.fileno())
            file.close()
        columns = [{**column, "hash": column["hash"].hexdigest()} for column in self.columns]
        body = json.dumps({"format": FORMAT, "key": self.key, "fields": self.about, "columns": columns})
        digest = _hash(body.encode()).hexdigest()
        with (self.folder / MANIFEST).open("wb") as manifest:
            manifest.write(json.dumps({"body": body, "hash": digest}).encode())
            manifest.flush()
            os.fsync(manifest.fileno())


@contextmanager
def _writer(folder: Path, key: str) -> Iterator[_Writer]:
    writer = _Writer(folder, key)
    try:
        yield writer
        writer.finish()
    finally:
        for file in writer.files:
            file.close()


def _load(path: Path, key: str) -> PackedGraphs:
    outer = json.loads((path / MANIFEST).read_text())
    if _hash(outer["body"].encode()).hexdigest() != outer["hash"]:
        raise ValueError("the manifest does not agree with its checksum")
    body = json.loads(outer["body"])
    if body["format"] != FORMAT or body["key"] != key:
        raise ValueError("the manifest is of another entry")
    tensors = [_column(path / f"{place}.bin", about) for place, about in enumerate(body["columns"])]
    fields = {}
    for place, about in enumerate(body["fields"]):
        values, lengths = tensors[1 + 2 * place], tensors[2 + 2 * place]
        ptr = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]) if len(lengths) else None
        fields[about["name"]] = field_from(about, values, ptr)
    return PackedGraphs(tensors[0], fields)


def _column(path: Path, about: dict[str, Any]) -> Tensor:
    """A raw file as a tensor, checked; mapped, and private to this process if it is written to."""
    shape = (about["rows"], *about["shape"])
    dtype = np.dtype(about["dtype"])
    if path.stat().st_size != int(np.prod(shape)) * dtype.itemsize:
        raise ValueError(f"{path.name} has another length")
    with path.open("rb") as file:
        if hashlib.file_digest(file, _hash).hexdigest() != about["hash"]:
            raise ValueError(f"{path.name} does not agree with its checksum")
    if 0 in shape:
        return torch.from_numpy(np.empty(shape, dtype))
    return torch.from_numpy(np.memmap(path, dtype, "c", shape=shape))


def _hash(content: bytes = b"") -> Any:
    return hashlib.blake2b(content, digest_size=16)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it lives, and belongs to someone else
        return True
    return True


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _unwritable(folder: Path, error: OSError) -> InputError:
    return InputError(
        "root",
        "a folder with room that can be written",
        f"{folder} ({error.strerror or error})",
        "Name another with root=.",
    )
