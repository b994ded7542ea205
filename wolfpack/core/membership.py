"""Membership: who lives in the den, as one unit sees it. One pure machine per unit.

Theory of operation. Each unit probes one other in every `probe_s`, round-robin over a shuffled lap. No ack within
`ack_s`: helpers are asked to probe it too; none by the end of the period: it is SUSPECT, and DEAD unless it defends
itself in time. What is learned travels as gossip, on pings and acks and in packets of its own while there is news; who
missed it learns it from anti-entropy. An idle den says only pings and acks.

An incarnation is (boot, counter), and only its owner raises it: of two claims the one with the higher (boot, counter,
status) wins, so a view only moves up, in whatever order claims come. The one answer to a wrong claim about oneself is
a higher counter. Nothing else is decided here: a wrong view costs time, never safety.

Differences from memberlist. Only who found a suspect silent itself times its suspicion: others are told the end, or
find out at their own probe; and helpers that heard nothing either are confirmations already, so that no news has to
travel before a suspicion is short (both are switches). The accuser asks again, through other helpers, as long as it
lacks confirmations. A tick that comes late moves all deadlines: it was me who slept.

One door in, `step(now, event)`, one door out, a list of orders. Deadlines are judged only by `Ticked`, so that what is
already queued is handled before. After SWIM (Das et al. 2002) and Lifeguard (Dadgar et al. 2018).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection

from wolfpack.core import anti_entropy
from wolfpack.core.anti_entropy import Message, Scope
from wolfpack.core.beliefs import NEVER
from wolfpack.core.items import AlphaRecord, Record, Writer, read_items
from wolfpack.core.packets import Kind, Sender, read_packet
from wolfpack.core.prober import Prober
from wolfpack.core.probing import pick
from wolfpack.core.view import Member, View
from wolfpack.model import Timing

# isort: off
from wolfpack.core.membership_words import (
    AddressesGiven, AlphaSeen, AnswerSync, AskSync, DeathHinted, Event, Leaving, Load, LoadChanged, MembershipOptions,
    Order, PacketHeard, SendPacket, Status, SyncAnswered, SyncAsked, Ticked,
)  # fmt: skip
# isort: on

__all__ = ["Membership"]

JOIN_ASKED = 3  # addresses asked for their view at once; the others are pinged one by one
NEWCOMER = 2  # x the units known here: whoever says so many more tells no news, but what all others know
FAR = 1e9  # seconds: when nothing is due
GOODBYES = 3  # x fan_out packets say LEFT


class Membership(Prober):
    """The view of one unit on who lives in its den.

    Args:
        me, boot, address: this unit, and where packets reach it.
        den: the den's name; packets of other dens are counted and dropped.
        timing: the den's profile.
        rng: chance for laps, helpers and gossip.
        now: monotonic seconds; the clock of every later `step`.
        options: switches and bounds.
        view: what is known already, with or without this unit; None: nobody.

    Attributes: `view`; `health` (0 is well, up to 8); `counter`, the second part of the own incarnation; `counters`,
    how many packets were refused and why.
    """

    __slots__ = ("_gone", "_sync_at", "_wake")

    def __init__(
        self, *, me: str, boot: int, address: str, den: str, timing: Timing, rng: random.Random, now: float,
        options: MembershipOptions = MembershipOptions(), view: View | None = None,  # noqa: B008 - frozen
    ) -> None:  # fmt: skip
        super().__init__(
            me=me, boot=boot, address=address, den=den, timing=timing, rng=rng, now=now, options=options, view=view
        )
        self._gone = False
        self._sync_at = now + rng.random() * timing.sync_s
        self._set_wake()

    # --- the doors

    @property
    def health(self) -> int:
        """0 is well; up to 8: what this unit hears is late, so it accuses nobody early."""
        return self._health.score

    def next_wake(self) -> float:
        """When to call `Ticked` next."""
        return self._wake

    def step(self, now: float, event: Event) -> list[Order]:
        """Takes one event in; returns what to do, in this order. Malformed bytes are counted, and raise nothing."""
        if self._gone:
            return []
        if now - self._wake > self.timing.ack_s and self.options.forgive_pauses:
            self._forgive(now - self._wake)
        if isinstance(event, PacketHeard):
            self._on_packet(now, event.source, event.data)
        elif isinstance(event, Ticked):
            self._on_tick(now)
        else:
            self._on_rare(now, event)
        self._set_wake()
        orders = self._orders
        if orders:
            self._orders = []
        return orders

    def best_unit(self, fits: Callable[[str], bool] | Collection[str], *, tries: int = 16) -> str | None:
        """Whom to give work to: the less busy of two living units drawn at random, oneself included.

        Args:
            fits: whether a unit can serve the needs, or those who can.
            tries: so many draws for each of the two, before all units are looked at.
        """
        return self.loads.best_of_two(self.view, fits, self._rng, tries)

    def sent(self, unit: str, count: int = 1) -> None:
        """Work is on its way to this unit: it counts as busy with it until `confirmed`."""
        self.loads.sent(unit, count)

    def confirmed(self, unit: str, count: int = 1) -> None:
        """What was `sent` arrived there, or never will."""
        self.loads.confirmed(unit, count)

    def load_of(self, unit: str) -> Load | None:
        """The newest load known of a unit; None: it said none."""
        heard = self.loads.known.get(unit)
        return None if heard is None else heard.load

    def alpha_of(self, pack: str) -> AlphaRecord | None:
        """Who leads a pack, in the latest term that gossip tells."""
        return self._alpha_table.get(pack)

    # --- events

    def _on_packet(self, now: float, source: str, data: bytes) -> None:
        if data[:6] != self._mark:
            self.counters["foreign"] += 1
            return
        try:
            kind, number, sender, target, body, whom = read_packet(data)
            items = read_items(body) if body else None
        except ValueError:
            self.counters["malformed"] += 1
            return
        if not self._hear(now, sender, source):
            if kind is Kind.PING:
                self._tell_successor(sender, source)
            return
        if items is not None:
            self._take_in(now, items, source)
        if kind is Kind.PING:
            self._send(source, self._head_ack + data[7:11] + self._sender, sender.unit)
        elif kind is Kind.ACK:
            self._on_ack(now, number, sender, source)
        elif kind is Kind.PING_REQ:
            self._on_ping_req(now, number, source, target, whom)
        elif kind is Kind.NACK:
            probe = self._probes.get(number)
            if probe is not None and source in probe.asked:
                probe.nackers.add(sender.unit)
        elif kind is not Kind.GOSSIP:
            self.counters["malformed"] += 1

    def _tell_successor(self, sender: Sender, source: str) -> None:
        """A process asks that does not know that another one took its place. What it is told asks for no answer."""
        known = self.view.get(sender.unit)
        if known is not None and known.boot > sender.boot:
            writer = Writer(self._head_gossip)
            writer.record(Record(known.unit, known.boot, known.counter, known.status))
            self._orders.append(SendPacket(source, writer.done()))

    def _on_tick(self, now: float) -> None:
        if now >= self._due_probes:
            self._judge_probes(now)
        if now >= self._probe_at:
            self._probe_next(now)
        if now >= self._due_relays:
            self._judge_relays(now)
        if now >= self._due_suspicions:
            self._judge_suspicions(now)
        if now >= self._limiter.due:
            self._refute(now)
        if now >= self._load_at:
            self._tell_load(now)
        if now >= self._gossip_at:
            self._gossip(now)
        if now >= self._sync_at:
            self._sync_at = now + self.timing.sync_s
            for member in pick(self.view, self._rng, 1, (self.me,)):
                self._ask_sync(member.address)
        if now >= self._heal_at:
            self._heal(now)
        if now >= self._settle_at:
            self._settle(now)

    def _gossip(self, now: float) -> None:
        self._gossiped_at = now
        for member in pick(self.view, self._rng, self.timing.fan_out, (self.me,)):
            if not self._news:
                break
            self._send(member.address, self._head_gossip, member.unit)
        self._gossip_at = now + self.timing.gossip_s if self._news else NEVER

    def _on_rare(self, now: float, event: Event) -> None:
        match event:
            case SyncAsked(_, data, ticket):
                self._on_sync_asked(now, data, ticket)
            case SyncAnswered(_, data):
                self._on_sync_answered(now, data)
            case AddressesGiven(addresses):
                self._on_addresses(addresses)
            case LoadChanged(load):
                self._on_own_load(now, load)
            case DeathHinted(unit, boot):
                self._on_hint(now, unit, boot)
            case AlphaSeen(pack, term, alpha, boot):
                self._on_alpha(now, AlphaRecord(pack, term, alpha, boot))
            case Leaving():
                self._leave()
            case _:
                raise AssertionError(f"no event of membership: {event!r}")

    def _on_addresses(self, addresses: tuple[tuple[str, str, int], ...]) -> None:
        fresh = {address: (unit, boot) for address, unit, boot in addresses if not self._knows(address, unit, boot)}
        for address in [a for a in fresh if a not in self._seeds][:JOIN_ASKED]:
            self._ask_sync(address)
        self._seeds.update(fresh)
        self._seed_gap_s = self.timing.probe_s

    def _on_hint(self, now: float, unit: str, boot: int) -> None:
        known = self.view.get(unit)
        if known is None or unit == self.me or known.boot != boot or not known.lives:
            return
        self._accuse(now, unit, "the transport says so")
        self._probe_again(now, known)

    def _leave(self) -> None:
        member = Member(self.me, self.address, self.boot, self.counter, Status.LEFT)
        self.view.put(member)
        self._news.tell(Record(self.me, self.boot, self.counter, Status.LEFT), self.view, self._times())
        for other in pick(self.view, self._rng, GOODBYES * self.timing.fan_out, (self.me,)):
            self._send(other.address, self._head_gossip)
        self._gone = True
        self._probe_at = self._sync_at = self._gossip_at = self._settle_at = self._heal_at = self._load_at = NEVER
        self._due_probes = self._due_relays = self._due_suspicions = NEVER

    # --- anti-entropy

    def _ask_sync(self, address: str) -> None:
        self._orders.append(AskSync(address, self._message(Kind.SYNC_ASK)))

    def _on_sync_asked(self, now: float, data: bytes, ticket: int) -> None:
        message = self._read_sync(now, data)
        if message is None:
            return
        if message.kind is Kind.SYNC_PUSH:
            if message.digest != self.view.digest or message.items.records:
                self._take_in(now, message.items, message.address, synced=True)
            if message.scope is Scope.BUCKETS:
                answer = self._message(
                    Kind.SYNC_LAST, Scope.BUCKETS, items=True, buckets=message.buckets, wanted=message.wanted
                )
            else:
                answer = self._message(Kind.SYNC_LAST)
        elif message.digest == self.view.digest:
            answer = self._message(Kind.SYNC_SAME)
        elif message.base == self.view.base.digest and self.view.base.members:
            answer = self._message(Kind.SYNC_PULL, Scope.SINCE_BASE, items=True)
        elif len(self.view) <= anti_entropy.SMALL:
            answer = self._message(Kind.SYNC_PULL, items=True)
        else:
            answer = self._message(Kind.SYNC_DIGESTS, buckets=anti_entropy.bucket_count(len(self.view)))
        self._orders.append(AnswerSync(ticket, answer))

    def _on_sync_answered(self, now: float, data: bytes) -> None:
        message = self._read_sync(now, data)
        if message is None or message.kind is Kind.SYNC_SAME:
            return
        if message.kind is Kind.SYNC_DIGESTS:
            own = anti_entropy.bucket_digests(self.view, message.buckets)
            wanted = frozenset(
                at for at, (mine, yours) in enumerate(zip(own, message.digests, strict=True)) if mine != yours
            )
            push = self._message(
                Kind.SYNC_PUSH, Scope.BUCKETS, items=True, buckets=message.buckets, wanted=wanted
            )  # fmt: skip
            self._orders.append(AskSync(message.address, push))
            return
        self._quiet = len(message.items.records) > NEWCOMER * len(self.view)
        self._take_in(now, message.items, message.address, synced=True)
        self._quiet = False
        if message.kind is Kind.SYNC_PULL and message.digest != self.view.digest:
            same_base = message.base == self.view.base.digest and bool(self.view.base.members)
            scope = Scope.SINCE_BASE if same_base else Scope.ALL
            self._orders.append(AskSync(message.address, self._message(Kind.SYNC_PUSH, scope, items=True)))

    def _read_sync(self, now: float, data: bytes) -> Message | None:
        """None: it is counted, and no answer is due."""
        if data[:6] != self._mark:
            self.counters["foreign"] += 1
            return None
        try:
            message = anti_entropy.read_message(data)
        except ValueError:
            self.counters["malformed"] += 1
            return None
        return message if self._hear(now, message.sender, message.address) else None

    # --- alarms

    def _set_wake(self) -> None:
        self._wake = min(
            self._probe_at, self._due_probes, self._gossip_at, self._sync_at, self._due_suspicions, self._due_relays,
            self._limiter.due, self._heal_at, self._settle_at, self._load_at, FAR,
        )  # fmt: skip

    def _forgive(self, late: float) -> None:
        """This process slept, the others did not: every deadline moves, and what is queued comes before the first."""
        late += self.timing.ack_s
        self._health.worsen()
        for probe in self._probes.values():
            probe.ack_at += late
            probe.end_at += late
        for relay in self._relays.values():
            relay.nack_at += late
            relay.end_at += late
        for suspicion in self._suspicions.values():
            suspicion.deadline += late
        self.loads.shift(late)
        self._limiter.shift(late)
        self._probe_at += late
        self._gossip_at += late
        self._sync_at += late
        self._due_probes += late
        self._due_relays += late
        self._due_suspicions += late
        self._heal_at += late
        self._settle_at += late
        self._load_at += late
