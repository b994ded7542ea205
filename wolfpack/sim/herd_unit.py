"""One unit of a herd: the real `Membership`, and in a pack the real `Succession`, on the kernel's time.

A unit is driven as on Ray or over UDP: what arrives is one event, each event gives orders, and it is ticked when it is
due. It can be dead, stopped (nothing happens in it; what arrives is handled in its order when it goes on, before any
deadline is judged), blocked (its timers run, but nothing is sent or received: Lifeguard's fault) or slow (each event
takes its time, one after the other).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from wolfpack.core.howls import Peer
from wolfpack.core.membership import Membership
from wolfpack.core.membership_words import (
    AlphaHeard,
    AlphaSeen,
    AnswerSync,
    AskSync,
    Event,
    Leaving,
    Order,
    PacketHeard,
    SendPacket,
    Stalled,
    Status,
    StatusChanged,
    Ticked,
)
from wolfpack.core.rivals import COUNCIL_SIZE
from wolfpack.core.succession import MemberHeard, PeerLives, PeerLost, PeersChanged, TermSeen
from wolfpack.model import Role
from wolfpack.sim.herd_keeper import PACK
from wolfpack.sim.herd_pack import Leadership, due_us
from wolfpack.sim.kernel import US

if TYPE_CHECKING:
    from wolfpack.sim.herd_world import Herd

PACKET_MOST = 1400  # bytes
NEVER_US = 1 << 62
TICKED = Ticked()


class Clock:
    """A clock of its own: it runs `rate` times as fast as the kernel's, and may jump."""

    def __init__(self, rate: float = 1.0, offset_s: float = 0.0) -> None:
        self.rate, self.offset_s = rate, offset_s

    def shows(self, kernel_now: float) -> float:
        return self.offset_s + self.rate * kernel_now

    def us_of(self, now: float) -> int:
        return due_us((now - self.offset_s) / self.rate)


