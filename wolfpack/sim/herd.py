"""A herd: thousands of units in virtual time, each with the real membership and the real succession of one pack.

    plan = HerdPlan(units=1000, seconds=60, crash=0.2)
    result = run_herd(plan)
    result.all_know_s["p50"]

All units begin in one view (a shared base) as if they had lived together for long; those who come later join as they
would in earnest, from three addresses. Everything is drawn from the seed. `Herd` is the world for tests and for
experiments of one's own: `crash`, `birth`, `leave`, `stop`, `block`, `go_on`, `network.cut`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any
from zlib import crc32

from wolfpack.core.howls import Peer
from wolfpack.core.membership import Membership
from wolfpack.core.membership_words import (
    AddressesGiven,
    MembershipOptions,
    PacketHeard,
    Status,
    SyncAnswered,
    SyncAsked,
)
from wolfpack.core.succession import TermSeen
from wolfpack.core.suspicion import all_know_bound
from wolfpack.core.view import Base, Member, View
from wolfpack.errors import CallerError, unknown_name
from wolfpack.model import PROFILES, Timing
from wolfpack.sim.herd_faults import MENUS, Faults
from wolfpack.sim.herd_keeper import HerdKeeper
from wolfpack.sim.herd_pack import Leadership, Office
from wolfpack.sim.herd_unit import PACKET_MOST, HerdUnit
from wolfpack.sim.herd_watch import Watch, share_at
from wolfpack.sim.kernel import US, Kernel
from wolfpack.sim.network import Network, Weather

TELL_ALL = 64  # units: in herds up to this size every change of a status is part of the trace
JOIN_ADDRESSES = 3  # a newcomer is given so many
CRASH_AT = 1 / 6  # of the run: then a share of all crashes at once
ALPHA_SILENCES = 6.0  # L1: x silence_s after faults stopped there is one alpha that everybody follows
LOOK_S = 0.05  # whether all views are equal is asked so often, after a crash
OURS = MembershipOptions()
SIZE_MOST = 10_000  # what the keeper's book holds in one pack


@dataclass(frozen=True, slots=True, kw_only=True)
class HerdPlan:
    """One run. Same plan, same trace hash."""

    # How many units there are.
    units: int = 50
    # How long it runs, in virtual seconds; then all is made well, and the herd must come to rest.
    seconds: float = 60.0
    # What all chance is drawn from.
    seed: int = 0
    # This share crashes at once, after a sixth of the run; 0: nobody, else at least one.
    crash: float = 0.0
    # This share of all packets is lost; connections retransmit.
    loss: float = 0.0
    # Menus of random faults: see `herd_faults.MENUS`.
    faults: tuple[str, ...] = ()
    # The timing profile.
    profile: str = "ray"
    # Whether the units are a pack with a keeper; else membership only.
    pack: bool = True
    # Switches of the membership core.
    options: MembershipOptions = OURS

    def checked(self) -> HerdPlan:
        """Itself.

        Raises:
            CallerError: a number makes no sense, or there is no such profile or menu.
        """
        if not 2 <= self.units <= SIZE_MOST:
            raise CallerError(f"A herd has 2 to {SIZE_MOST} units, not {self.units}.")
        if not 0.0 < self.seconds <= 1e8:
            raise CallerError(f"A run takes more than 0 and at most 1e8 seconds, not {self.seconds:g}.")
        for name, share in (("crash", self.crash), ("loss", self.loss)):
            if not 0.0 <= share < 1.0:
                raise CallerError(f"The {name} is a share from 0 to below 1, not {share:g}.")
        if self.profile not in PROFILES:
            raise unknown_name("timing profile", self.profile, PROFILES)
        for menu in self.faults:
            if menu not in MENUS:
                raise unknown_name("menu of faults", menu, MENUS)
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class HerdResult:
    """What came of a run. Times are virtual seconds but `wall_s` and `cpu_s`; a figure that has no value is None.

    Figures are of the plan's time; `calm_s` more passed, without faults, until all followed one alpha with equal views.
    """

    units: int
    virtual_s: float
    wall_s: float
    cpu_s: float
    # Membership's packets and syncs; howls of the election are counted apart.
    messages: int
    bytes: int
    howls: int
    messages_per_unit_s: float
    violations: int
    # Ids of what was violated, with counts, and the first ones in words.
    violated: dict[str, int] = field(default_factory=dict)
    story: tuple[str, ...] = ()
    # Changes of alpha after the first one.
    alpha_changes: int = 0
    crashed: int = 0
    # From a crash to the first unit that calls it DEAD, and until all survivors do: over the crashed units.
    first_dead_s: dict[str, float | None] = field(default_factory=dict)
    all_know_s: dict[str, float | None] = field(default_factory=dict)
    # From the crash until the views of all survivors are equal.
    views_equal_s: float | None = None
    # From the first DEAD about a unit until 99.99% of the survivors had it too, over all.
    spread_9999_s: float | None = None
    # Protocol periods (probe_s) from the crash until everybody knew.
    rounds: float | None = None
    # Times that a living unit was held DEAD by another one.
    false_positives: int = 0
    healthy_false_positives: int = 0
    calm_s: float | None = None
    seed: int = 0
    profile: str = "ray"
    trace_hash: str = ""

    def to_plain(self) -> dict[str, Any]:
        return {**asdict(self), "story": list(self.story)}


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
        return unit

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
        bound_s = max(all_know_bound(self.timing, max(2, self.living)), ALPHA_SILENCES * self.timing.silence_s)
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


# --- a run of a plan ----------------------------------------------------------------------------------------------


def run_herd(plan: HerdPlan, *, each_s: float = 0.0, look: Callable[[Herd], object] | None = None) -> HerdResult:
    """Runs the plan.

    Args:
        plan: what happens.
        each_s, look: `look(herd)` is called so often, for pictures.

    Raises:
        CallerError: the plan makes no sense.
    """
    began = time.perf_counter(), time.process_time()
    herd = Herd(plan)
    faults = Faults(herd)
    faults.begin()
    if look is not None and each_s:
        _look_on(herd, look, each_s)
    equal_s: float | None = None
    if plan.crash:
        herd.run(plan.seconds * CRASH_AT)
        crash_share(herd, plan.crash)
        equal_s = herd.run_until(herd.views_equal, plan.seconds * (1 - CRASH_AT))
    herd.kernel.run_to_us(round(plan.seconds * US))
    result = _result(herd, equal_s, began)
    faults.end()
    calm_s = herd.come_to_rest()
    herd.watch.at_the_end()
    violations = herd.watch.violations
    return replace(
        result, calm_s=_rounded(calm_s), violations=sum(violations.values()), violated=dict(violations),
        story=tuple(herd.watch.story), trace_hash=herd.trace_hash(),
    )  # fmt: skip


def crash_share(herd: Herd, share: float) -> list[str]:
    """Crashes this share of the living at once, at least one; returns who."""
    names = [unit.name for unit in herd.alive]
    count = min(len(names) - 1, max(1, round(share * len(names))))
    chosen = herd.kernel.stream("crash").sample(names, count)
    for name in chosen:
        herd.crash(name)
    return chosen


def _look_on(herd: Herd, look: Callable[[Herd], object], each_s: float) -> None:
    if herd.kernel.now > herd.plan.seconds:
        return
    look(herd)
    herd.kernel.after(each_s, _look_on, herd, look, each_s)


def _result(herd: Herd, equal_s: float | None, began: tuple[float, float]) -> HerdResult:
    watch, plan, office = herd.watch, herd.plan, herd.office
    virtual_s = herd.kernel.now
    messages = herd.packets + herd.syncs
    firsts, alls = watch.firsts_s(), watch.alls_s()
    crashed = sum(1 for death in watch.deaths.values() if not death.left)
    full = len(alls) == crashed
    return HerdResult(
        units=plan.units, virtual_s=virtual_s, wall_s=round(time.perf_counter() - began[0], 3),
        cpu_s=round(time.process_time() - began[1], 3), messages=messages, bytes=herd.bytes,
        howls=office.howls if office is not None else 0,
        messages_per_unit_s=round(messages / virtual_s / plan.units, 3),
        violations=0, alpha_changes=max(0, len(office.keeper.grants) - 1) if office is not None else 0, crashed=crashed,
        first_dead_s=_spread(firsts), all_know_s=_spread(alls), views_equal_s=_rounded(equal_s),
        spread_9999_s=_rounded(watch.since_first_s(0.9999)),
        rounds=_rounded(max(alls) / herd.timing.probe_s) if alls and full else None,
        false_positives=watch.false_positives, healthy_false_positives=watch.healthy_false_positives,
        seed=plan.seed, profile=plan.profile,
    )  # fmt: skip


def _spread(values: list[float]) -> dict[str, float | None]:
    return {"p50": _rounded(share_at(values, 0.5)), "p99": _rounded(share_at(values, 0.99))}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
