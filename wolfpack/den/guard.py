"""The guard: a small process between a unit and its hands that leaves no orphan behind.

    unit --- guard --- hands --- whatever user code starts

The hands are forked off the guard, so the two share most of their memory. The guard sleeps, and wakes for two things:
- *The unit is gone, or wants the hands ended* (the unit's end of the `life` socket is closed): it kills all below it.
- *The hands ended*: it kills what they left, and tells the unit how they ended by the wait status, on the same socket.

It is the "subreaper" of what is below it: a process whose parent ended, also a daemon that forked twice and opened a
session of its own, becomes its child and is found. Ray kills the process *group* of a dead unit; the hands stay in that
group, the guard leaves it, so that it outlives that blow for the milliseconds it takes to kill what left the group too.
If the guard itself is killed, the kernel kills the hands (parent-death signal); the unit finds the rest by token.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time

from wolfpack.den import processes

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
GIVE_UP_S = 5.0  # a process that SIGKILL does not end hangs in the kernel; nobody can do more


def prctl(option: int, value: int) -> None:
    """The Linux call of this name; other systems go without (the socket's end is the first net everywhere)."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def split(life_fd: int, other_fds: tuple[int, ...], unit_pid: int) -> None:
    """Forks the hands off. Returns in the hands only; the caller's process stays behind as their guard."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    # The signal comes when the *thread* that started us ends, so it is only a hint to look at our parent.
    prctl(PR_SET_PDEATHSIG, signal.SIGHUP)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_read, False)
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    guard_pid = os.getpid()
    hands_pid = os.fork()
    if hands_pid == 0:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGHUP, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        for fd in (wake_read, wake_write, life_fd):
            os.close(fd)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard_pid:
            os._exit(1)  # the guard died before the signal was set
        return
    try:
        _watch(hands_pid, life_fd, other_fds, unit_pid, wake_read)
    finally:
        os._exit(1)


def _watch(hands_pid: int, life_fd: int, other_fds: tuple[int, ...], unit_pid: int, wake_read: int) -> None:
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nothing, fd)
    for fd in other_fds:
        os.close(fd)
    poll = select.poll()
    poll.register(life_fd, select.POLLIN)
    poll.register(wake_read, select.POLLIN)
    status: int | None = None
    while status is None:
        ready = {fd for fd, _ in poll.poll()}
        asked = b""
        if wake_read in ready:
            with contextlib.suppress(BlockingIOError):
                asked = os.read(wake_read, 4096)
        status = _reap(hands_pid)
        if life_fd in ready or signal.SIGTERM in asked or os.getppid() != unit_pid:
            break
    status = _end_all(hands_pid, status)
    with contextlib.suppress(OSError):  # the unit is gone
        os.write(life_fd, status.to_bytes(4, "big"))
    os._exit(0)


def _reap(hands_pid: int) -> int | None:
    """Takes leave of children that ended; the wait status of the hands if they are among them."""
    found: int | None = None
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == hands_pid:
                found = status
    return found


def _end_all(hands_pid: int, status: int | None) -> int:
    """Kills everything below until nothing is left; what a dying process had started comes to us and is found next."""
    pause_s = 0.0005
    until = time.monotonic() + GIVE_UP_S
    while time.monotonic() < until:
        processes.kill_all(processes.descendants(os.getpid()) or ([] if status is not None else [hands_pid]))
        time.sleep(pause_s)
        pause_s = min(0.02, pause_s * 2)
        found = _reap(hands_pid)
        status = found if found is not None else status
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            break  # no children at all
    return signal.SIGKILL if status is None else status
