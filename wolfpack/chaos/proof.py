"""Is this process the den's? A process id alone is no answer: it may belong to another machine, or by now to another
process. So a signal needs a proof, and whatever cannot be proven is refused with a reason.

A process handle (a Linux pidfd) is taken first; it can never come to mean another process. Then, for a unit:
- the den's own record names its process id, its Ray node and its boot;
- the process lives in our process-id namespace, so the id means the same here and there;
- it is a Ray worker below the raylet of that very Ray node, so it is on this machine;
- it began before this boot said hello with this process id. Two processes never have one id at once, and it is still
  there: so it is the one that said hello.

For the keeper, which has no boot: it tells its process id and node itself, the handle is taken, and it tells the same
again; it answered while the handle was held, so the two are one. For hands: they are children of a guard, which is a
child of a proven unit, and both carry that unit's process id and name in their command line.

Everything is read from a tree like /proc, whose root can be given: the tests prove these rules on made-up trees.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ANCESTORS_MOST = 32
HANDS_MODULE = "wolfpack.den.hands_main"
UNIT_TITLE, KEEPER_TITLE = "ray::UnitActor", "ray::Keeper"


class Claim(NamedTuple):
    """What the den says about one of its processes."""

    name: str  # for a person: `grey-0`, or `the keeper`
    pid: int
    node: str  # Ray's id of its node
    title: str  # how the process shows itself
    woke_at: float | None  # wall clock of its hello; None: the den says it right now


class Processes:
    """What /proc says.

    Args:
        root: of the tree.
        booted_at: wall clock of the machine's start; None: computed from its clocks.
    """

    def __init__(self, root: str | Path = "/proc", booted_at: float | None = None) -> None:
        self._root = Path(root)
        self._booted_at = booted_at

    def command(self, pid: int) -> list[str]:
        """The words of its command line, without the padding that a changed title leaves behind."""
        data = (self._root / str(pid) / "cmdline").read_bytes().rstrip(b"\0")
        return data.decode("utf-8", "replace").split("\0")

    def namespace(self, pid: int | str) -> str:
        return os.readlink(self._root / str(pid) / "ns" / "pid")

    def parent(self, pid: int) -> int:
        return int(self._stat(pid)[1])

    def is_zombie(self, pid: int) -> bool:
        return self._stat(pid)[0] in "ZX"

    def began_at(self, pid: int) -> float:
        """Wall clock of its start."""
        booted_at = self._booted_at
        if booted_at is None:
            booted_at = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        return booted_at + int(self._stat(pid)[19]) / os.sysconf("SC_CLK_TCK")

    def _stat(self, pid: int) -> list[str]:
        """The fields after the name, which stands in parentheses and may hold anything."""
        return (self._root / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()

    def ancestors(self, pid: int) -> Iterator[int]:
        for _ in range(ANCESTORS_MOST):
            pid = self.parent(pid)
            if pid <= 1:
                return
            yield pid

    def children(self, pid: int) -> list[int]:
        found: list[int] = []
        for entry in os.listdir(self._root):
            try:
                if entry.isdigit() and self.parent(int(entry)) == pid:
                    found.append(int(entry))
            except (OSError, IndexError, ValueError):
                continue  # it ended while we looked
        return sorted(found)


def why_not_ours(claim: Claim, tree: Processes) -> str:
    """Why this process is not proven to be the one that the den means; "" if it is. Take a handle on it before."""
    pid, name = claim.pid, claim.name
    try:
        if tree.is_zombie(pid):
            return f"process {pid} of {name} has ended"
        if tree.namespace(pid) != tree.namespace("self"):
            return f"process {pid} is in another namespace of process ids, so it need not be {name}"
        title = tree.command(pid)[0]
        if title.split(".")[0] != claim.title:
            return f"process {pid} here is no {claim.title} but {title[:80]!r}; {name} is elsewhere"
        node = next((node for each in tree.ancestors(pid) if (node := _node_of(tree.command(each)))), "")
        if not node:
            return f"process {pid} was not started by a Ray node of this machine"
        if node != claim.node:
            return f"process {pid} belongs to the Ray node {node}, but {name} lives on {claim.node}"
        if claim.woke_at is not None and (began_at := tree.began_at(pid)) > claim.woke_at:
            return f"process {pid} began {began_at - claim.woke_at:.2f} s after {name} said hello"
    except (OSError, IndexError, ValueError):
        return f"process {pid} of {name} is not on this machine, or cannot be looked at"
    return ""


def _node_of(command: list[str]) -> str:
    """The Ray node whose raylet has this command line; "" if it is none."""
    if Path(command[0]).name != "raylet":
        return ""
    return next((word.partition("=")[2] for word in command if word.startswith("--node_id=")), "")


def find_hands(unit: str, unit_pid: int, tree: Processes) -> list[int]:
    """The hands of a unit whose own process is proven."""
    guards = [pid for pid in tree.children(unit_pid) if _is_hands_command(pid, unit, unit_pid, tree)]
    return [
        pid for guard in guards for pid in tree.children(guard) if _is_hands_command(pid, unit, unit_pid, tree)
    ]  # fmt: skip


def why_not_hands(pid: int, unit: str, unit_pid: int, tree: Processes) -> str:
    """Why this process is not proven to be hands of a unit whose own process is proven; "" if it is."""
    try:
        if tree.is_zombie(pid):
            return f"process {pid} has ended"
        guard = tree.parent(pid)
        if not (_is_hands_command(pid, unit, unit_pid, tree) and _is_hands_command(guard, unit, unit_pid, tree)):
            return f"process {pid} does not say that it works for {unit}"
        if tree.parent(guard) != unit_pid:
            return f"process {pid} has no guard that is a child of {unit}"
    except (OSError, IndexError, ValueError):
        return f"process {pid} of {unit} cannot be looked at"
    return ""


def _is_hands_command(pid: int, unit: str, unit_pid: int, tree: Processes) -> bool:
    try:
        command = tree.command(pid)
    except OSError:
        return False
    return HANDS_MODULE in command and command[-2:] == [str(unit_pid), unit]
