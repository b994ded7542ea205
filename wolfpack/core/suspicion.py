"""How long things may take before a unit is suspected, and before a suspect is dead. Formulas, and the two small states
they need: how healthy this unit itself is, and how often it had to defend itself.

After SWIM (Das, Gupta, Motivala 2002), Lifeguard (Dadgar, Phillips, Currey 2018) and hashicorp/memberlist, which is
where the published formulas leave something open: `suspicion.go` (remainingSuspicionTime), `util.go` (suspicionTimeout,
retransmitLimit) and `awareness.go`.
"""

from __future__ import annotations

import math
from collections import deque

from wolfpack.core.membership_words import Incarnation
from wolfpack.model import Timing

HEALTH_WORST = 8  # Lifeguard's S
CONFIRMATIONS = 3  # Lifeguard's K
NACK_SHARE = 0.8  # of ack_s: then a helper says that it heard nothing either (memberlist: 80%)
REFUTATIONS_MANY = 5  # in REFUTATIONS_S seconds: beyond it the window of the limiter doubles
REFUTATIONS_S = 10.0
REFUTATION_SHARE = 0.5  # of the least suspicion: the window never grows beyond, or the defence would come too late
_UNLIKELY = 1e-9  # what a bound may leave to chance

# --- formulas -----------------------------------------------------------------------------------------------------


def suspicion_min_s(timing: Timing, n: int) -> float:
    """The least a suspect has to defend itself: alpha * max(1, log10 n) * probe_s (memberlist: suspicionTimeout)."""
    return timing.suspicion_alpha * max(1.0, math.log10(max(1, n))) * timing.probe_s


def suspicion_max_s(timing: Timing, n: int) -> float:
    """The most, when nobody confirms: beta times the least."""
    return timing.suspicion_beta * suspicion_min_s(timing, n)


