"""How long a busy pack is without an alpha that hands out work.

    python -m benchmarks.failover [--json] [--kills 20] [--units 5]

The alpha of a pack of five is killed again and again, first by SIGKILL (its process dies: Ray tells), then by SIGSTOP
(its process freezes: only silence tells). Each time runs from the moment of the signal to the event of the first lease
of the next term. A feeder keeps the queue filled all the time; at the end every task must have settled as done.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import threading
import time
from concurrent.futures import Future
from typing import Any

import wolfpack
from benchmarks.figures import has_members, open_den, spread, wait_until
from packs.computing.alpha import NotOurs, signal_alpha
from packs.computing.story import Kill, read_events

TASK_S = 0.005
IN_FLIGHT = 60
PATIENCE_S = 60.0


class Feeder:
    """Keeps so many tasks in flight, from a thread of its own, and knows how each one ended."""

    def __init__(self, pack: wolfpack.Pack, in_flight: int = IN_FLIGHT) -> None:
        self._pack = pack
        self._room = threading.Semaphore(in_flight)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._feed, name="feeder")
        self.futures: list[Future[Any]] = []

    def __enter__(self) -> Feeder:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()

    def _feed(self) -> None:
        while not self._stop.is_set():
            if self._room.acquire(timeout=0.05):
                future = self._pack.submit(time.sleep, TASK_S)
                self.futures.append(future)
                future.add_done_callback(lambda _: self._room.release())

    def failed(self) -> int:
        """How many tasks ended without a value; waits for all of them."""
        return sum(future.exception(timeout=PATIENCE_S) is not None for future in self.futures)


def first_lease_after(den: wolfpack.Den, pack: str, since: int, term: int) -> wolfpack.Recorded | None:
    """The first lease of a term later than `term`, if there was one after event `since`."""
    for recorded in read_events(den, since):
        event = recorded.event
        if isinstance(event, wolfpack.FirstLease) and event.pack == pack and event.term > term:
            return recorded
    return None


def kill_once(pack: wolfpack.Pack, signum: int, units: int) -> float:
    """Signals the alpha of a full pack and waits for the next one's first lease.

    Returns:
        Seconds from the signal to that lease.
    """
    den = pack.den
    wait_until(lambda: has_members(pack, units), PATIENCE_S, f"{units} members and an alpha before the kill")
    events = read_events(den, 0)
    since = events[-1].number if events else 0
    term = pack.stats()["term"]
    killed: list[Kill] = []

    def try_to_kill() -> bool:
        try:
            kill = signal_alpha(pack, signum)
        except NotOurs:  # passes where the alpha is dying by itself; else the wait below ends with an error
            return False
        if kill:
            killed.append(kill)
        return bool(killed)

    wait_until(try_to_kill, PATIENCE_S, "an alpha on this machine that can be signalled")
    kill = killed[0]
    frozen = _handle(kill.pid) if signum == signal.SIGSTOP else None
    try:
        found: list[wolfpack.Recorded] = []

        def led_again() -> bool:
            first = first_lease_after(den, pack.name, since, term)
            if first is not None and first.at >= kill.at:
                found.append(first)
            return bool(found)

        wait_until(led_again, PATIENCE_S, f"a first lease after {kill.unit} got signal {signum}", every_s=0.05)
    finally:
        if frozen is not None:
            _thaw(frozen)
    return found[0].at - kill.at


def _handle(pid: int) -> int | None:
    """A handle on a process that cannot come to mean another one."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def _thaw(handle: int) -> None:
    try:
        signal.pidfd_send_signal(handle, signal.SIGCONT)
    except ProcessLookupError:
        pass  # the den has ended it
    finally:
        os.close(handle)


def measure(kills: int = 20, units: int = 5) -> dict[str, Any]:
    """Opens a den and kills its alpha by both signals; see the top of this file."""
    seconds: dict[str, list[float]] = {"SIGKILL": [], "SIGSTOP": []}
    with open_den("failover", units) as den:
        pack = den.pack("bench")
        with Feeder(pack) as feeder:
            for name, measured in seconds.items():
                for _ in range(kills):
                    measured.append(kill_once(pack, signal.Signals[name], units))
        failed = feeder.failed()
        conservation = bool(den.stats()["conservation"])
    return {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "units": units,
        "kills": kills,
        "failover_s": {name: spread(measured) for name, measured in seconds.items()},
        "tasks": len(feeder.futures),
        "failed": failed,
        "conservation": conservation,
    }


def table(found: dict[str, Any]) -> str:
    """The figures for a person."""
    lines = [
        f"{found['kills']} kills each of the alpha of {found['units']} units, {found['cores']} cores",
        f"{'seconds to the next first lease':34}{'median':>9}{'best':>9}{'worst':>9}",
    ]
    for name, times in found["failover_s"].items():
        lines.append(f"{name:34}{times['median']:9.3f}{times['min']:9.3f}{times['max']:9.3f}")
    sums = "adds up" if found["conservation"] else "DOES NOT ADD UP"
    lines.append(f"{found['tasks']:,} tasks meanwhile, {found['failed']} failed; the ledger's count {sums}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Seconds without an alpha, after SIGKILL and after SIGSTOP.")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    parser.add_argument("--kills", type=int, default=20, help="by each signal")
    parser.add_argument("--units", type=int, default=5)
    options = parser.parse_args()
    found = measure(options.kills, options.units)
    print(json.dumps(found) if options.json else table(found), flush=True)


if __name__ == "__main__":
    main()