class HerdUnit:
    """A living boot of one unit.

    Attributes:
        no: its number in the herd. Its address is its name, as on Ray.
        place: its place by rank, 0 the highest.
        healthy: whether no fault of the plan ever touched it; false positives are told apart by it.
        service_us: how long each event takes it; 0: no time.
        clock: its own; None: it runs with the kernel's.
        council: places of the highest living ranks in its view, without itself.
    """

    __slots__ = (
        "_busy_us", "_due_us", "_heard_us", "_inbox", "_outbox", "alive", "blocked", "boot", "clock",
        "council", "healthy", "herd", "lead", "machine", "name", "no", "peer", "place", "service_us", "stopped",
    )  # fmt: skip

    def __init__(self, herd: Herd, peer: Peer, no: int, place: int, machine: Membership) -> None:
        self.herd, self.peer, self.name, self.boot, self.no, self.place = herd, peer, peer.unit, peer.boot, no, place
        self.machine = machine
        self.lead: Leadership | None = None
        self.alive, self.stopped, self.blocked, self.healthy = True, False, False, True
        self.service_us = 0
        self.clock: Clock | None = None
        self.council: tuple[int, ...] = ()
        self._inbox: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        self._outbox: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        self._due_us = NEVER_US  # of the earliest tick in the kernel's heap
        self._busy_us = 0
        self._heard_us = -US

    # --- events -------------------------------------------------------------------------------------------------

    def take(self, event: Event) -> None:
        """Something arrived."""
        if not self.alive:
            return
        if self.stopped or self.blocked:
            self._inbox.append((self.take, (event,)))
        elif self.service_us:
            kernel = self.herd.kernel
            self._busy_us = max(self._busy_us, kernel.now_us) + self.service_us
            kernel.at_us(self._busy_us, self.step, event)
        else:
            self.step(event)

    def step(self, event: Event) -> None:
        """Gives the machine one event, and carries its orders out."""
        if not self.alive or self.stopped:
            return
        machine, herd = self.machine, self.herd
        clock = self.clock
        for order in machine.step(herd.kernel.now if clock is None else clock.shows(herd.kernel.now), event):
            if type(order) is SendPacket:
                self._send(order.to, order.data)
            else:
                self._carry_out(order)
        wake = machine.next_wake()
        at_us = int(wake * US) + 1 if clock is None else clock.us_of(wake)
        if at_us < self._due_us:
            self._due_us = at_us
            herd.kernel.at_us(at_us, self._fire, at_us)
        lead = self.lead
        if lead is not None and lead.machine.role is Role.ALPHA and type(event) is PacketHeard:
            self._member_heard(lead)

    def _fire(self, at_us: int) -> None:
        """The machine may have been put off since: then its tick is only set again."""
        if at_us != self._due_us or not self.alive:
            return
        self._due_us = NEVER_US
        if self.stopped:
            return  # it is ticked when it goes on
        wake_us = self.us_of(self.machine.next_wake())
        if wake_us > self.herd.kernel.now_us:
            self._due_us = wake_us
            self.herd.kernel.at_us(wake_us, self._fire, wake_us)
        elif self.service_us:
            self.take(TICKED)
        else:
            self.step(TICKED)

    def now(self) -> float:
        return self.herd.kernel.now if self.clock is None else self.clock.shows(self.herd.kernel.now)

    def us_of(self, now: float) -> int:
        return due_us(now) if self.clock is None else self.clock.us_of(now)

    # --- orders -------------------------------------------------------------------------------------------------

    def _send(self, to: str, data: bytes) -> None:
        herd = self.herd
        herd.count_packet(self, data)
        if self.blocked:
            self._outbox.append((self._launch, (to, data)))
            return
        herd.network.send(self.name, to, herd.arrive, to, self.name, data)

    def _launch(self, to: str, data: bytes) -> None:
        self.herd.network.send(self.name, to, self.herd.arrive, to, self.name, data)

    def _carry_out(self, order: Order) -> None:
        herd = self.herd
        match order:
            case StatusChanged():
                herd.watch.on_status(self, order)
                if self.lead is not None:
                    self._tell_lead(self.lead, order)
            case AskSync(to, data):
                herd.count_sync(data)
                self._later(herd.ask_sync, self, to, data)
            case AnswerSync(ticket, data):
                herd.count_sync(data)
                self._later(herd.answer_sync, self, ticket, data)
            case AlphaHeard(pack, term, alpha, boot):
                if self.lead is not None and pack == PACK:
                    self.lead.take(TermSeen(term, alpha, boot))
            case Stalled():
                herd.watch.on_stalled(order)

    def _later(self, what: Callable[..., Any], *args: Any) -> None:
        if self.blocked:
            self._outbox.append((what, args))
        else:
            what(*args)

    # --- leadership ---------------------------------------------------------------------------------------------

    def _tell_lead(self, lead: Leadership, order: StatusChanged) -> None:
        """Only those who may lead, and who leads, matter to succession."""
        herd = self.herd
        place = herd.place_of.get(order.unit)
        if place is None or order.unit == self.name:
            return
        inside = len(self.council) < COUNCIL_SIZE or place <= self.council[-1]
        if not inside and order.unit != lead.machine.alpha and order.unit != lead.machine._doubted:
            return
        if order.status in (Status.DEAD, Status.LEFT):
            lead.take(PeerLost(order.unit, order.boot))
        elif order.status is Status.ALIVE:
            lead.take(PeerLives(order.unit, order.boot))
        if inside:
            self.tell_council()

    def tell_council(self) -> None:
        """Gives the leadership the highest ranks that live in this unit's view."""
        if self.lead is None:
            return
        herd, view = self.herd, self.machine.view
        found: list[int] = []
        peers: list[Peer] = []
        for place, peer in enumerate(herd.ranked):
            if place == self.place:
                continue
            member = view.get(peer.unit)
            if member is not None and member.lives:
                found.append(place)
                peers.append(Peer(unit=peer.unit, boot=member.boot, lead=peer.lead, can_lead=peer.can_lead))
                if len(found) == COUNCIL_SIZE:
                    break
        self.council = tuple(found)
        self.lead.take(PeersChanged(tuple(peers)))

    def _member_heard(self, lead: Leadership) -> None:
        """Any message of a member keeps its alpha company; told once a heartbeat at most."""
        now_us = self.herd.kernel.now_us
        if now_us - self._heard_us >= self.herd.timing.heartbeat_s * US:
            self._heard_us = now_us
            lead.take(MemberHeard())

    def led(self, term: int, alpha: str, boot: int) -> None:
        """Its succession knows who leads: gossip carries it to those outside the council."""
        if alpha == self.name or self.place <= COUNCIL_SIZE:
            self.step(AlphaSeen(PACK, term, alpha, boot))

    def is_up(self) -> bool:
        return self.alive and not self.stopped and not self.blocked

    def hold(self, what: Callable[..., Any], *args: Any) -> None:
        if self.alive:
            self._inbox.append((what, args))

    # --- faults -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Its first breath."""
        self.step(TICKED)
        if self.lead is not None:
            self.tell_council()
            self.lead.tick()

    def crash(self) -> None:
        self.alive = False
        self._inbox.clear()
        self._outbox.clear()

    def leave(self) -> None:
        """Says goodbye and is gone."""
        self.step(Leaving())
        self.crash()

    def stop(self) -> None:
        """As SIGSTOP does: nothing happens in it any more."""
        self.stopped, self.healthy = True, False

    def block(self) -> None:
        """As Lifeguard's experiment does: it can neither send nor receive, but its timers run."""
        self.blocked, self.healthy = True, False

    def go_on(self) -> None:
        """What waited is handled first, in its order; then what is due."""
        if not self.alive or not (self.stopped or self.blocked):
            return
        self.stopped = self.blocked = False
        outbox, self._outbox = self._outbox, []
        for what, args in outbox:
            what(*args)
        inbox, self._inbox = self._inbox, []
        for what, args in inbox:
            what(*args)
        self.awake()

    def awake(self) -> None:
        """Its clock went on in a way that no tick was set for: it looks at it."""
        self._due_us = NEVER_US
        self.step(TICKED)
        if self.lead is not None:
            self.lead.tick()
