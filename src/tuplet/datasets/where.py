"""Where a named data set is looked for, and how its files are had."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tuplet._cache import default_root
from tuplet.datasets.fetch import Remote, fetch
from tuplet.datasets.local import find, folder_of
from tuplet.errors import InputError


@dataclass(frozen=True)
class Where:
    """Folders and means of one call of ``load``.

    Args:
        data: folder of packed data sets; by default that of the environment.
        root: where fetched and prepared files go.
        force_reload: make anew what was made from files before.
        processes: to work with.
        progress: is told what is done and what is to do.
    """

    data: str | Path | None = None
    root: str | Path | None = None
    force_reload: bool = False
    processes: int | None = None
    progress: Callable[[int, int], None] | None = None

    @property
    def base(self) -> Path:
        return Path(self.root).expanduser() if self.root is not None else default_root()

    def local(self, *names: str) -> list[Path] | None:
        """Files of the packed form, if all are there."""
        return find(self.data, *names)

    def needed(self, name: str, *files: str, why: str) -> list[Path]:
        """Files of the packed form that cannot be had otherwise: refused with a sentence that says ``why``."""
        if (paths := self.local(*files)) is not None:
            return paths
        folder = folder_of(self.data)
        raise InputError(
            name,
            f"the packed form, {' and '.join(files)}, in a folder named by data= (--data) or TUPLET_DATA",
            "no such folder named" if folder is None else f"{folder}, which lacks it",
            why,
        )

    def fetched(self, name: str, remote: Remote, file: str) -> Path:
        """A publisher's file, fetched if need be."""
        return fetch(name, remote, self.base / "fetched" / name / file)
