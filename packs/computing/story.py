"""What happened to the pack's leadership and size during a run, folded from the den's events.

Pure functions of a list of events, as `den.events()` returns them: no clock, no den. Times come out in seconds since
the run began, or as lengths in seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import wolfpack


class Kill(NamedTuple):
    """An alpha that was killed on purpose: which one, and when by the wall clock."""

    unit: str
    boot: int
    pid: int
    at: float


def alphas(events: Iterable[wolfpack.Recorded], pack: str, began_at: float) -> list[dict[str, Any]]:
    """Who was crowned in this pack, in order: `{pack, term, unit, at_s}`."""
    return [
        {"pack": pack, "term": item.event.term, "unit": item.event.unit, "at_s": round(item.at - began_at, 3)}
        for item in events
        if isinstance(item.event, wolfpack.AlphaCrowned) and item.event.pack == pack
    ]


def failovers(events: Sequence[wolfpack.Recorded], pack: str, kills: Sequence[Kill] = ()) -> list[float]:
    """Seconds without an alpha that hands out work, one for each term that ended unwished.

    From the kill, or where nobody killed it from the end of the term (AlphaDeposed), to the first lease of the next
    term that gave one (FirstLease). A term whose alpha let go of it on purpose is no failover: the pack may have had
    nothing to do until the next. A failover without a next lease in these events is left out.
    """
    found: list[float] = []
    ended_at: float | None = None  # the pack has been without an alpha since
    ended_term = 0
    reigning = 0
    waiting = sorted(kills, key=lambda kill: kill.at)
    for item in events:
        event = item.event
        while waiting and waiting[0].at <= item.at:
            killed_at = waiting.pop(0).at
            ended_at, ended_term = killed_at if ended_at is None else ended_at, reigning
        if getattr(event, "pack", None) != pack:
            continue
        match event:
            case wolfpack.AlphaCrowned():
                reigning = event.term
            case wolfpack.AlphaDeposed() if unwished(event):
                ended_at, ended_term = item.at if ended_at is None else ended_at, event.term
            case wolfpack.FirstLease() if ended_at is not None and event.term > ended_term:
                found.append(round(item.at - ended_at, 4))
                ended_at = None
            case _:
                pass
    return found


def unwished(event: wolfpack.AlphaDeposed) -> bool:
    """Whether the term ended because its alpha died or was not heard; else it let go: it left, slept, handed over."""
    return "vanished" in event.reason or "silent" in event.reason


class Size(NamedTuple):
    peak: int  # most members at one moment
    unit_seconds: float  # members times seconds: what the run cost


def size(
    events: Iterable[wolfpack.Recorded], pack: str, members: Iterable[str], began_at: float, ended_at: float
) -> Size:
    """Folds joins and leaves into the pack's size over the run, starting from the `members` at its beginning."""
    present = set(members)
    peak = len(present)
    unit_seconds = 0.0
    last = began_at
    for item in events:
        event = item.event
        at = min(max(item.at, last), ended_at)
        unit_seconds += len(present) * (at - last)
        last = at
        match event:
            case wolfpack.UnitJoined(unit=unit) if event.pack == pack:
                present.add(unit)
            case wolfpack.UnitJoined(unit=unit) | wolfpack.UnitLost(unit=unit) | wolfpack.UnitSlept(unit=unit):
                present.discard(unit)
            case wolfpack.UnitLeft(unit=unit) if event.pack == pack:
                present.discard(unit)
            case _:
                pass
        peak = max(peak, len(present))
    unit_seconds += len(present) * max(0.0, ended_at - last)
    return Size(peak, round(unit_seconds, 3))


def read_events(den: Any, since: int) -> list[wolfpack.Recorded]:
    """All events after a number, also where the den answers in portions."""
    found: list[wolfpack.Recorded] = []
    while batch := [item for item in den.events(since=since) if item.number > since]:
        found += batch
        since = batch[-1].number
    return found
