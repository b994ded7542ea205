"""Memory: what a tree of processes holds, what the node has left, and when hands must be ended for it.

Ray's memory monitor does not charge hands to their unit, and the kernel's killer takes whom it likes. So the unit looks
for itself, some ten times a second, and ends its own hands well before either of them acts. All figures come from
/proc; where a file is missing the answer is "unknown", and nobody is killed for what is unknown.

Rules of `find_overgrown`:

- The hands of a unit share the memory of its card: together above it, the largest of them goes.
- A node with less than a twentieth of its memory left: the largest goes, but only if it holds more than what is left.
  Ending small hands would cost their task and help nobody.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
NODE_RESERVE = 1 / 20
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class NodeMemory:
    total_bytes: int
    available_bytes: int


def find_overgrown(
    held_bytes: Sequence[int], *, limit_bytes: int | None, node: NodeMemory | None
) -> tuple[int, str] | None:
    """Which of the hands must be ended for the memory they hold, and why; None: nobody.

    Args:
        held_bytes: resident memory of each of the hands; 0 for those that run no task.
        limit_bytes: what they may hold together (`memory` of the card).
        node: the node's memory, if known.
    """
    if not held_bytes:
        return None
    largest = max(range(len(held_bytes)), key=held_bytes.__getitem__)
    most, together = held_bytes[largest], sum(held_bytes)
    if most <= 0:
        return None
    if limit_bytes is not None and together > limit_bytes:
        rest = f" of {together // MIB:,} MiB that the hands hold together" if together > most else ""
        return largest, f"it held {most // MIB:,} MiB{rest}; the card's `memory` allows {limit_bytes // MIB:,} MiB"
    if node and node.available_bytes < node.total_bytes * NODE_RESERVE and most > node.available_bytes:
        left, total = node.available_bytes // MIB, node.total_bytes // MIB
        return largest, f"it held {most // MIB:,} MiB while its node had only {left:,} of {total:,} MiB left"
    return None


def watch_pause_s(together_bytes: int, limit_bytes: int | None) -> float:
    """Seconds to the next look: a tenth of a second, a fiftieth beyond half of the limit."""
    return 0.02 if limit_bytes is not None and together_bytes * 2 > limit_bytes else 0.1


def find_rss_bytes(pid: int) -> int:
    """Resident memory of one process; 0 if it is gone."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0


def tree_rss_bytes(pids: Iterable[int]) -> int:
    """Resident memory of these processes together; pages they share count for each."""
    return sum(map(find_rss_bytes, pids))


def find_node_memory() -> NodeMemory | None:
    """The memory of this node, or of this container where that is less."""
    try:
        with open("/proc/meminfo", "rb") as file:
            rows = dict(line.split(b":", 1) for line in file.read().splitlines())
        found = NodeMemory(*(int(rows[name].split()[0]) * 1024 for name in (b"MemTotal", b"MemAvailable")))
    except (OSError, KeyError, ValueError):
        return None
    cgroup = _find_cgroup_memory()
    if cgroup is not None and cgroup.total_bytes < found.total_bytes:
        return NodeMemory(cgroup.total_bytes, min(cgroup.available_bytes, found.available_bytes))
    return found


def _find_cgroup_memory() -> NodeMemory | None:
    """The limit of the container, in the places where version 2 and version 1 of cgroups show it inside of one."""
    for folder, limit, usage, inactive in (
        ("/sys/fs/cgroup", "memory.max", "memory.current", b"inactive_file"),
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", b"total_inactive_file"),
    ):
        root = Path(folder)
        try:
            total, used = int((root / limit).read_bytes()), int((root / usage).read_bytes())
            stat = dict(line.split() for line in (root / "memory.stat").read_bytes().splitlines())
            # File cache counts as used, but the kernel gives it back when asked.
            return NodeMemory(total, max(0, total - used + int(stat.get(inactive, 0))))
        except (OSError, ValueError):
            continue
    return None


def find_kernel_kills() -> int:
    """How many processes the kernel has killed for memory since it booted; 0 if it does not tell."""
    try:
        with open("/proc/vmstat", "rb") as file:
            for line in file:
                if line.startswith(b"oom_kill "):
                    return int(line.split()[1])
    except (OSError, ValueError):
        pass
    return 0
