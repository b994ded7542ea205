"""Which files are measured, and the table that comes out: one row a file, sorted, the same in every run.

The table is written beside its place and then renamed onto it, so a reader sees the old one or the new one whole.
"""

from __future__ import annotations

import csv
import os
import stat
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

COLUMNS = (
    "path",
    "bytes",
    "sha256",
    "lines",
    "code",
    "comment",
    "blank",
    "functions",
    "classes",
    "complexity",
    "worst_function",
    "worst_line",
    "worst_complexity",
    "cause",  # why a task died: FAULT, CRASH, TIMEOUT, ...; empty for a file that was measured
    "error",
)


class Sources(NamedTuple):
    root: str
    paths: list[str]  # relative to root, sorted
    unread: list[str]  # folders that could not be listed, each with the reason


def find_sources(folder: str | os.PathLike[str] | None = None, limit: int | None = None) -> Sources:
    """The `*.py` files below a folder, sorted by relative path; with `limit` the first that many.

    Without a folder it is the running interpreter's standard library, without third-party packages.

    Raises:
        NotADirectoryError: `folder` is no folder.
    """
    library = folder is None
    root = os.path.abspath(os.fspath(sysconfig.get_path("stdlib") if folder is None else folder))
    if not os.path.isdir(root):
        raise NotADirectoryError(f"{root} is no folder; name one with Python files in it")
    paths: list[str] = []
    unread: list[str] = []

    def note(exc: OSError) -> None:
        unread.append(f"{exc.filename}: {exc.strerror}")

    for current, folders, names in os.walk(root, onerror=note):
        if library:
            folders[:] = [name for name in folders if name not in ("site-packages", "dist-packages")]
        base = os.path.relpath(current, root)
        found = (os.path.normpath(os.path.join(base, name)) for name in names if name.endswith(".py"))
        paths.extend(path for path in found if _maybe_readable(os.path.join(root, path)))
    paths.sort()
    return Sources(root, paths[:limit], sorted(unread))


def _maybe_readable(path: str) -> bool:
    """False for pipes, sockets and devices, whose reader would wait for ever. What cannot be looked at is a finding."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return True


def flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row of `measure_file` as one line of the table: of its worst functions only the first."""
    worst = row.get("worst") or [["", "", ""]]
    complexity, name, line = worst[0]
    return {**row, "worst_function": name, "worst_line": line, "worst_complexity": complexity}


def write_table(out: str | os.PathLike[str], rows: Iterable[Mapping[str, Any]]) -> Path:
    """Writes the rows as CSV (UTF-8, newline ends, values quoted where needed), whole or not at all.

    Raises:
        OSError: the table cannot be written; one that was there before is unchanged.
    """
    target = Path(out)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "w", encoding="utf-8", errors="backslashreplace", newline="") as file:
            table = csv.DictWriter(file, COLUMNS, extrasaction="ignore", lineterminator="\n", restval="")
            table.writeheader()
            table.writerows(map(flat, rows))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    return target


def worst_functions(rows: Sequence[Mapping[str, Any]], count: int = 10) -> list[dict[str, Any]]:
    """The most branched functions of all files, the worst first; ties by path and line."""
    found = [
        {"complexity": complexity, "path": row["path"], "function": name, "line": line}
        for row in rows
        for complexity, name, line in row.get("worst") or ()
    ]
    found.sort(key=lambda item: (-item["complexity"], item["path"], item["line"], item["function"]))
    return found[:count]
