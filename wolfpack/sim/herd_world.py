"""The world of one herd: its units, its messages, its time. For tests and experiments of one's own.

All units begin in one view (a shared base) as if they had lived together for long; those who come later join as they
would in earnest, from three addresses.

    herd = Herd(HerdPlan(units=40))
    herd.settle_in()
    herd.run(3.0)
    herd.crash(herd.alpha)
    took_s = herd.run_until(herd.led_by_one, 10.0)
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from zlib import crc32

from wolfpack.core.howls import Peer
from wolfpack.core.membership import Membership
from wolfpack.core.membership_words import (
    AddressesGiven,
    Load,
    LoadChanged,
    PacketHeard,
    Status,
    SyncAnswered,
    SyncAsked,
)  # fmt: skip
from wolfpack.core.succession import TermSeen
from wolfpack.core.suspicion import all_know_bound, few_left_bound_s
from wolfpack.core.view import Base, Member, View
from wolfpack.model import PROFILES, Timing
from wolfpack.sim.herd_keeper import HerdKeeper
from wolfpack.sim.herd_pack import Leadership, Office
from wolfpack.sim.herd_plan import HerdPlan
from wolfpack.sim.herd_unit import PACKET_MOST, HerdUnit
from wolfpack.sim.herd_watch import Watch
from wolfpack.sim.kernel import US, Kernel
from wolfpack.sim.network import Network, Weather

TELL_ALL = 64  # units: in herds up to this size every change of a status is part of the trace
JOIN_ADDRESSES = 3  # a newcomer is given so many
ALPHA_SILENCES = 6.0  # L1: x silence_s after faults stopped there is one alpha that everybody follows
WORK_S = 1.0  # the load of each unit of a busy herd changes so often
AGE_OBSERVERS = 100  # so many units are asked how old the loads are that they know
LOOK_S = 0.05  # how often `run_until` looks


class Herd:
    """The world of one herd.

    Attributes:
        units: the living boot of each unit by its id; dead ones stay until they are born again.
        ranked: all units of the herd, the highest rank first; `place_of` their places.
        living: how many live.
        packets, syncs, bytes: what membership sent.
    """

    def __init__(self, plan: HerdPlan, *, weather: Weather | None = None, timing: Timing | None = None) -> None:
        self.plan = plan = plan.checked()
        self.size = plan.units
        self.timing = timing or PROFILES[plan.profile]
        self.kernel = Kernel(plan.seed)
        self.network = Network(self.kernel, replace(weather or Weather(), lost=plan.loss))
        self.tells_all = plan.units <= TELL_ALL
        self.names = [f"unit-{no}" for no in range(plan.units)]
        self.ranked = tuple(Peer(unit=name, boot=1) for name in reversed(self.names))
        self.no_of = {name: no for no, name in enumerate(self.names)}
        self.place_of = {peer.unit: place for place, peer in enumerate(self.ranked)}
        self.units: dict[str, HerdUnit] = {}
        self.living = 0
        self.packets = self.syncs = self.bytes = 0
        self._checksum = 0
        self._tickets: dict[int, tuple[HerdUnit, HerdUnit]] = {}
        self._ticket = 0
        self.office: Office | None = None
        if plan.pack:
            keeper = HerdKeeper(reversed(self.ranked), self.timing, self.kernel.stream("keeper"))
            self.office = Office(self.kernel, self.network, keeper, self.timing)
        self.watch = Watch(self)
        self.boots = dict.fromkeys(self.names, 0)

    # --- units --------------------------------------------------------------------------------------------------

    def settle_in(self, names: list[str] | None = None) -> None:
        """These units (all of them) live from now on, in one view, each at its own point of its rounds."""
        born = self.names if names is None else names
        self.boots.update(dict.fromkeys(born, 1))
        if self.office is not None:
            self.office.keeper.settle_in(self.kernel.now, born)
        base = Base(Member(name, name, self.boots[name]) for name in born)
        for name in born:
            self._start(name, View(base))

    def birth(self, name: str, *, told: bool = True) -> HerdUnit:
        """A new process of this unit, with no memory; it joins from some addresses of the keeper's roster.

        Args:
            told: whether the keeper's hello tells it the term; else it only knows that it is alone.
        """
        if name in self.units and self.units[name].alive:
            self.crash(name)
        self._next_boot(name)
        unit = self._start(name, View())
        dice = self.kernel.stream("join", name, unit.boot)
        others = [each for each in self.units.values() if each.alive and each is not unit]
        given = dice.sample(others, min(JOIN_ADDRESSES, len(others)))
        unit.step(AddressesGiven(tuple((each.name, each.name, each.boot) for each in given)))
        if self.office is not None and unit.lead is not None and told:
            alpha = self.office.keeper.alpha
            if alpha is not None:
                unit.lead.take(TermSeen(self.office.keeper.term, *alpha))
        return unit

    def crash(self, name: str, *, left: bool = False) -> None:
        unit = self.units[name]
        if not unit.alive:
            return
        if left:
            unit.leave()
        else:
            unit.crash()
        self.living -= 1
        self.kernel.mix(f"{'leave' if left else 'crash'} {name} {unit.boot}")
        self.watch.died(unit, left=left)

    def leave(self, name: str) -> None:
        """It says goodbye, to the keeper too, and is gone."""
        unit = self.units[name]
        self.crash(name, left=True)
        if self.office is not None:
            self.office.keeper.lose(self.kernel.now, name, unit.boot)

    def _next_boot(self, name: str) -> None:
        self.boots[name] += 1
        if self.office is not None:
            boot = self.office.keeper.birth(self.kernel.now, name)
            assert boot == self.boots[name], f"the keeper counts boot {boot} of {name}, the herd {self.boots[name]}"

    def _start(self, name: str, view: View) -> HerdUnit:
        boot = self.boots[name]
        machine = Membership(
            me=name, boot=boot, address=name, den="herd", timing=self.timing,
            rng=self.kernel.stream("membership", name, boot), now=self.kernel.now, options=self.plan.options, view=view,
        )  # fmt: skip
        peer = Peer(unit=name, boot=boot)
        unit = HerdUnit(self, peer, self.no_of[name], self.place_of[name], machine)
        if self.office is not None:
            rng = self.kernel.stream("succession", name, boot)
            unit.lead = Leadership(self.office, peer, unit, rng, gossip=True)
        self.watch.reborn(unit)
        self.units[name] = unit
        self.living += 1
        self.kernel.mix(f"birth {name} {boot}")
        self.watch.born(unit)
        self.kernel.after(0.0, unit.start)
        if self.plan.busy:
            dice = self.kernel.stream("work", name, boot)
            self.kernel.after(dice.uniform(0.0, WORK_S), self._work, unit, dice)
        return unit

    def _work(self, unit: HerdUnit, dice: random.Random) -> None:
        """Its load is another one now. Its progress is the time, so that one sees how old a load is."""
        if not unit.alive:
            return
        if unit.is_up():
            leases = dice.randrange(5)
            load = Load(leases=leases, queued=leases // 2, capacity=4, progress=self.kernel.now_us // 1000)
            unit.take(LoadChanged(load))
        self.kernel.after(WORK_S, self._work, unit, dice)

    def load_ages_s(self) -> list[float]:
        """How old the loads are that some units know of all others; who never heard of one counts since its birth."""
        living = self.alive
        dice = self.kernel.stream("ages")
        observers = dice.sample(living, min(AGE_OBSERVERS, len(living)))
        ages = []
        for observer in observers:
            for subject in living:
                if subject is not observer:
                    load = observer.machine.load_of(subject.name)
                    ages.append(self.kernel.now - (0.0 if load is None else load.progress / 1000))
        return ages

    @property
    def alive(self) -> list[HerdUnit]:
        return [unit for unit in self.units.values() if unit.alive]

    @property
    def alpha(self) -> str | None:
        """Who holds the term, as the keeper has it."""
        alpha = self.office.keeper.alpha if self.office is not None else None
        return alpha[0] if alpha is not None else None

    # --- messages -----------------------------------------------------------------------------------------------

    def count_packet(self, unit: HerdUnit, data: bytes) -> None:
        self.packets += 1
        self.bytes += len(data)
        self._checksum = crc32(data, self._checksum)
        if len(data) > PACKET_MOST:
            self.watch.fault("I11", f"{unit.name} sent a packet of {len(data)} bytes")

    def count_sync(self, data: bytes) -> None:
        self.syncs += 1
        self.bytes += len(data)
        self._checksum = crc32(data, self._checksum)

    def arrive(self, to: str, source: str, data: bytes) -> None:
        """A packet reached this address."""
        unit = self.units.get(to)
        if unit is not None:
            unit.take(PacketHeard(source, data))

    def ask_sync(self, unit: HerdUnit, to: str, data: bytes) -> None:
        delay_us = self.network.stream_us(unit.name, to)
        if delay_us is not None:
            self.kernel.after_us(delay_us, self._sync_asked, unit, to, data)

    def _sync_asked(self, asker: HerdUnit, to: str, data: bytes) -> None:
        target = self.units.get(to)
        if target is None or not target.alive:
            return
        self._ticket += 1
        self._tickets[self._ticket] = asker, target
        target.take(SyncAsked(asker.name, data, self._ticket))

    def answer_sync(self, unit: HerdUnit, ticket: int, data: bytes) -> None:
        asker, target = self._tickets.pop(ticket)
        delay_us = self.network.stream_us(target.name, asker.name)
        if delay_us is not None:
            self.kernel.after_us(delay_us, asker.take, SyncAnswered(unit.name, data))

    # --- time ---------------------------------------------------------------------------------------------------

    def run(self, seconds: float) -> None:
        """Lets so many seconds pass."""
        self.kernel.run(seconds)

    def run_until(self, condition: Callable[[], object], within_s: float, *, look_s: float = LOOK_S) -> float | None:
        """Seconds until the condition held, asked each `look_s`; None: it did not within this time."""
        began_us = self.kernel.now_us
        while not condition():
            if self.kernel.now_us - began_us >= within_s * US:
                return None
            self.kernel.run(look_s)
        return (self.kernel.now_us - began_us) / US

    def views_equal(self) -> bool:
        """Whether all that live think the same of who lives, and nobody is under suspicion."""
        digest: int | None = None
        for unit in self.units.values():
            if not unit.alive:
                continue
            view = unit.machine.view
            if digest is None:
                digest = view.digest
            if view.digest != digest or view.living != self.living:
                return False
        return True

    def led_by_one(self) -> bool:
        """Whether all that live follow one living alpha."""
        alpha = self.alpha
        if alpha is None or not self.units[alpha].alive:
            return False
        return all(unit.lead is None or unit.lead.machine.alpha == alpha for unit in self.alive)

    def at_rest(self) -> bool:
        """Whether every crash is known, all views are equal and all follow one alpha."""
        return not self.watch.open and self.views_equal() and (self.office is None or self.led_by_one())

    def come_to_rest(self) -> float | None:
        """Lets time pass, without faults, until the herd is at rest; None: it is not within the bounds of L1 and L2."""
        known_s = all_know_bound(self.timing, max(2, self.living))
        known_s += few_left_bound_s(self.timing, self.living, self.size - self.living)
        bound_s = max(known_s, ALPHA_SILENCES * self.timing.silence_s)
        return self.run_until(self.at_rest, bound_s, look_s=self.timing.gossip_s)

    def statuses(self, of: str) -> dict[str, Status | None]:
        """What each living unit thinks of this one."""
        found = {}
        for unit in self.alive:
            member = unit.machine.view.get(of)
            found[unit.name] = None if member is None else member.status
        return found

    def trace_hash(self) -> str:
        self.kernel.mix(f"packets {self.packets} syncs {self.syncs} bytes {self.bytes} checksum {self._checksum}")
        return self.kernel.trace_hash