def confirmations_expected(n: int) -> int:
    """How many others should agree before a suspicion is as short as can be: three, or half the others in a small den.

    Lifeguard has K = 3 and memberlist drops it to 0 where fewer than K others are left. Half of the others instead, so
    that a den of five is as quick as a large one and one of three still asks the one unit there is to ask.
    """
    return max(0, min(CONFIRMATIONS, (n - 1) // 2))


def suspicion_s(confirmed: int, expected: int, least_s: float, most_s: float) -> float:
    """How long this suspicion runs: max - (max - min) * log(c + 1) / log(k + 1), never below min.

    Lifeguard, section IV.B; memberlist, remainingSuspicionTime. With nobody to expect it is the least at once.
    """
    if expected <= 0:
        return least_s
    share = math.log(confirmed + 1) / math.log(expected + 1)
    return max(least_s, most_s - share * (most_s - least_s))


def retransmits(factor: float, n: int) -> int:
    """How often each news is sent: lambda * ceil(log10(n + 1)) (memberlist: retransmitLimit)."""
    return max(1, round(factor * math.ceil(math.log10(n + 1))))


def load_retransmits(times: int) -> int:
    """How often each load is sent: half as often as health, and at least six times.

    Told so often to others drawn at random, news misses about exp(-times) of all units, and these wait for a sync:
    13% of two tellings, 1.5% of four, 0.3% of six. A load may be old for 1% of them.
    """
    return max(6, times // 2)


def stretched(seconds: float, health: int) -> float:
    """A time of one's own, for a unit that is this slow itself (Lifeguard: LHA-Probe)."""
    return seconds * (health + 1)


def first_probe_bound_s(timing: Timing, n: int) -> float:
    """Until somebody probes a crashed unit: two laps of a single prober, or earlier where many probe.

    n - 1 probers that each begin at a random place of their lap all miss it for t seconds with a chance of
    exp(-t / probe_s), so -ln(1e-9) = 20.7 periods are enough in a large den.
    """
    return timing.probe_s * min(2 * n - 1, -math.log(_UNLIKELY))


def time_to_dead_bound(timing: Timing, n: int, loss: float = 0.0) -> float:
    """Until the first living unit calls a crashed one DEAD, without hints, when no other faults go on.

    A probe reaches it, fails at the end of its period, and the suspicion runs with at worst a third of the expected
    confirmations (the helpers that answered); where none can be expected it runs the least.
    """
    least, most = suspicion_min_s(timing, n), suspicion_max_s(timing, n)
    expected = confirmations_expected(n)
    runs = suspicion_s(expected // 3, expected, least, most)
    return first_probe_bound_s(timing, n) / (1.0 - loss) + timing.probe_s + runs


def all_know_bound(timing: Timing, n: int, loss: float = 0.0) -> float:
    """L2: seconds from a crash until every living unit calls it DEAD, once other faults stopped.

    The first DEAD, then gossip: a rumour told to `fan_out` others each gossip_s has reached all after about
    log_(fan_out + 1)(n) + ln(n) rounds (Pittel 1987); whom it missed learns it from one of three syncs.
    """
    rounds = math.log(n, timing.fan_out + 1) + math.log(n) if n > 1 else 0.0
    return time_to_dead_bound(timing, n, loss) + rounds * timing.gossip_s / (1.0 - loss) + 3 * timing.sync_s


def few_left_bound_s(timing: Timing, living: int, dead: int) -> float:
    """What L2 takes longer where more died at once than are left: 0 where not.

    Whoever is asked to help is dead as well, so a survivor doubts itself as much as it can, and comes to each of the
    dead in a lap of its own, with all its times stretched.
    """
    return dead * stretched(timing.probe_s, HEALTH_WORST) if dead > living else 0.0


def refutation_window_s(window_s: float, recent: int, least_s: float, most_s: float) -> float:
    """How long refutations are gathered next: doubles above five in ten seconds, halves when calm."""
    if recent > REFUTATIONS_MANY:
        return min(max(least_s, most_s), window_s * 2)
    return max(least_s, window_s / 2)


# --- states -------------------------------------------------------------------------------------------------------


class LocalHealth:
    """Lifeguard's local health multiplier: 0 is well; what went wrong here rather than there raises it, up to 8."""

    __slots__ = ("score",)

    def __init__(self) -> None:
        self.score = 0

    def worsen(self, by: int = 1) -> None:
        self.score = min(HEALTH_WORST, self.score + by)

    def improve(self) -> None:
        if self.score:
            self.score -= 1


class Suspicion:
    """One suspect whose time runs here: until `deadline` somebody has to hear that it lives."""

    __slots__ = ("confirmers", "deadline", "expected", "incarnation", "least_s", "most_s")

    def __init__(
        self, *, incarnation: Incarnation, accuser: str, started: float, expected: int, least_s: float, most_s: float
    ) -> None:
        self.incarnation, self.expected = incarnation, expected
        self.least_s, self.most_s = least_s, most_s
        self.confirmers = {accuser}
        self.deadline = started + self._runs_s()

    def _runs_s(self) -> float:
        return suspicion_s(len(self.confirmers) - 1, self.expected, self.least_s, self.most_s)

    def restart(self, now: float) -> None:
        """It was heard of after it was suspected, though it did not defend itself yet."""
        self.deadline = now + self._runs_s()

    @property
    def settled(self) -> bool:
        """No further confirmation makes it shorter."""
        return len(self.confirmers) > self.expected

    def confirm(self, unit: str) -> bool:
        """Whether this was news: each unit counts once, the first accuser not at all."""
        if self.settled or unit in self.confirmers:
            return False
        before = self._runs_s()
        self.confirmers.add(unit)
        self.deadline += self._runs_s() - before
        return True


class RefutationLimiter:
    """Gathers wrong claims about oneself, so that one refutation answers all of a window. Nothing is dropped.

    `due` is when the next refutation leaves: at once after calm, else at the end of the window. Without this, two slow
    units of thousands, accused and accused again, flood the den with their refutations.
    """

    __slots__ = ("_least_s", "_sent", "due", "window_s")

    def __init__(self, gossip_s: float) -> None:
        self._least_s = gossip_s
        self._sent: deque[float] = deque(maxlen=REFUTATIONS_MANY + 1)
        self.window_s = gossip_s
        self.due = math.inf

    def ask(self, now: float) -> float:
        """A refutation is wanted; returns when it leaves."""
        if self.due == math.inf:
            self.due = max(now, self._sent[-1] + self.window_s) if self._sent else now
        return self.due

    def leave(self, now: float, suspicion_least_s: float) -> None:
        """It leaves now."""
        self.due = math.inf
        self._sent.append(now)
        while self._sent[0] <= now - REFUTATIONS_S:
            self._sent.popleft()
        most_s = REFUTATION_SHARE * suspicion_least_s
        self.window_s = refutation_window_s(self.window_s, len(self._sent), self._least_s, most_s)

    def shift(self, by_s: float) -> None:
        """A pause of this process: what was due then is due so much later."""
        self.due += by_s
