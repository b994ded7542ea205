"""Membership in a simulated den: each process runs the real machine beside its brain, as the Ray driver does.

It advises the brain and decides nothing, and is watched. At every change: I9 (only the owner raises its
incarnation), I10 (a view of one unit only moves up) and I11 (a packet fits 1400 bytes). Once faults stopped: no living
unit stays DEAD (L3), all views are equal, and true (L4).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, assert_never

from wolfpack.core import errands as e
from wolfpack.core.book import Book
from wolfpack.core.membership import Membership
from wolfpack.core.membership_words import (
    AddressesGiven,
    AlphaHeard,
    AlphaSeen,
    AnswerSync,
    AskSync,
    DeathHinted,
    Event,
    Leaving,
    Load,
    LoadChanged,
    Order,
    PacketHeard,
    SendPacket,
    Stalled,
    Status,
    StatusChanged,
    SyncAnswered,
    SyncAsked,
    Ticked,
)
from wolfpack.model import Readiness, Timing
from wolfpack.sim.checks import BrokenPromise

if TYPE_CHECKING:
    from wolfpack.sim.den import World
    from wolfpack.sim.den_units import Process

PACKET_MOST = 1400  # bytes
HEAL_S = 10.0  # `MembershipOptions.heal_s`
TICKED = Ticked()


class Gossip:
    """The membership of one process. A unit's address is its id; what is sent there reaches its newest boot."""

    def __init__(self, process: Process) -> None:
        self._process, self._world = process, process.world
        unit, boot = process.card.unit, process.boot
        self.machine = Membership(
            me=unit, boot=boot, address=unit, den="den", timing=self._world.timing,
            rng=self._world.kernel.stream("membership", unit, boot), now=process.now,
        )  # fmt: skip
        self._standing: dict[str, tuple[int, int, int]] = {}
        self._alpha_told: tuple[str, int, str, int] | None = None
        self._tickets: dict[int, str] = {}
        self._ticket = self._timer = 0
        self._due = float("inf")  # of the tick that is set
        self._arm()

    # --- events -------------------------------------------------------------------------------------------------

    def step(self, event: Event) -> None:
        process = self._process
        if process.dead:
            return
        for order in self.machine.step(process.now, event):
            self._carry_out(order)
        if not process.dead:
            self._arm()

    def _arm(self) -> None:
        """Sets a tick, unless one is set that comes no later."""
        due = self.machine.next_wake()
        if due < self._due:
            self._due = due
            self._timer += 1
            self._process.at_clock(due, self._ring, self._timer)

    def _ring(self, timer: int) -> None:
        if timer == self._timer and not self._process.dead:
            self._process.receive(self._tick)

    def _tick(self) -> None:
        self._due = float("inf")
        if self.machine.next_wake() <= self._process.now:
            self.step(TICKED)
        else:
            self._arm()

    def clock_changed(self) -> None:
        self._due = float("inf")
        self._arm()

    def hint(self, unit: str, boot: int) -> None:
        self.step(DeathHinted(unit, boot))

    def found(self, roster: Iterable[tuple[str, int]]) -> None:
        """The keeper's roster of awake units."""
        me = self._process.card.unit
        addresses = tuple((unit, unit, boot) for unit, boot in roster if unit != me)
        if addresses:
            self.step(AddressesGiven(addresses))

    def load(self, leases: int, queued: int, progress: int) -> None:
        capacity = self._process.card.hands.concurrency
        self.step(LoadChanged(Load(leases=leases, queued=queued, capacity=capacity, progress=progress)))

    def tell_alpha(self, known: tuple[str, int, str, int] | None) -> None:
        """Who leads the pack of this unit, as its brain knows."""
        if known is not None and known != self._alpha_told:
            self._alpha_told = known
            self.step(AlphaSeen(*known))

    def leave(self) -> None:
        self.step(Leaving())

    # --- orders -------------------------------------------------------------------------------------------------

    def _carry_out(self, order: Order) -> None:
        world, me = self._world, self._process.card.unit
        match order:
            case SendPacket(to, data):
                if len(data) > PACKET_MOST:
                    raise BrokenPromise("I11", f"{self._process.name} sends a packet of {len(data)} bytes")
                world.packets += 1
                world.packet_bytes += len(data)
                world.network.send(me, to, _hear, world, to, PacketHeard(me, data))
            case AskSync(to, data):
                us = world.network.stream_us(me, to)
                if us is not None:
                    world.kernel.after_us(us, _hear_ask, world, me, to, data)
            case AnswerSync(ticket, data):
                asker = self._tickets.pop(ticket)
                us = world.network.stream_us(me, asker)
                if us is not None:
                    world.kernel.after_us(us, _hear, world, asker, SyncAnswered(me, data))
            case StatusChanged(unit, boot, status, reason):
                self._check(unit)
                world.tell(self._process.name, f"holds {unit}#{boot} {status.name}: {reason}")
                if status is not Status.SUSPECT:
                    self._advise(e.ViewChanged(unit=unit, boot=boot, lives=status is Status.ALIVE))
            case Stalled(unit, boot, stalled):
                world.tell(self._process.name, f"holds {unit}#{boot} {'stalled' if stalled else 'at work again'}")
                if (unit, boot) == (me, self._process.boot):
                    self._advise(e.StallJudged(stalled=stalled))
            case AlphaHeard(pack, term, alpha, boot):
                self._advise(e.AlphaTold(pack=pack, term=term, alpha=alpha, boot=boot))
            case _:
                assert_never(order)

    def _advise(self, advice: e.Event) -> None:
        self._process.after(0.0, lambda: self._process.step(advice))

    def asked(self, asker: str, data: bytes) -> None:
        self._ticket += 1
        self._tickets[self._ticket] = asker
        self.step(SyncAsked(asker, data, self._ticket))

    # --- checks -------------------------------------------------------------------------------------------------

    def _check(self, unit: str) -> None:
        member = self.machine.view.get(unit)
        if member is None:
            return
        name = self._process.name
        owner = self._world.processes.get((unit, member.boot))
        gossip = owner.gossip if owner is not None else None
        if owner is None:
            raise BrokenPromise("I9", f"{name} holds boot {member.boot} of {unit}, which never lived")
        if gossip is not None and member.counter > gossip.machine.counter:
            text = f"{name} holds {unit} at {member.counter}; it never went beyond {gossip.machine.counter}"
            raise BrokenPromise("I9", text)
        before = self._standing.get(unit)
        if before is not None and member.standing < before:
            raise BrokenPromise("I10", f"{name} went back from {before} to {member.standing} about {unit}")
        self._standing[unit] = member.standing


