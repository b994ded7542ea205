"""Virtual time: one heap of events in whole microseconds, chance by name, and a hash of all that happened.

Theory of operation. Everything that a simulated world does is an event, ordered by `(us, no)`: when it is due, and the
order in which it was asked for. Time stands still while an event runs and jumps to the next one. Floats of seconds are
for the machines under test; the kernel counts in integers, so that no sum of delays depends on its order.

Chance comes from `stream(*names)`: a generator of its own for each unit and each part of the world, its seed derived
from the kernel's seed and the names. A part that draws once more moves no other part's dice. (Never seed with
Python's `hash()`: it differs from process to process.)

What happened goes into `mix`, in its order: two runs with one `trace_hash` are the same run, in any process, under any
PYTHONHASHSEED, and any supported Python. So nothing that reaches the trace may come from the order of a set.

    kernel = Kernel(seed=7)
    kernel.after(0.5, print, "half a second later")
    kernel.run(1.0)
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from wolfpack.errors import CallerError

US = 1_000_000  # microseconds in a second
MIX_BYTES = 1 << 16  # the trace is hashed in pieces of about this size


SECONDS_MOST = 1e8  # of one run: three years


def check_seconds(seconds: float) -> None:
    """Raises CallerError unless a run can take so long."""
    if not 0.0 < seconds <= SECONDS_MOST:
        raise CallerError(f"A run takes more than 0 and at most {SECONDS_MOST:,.0f} seconds, not {seconds:g}.")


def to_us(seconds: float) -> int:
    """Whole microseconds, never before now: a delay below zero is none."""
    return round(seconds * US) if seconds > 0.0 else 0


def seed_of(seed: int, *names: object) -> int:
    """A seed for the part of a world with these names; the same in every process and version of Python."""
    text = "\x1f".join([str(seed), *map(str, names)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "big")


class Kernel:
    """One run of virtual time.

    Attributes:
        seed: what all chance of this run is derived from.
        now_us: virtual time since the start, in microseconds.
        now: the same in seconds; what machines under test are given.
        steps: events that ran.
    """

    __slots__ = ("_heap", "_mixed", "_mixed_bytes", "_no", "_trace", "now", "now_us", "seed", "steps")

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.now_us = 0
        self.now = 0.0
        self.steps = 0
        self._heap: list[tuple[int, int, Callable[..., object], tuple[Any, ...]]] = []
        self._no = 0
        self._trace = hashlib.blake2b(digest_size=16)
        self._mixed: list[str] = []
        self._mixed_bytes = 0

    # --- time ---------------------------------------------------------------------------------------------------

    def at_us(self, us: int, what: Callable[..., object], *args: Any) -> None:
        """Runs `what(*args)` at this virtual time; at once, after all that is due, if that time has passed."""
        self._no += 1
        heappush(self._heap, (us if us > self.now_us else self.now_us, self._no, what, args))

    def after_us(self, delay_us: int, what: Callable[..., object], *args: Any) -> None:
        self._no += 1
        heappush(self._heap, (self.now_us + delay_us if delay_us > 0 else self.now_us, self._no, what, args))

    def after(self, delay_s: float, what: Callable[..., object], *args: Any) -> None:
        """Runs `what(*args)` so many seconds from now."""
        self._no += 1
        due_us = self.now_us + round(delay_s * US) if delay_s > 0.0 else self.now_us
        heappush(self._heap, (due_us, self._no, what, args))

    def run(self, seconds: float) -> None:
        """Lets so many seconds pass."""
        self.run_to_us(self.now_us + to_us(seconds))

    def run_to_us(self, end_us: int) -> None:
        """Runs all that is due up to and including this time."""
        heap, pop = self._heap, heappop
        while heap and heap[0][0] <= end_us:
            us, _, what, args = pop(heap)
            self.now_us, self.now = us, us / US
            self.steps += 1
            what(*args)
        self.now_us, self.now = end_us, end_us / US

    def run_until(self, condition: Callable[[], object], within_s: float) -> bool:
        """Lets time pass until the condition holds, asked before each event; says whether it did in time."""
        end_us = self.now_us + to_us(within_s)
        heap = self._heap
        while not condition():
            if not heap or heap[0][0] > end_us:
                self.now_us, self.now = end_us, end_us / US
                return bool(condition())
            us, _, what, args = heappop(heap)
            self.now_us, self.now = us, us / US
            self.steps += 1
            what(*args)
        return True

    # --- chance -------------------------------------------------------------------------------------------------

    def stream(self, *names: object) -> random.Random:
        """A new generator for the part with these names, at its beginning: ask once and keep it."""
        return random.Random(seed_of(self.seed, *names))

    # --- trace --------------------------------------------------------------------------------------------------

    def mix(self, what: str) -> None:
        """Adds one thing that happened, with its time, to the trace hash."""
        line = f"{self.now_us} {what}\n"
        self._mixed.append(line)
        self._mixed_bytes += len(line)
        if self._mixed_bytes >= MIX_BYTES:
            self._flush()

    def _flush(self) -> None:
        self._trace.update("".join(self._mixed).encode("utf-8", "surrogatepass"))
        self._mixed.clear()
        self._mixed_bytes = 0

    @property
    def trace_hash(self) -> str:
        """Of all that was mixed in so far, as 32 hex digits."""
        self._flush()
        return self._trace.hexdigest()
