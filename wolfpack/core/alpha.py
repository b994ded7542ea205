"""The alpha's brain: the part of a unit's brain that is active while it holds its pack's term.

Members hunt here; what they bring (reports, leases held, spare room) is gathered into turns to the keeper, and what
turns bring (leases, acknowledgements, cancels) goes out with the answers to hunts. At most one turn is parked at the
keeper and one on its way, and the same holds for the hunts of each member, so batches form by themselves: whatever
arrives during a round trip travels with the next one. After each turn the alpha plans: how large the pack should be
(`scaling`), whom to call or wake (`recruiting`), whom to let go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from wolfpack.core.book.state import needs_from_json
from wolfpack.core.errands import AnswerHunt, Order, PublishFailure, SendSummons, SendTurn
from wolfpack.core.recruiting import Candidate, Member, Pending, StepKind, plan, who_leaves
from wolfpack.core.retry import pinned_offer
from wolfpack.core.scaling import Demand, Scaler, Size, fair_prefetch
from wolfpack.core.seating import find_missing
from wolfpack.core.wire import Hunt, HuntReply, MemberTurn, RosterEntry, Turn, TurnReply
from wolfpack.model import Card, Job, Needs, Offer, PackSpec, Readiness, Report, Timing
from wolfpack.plain import card_from_json, pack_from_json

IDLE_PARK = 0.2  # x lease_s: a hunt of a member without leases may wait so long; a lease it brings must be startable
SUMMONS_S = 6.0  # an unanswered summons is forgotten
LEAVE_AGAIN_S = 1.0  # a member that was told to leave and is still there is told again
FRESH = 0.25  # x lease_s: a lease that waited longer for its unit's hunt is not handed out any more
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
    jobs: list[tuple[float, Job]] = field(default_factory=list)  # and when the turn that brought it was sent
    acked: list[int] = field(default_factory=list)
    cancels: list[tuple[int, bool, str]] = field(default_factory=list)
    leave: str = ""
    told_leave: float = float("-inf")  # when it was last told to leave
    peers_version: int = -1
    renewed: int = 0  # newest hunt known to the keeper

    @property
    def has_news(self) -> bool:
        return bool(self.jobs or self.acked or self.cancels or self.leave)

    @property
    def is_leaving(self) -> bool:
        return self.told_leave > float("-inf")


@dataclass(slots=True, kw_only=True)
class OpenTurn:
    """What a turn without an answer carried."""

    reports: dict[int, tuple[str, int, Report]]
    wakes: tuple[tuple[str, int], ...]
    waking: frozenset[str]  # the sleepers that were thought of; the keeper may choose others of their kind
    call_off: tuple[str, ...]
    size: tuple[int, int, str] | None
    sent_at: float = 0.0
    hunts: dict[str, int] = field(default_factory=dict)  # those whose leases it renewed


class Alpha:
    """Leads one pack for one term.

    Args:
        seq: the highest number of a turn that this unit ever sent; a term won back goes on from there.
    """

    def __init__(
        self, *, card: Card, boot: int, pack: str, term: int, timing: Timing, now: float, seq: int = 0
    ) -> None:
        self.card, self.boot, self.pack, self.term = card, boot, pack, term
        self._timing = timing
        self._followers: dict[str, Follower] = {}
        self._reports: dict[int, tuple[str, int, Report]] = {}  # lease -> unit, boot, report; those no turn carries
        self._cards: dict[str, Card] = {card.unit: card}
        self._roster: dict[str, RosterEntry] = {}
        self._roster_at: dict[str, float] = {}  # when an entry came: its tenure runs down from then
        self._roster_version = 0
        self._peers_version = 0
        self._spec, self._spec_text = PackSpec(name=pack), ""
        self._known = False  # whether the first turn was answered
        self._draining = False
        self._demands: dict[Needs, Demand] = {}
        self._scaler = Scaler()
        self._size = -1
        self.seq = self._newest = seq
        self._open: dict[int, OpenTurn] = {}
        self._answered_at = now  # when the newest answered turn was sent; the grant counts as one
        self._asked: dict[str, int] = {}  # asks of the newest turn
        self._plan: tuple[str, ...] = ()
        self._decision: tuple[int, int, str] | None = None
        self._wakes: Counter[str] = Counter()
        self._waking: list[str] = []
        self._call_off: list[str] = []
        self._summoned: dict[str, float] = {}  # who was called, or is to be woken, and does not show in the roster yet
        self._declined: dict[str, float] = {}
        self._planned_at = now - PLAN_S
        self.seen_commit = 0

    # --- hunts --------------------------------------------------------------------------------------------------

    def on_hunt(self, now: float, hunt: Hunt) -> list[Order]:
        """Takes what the member brings; answers at once if there is news, else parks the hunt."""
        follower = self._followers.get(hunt.unit)
        if follower is None or hunt.boot > follower.boot:
            follower = self._followers[hunt.unit] = Follower(hunt.boot)
        if hunt.boot < follower.boot:  # a process that nobody wants: as of one that leads nobody, so that it rests
            return [AnswerHunt(unit=hunt.unit, n=hunt.n, reply=HuntReply(0, None, 0, hunt.n))]
        carried = [turn.reports for turn in self._open.values()]
        for report in hunt.settled:
            follower.on_way.pop(report.lease_no, None)
            if all(report.lease_no not in reports for reports in carried):
                self._reports[report.lease_no] = (hunt.unit, hunt.boot, report)
        if hunt.n <= follower.n:  # overtaken by a newer one
            return [self._empty(hunt), *self._maybe_turn(now)]
        orders: list[Order] = []
        if follower.parked:
            orders.append(self._answer(now, hunt.unit, follower))
        follower.n = follower.parked = hunt.n
        follower.parked_at = now
        follower.held, follower.spare = hunt.held, hunt.spare
        if hunt.spare > 0 and now - follower.told_leave > LEAVE_AGAIN_S:
            follower.told_leave = float("-inf")  # it was to leave, and stays: the keeper did not let it go
        for lease_no in hunt.held:
            follower.on_way.pop(lease_no, None)
        return orders + self._flush(now) + self._maybe_turn(now)

    def _empty(self, hunt: Hunt) -> AnswerHunt:
        reply = HuntReply(self.term, self.card.unit, self.boot, hunt.n)
        return AnswerHunt(unit=hunt.unit, n=hunt.n, reply=reply)

    def _answer(self, now: float, unit: str, follower: Follower) -> AnswerHunt:
        peers = self.peers() if follower.peers_version != self._peers_version else None
        reply = HuntReply(
            self.term, self.card.unit, self.boot, follower.parked, self._startable(now, follower),
            tuple(follower.acked), tuple(follower.cancels), follower.renewed, peers, follower.leave,
        )  # fmt: skip
        n, follower.parked = follower.parked, 0
        follower.jobs, follower.acked, follower.cancels, follower.leave = [], [], [], ""
        follower.peers_version = self._peers_version
        return AnswerHunt(unit=unit, n=n, reply=reply)

    def _startable(self, now: float, follower: Follower) -> tuple[Job, ...]:
        """The leases that may leave: granted a moment ago, while the keeper still answers this alpha.

        With the two thirds of `lease_s` that the unit then has to start them, the keeper has not yet taken them back.
        Others are kept from the unit, and return to the queue by themselves.
        """
        if now - self._answered_at >= self._timing.silence_s:
            return ()
        fresh_s = FRESH * self._timing.lease_s
        return tuple(job for since, job in follower.jobs if now - since <= fresh_s)

    def _flush(self, now: float) -> list[Order]:
        """Answers parked hunts that have news, or have waited long enough."""
        orders: list[Order] = []
        for unit, follower in self._followers.items():
            if not follower.parked:
                continue
            limit = self._timing.heartbeat_s if follower.held or follower.on_way else IDLE_PARK * self._timing.lease_s
            stale = follower.peers_version != self._peers_version and self._known
            if follower.has_news or stale or now - follower.parked_at >= limit:
                orders.append(self._answer(now, unit, follower))
        return orders

    # --- turns --------------------------------------------------------------------------------------------------

    def on_turn_done(self, now: float, seq: int, reply: TurnReply, *, may_lease: bool) -> list[Order]:
        """Takes what the keeper gives. Leases that may not be handed out any more return by themselves."""
        sent = self._open.pop(seq, None)
        since = now
        if sent is not None:
            since = sent.sent_at
            self._answered_at = max(self._answered_at, since)
            for unit, n in sent.hunts.items():
                if unit in self._followers:
                    self._followers[unit].renewed = max(self._followers[unit].renewed, n)
            self._summoned = {unit: at for unit, at in self._summoned.items() if unit not in sent.waking}
        self.seen_commit = max(self.seen_commit, reply.commit_no)
        orders: list[Order] = []
        if seq > self._newest:  # an answer that was overtaken tells what was true before
            self._newest = seq
            self._known = True
            self._demands = {needs_from_json(row.needs): self._demand(*row[1:]) for row in reply.demand}
            self._draining = reply.draining
            if reply.spec != self._spec_text:
                self._spec, self._spec_text = pack_from_json(reply.spec), reply.spec
            orders += self._take_roster(now, reply)
        for unit, numbers in reply.acked:
            if sent is not None:
                for lease_no in numbers:
                    sent.reports.pop(lease_no, None)
            for lease_no in numbers:
                self._reports.pop(lease_no, None)
            if unit in self._followers:
                self._followers[unit].acked.extend(numbers)
        if sent is not None:
            self._reports = {**sent.reports, **self._reports}
        for unit, cancels in reply.cancels:
            if unit in self._followers:
                self._followers[unit].cancels.extend(cancels)
        for unit, boot, jobs in reply.leases if may_lease else ():
            follower = self._followers.get(unit)
            if follower is not None and follower.boot == boot:
                follower.jobs.extend((since, job) for job in jobs)
                follower.on_way.update(dict.fromkeys((job.lease_no for job in jobs), now))
        return orders + self._maybe_plan(now) + self._flush(now) + self._maybe_turn(now)

    def _demand(self, queued: int, leased: int, service_s: float | None, oldest_wait_s: float) -> Demand:
        return Demand(
            queued_runnable=queued, leased=leased, service_s=service_s, oldest_wait_s=oldest_wait_s,
            concurrency=self.card.hands.concurrency,
        )  # fmt: skip

    def _take_roster(self, now: float, reply: TurnReply) -> list[Order]:
        orders: list[Order] = []
        for entry in reply.roster:
            if entry.card:
                self._cards[entry.unit] = card_from_json(entry.card)
            before = self._roster.get(entry.unit)
            self._roster[entry.unit] = entry
            self._roster_at[entry.unit] = now
            if before is None or (before.pack, before.boot, before.readiness) != (
                entry.pack, entry.boot, entry.readiness,
            ):  # fmt: skip
                self._summoned.pop(entry.unit, None)
                if self.pack in (entry.pack, before.pack if before is not None else None):
                    self._peers_version += 1
            follower = self._followers.get(entry.unit)
            if follower is not None and (entry.pack != self.pack or entry.boot > follower.boot):
                if follower.parked:
                    orders.append(self._answer(now, entry.unit, follower))
                del self._followers[entry.unit]
        self._roster_version = max(self._roster_version, reply.roster_version)
        return orders

    def on_turn_lost(self, now: float, seq: int) -> list[Order]:
        """No answer: the same turn goes out again, as things stand now.

        If the keeper took it the first time it knows the number, and answers with what it granted then.
        """
        sent = self._open.pop(seq, None)
        if sent is None:
            return self._maybe_turn(now)
        sent.reports.update(self._reports)
        self._reports = {}
        return [self._send(now, seq, sent, self._asks())]

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
        news = bool(
            self._reports
            or self._wakes
            or self._call_off
            or self._decision
            or any(number > self._asked.get(unit, 0) for unit, number in asks.items())
        )
        if self._open and not news:
            return []
        self.seq += 1
        turn = OpenTurn(
            reports=self._reports, wakes=tuple(self._wakes.items()), waking=frozenset(self._waking),
            call_off=tuple(self._call_off), size=self._decision,
        )  # fmt: skip
        self._reports, self._wakes, self._waking, self._call_off, self._decision = {}, Counter(), [], [], None
        return [self._send(now, self.seq, turn, asks)]

    def _send(self, now: float, seq: int, turn: OpenTurn, asks: dict[str, int]) -> SendTurn:
        """Sends a turn, for the first time or again, with what its members said last.

        What a hunt lists is passed on until the keeper is known to have it, and not again: a member that fell silent
        must not be renewed by its alpha.
        """
        settled: dict[tuple[str, int], list[Report]] = {}
        for unit, boot, report in turn.reports.values():
            settled.setdefault((unit, boot), []).append(report)
        members = []
        turn.hunts = {}
        for unit, follower in self._followers.items():
            reports, ask = settled.pop((unit, follower.boot), ()), asks.get(unit, 0)
            fresh = follower.n > follower.renewed
            if fresh:
                turn.hunts[unit] = follower.n
            if fresh or ask or reports:
                held = follower.held if fresh else ()
                members.append(MemberTurn(unit, follower.boot, held, tuple(reports), ask))
        members += [MemberTurn(unit, boot, (), tuple(reports), 0) for (unit, boot), reports in settled.items()]
        self._asked = asks
        turn.sent_at = now
        self._open[seq] = turn
        return SendTurn(
            turn=Turn(
                self.pack, self.term, self.card.unit, self.boot, seq, tuple(members), turn.wakes, turn.call_off,
                self._roster_version, self._plan, turn.size, self.seen_commit,
            )
        )  # fmt: skip

    def sent_at(self, seq: int) -> float | None:
        """When a turn that is still open was sent."""
        sent = self._open.get(seq)
        return sent.sent_at if sent else None

    def _asks(self) -> dict[str, int]:
        """How many leases each member with a parked hunt should get beyond those it has: its fair share."""
        asks = {}
        queued = sum(demand.queued_runnable for demand in self._demands.values())
        targets: dict[tuple[int, float | None], int] = {}  # members of a kind have the same share
        for unit, follower in self._followers.items():
            if not follower.parked or follower.spare <= 0:
                continue
            card = self._cards.get(unit, self.card)
            share = (card.hands.concurrency, self._service_s(card) if self._demands else None)
            target = targets.get(share, 0)
            if not target:
                target = targets[share] = fair_prefetch(
                    queued=max(1, queued), members=max(1, len(self._followers)), concurrency=share[0],
                    service_s=share[1],
                )  # fmt: skip
            if not self._known:  # a new alpha does not wait for news of the queue to hand out its first leases
                target = max(target, len(follower.held) + 1)
            asks[unit] = max(0, min(follower.spare, target - len(follower.held) - len(follower.on_way)))
        return asks

    def _service_s(self, card: Card) -> float | None:
        """The mean time of the tasks this card can serve, weighted by how many there are."""
        total = weight = 0.0
        for needs, demand in self._demands.items():
            if needs.fits(pinned_offer(card.offer, card.nature, self._spec.lendable)) and demand.runnable:
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
            return self._let_go(now, present, [(entry.unit, "the pack is dropped") for entry in present])
        # While there is work, those that wake are held on to as members are: the wish swings with each task's length.
        counted = len(entries) if busy else len(present)
        size = self._scaler.step(now, demands=self._demands, spec=self._spec, now_members=counted)
        orders = self._recruit(now, size, present, entries)
        staying = [entry for entry in present if not self._is_leaving(entry.unit)]
        surplus = len(staying) - size.size
        if surplus > 0:
            members = [self._member(now, entry) for entry in staying]
            parting = who_leaves(members=members, surplus=surplus, due=size.by_needs)
            self._plan += tuple(f"{pick.unit} stays: {pick.reason}" for pick in parting.stay)
            orders += self._let_go(now, present, [(pick.unit, pick.reason) for pick in parting.go])
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
        seated = [(entry.unit, self._offer(entry.unit)) for entry in present]
        wants = _at_most(find_missing(wished, seated), max(0, self._spec.most - len(present)))
        waking = [entry for entry in entries if entry.readiness == Readiness.WAKING]
        pending = [Pending(unit=entry.unit, offer=self._offer(entry.unit), boot=entry.boot) for entry in waking] + [
            Pending(unit=unit, offer=self._offer(unit), kind=StepKind.SUMMON)
            for unit in self._summoned
            if unit in self._cards
        ]
        self._declined = {unit: until for unit, until in self._declined.items() if until > now}
        candidates = [
            self._candidate(now, entry)
            for entry in self._roster.values()
            if wants and entry.pack != self.pack and entry.unit not in self._declined
        ]
        made = plan(wants=wants, candidates=candidates, pending=pending, members=len(present))
        self._plan = (size.reason, *made.reasons)
        orders: list[Order] = []
        for step in made.steps:
            match step.kind:
                case StepKind.SUMMON:
                    self._summoned[step.unit] = now
                    orders.append(SendSummons(unit=step.unit, boot=step.boot, pack=self.pack))
                case StepKind.WAKE:
                    self._wakes[self._cards[step.unit].kind] += 1
                    self._waking.append(step.unit)
                    self._summoned[step.unit] = now  # until the turn is answered: the roster then shows who was woken
                case StepKind.CALL_OFF:
                    self._call_off.append(step.unit)
        return orders

    def _candidate(self, now: float, entry: RosterEntry) -> Candidate:
        card = self._cards[entry.unit]
        return Candidate(
            unit=entry.unit, offer=self._offer(entry.unit), nature=card.nature, readiness=Readiness(entry.readiness),
            boot=entry.boot, cost_per_h=card.cost_per_h, place=entry.pack,
            lendable=entry.lendable and entry.priority < self._spec.priority,
            tenure_left_s=self._tenure_left_s(now, entry), reason=entry.reason,
        )  # fmt: skip

    def _offer(self, unit: str) -> Offer:
        """What a unit offers this pack: of pinned tasks too, if it cannot be taken away."""
        card = self._cards[unit]
        return pinned_offer(card.offer, card.nature, self._spec.lendable)

    def _member(self, now: float, entry: RosterEntry) -> Member:
        card = self._cards[entry.unit]
        follower = self._followers.get(entry.unit)
        return Member(
            unit=entry.unit, offer=self._offer(entry.unit), rank=card.rank, nature=card.nature,
            cost_per_h=card.cost_per_h,
            leases=len(follower.held) if follower else 0, alpha=entry.unit == self.card.unit,
            tenure_left_s=self._tenure_left_s(now, entry),
        )  # fmt: skip

    def _tenure_left_s(self, now: float, entry: RosterEntry) -> float:
        return max(0.0, entry.tenure_left_s - (now - self._roster_at[entry.unit]))

    def _is_leaving(self, unit: str) -> bool:
        follower = self._followers.get(unit)
        return follower is not None and follower.is_leaving

    def _let_go(self, now: float, present: list[RosterEntry], leavers: list[tuple[str, str]]) -> list[Order]:
        """Tells members to leave, once; the alpha goes when everybody else has gone, so that nobody must succeed it."""
        for unit, reason in leavers:
            follower = self._followers.get(unit)
            if follower is None or (unit == self.card.unit and len(present) > 1):
                continue
            if now - follower.told_leave > LEAVE_AGAIN_S:
                follower.leave, follower.told_leave = reason, now
        return []

    def on_declined(self, now: float, unit: str) -> list[Order]:
        """A summons was declined: others are called, and this one not again at once."""
        if self._summoned.pop(unit, None) is not None:
            self._declined[unit] = now + SUMMONS_S
        return self._maybe_plan(now) + self._maybe_turn(now)

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
