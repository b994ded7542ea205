"""Succession: who leads a pack. One pure machine per unit; `docs/succession.md` tells it as a table.

Theory of operation. Elect for liveness, fence for safety. Silence, ranks and howls (the Bully election) only decide
who *tries* to lead, and when; the arbiter decides who does. With a keeper that is a compare-and-set in the ledger: a
term is granted once, to one (unit, boot), and fences every older one. So no message, lost, late, doubled or wrong, can
make two writers: it can only cost time. Without a keeper the unit crowns itself: one alpha per connected side.

One door in, `step(now, event)`, one door out, a list of orders to carry out in this order. A change of role is one
`_become_x` that sets everything the role needs; alarms live in one dict, so that a pause can move all of them. An
alarm is judged only by `Ticked`, due at `next_wake()`: what is already queued is handled before.

Four facts about the current term keep late news out: `_released` (its alpha said that it gave it back: nothing makes it
return), `_vacated` (a row said so) and `_doubted` (its alpha fell silent or died): then other rows that still name an
alpha prove nothing, its own voice does; and `_ended_term` (I stopped leading it, or gave its grant back: I am never
crowned again). After etcd's raft (`Step`, `becomeLeader`) and Garcia-Molina's Bully.

Big packs. Where the units gossip (`gossip=True`), the alpha of a pack of more than seven howls to its council alone.
Who stands outside has no alarm running: news of the term (`TermSeen`) and of lives and deaths (`PeerLost`,
`PeerLives`) reach it through its view, and an alpha that lives there counts as heard.
"""

from __future__ import annotations

import math
import random
from enum import StrEnum
from typing import assert_never

from wolfpack.core.howls import TERMS_AHEAD, Howl, HowlKind, Peer
from wolfpack.core.rivals import Rivals, council
from wolfpack.model import Rank, Role, Timing, natural_key

# isort: off
from wolfpack.core.succession_words import (
    Alone, AskedToLead, Claim, ClaimFailed, Crowned, DeposedBy, Event, Following, Granted, Heard, MemberHeard, Order,
    PeerLives, PeerLost, PeersChanged, Refused, ReleaseTerm, StepDown, StoppedLeading, Tell, TermSeen, Ticked,
    TurnAnswered, TurnFailed,
)  # fmt: skip
# isort: on

__all__ = [
    "Alone", "Arbiter", "AskedToLead", "Claim", "ClaimFailed", "Crowned", "DeposedBy", "Event", "Following", "Granted",
    "Heard", "MemberHeard", "Order", "PeerLives", "PeerLost", "PeersChanged", "Refused", "ReleaseTerm", "StepDown",
    "StoppedLeading", "Succession", "Tell", "TermSeen", "Ticked", "TurnAnswered", "TurnFailed", "retry_delay",
]  # fmt: skip

PATIENCE = 4.0  # x silence_s: outside the council one waits so long; an alpha unanswered for so long stops
LONELY = 2.0  # x silence_s without a word from any member: the alpha gives its term back
BENCH = 5.0  # x silence_s: an alpha whose turns failed for good leaves the claim to others for so long
CLAIM_WAIT = 2.0  # x silence_s: a claim without any answer is repeated, which the arbiter takes as the same claim
PASS_OVER = 2  # after so many fruitless tries a pretender no longer waits for higher ranks that answer but do not lead


class Arbiter(StrEnum):
    KEEPER = "keeper"  # the ledger grants terms
    ITSELF = "itself"  # no keeper: a pretender takes term + 1, equal terms are ordered by rank


# --- formulas -----------------------------------------------------------------------------------------------------


def retry_delay(tries: int, timing: Timing, rng: random.Random) -> float:
    """Seconds until a pretender tries again: in the upper half of a window that doubles, so that rivals part.

    uniform(w / 2, w) with w = min(silence_s, answer_s / 2 * 2 ** tries). The first is short enough for a claim that
    overtook the release it follows; the cap keeps a new alpha within L1's bound once faults stop.
    """
    window = min(timing.silence_s, timing.answer_s / 2 * 2 ** min(tries, 30))
    return rng.uniform(window / 2, window)


