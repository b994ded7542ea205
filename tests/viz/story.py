"""Sequences of events to draw: a den told in a few calls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from wolfpack import events as ev

AFTERNOON = 1_772_373_802.0  # 2026-03-01 14:03:22 UTC


class Story:
    """Records events with rising numbers, one second apart."""

    def __init__(self, den: str = "timber", *, start_at: float = AFTERNOON) -> None:
        self.events: list[ev.Recorded] = []
        self.start_at = start_at
        self.tell(ev.DenOpened(den=den, epoch=1))

    def tell(self, event: Any) -> Story:
        number = len(self.events) + 1
        self.events.append(ev.Recorded(number=number, at=self.start_at + number - 1, producer="keeper", event=event))
        return self

    def cards(self, kind: str, count: int, *, nature: str = "wolf", offers: Iterable[str] = ("cpu",)) -> list[str]:
        names = [f"{kind}-{index}" for index in range(count)]
        for name in names:
            self.tell(ev.UnitRegistered(unit=name, kind=kind, nature=nature, offers=tuple(offers)))
        return names

    def pack(self, name: str, *units: str) -> Story:
        self.tell(ev.PackCreated(pack=name, fewest=0, most=200))
        return self.join(name, *units)

    def join(self, pack: str, *units: str) -> Story:
        for unit in units:
            self.tell(ev.UnitWoke(unit=unit, boot=1, pack=pack))
            self.tell(ev.UnitJoined(unit=unit, boot=1, pack=pack, reason="called"))
        return self

    def wake(self, *units: str) -> Story:
        for unit in units:
            self.tell(ev.UnitWoke(unit=unit, boot=1, pack=None))
        return self

    def crown(self, pack: str, term: int, unit: str, previous: str | None = None, reason: str = "claimed") -> Story:
        return self.tell(ev.AlphaCrowned(pack=pack, term=term, unit=unit, boot=1, previous=previous, reason=reason))

    def depose(self, pack: str, term: int, unit: str, reason: str = "its process died") -> Story:
        return self.tell(ev.AlphaDeposed(pack=pack, term=term, unit=unit, boot=1, reason=reason))

    def lose(self, unit: str, pack: str | None, reason: str = "its process died") -> Story:
        return self.tell(ev.UnitLost(unit=unit, boot=1, pack=pack, reason=reason))