def _hear(world: World, to: str, event: Event) -> None:
    process = world.find_process(to)
    if process is not None and process.gossip is not None:
        gossip = process.gossip
        process.hear(lambda: gossip.step(event))


def _hear_ask(world: World, asker: str, to: str, data: bytes) -> None:
    process = world.find_process(to)
    if process is not None and process.gossip is not None:
        gossip = process.gossip
        process.hear(lambda: gossip.asked(asker, data))


def roster_of(book: Book) -> list[tuple[str, int]]:
    """The awake units of the den, as the keeper tells them to those who ask."""
    return [(unit.id, unit.boot) for unit in book.units.values() if unit.readiness is Readiness.AWAKE]


def views_true(world: World) -> bool:
    """L3 and L4: every living unit thinks that exactly the living units live, in their present boots."""
    living = [process for process in world.processes.values() if not process.dead and process.gossip is not None]
    truth = {(process.card.unit, process.boot) for process in living}
    digests = {process.gossip.machine.view.digest for process in living if process.gossip is not None}
    if len(digests) > 1:
        return False
    return all(
        {(member.unit, member.boot) for member in process.gossip.machine.view if member.lives} == truth
        for process in living[:1]
        if process.gossip is not None
    )


def wrong_views(world: World) -> str:
    """What is wrong in whose view."""
    living = [process for process in world.processes.values() if not process.dead and process.gossip is not None]
    truth = {(process.card.unit, process.boot) for process in living}
    faults = []
    for process in living:
        assert process.gossip is not None
        seen = {(member.unit, member.boot) for member in process.gossip.machine.view if member.lives}
        if seen != truth:
            faults.append(f"{process.name} lacks {sorted(truth - seen)} and has {sorted(seen - truth)}")
    return "; ".join(faults) or "the digests differ"


def views_bound_s(timing: Timing) -> float:
    """L3, L4: views are equal so long after the last change: a few rounds of anti-entropy, or of calls to the dead."""
    return 4 * max(timing.sync_s, HEAL_S)
