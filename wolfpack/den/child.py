"""A child process of a unit, seen from the unit's event loop: start it, talk to it, end it with all it started.

The process started is the guard (see `guard.py`); the hands are its child. Nothing here blocks the loop: what a pipe
does not take is kept and written later, and the end of the child is told by its `life` socket, not by waiting for it.
No thread must outlive the start: the guard watches the socket, and takes the parent-death signal as a hint only.
"""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import os
import secrets
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from wolfpack.den import guard, processes
from wolfpack.den.frames import BrokenFrame, Decoder, encode

READ_BYTES = 1 << 18
PERMIT_BYTES = 8
PACKAGE_ROOT = str(Path(__file__).resolve().parents[2])


class Child:
    """One living child.

    Args:
        config: what the child is told first; paths and PYTHONPATH are added here.
        folder: put first on its module search path, before that of this process.
        on_messages: called with all messages that one read brought.
        on_gone: called once, when nothing of the child is left, with the wait status of the hands; None where the guard
            itself was killed and could not tell.
    """

    def __init__(
        self,
        config: dict[str, Any],
        *,
        unit: str,
        folder: str | None,
        on_messages: Callable[[list[list[Any]]], None],
        on_gone: Callable[[int | None], None],
        on_log: Callable[[str], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_messages = on_messages
        self._on_gone = on_gone
        self._on_log = on_log
        self._decoder = Decoder()
        self._unsent = bytearray()
        self._status: int | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self.is_gone = False
        self.is_ending = False
        self._token = f"{unit}.{os.getpid()}.{secrets.token_hex(8)}"

        their_in, self._in_fd = os.pipe()
        self._out_fd, their_out = os.pipe()
        # We keep both ends: permits that the child has not taken can be read back.
        self._permit_read, permit_write = os.pipe()
        self._permit_write: int | None = permit_write
        self._life, their_life = socket.socketpair()
        for fd in (self._in_fd, self._out_fd, self._permit_read, permit_write):
            os.set_blocking(fd, False)
        # Memory that both see: until when jobs may start. It holds also while this process is frozen.
        their_gate = os.memfd_create("gate")
        os.ftruncate(their_gate, mmap.PAGESIZE)
        self._gate = mmap.mmap(their_gate, mmap.PAGESIZE)
        self.allow(float("inf"))
        self._life.setblocking(False)
        theirs = (their_in, their_out, self._permit_read, their_life.fileno(), their_gate)
        python_path = os.environ.get("PYTHONPATH")
        environment = {
            **os.environ,
            "PYTHONPATH": PACKAGE_ROOT + (os.pathsep + python_path if python_path else ""),
            processes.TOKEN: self._token,
        }
        search = [folder, *(entry for entry in sys.path if entry != folder)] if folder else list(sys.path)
        command = [sys.executable, "-P", "-m", "wolfpack.den.hands_main", *map(str, theirs), str(os.getpid()), unit]
        try:
            self._process = subprocess.Popen(command, pass_fds=theirs, stdin=subprocess.DEVNULL, env=environment)
        except BaseException:
            self._close_all()
            raise
        finally:
            os.close(their_in)
            os.close(their_out)
            os.close(their_gate)
            their_life.close()
        self._loop.add_reader(self._out_fd, self._read)
        self._loop.add_reader(self._life.fileno(), self._on_life)
        self.send(["config", {**config, "sys_path": search, "pythonpath": python_path}])

    @property
    def guard_pid(self) -> int:
        return self._process.pid

    # --- talking

    def send(self, *messages: list[Any]) -> None:
        data = b"".join(map(encode, messages))
        if self.is_gone:
            return
        if not self._unsent:
            try:
                sent = os.write(self._in_fd, data)
            except BlockingIOError:
                sent = 0
            except BrokenPipeError:
                return  # it died; `on_gone` is on its way
            if sent == len(data):
                return
            data = data[sent:]
            self._loop.add_writer(self._in_fd, self._write_on)
        self._unsent += data

    def _write_on(self) -> None:
        try:
            del self._unsent[: os.write(self._in_fd, memoryview(self._unsent)[:READ_BYTES])]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._unsent.clear()
        if not self._unsent:
            self._loop.remove_writer(self._in_fd)

    def permit(self, first: int, count: int) -> None:
        """Lets the child start the jobs numbered from `first` on; at most 512 are outstanding (a page of the pipe)."""
        if self._permit_write is not None and not self.is_gone:
            with contextlib.suppress(BrokenPipeError):
                permits = b"".join(n.to_bytes(PERMIT_BYTES, "little") for n in range(first, first + count))
                os.write(self._permit_write, permits)

    def allow(self, until: float) -> None:
        """No job starts after this monotonic time (the clock is that of the machine), until a later one is allowed."""
        if not self.is_gone:
            struct.pack_into("d", self._gate, 0, until)

    def withdraw(self) -> int:
        """Takes back the permits that the child has not used; how many: so many of the last given did not start."""
        if self.is_gone:
            return 0
        try:
            return len(os.read(self._permit_read, 1 << 16)) // PERMIT_BYTES
        except BlockingIOError:
            return 0

    def _read(self) -> None:
        try:
            data = os.read(self._out_fd, READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._loop.remove_reader(self._out_fd)
            return
        self._deliver(data)

    def _deliver(self, data: bytes) -> None:
        try:
            messages = self._decoder.feed(data)
        except BrokenFrame as exc:
            self._on_log(f"the hands of process {self._process.pid} sent no message of ours ({exc}); they are ended")
            self._decoder = Decoder()
            self.kill()
            return
        if messages:
            self._on_messages(messages)

    # --- ending

    def end(self, grace_s: float) -> None:
        """Asks the child to finish in order (exit handlers run); kills it if it is still there after `grace_s`."""
        if not self.is_ending and not self.is_gone:
            self.is_ending = True
            if self._permit_write is not None:
                os.close(self._permit_write)
                self._permit_write = None
            self._timers.append(self._loop.call_later(grace_s, self.kill))

    def kill(self) -> None:
        """Ends the child and everything it started. Messages it has written still arrive before `on_gone`."""
        if self.is_gone:
            return
        self.is_ending = True
        with contextlib.suppress(OSError):
            self._life.shutdown(socket.SHUT_WR)
        self._timers.append(self._loop.call_later(guard.GIVE_UP_S + 1, self._kill_guard))

    def _kill_guard(self) -> None:
        if not self.is_gone and self._process.poll() is None:
            processes.kill_all([*processes.descendants(self._process.pid), self._process.pid])

    def _on_life(self) -> None:
        try:
            data = self._life.recv(4)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._status = int.from_bytes(data, "big")
            return
        self._loop.remove_reader(self._life.fileno())
        self._find_end()

    def _find_end(self) -> None:
        """The guard closed its socket, so it ends now; its zombie is taken as soon as it is there."""
        if self._process.poll() is None:
            self._timers.append(self._loop.call_later(0.001, self._find_end))
            return
        if self._status is None:
            processes.kill_all(processes.find_bearers(self._token))
        try:
            while data := os.read(self._out_fd, READ_BYTES):
                self._deliver(data)
        except BlockingIOError:
            pass
        self._on_gone(self._status)
        self._close_all()

    def _close_all(self) -> None:
        self.is_gone = True
        for timer in self._timers:
            timer.cancel()
        self._loop.remove_reader(self._out_fd)
        self._loop.remove_writer(self._in_fd)
        if self._life.fileno() >= 0:
            self._loop.remove_reader(self._life.fileno())
        self._gate.close()
        for fd in (self._in_fd, self._out_fd, self._permit_read, self._permit_write):
            if fd is not None:
                os.close(fd)
        self._permit_write = None
        self._life.close()
