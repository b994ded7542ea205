"""A unit's brain: where it stands, whom it follows, what it holds; and, while it leads, its `Alpha`.

One door in, `step(now, event)`, one door out, a list of orders. The brain composes pure machines: `Succession` says who
leads, `Alpha` leads, `LeaseBook` remembers leases and reports until they are acknowledged. What is left here is the
unit's place: free, at home with its day job, member of a pack, on its way from one to another. A move is one call to
the keeper, which decides; until it has answered, the unit takes nothing new.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import assert_never

from wolfpack.core import errands as e
from wolfpack.core import succession as s
from wolfpack.core.alpha import Alpha
from wolfpack.core.hand import LeaseBook
from wolfpack.core.howls import TERMS_AHEAD, Howl, HowlKind, Peer
from wolfpack.core.rivals import COUNCIL_SIZE
from wolfpack.core.standstill import Standstill
from wolfpack.core.wire import Claim, Hunt, HuntReply, KeeperReport, Move, TurnReply, Verdict, Where
from wolfpack.model import Card, Cause, Nature, Report, Timing

HUNT_CAP = 2000  # most leases in hand
MOVE_AGAIN_S = 2.0  # a refused move to sleep is tried again after so long
LOOKAHEAD_S = 0.2  # a task that runs longer keeps nothing waiting behind it; as `scaling.fair_prefetch` looks ahead
CHECK_IN = 4.0  # x lease_s: who had no answer of the keeper for so long asks where it stands
HUNT_PAUSE_S = 0.05  # after an answer of somebody who does not lead, or none
HUNT_LOST = 1.0  # x lease_s: a hunt without any answer counts as failed; an alpha parks none for so long
CALL_LOST_S = 12.0  # the same of a call to the keeper


@dataclass(slots=True)
class Leaving:
    """On its way out of where it stands."""

    to: str  # "free", "home", "asleep" or "pack:NAME"
    reason: str
    ticket: int = 0  # of the summons to answer
    day_state: bytes | None = None
    wake_in_s: float | None = None
    awaits_day_job: bool = False
    stepped_down: bool = False


class Brain:
    """The mind of one awake unit.

    Args:
        card: what the unit is.
        boot: which life of it this is.
        where: the keeper's answer to hello.
        timing: the den's profile.
        rng: chance for jitter.
        now: monotonic seconds; the clock of every later `step`.
        gossip: whether the driver tells what the units gossip; else the alpha of a big pack howls to all of it.
    """

    def __init__(
        self, *, card: Card, boot: int, where: Where, timing: Timing, rng: random.Random, now: float,
        gossip: bool = False,
    ) -> None:  # fmt: skip
        self.card, self.boot, self.timing, self.gossip = card, boot, timing, gossip
        self._rng = rng
        self.pack: str | None = None
        self.succession: s.Succession | None = None
        self.alpha: Alpha | None = None
        self.leases = LeaseBook(timing.lease_s)
        self._following: tuple[str, int, int] | None = None  # alpha, its boot, term
        self._hunt_n = 0
        self._hunts: dict[int, tuple[float, int]] = {}  # open ones: when sent, how many reports they carried
        self._spare_told = -1
        self._n = where.n
        self._call: tuple[int, float] | None = None  # the call to the keeper that is open, and since when
        self._retry_at = 0.0
        self._leaving: Leaving | None = None
        self._moving = False  # a move was sent and not yet decided
        self._kept_here = False  # the keeper refused a move out of where it stands
        self._free_since = now
        self._move_not_before = now
        self._lent_since = now
        self._day_job = False
        self._peers: dict[str, Peer] = {}
        self._peers_told = -1
        self._seen_commit = 0
        self._last_tick = now
        self._hunt_not_before = now
        self._confirmed_at = now  # when the keeper last answered this unit
        self._turn_seq = 0  # the highest number of a turn sent
        self._mean_s = 0.0  # of its latest tasks
        self._long_since = False  # a task has been running longer than the look-ahead
        self._running: dict[int, float] = {}  # lease -> for how many seconds, as last told
        self._standstill = Standstill(card.hands.stall_s)
        self._ended = False
        self._birth = where

    def start(self, now: float) -> list[e.Order]:
        """The first orders after birth: its day job, or its pack."""
        return self._take_place(now, self._birth)

    # --- the door -----------------------------------------------------------------------------------------------

    def next_wake(self) -> float:
        """Monotonic time at which the driver should send the next `Tick`."""
        beat = self._last_tick + self.timing.heartbeat_s / 2
        if self._hunt_not_before > self._last_tick:
            beat = min(beat, self._hunt_not_before)
        return min(beat, self.succession.next_wake()) if self.succession is not None else beat

    def step(self, now: float, event: e.Event) -> list[e.Order]:
        """Takes one event in; returns what to do, in this order."""
        if self._ended:
            return []
        match event:
            case e.Tick():
                orders = self._on_tick(now)
            case e.HowlHeard(howl=howl):
                orders = self._succeed(now, s.Heard(howl=howl)) if howl.pack == self.pack else []
            case e.HuntArrived(hunt=hunt):
                orders = self._on_hunt(now, hunt)
            case e.HuntAnswered(n=n, reply=reply):
                orders = self._on_hunt_answered(now, n, reply)
            case e.HuntFailed(n=n):
                _, carried = self._hunts.pop(n, (0.0, 0))
                self.leases.resend() if carried else None
                self._hunt_not_before = now + HUNT_PAUSE_S
                orders = []
            case e.TurnDone(seq=seq, reply=reply):
                orders = self._on_turn_done(now, seq, reply)
            case e.TurnLost(seq=seq, reason=reason):
                orders = self._succeed(now, s.TurnFailed(reason=reason))
                orders += self.alpha.on_turn_lost(now, seq) if self.alpha is not None else []
            case e.TurnRefused(pack=pack, term=term, alpha=alpha):
                orders = self._succeed(now, s.DeposedBy(term=term, alpha=alpha)) if pack == self.pack else []
            case e.ClaimAnswered(pack=pack, verdict=verdict):
                orders = self._on_verdict(now, verdict) if pack == self.pack else []
            case e.ClaimLost(pack=pack, reason=reason):
                orders = self._succeed(now, s.ClaimFailed(reason=reason)) if pack == self.pack else []
            case e.Answered(n=n, where=where):
                orders = self._on_answered(now, n, where)
            case e.Unanswered(n=n):
                if self._call is not None and self._call[0] == n:
                    self._call, self._retry_at = None, now + 0.3
                orders = []
            case e.Summoned(pack=pack, ticket=ticket):
                orders = self._on_summons(pack, ticket)
            case e.SummonsDeclined(unit=unit):
                orders = self.alpha.on_declined(now, unit) if self.alpha is not None else []
            case e.AskedFor(pack=pack):
                orders = self._succeed(now, s.AskedToLead()) if pack == self.pack else []
            case e.Instructed(order=order, grace_s=grace_s, reason=reason):
                orders = self._on_instructed(order, grace_s, reason)
            case e.Reported(reports=reports):
                for report in reports:
                    self.leases.report(report)
                    if report.started:
                        self._standstill.go_on()
                orders = self._maybe_give_back(reports)
            case e.Running(seconds=seconds):
                orders = self._on_running(seconds)
            case e.DayStepped(next_s=next_s, state=state):
                orders = self._on_day_step(now, next_s, state)
            case e.DayLeft(state=state):
                orders = self._on_day_left(state)
            case e.UnitDied(unit=unit, boot=boot):
                orders = self._succeed(now, s.PeerLost(unit=unit, boot=boot))
            case e.ViewChanged(unit=unit, boot=boot, lives=lives):
                seen = s.PeerLives(unit=unit, boot=boot) if lives else s.PeerLost(unit=unit, boot=boot)
                orders = self._succeed(now, seen) if unit in self._peers and self._listens() else []
            case e.AlphaTold():
                orders = self._on_alpha_told(now, event)
            case e.StallJudged(stalled=stalled):
                self._standstill.judge(stalled)
                orders = self._maybe_give_up()
            case _:
                assert_never(event)
        return orders + self._go_on(now)

    # --- who leads ----------------------------------------------------------------------------------------------

    def _succeed(self, now: float, event: s.Event) -> list[e.Order]:
        """Lets succession step, and turns its orders into ours."""
        if self.succession is None:
            return []
        orders: list[e.Order] = []
        for order in self.succession.step(now, event):
            match order:
                case s.Tell(to, howl):
                    peer = self._peers.get(to)
                    if peer is not None:
                        orders.append(e.SendHowl(to=to, boot=peer.boot, howl=howl))
                case s.Claim(prev_term):
                    claim = Claim(self.pack or "", prev_term, self.card.unit, self.boot, self._seen_commit)
                    orders.append(e.SendClaim(claim=claim))
                case s.ReleaseTerm(term):
                    orders.append(e.SendRelease(pack=self.pack or "", term=term))
                case s.Crowned(term):
                    self.alpha = Alpha(
                        card=self.card, boot=self.boot, pack=self.pack or "", term=term, timing=self.timing, now=now,
                        seq=self._turn_seq,
                    )  # fmt: skip
                    self._peers_told = -1
                    self._follow(now, self.card.unit, self.boot, term)
                    orders += self.alpha.on_tick(now)
                case s.StoppedLeading():
                    orders += self._stop_leading()
                case s.Following(term, alpha, boot):
                    self._follow(now, alpha, boot, term)
                case s.Alone():
                    self._following = None
                case _:
                    assert_never(order)
        return orders

    @property
    def leadership(self) -> tuple[str, int, str, int] | None:
        """Who leads this unit's pack, as it knows: pack, term, alpha and its boot."""
        who = self.succession
        return None if who is None or who.alpha is None else (who.pack, who.term, who.alpha, who.alpha_boot)

    @property
    def is_leaving(self) -> bool:
        """Whether it is on its way out of where it stands: who led there has stepped down, or will before it goes."""
        return self._leaving is not None

    def _listens(self) -> bool:
        """Whether gossip has a say in who leads: only where the alpha does not howl to all.

        In a small pack howls tell sooner; a unit that is slow to gossip shall not be missed there.
        """
        return self.gossip and len(self._peers.keys() - {self.card.unit}) >= COUNCIL_SIZE

    def _on_alpha_told(self, now: float, told: e.AlphaTold) -> list[e.Order]:
        if self.succession is None or told.pack != self.pack or told.alpha == self.card.unit or not self._listens():
            return []
        if told.term - self.succession.term > TERMS_AHEAD:
            return []
        return self._succeed(now, s.TermSeen(term=told.term, alpha=told.alpha, boot=told.boot))

    def _stop_leading(self) -> list[e.Order]:
        alpha, self.alpha, self._following = self.alpha, None, None
        if alpha is None:
            return []
        self._turn_seq = alpha.seq
        return list(alpha.close())

    def _follow(self, now: float, alpha: str, boot: int, term: int) -> None:
        if self._following != (alpha, boot, term):
            self._following = (alpha, boot, term)
            self._hunts.clear()
            self._spare_told = -1
            self._hunt_not_before = now
            self.leases.resend()  # whoever leads now may not have them

    def _on_verdict(self, now: float, verdict: Verdict) -> list[e.Order]:
        self._seen_commit = max(self._seen_commit, verdict.commit_no)
        orders = self._set_peers(now, verdict.peers)
        if verdict.granted:
            return orders + self._succeed(now, s.Granted(term=verdict.term))
        refused = s.Refused(term=verdict.term, alpha=verdict.alpha, boot=verdict.alpha_boot)
        return orders + self._succeed(now, refused)

    def _set_peers(self, now: float, peers: tuple[tuple[str, int, int, bool], ...]) -> list[e.Order]:
        self._peers = {
            unit: Peer(unit=unit, boot=boot, lead=lead, can_lead=can_lead) for unit, boot, lead, can_lead in peers
        }
        return self._succeed(now, s.PeersChanged(peers=tuple(self._peers.values())))

    # --- leading ------------------------------------------------------------------------------------------------

    def _on_hunt(self, now: float, hunt: Hunt) -> list[e.Order]:
        if hunt.pack != self.pack:
            return [e.AnswerHunt(unit=hunt.unit, n=hunt.n, reply=HuntReply(0, None, 0, hunt.n))]
        if self.alpha is None:
            following = self._following or (None, 0, 0)
            term = self.succession.term if self.succession is not None else 0
            return [e.AnswerHunt(unit=hunt.unit, n=hunt.n, reply=HuntReply(term, following[0], following[1], hunt.n))]
        orders = self._succeed(now, s.MemberHeard()) if hunt.unit != self.card.unit else []
        return orders + (self.alpha.on_hunt(now, hunt) if self.alpha is not None else [])

    def _on_turn_done(self, now: float, seq: int, reply: TurnReply) -> list[e.Order]:
        if self.alpha is None or self.succession is None:
            return []
        sent_at = self.alpha.sent_at(seq)
        orders = self._succeed(now, s.TurnAnswered(sent_at=sent_at)) if sent_at is not None else []
        return orders + self._take_turn(now, seq, reply)

    def _take_turn(self, now: float, seq: int, reply: TurnReply) -> list[e.Order]:
        if self.alpha is None or self.succession is None:
            return []
        self._seen_commit, self._confirmed_at = max(self._seen_commit, reply.commit_no), now
        orders = self.alpha.on_turn_done(now, seq, reply, may_lease=self.succession.may_lease(now))
        if self.alpha.peers_version != self._peers_told:
            self._peers_told = self.alpha.peers_version
            orders += self._set_peers(now, self.alpha.peers())
        return orders

    # --- hunting ------------------------------------------------------------------------------------------------

    def _on_hunt_answered(self, now: float, n: int, reply: HuntReply) -> list[e.Order]:
        sent_at, _ = self._hunts.pop(n, (None, 0))
        orders: list[e.Order] = []
        self.leases.acknowledge(reply.acked)
        if sent_at is None:  # given up, or sent from another pack: no word on who leads here
            self.leases.decline(reply.jobs)
            return []
        if reply.alpha is None or (reply.alpha, reply.alpha_boot) != (self._following or (None, 0))[:2]:
            self.leases.decline(reply.jobs)  # of an alpha that this unit follows no longer
            self._hunt_not_before = now + HUNT_PAUSE_S
            if reply.alpha is None:  # it leads no more, and knows nobody: that is no word on the term
                return []
            seen = s.TermSeen(term=reply.term, alpha=reply.alpha, boot=reply.alpha_boot)
            return self._succeed(now, seen)
        if reply.peers is not None and self.alpha is None:
            orders += self._set_peers(now, reply.peers)
        if self.leases.hunt_renewed(reply.renewed):
            orders.append(e.Allow(until=self.leases.start_until))
        if self.succession is not None and self.alpha is None and reply.term == self.succession.term:
            # Any message of the alpha counts as its heartbeat.
            peer = self._peers.get(reply.alpha)
            beat = Howl(
                kind=HowlKind.HEARTBEAT, pack=self.succession.pack, term=reply.term, unit=reply.alpha,
                boot=reply.alpha_boot, lead=peer.lead if peer is not None else 0,
            )  # fmt: skip
            orders += self._succeed(now, s.Heard(howl=beat))
        if reply.jobs:
            stale = now - sent_at > self.leases.start_within_s
            if stale or self._leaving is not None or self.succession is None or reply.term < self.succession.term:
                self.leases.decline(reply.jobs)
            else:
                fresh = self.leases.accept(reply.jobs, sent_at)
                orders.append(e.Allow(until=self.leases.start_until))
                orders.append(e.GiveJobs(jobs=fresh))
        orders += [
            e.CancelJob(lease_no=lease_no, kill=kill, cause=cause)
            for lease_no, kill, cause in reply.cancels
            if lease_no in self.leases.held
        ]
        if reply.leave and self._leaving is None:
            orders += self._leave("home" if self.card.day_job else "free", reply.leave)
        return orders

    def _maybe_hunt(self, now: float) -> list[e.Order]:
        if self.pack is None or self._following is None:
            return []
        lost = [n for n, (sent_at, _) in self._hunts.items() if now - sent_at > HUNT_LOST * self.timing.lease_s]
        for n in lost:
            del self._hunts[n]
        spare = max(0, HUNT_CAP - len(self.leases.held))
        if self._leaving is not None or self._long_since or self._standstill.is_stalled:
            spare = 0
        news = self.leases.has_unsent(now) or (spare > 0) != (self._spare_told > 0)
        if len(self._hunts) >= 2 or (self._hunts and not news) or now < self._hunt_not_before:
            return []
        to, boot, term = self._following
        self._hunt_n += 1
        reports = self.leases.take_unsent(now)
        self._hunts[self._hunt_n] = (now, len(reports))
        self._spare_told = spare
        self.leases.hunt_sent(self._hunt_n, now)
        hunt = Hunt(
            self.pack, self.card.unit, self.boot, self._hunt_n, term, tuple(self.leases.held), reports, spare
        )  # fmt: skip
        return [e.SendHunt(to=to, boot=boot, hunt=hunt)]

    def _on_running(self, seconds: dict[int, float]) -> list[e.Order]:
        """What waits behind a task that runs for long goes back, so that an idle unit can have it."""
        self._running = seconds
        self._long_since = any(passed > LOOKAHEAD_S for passed in seconds.values()) and len(self.leases.held) >= max(
            1, self.card.hands.concurrency
        )
        waiting = [lease_no for lease_no in self.leases.held if lease_no not in seconds]
        if self._long_since and waiting and len(seconds) >= self.card.hands.concurrency:
            return [e.TakeBack(lease_nos=tuple(waiting)), *self._maybe_give_up()]
        return self._maybe_give_up()

    def _maybe_give_up(self) -> list[e.Order]:
        """Where this unit stalls, nothing new starts, and what is stuck ends."""
        if not self._standstill.is_stalled:
            return []
        waiting = tuple(lease_no for lease_no in self.leases.held if lease_no not in self._running)
        orders: list[e.Order] = [e.TakeBack(lease_nos=waiting)] if waiting else []
        return orders + [
            e.CancelJob(lease_no=lease_no, kill=True, cause=Cause.TIMEOUT, text=str(self._standstill))
            for lease_no in self._standstill.give_up(self.leases.held, self._running)
        ]

    def _maybe_give_back(self, reports: tuple[Report, ...]) -> list[e.Order]:
        """Tasks became longer than when so many were asked for: what is too much for one unit goes back to all."""
        for report in reports:
            if report.started and report.cause == Cause.DONE:
                self._mean_s += 0.2 * (max(0.0, report.ended_at - report.started_at) - self._mean_s)
        slots = max(1, self.card.hands.concurrency)
        if len(self.leases.held) * self._mean_s <= 2 * LOOKAHEAD_S * slots:
            return []
        keep = max(slots + 1, int(LOOKAHEAD_S / self._mean_s * slots))
        surplus = tuple(self.leases.held)[keep:]
        return [e.TakeBack(lease_nos=surplus)] if surplus else []

    # --- the keeper ---------------------------------------------------------------------------------------------

    def _maybe_report(self, now: float) -> list[e.Order]:
        """Speaks to the keeper itself when nothing confirmed its leases, or took its reports, for too long.

        And now and then without a reason: a unit that was given up, and whose end was ordered by a keeper that died
        over it, must learn that it is not wanted.
        """
        if self._call is not None or self._moving or now < self._retry_at:
            return []
        if not self.leases.needs_keeper(now) and now - self._confirmed_at <= CHECK_IN * self.timing.lease_s:
            return []
        self._call = (self._n, now)
        report = KeeperReport(
            self.card.unit, self.boot, self._n, tuple(self.leases.held), self.leases.take_all(now), self._seen_commit
        )  # fmt: skip
        return [e.SendReport(report=report)]

    def _on_answered(self, now: float, n: int, where: Where) -> list[e.Order]:
        if self._call is None or self._call[0] != n:
            return []
        sent_at = self._call[1]
        self._call, self._confirmed_at = None, now
        self._seen_commit = max(self._seen_commit, where.commit_no)
        self.leases.acknowledge(where.acked)
        leaving = self._leaving
        if where.end and not (leaving is not None and leaving.to == "asleep" and where.ok):
            return self._end(where.reason or "the keeper wants this boot no more")
        if self._moving and leaving is not None:
            self._moving = False
            return self._arrive(now, leaving, where) if where.ok else self._stay(now, leaving, where)
        orders: list[e.Order] = []
        if self.leases.keeper_renewed(sent_at):
            orders.append(e.Allow(until=self.leases.start_until))
        orders += [
            e.CancelJob(lease_no=lease_no, kill=kill, cause=cause)
            for lease_no, kill, cause in where.cancels
            if lease_no in self.leases.held
        ]
        if where.pack != self.pack:
            return orders + self._take_place(now, where)
        if self.succession is not None and where.term:
            seen = s.TermSeen(term=where.term, alpha=where.alpha, boot=where.alpha_boot)
            orders += self._set_peers(now, where.peers)
            orders += self._succeed(now, seen)
        return orders

    # --- places -------------------------------------------------------------------------------------------------

    def _take_place(self, now: float, where: Where) -> list[e.Order]:
        """Stands where the keeper's row says: sets everything the place needs."""
        orders = self._stop_leading()
        self._kept_here = self._kept_here and where.pack == self.pack
        self.pack, self.succession, self._leaving = where.pack, None, None
        self._hunts.clear()
        self._free_since = self._lent_since = now
        self._move_not_before = now
        if where.pack is None:
            if self.card.day_job and not self._day_job:
                self._day_job = True
                orders.append(e.StartDayJob(state=where.day_state))
            return orders
        self.succession = s.Succession(
            me=Peer(unit=self.card.unit, boot=self.boot, lead=self.card.lead, can_lead=self.card.can_lead),
            pack=where.pack, timing=self.timing, rng=self._rng, now=now, term=where.term, alpha=where.alpha,
            alpha_boot=where.alpha_boot, gossip=self.gossip,
        )  # fmt: skip
        orders += self._set_peers(now, where.peers)
        if where.alpha is not None and where.alpha != self.card.unit:
            self._follow(now, where.alpha, where.alpha_boot, where.term)
        return orders + self._succeed(now, s.Ticked())

    def _leave(
        self, to: str, reason: str, *, ticket: int = 0, grace_s: float | None = None, wake_in_s: float | None = None
    ) -> list[e.Order]:
        """Starts to leave: takes nothing new, hands back what has not started, and lets the rest end.

        Args:
            grace_s: what runs is evicted after so long; None: it may take its time.
        """
        if self.pack is None and self._day_job:
            self._leaving = Leaving(to, reason, ticket, wake_in_s=wake_in_s, awaits_day_job=True)
            return [e.LeaveDayJob(grace_s=self.card.grace_s if grace_s is None else grace_s)]
        self._leaving = Leaving(to, reason, ticket, wake_in_s=wake_in_s)
        if not self.leases.held:
            return []
        if grace_s is not None:
            return [e.Evict(grace_s=grace_s, reason=reason)]
        return [e.TakeBack(lease_nos=tuple(self.leases.held))]

    def _maybe_move(self, now: float) -> list[e.Order]:
        """Sends the move once nothing runs; an alpha gives its term back first, and names the next."""
        leaving = self._leaving
        if leaving is None or leaving.awaits_day_job or self.leases.held or self._call is not None:
            return []
        if now < self._retry_at:
            return []
        orders: list[e.Order] = []
        if not leaving.stepped_down and self.pack is not None:
            leaving.stepped_down = True
            orders += self._succeed(now, s.StepDown(reason=leaving.reason))
        if not self._moving:
            self._n += 1
            self._moving = True
        self._call = (self._n, now)
        move = Move(
            self.card.unit, self.boot, self._n, leaving.to, self.leases.take_all(now), (), leaving.reason,
            leaving.day_state, leaving.wake_in_s, self._seen_commit,
        )  # fmt: skip
        return [*orders, e.SendMove(move=move)]

    def _arrive(self, now: float, leaving: Leaving, where: Where) -> list[e.Order]:
        self._n = max(self._n, where.n)
        if leaving.to == "asleep":
            return self._end(leaving.reason)
        if leaving.day_state is not None:
            self._day_job = False
        orders = self._take_place(now, where)
        if leaving.ticket:
            orders.append(e.AnswerSummons(ticket=leaving.ticket, accepted=True, reason=""))
        return orders

    def _stay(self, now: float, leaving: Leaving, where: Where) -> list[e.Order]:
        """The keeper refused the move: the unit goes on where it stands."""
        self._leaving, self._kept_here = None, True
        tenure_s = self.card.min_tenure_s if self.card.nature is Nature.WEREWOLF else 0.0
        again_s = max(MOVE_AGAIN_S, tenure_s, leaving.wake_in_s or 0.0)
        orders: list[e.Order] = []
        if leaving.ticket:
            orders.append(e.AnswerSummons(ticket=leaving.ticket, accepted=False, reason=where.reason))
        if leaving.day_state is not None:
            orders.append(e.StartDayJob(state=leaving.day_state))
        if leaving.stepped_down or where.pack != self.pack:
            orders += self._take_place(now, where)
        self._move_not_before = now + again_s
        return orders

    def _on_summons(self, pack: str, ticket: int) -> list[e.Order]:
        if self.pack == pack:
            return [e.AnswerSummons(ticket=ticket, accepted=True, reason="already a member")]
        if self._leaving is not None:
            return [e.AnswerSummons(ticket=ticket, accepted=False, reason=f"on its way to {self._leaving.to}")]
        if self.pack is not None:
            return self._leave(f"pack:{pack}", f"lent to {pack}", ticket=ticket, grace_s=self._grace_s)
        return self._leave(f"pack:{pack}", f"summoned by {pack}", ticket=ticket)

    def _on_day_left(self, state: bytes | None) -> list[e.Order]:
        leaving = self._leaving
        if leaving is None or not leaving.awaits_day_job:
            return []
        leaving.awaits_day_job = False
        if state is not None:
            leaving.day_state = state
            return []
        self._leaving = None
        reason = f"the step of its day job did not end within {self.card.grace_s:g} s"
        return [e.AnswerSummons(ticket=leaving.ticket, accepted=False, reason=reason)] if leaving.ticket else []

    def _on_day_step(self, now: float, next_s: float, state: bytes) -> list[e.Order]:
        if self.pack is not None or self._leaving is not None:
            return []
        if next_s > self.card.sleep_after_s and now >= self._move_not_before:
            return self._leave("asleep", f"its day job has nothing to do for {next_s:.0f} s", wake_in_s=next_s)
        return [e.Checkpoint(state=state)]

    def _on_instructed(self, order: str, grace_s: float, reason: str) -> list[e.Order]:
        if self._leaving is not None:
            return []
        home = "home" if self.card.day_job else "free"
        if order == "sleep":
            return self._leave("asleep", reason, grace_s=grace_s)
        if self.pack is None:
            return []
        return self._leave(home, reason, grace_s=grace_s if order == "recall" else None)

    # --- time ---------------------------------------------------------------------------------------------------

    def _on_tick(self, now: float) -> list[e.Order]:
        self._last_tick = now
        orders: list[e.Order] = []
        if self.succession is not None and now >= self.succession.next_wake():
            orders += self._succeed(now, s.Ticked())
        if self.alpha is not None:
            orders += self.alpha.on_tick(now)
        if self._call is not None and now - self._call[1] > CALL_LOST_S:
            self._call = None
        return orders + self._maybe_leave(now)

    def _maybe_leave(self, now: float) -> list[e.Order]:
        if self._leaving is not None or now < self._move_not_before:
            return []
        if self.pack is None:
            if self.card.day_job is None and now - self._free_since >= self.card.sleep_after_s:
                return self._leave("asleep", f"free for {now - self._free_since:.0f} s")
            return []
        loan_s = self.card.max_loan_s
        if self.card.nature is Nature.WEREWOLF and loan_s is not None and now - self._lent_since >= loan_s:
            return self._leave("home", f"its loan of {loan_s:g} s is over", grace_s=self._grace_s)
        return []

    @property
    def _grace_s(self) -> float | None:
        """How long what runs may take when this unit leaves of its own; as long as it likes where it may have to stay.

        Else a pack that cannot spare it would see each longer task evicted again and again, and never done.
        """
        return None if self._kept_here else self.card.grace_s

    def _go_on(self, now: float) -> list[e.Order]:
        """What any event may have made possible."""
        return self._maybe_report(now) + self._maybe_move(now) + self._maybe_hunt(now)

    def _end(self, reason: str) -> list[e.Order]:
        self._ended = True
        orders = self._stop_leading()
        self.pack = None
        return [*orders, e.EndSelf(reason=reason)]