class Alarm(StrEnum):
    SILENCE = "silence"  # member: heard no alpha
    PATIENCE = "patience"  # member: not even the council found one
    ANSWER = "answer"  # pretender: no higher rank answered
    RETRY = "retry"  # pretender: try again
    CLAIM = "claim"  # pretender: the claim got no answer
    BEAT = "beat"  # alpha
    UNANSWERED = "unanswered"  # alpha: by the keeper
    LONELY = "lonely"  # alpha: no member says anything
    BENCH = "bench"  # any role: until then others go first


# --- the machine --------------------------------------------------------------------------------------------------


class Succession:
    """The view of one unit on who leads its pack.

    Args:
        me: this unit, with its boot and rank.
        pack: name of the pack; howls of others are ignored.
        timing: the den's profile.
        arbiter: who grants terms.
        rng: chance for jitter and back-off.
        now: monotonic seconds; the clock of every later `step`.
        usurp: classic Bully, a higher rank takes over a healthy pack; only where the arbiter is the unit itself.
        gossip: whether units outside the council of a big pack learn the alpha from gossip; else it howls to all.
        term, alpha, alpha_boot: what was learned when joining; without an alpha the unit pretends at once.

    Raises:
        ValueError: `usurp` with a keeper.
    """

    def __init__(
        self, *, me: Peer, pack: str, timing: Timing, arbiter: Arbiter = Arbiter.KEEPER, rng: random.Random,
        now: float, usurp: bool = False, gossip: bool = False, term: int = 0, alpha: str | None = None,
        alpha_boot: int = 0,
    ) -> None:  # fmt: skip
        if usurp and arbiter is not Arbiter.ITSELF:
            raise ValueError("usurp needs a pack without a keeper: a keeper never deposes an alpha that renews")
        self.me, self.pack, self.timing, self.arbiter, self.usurp = me, pack, timing, arbiter, usurp
        self.gossip = gossip
        self.role = Role.MEMBER
        self.term = term
        known = alpha is not None and alpha != me.unit
        self.alpha, self.alpha_boot = (alpha, alpha_boot) if known else (None, 0)
        self._alpha_lead = 0
        self._rng = rng
        self._last = now
        self._rivals = Rivals(me, timing.answer_s)
        self._alarms: dict[Alarm, float] = {}
        self._orders: list[Order] = []
        self._released = (-1, "")  # term, and who gave it back
        self._vacated = -1
        self._doubted: str | None = None
        self._ended_term = -1
        self._leaving = False
        self._tries = 0  # since an alpha was heard
        self._waiting = False  # pretender: for higher ranks to answer or to lead; until it claims
        self._claimed = False  # in this pretence: only then is a grant wanted
        self._first_claim = (-1, now)  # prev_term, and when it was first sent
        self._crowned_at = now
        self._answered_sent_at = now
        self._become_member(now, timing.silence_s if known else self._jitter())

    def next_wake(self) -> float:
        """When to call `Ticked` next. At most a heartbeat away, so that a pause is measured to within a heartbeat.

        Infinity where no alarm runs: then there is nothing that a pause could move.
        """
        if not self._alarms:
            return math.inf
        return min(self._last + self.timing.heartbeat_s, *self._alarms.values())

    def may_lease(self, now: float) -> bool:
        """Whether leases may leave this unit now. Not forgiven after a pause: the arbiter did not pause."""
        if self.role is not Role.ALPHA:
            return False
        return self.arbiter is Arbiter.ITSELF or now - self._answered_sent_at < self.timing.silence_s

    def step(self, now: float, event: Event) -> list[Order]:
        """Takes one event in; returns what to do, in this order."""
        late = now - self.next_wake()
        if late > self.timing.heartbeat_s:  # I was frozen or stalled, the others were not silent: forgive
            self._alarms = {alarm: at + late for alarm, at in self._alarms.items()}
        self._last = now
        match event:
            case Ticked():
                self._on_tick(now)
            case Heard(howl):
                self._on_howl(now, howl)
            case PeerLost(unit, boot):
                self._on_lost(now, unit, boot)
            case PeerLives(unit, boot):
                self._on_lives(now, unit, boot)
            case PeersChanged(peers):
                self._on_peers(now, peers)
            case TermSeen(term, alpha, boot):
                self._on_term(now, term, alpha, boot)
            case Granted(term):
                self._on_granted(now, term)
            case Refused(term, alpha, boot):
                self._on_refused(now, term, alpha, boot)
            case ClaimFailed():
                if Alarm.CLAIM in self._alarms:
                    self._back_off(now)
            case TurnAnswered(sent_at):
                if self.role is Role.ALPHA and sent_at >= self._crowned_at:
                    self._answered_sent_at = max(self._answered_sent_at, sent_at)
                    self._set(Alarm.UNANSWERED, now, PATIENCE)
            case TurnFailed(reason, permanent):
                if self.role is Role.ALPHA and permanent:
                    self._abdicate(now, f"its turns fail: {reason}", None)
                    self._set(Alarm.BENCH, now, BENCH)
            case DeposedBy(term, alpha):
                if term > self.term or (term == self.term and alpha != self.me.unit):
                    self._on_term(now, term, alpha or None, self._rivals.boot_of(alpha) if alpha else 0)
            case MemberHeard():
                self._watch_members(now, heard=True)
            case StepDown(reason, next_unit):
                self._leaving = True
                if self.role is Role.ALPHA:
                    self._abdicate(now, reason, next_unit)
                elif self.role is Role.PRETENDER:
                    self._become_member(now, self.timing.silence_s)
            case AskedToLead():
                self._leaving = False
                if self.role is not Role.ALPHA and Alarm.CLAIM not in self._alarms and self._may_pretend():
                    self._become_pretender(now, "the keeper asked this unit to lead", ask=False)
            case _:
                assert_never(event)
        orders, self._orders = self._orders, []
        return orders

    # --- roles --------------------------------------------------------------------------------------------------

    def _become_member(self, now: float, wait_s: float) -> None:
        """A member whose alpha, known or not, is missed after `wait_s`."""
        self.role = Role.MEMBER
        self._waiting, self._claimed = False, False
        self._clear_alarms()
        if not self._trusts_gossip():
            self._alarms[Alarm.SILENCE] = now + wait_s
            self._set(Alarm.PATIENCE, now, PATIENCE)

    def _become_pretender(self, now: float, reason: str, *, ask: bool = True) -> None:
        """Announces it and waits for higher ranks; claims at once if none lives, or if it need not `ask`."""
        self.role = Role.PRETENDER
        self._waiting = True
        self._clear_alarms()
        self._forget_alpha(reason)
        if ask:
            for peer in council(self._rivals.living()):
                self._tell(peer.unit, HowlKind.ELECTION)
        # Alone with its own judgement, a unit that never heard of an alpha first listens: there may be one.
        listen = self.arbiter is Arbiter.ITSELF and self.term == 0 and bool(self._rivals.living())
        if ask and self._tries < PASS_OVER and (listen or self._rivals.outrank_me()):
            self._alarms[Alarm.ANSWER] = now + self.timing.answer_s
        else:
            self._claim(now)

    def _become_alpha(self, now: float, term: int) -> None:
        """Leads `term`, which the arbiter granted: never called before a grant (I6)."""
        self.role = Role.ALPHA
        self.term, self.alpha, self.alpha_boot, self._alpha_lead = term, self.me.unit, self.me.boot, self.me.lead
        self._doubted = None
        self._tries, self._waiting, self._claimed = 0, False, False
        # The grant answered a claim: of repeated ones any may be the one that counted, so the first does. A term that
        # an earlier claim won lets nothing lease before a turn is answered: who knows how long ago that was.
        prev_term, sent_at = self._first_claim
        self._crowned_at, self._answered_sent_at = now, sent_at if prev_term + 1 == term else -math.inf
        self._clear_alarms()
        self._alarms[Alarm.BEAT] = now + self.timing.heartbeat_s
        if self.arbiter is Arbiter.KEEPER:
            self._set(Alarm.UNANSWERED, now, PATIENCE)
        self._watch_members(now)
        self._tell_all(HowlKind.COORDINATOR)
        self._orders.append(Crowned(term))

    def _follow(self, now: float, term: int, unit: str, boot: int, lead: int) -> None:
        """Accepts this alpha; the caller made sure that the term is not older than the own."""
        if self.usurp and self._may_pretend() and self._ranks_first(Rank(lead, natural_key(unit))):
            self._learn(now, term, f"{unit} leads term {term} with a lower rank")
            self._become_pretender(now, f"{unit} leads with a lower rank", ask=False)
            return
        if self.role is Role.ALPHA:
            self._stop_leading(f"{unit} leads term {term}")
        if (term, unit, boot) != (self.term, self.alpha, self.alpha_boot):
            self._orders.append(Following(term, unit, boot))
        self.term, self.alpha, self.alpha_boot, self._alpha_lead = term, unit, boot, lead
        self._doubted = None
        self._become_member(now, self.timing.silence_s)

    def _stop_leading(self, reason: str) -> None:
        """The first thing that happens when a term ends for me: nothing of that term leaves afterwards."""
        self._orders.append(StoppedLeading(self.term, reason))
        self._ended_term = self.term
        self.role = Role.MEMBER

    def _abdicate(self, now: float, reason: str, next_unit: str | None) -> None:
        """Stops, gives the term back and names the next, so that nobody has to wait for silence."""
        term = self.term
        self._stop_leading(reason)
        self._released = (term, self.me.unit)
        self._orders.append(ReleaseTerm(term))
        self._tell_all(HowlKind.HANDOVER, next_unit or self._rivals.find_first())
        self._forget_alpha(reason)
        self._become_member(now, self.timing.silence_s)

    # --- time ---------------------------------------------------------------------------------------------------

    def _on_tick(self, now: float) -> None:
        while self._alarms:
            alarm = min(self._alarms, key=self._alarms.__getitem__)
            if self._alarms[alarm] > now:
                break
            del self._alarms[alarm]
            self._on_alarm(now, alarm)

    def _on_alarm(self, now: float, alarm: Alarm) -> None:
        match alarm:
            case Alarm.SILENCE | Alarm.PATIENCE if self._trusts_gossip():  # it left the council meanwhile
                pass
            case Alarm.SILENCE:
                self._alarms[Alarm.SILENCE] = now + self.timing.silence_s
                reason = f"heard nothing of {self.alpha} for {self.timing.silence_s:g} s" if self.alpha else "no alpha"
                self._doubted = self.alpha or self._doubted
                if self._in_council():
                    self._become_pretender(now, reason)
                else:
                    self._forget_alpha(reason)
            case Alarm.PATIENCE:
                self._set(Alarm.PATIENCE, now, PATIENCE)
                if self._may_pretend():
                    self._become_pretender(now, "the council found no alpha")
            case Alarm.ANSWER | Alarm.CLAIM:
                self._claim(now)
            case Alarm.RETRY:
                if self._waiting:
                    self._become_pretender(now, "tries again")
                else:  # the higher ranks had their chance before the claim that failed
                    self._claim(now)
            case Alarm.BEAT:
                self._alarms[Alarm.BEAT] = now + self.timing.heartbeat_s
                self._tell_all(HowlKind.HEARTBEAT)
            case Alarm.UNANSWERED:
                reason = f"the keeper did not answer for {PATIENCE * self.timing.silence_s:g} s"
                self._stop_leading(reason)
                self._forget_alpha(reason)
                self._become_member(now, self.timing.silence_s)
                self._set(Alarm.BENCH, now, BENCH)
            case Alarm.LONELY:
                self._abdicate(now, f"no member was heard for {LONELY * self.timing.silence_s:g} s", None)
            case Alarm.BENCH:
                pass
            case _:
                assert_never(alarm)

    # --- howls --------------------------------------------------------------------------------------------------

    def _on_howl(self, now: float, howl: Howl) -> None:
        unit, boot = howl.unit, howl.boot
        if howl.pack != self.pack or unit == self.me.unit or boot < self._known_boot(unit):
            return
        if howl.term - self.term > TERMS_AHEAD:
            return
        if self._rivals.is_just_lost(now, unit, boot):
            return
        self._rivals.heard(unit, boot)
        leads = howl.kind in (HowlKind.HEARTBEAT, HowlKind.COORDINATOR)
        if unit == self.alpha and boot > self.alpha_boot and not leads:
            self._miss_alpha(now, f"{unit} was born again")
        self._watch_members(now, heard=True)
        match howl.kind:
            case HowlKind.HEARTBEAT | HowlKind.COORDINATOR:
                self._on_lead(now, howl)
            case HowlKind.ELECTION:
                self._on_election(now, howl)
            case HowlKind.OK:
                self._learn(now, howl.term, f"{unit} knows term {howl.term}")
                self._on_higher(now, howl)
            case HowlKind.STALE:
                self._learn(now, howl.term, f"{unit} knows term {howl.term}")
            case HowlKind.HANDOVER:
                self._on_handover(now, howl)
            case _:
                assert_never(howl.kind)

    def _on_lead(self, now: float, howl: Howl) -> None:
        """Rules 4 and 5."""
        if howl.term < self.term:
            self._tell(howl.unit, HowlKind.STALE)
        elif self._is_released(howl.term, howl.unit):
            return
        elif howl.term == self.term and self._prefers_own(howl.unit, howl.rank):
            if self.role is Role.ALPHA:
                self._tell(howl.unit, HowlKind.HEARTBEAT)
        else:
            self._tries = 0
            self._follow(now, howl.term, howl.unit, howl.boot, howl.lead)

    def _on_election(self, now: float, howl: Howl) -> None:
        """Rank never moves a healthy alpha: who leads says so, who follows one stays silent."""
        self._learn(now, howl.term, f"{howl.unit} pretends after term {howl.term}")
        if self.role is Role.ALPHA:
            self._tell(howl.unit, HowlKind.HEARTBEAT)
        elif self.alpha is not None:
            return
        elif howl.rank < self.me.rank and self._in_council():
            self._tell(howl.unit, HowlKind.OK)
            if self.role is Role.MEMBER:
                self._become_pretender(now, f"{howl.unit} pretends and ranks lower")
        else:
            if howl.term < self.term:
                self._tell(howl.unit, HowlKind.STALE)
            self._on_higher(now, howl)

    def _on_higher(self, now: float, howl: Howl) -> None:
        """A higher rank lives and wants to lead: it gets `answer_s`, once a try, and then one tries again."""
        if Alarm.ANSWER in self._alarms and howl.rank > self.me.rank:
            del self._alarms[Alarm.ANSWER]
            self._alarms[Alarm.RETRY] = now + self.timing.answer_s + retry_delay(self._tries, self.timing, self._rng)
            self._tries += 1

    def _on_handover(self, now: float, howl: Howl) -> None:
        if howl.term < self.term or (howl.term == self.term and self.alpha not in (None, howl.unit)):
            return
        reason = f"{howl.unit} handed term {howl.term} over"
        self._learn(now, howl.term, reason)
        self._released = (howl.term, howl.unit)
        if Alarm.CLAIM in self._alarms:
            return
        if howl.next_unit == self.me.unit and self._may_pretend():
            self._tries = 0
            self._become_pretender(now, reason, ask=False)
        else:
            self._forget_alpha(reason)
            self._become_member(now, self.timing.silence_s)

    # --- the arbiter ----------------------------------------------------------------------------------------------

    def _claim(self, now: float) -> None:
        self._waiting, self._claimed = False, True
        if self._first_claim[0] != self.term:
            self._first_claim = (self.term, now)
        if self.arbiter is Arbiter.ITSELF:
            self._become_alpha(now, self.term + 1)
            return
        self._clear_alarms()
        self._set(Alarm.CLAIM, now, CLAIM_WAIT)
        self._orders.append(Claim(self.term))

    def _on_granted(self, now: float, term: int) -> None:
        if self.role is Role.ALPHA and term == self.term:
            return
        if self._claimed and term >= self.term and term > self._ended_term:
            self._become_alpha(now, term)
            return
        self._orders.append(ReleaseTerm(term))
        self._ended_term = max(self._ended_term, term)
        self._learn(now, term, f"term {term} was granted too late and is given back")
        if term == self.term:
            self._released = (term, self.me.unit)
        if Alarm.CLAIM in self._alarms:
            self._back_off(now)

    def _on_refused(self, now: float, term: int, alpha: str | None, boot: int) -> None:
        if (alpha, boot) == (self.me.unit, self.me.boot):
            self._on_granted(now, term)
            return
        if Alarm.CLAIM not in self._alarms:  # too late to answer anything: it is only news
            self._on_term(now, term, alpha, boot)
            return
        if alpha is not None and term >= self.term and not self._is_released(term, alpha):
            self._learn(now, term, f"the keeper knows term {term}")
            if alpha != self.me.unit and not self._rivals.is_just_lost(now, alpha, boot):
                self._rivals.heard(alpha, boot)  # it renews: it lives
                self._follow(now, term, alpha, boot, self._rivals.lead_of(alpha))
        elif alpha is None:
            self._vacate(now, term)
        if Alarm.CLAIM in self._alarms:
            self._back_off(now)

    def _back_off(self, now: float) -> None:
        self._clear_alarms()
        self._alarms[Alarm.RETRY] = now + retry_delay(self._tries, self.timing, self._rng)
        self._tries += 1

    def _on_term(self, now: float, term: int, alpha: str | None, boot: int) -> None:
        """What a row says. It names who holds the term, it does not say that its holder lives."""
        if term < self.term:
            return
        same = term == self.term
        if (alpha, boot) == (self.me.unit, self.me.boot):
            self._on_granted(now, term)
        elif alpha is None or alpha == self.me.unit:  # an earlier boot of mine leads no longer
            self._vacate(now, term)
        elif term == self._vacated or self._is_released(term, alpha) or (same and self._ignores_row(alpha)):
            return
        elif self._rivals.is_lost(alpha, boot):
            self._learn(now, term, f"{alpha} held term {term} and died")
            self._doubted = alpha
            if self.role is Role.MEMBER:
                self._become_member(now, self._jitter())
        else:
            self._follow(now, term, alpha, boot, self._rivals.lead_of(alpha))

    def _learn(self, now: float, term: int, reason: str) -> None:
        """A higher term exists, its alpha not yet known: whoever led until now does no longer."""
        if term <= self.term:
            return
        if self.role is Role.ALPHA:
            self._stop_leading(reason)
        self.term, self._doubted = term, None
        self._forget_alpha(reason)
        if self.role is Role.MEMBER:
            self._become_member(now, self.timing.silence_s)

    def _vacate(self, now: float, term: int) -> None:
        """Nobody holds this term any more: no need to wait for silence."""
        if term < self.term or term in (self._vacated, self._released[0]):
            return
        reason = f"term {term} is vacant"
        self._learn(now, term, reason)
        self._vacated = term
        if self.role is Role.ALPHA:
            self._stop_leading(reason)
        self._forget_alpha(reason)
        if self.role is Role.MEMBER:
            self._become_member(now, self._jitter())

    # --- peers ----------------------------------------------------------------------------------------------------

    def _on_lost(self, now: float, unit: str, boot: int) -> None:
        if unit == self.me.unit or boot < self._known_boot(unit):
            return
        self._rivals.lose(now, unit, boot)
        if unit == self.alpha:
            self._miss_alpha(now, f"{unit} died")
        elif self._waiting and not self._rivals.outrank_me():
            self._claim(now)
        self._watch_members(now)
        self._watch_alpha(now)

    def _on_lives(self, now: float, unit: str, boot: int) -> None:
        """A unit that was thought dead spoke for itself. For those outside the council that is the alpha's voice."""
        if unit == self.me.unit or boot < self._known_boot(unit):
            return
        self._rivals.heard(unit, boot)
        outside = self.gossip and self.role is Role.MEMBER and not self._in_council()
        if outside and self.alpha is None and unit == self._doubted and not self._is_released(self.term, unit):
            self._follow(now, self.term, unit, boot, self._rivals.lead_of(unit))

    def _on_peers(self, now: float, peers: tuple[Peer, ...]) -> None:
        for peer in self._rivals.set_roster(peers):
            if self.role is Role.ALPHA:
                self._tell(peer.unit, HowlKind.HEARTBEAT)
            elif peer.unit == self.alpha and peer.boot > self.alpha_boot:
                self._miss_alpha(now, f"{peer.unit} was born again")
        self._watch_members(now)
        self._watch_alpha(now)

    def _miss_alpha(self, now: float, reason: str) -> None:
        """The alpha's process died: no need to wait for silence."""
        self._doubted = self.alpha
        if self._in_council():
            self._become_pretender(now, reason)
        else:
            self._forget_alpha(reason)
            self._become_member(now, self.timing.silence_s)

    # --- small facts ----------------------------------------------------------------------------------------------

    def _may_pretend(self) -> bool:
        """On the bench others go first, if there are others."""
        benched = Alarm.BENCH in self._alarms and self._rivals.others_can_lead()
        return self.me.can_lead and not self._leaving and not benched

    def _in_council(self) -> bool:
        return self._may_pretend() and self._rivals.am_in_council()

    def _ranks_first(self, alpha: Rank) -> bool:
        return self.me.rank > alpha and not self._rivals.outrank_me()

    def _ignores_row(self, alpha: str) -> bool:
        """Whether a row of my own term that names this alpha tells nothing new."""
        if alpha in (self.alpha, self._doubted):
            return True
        return self.arbiter is Arbiter.ITSELF and self._prefers_own(alpha, self._rivals.rank_of(alpha))

    def _known_boot(self, unit: str) -> int:
        return max(self._rivals.boot_of(unit), self.alpha_boot if unit == self.alpha else 0)

    def _is_released(self, term: int, unit: str) -> bool:
        return (term, unit) == self._released

    def _prefers_own(self, unit: str, rank: Rank) -> bool:
        """Whether the alpha I know (or am) stands before another one of the same term; with a keeper there is none."""
        return self.alpha not in (None, unit) and rank < Rank(self._alpha_lead, natural_key(self.alpha or ""))

    def _forget_alpha(self, reason: str) -> None:
        if self.alpha is not None:
            self.alpha, self.alpha_boot = None, 0
            self._orders.append(Alone(reason))

    def _watch_members(self, now: float, *, heard: bool = False) -> None:
        """Only an alpha with a keeper and living members can be lonely: without a keeper each side needs an alpha."""
        if self.role is not Role.ALPHA or self.arbiter is Arbiter.ITSELF:
            return
        if not self._rivals.living():
            self._alarms.pop(Alarm.LONELY, None)
        elif heard or Alarm.LONELY not in self._alarms:
            self._set(Alarm.LONELY, now, LONELY)

    def _trusts_gossip(self) -> bool:
        """Whether the view tells all there is to know of the alpha: no beat will come, and none is missed."""
        return self.gossip and self.alpha is not None and self._rivals.are_many() and not self._in_council()

    def _watch_alpha(self, now: float) -> None:
        """Who comes into the council, when others went, is beaten to from now on."""
        if self.role is Role.MEMBER and Alarm.SILENCE not in self._alarms and not self._trusts_gossip():
            self._become_member(now, self.timing.silence_s)

    def _jitter(self) -> float:
        return self._rng.uniform(0, self.timing.silence_s / 10)

    def _set(self, alarm: Alarm, now: float, silences: float) -> None:
        self._alarms[alarm] = now + silences * self.timing.silence_s

    def _clear_alarms(self) -> None:
        self._alarms = {alarm: at for alarm, at in self._alarms.items() if alarm is Alarm.BENCH}

    def _tell(self, to: str, kind: HowlKind, next_unit: str | None = None) -> None:
        me = self.me
        howl = Howl(
            kind=kind, pack=self.pack, term=self.term, unit=me.unit, boot=me.boot, lead=me.lead, next_unit=next_unit
        )
        self._orders.append(Tell(to, howl))

    def _tell_all(self, kind: HowlKind, next_unit: str | None = None) -> None:
        """To lost ones too: the hint may be wrong, and only a beat heals it on both sides.

        Where gossip tells the others, to the council alone.
        """
        audience = council(self._rivals.living()) if self.gossip and self._rivals.are_many() else self._rivals
        for peer in audience:
            self._tell(peer.unit, kind, next_unit)
