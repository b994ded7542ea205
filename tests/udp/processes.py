"""Units as real processes on loopback: started by `python -m wolfpack.udp`, told what to do, and listened to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from wolfpack.core.membership_words import Status

ALIVE, SUSPECT, LEFT, DEAD = (status.name for status in (Status.ALIVE, Status.SUSPECT, Status.LEFT, Status.DEAD))
START_S = 20.0  # a busy machine
REPLY_S = 10.0


def wait_until(test: Callable[[], Any], within_s: float, *, what: str) -> float:
    """Waits for a condition; returns how long it took."""
    began = time.monotonic()
    while not test():
        assert time.monotonic() - began < within_s, f"not within {within_s:g} s: {what}"
        time.sleep(0.01)
    return time.monotonic() - began


class UnitProcess:
    """One process, and all it said."""

    def __init__(self, unit: str, den: str, *, seeds: Iterable[str] = (), bind: str = "127.0.0.1:0") -> None:
        self.unit = unit
        self.lines: list[dict[str, Any]] = []
        command = [sys.executable, "-m", "wolfpack.udp", "--unit", unit, "--den", den, "--bind", bind, "--orders"]
        self._process = subprocess.Popen(
            [*command, "--seeds", ",".join(seeds)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.errors: list[str] = []  # lines on standard error
        for read in (self._read, self._read_errors):
            threading.Thread(target=read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(json.loads(line))

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        self.errors.extend(self._process.stderr)

    def said(self, what: str) -> list[dict[str, Any]]:
        return [line for line in list(self.lines) if line["say"] == what]

    # --- what it is

    def started(self) -> dict[str, Any]:
        wait_until(lambda: self.said("started") or not self.lives, START_S, what=f"{self.unit} started")
        wait_until(lambda: self.said("started"), 1.0, what=f"{self.unit} started: {self.errors}")
        return self.said("started")[0]

    @property
    def address(self) -> str:
        return self.started()["address"]

    @property
    def boot(self) -> int:
        return self.started()["boot"]

    # --- what it thinks of others

    def changes(self, unit: str, boot: int | None = None) -> list[tuple[str, float]]:
        """Status and time of each change of what it thinks of a unit, or of one boot of it."""
        found = [line for line in self.said("change") if line["change"] == "StatusChanged" and line["unit"] == unit]
        return [(line["status"], line["at"]) for line in found if boot in (None, line["boot"])]

    def thinks(self, unit: str, boot: int | None = None) -> str | None:
        changes = self.changes(unit, boot)
        return changes[-1][0] if changes else None

    # --- orders

    def order(self, do: str, **fields: Any) -> None:
        self.write(json.dumps({"do": do, **fields}))

    def write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def close_orders(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def ask(self, do: str) -> dict[str, Any]:
        before = len(self.said(do))
        self.order(do)
        wait_until(lambda: len(self.said(do)) > before, REPLY_S, what=f"{self.unit} answers {do}")
        return self.said(do)[before]

    def members(self) -> dict[str, dict[str, Any]]:
        return {member["unit"]: member for member in self.ask("members")["members"]}

    def counters(self) -> dict[str, int]:
        return self.ask("counters")["counters"]

    # --- its life

    @property
    def lives(self) -> bool:
        return self._process.poll() is None

    def signal(self, number: signal.Signals) -> float:
        """Returns when it was sent."""
        self._process.send_signal(number)
        return time.time()

    def wait(self) -> int:
        return self._process.wait(REPLY_S)

    def end(self) -> None:
        if self.lives:
            os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait(REPLY_S)


class Cluster:
    """Five units of one den that live, and their first one as the seed of all."""

    SIZE = 5

    def __init__(self, den: str) -> None:
        self.den = den
        self.units: dict[str, UnitProcess] = {}
        self._ended: list[UnitProcess] = []
        self.start("u-1")
        self.seed = self.units["u-1"].address
        for number in range(2, self.SIZE + 1):
            self.start(f"u-{number}")

    def start(self, unit: str) -> UnitProcess:
        seeds = [self.units["u-1"].address] if unit != "u-1" else []
        if unit in self.units:
            self._ended.append(self.units[unit])
        self.units[unit] = UnitProcess(unit, self.den, seeds=seeds)
        return self.units[unit]

    def others(self, *units: str) -> list[UnitProcess]:
        return [process for unit, process in self.units.items() if unit not in units]

    def agreed(self) -> bool:
        """Whether everybody thinks everybody alive, in the boot that it has."""
        boots = {unit: process.boot for unit, process in self.units.items()}
        return all(
            process.thinks(unit, boots[unit]) == ALIVE
            for process in self.units.values()
            for unit in boots
            if unit != process.unit
        )

    def whole(self) -> None:
        """Brings back who is gone, and waits until all agree."""
        for unit, process in list(self.units.items()):
            if not process.lives:
                self.start(unit)
        wait_until(self.agreed, 30.0, what="all units know each other")

    def end(self) -> None:
        for process in [*self.units.values(), *self._ended]:
            process.end()
