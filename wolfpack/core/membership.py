"""Membership: who lives in the den, as one unit sees it. One pure machine per unit."""

from __future__ import annotations

import random
from collections.abc import Callable

from wolfpack.core.membership_words import Event, Load, MembershipOptions, Order
from wolfpack.core.view import View
from wolfpack.model import Timing


class Membership:
    """The membership of one unit. See `step`."""

    def __init__(
        self, *, me: str, boot: int, address: str, den: str, timing: Timing, rng: random.Random, now: float,
        options: MembershipOptions = MembershipOptions(), view: View | None = None,
    ) -> None:  # fmt: skip
        self.me, self.boot, self.address, self.den = me, boot, address, den
        self.timing, self.options, self.view = timing, options, view or View()
        self.counter = 0
        self.health = 0  # 0..8
        self.counters: dict[str, int] = {}
        self._rng = rng
        self._now = now

    def next_wake(self) -> float:
        """When to call `Ticked` next."""
        return self._now + self.timing.probe_s

    def step(self, now: float, event: Event) -> list[Order]:
        """Takes one event in; returns what to do, in this order."""
        self._now = now
        return []

    def load_of(self, unit: str) -> Load | None:
        """The newest load known of a unit; None: it never said, or is not alive."""
        return None

    def best_unit(self, fits: Callable[[str], bool], *, tries: int = 16) -> str | None:
        """Best of two living units that fit, by load plus own unacknowledged sends, oneself included."""
        return None

    def sent(self, unit: str, count: int = 1) -> None:
        """Work went to this unit that its load cannot show yet; forgotten when its next load comes."""
