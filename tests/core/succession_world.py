"""A small world for the succession machine: virtual time, a lossy network, a keeper that grants terms, and units.

Everything is drawn from one seed. The world checks the safety invariants itself, after each step of any unit, so that
every test that lives in it checks them without asking.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from wolfpack.core.howls import HowlKind, Peer
from wolfpack.core.succession import (
    Alone,
    Arbiter,
    Claim,
    ClaimFailed,
    Crowned,
    DeposedBy,
    Event,
    Following,
    Granted,
    Heard,
    MemberHeard,
    Order,
    PeerLost,
    PeersChanged,
    Refused,
    ReleaseTerm,
    StoppedLeading,
    Succession,
    Tell,
    Ticked,
    TurnAnswered,
    TurnFailed,
)
from wolfpack.model import Role, Timing

PROCESS_DEATH_S = 0.015  # how long Ray takes to tell


class FakeKeeper:
    """The pack's row and the rules of DESIGN's arbiter, nothing else."""

    def __init__(self, timing: Timing) -> None:
        self.timing = timing
        self.term = 0
        self.alpha: tuple[str, int] | None = None
        self.renewed_at = 0.0
        self.dead: set[tuple[str, int]] = set()
        self.grants: dict[int, tuple[str, int]] = {}
        self.writes: list[tuple[int, tuple[str, int]]] = []

    def claim(self, now: float, prev_term: int, who: tuple[str, int]) -> Event:
        silent = now - self.renewed_at >= self.timing.silence_s
        vacant = self.alpha is None or self.alpha in self.dead or silent
        if who in self.dead or prev_term != self.term or self.alpha == who or not vacant:
            return Refused(self.term, *(self.alpha or (None, 0)))
        self.term += 1
        assert self.term not in self.grants, "I4: a term is granted once"
        self.grants[self.term] = self.alpha = who
        self.renewed_at = now
        return Granted(self.term)

    def turn(self, now: float, term: int, who: tuple[str, int], sent_at: float) -> Event:
        if (term, who) != (self.term, self.alpha):
            return DeposedBy(self.term, self.alpha[0] if self.alpha else None)
        self.renewed_at = now
        assert not self.writes or self.writes[-1][0] <= term, "I2: accepted terms never decrease"
        assert self.grants[term] == who, "I1: one accepted writer per term"
        self.writes.append((term, who))
        return TurnAnswered(sent_at)

    def release(self, term: int, who: tuple[str, int]) -> None:
        if (term, who) == (self.term, self.alpha):
            self.alpha = None


@dataclass
class Unit:
    peer: Peer
    machine: Succession
    generation: int = 0  # of the wake in the heap; older ones are void
    frozen: bool = False
    inbox: list[Event] = field(default_factory=list)
    ended: set[int] = field(default_factory=set)  # terms it stopped leading
    story: list[Order] = field(default_factory=list)

    @property
    def who(self) -> tuple[str, int]:
        return self.peer.unit, self.peer.boot


class World:
    def __init__(self, seed: int, *, arbiter: Arbiter = Arbiter.KEEPER, timing: Timing | None = None) -> None:
        self.rng = random.Random(seed)
        self.timing = timing or Timing()
        self.arbiter = arbiter
        self.now = 0.0
        self.keeper = FakeKeeper(self.timing)
        self.units: dict[str, Unit] = {}
        self.roster: dict[str, Peer] = {}
        self.loss = 0.0
        self.doubling = 0.0
        self.delay_s = (0.001, 0.002)
        self.keeper_up = True
        self.cut: set[tuple[str, str]] = set()  # directed links that lose everything; "keeper" is an end too
        self.crowned: list[tuple[float, str, int]] = []
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    # --- time -----------------------------------------------------------------------------------------------------

    def at(self, when: float, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._heap, (max(when, self.now), self._count, action))

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self._heap and self._heap[0][0] <= end:
            self.now, _, action = heapq.heappop(self._heap)
            action()
        self.now = end

    def run_until(self, condition: Callable[[], bool], within_s: float) -> float:
        """Seconds until it holds. Fails if that takes longer."""
        start = self.now
        while not condition():
            assert self.now - start <= within_s, f"not within {within_s} s: {self.views()}"
            self.now, _, action = heapq.heappop(self._heap)
            action()
        return self.now - start

    # --- units ----------------------------------------------------------------------------------------------------

    def birth(self, unit: str, *, lead: int = 0, can_lead: bool = True, told: bool = True, usurp: bool = False) -> Unit:
        """A new boot of the unit; everybody learns the new roster."""
        boot = self.roster[unit].boot + 1 if unit in self.roster else 1
        if unit in self.units:
            self.crash(unit)
        peer = Peer(unit=unit, boot=boot, lead=lead, can_lead=can_lead)
        self.roster[unit] = peer
        machine = Succession(
            me=peer, pack="p", timing=self.timing, arbiter=self.arbiter, rng=random.Random(self.rng.random()),
            now=self.now, usurp=usurp,
        )  # fmt: skip
        self.units[unit] = born = Unit(peer, machine)
        self.at(self.now + self.timing.heartbeat_s, lambda: self._work(born))
        self._arm(born)
        if told:
            self.tell_roster()
        return born

    def tell_roster(self) -> None:
        for unit in self.units.values():
            self.inject(unit, PeersChanged(tuple(self.roster[name] for name in self.roster if name in self.units)))

    def crash(self, unit: str, *, hinted: bool = True) -> None:
        """The process ends; Ray tells everybody about it soon, unless its node fell silent with it."""
        gone = self.units.pop(unit)
        gone.frozen = True
        if not hinted:
            return
        self.at(self.now + PROCESS_DEATH_S, lambda: self.keeper.dead.add(gone.who))
        for other in list(self.units.values()):
            self.at(self.now + PROCESS_DEATH_S, lambda other=other: self.inject(other, PeerLost(*gone.who)))

    def freeze(self, unit: str) -> None:
        self.units[unit].frozen = True

    def resume(self, unit: str) -> None:
        """What is queued is handled first, then the overdue tick."""
        self.units[unit].frozen = False
        inbox, self.units[unit].inbox = self.units[unit].inbox, []
        for event in inbox:
            self.inject(self.units[unit], event)
        self.inject(self.units[unit], Ticked())

    def inject(self, unit: Unit, event: Event) -> None:
        if self.units.get(unit.peer.unit) is not unit:
            return
        if unit.frozen:
            unit.inbox.append(event)
            return
        for order in unit.machine.step(self.now, event):
            unit.story.append(order)
            self._carry_out(unit, order)
        self._arm(unit)
        self._check()

    def _arm(self, unit: Unit) -> None:
        unit.generation += 1
        generation = unit.generation
        self.at(
            unit.machine.next_wake(),
            lambda: self.inject(unit, Ticked()) if generation == unit.generation and not unit.frozen else None,
        )

    def _work(self, unit: Unit) -> None:
        """What a brain does each heartbeat: the alpha makes its turn, a member hunts."""
        if self.units.get(unit.peer.unit) is not unit:
            return
        self.at(self.now + self.timing.heartbeat_s, lambda: self._work(unit))
        machine = unit.machine
        if unit.frozen:
            return
        if machine.role is Role.ALPHA and self.arbiter is Arbiter.KEEPER:
            sent_at, term = self.now, machine.term
            self._ask_keeper(
                unit, lambda: self.keeper.turn(self.now, term, unit.who, sent_at), TurnFailed("the keeper is away")
            )
        elif machine.alpha in self.units:
            alpha = self.units[machine.alpha]
            self._send(unit.peer.unit, alpha.peer.unit, lambda: self.inject(alpha, MemberHeard()))

    # --- messages ---------------------------------------------------------------------------------------------------

    def _carry_out(self, unit: Unit, order: Order) -> None:
        match order:
            case Tell(to, howl):
                if howl.kind in (HowlKind.HEARTBEAT, HowlKind.COORDINATOR):
                    assert howl.term not in unit.ended, "nothing of a term leaves after it ended"
                    if self.arbiter is Arbiter.KEEPER:
                        assert unit.who == self.keeper.grants.get(howl.term), "I6: COORDINATOR only after a grant"
                self._send(unit.peer.unit, to, lambda: to in self.units and self.inject(self.units[to], Heard(howl)))
            case Claim(prev_term):
                self._ask_keeper(
                    unit, lambda: self.keeper.claim(self.now, prev_term, unit.who), ClaimFailed("the keeper is away")
                )
            case ReleaseTerm(term):
                self._ask_keeper(unit, lambda: self.keeper.release(term, unit.who), None)
            case Crowned(term):
                self.crowned.append((self.now, unit.peer.unit, term))
            case StoppedLeading(term, _):
                unit.ended.add(term)
            case Following() | Alone():
                pass

    def _send(self, source: str, target: str, arrive: Callable[[], object]) -> None:
        for _ in range(2 if self.rng.random() < self.doubling else 1):
            if self.rng.random() >= self.loss and (source, target) not in self.cut:
                self.at(self.now + self.rng.uniform(*self.delay_s), lambda: arrive() and None)

    def _ask_keeper(self, unit: Unit, handle: Callable[[], Event | None], failed: Event | None) -> None:
        """A call: either way may be lost, and then the caller learns nothing at all, or late that it failed."""
        name = unit.peer.unit

        def arrive() -> None:
            if not self.keeper_up:
                return
            reply = handle()
            if reply is not None:
                self._send("keeper", name, lambda: self.inject(unit, reply))

        if not self.keeper_up and failed is not None:
            self.at(self.now + self.rng.uniform(0.001, 0.5), lambda: self.inject(unit, failed))
        else:
            self._send(name, "keeper", arrive)

    def isolate(self, unit: str, *, keeper: bool = False) -> None:
        ends = [name for name in self.units if name != unit] + (["keeper"] if keeper else [])
        self.cut |= {(unit, end) for end in ends} | {(end, unit) for end in ends}

    # --- what must hold ---------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self.arbiter is Arbiter.KEEPER:
            lease = [u.peer.unit for u in self.units.values() if not u.frozen and u.machine.may_lease(self.now)]
            assert len(lease) <= 1, f"two units lease at {self.now}: {lease}"

    def views(self) -> dict[str, tuple[str, int, str | None]]:
        return {name: (str(u.machine.role), u.machine.term, u.machine.alpha) for name, u in self.units.items()}

    def leader(self) -> str | None:
        """The one alpha that every living unit follows in its current term; None: there is no such thing."""
        alphas = [u for u in self.units.values() if u.machine.role is Role.ALPHA]
        if len(alphas) != 1:
            return None
        alpha = alphas[0]
        if any(
            (u.machine.term, u.machine.alpha, u.machine.alpha_boot) != (alpha.machine.term, *alpha.who)
            for u in self.units.values()
        ):
            return None
        if self.arbiter is Arbiter.KEEPER and self.keeper.alpha != alpha.who:
            return None
        return alpha.peer.unit

    def calm(self) -> None:
        """Faults stop."""
        self.loss = self.doubling = 0.0
        self.delay_s = (0.001, 0.005)
        self.cut.clear()
        self.keeper_up = True
        for name, unit in list(self.units.items()):
            if unit.frozen:
                self.resume(name)
        self.tell_roster()


def pack(*units: str, seed: int = 1, **options: object) -> World:
    """A world with these units (`name` or `name:lead`), settled: the highest rank leads."""
    world = World(seed, **options)  # type: ignore[arg-type]
    for unit in units:
        name, _, lead = unit.partition(":")
        world.birth(name, lead=int(lead or 0), told=False)
    world.tell_roster()
    world.run_until(lambda: world.leader() is not None, 3.0)
    return world
