"""What trained a job: device, versions and commit of each process that had a part in it, in a file beside its checkpoints.

A training may be stopped and go on elsewhere, and the result of one that has ended may be written anew: whoever writes a result down need
not be who made it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuplet.training.files import make_folder, seal, unseal, write
from tuplet.training.progress import peak_memory

FILE, PEAK = "origins.json", "peak_memory_bytes"


class Origins:
    """The processes that trained a job, one after another; those that are alike are one.

    Args:
        folder: of the run.
        now: device, versions and commit of this process.
        kept: whether something that earlier processes made is kept.
        ended: whether training has ended before, so that this process has no part in it.
    """

    def __init__(self, folder: Path, now: Mapping[str, Any], *, kept: bool, ended: bool) -> None:
        self.path = make_folder("--work", folder) / FILE
        known = unseal(self.path, "what trained a job")["origins"] if kept and self.path.is_file() else []
        self.every: list[dict[str, Any]] = known
        self.takes_part = not ended or not known
        if self.takes_part:
            if not known or any(known[-1].get(key) != value for key, value in now.items()):
                known.append(dict(now))
            self._write()

    def look(self) -> int | None:
        """Note the most memory of this process, and give that of all on the same device as the last one; None if none has noted it."""
        last = self.every[-1]
        if self.takes_part:
            last[PEAK] = max(last.get(PEAK, 0), peak_memory())
            self._write()
        there = [origin for origin in self.every if origin["device"] == last["device"] and PEAK in origin]
        return max((origin[PEAK] for origin in there), default=None)

    def about(self) -> dict[str, Any]:
        """For a result: the last one, and which were before it."""
        *before, last = [{key: value for key, value in origin.items() if key != PEAK} for origin in self.every]
        return {**last, "before": before} if before else last

    def _write(self) -> None:
        write(self.path, seal({"origins": self.every}))
