"""Processes: find and end everything that user code started, however it was started.

Descendants are found by their parents' ids, and, where a parent is gone and the link with it, by the token that every
process of one pool of hands carries in its environment (`WOLFPACK_HANDS`).
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
from collections.abc import Iterable, Mapping

TOKEN = "WOLFPACK_HANDS"


def _find_ids() -> list[str]:
    """Ids of all processes; none on a system without /proc, where only what is told otherwise can be ended."""
    try:
        return [entry for entry in os.listdir("/proc") if entry.isdigit()]
    except OSError:
        return []


def find_parents() -> dict[int, int]:
    """Process id -> id of its parent, of all processes that can be seen now."""
    parents: dict[int, int] = {}
    for entry in _find_ids():
        try:
            with open(f"/proc/{entry}/stat", "rb") as file:
                # The name stands in parentheses and may hold anything; the fields go on after the last one.
                parents[int(entry)] = int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            continue  # it ended while we looked
    return parents


def descendants(pid: int, parents: Mapping[int, int] | None = None) -> list[int]:
    """All processes below `pid`, without itself; parents stand before their children."""
    children: dict[int, list[int]] = {}
    for child, parent in (find_parents() if parents is None else parents).items():
        children.setdefault(parent, []).append(child)
    found = list(children.get(pid, ()))
    for below in found:  # grows while we walk it
        found += children.get(below, ())
    return found


def find_bearers(token: str) -> list[int]:
    """Processes, except this one, that carry the token in the environment they were started with."""
    wanted = f"{TOKEN}={token}".encode()
    found: list[int] = []
    for entry in _find_ids():
        with contextlib.suppress(OSError), open(f"/proc/{entry}/environ", "rb") as file:
            if wanted in file.read().split(b"\0") and int(entry) != os.getpid():
                found.append(int(entry))
    return found


def kill_all(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def describe_end(status: int) -> str:
    """A wait status for a person: `signal 11 (SIGSEGV)`, or `exit code 3`."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        try:
            return f"signal {number} ({signal.Signals(number).name})"
        except ValueError:
            return f"signal {number}"
    return f"exit code {os.waitstatus_to_exitcode(status)}"


def collect_rarely() -> None:
    """Fewer garbage collections, for processes of our own: they make many small records, and hardly any cycles.

    With Python's defaults a sixth of the keeper's time went into collections that freed nothing.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
