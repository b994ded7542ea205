"""Whom to probe, and what is known of each probe under way.

A lap goes over all slots of the view once, in an order that no two laps share: start, and a stride without a common
divisor with the number of slots. So it needs no memory of its own (ten thousand shuffled laps of ten thousand units
would be a hundred million numbers), and whoever waits to be probed comes up at a place that is even over the lap.
"""

from __future__ import annotations

import math
import random

from wolfpack.core.membership_words import Status
from wolfpack.core.view import Member, View


class Probe:
    """A ping that waits for its ack; `again`: of a suspect, for its sake; `heal`: of one that is thought dead.

    `life` is the incarnation that was probed: a unit that defended itself since lives, whatever became of the ack.
    """

    __slots__ = ("ack_at", "address", "again", "asked", "end_at", "heal", "life", "nackers", "unit")

    def __init__(
        self, unit: str, address: str, ack_at: float, end_at: float, *, life: tuple[int, int] = (0, 0),
        again: bool = False, heal: bool = False,
    ) -> None:  # fmt: skip
        self.unit, self.address, self.life = unit, address, life
        self.ack_at, self.end_at = ack_at, end_at
        self.again, self.heal = again, heal
        self.asked: tuple[str, ...] = ()  # addresses of helpers
        self.nackers: set[str] = set()

    @property
    def due(self) -> float:
        return self.end_at if self.asked or self.heal else min(self.ack_at, self.end_at)


class Relay:
    """A ping on behalf of another: who asked, under which number, who must answer, and when to say that nobody did."""

    __slots__ = ("asker", "end_at", "nack_at", "number", "whom")

    def __init__(self, asker: str, number: int, whom: str, nack_at: float, end_at: float) -> None:
        self.asker, self.number, self.whom = asker, number, whom
        self.nack_at, self.end_at = nack_at, end_at

    @property
    def due(self) -> float:
        return min(self.nack_at, self.end_at)


class Lap:
    """Round-robin over a shuffled lap."""

    __slots__ = ("_left", "_rng", "_size", "_slot", "_stride")

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.reset()

    def reset(self) -> None:
        self._left = self._size = self._slot = 0
        self._stride = 1

    def next(self, view: View, me: str) -> Member | None:
        """The next unit to probe: alive or suspect, not oneself; None where there is nobody."""
        for _ in range(2 * view.slots + 1):
            if not self._left:
                self._begin(view.slots)
            self._left -= 1
            self._slot = (self._slot + self._stride) % self._size
            member = view.at(self._slot) if self._slot < view.slots else None
            if member is not None and member.status <= Status.SUSPECT and member.unit != me and member.address:
                return member
        return None

    def _begin(self, size: int) -> None:
        self._left = self._size = max(1, size)
        self._slot = int(self._rng.random() * self._size)
        self._stride = 1
        if size > 2:
            self._stride = 1 + int(self._rng.random() * (size - 1))
            while math.gcd(self._stride, size) != 1:
                self._stride = 1 + int(self._rng.random() * (size - 1))


def pick(view: View, rng: random.Random, count: int, but: tuple[str, ...]) -> list[Member]:
    """So many living units with an address, each at most once, drawn at random; fewer where there are no more."""
    slots = view.slots
    if slots <= 4 * (count + len(but)):
        able = [m for m in view if m.status <= Status.SUSPECT and m.address and m.unit not in but]
        return able if len(able) <= count else rng.sample(able, count)
    found: dict[str, Member] = {}
    for _ in range(12 * count):
        member = view.at(int(rng.random() * slots))
        if member is not None and member.status <= Status.SUSPECT and member.address and member.unit not in but:
            found[member.unit] = member
            if len(found) == count:
                break
    return list(found.values())
