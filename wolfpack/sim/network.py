"""A bad network between the ends of a simulated world: loss, doubling, delay, reordering, clogs and partitions.

An end is any name: the id of a unit, `"keeper"`, a number. One-way messages go through `send` and may be lost, doubled
and overtaken. What runs over a connection (a Ray call, TCP) asks `stream_us`: it is never doubled, and a lost packet
costs a retransmission; only a cut stops it. Each sender has dice of its own, so that one more message of one end moves
no other end's luck.

    network = Network(kernel, Weather(lost=0.1))
    network.send("grey-0", "grey-1", unit.on_packet, data)
    cut = network.cut({"grey-0"})          # isolate one; one_way=True: only what it sends is lost
    network.heal(cut)

A bridge is a cut of A from B with some end in neither: it hears both sides. Pauses, crashes and slow units are the
world's business: it decides what `deliver` does.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from math import log
from typing import Any

from wolfpack.sim.kernel import US, Kernel, to_us

End = Hashable
RETRANSMIT_S = 0.2  # what a lost packet costs a connection, doubled each time it is lost again; as TCP's least timeout
RETRANSMITS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """How the network treats each message."""

    # Uniform delay: least, most.
    delay_s: tuple[float, float] = (0.0005, 0.0015)
    # Mean of an exponential delay on top; 0: none.
    exponential_s: float = 0.0
    # Part of one-way messages that are lost; connections retransmit.
    lost: float = 0.0
    # Part of one-way messages that arrive twice.
    doubled: float = 0.0
    # Part of messages that take up to `late_s` longer, so that later ones overtake them.
    late: float = 0.0
    late_s: float = 0.3
    # Part of calls that fail at the caller though the other side may have taken them; for worlds that make calls.
    unreachable: float = 0.0


@dataclass(frozen=True, slots=True)
class Cut:
    """Messages between `a` and `b` are lost, in one direction or both; `b` None: everybody not in `a`."""

    a: frozenset[End]
    b: frozenset[End] | None = None
    one_way: bool = False  # only from a to b

    def severs(self, source: End, target: End) -> bool:
        from_a, to_a = source in self.a, target in self.a
        if self.b is None:
            return (from_a and not to_a) or (to_a and not from_a and not self.one_way)
        if from_a and target in self.b:
            return True
        return not self.one_way and to_a and source in self.b


class Network:
    """Carries messages on the kernel's time.

    Attributes:
        weather: of every path; may be replaced at any moment.
        sent, lost, doubled: one-way messages so far; lost ones are those of weather and cuts.
    """

    def __init__(self, kernel: Kernel, weather: Weather | None = None) -> None:
        self.kernel = kernel
        self.weather = weather or Weather()
        self.sent = self.lost = self.doubled = 0
        self._cuts: list[Cut] = []
        self._clogs: dict[tuple[End | None, End | None], int] = {}
        self._dice: dict[End, random.Random] = {}

    # --- messages -----------------------------------------------------------------------------------------------

    def send(self, source: End, target: End, deliver: Callable[..., object], *args: Any) -> None:
        """A one-way message: `deliver(*args)` is called when it arrives, never, or twice."""
        self.sent += 1
        weather = self.weather
        if self._cuts and self.severed(source, target):
            self.lost += 1
            return
        dice = self.dice(source)
        if weather.lost and dice.random() < weather.lost:
            self.lost += 1
            return
        kernel = self.kernel
        kernel.after_us(self._delay_us(source, target, dice), deliver, *args)
        if weather.doubled and dice.random() < weather.doubled:
            self.doubled += 1
            kernel.after_us(self._delay_us(source, target, dice), deliver, *args)

    def stream_us(self, source: End, target: End) -> int | None:
        """How long a message over a connection takes now, in microseconds; None: it does not get through at all."""
        if self._cuts and self.severed(source, target):
            return None
        dice, weather = self.dice(source), self.weather
        delay_us = self._delay_us(source, target, dice)
        if weather.lost:
            wait_s = RETRANSMIT_S
            for _ in range(RETRANSMITS):
                if dice.random() >= weather.lost:
                    return delay_us
                delay_us += to_us(wait_s)
                wait_s *= 2
            return None
        return delay_us

    def dice(self, source: End) -> random.Random:
        """The chance of what this end sends."""
        dice = self._dice.get(source)
        if dice is None:
            dice = self._dice[source] = self.kernel.stream("network", source)
        return dice

    def _delay_us(self, source: End, target: End, dice: random.Random) -> int:
        weather = self.weather
        low, high = weather.delay_s
        delay_s = low + (high - low) * dice.random() if high > low else low
        if weather.exponential_s:
            delay_s -= weather.exponential_s * log(1.0 - dice.random())
        if weather.late and dice.random() < weather.late:
            delay_s += weather.late_s * dice.random()
        delay_us = round(delay_s * US)
        if self._clogs:
            opens_us = self._opens_us(source, target) - self.kernel.now_us
            if opens_us > 0:
                return opens_us + delay_us
        return delay_us

    # --- partitions and clogs -----------------------------------------------------------------------------------

    def cut(self, a: Iterable[End], b: Iterable[End] | None = None, *, one_way: bool = False) -> Cut:
        """Cuts `a` from `b` (None: from everybody else) until `heal`; what is on its way still arrives."""
        cut = Cut(frozenset(a), None if b is None else frozenset(b), one_way)
        self._cuts.append(cut)
        return cut

    def heal(self, cut: Cut | None = None) -> None:
        """Ends one cut; None: all cuts and clogs."""
        if cut is None:
            self._cuts.clear()
            self._clogs.clear()
        elif cut in self._cuts:
            self._cuts.remove(cut)

    def severed(self, source: End, target: End) -> bool:
        """Whether a cut lies between these two, in this direction."""
        return any(cut.severs(source, target) for cut in self._cuts)

    def clog(self, source: End | None, target: End | None, seconds: float) -> None:
        """Nothing passes on this path for so long; what was sent meanwhile arrives afterwards. None: any end."""
        until_us = self.kernel.now_us + to_us(seconds)
        self._clogs[source, target] = max(until_us, self._clogs.get((source, target), 0))

    def _opens_us(self, source: End, target: End) -> int:
        now_us = self.kernel.now_us
        clogs = self._clogs
        if max(clogs.values()) <= now_us:
            clogs.clear()
            return 0
        paths = ((source, target), (source, None), (None, target), (None, None))
        return max(clogs.get(path, 0) for path in paths)
