"""Files from their publisher: fetched to a temporary name, checked, moved into place; altered ones are never used.

TLS certificates are verified. Beside a fetched file ``name`` lies ``name.json`` with its address, length and SHA-256. The first
fetch records them, unless the publisher states a checksum, which is then checked as well; every later use and every later
fetch must agree with the record.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import ssl
import tempfile
import urllib.error
import urllib.request
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tuplet.errors import InputError

CHUNK = 1 << 20
LIMIT = 4 << 30
"""Most bytes of one file."""
TIMEOUT = 60.0
"""Seconds without an answer."""
_HERE = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class Remote:
    """A file of a publisher.

    Args:
        url: where; https, or http on this machine.
        checksum: as the publisher states it, "md5:.." or "sha256:.."; None if none is known.
        size: bytes, if known.
    """

    url: str
    checksum: str | None = None
    size: int | None = None


def fetch(name: str, remote: Remote, path: Path, progress: Callable[[int, int | None], None] | None = None) -> Path:
    """The file at ``path``, fetched if it is not there or not what was recorded.

    Args:
        name: of the data set, for messages.
        remote: where the file is.
        path: where it goes; its folder is made.
        progress: is told bytes so far and bytes in all.
    """
    record = path.with_name(path.name + ".json")
    known = _recorded(record)
    if path.is_file() and known is not None:
        if known == _facts(path) and _matches(path, remote.checksum):
            return path
        warnings.warn(
            f"{path} is not the file that was fetched (length or SHA-256 differ); fetching it again", stacklevel=2
        )
    elif path.is_file() and remote.checksum is not None and _matches(path, remote.checksum):
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = _download(name, remote, path, progress)
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ssl.SSLError, ConnectionError) as error:
        raise InputError(name, *unreachable(remote.url, error)) from error
    except OSError as error:
        raise InputError(name, f"a folder that can be written, {path.parent}", f"{error.strerror or error}") from error
    try:
        facts = _facts(part)
        if not _matches(part, remote.checksum):
            raise InputError(
                name, f"{remote.checksum} of {remote.url}", "a file with another checksum; it was not kept"
            )
        if known is not None and known != facts:
            raise InputError(
                name, f"the file of {remote.url} that was recorded in {record}", "another, which was not kept",
                "If its publisher changed it and you trust the new one, delete the record.",
            )  # fmt: skip
        _write(record, json.dumps({"url": remote.url, **facts}, indent=1).encode())
        os.replace(part, path)
    except OSError as error:
        raise InputError(name, f"a folder that can be written, {path.parent}", f"{error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)
    return path


def unreachable(url: str, error: BaseException) -> tuple[str, str]:
    """Expected and came, for a file that cannot be had: both ways out in one sentence."""
    reason = error if isinstance(error, urllib.error.HTTPError) else getattr(error, "reason", None) or error
    expected = f"a packed folder that holds it, named by data= (--data) or TUPLET_DATA, or a network that reaches {url}"
    return expected, f"neither ({str(reason) or type(error).__name__})"


def _download(name: str, remote: Remote, path: Path, progress: Callable[[int, int | None], None] | None) -> Path:
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    part = Path(temporary)
    try:
        with os.fdopen(handle, "wb") as file, _open(remote.url) as answer:
            announced = answer.headers.get("Content-Length")
            total = int(announced) if announced is not None else None
            done = 0
            while block := answer.read(CHUNK):
                done += len(block)
                if done > LIMIT:
                    raise InputError(name, f"at most {LIMIT:,} bytes from {remote.url}", "more")
                file.write(block)
                if progress is not None:
                    progress(done, total)
            for wanted in (total, remote.size):
                if wanted is not None and wanted != done:
                    raise InputError(name, f"{wanted:,} bytes from {remote.url}", f"{done:,}; they were not kept")
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return part


class _NoDowngrade(urllib.request.HTTPRedirectHandler):
    """Follow redirects, but not from https to anything else."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):  # type: ignore[no-untyped-def]
        if urlsplit(req.full_url).scheme == "https" and urlsplit(newurl).scheme != "https":
            raise urllib.error.URLError(f"{req.full_url} leads away from https, to {newurl}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _open(url: str) -> http.client.HTTPResponse:
    parts = urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _HERE):
        raise InputError("url", "an https address", url)
    secure = urllib.request.HTTPSHandler(context=ssl.create_default_context())
    request = urllib.request.Request(url, headers={"User-Agent": "tuplet", "Accept-Encoding": "identity"})
    answer: http.client.HTTPResponse = urllib.request.build_opener(secure, _NoDowngrade).open(request, timeout=TIMEOUT)
    return answer


def _facts(path: Path) -> dict[str, object]:
    return {"bytes": path.stat().st_size, "sha256": _digest(path, "sha256")}


def _matches(path: Path, checksum: str | None) -> bool:
    if checksum is None:
        return True
    kind, _, value = checksum.partition(":")
    return _digest(path, kind) == value


def _digest(path: Path, kind: str) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest()


def _recorded(record: Path) -> dict[str, object] | None:
    try:
        kept = json.loads(record.read_text())
        return {"bytes": int(kept["bytes"]), "sha256": str(kept["sha256"])}
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(str(record), "the record of a fetched file", f"{type(error).__name__}: {error}",
                         "Delete it to fetch the file anew.") from error  # fmt: skip


def _write(path: Path, content: bytes) -> None:
    """Write a small file to a temporary name, sync it, and move it into place."""
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
