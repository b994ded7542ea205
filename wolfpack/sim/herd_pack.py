"""One unit's part in the leadership of a simulated pack: the real `Succession`, driven on virtual time.

`Leadership` is the driver around the machine: it ticks it when it is due, carries its orders over the network and to
the keeper, and makes the alpha's turns. It knows no membership: `herd_unit` feeds it what the view learns, `failover`
runs it by itself. A stopped or dead unit does nothing at all; what comes in meanwhile is its owner's business.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any, Protocol, assert_never

from wolfpack.core.howls import Howl, HowlKind, Peer
from wolfpack.core.succession import (
    Alone,
    Arbiter,
    Claim,
    Crowned,
    Event,
    Following,
    Heard,
    Order,
    ReleaseTerm,
    StoppedLeading,
    Succession,
    Tell,
    Ticked,
    TurnAnswered,
)
from wolfpack.model import Role, Timing
from wolfpack.sim.herd_keeper import PACK, HerdKeeper
from wolfpack.sim.kernel import US, Kernel
from wolfpack.sim.network import Network

KEEPER = "keeper"  # the keeper's end of the network
HOWL_BYTES = 60  # about what a howl takes on the wire; counted apart from membership


def due_us(now: float) -> int:
    """The first microsecond at which a clock that runs with the kernel's shows this time: never before the float."""
    return int(now * US) + 1


class Office:
    """What the leaderships of one pack share: keeper, network, and what happened.

    Attributes:
        crowned: (seconds, unit, boot, term) of each alpha, when it knew.
        howls: messages of the election so far; counted apart from membership.
        faults: what broke an invariant, in words.
    """

    def __init__(self, kernel: Kernel, network: Network, keeper: HerdKeeper, timing: Timing) -> None:
        self.kernel, self.network, self.keeper, self.timing = kernel, network, keeper, timing
        self.keeper_up = True
        self.crowned: list[tuple[float, str, int, int]] = []
        self.howls = 0
        self.faults: list[str] = []
        self.by_unit: dict[str, Leadership] = {}
        self._turns: dict[tuple[int, int], tuple[Leadership, float]] = {}  # (term, seq) -> whose, sent when

    def ask(self, who: Leadership, handle: Callable[[], Event | None]) -> None:
        """A call to the keeper over a connection; its answer comes back as an event, or never."""
        delay_us = self.network.stream_us(who.me.unit, KEEPER)
        if delay_us is not None:
            self.kernel.after_us(delay_us, self._arrive, who, handle)

    def ask_turn(self, who: Leadership, term: int, seq: int) -> None:
        self._turns[term, seq] = who, who.now()
        me = who.me
        self.ask(who, lambda: self.keeper.turn(self.kernel.now, term, me.unit, me.boot, seq))

    def _arrive(self, who: Leadership, handle: Callable[[], Event | None]) -> None:
        if not self.keeper_up:
            return
        event = handle()
        if event is not None:
            self._reply(who, event)
        for term, seq, reply in self.keeper.answers():
            sender, sent_at = self._turns.pop((term, seq), (who, 0.0))
            if reply is not None:
                self._reply(sender, TurnAnswered(sent_at))
        self.faults += self.keeper.faults
        self.keeper.faults.clear()

    def _reply(self, who: Leadership, event: Event) -> None:
        delay_us = self.network.stream_us(KEEPER, who.me.unit)
        if delay_us is not None:
            self.kernel.after_us(delay_us, who.take, event)


class Body(Protocol):
    """What a leadership needs of the unit it belongs to."""

    def is_up(self) -> bool:
        """Whether it can act now; a blocked or dead unit cannot."""

    def hold(self, what: Callable[..., Any], *args: Any) -> None:
        """Keeps what arrives while it cannot act."""

    def now(self) -> float:
        """What its own clock shows."""

    def us_of(self, now: float) -> int:
        """When, in virtual microseconds, its clock shows this; never earlier."""

    def led(self, term: int, alpha: str, boot: int) -> None:
        """It leads now (the others will want to know), or knows who does."""


