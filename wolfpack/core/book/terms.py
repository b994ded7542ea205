"""The book's term desk: claims, turns, and who must be asked to lead.

A term is granted by compare-and-set on the pack's row and fences the one before: every turn carries its term, and one
that is not current changes nothing. Silence is judged here, on receipt, by the keeper's own forgiving clock.
"""

from __future__ import annotations

from wolfpack.core.book.granting import job_of
from wolfpack.core.book.journal import Answer, AskToLead, Instruct, Journal, Summon
from wolfpack.core.book.state import Instant, Pack, ParkedTurn, Unit, needs_to_json
from wolfpack.core.book.tasks import TaskDesk
from wolfpack.core.book.units import LIVING, UnitDesk
from wolfpack.core.howls import TERMS_AHEAD
from wolfpack.core.wire import Claim, DemandRow, Leases, MemberTurn, Turn, TurnReply, Verdict
from wolfpack.errors import Deposed
from wolfpack.events import AlphaCrowned, AlphaDeposed, PackScaled
from wolfpack.model import Job, Nature, Needs, Readiness, Timing

WAKE_PATIENCE_S = 10.0  # a wake that takes longer may wait for resources: somebody else is asked to lead
ASK_AGAIN = 10.0  # x silence_s: who was asked to come and did not is passed over for so long


