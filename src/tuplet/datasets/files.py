"""Files of own data: which kinds are read, and what to do with the others."""

from __future__ import annotations

from pathlib import Path

from tuplet.errors import InputError

TABLES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
GRAPH6 = (".g6", ".graph6")
TEXTS = (*GRAPH6, ".txt")
"""Graph6 lines, or in .txt also an edge list."""
_CODE = "It may run any code when it is read: read it in Python with what wrote it, and pass tuplet the list of graphs."
_HEADER = "Make it a .csv file: a first line with the word smiles, then its lines."
_OTHERS = {
    **dict.fromkeys((".smi", ".smiles"), _HEADER),
    **dict.fromkeys((".sdf", ".mol"), "Write the molecules as SMILES into a .csv file."),
    **dict.fromkeys((".xls", ".xlsx", ".ods"), "Save the sheet as a .csv file."),
    **dict.fromkeys((".pt", ".pth", ".pkl", ".pickle"), _CODE),
}
"""Endings of files that are not read, and what to do instead."""


def is_table(path: Path) -> bool:
    return path.name.lower().endswith(TABLES)


def check_file(path: Path) -> None:
    """Refuse what is not there, folders, and files of a kind that is not read."""
    if not path.is_file():
        raise InputError("file", "an existing file", f"{path}" + (" (a folder)" if path.is_dir() else ""))
    if path.suffix.lower() in _OTHERS:
        raise InputError("file", "a table (.csv, .tsv) or graph6 lines (.g6)", f"{path}", _OTHERS[path.suffix.lower()])
