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

import math
import random
from collections import Counter, deque
from collections.abc import Callable, Collection

from wolfpack.core import anti_entropy
from wolfpack.core.anti_entropy import Message, Scope
from wolfpack.core.gossip import News
from wolfpack.core.loads import Loads
from wolfpack.core.packets import (
    AlphaRecord,
    Bitmap,
    Items,
    Kind,
    LoadRecord,
    Record,
    Sender,
    StallVote,
    Writer,
    den_mark,
    read_items,
    read_packet,
    write_head,
    write_sender,
)  # fmt: skip
from wolfpack.core.probing import Lap, Probe, Relay, pick
from wolfpack.core.suspicion import (
    NACK_SHARE,
    LocalHealth,
    RefutationLimiter,
    Suspicion,
    confirmations_expected,
    retransmits,
    stretched,
    suspicion_max_s,
    suspicion_min_s,
)  # fmt: skip
from wolfpack.core.view import Member, View, set_bits
from wolfpack.model import Timing

# isort: off
from wolfpack.core.membership_words import (
    AddressesGiven, AlphaHeard, AlphaSeen, AnswerSync, AskSync, DeathHinted, Event, Leaving, Load, LoadChanged,
    MembershipOptions, Order, PacketHeard, SendPacket, Stalled, Status, StatusChanged, SyncAnswered, SyncAsked, Ticked,
)  # fmt: skip
# isort: on

__all__ = ["Membership"]

BOOT_AHEAD = 1_000  # an incarnation further ahead of the known one is no news but an error, or worse
COUNTER_AHEAD = 10_000
JOIN_ASKED = 3  # addresses asked for their view at once; the others are pinged one by one
LOST_MOST = 64  # addresses of forgotten dead units that are still called now and then
RELAYS_MOST = 256  # probes for others under way
PACKS_MOST = 1024
GOODBYES = 3  # x fan_out packets say LEFT
SYNC_GAP = 5  # x gossip_s: not more often is a view asked for because of some odd news
HURRY = 4  # so much faster while many die
MANY = 0.02  # of all units, within some probe periods: many die
LOAD_UNITS = 500  # with more units each tells its load less often, or load would fill all packets
NEVER = 1e12  # seconds
_ODD = (1 << 32) - 1


