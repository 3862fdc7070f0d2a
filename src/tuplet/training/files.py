"""Files that are whole or not there: temporary name, flush, fsync, rename; and folders that are ours alone."""

from __future__ import annotations

import csv
import errno
import hashlib
import io
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tuplet.errors import OptionError, RunError

TEMPORARY = ".part"
"""Ending of a file that is being written; whatever has it after a crash is rubbish."""
CHECKSUM = "sha256"


def write(path: Path, data: bytes) -> None:
    """Write a file so that after a crash at any moment its old or its new content is there, never a part of it."""
    temporary = path.with_name(path.name + TEMPORARY)
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise cannot_write(path, error) from error


def table_text(lines: Iterable[Sequence[Any]], delimiter: str = ",") -> bytes:
    """Lines of cells as the content of a CSV file."""
    buffer = io.StringIO()
    csv.writer(buffer, delimiter=delimiter, lineterminator="\n").writerows(lines)
    return buffer.getvalue().encode()


def sync_folder(folder: Path) -> None:
    """Make a rename in ``folder`` last; where folders cannot be opened (Windows) the rename alone has to do."""
    try:
        number = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(number)
    finally:
        os.close(number)


def cannot_write(path: Path, error: OSError) -> RunError:
    """The reason in words, and what to do."""
    hints = {
        errno.ENOSPC: "The disk is full: free some space",
        errno.EDQUOT: "The quota is used up: free some space",
        errno.EFBIG: "Files of this size are not allowed here: choose another folder",
        errno.EROFS: "The file system is read-only: choose another folder",
        errno.EACCES: "No permission: choose another folder",
    }
    what = hints.get(error.errno or 0, "Choose another folder")
    reason = error.strerror or str(error)
    return RunError(
        f"{path}: expected a file that can be written; came {reason!r}. {what}; what was saved before is still good."
    )


def make_folder(option: str, path: str | Path) -> Path:
    """Make a folder and check that files can be written there, before any work is done."""
    if path == "":  # an unset variable of a shell, and for Path the folder where one is
        raise OptionError(f"{option}: expected a folder; came an empty text")
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = error.strerror or str(error)
        raise OptionError(
            f"{option}: expected a folder that can be written to; {str(path)!r} gave {reason!r}"
        ) from error
    return folder


def digest(data: bytes) -> str:
    """The checksum of a file's content."""
    return hashlib.sha256(data).hexdigest()


def seal(facts: Mapping[str, Any]) -> bytes:
    """JSON with a checksum of itself."""
    sealed = {**facts, CHECKSUM: digest(_canonical(facts))}
    return (json.dumps(sealed, indent=1, sort_keys=True) + "\n").encode()


def unseal(path: Path, what: str) -> dict[str, Any]:
    """The facts of a file written by ``seal``; refused in words if it is not what was written."""
    try:
        facts = json.loads(path.read_bytes())
    except OSError as error:
        raise RunError(f"{path}: expected {what}; came {error.strerror!r}") from error
    except ValueError as error:
        raise RunError(f"{path}: expected {what}; came a file that is no JSON ({error})") from error
    if not isinstance(facts, dict) or CHECKSUM not in facts:
        raise RunError(f"{path}: expected {what}; came JSON without a checksum")
    stated = facts.pop(CHECKSUM)
    if stated != digest(_canonical(facts)):
        raise RunError(f"{path}: expected {what}; came a file whose checksum does not fit: it was altered or damaged")
    return facts


def _canonical(facts: Mapping[str, Any]) -> bytes:
    return json.dumps(facts, sort_keys=True, separators=(",", ":")).encode()


@contextmanager
def locked(folder: Path, wait: bool = False) -> Iterator[None]:
    """Hold a folder for one run; the lock goes with the process, however it ends.

    Args:
        folder: which.
        wait: for another process that holds it, instead of refusing.
    """
    try:
        import fcntl
    except ImportError:  # no such locks on Windows
        yield
        return
    with open(folder / ".lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError as error:
            raise RunError(
                f"out: expected a folder of its own; another process is training in {str(folder)!r}"
            ) from error
        yield