class Leadership:
    """Drives the `Succession` of one unit.

    Args:
        office: what the pack shares.
        me: the unit.
        body: what can be stopped.
        rng: chance for the machine.
        gossip: whether membership tells those outside the council.
    """

    def __init__(self, office: Office, me: Peer, body: Body, rng: random.Random, *, gossip: bool) -> None:
        self.office, self.me, self._body = office, me, body
        self.machine = Succession(
            me=me, pack=PACK, timing=office.timing, arbiter=Arbiter.KEEPER, rng=rng, now=body.now(),
            gossip=gossip,
        )  # fmt: skip
        self._due_us = 1 << 62  # of the earliest tick in the kernel's heap
        self._seq = 0
        self._working = False
        self._ended: set[int] = set()  # terms that it stopped leading
        office.by_unit[me.unit] = self

    def now(self) -> float:
        return self._body.now()

    def take(self, event: Event) -> None:
        """Something arrived: now, or when the unit goes on."""
        body = self._body
        if not body.is_up():
            body.hold(self.take, event)
            return
        for order in self.machine.step(body.now(), event):
            self._carry_out(order)
        self._arm()

    def tick(self) -> None:
        """Judges its alarms now; for a unit that goes on after a pause, or has just been born."""
        self.take(Ticked())

    def _arm(self) -> None:
        wake = self.machine.next_wake()
        if wake == math.inf:
            return
        kernel = self.office.kernel
        at_us = self._body.us_of(wake)
        if at_us < self._due_us:
            self._due_us = at_us
            kernel.at_us(at_us, self._fire, at_us)

    def _fire(self, at_us: int) -> None:
        """The machine may have been put off since: then its tick is only set again."""
        if at_us != self._due_us:
            return
        self._due_us = 1 << 62
        if not self._body.is_up():
            return  # its owner ticks it when it goes on
        if self.machine.next_wake() <= self._body.now():
            self.tick()
        else:
            self._arm()

    def _carry_out(self, order: Order) -> None:
        office, me = self.office, self.me
        match order:
            case Tell(to, howl):
                self._check(howl)
                office.howls += 1
                office.network.send(me.unit, to, self._deliver, to, howl)
            case Claim(prev_term):
                office.ask(self, lambda: office.keeper.claim(office.kernel.now, prev_term, me.unit, me.boot))
            case ReleaseTerm(term):
                office.ask(self, lambda: office.keeper.release(office.kernel.now, term, me.unit, me.boot))
            case Crowned(term):
                office.crowned.append((office.kernel.now, me.unit, me.boot, term))
                office.kernel.mix(f"crowned {me.unit} {me.boot} {term}")
                self._body.led(term, me.unit, me.boot)
                if not self._working:
                    self._working = True
                    self._work()
            case StoppedLeading(term, _):
                self._ended.add(term)
            case Following(term, alpha, boot):
                self._body.led(term, alpha, boot)
            case Alone():
                pass
            case _:
                assert_never(order)

    def _check(self, howl: Howl) -> None:
        if howl.kind not in (HowlKind.HEARTBEAT, HowlKind.COORDINATOR):
            return
        if howl.term in self._ended:
            self.office.faults.append(f"I3: {self.me.unit} leads term {howl.term} after it ended")
        if (howl.term, self.me.unit, self.me.boot) not in self.office.keeper.grants:
            self.office.faults.append(f"I6: {self.me.unit} leads term {howl.term} without a grant")

    def _deliver(self, to: str, howl: Howl) -> None:
        target = self.office.by_unit.get(to)
        if target is not None:
            target.take(Heard(howl))

    def _work(self) -> None:
        """What an alpha's brain does each heartbeat: a turn."""
        machine = self.machine
        if machine.role is not Role.ALPHA or self.office.by_unit.get(self.me.unit) is not self:
            self._working = False
            return
        if self._body.is_up():
            self._seq += 1
            self.office.ask_turn(self, machine.term, self._seq)
        self.office.kernel.after(self.office.timing.heartbeat_s, self._work)
