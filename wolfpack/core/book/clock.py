"""The keeper's clock: what the book takes for the time, made of what the machine's clocks say.

Silence is judged by a clock that forgives the keeper's own pauses. It stands still from the last look before a pause
until the first look after it, whatever that look is for: a message that waited meanwhile is then no later than the
last one before, and nobody's deadline passed. So a renewal that was queued through a pause of five seconds counts for
one `silence_s` from its handling, not for five seconds more.

What is stored and shown is wall time, but a clock that is set while the keeper lives makes no delayed task due, and no
deadline missed: wall time goes on from the keeper's birth by a clock that nobody sets. The next keeper reads it anew.
"""

from __future__ import annotations

from wolfpack.core.book.state import Instant


def still_due(due: float, since: float, wall: float) -> float:
    """When something is due that a keeper before this one wrote down.

    If the clock was set back between the two, `since`, when it was written, lies ahead of now. Then it waits once more
    for as long as it was told to, and not for as long as the clock was set back too. All in seconds since the epoch.
    """
    return min(due, wall + max(0.0, due - since))


class KeeperClock:
    """Reads times for the book.

    Args:
        mono: monotonic seconds, now. Between looks of a keeper that is not paused less than `patience_s` pass.
        steady: seconds of a clock that nobody sets and that goes on while the machine sleeps, now.
        wall: seconds since the epoch, now.
        patience_s: a longer time between two looks was a pause of the keeper's own.
    """

    def __init__(self, mono: float, steady: float, wall: float, patience_s: float) -> None:
        self._last = mono
        self._ahead = wall - steady
        self._patience_s = patience_s
        self.forgiven_s = 0.0

    def read(self, mono: float, steady: float) -> Instant:
        gap = mono - self._last
        self._last = mono
        if gap > self._patience_s:
            self.forgiven_s += gap
        return Instant(mono - self.forgiven_s, steady + self._ahead)
