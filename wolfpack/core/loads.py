"""What units say of their work: the newest load of each, who is stalled, and whom to give work to.

Load has a sequence of its own in each boot and the higher one wins; it says nothing about who lives. It may be seconds
old, so the strictly least loaded unit would be everybody's choice at once: the better of two drawn at random spreads as
well as fresh knowledge nearly does (Mitzenmacher, "The Power of Two Choices", 2001), and what oneself sent and nobody
confirmed yet is added to what a unit says.

Stalled: a unit that has leases and whose progress stands still for `stall_s`. Who hears from it directly and sees that
is a witness; three witnesses of the same progress make it so, and any progress, or the last lease gone, ends it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from wolfpack.core.items import LoadRecord, StallVote
from wolfpack.core.membership_words import Load, Status
from wolfpack.core.view import Member, View

WITNESSES = 3


class Heard(NamedTuple):
    boot: int
    load: Load
    since: float  # when this progress was first seen


def pressure(load: Load | None, unconfirmed: int) -> float:
    """How busy a unit is: what it has in hand and what is on its way to it, for each thing it runs at once."""
    if load is None:
        return float(unconfirmed)
    return (load.leases + unconfirmed) / max(1, load.capacity)


class Loads:
    """The loads that one unit knows."""

    __slots__ = ("_sent", "_stall_s", "_stalled", "_stalls", "_votes", "known")

    def __init__(self, stall_s: float, stalls: Mapping[str, float] | None = None) -> None:
        self._stall_s, self._stalls = stall_s, stalls
        self.known: dict[str, Heard] = {}
        self._sent: dict[str, int] = {}
        self._votes: dict[str, tuple[int, int, set[str]]] = {}  # boot, progress, witnesses
        self._stalled: set[str] = set()

    def hear(self, now: float, record: LoadRecord) -> bool:
        """Whether this is newer than what was known."""
        unit, boot, load = record
        before = self.known.get(unit)
        if before is not None:
            if (boot, load.seq) <= (before.boot, before.load.seq):
                return False
            if boot == before.boot and load.progress == before.load.progress and before.load.leases:
                self.known[unit] = Heard(boot, load, before.since)
                return True
        self.known[unit] = Heard(boot, load, now)
        return True

    def forget(self, unit: str) -> None:
        self.known.pop(unit, None)
        self._sent.pop(unit, None)
        self._votes.pop(unit, None)
        self._stalled.discard(unit)

    def shift(self, by_s: float) -> None:
        """A pause of this process is nobody's standstill."""
        self.known = {unit: heard._replace(since=heard.since + by_s) for unit, heard in self.known.items()}

    # --- stalled

    def is_stalled(self, unit: str) -> bool:
        return unit in self._stalled

    def witness(self, now: float, me: str, unit: str) -> StallVote | None:
        """`unit` was heard from directly just now; a vote if it stands still, and fewer than three others said so."""
        heard = self.known.get(unit)
        if heard is None or not heard.load.leases or now - heard.since < self._stall_s_of(unit):
            return None
        vote = StallVote(unit, heard.boot, heard.load.progress, me)
        return vote if len(self._witnesses(vote) - {me}) < WITNESSES else None

    def _stall_s_of(self, unit: str) -> float:
        return self._stall_s if self._stalls is None else self._stalls.get(unit, math.inf)

    def vote(self, vote: StallVote) -> bool:
        """Whether it was news: of the progress that is known here, by a new witness, while fewer than three said so."""
        heard = self.known.get(vote.unit)
        if heard is None or (vote.boot, vote.progress) != (heard.boot, heard.load.progress) or not heard.load.leases:
            return False
        witnesses = self._witnesses(vote)
        if len(witnesses) >= WITNESSES or vote.witness in witnesses or vote.witness == vote.unit:
            return False
        self._votes[vote.unit] = (vote.boot, vote.progress, witnesses | {vote.witness})
        return True

    def _witnesses(self, vote: StallVote) -> set[str]:
        boot, progress, witnesses = self._votes.get(vote.unit, (0, 0, set()))
        return witnesses if (boot, progress) == (vote.boot, vote.progress) else set()

    def judge(self, unit: str) -> bool | None:
        """True: it stalled just now; False: it goes on again; None: nothing changed."""
        heard = self.known.get(unit)
        votes = self._votes.get(unit)
        if heard is None or votes is None:
            return None
        if votes[:2] != (heard.boot, heard.load.progress) or not heard.load.leases:
            del self._votes[unit]
            if unit in self._stalled:
                self._stalled.discard(unit)
                return False
            return None
        if len(votes[2]) >= WITNESSES and unit not in self._stalled:
            self._stalled.add(unit)
            return True
        return None

    # --- whom to give work to

    def sent(self, unit: str, count: int = 1) -> None:
        """Work is on its way to this unit."""
        self._sent[unit] = self._sent.get(unit, 0) + count

    def confirmed(self, unit: str, count: int = 1) -> None:
        """It arrived, or never will."""
        left = self._sent.get(unit, 0) - count
        if left > 0:
            self._sent[unit] = left
        else:
            self._sent.pop(unit, None)

    def pressure_of(self, unit: str) -> float:
        heard = self.known.get(unit)
        return pressure(None if heard is None else heard.load, self._sent.get(unit, 0))

    def best_of_two(
        self, view: View, fits: Callable[[str], bool] | Collection[str], rng: random.Random, tries: int = 16
    ) -> str | None:
        """The less busy of two units drawn at random from the living that fit; the first drawn where both are equal.

        Each of the two is drawn at most `tries` times before all units are looked at.
        """
        first = self._draw(view, fits, rng, tries, None)
        if first is None:
            return None
        second = self._draw(view, fits, rng, tries, first)
        if second is None or self.pressure_of(first) <= self.pressure_of(second):
            return first
        return second

    def _draw(
        self,
        view: View,
        fits: Callable[[str], bool] | Collection[str],
        rng: random.Random,
        tries: int,
        other: str | None,
    ) -> str | None:
        if isinstance(fits, Collection):
            names = fits if isinstance(fits, Sequence) else sorted(fits)
            able = [unit for unit in names if unit != other and self._takes_work(view.get(unit))]
            return rng.choice(able) if able else None
        slots = view.slots
        for _ in range(tries):
            member = view.at(int(rng.random() * slots)) if slots else None
            if member is not None and member.unit != other and self._takes_work(member) and fits(member.unit):
                return member.unit
        able = [m.unit for m in view if m.unit != other and self._takes_work(m) and fits(m.unit)]
        return rng.choice(able) if able else None

    def _takes_work(self, member: Member | None) -> bool:
        return member is not None and member.status is Status.ALIVE and member.unit not in self._stalled