class TermDesk:
    def __init__(
        self, journal: Journal, packs: dict[str, Pack], units: dict[str, Unit], tasks: TaskDesk, timing: Timing
    ) -> None:
        self._journal = journal
        self._packs = packs
        self._units = units
        self._tasks = tasks
        self._timing = timing
        self.desk: UnitDesk  # set by the book: the two desks need each other

    # --- claims -------------------------------------------------------------------------------------------------

    def claim(self, at: Instant, claim: Claim) -> Verdict:
        """GRANT(prev_term + 1) or REFUSED(term, alpha). The same claim again gets the same answer."""
        pack = self._packs.get(claim.pack)
        if pack is None:
            return Verdict(False, 0, None, 0, (), f"there is no pack {claim.pack!r}", 0)
        unit = self._units.get(claim.unit)
        if unit is None or unit.boot != claim.boot or unit.pack != pack.name or unit.readiness not in LIVING:
            return self._refuse(pack, f"{claim.unit} (boot {claim.boot}) is no member of {pack.name}")
        unit.heard_mono = at.mono
        if (pack.alpha, pack.alpha_boot) == (claim.unit, claim.boot):
            if pack.term == claim.prev_term + 1:
                pack.renewed_mono = at.mono
                return self._grant(pack)
            return self._refuse(pack, f"{claim.unit} holds term {pack.term} already")
        if claim.prev_term < pack.term:
            return self._refuse(pack, f"the term is {pack.term}, not {claim.prev_term}")
        if claim.prev_term - pack.term > TERMS_AHEAD:
            return self._refuse(pack, f"the term is {pack.term}, and {claim.prev_term} was never granted")
        if not unit.card.can_lead:
            return self._refuse(pack, f"{claim.unit} cannot lead (can_lead: false)")
        if pack.alpha is not None:
            silent_s = at.mono - pack.renewed_mono
            if silent_s < self._timing.silence_s:
                return self._refuse(pack, f"{pack.alpha} renewed {silent_s:.2f} s ago")
            self.vacate(at, pack, f"{pack.alpha} was silent for {silent_s:.2f} s")
        previous = pack.vacant_of
        # A claimant may know a later term: one that a keeper gave and forgot, for it died before it was durable.
        pack.term = claim.prev_term + 1
        pack.alpha, pack.alpha_boot = claim.unit, claim.boot
        pack.turn_seq = 0
        pack.renewed_mono = pack.crowned_mono = at.mono
        pack.first_lease = False
        self._note(pack)
        reason = pack.vacant_reason or "the pack had no alpha"
        self._journal.publish(
            at,
            AlphaCrowned(
                pack=pack.name, term=pack.term, unit=claim.unit, boot=claim.boot, previous=previous, reason=reason
            ),
        )
        return self._grant(pack)

    def _grant(self, pack: Pack) -> Verdict:
        return Verdict(True, pack.term, pack.alpha, pack.alpha_boot, self.desk.peers(pack.name), "", 0)

    def _refuse(self, pack: Pack, reason: str) -> Verdict:
        return Verdict(False, pack.term, pack.alpha, pack.alpha_boot, self.desk.peers(pack.name), reason, 0)

    def release(self, at: Instant, pack_name: str, term: int, unit: str, boot: int) -> bool:
        """The alpha gives its term back; nobody else can."""
        pack = self._packs.get(pack_name)
        if pack is None or (pack.term, pack.alpha, pack.alpha_boot) != (term, unit, boot):
            return False
        self.vacate(at, pack, f"{unit} released its term")
        return True

    def vacate(self, at: Instant, pack: Pack, reason: str) -> None:
        """Ends the present term; the next claim with its number is granted at once."""
        if pack.alpha is None:
            return
        self._journal.publish(
            at,
            AlphaDeposed(pack=pack.name, term=pack.term, unit=pack.alpha, boot=pack.alpha_boot, reason=reason),
        )
        if pack.parked is not None:
            self._journal.answers.append(Answer(pack.name, pack.term, pack.parked.seq, None))
        pack.vacant_of, pack.vacant_reason = pack.alpha, reason
        pack.alpha, pack.alpha_boot, pack.parked = None, 0, None
        self._note(pack)

    # --- turns --------------------------------------------------------------------------------------------------

    def turn(self, at: Instant, turn: Turn) -> None:
        """Takes an alpha's turn; the answer comes through the journal, now or when there is something to say.

        Raises:
            Deposed: the turn's term, unit or boot is not the pack's present one. Nothing was changed.
        """
        pack = self._packs.get(turn.pack)
        if pack is None or (pack.term, pack.alpha, pack.alpha_boot) != (turn.term, turn.unit, turn.boot):
            self._journal.refused_writes += 1
            known = (pack.term, pack.alpha or "") if pack else (0, "")
            raise Deposed(f"Term {turn.term} of {turn.pack} is over; {known[1] or 'nobody'} has {known[0]}.", *known)
        pack.renewed_mono = at.mono
        acked, cancels = self._take_members(at, turn.members)
        parked = pack.parked
        if turn.seq < pack.turn_seq or (turn.seq == pack.turn_seq and parked is None):
            # Repeated, since its answer was lost, or overtaken: it gets what it was granted, and nothing new.
            self._answer(at, pack, turn.seq, turn.roster_version, acked, cancels, self._granted_before(pack, turn.seq))
            return
        pack.plan = turn.plan
        if turn.seq > pack.turn_seq:
            self._take_decisions(at, pack, turn)
        elif parked is not None:  # repeated while the first one waits
            acked, cancels = {**parked.acked, **acked}, {**parked.cancels, **cancels}
        if parked is not None and parked.seq < turn.seq:
            self._answer(at, pack, parked.seq, parked.roster_version, parked.acked, parked.cancels, {})
        pack.turn_seq = turn.seq
        asks = {(each.unit, each.boot): each.ask for each in turn.members if each.ask > 0}
        pack.parked = ParkedTurn(turn.seq, at.mono, asks, turn.roster_version, acked, cancels)
        self.serve(at, pack)

    def _take_decisions(self, at: Instant, pack: Pack, turn: Turn) -> None:
        """What the alpha decided about the pack; the row keeps the turn's number, so that it is obeyed once."""
        if turn.size is not None:
            before, after, reason = turn.size
            self._journal.publish(at, PackScaled(pack=pack.name, before=before, after=after, reason=reason), turn.unit)
        for name in turn.call_off:
            self.desk.call_off(at, pack.name, name)
        if not pack.draining:
            for kind, number in turn.wakes:
                self.desk.allot(at, pack, kind, number, f"{turn.unit} asked for {number} of {kind}")
        if turn.size is not None or turn.call_off or turn.wakes:
            self._note(pack)

    def _take_members(
        self, at: Instant, members: tuple[MemberTurn, ...]
    ) -> tuple[dict[str, list[int]], dict[str, list[tuple[int, bool, str]]]]:
        acked: dict[str, list[int]] = {}
        cancels: dict[str, list[tuple[int, bool, str]]] = {}
        for each in members:
            row = self._units.get(each.unit)
            unit = row if row is not None and row.boot == each.boot else None
            if each.settled:
                acked[each.unit] = self._tasks.settle(at, unit, each.unit, each.boot, each.settled)
            if unit is None:
                continue
            unit.heard_mono = at.mono
            orders = self._tasks.renew(at, unit, each.held)
            if orders:
                cancels[each.unit] = orders
        return acked, cancels

    def _granted_before(self, pack: Pack, seq: int) -> dict[str, list[Job]]:
        """What this turn was granted the first time, read from the rows."""
        granted: dict[str, list[Job]] = {}
        for unit in self.desk.members.get(pack.name, {}).values():
            jobs = [
                job_of(held.task)
                for held in unit.held.values()
                if (held.task.term, held.task.turn_seq) == (pack.term, seq) and not held.listed
            ]
            if jobs:
                granted[unit.id] = jobs
        return granted

    def serve(self, at: Instant, pack: Pack) -> None:
        """Answers the parked turn if there is anything to say."""
        parked = pack.parked
        if parked is None:
            return
        granted = {} if pack.draining else self._tasks.grant(at, pack, parked)
        if granted:
            self._note(pack)
        for name in granted:
            unit = self._units[name]
            orders = self._tasks.cancels_of(at, unit)
            if orders:
                parked.cancels.setdefault(name, []).extend(orders)
        if granted or parked.acked or parked.cancels or parked.roster_version < self._journal.roster_version:
            self._answer(
                at, pack, parked.seq, parked.roster_version, parked.acked, parked.cancels, granted
            )  # fmt: skip
            pack.parked = None

    def deliver_cancels(self, at: Instant, pack_name: str) -> None:
        """A leased task was marked: the parked turn carries the news."""
        pack = self._packs[pack_name]
        if pack.parked is None:
            return
        for unit in self.desk.members.get(pack_name, {}).values():
            orders = self._tasks.cancels_of(at, unit)
            if orders:
                pack.parked.cancels.setdefault(unit.id, []).extend(orders)
        self.serve(at, pack)

    def _answer(
        self,
        at: Instant,
        pack: Pack,
        seq: int,
        roster_version: int,
        acked: dict[str, list[int]],
        cancels: dict[str, list[tuple[int, bool, str]]],
        granted: dict[str, list[Job]],
    ) -> None:
        reply = TurnReply(
            seq=seq,
            leases=tuple(Leases(name, self._units[name].boot, tuple(jobs)) for name, jobs in granted.items()),
            acked=tuple((name, tuple(numbers)) for name, numbers in acked.items()),
            cancels=tuple((name, tuple(orders)) for name, orders in cancels.items()),
            demand=self.demand(at, pack),
            roster=self.desk.roster_since(at, roster_version) if roster_version < self._journal.roster_version else (),
            roster_version=self._journal.roster_version,
            spec=pack.spec_text,
            draining=pack.draining,
            commit_no=0,
        )
        self._journal.answers.append(Answer(pack.name, pack.term, seq, reply))

    def demand(self, at: Instant, pack: Pack) -> tuple[DemandRow, ...]:
        queue = self._tasks.queues.get(pack.name)
        if queue is None:
            return ()
        queue.release_due(at.wall)
        special: dict[Needs, int] = {}
        for task in queue.special.values():
            special[task.lane] = special.get(task.lane, 0) + 1
        return tuple(
            DemandRow(
                needs_to_json(needs), lane.queued + special.get(needs, 0), lane.leased, lane.service_s,
                queue.oldest_wait_s(needs, at.wall),
            )
            for needs, lane in [(each, queue.lane(each)) for each in {**queue.lanes, **special}]
            if lane.queued or lane.leased or needs in special
        )  # fmt: skip

    # --- ticking ------------------------------------------------------------------------------------------------

    def tick(self, at: Instant) -> None:
        for pack in self._packs.values():
            queue = self._tasks.queues.get(pack.name)
            due = queue is not None and queue.release_due(at.wall) > 0
            if pack.parked is not None:
                if due or (queue is not None and queue.runnable):
                    self.serve(at, pack)
                if pack.parked is not None and at.mono - pack.parked.since_mono >= self._timing.heartbeat_s:
                    parked = pack.parked
                    self._answer(at, pack, parked.seq, parked.roster_version, parked.acked, parked.cancels, {})
                    pack.parked = None
            if pack.draining:
                self._send_away(at, pack)
            self.rouse(at, pack)

    def _send_away(self, at: Instant, pack: Pack) -> None:
        """The members of a dropped pack leave; where no alpha tells them, the keeper does."""
        if pack.alpha is not None or at.mono - pack.asked_mono < 2 * self._timing.silence_s:
            return
        pack.asked_mono = at.mono
        for unit in list(self.desk.members.get(pack.name, {}).values()):
            if unit.readiness is Readiness.WAKING:
                self.desk.call_off(at, pack.name, unit.id)
            else:
                order = Instruct(
                    unit=unit.id, boot=unit.boot, order="release", grace_s=unit.card.grace_s,
                    reason="the pack was dropped",
                )  # fmt: skip
                self._journal.orders.append(order)

    def rouse(self, at: Instant, pack: Pack) -> None:
        """Sees to it that a pack with due work, or too few members, gets an alpha: asked, summoned or woken."""
        members = self.desk.members.get(pack.name, {})
        queue = self._tasks.queues.get(pack.name)
        due = queue is not None and queue.runnable > 0
        if self.desk.closing or pack.draining or not (due or len(members) < pack.spec.fewest):
            return
        if pack.alpha is not None and at.mono - pack.renewed_mono <= 2 * self._timing.silence_s:
            return
        if at.mono - pack.asked_mono < self._timing.silence_s:
            return
        if any(self.desk.wakes_since(at, unit) < WAKE_PATIENCE_S for unit in members.values()):
            return
        fresh_s = self._timing.lease_s
        living = [
            unit
            for unit in members.values()
            if unit.readiness is Readiness.AWAKE
            and unit.card.can_lead
            and unit.id != pack.alpha
            and at.mono - unit.heard_mono <= fresh_s
        ]
        if living:
            best = max(living, key=lambda unit: unit.card.rank)
            self._journal.orders.append(AskToLead(unit=best.id, boot=best.boot, pack=pack.name, term=pack.term))
            pack.asked_mono = at.mono
            return
        first = self._first_for(at, pack)
        if first is None:
            return
        pack.asked_mono = pack.asked_units[first.id] = at.mono
        if first.readiness is Readiness.AWAKE:
            self._journal.orders.append(Summon(unit=first.id, boot=first.boot, pack=pack.name))
        else:
            self.desk.wake(at, first, pack.name, f"{pack.name} has work and no alpha")

    def _first_for(self, at: Instant, pack: Pack) -> Unit | None:
        """The first unit up the ladder that fits the most urgent work and can lead; else one that can lead at all.

        Who was asked of late, and did not come, is asked again after the others.
        """
        queue = self._tasks.queues.get(pack.name)
        urgent = min(
            (task for task in (queue.heads() if queue else ())), key=lambda task: task.order, default=None
        )  # fmt: skip
        needs = urgent.needs if urgent is not None else pack.spec.needs
        free = [unit for unit in self._units.values() if unit.card.can_lead and self._may_come(pack, unit)]
        fitting = [unit for unit in free if needs.fits(unit.card.offer)] or [
            unit for unit in free if pack.spec.needs.fits(unit.card.offer)
        ]
        recent = {
            unit for unit, asked in pack.asked_units.items() if at.mono - asked < ASK_AGAIN * self._timing.silence_s
        }
        return min(fitting, key=lambda unit: (unit.id in recent, *_rung(unit)), default=None)

    def _may_come(self, pack: Pack, unit: Unit) -> bool:
        if unit.pack is None:
            return unit.readiness in (Readiness.AWAKE, Readiness.ASLEEP)
        lender = self._packs.get(unit.pack)
        lent = lender is not None and lender.spec.lendable and lender.spec.priority < pack.spec.priority
        return lent and unit.readiness is Readiness.AWAKE

    def _note(self, pack: Pack) -> None:
        self._journal.packs[pack.name] = pack


def _rung(unit: Unit) -> tuple[int, int, float, object]:
    """The ladder: awake wolves, sleeping wolves, awake werewolves, sleeping werewolves; then narrow, cheap, by name."""
    rung = 2 * (unit.card.nature is Nature.WEREWOLF or unit.pack is not None) + (unit.readiness is Readiness.ASLEEP)
    width = len(unit.card.offer.tags) + len(unit.card.offer.measures)
    return (rung, width, unit.card.cost_per_h, unit.card.rank.key)
