"""The alpha's brain: the part of a unit's brain that is active while it holds its pack's term.

Members hunt here; what they bring (reports, leases held, spare room) is gathered into turns to the keeper, and what
turns bring (leases, acknowledgements, cancels) goes out with the answers to hunts. At most one turn is parked at the
keeper and one on its way, and the same holds for the hunts of each member, so batches form by themselves: whatever
arrives during a round trip travels with the next one. After each turn the alpha plans: how large the pack should be
(`scaling`), whom to call or wake (`recruiting`), whom to let go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from wolfpack.core.book.state import needs_from_json
from wolfpack.core.errands import AnswerHunt, Order, PublishFailure, SendSummons, SendTurn
from wolfpack.core.recruiting import Candidate, Member, Pending, StepKind, plan, who_leaves
from wolfpack.core.scaling import Demand, Scaler, Size, fair_prefetch
from wolfpack.core.seating import find_missing
from wolfpack.core.wire import Hunt, HuntReply, MemberTurn, RosterEntry, Turn, TurnReply
from wolfpack.model import Card, Job, Needs, PackSpec, Readiness, Report, Timing
from wolfpack.plain import card_from_json, pack_from_json

IDLE_PARK = 0.2  # x lease_s: a hunt of a member without leases may wait so long; a lease it brings must be startable
SUMMONS_S = 6.0  # an unanswered summons is forgotten
PLAN_S = 0.05  # not planned more often


@dataclass(slots=True)
class Follower:
    """A member as its hunts tell."""

    boot: int
    n: int = 0  # its newest hunt
    parked: int = 0  # number of the parked hunt, 0 for none
    parked_at: float = 0.0
    held: tuple[int, ...] = ()
    spare: int = 0
    on_way: dict[int, float] = field(default_factory=dict)  # leases granted, not yet listed, and since when
    jobs: list[Job] = field(default_factory=list)
    acked: list[int] = field(default_factory=list)
    cancels: list[tuple[int, bool, str]] = field(default_factory=list)
    leave: str = ""
    peers_version: int = -1
    renewed: int = 0  # newest hunt known to the keeper
    told_renewed: int = 0

    @property
    def has_news(self) -> bool:
        return bool(self.jobs or self.acked or self.cancels or self.leave)


class Alpha:
    """Leads one pack for one term."""

    def __init__(self, *, card: Card, boot: int, pack: str, term: int, timing: Timing, now: float) -> None:
        self.card, self.boot, self.pack, self.term = card, boot, pack, term
        self._timing = timing
        self._followers: dict[str, Follower] = {}
        self._reports: dict[int, tuple[str, int, Report, int]] = {}  # lease -> unit, boot, report, seq that carries it
        self._cards: dict[str, Card] = {card.unit: card}
        self._roster: dict[str, RosterEntry] = {}
        self._roster_at: dict[str, float] = {}  # when an entry came: its tenure runs down from then
        self._roster_version = 0
        self._peers_version = 0
        self._spec = PackSpec(name=pack)
        self._known = False  # whether the first turn was answered
        self._draining = False
        self._demands: dict[Needs, Demand] = {}
        self._scaler = Scaler()
        self._size = -1
        self._seq = 0
        self._open: dict[int, tuple[float, dict[str, int]]] = {}  # turn -> when sent, hunts it carried
        self._asked: dict[str, int] = {}  # asks of the newest turn
        self._plan: tuple[str, ...] = ()
        self._decision: tuple[int, int, str] | None = None
        self._wakes: Counter[str] = Counter()
        self._call_off: list[str] = []
        self._summoned: dict[str, float] = {}
        self._planned_at = now - PLAN_S
        self.seen_commit = 0

    # --- hunts --------------------------------------------------------------------------------------------------

    def on_hunt(self, now: float, hunt: Hunt) -> list[Order]:
        """Takes what the member brings; answers at once if there is news, else parks the hunt."""
        follower = self._followers.get(hunt.unit)
        if follower is None or hunt.boot > follower.boot:
            follower = self._followers[hunt.unit] = Follower(hunt.boot)
        if hunt.boot < follower.boot or hunt.n <= follower.n:
            return [self._empty(hunt)]
        orders: list[Order] = []
        if follower.parked:
            orders.append(self._answer(hunt.unit, follower))
        follower.n = follower.parked = hunt.n
        follower.parked_at = now
        follower.held, follower.spare = hunt.held, hunt.spare
        for lease_no in hunt.held:
            follower.on_way.pop(lease_no, None)
        for report in hunt.settled:
            follower.on_way.pop(report.lease_no, None)
            if report.lease_no not in self._reports:
                self._reports[report.lease_no] = (hunt.unit, hunt.boot, report, 0)
        return orders + self._flush(now) + self._maybe_turn(now)

    def _empty(self, hunt: Hunt) -> AnswerHunt:
        reply = HuntReply(self.term, self.card.unit, self.boot, hunt.n)
        return AnswerHunt(unit=hunt.unit, n=hunt.n, reply=reply)

    def _answer(self, unit: str, follower: Follower) -> AnswerHunt:
        peers = self.peers() if follower.peers_version != self._peers_version else None
        reply = HuntReply(
            self.term, self.card.unit, self.boot, follower.parked, tuple(follower.jobs), tuple(follower.acked),
            tuple(follower.cancels), follower.renewed, peers, follower.leave,
        )  # fmt: skip
        n, follower.parked = follower.parked, 0
        follower.jobs, follower.acked, follower.cancels, follower.leave = [], [], [], ""
        follower.peers_version, follower.told_renewed = self._peers_version, follower.renewed
        return AnswerHunt(unit=unit, n=n, reply=reply)

    def _flush(self, now: float) -> list[Order]:
        """Answers parked hunts that have news, or have waited long enough."""
        orders: list[Order] = []
        for unit, follower in self._followers.items():
            if not follower.parked:
                continue
            limit = self._timing.heartbeat_s if follower.held or follower.on_way else IDLE_PARK * self._timing.lease_s
            stale = follower.peers_version != self._peers_version and self._known
            if follower.has_news or stale or now - follower.parked_at >= limit:
                orders.append(self._answer(unit, follower))
        return orders

    # --- turns --------------------------------------------------------------------------------------------------

    def on_turn_done(self, now: float, seq: int, reply: TurnReply, *, may_lease: bool) -> list[Order]:
        """Takes what the keeper gives. Leases that may not be handed out any more return by themselves."""
        sent = self._open.pop(seq, None)
        if sent is not None:
            for unit, n in sent[1].items():
                if unit in self._followers:
                    self._followers[unit].renewed = max(self._followers[unit].renewed, n)
        self._known = True
        self.seen_commit = max(self.seen_commit, reply.commit_no)
        self._demands = {needs_from_json(row.needs): self._demand(*row[1:]) for row in reply.demand}
        self._spec, self._draining = pack_from_json(reply.spec), reply.draining
        self._take_roster(now, reply)
        for unit, numbers in reply.acked:
            for lease_no in numbers:
                self._reports.pop(lease_no, None)
            if unit in self._followers:
                self._followers[unit].acked.extend(numbers)
        for lease_no, (unit, boot, report, carrier) in list(self._reports.items()):
            if carrier == seq:
                self._reports[lease_no] = (unit, boot, report, 0)
        for unit, orders in reply.cancels:
            if unit in self._followers:
                self._followers[unit].cancels.extend(orders)
        for unit, boot, jobs in reply.leases if may_lease else ():
            follower = self._followers.get(unit)
            if follower is not None and follower.boot == boot:
                follower.jobs.extend(jobs)
                follower.on_way.update(dict.fromkeys((job.lease_no for job in jobs), now))
        return self._maybe_plan(now) + self._flush(now) + self._maybe_turn(now)

    def _demand(self, queued: int, leased: int, service_s: float | None, oldest_wait_s: float) -> Demand:
        return Demand(
            queued_runnable=queued, leased=leased, service_s=service_s, oldest_wait_s=oldest_wait_s,
            concurrency=self.card.hands.concurrency,
        )  # fmt: skip

    def _take_roster(self, now: float, reply: TurnReply) -> None:
        for entry in reply.roster:
            if entry.card:
                self._cards[entry.unit] = card_from_json(entry.card)
            before = self._roster.get(entry.unit)
            self._roster[entry.unit] = entry
            self._roster_at[entry.unit] = now
            if before is None or (before.pack, before.boot, before.readiness) != (
                entry.pack, entry.boot, entry.readiness,
            ):  # fmt: skip
                self._peers_version += 1
                self._summoned.pop(entry.unit, None)
            follower = self._followers.get(entry.unit)
            if follower is not None and (entry.pack != self.pack or entry.boot != follower.boot):
                del self._followers[entry.unit]
        self._roster_version = max(self._roster_version, reply.roster_version)

    def on_turn_lost(self, now: float, seq: int) -> list[Order]:
        """No answer: what it carried goes out again with the next turn; the keeper knows what it has settled."""
        self._open.pop(seq, None)
        for lease_no, (unit, boot, report, carrier) in list(self._reports.items()):
            if carrier == seq:
                self._reports[lease_no] = (unit, boot, report, 0)
        return self._maybe_turn(now)

    def on_tick(self, now: float) -> list[Order]:
        for follower in self._followers.values():
            old = [no for no, since in follower.on_way.items() if now - since > self._timing.lease_s]
            for lease_no in old:
                del follower.on_way[lease_no]
        return self._maybe_plan(now) + self._flush(now) + self._maybe_turn(now)

    def _maybe_turn(self, now: float) -> list[Order]:
        if len(self._open) >= 2:
            return []
        asks = self._asks()
        fresh = [no for no, (_, _, _, carrier) in self._reports.items() if not carrier]
        news = bool(
            fresh
            or self._wakes
            or self._call_off
            or self._decision
            or any(number > self._asked.get(unit, 0) for unit, number in asks.items())
        )
        if self._open and not news:
            return []
        self._seq += 1
        settled: dict[tuple[str, int], list[Report]] = {}
        for lease_no in fresh:
            unit, boot, report, _ = self._reports[lease_no]
            settled.setdefault((unit, boot), []).append(report)
            self._reports[lease_no] = (unit, boot, report, self._seq)
        members = []
        for unit, follower in self._followers.items():
            reports = settled.pop((unit, follower.boot), [])
            members.append(MemberTurn(unit, follower.boot, follower.held, tuple(reports), asks.get(unit, 0)))
        members += [MemberTurn(unit, boot, (), tuple(reports), 0) for (unit, boot), reports in settled.items()]
        turn = Turn(
            self.pack, self.term, self.card.unit, self.boot, self._seq, tuple(members), tuple(self._wakes.items()),
            tuple(self._call_off), self._roster_version, self._plan, self._decision, self.seen_commit,
        )  # fmt: skip
        self._asked, self._wakes, self._call_off, self._decision = asks, Counter(), [], None
        self._open[self._seq] = (now, {unit: follower.n for unit, follower in self._followers.items()})
        return [SendTurn(turn=turn)]

    def sent_at(self, seq: int) -> float | None:
        """When a turn that is still open was sent."""
        sent = self._open.get(seq)
        return sent[0] if sent else None

    def _asks(self) -> dict[str, int]:
        """How many leases each member with a parked hunt should get beyond those it has: its fair share."""
        asks = {}
        queued = sum(demand.queued_runnable for demand in self._demands.values())
        for unit, follower in self._followers.items():
            if not follower.parked or follower.spare <= 0:
                continue
            card = self._cards.get(unit, self.card)
            target = fair_prefetch(
                queued=max(1, queued),
                members=max(1, len(self._followers)),
                concurrency=card.hands.concurrency,
                service_s=self._service_s(card),
            )
            asks[unit] = max(0, min(follower.spare, target - len(follower.held) - len(follower.on_way)))
        return asks

    def _service_s(self, card: Card) -> float | None:
        """The mean time of the tasks this card can serve, weighted by how many there are."""
        total = weight = 0.0
        for needs, demand in self._demands.items():
            if needs.fits(card.offer) and demand.runnable:
                if demand.service_s is None:
                    return None
                total += demand.service_s * demand.runnable
                weight += demand.runnable
        return total / weight if weight else None

    # --- planning -----------------------------------------------------------------------------------------------

    def _maybe_plan(self, now: float) -> list[Order]:
        if not self._known or now - self._planned_at < PLAN_S:
            return []
        self._planned_at = now
        try:
            return self._make_plan(now)
        except Exception as exc:  # the loop must survive whatever a plan raises, and say so
            reason = f"planning failed: {type(exc).__name__}: {exc}"
            repeated = reason in self._plan
            self._plan = (reason,)
            return [] if repeated else [PublishFailure(pack=self.pack, reason=reason)]

    def _make_plan(self, now: float) -> list[Order]:
        entries = [entry for entry in self._roster.values() if entry.pack == self.pack]
        present = [entry for entry in entries if entry.readiness != Readiness.WAKING]
        busy = any(demand.runnable for demand in self._demands.values())
        if self._draining:
            self._plan = ("The pack is dropped: everybody leaves.",)
            return self._let_go((entry.unit, "the pack is dropped") for entry in present)
        # While there is work, those that wake are held on to as members are: the wish swings with each task's length.
        counted = len(entries) if busy else len(present)
        size = self._scaler.step(now, demands=self._demands, spec=self._spec, now_members=counted)
        orders = self._recruit(now, size, present, entries)
        surplus = len(present) - size.size
        if surplus > 0:
            members = [self._member(now, entry) for entry in present]
            parting = who_leaves(members=members, surplus=surplus, due=size.by_needs)
            self._plan += tuple(f"{pick.unit} stays: {pick.reason}" for pick in parting.stay)
            orders += self._let_go((pick.unit, pick.reason) for pick in parting.go)
        if size.size != self._size:
            if self._size >= 0 or size.size != len(present):
                self._decision = (len(present), size.size, size.reason)
            self._size = size.size
        return orders

    def _recruit(self, now: float, size: Size, present: list[RosterEntry], entries: list[RosterEntry]) -> list[Order]:
        self._summoned = {unit: at for unit, at in self._summoned.items() if now - at < SUMMONS_S}
        wished = dict(size.by_needs)
        held = min(size.size, len(entries)) - sum(wished.values())
        if held > 0 and wished:  # kept for a moment, though the work does not ask for them now
            most = max(wished, key=lambda needs: wished[needs])
            wished[most] += held
        seated = [(entry.unit, self._cards[entry.unit].offer) for entry in present]
        wants = find_missing(wished, seated)
        room = max(0, self._spec.most - len(present))
        waking = [entry for entry in entries if entry.readiness == Readiness.WAKING]
        pending = [
            Pending(unit=entry.unit, offer=self._cards[entry.unit].offer, boot=entry.boot) for entry in waking
        ] + [
            Pending(unit=unit, offer=self._cards[unit].offer, kind=StepKind.SUMMON)
            for unit in self._summoned
            if unit in self._cards
        ]
        candidates = [self._candidate(now, entry) for entry in self._roster.values() if entry.pack != self.pack]
        made = plan(wants=_at_most(wants, room), candidates=candidates, pending=pending, members=len(present))
        self._plan = (size.reason, *made.reasons)
        orders: list[Order] = []
        for step in made.steps:
            match step.kind:
                case StepKind.SUMMON:
                    self._summoned[step.unit] = now
                    orders.append(SendSummons(unit=step.unit, boot=step.boot, pack=self.pack))
                case StepKind.WAKE:
                    self._wakes[self._cards[step.unit].kind] += 1
                    self._summoned[step.unit] = now  # counted until the roster shows what the keeper chose
                case StepKind.CALL_OFF:
                    self._call_off.append(step.unit)
        return orders

    def _candidate(self, now: float, entry: RosterEntry) -> Candidate:
        card = self._cards[entry.unit]
        return Candidate(
            unit=entry.unit, offer=card.offer, nature=card.nature, readiness=Readiness(entry.readiness),
            boot=entry.boot, cost_per_h=card.cost_per_h, place=entry.pack,
            lendable=entry.lendable and entry.priority < self._spec.priority,
            tenure_left_s=self._tenure_left_s(now, entry), reason=entry.reason,
        )  # fmt: skip

    def _member(self, now: float, entry: RosterEntry) -> Member:
        card = self._cards[entry.unit]
        follower = self._followers.get(entry.unit)
        return Member(
            unit=entry.unit, offer=card.offer, rank=card.rank, nature=card.nature, cost_per_h=card.cost_per_h,
            leases=len(follower.held) if follower else 0, alpha=entry.unit == self.card.unit,
            tenure_left_s=self._tenure_left_s(now, entry),
        )  # fmt: skip

    def _tenure_left_s(self, now: float, entry: RosterEntry) -> float:
        return max(0.0, entry.tenure_left_s - (now - self._roster_at[entry.unit]))

    def _let_go(self, leavers: Iterable[tuple[str, str]]) -> list[Order]:
        for unit, reason in leavers:
            follower = self._followers.get(unit)
            if follower is not None:
                follower.leave = reason
        return []

    # --- the end ------------------------------------------------------------------------------------------------

    def peers(self) -> tuple[tuple[str, int, int, bool], ...]:
        """The members as the roster tells: unit, boot, lead, whether it can lead."""
        return tuple(
            (entry.unit, entry.boot, card.lead, card.can_lead)
            for entry in self._roster.values()
            if entry.pack == self.pack and entry.readiness != Readiness.WAKING and (card := self._cards[entry.unit])
        )

    @property
    def peers_version(self) -> int:
        return self._peers_version

    def close(self) -> list[Order]:
        """The term is over: parked hunts are sent away, so that their units look for the next alpha."""
        return [
            AnswerHunt(unit=unit, n=follower.parked, reply=HuntReply(self.term, None, 0, follower.parked))
            for unit, follower in self._followers.items()
            if follower.parked
        ]


def _at_most(wants: Mapping[Needs, int], room: int) -> dict[Needs, int]:
    """The wants that fit into the room that is left in the pack."""
    kept = {}
    for needs, number in wants.items():
        kept[needs] = min(number, room)
        room -= kept[needs]
    return kept
