"""Finds the alpha of a pack and kills it on purpose, to show what a failover costs.

Killing by process id is dangerous: the id may belong to another machine, or by now to another process. So three things
must agree before the signal goes out: the process is a Ray worker of this machine, started by the Ray node that the den
names for the unit; and after a handle on exactly that process was taken, the den still says that this unit, in this
boot, leads from it. The signal goes to the handle (a Linux pidfd), which can never mean another process.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path

import wolfpack
from packs.computing.story import Kill


class NotOurs(Exception):
    """This process must not be signalled from here; the text says why."""


def find_alpha(den: wolfpack.Den, pack: str) -> wolfpack.UnitRecord | None:
    """The unit that leads this pack now and has a process; None while nobody does."""
    for unit in den.units():
        if unit.pack == pack and unit.role == "alpha" and unit.pid:
            return unit
    return None


def why_not_ours(unit: wolfpack.UnitRecord, proc: str = "/proc") -> str:
    """Why this unit's process cannot be signalled from here; "" if it is proven to be the unit's on this machine."""
    try:
        command = _command(Path(proc), unit.pid)
        parent = next(
            line.split()[1]
            for line in (Path(proc) / str(unit.pid) / "status").read_text().splitlines()
            if line.startswith("PPid:")
        )
        starter = _command(Path(proc), parent)
    except (OSError, StopIteration):
        return f"process {unit.pid} of {unit.id} is not on this machine, or its parent cannot be read"
    if not command[0].startswith("ray::"):
        return f"process {unit.pid} is no Ray worker but {command[0]!r}; {unit.id} is not there"
    named = {item.partition("=")[2] for item in starter if item.startswith(("--node_id=", "--node_ip_address="))}
    if not named:
        return f"process {unit.pid} was not started by a Ray node"
    if unit.node not in named | {socket.gethostname()}:
        return f"process {unit.pid} belongs to the Ray node {sorted(named)}, but {unit.id} lives on {unit.node!r}"
    return ""


def signal_alpha(pack: wolfpack.Pack, signum: int = signal.SIGKILL) -> Kill | None:
    """Sends a signal to the present alpha of the pack; None if there is none at the moment.

    Both None and `NotOurs` can pass by themselves while an alpha is dying: a caller who means it asks again.

    Raises:
        NotOurs: the alpha's process is not proven to be on this machine; the text says why.
    """
    if not hasattr(os, "pidfd_open"):
        raise NotOurs("that needs Linux")
    alpha = find_alpha(pack.den, pack.name)
    if alpha is None:
        return None
    try:
        handle = os.pidfd_open(alpha.pid)
    except ProcessLookupError:
        raise NotOurs(f"there is no process {alpha.pid} of {alpha.id} on this machine") from None
    try:
        if reason := why_not_ours(alpha):
            raise NotOurs(reason)
        again = find_alpha(pack.den, pack.name)
        if again is None or (again.id, again.boot, again.pid) != (alpha.id, alpha.boot, alpha.pid):
            return None
        at = time.time()
        signal.pidfd_send_signal(handle, signum)
        return Kill(alpha.id, alpha.boot, alpha.pid, at)
    except ProcessLookupError:
        return None
    finally:
        os.close(handle)


def _command(proc: Path, pid: int | str | None) -> list[str]:
    return (proc / str(pid) / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
