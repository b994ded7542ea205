"""What one unit thinks of the others, and how that changes: the lowest layer of the membership machine.

All that is learned of a unit passes one ladder, `_on_claim` (unknown? about me? far ahead? stale?), and then `_learn`,
the one place where the view of another unit moves up, is told on, and times suspicions. Of two claims the one with the
higher (boot, counter, status) wins, so views come to agree in whatever order claims arrive. Only the owner raises its
counter, in `_refute`, the one answer to a wrong claim about oneself.
"""

from __future__ import annotations

import math
import random
from collections import Counter, OrderedDict, deque

from wolfpack.core import anti_entropy
from wolfpack.core.anti_entropy import Scope
from wolfpack.core.gossip import News
from wolfpack.core.items import AlphaRecord, Bitmap, Record, Writer, is_address
from wolfpack.core.loads import Loads
from wolfpack.core.membership_words import AskSync, MembershipOptions, Order, SendPacket, Status, StatusChanged
from wolfpack.core.packets import Kind, Sender, den_mark, write_sender
from wolfpack.core.suspicion import (
    LocalHealth,
    RefutationLimiter,
    Suspicion,
    confirmations_expected,
    load_retransmits,
    retransmits,
    suspicion_max_s,
    suspicion_min_s,
)
from wolfpack.core.view import Member, View
from wolfpack.model import Timing

BOOT_AHEAD = 1_000  # an incarnation further ahead of the known one is no news but an error, or worse
COUNTER_AHEAD = 10_000
MEMBERS_MOST = 100_000  # alive, dead and gone; beyond it no rumour of a further one is believed
LOST_MOST = 64  # addresses of forgotten dead units that are still called now and then
SYNC_GAP = 5  # x gossip_s: not more often is a view asked for because of some odd news
MANY = 0.05  # of all units, within some probe periods: many fall
MANY_LEAST, MANY_MOST = 3.0, 32.0  # units; thousands of suspects, passed on as a record each, would fill all packets
NEVER = math.inf


class Beliefs:
    """The view of one unit, what it has to tell of it, and the suspicions that run here. See `Membership`."""

    __slots__ = (
        "_alpha_table", "_due_suspicions", "_gossip_at", "_gossiped_at", "_graves", "_head_ack", "_head_gossip",
        "_head_ping", "_heal_at", "_health", "_level", "_level_at", "_limiter", "_lost", "_mark", "_news", "_orders",
        "_purge", "_quiet", "_refute_above", "_rng", "_sender", "_settle_at", "_suspicions", "_sync_free_at", "address",
        "boot", "counter", "counters", "den", "loads", "me", "options", "timing", "view",
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
        self._news = News(bitmaps=options.bitmaps)
        self._health = LocalHealth()
        self._limiter = RefutationLimiter(timing.gossip_s)
        self._refute_above = -1
        self._suspicions: dict[str, Suspicion] = {}
        self._alpha_table: dict[str, AlphaRecord] = {}
        self._graves: OrderedDict[str, float] = OrderedDict()  # who died or left, beside the bits; the oldest first
        self._lost: deque[str] = deque(maxlen=LOST_MOST)
        self._quiet = False  # what is learned now is known to all others
        self._purge = False  # more died than are remembered: the next base holds none of them
        self._level, self._level_at = 0.0, now  # how many fell lately
        # Alarms: when what is next due of each sort; NEVER: nothing is.
        self._due_suspicions = self._heal_at = self._settle_at = self._gossip_at = NEVER
        self._gossiped_at = now - timing.gossip_s * rng.random()
        self._sync_free_at = now
        self._mark = den_mark(den)
        known = self.view.get(me)
        if known is not None and known.boot == boot:
            self.counter = known.counter
        self._set_sender()
        if known != (own := Member(me, address, boot, self.counter)):
            self.view.put(own)
            self._news.tell(Record(me, boot, self.counter, Status.ALIVE, None, address), self.view, self._times())
            self._wants_gossip(now)

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
                self._news.fill(writer, self.view, times, load_retransmits(times))
            head = writer.done()
        self._orders.append(SendPacket(to, head))

    def _wants_gossip(self, now: float) -> None:
        if self._gossip_at == NEVER:
            self._gossip_at = max(now, self._gossiped_at + self.timing.gossip_s)

    def _want_sync(self, now: float, address: str) -> None:
        """Something here cannot be judged from a packet."""
        if now >= self._sync_free_at:
            self._sync_free_at = now + SYNC_GAP * self.timing.gossip_s
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

    def _set_sender(self) -> None:
        self._sender = write_sender(Sender(self.me, self.boot, self.counter))
        self._head_ping = self._mark + bytes((Kind.PING,))
        self._head_ack = self._mark + bytes((Kind.ACK,))
        self._head_gossip = self._mark + bytes((Kind.GOSSIP,)) + bytes(4) + self._sender

    def _times(self) -> int:
        return retransmits(self.options.retransmit, self.view.living)

    # --- what is heard

    def _hear(self, now: float, sender: Sender, source: str) -> bool:
        """A unit spoke itself: it lives, here, in this incarnation. False: its words do not count."""
        unit, boot, counter = sender
        known = self.view.get(unit)
        if known == (unit, source, boot, counter, Status.ALIVE):
            return unit != self.me
        if not is_address(source):  # who keeps it could never write it down again
            self.counters["malformed"] += 1
            return False
        if known is not None and known.boot == boot and known.counter == counter:
            if unit == self.me:
                return False
            if known.address != source:
                self.view.put(known._replace(address=source))
            if known.status >= Status.LEFT:  # it does not know: its defence is what counts
                self._send(source, self._head_gossip, unit)
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
        rest = [member for member in dead if member.unit == self.me]
        died = [member for member in dead if member.unit != self.me] if rest else dead
        if died:
            rest += self._learn_deaths(now, died)
        for unit, _, boot, counter, _ in rest:
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
            if len(self.view) >= MEMBERS_MOST:
                self.counters["too_many_members"] += 1
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
        hearsay = status is Status.SUSPECT and accuser != self.me
        if not self._quiet and not (hearsay and self._many_fall(now)):
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

    def _learn_deaths(self, now: float, members: list[Member]) -> list[Member]:
        """`_learn` for many deaths that bits can tell; returns the others."""
        rest = self.view.bury(members)
        if rest:
            left = {member.unit for member in rest}
            members = [member for member in members if member.unit not in left]
        self._news.tell_deaths(members, self.view, self._times())
        self._orders += [StatusChanged(member.unit, member.boot, Status.DEAD, "gossip") for member in members]
        if self.loads.known:
            for member in members:
                self.loads.forget(member.unit)
                self._news.loads.drop(member.unit)
        if self._suspicions:
            for member in members:
                self._suspicions.pop(member.unit, None)
            self._set_due_suspicions()
        self._wants_gossip(now)
        self._fell(now, len(members))
        self._settle_at = now + self.options.settle_s
        if self._heal_at == NEVER:
            self._heal_at = now + self.options.heal_s * (0.5 + self._rng.random())
        return rest

    def _fell(self, now: float, count: int = 1) -> None:
        """Counts who falls, and forgets it within a few probe periods."""
        fade = math.exp((self._level_at - now) / (4 * self.timing.probe_s))
        self._level, self._level_at = self._level * fade + count, now

    def _many_fall(self, now: float) -> bool:
        if not self.options.hurry or self._level < 1.0:
            return False
        level = self._level * math.exp((self._level_at - now) / (4 * self.timing.probe_s))
        return level > max(MANY_LEAST, min(MANY_MOST, MANY * self.view.living))

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

    # --- the dead

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
