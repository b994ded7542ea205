"""Ctrl-C in a real terminal: it reaches the whole foreground process group, and only the command acts on it (P56)."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.support import command, environment, start, write_pack

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]

WAIT_S = 90.0


class Terminal:
    """A command in the foreground of a terminal of its own."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.text = ""
        self.pid, self._screen = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execve(sys.executable, command(*words), environment())

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Reads on until the screen shows this."""
        end = time.monotonic() + WAIT_S
        while not (found := re.search(pattern, self.text)):
            assert time.monotonic() < end, self.text
            assert self._read(0.5), self.text
        return found

    def press_ctrl_c(self) -> None:
        os.write(self._screen, b"\x03")

    def end(self) -> int:
        """Reads to the end; returns the exit code."""
        while self._read(WAIT_S):
            pass
        os.close(self._screen)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def kill(self) -> None:
        """Ends a command that a failed test left behind; our Ray ends with it."""
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            if os.waitpid(self.pid, os.WNOHANG)[0] == 0:
                os.kill(self.pid, signal.SIGKILL)

    def _read(self, patience_s: float) -> bool:
        if not select.select([self._screen], [], [], patience_s)[0]:
            return True
        try:
            data = os.read(self._screen, 65536)
        except OSError:  # the other side was closed
            return False
        self.text += data.decode("utf-8", "replace").replace("\r\n", "\n")
        return bool(data)


def marks(folder: Path, what: str) -> list[str]:
    return sorted(path.name for path in folder.glob(f"gate.{what}-*"))


def wait_for_file(path: Path) -> None:
    end = time.monotonic() + WAIT_S
    while not path.exists():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture
def gated(tmp_path: Path) -> Iterator[tuple[Path, Terminal]]:
    """A run of many tasks, of which two are submitted and the first runs; they end when there is a file `gate`."""
    write_pack(tmp_path, den="clitest-ctrl-c")
    words = ("run", "pack.yaml", "--count", "20", "--every-s", "0.5", "--gate", str(tmp_path / "gate"))
    terminal = Terminal(tmp_path, *words)
    try:
        terminal.wait_for("submitted 1")
        wait_for_file(tmp_path / "gate.started-0")
        yield tmp_path, terminal
    finally:
        terminal.kill()


def test_P56_the_first_ctrl_c_finishes_what_was_submitted(gated: tuple[Path, Terminal]) -> None:
    folder, terminal = gated
    terminal.press_ctrl_c()
    left = int(terminal.wait_for(r"nothing more is submitted; (\d+) submitted tasks? will be finished")[1])
    (folder / "gate").touch()
    assert 130 == terminal.end()
    assert left == len(marks(folder, "ended"))
    resume = re.search(r"--resume (\S+)", terminal.text)
    assert resume is not None

    again = start(folder, "run", "pack.yaml", "--count", "20", "--gate", str(folder / "gate"), "--resume", resume[1])
    assert 0 == again.returncode, again.stderr
    assert "20 submitted, 20 done" in again.stdout


def test_P56_the_second_ctrl_c_cancels_what_runs(gated: tuple[Path, Terminal]) -> None:
    folder, terminal = gated
    terminal.press_ctrl_c()
    terminal.wait_for("nothing more is submitted")
    terminal.press_ctrl_c()
    cancelled = int(terminal.wait_for(r"(\d+) tasks? cancelled")[1])
    assert 130 == terminal.end()
    assert cancelled >= 2
    assert [] == marks(folder, "ended")


def test_P56_the_third_ctrl_c_ends_all_at_once_and_the_ledger_keeps_the_rest(gated: tuple[Path, Terminal]) -> None:
    folder, terminal = gated
    terminal.press_ctrl_c()
    terminal.wait_for("nothing more is submitted")  # else three signals may be one to a process that is not running
    terminal.press_ctrl_c()
    terminal.wait_for("Cancelling what is queued")
    terminal.press_ctrl_c()
    assert 130 == terminal.end()
    assert "--resume" in terminal.text
    checked = start(folder, "ledger", "check", "pack.yaml")
    assert (0, []) == (checked.returncode, marks(folder, "ended"))
