"""A handful of membership machines on one heap of virtual time: enough network to show a case, and no more."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable

from wolfpack.core.membership import Membership
from wolfpack.core.membership_words import (
    AddressesGiven,
    AlphaHeard,
    AnswerSync,
    AskSync,
    DeathHinted,
    Event,
    MembershipOptions,
    PacketHeard,
    SendPacket,
    Stalled,
    Status,
    StatusChanged,
    SyncAnswered,
    SyncAsked,
    Ticked,
)
from wolfpack.core.view import Base, Member, View
from wolfpack.model import PROFILES, Timing

RAY = PROFILES["ray"]


class Pump:
    """Units by name; the address of a unit is its name in capitals, so that nobody can mistake one for the other."""

    def __init__(self, seed: int = 1, *, timing: Timing = RAY, options: MembershipOptions | None = None) -> None:
        self.now = 0.0
        self.rng = random.Random(seed)
        self.timing, self.options = timing, options or MembershipOptions()
        self.units: dict[str, Membership] = {}
        self.at_address: dict[str, str] = {}
        self.frozen: dict[str, list[Event]] = {}
        self.loss = 0.0
        self.delay_s = (0.001, 0.005)
        self.cut: Callable[[str, str], bool] = lambda source, to: False  # by names
        self.sent: list[tuple[str, str, bytes]] = []  # source, to, data
        self.changes: list[tuple[float, str, StatusChanged]] = []  # when, who thinks so, what
        self.stalls: list[tuple[str, Stalled]] = []
        self.alphas: list[tuple[str, AlphaHeard]] = []
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._asked: dict[int, str] = {}
        self._wakes: dict[str, float] = {}

    def birth(
        self, name: str, *, boot: int = 1, den: str = "timber", knows: Iterable[str] = (), view: View | None = None,
        options: MembershipOptions | None = None,
    ) -> Membership:  # fmt: skip
        address = name.upper()
        unit = Membership(
            me=name, boot=boot, address=address, den=den, timing=self.timing, rng=random.Random(self.rng.random()),
            now=self.now, options=options or self.options, view=view,
        )  # fmt: skip
        self.units[name] = unit
        self.at_address[address] = name
        self.frozen.pop(name, None)
        self.give(name, AddressesGiven(tuple((other.upper(), "", 0) for other in knows)))
        return unit

    def births(self, *names: str) -> None:
        """All of them born into a den whose units know each other."""
        base = Base(Member(name, name.upper(), 1) for name in names)
        for name in names:
            self.birth(name, view=View(base))

    def crash(self, name: str) -> None:
        del self.units[name]
        self._wakes.pop(name, None)

    def freeze(self, name: str) -> None:
        self.frozen[name] = []

    def resume(self, name: str) -> None:
        """What was queued is handled first, in order; the overdue tick is one of it."""
        queued = self.frozen.pop(name)
        self.give(name, Ticked())
        for event in queued:
            self.give(name, event)

    def hint(self, name: str, other: str) -> None:
        self.give(name, DeathHinted(other, self.units[other].boot))

    def give(self, name: str, event: Event) -> None:
        unit = self.units.get(name)
        if unit is None:
            return
        if name in self.frozen:
            if not isinstance(event, Ticked):
                self.frozen[name].append(event)
            return
        for order in unit.step(self.now, event):
            self._carry_out(name, order)
        wake = unit.next_wake()
        if self._wakes.get(name) != wake and wake < 1e9:
            self._wakes[name] = wake
            self.at(max(wake, self.now), lambda: self._tick(name, unit, wake))

    def _tick(self, name: str, unit: Membership, wake: float) -> None:
        if self.units.get(name) is unit and self._wakes.get(name) == wake:
            if name in self.frozen:
                return
            del self._wakes[name]
            self.give(name, Ticked())

    def _carry_out(self, name: str, order: object) -> None:
        match order:
            case SendPacket(to, data):
                self.sent.append((name, to, data))
                if self.rng.random() >= self.loss:
                    self._deliver(name, to, PacketHeard(name.upper(), data))
            case AskSync(to, data):
                self.sent.append((name, to, data))
                self._count += 1
                self._asked[self._count] = name
                self._deliver(name, to, SyncAsked(name.upper(), data, self._count))
            case AnswerSync(ticket, data):
                asker = self._asked.pop(ticket)
                self.sent.append((name, asker.upper(), data))
                self._deliver(name, asker.upper(), SyncAnswered(name.upper(), data))
            case StatusChanged():
                self.changes.append((self.now, name, order))
            case Stalled():
                self.stalls.append((name, order))
            case AlphaHeard():
                self.alphas.append((name, order))

    def _deliver(self, source: str, to: str, event: Event) -> None:
        name = self.at_address.get(to)
        if name is not None and not self.cut(source, name):
            self.at(self.now + self.rng.uniform(*self.delay_s), lambda: self.give(name, event))

    def at(self, when: float, what: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._heap, (when, self._count, what))

    def run(self, seconds: float) -> None:
        self.run_until(lambda: False, seconds, must=False)

    def run_until(self, done: Callable[[], bool], seconds: float, *, must: bool = True) -> float:
        """Returns how long it took."""
        start, end = self.now, self.now + seconds
        for name in list(self.units):
            if name not in self._wakes and name not in self.frozen:
                self._set_wake(name)
        while not done() and self._heap and self._heap[0][0] <= end:
            self.now, _, what = heapq.heappop(self._heap)
            what()
        if done():
            return self.now - start
        assert not must, f"not within {seconds} s; views: {self.story()}"
        self.now = end
        return seconds

    def _set_wake(self, name: str) -> None:
        unit, wake = self.units[name], self.units[name].next_wake()
        self._wakes[name] = wake
        self.at(max(wake, self.now), lambda: self._tick(name, unit, wake))

    def status(self, who: str, of: str) -> Status | None:
        member = self.units[who].view.get(of)
        return None if member is None else member.status

    def all_see(self, status: Status, of: str) -> bool:
        return all(self.status(who, of) is status for who in self.units if who != of)

    def agree(self) -> bool:
        """L3 and L4: everybody thinks that exactly those live who do, and that none is suspect."""
        units = list(self.units.values())
        if any(unit.view.digest != units[0].view.digest or unit.view.living != len(units) for unit in units):
            return False
        living = set(self.units)
        return all({m.unit for m in u.view if m.lives} == living and not u.view.suspects for u in units)

    def story(self) -> dict[str, dict[str, str]]:
        return {who: {m.unit: f"{m.status.name} {m.boot}.{m.counter}" for m in u.view} for who, u in self.units.items()}
