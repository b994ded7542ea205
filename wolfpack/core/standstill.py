"""A unit that is busy without progress: what it may still do, and what of its work ends.

Progress is any task that ends or calls `progress()`. Three other units must have seen none for the `stall_s` of this
unit's card (`core/loads`); the unit itself then takes nothing new, and what has run for so long ends as TIMEOUT.

Off unless the card says so. A task of many hours that never calls `progress()`, or native code that holds the
interpreter's lock, looks the same from outside and has no fault: its lease is renewed all the while, so that nobody
starts it twice (P12, P16). Only whoever wrote a task knows that its silence means that it is stuck.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping


class Standstill:
    """The judgement on this unit, and what was done about it. `stall_s` None: it never stalls."""

    __slots__ = ("_given_up", "_stall_s", "is_stalled")

    def __init__(self, stall_s: float | None) -> None:
        self._stall_s = stall_s
        self._given_up: set[int] = set()
        self.is_stalled = False

    def judge(self, stalled: bool) -> None:
        """Three others say so, or that it goes on again."""
        self.is_stalled = stalled and self._stall_s is not None

    def go_on(self) -> None:
        """A task ended here: whatever the others still think, that is progress."""
        self.is_stalled = False

    def give_up(self, held: Collection[int], running: Mapping[int, float]) -> tuple[int, ...]:
        """Leases to end now, each named once.

        Args:
            held: leases in hand.
            running: for how many seconds those that run have run.
        """
        if not self.is_stalled or self._stall_s is None:
            return ()
        stuck = {lease_no for lease_no in held if running.get(lease_no, 0.0) >= self._stall_s}
        fresh = tuple(sorted(stuck - self._given_up))
        self._given_up = stuck
        return fresh

    def __str__(self) -> str:
        return f"it made no progress for {self._stall_s or 0.0:g} s, as three other units saw"