class Membership:
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

    __slots__ = (
        "_alpha_table", "_due_probes", "_due_relays", "_due_suspicions", "_gone", "_gossip_at", "_gossiped_at",
        "_graves", "_head_ack", "_head_ping", "_heal_at", "_health", "_lap", "_level", "_level_at", "_limiter",
        "_load", "_load_at", "_load_told_at", "_lost", "_mark", "_news", "_number", "_orders", "_probe_at", "_probes",
        "_purge", "_refute_above", "_relays", "_rng", "_seeds", "_sender", "_settle_at", "_suspicions", "_sync_at",
        "_sync_free_at", "_wake", "address", "boot", "counter", "counters", "den", "loads", "me", "options", "timing",
        "view",
    )  # fmt: skip

    def __init__(
        self, *, me: str, boot: int, address: str, den: str, timing: Timing, rng: random.Random, now: float,
        options: MembershipOptions = MembershipOptions(), view: View | None = None,  # noqa: B008 - frozen
    ) -> None:  # fmt: skip
        self.me, self.boot, self.address, self.den = me, boot, address, den
        self.timing, self.options = timing, options
        self.view = View() if view is None else view
        self.counter = 0
        self.counters: Counter[str] = Counter()
        self.loads = Loads(options.stall_s, options.stalls)
        self._rng = rng
        self._orders: list[Order] = []
        self._gone = False
        self._health = LocalHealth()
        self._limiter = RefutationLimiter(timing.gossip_s)
        self._news = News(bitmaps=options.bitmaps)
        self._lap = Lap(rng)
        self._number = int(rng.random() * _ODD)
        self._probes: dict[int, Probe] = {}
        self._relays: dict[int, Relay] = {}
        self._suspicions: dict[str, Suspicion] = {}
        self._seeds: dict[str, tuple[str, int]] = {}  # address -> unit and boot, where known
        self._graves: dict[str, float] = {}  # who died or left, beside the bits; the oldest first
        self._lost: deque[str] = deque(maxlen=LOST_MOST)
        self._alpha_table: dict[str, AlphaRecord] = {}
        self._refute_above = -1
        self._level, self._level_at = 0.0, now  # how many fell lately
        self._load: Load | None = None
        self._load_told_at = -NEVER
        self._purge = False
        self._mark = den_mark(den)
        known = self.view.get(me)
        if known is not None and known.boot == boot:
            self.counter = known.counter
        if known is None or known != Member(me, address, boot, self.counter):
            self.view.put(Member(me, address, boot, self.counter))
            self._news.tell(Record(me, boot, self.counter, Status.ALIVE, None, address), self.view, self._times())
        self._set_sender()
        # Alarms: when what is next due of each sort; NEVER: nothing is.
        self._probe_at = now + rng.random() * timing.probe_s
        self._sync_at = now + rng.random() * timing.sync_s
        self._due_probes = self._due_relays = self._due_suspicions = NEVER
        self._heal_at = self._settle_at = self._load_at = NEVER
        self._gossiped_at = now - timing.gossip_s
        self._gossip_at = now + rng.random() * timing.gossip_s if self._news else NEVER
        self._sync_free_at = now
        self._wake = 0.0
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

    # --- small helpers

    def _set_wake(self) -> None:
        self._wake = min(
            self._probe_at, self._due_probes, self._gossip_at, self._sync_at, self._due_suspicions, self._due_relays,
            self._limiter.due, self._heal_at, self._settle_at, self._load_at,
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

    def _set_sender(self) -> None:
        self._sender = write_sender(Sender(self.me, self.boot, self.counter))
        self._head_ping = self._mark + bytes((Kind.PING,))
        self._head_ack = self._mark + bytes((Kind.ACK,))

    def _times(self) -> int:
        return retransmits(self.options.retransmit, self.view.living)

    def _own_s(self, seconds: float) -> float:
        """A time of one's own probes."""
        return stretched(seconds, self._health.score) if self.options.local_health_probe else seconds

    def _next_number(self) -> int:
        self._number = number = self._number + 1 & _ODD
        return number

    # --- sending

    def _send(self, to: str, head: bytes, unit: str | None = None) -> None:
        """A packet, filled up with news; a unit that is not thought alive is told so first (the buddy system)."""
        member = None if unit is None else self.view.get(unit)
        tell = member is not None and member.status is not Status.ALIVE
        if tell or self._news:
            writer = Writer(head)
            if tell and member is not None and (self.options.buddy or member.status is not Status.SUSPECT):
                writer.record(Record(member.unit, member.boot, member.counter, member.status))
            if self._news:
                times = self._times()
                self._news.fill(writer, self.view, times, max(2, times // 2))
            head = writer.done()
        self._orders.append(SendPacket(to, head))

    def _ping(self, probe: Probe) -> None:
        number = self._next_number()
        self._probes[number] = probe
        self._due_probes = min(self._due_probes, probe.due)
        self._send(probe.address, self._head_ping + number.to_bytes(4, "big") + self._sender, probe.unit)

    def _wants_gossip(self, now: float) -> None:
        if self._gossip_at == NEVER:
            self._gossip_at = max(now, self._gossiped_at + self.timing.gossip_s)

    def _want_sync(self, now: float, address: str) -> None:
        """Something here cannot be judged from a packet."""
        if now >= self._sync_free_at:
            self._sync_free_at = now + SYNC_GAP * self.timing.gossip_s
            self._ask_sync(address)

    def _ask_sync(self, address: str) -> None:
        self._orders.append(AskSync(address, self._message(Kind.SYNC_ASK)))

    def _message(
        self, kind: Kind, scope: Scope = Scope.ALL, *, items: bool = False, buckets: int = 1,
        wanted: frozenset[int] = frozenset(),
    ) -> bytes:  # fmt: skip
        loads = self.loads if items else None
        return anti_entropy.write_message(
            self._mark, self._sender, self.address, self.view, kind, loads=loads, alphas=self._alpha_table.values(),
            scope=scope, buckets=buckets, wanted=wanted,
        )  # fmt: skip

    # --- packets

    def _on_packet(self, now: float, source: str, data: bytes) -> None:
        if data[:6] != self._mark:
            self.counters["foreign"] += 1
            return
        try:
            kind, number, sender, target, body = read_packet(data)
            items = read_items(body) if body else None
        except ValueError:
            self.counters["malformed"] += 1
            return
        if not self._hear(now, sender, source):
            return
        if items is not None:
            self._take_in(now, items, source)
        if kind is Kind.PING:
            self._send(source, self._head_ack + data[7:11] + self._sender, sender.unit)
        elif kind is Kind.ACK:
            self._on_ack(now, number, sender, source)
        elif kind is Kind.PING_REQ:
            self._on_ping_req(now, number, source, target)
        elif kind is Kind.NACK:
            probe = self._probes.get(number)
            if probe is not None and source in probe.asked:
                probe.nackers.add(sender.unit)
        elif kind is not Kind.GOSSIP:
            self.counters["malformed"] += 1

    def _hear(self, now: float, sender: Sender, source: str) -> bool:
        """A unit spoke itself: it lives, here, in this incarnation. False: its words do not count."""
        unit, boot, counter = sender
        known = self.view.get(unit)
        if known is not None and known.boot == boot and known.counter == counter:
            if known.status is Status.ALIVE and known.address == source:
                return unit != self.me
            if unit == self.me:
                return False
            if known.address != source:
                self.view.put(known._replace(address=source))
            if known.status >= Status.LEFT:  # it does not know: its defence is what counts
                self._send(source, self._mark + bytes((Kind.GOSSIP,)) + bytes(4) + self._sender, unit)
            return True
        if unit == self.me:
            self.counters["another_me"] += 1
            return False
        if known is None or (boot, counter) > (known.boot, known.counter):
            heals = known is not None and known.status is Status.DEAD
            self._learn(now, known, Member(unit, source, boot, counter), None, "it spoke")
            if heals:
                self._want_sync(now, source)
            return True
        if boot < known.boot:
            self.counters["old_boot"] += 1
            return False
        return True

    def _on_ack(self, now: float, number: int, sender: Sender, source: str) -> None:
        probe = self._probes.get(number)
        if probe is None:
            return
        direct = sender.unit == probe.unit or not probe.unit
        if not direct and source not in probe.asked:
            return
        del self._probes[number]
        if not self._probes:
            self._due_probes = NEVER
        self._health.improve()
        suspicion = self._suspicions.get(probe.unit)
        if suspicion is not None and self.options.helpers_confirm:
            suspicion.restart(now)
            self._set_due_suspicions()
        if direct and self.loads.known:
            vote = self.loads.witness(now, self.me, sender.unit)
            if vote is not None:
                self._on_vote(now, vote)

    def _on_ping_req(self, now: float, number: int, source: str, target: str) -> None:
        if len(self._relays) >= RELAYS_MOST:
            self.counters["too_many_relays"] += 1
            return
        own = self._next_number()
        nack_at = now + NACK_SHARE * self.timing.ack_s
        relay = Relay(source, number, nack_at, now + self.timing.probe_s)
        self._relays[own] = relay
        self._due_relays = min(self._due_relays, nack_at)
        head = self._head_ping + own.to_bytes(4, "big") + self._sender
        self._send(target, head, self.view.unit_at(target))

    # --- news

    def _take_in(self, now: float, items: Items, source: str, *, synced: bool = False) -> None:
        for record in items.records:
            self._on_claim(now, record, source, synced)
        for bitmap in items.bitmaps:
            self._on_bitmap(now, bitmap, source, synced)
        for load in items.loads:
            self._on_load(now, load)
        for vote in items.votes:
            self._on_vote(now, vote)
        for alpha in items.alphas:
            self._on_alpha(now, alpha)

    def _on_bitmap(self, now: float, bitmap: Bitmap, source: str, synced: bool) -> None:
        if bitmap.base != self.view.base.digest:
            self.counters["other_base"] += 1
            if not synced:
                self._want_sync(now, source)
            return
        try:
            dead = self.view.newly_dead(bitmap.start, bitmap.bits)
        except ValueError:
            self.counters["malformed"] += 1
            return
        for unit, _, boot, counter, _ in dead:
            self._on_claim(now, Record(unit, boot, counter, Status.DEAD), source, synced)

    def _on_claim(self, now: float, record: Record, source: str, synced: bool) -> None:
        """Somebody says what it thinks of a unit."""
        unit, boot, counter, status, accuser, address = record
        if unit == self.me:
            self._on_claim_about_me(now, record)
            return
        known = self.view.get(unit)
        if known is None:
            if not address and status <= Status.SUSPECT:
                self._want_sync(now, source)
                return
            self._learn(now, None, Member(unit, address or "", boot, counter, status), accuser, "gossip")
            return
        if (boot, counter, status) <= known.standing:
            if status is Status.SUSPECT and accuser is not None and known[2:] == (boot, counter, status):
                self._on_confirmation(now, unit, accuser)
            elif address and not known.address and boot == known.boot:
                self.view.put(known._replace(address=address))
            return
        ahead = boot - known.boot if boot != known.boot else counter - known.counter
        if not synced and ahead > (BOOT_AHEAD if boot != known.boot else COUNTER_AHEAD):
            self.counters["far_ahead"] += 1
            self._want_sync(now, source)
            return
        self._learn(now, known, Member(unit, address or known.address, boot, counter, status), accuser, "gossip")

    def _learn(self, now: float, before: Member | None, member: Member, accuser: str | None, reason: str) -> None:
        """The one place where the view of another unit moves up."""
        unit, address, boot, counter, status = member
        self.view.put(member)
        reborn = before is None or before.boot != boot
        told = address if status is Status.ALIVE and reborn and address else None
        if status is not Status.SUSPECT or accuser == self.me or not self._many_fall(now):
            self._news.tell(Record(unit, boot, counter, status, accuser, told), self.view, self._times())
            self._wants_gossip(now)
        if before is None or before.status is not status or reborn:
            self._orders.append(StatusChanged(unit, boot, status, reason))
        if self.options.bitmaps and len(self.view) >= anti_entropy.SMALL:
            self._settle_at = now + self.options.settle_s
        if status is Status.SUSPECT:
            if accuser is not None and (accuser == self.me or self.options.hearsay_timers):
                self._start_suspicion(now, member, accuser)
        elif self._suspicions.pop(unit, None) is not None:
            self._set_due_suspicions()
        if status <= Status.SUSPECT:
            self._graves.pop(unit, None)
            if reborn:
                self.loads.forget(unit)
            if status is Status.SUSPECT:
                self._fell(now)
            return
        self.loads.forget(unit)
        self._news.loads.drop(unit)
        if before is None or before.status is Status.ALIVE:
            self._fell(now)
        if self.view.slot_in_bits(unit) is None or status is Status.LEFT:
            self._bury(now, unit)
        if self._heal_at == NEVER:
            self._heal_at = now + self.options.heal_s * (0.5 + self._rng.random())

    def _fell(self, now: float) -> None:
        """Counts who falls, and forgets it within a few probe periods."""
        fade = math.exp((self._level_at - now) / (4 * self.timing.probe_s))
        self._level, self._level_at = self._level * fade + 1.0, now

    def _many_fall(self, now: float) -> bool:
        if not self.options.hurry or self._level < 1.0:
            return False
        level = self._level * math.exp((self._level_at - now) / (4 * self.timing.probe_s))
        return level > max(3.0, MANY * self.view.living)

    def _on_load(self, now: float, record: LoadRecord) -> None:
        known = self.view.get(record.unit)
        if known is None or record.unit == self.me or known.boot != record.boot or not known.lives:
            return
        if self.loads.hear(now, record):
            self._news.loads.put(record.unit, record)
            self._wants_gossip(now)
            self._judge_stall(record.unit, record.boot)

    def _on_vote(self, now: float, vote: StallVote) -> None:
        behind = vote.unit == self.me and self._load is not None and vote.progress < self._load.progress
        if behind:  # they do not know yet how far I got
            self._load_at = min(self._load_at, max(now, self._load_told_at + self._load_gap()))
            return
        if self.loads.vote(vote):
            self._news.votes.put(f"{vote.unit} {vote.witness}", vote)
            self._wants_gossip(now)
            self._judge_stall(vote.unit, vote.boot)

    def _judge_stall(self, unit: str, boot: int) -> None:
        verdict = self.loads.judge(unit)
        if verdict is not None:
            self._orders.append(Stalled(unit, boot, verdict))

    def _on_alpha(self, now: float, alpha: AlphaRecord) -> bool:
        known = self._alpha_table.get(alpha.pack)
        if known is not None and alpha.term <= known.term:
            return False
        if known is None and len(self._alpha_table) >= PACKS_MOST:
            self.counters["too_many_packs"] += 1
            return False
        self._alpha_table[alpha.pack] = alpha
        self._news.alphas.put(alpha.pack, alpha)
        self._wants_gossip(now)
        self._orders.append(AlphaHeard(*alpha))
        return True

    # --- about me

    def _on_claim_about_me(self, now: float, record: Record) -> None:
        if record.boot != self.boot:
            if record.boot > self.boot:
                self.counters["newer_boot"] += 1
            return
        if (record.counter, record.status) <= (self.counter, Status.ALIVE):
            return
        if record.counter - self.counter > COUNTER_AHEAD:
            self.counters["far_ahead"] += 1
            return
        self._refute_above = max(self._refute_above, record.counter)
        if not self.options.limit_refutations or self._limiter.ask(now) <= now:
            self._refute(now)

    def _refute(self, now: float) -> None:
        """One answer to every wrong claim so far: a counter above all of them, never used before."""
        self.counter = max(self.counter, self._refute_above) + 1
        self._limiter.leave(now, suspicion_min_s(self.timing, self.view.living))
        self._health.worsen()
        self._set_sender()
        self.view.put(Member(self.me, self.address, self.boot, self.counter))
        record = Record(self.me, self.boot, self.counter, Status.ALIVE)
        self._news.tell(record, self.view, self._times())
        self._wants_gossip(now)

    # --- suspicion

    def _start_suspicion(self, now: float, member: Member, accuser: str) -> None:
        n = self.view.living
        self._suspicions[member.unit] = Suspicion(
            incarnation=member.incarnation, accuser=accuser, started=now,
            expected=confirmations_expected(n) if self.options.local_health_suspicion else 0,
            least_s=suspicion_min_s(self.timing, n), most_s=suspicion_max_s(self.timing, n),
        )  # fmt: skip
        self._set_due_suspicions()

    def _set_due_suspicions(self) -> None:
        self._due_suspicions = min([suspicion.deadline for suspicion in self._suspicions.values()], default=NEVER)

    def _on_confirmation(self, now: float, unit: str, accuser: str) -> None:
        suspicion = self._suspicions.get(unit)
        if suspicion is not None and suspicion.confirm(accuser):
            known = self.view.get(unit)
            if known is not None:
                record = Record(unit, known.boot, known.counter, Status.SUSPECT, accuser)
                self._news.tell(record, self.view, self._times())
            self._wants_gossip(now)
            self._set_due_suspicions()

    def _accuse(
        self, now: float, unit: str, reason: str, nackers: Collection[str] = (), again: bool = False
    ) -> None:  # fmt: skip
        """I found this unit silent myself."""
        known = self.view.get(unit)
        if known is None or not known.lives:
            return
        if known.status is Status.ALIVE:
            self._learn(now, known, known._replace(status=Status.SUSPECT), self.me, reason)
        elif unit not in self._suspicions:
            self._start_suspicion(now, known, self.me)
            record = Record(unit, known.boot, known.counter, Status.SUSPECT, self.me)
            self._news.tell(record, self.view, self._times())
            self._wants_gossip(now)
        else:
            self._on_confirmation(now, unit, self.me)
        suspicion = self._suspicions[unit]
        if self.options.helpers_confirm:
            for nacker in nackers:
                suspicion.confirm(nacker)
            self._set_due_suspicions()
            if not again or not suspicion.settled:
                self._probe_again(now, known)

    def _probe_again(self, now: float, member: Member) -> None:
        """At once and through other helpers: so the suspect is told first, and confirmations come."""
        if any(probe.again and probe.unit == member.unit for probe in self._probes.values()):
            return
        ack_s = self._own_s(self.timing.ack_s)
        probe = Probe(member.unit, member.address, now, now + max(self.timing.probe_s, ack_s), again=True)
        self._ping(probe)

    # --- ticks

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

    def _probe_next(self, now: float) -> None:
        period = self._own_s(self.timing.probe_s)
        ack_s = self._own_s(self.timing.ack_s)
        hurried = self._many_fall(now) and not self._health.score
        self._probe_at = now + (period / HURRY if hurried else period)
        if self._seeds:
            self._ping_seed(now)
        member = self._lap.next(self.view, self.me)
        if member is not None:
            self._ping(Probe(member.unit, member.address, now + ack_s, now + period))

    def _ping_seed(self, now: float) -> None:
        """An address has no id until it answered: a probe of nobody in particular."""
        address, (unit, boot) = self._seeds.popitem()
        if not self._knows(address, unit, boot):
            self._seeds = {address: (unit, boot), **self._seeds}
            period = self._own_s(self.timing.probe_s)
            self._ping(Probe("", address, NEVER, now + period, heal=True))

    def _knows(self, address: str, unit: str, boot: int) -> bool:
        found = self.view.get(unit or self.view.unit_at(address) or "")
        if address == self.address or unit == self.me:
            return True
        return found is not None and found.boot >= boot and (found.lives or found.boot > boot > 0)

    def _judge_probes(self, now: float) -> None:
        for number, probe in list(self._probes.items()):
            if now >= probe.end_at:
                del self._probes[number]
                if not probe.heal:
                    self._probe_failed(now, probe)
            elif now >= probe.due:
                helpers = pick(self.view, self._rng, self.timing.helpers, (self.me, probe.unit))
                head = write_head(self._mark, Kind.PING_REQ, number, self._sender, probe.address)
                for helper in helpers:
                    self._send(helper.address, head, helper.unit)
                probe.asked = tuple(helper.address for helper in helpers)
                probe.ack_at = NEVER
        self._due_probes = min([probe.due for probe in self._probes.values()], default=NEVER)

    def _probe_failed(self, now: float, probe: Probe) -> None:
        missed = len(probe.asked) - len(probe.nackers)
        if not probe.asked:
            self._health.worsen()
        elif missed > 0 and not probe.again:
            self._health.worsen(missed)
        self._accuse(now, probe.unit, "no ack", probe.nackers, probe.again)

    def _judge_relays(self, now: float) -> None:
        for number, relay in list(self._relays.items()):
            if now >= relay.end_at:
                del self._relays[number]
            elif now >= relay.nack_at:
                relay.nack_at = NEVER
                self._send(relay.asker, write_head(self._mark, Kind.NACK, relay.number, self._sender))
        self._due_relays = min([relay.due for relay in self._relays.values()], default=NEVER)

    def _judge_suspicions(self, now: float) -> None:
        for unit, suspicion in list(self._suspicions.items()):
            if now < suspicion.deadline:
                continue
            del self._suspicions[unit]
            known = self.view.get(unit)
            if known is not None and known.status is Status.SUSPECT and known.incarnation == suspicion.incarnation:
                confirmed = len(suspicion.confirmers) - 1
                reason = f"no defence, {confirmed} confirmed"
                self._learn(now, known, known._replace(status=Status.DEAD), None, reason)
        self._set_due_suspicions()

    def _gossip(self, now: float) -> None:
        self._gossiped_at = now
        head = self._mark + bytes((Kind.GOSSIP,)) + bytes(4) + self._sender
        for member in pick(self.view, self._rng, self.timing.fan_out, (self.me,)):
            if not self._news:
                break
            self._send(member.address, head, member.unit)
        self._gossip_at = now + self.timing.gossip_s if self._news else NEVER

    # --- the dead

    def _heal(self, now: float) -> None:
        """Calls one of the dead, or of those whose death is forgotten: a partition may have ended."""
        dead = [unit for unit in self._graves if (m := self.view.get(unit)) and m.status is Status.DEAD and m.address]
        members = self.view.base.members
        bits = [slot for slot in set_bits(self.view.dead_bits()) if members[slot].unit not in self._graves]
        self._heal_at = now + self.options.heal_s if dead or bits or self._lost else NEVER
        at = int(self._rng.random() * (len(dead) + len(bits) + len(self._lost)))
        if at < len(dead):
            address = getattr(self.view.get(dead[at]), "address", "")
        elif at < len(dead) + len(bits):
            address = members[bits[at - len(dead)]].address
        elif self._lost:
            address = self._lost[at - len(dead) - len(bits)]
        else:
            return
        unit = self.view.unit_at(address) or ""
        known = self.view.get(unit)
        if address and (known is None or not known.lives):
            self._ping(Probe(unit, address, NEVER, now + self._own_s(self.timing.probe_s), heal=True))

    def _bury(self, now: float, unit: str) -> None:
        """Remembers who died or left, within bounds."""
        self._graves.pop(unit, None)
        self._graves[unit] = now
        while len(self._graves) > self.options.tombstones_most:
            self._forget(next(iter(self._graves)))
        oldest = next(iter(self._graves))
        if now - self._graves[oldest] > self.options.tombstone_s:
            self._forget(oldest)

    def _forget(self, unit: str) -> None:
        del self._graves[unit]
        known = self.view.get(unit)
        if known is None or known.lives:
            return
        if known.status is Status.DEAD and known.address:
            self._lost.append(known.address)
        if unit in self.view.base.index:
            self._purge = True
        self.view.forget(unit)
        self._news.health.drop(unit)

    def _settle(self, now: float) -> None:
        """Nothing happened for a while: the view becomes the base of the next differences."""
        if self._news or self._suspicions or self._probes or not self.view.settle(keep_dead=not self._purge):
            self._settle_at = now + self.options.settle_s
            return
        self._settle_at = NEVER
        self._purge = False
        self._graves = {unit: at for unit, at in self._graves.items() if unit in self.view}
        self._lap.reset()

    # --- rare events

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
        head = self._mark + bytes((Kind.GOSSIP,)) + bytes(4) + self._sender
        for other in pick(self.view, self._rng, GOODBYES * self.timing.fan_out, (self.me,)):
            self._send(other.address, head)
        self._gone = True
        self._probe_at = self._sync_at = self._gossip_at = self._settle_at = self._heal_at = self._load_at = NEVER
        self._due_probes = self._due_relays = self._due_suspicions = NEVER

    # --- own load

    def _load_gap(self) -> float:
        return self.options.load_s * max(1.0, self.view.living / LOAD_UNITS)

    def _on_own_load(self, now: float, load: Load) -> None:
        before = self._load
        if before is not None and before == Load(
            before.seq, load.leases, load.queued, load.capacity, load.progress, load.budgets
        ):
            return
        self._load = Load(
            0 if before is None else before.seq, load.leases, load.queued, load.capacity, load.progress, load.budgets
        )
        self._load_at = min(self._load_at, max(now, self._load_told_at + self._load_gap()))
        if self._load_at <= now:
            self._tell_load(now)

    def _tell_load(self, now: float) -> None:
        self._load_at = NEVER
        load = self._load
        if load is None:
            return
        self._load_told_at = now
        self._load = Load(load.seq + 1, load.leases, load.queued, load.capacity, load.progress, load.budgets)
        record = LoadRecord(self.me, self.boot, self._load)
        self.loads.hear(now, record)
        self._judge_stall(self.me, self.boot)
        self._news.loads.put(self.me, record)
        self._wants_gossip(now)

    # --- anti-entropy

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
        self._take_in(now, message.items, message.address, synced=True)
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
