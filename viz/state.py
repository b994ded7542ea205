"""The state of a den at a moment, folded from its events.

`DenView.apply` takes one recorded event after another. It believes events and checks nothing: the keeper is the judge.
It is lenient, since retention may have removed the beginning: a unit or pack it never heard of is made up on first
mention, and events of other kinds (users' own, or of a later version) only move the number and the time.

Seats. Each pack keeps a list of units in natural order, its *seats*: pictures draw a unit always in its seat, so that
few nodes move from one picture to the next. A unit that leaves keeps its seat; empty seats are cleared at a departure
once they are more than the taken ones. Only arrivals and departures change seats, so a change of alpha moves nobody
but the two alphas.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from wolfpack import Nature, Readiness, Role, natural_key
from wolfpack import events as ev

SEATS_KEPT = 8  # a pack of so few seats keeps them all
REIGNS_KEPT = 64  # the newest terms of a pack that its view remembers


@dataclass(slots=True, kw_only=True)
class UnitView:
    name: str
    kind: str = ""
    nature: Nature = Nature.WOLF
    offers: tuple[str, ...] = ()
    readiness: Readiness = Readiness.ASLEEP
    role: Role = Role.FREE
    # The pack it is a member of; of a lost unit the pack that lost it.
    pack: str | None = None
    boot: int = 0
    # It vanished, and nobody has woken it since.
    lost: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reign:
    """One term of a pack: who led from when on, and until when (None: still does)."""

    term: int
    alpha: str
    previous: str | None
    since_at: float
    until_at: float | None = None
    reason: str = ""


@dataclass(slots=True, kw_only=True)
class PackView:
    name: str
    term: int = 0
    alpha: str | None = None
    fewest: int = 0
    most: int | None = None
    reigns: deque[Reign] = field(default_factory=lambda: deque(maxlen=REIGNS_KEPT))
    seats: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class DenView:
    den: str = ""
    units: dict[str, UnitView] = field(default_factory=dict)
    packs: dict[str, PackView] = field(default_factory=dict)
    # Packs that are no more: the end of their last term may be told after their own.
    dropped: set[str] = field(default_factory=set)
    # The newest event that was applied.
    latest: ev.Recorded | None = None

    @property
    def number(self) -> int:
        return self.latest.number if self.latest else 0

    def members(self, pack: str) -> list[UnitView]:
        """Living members of the pack, in natural order."""
        found = [unit for unit in self.units.values() if unit.pack == pack and not unit.lost]
        return sorted(found, key=lambda unit: natural_key(unit.name))

    def apply(self, recorded: ev.Recorded) -> None:
        """Takes the next event. One whose number is not newer than the last was seen already and changes nothing."""
        if self.latest and recorded.number <= self.latest.number:
            return
        self.latest = recorded
        match recorded.event:
            case ev.DenOpened(den=den):
                self.den = den
            case ev.UnitRegistered(unit=name, kind=kind, nature=nature, offers=offers):
                unit = self._unit(name)
                unit.kind, unit.nature, unit.offers = kind, Nature(nature), tuple(offers)
            case ev.UnitWaking(unit=name, boot=boot, reason=reason):
                self._offline(name, Readiness.WAKING, reason).boot = boot
            case ev.UnitWoke(unit=name, boot=boot):
                unit = self._unit(name)
                unit.boot, unit.readiness, unit.lost, unit.reason = boot, Readiness.AWAKE, False, ""
            case ev.UnitSlept(unit=name, reason=reason):
                self._offline(name, Readiness.ASLEEP, reason)
            case ev.UnitJoined(unit=name, boot=boot, pack=pack, reason=reason):
                self._join(name, boot, pack, reason)
            case ev.UnitLent(unit=name, boot=boot, pack=pack):
                self._join(name, boot, pack, "lent from its day job")
            case ev.UnitLeft(unit=name, pack=pack) | ev.UnitReturned(unit=name, pack=pack):
                if self._unit(name).pack == pack:
                    self._leave(name)
            case ev.UnitLost(unit=name, pack=pack, reason=reason):
                self._lose(name, pack, reason)
            case ev.UnitQuarantined(unit=name, reason=reason):
                unit = self._unit(name)
                unit.readiness, unit.reason = Readiness.QUARANTINED, reason
            case ev.AlphaCrowned() as crowned:
                self._crown(crowned, recorded.at)
            case ev.AlphaDeposed() as deposed:
                self._depose(deposed, recorded.at)
            case ev.PackCreated(pack=name, fewest=fewest, most=most):
                pack_view = self._pack(name)
                pack_view.fewest, pack_view.most = fewest, most
            case ev.PackDropped(pack=name):
                for unit in self.units.values():
                    if unit.pack == name:
                        unit.pack, unit.role = None, Role.FREE
                self.packs.pop(name, None)
                self.dropped.add(name)
            case _:
                pass

    def _unit(self, name: str) -> UnitView:
        return self.units.setdefault(name, UnitView(name=name))

    def _pack(self, name: str) -> PackView:
        self.dropped.discard(name)
        return self.packs.setdefault(name, PackView(name=name))

    def _join(self, name: str, boot: int, pack: str, reason: str) -> None:
        unit = self._unit(name)
        if unit.pack != pack:
            self._leave(name)
            unit.role = Role.MEMBER
        unit.pack, unit.boot, unit.reason = pack, boot, reason
        unit.readiness, unit.lost = Readiness.AWAKE, False
        seats = self._pack(pack).seats
        if name not in seats:
            seats.append(name)
            seats.sort(key=natural_key)

    def _leave(self, name: str) -> None:
        unit = self._unit(name)
        pack = self.packs.get(unit.pack or "")
        unit.pack, unit.role, unit.lost = None, Role.FREE, False
        if pack is None:
            return
        if pack.alpha == name:
            pack.alpha = None
        taken = [seat for seat in pack.seats if self._unit(seat).pack == pack.name]
        if len(pack.seats) > max(SEATS_KEPT, 2 * len(taken)):
            pack.seats[:] = taken

    def _offline(self, name: str, readiness: Readiness, reason: str) -> UnitView:
        self._leave(name)
        unit = self._unit(name)
        unit.readiness, unit.reason = readiness, reason
        return unit

    def _lose(self, name: str, pack: str | None, reason: str) -> None:
        unit = self._unit(name)
        pack = pack or unit.pack
        if pack is not None:
            self._join(name, unit.boot, pack, reason)
            if self._pack(pack).alpha == name:
                self._pack(pack).alpha = None
        unit.readiness, unit.role, unit.lost, unit.reason = Readiness.ASLEEP, Role.FREE, True, reason

    def _crown(self, event: ev.AlphaCrowned, at: float) -> None:
        pack = self._pack(event.pack)
        previous = event.previous or (pack.reigns[-1].alpha if pack.reigns else None)
        self._end_reign(pack, at)
        self._join(event.unit, event.boot, event.pack, event.reason)
        pack.term, pack.alpha = event.term, event.unit
        self._unit(event.unit).role = Role.ALPHA
        pack.reigns.append(
            Reign(term=event.term, alpha=event.unit, previous=previous, since_at=at, reason=event.reason)
        )

    def _depose(self, event: ev.AlphaDeposed, at: float) -> None:
        if event.pack in self.dropped:
            return
        pack = self._pack(event.pack)
        if event.term < pack.term:
            return  # a later term was granted before this one's end was told
        pack.term = event.term
        self._end_reign(pack, at)

    def _end_reign(self, pack: PackView, at: float) -> None:
        if pack.reigns and pack.reigns[-1].until_at is None:
            pack.reigns[-1] = replace(pack.reigns[-1], until_at=at)
        for unit in self.units.values():
            if unit.pack == pack.name and unit.role is Role.ALPHA:
                unit.role = Role.MEMBER
        pack.alpha = None


def fold(recorded: Iterable[ev.Recorded]) -> DenView:
    """The state of the den after these events, which come in the order of their numbers."""
    view = DenView()
    for item in recorded:
        view.apply(item)
    return view
