"""The book's unit desk: one row a unit, and the only ways it changes.

A unit stands in exactly one place: asleep, waking, free (a werewolf: at home with its day job), or member of one pack.
Each accepted call carries the boot and a number that rises within it, so a late or repeated message changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from wolfpack.core.book.journal import CreateUnit, EndUnit, Journal
from wolfpack.core.book.state import Instant, Pack, Unit
from wolfpack.core.book.tasks import TaskDesk
from wolfpack.core.wire import KeeperReport, Move, RosterEntry, Where
from wolfpack.events import (
    UnitJoined,
    UnitLeft,
    UnitLent,
    UnitLost,
    UnitQuarantined,
    UnitRegistered,
    UnitReturned,
    UnitSlept,
    UnitWaking,
    UnitWoke,
)
from wolfpack.model import Card, Cause, Nature, Readiness, Timing, natural_key
from wolfpack.plain import card_to_json

BIRTHS_MOST = 3  # failed in a row: the card is quarantined
PROBE_S = 60.0  # so long after that it is tried again, then after twice as long, and so on
PROBE_MOST_S = 3600.0
WAKE_LIMIT_S = 60.0  # a waking unit unheard for so long sleeps again, its boot spent
LIVING = (Readiness.AWAKE, Readiness.DRAINING)


def probe_after_s(failed_births: int) -> float:
    """How long a card stays in quarantine after so many births that failed in a row, before one more is tried."""
    return min(PROBE_MOST_S, PROBE_S * 2.0 ** min(failed_births - BIRTHS_MOST, 10))


class UnitDesk:
    def __init__(
        self,
        journal: Journal,
        packs: dict[str, Pack],
        units: dict[str, Unit],
        tasks: TaskDesk,
        timing: Timing,
        vacate: Callable[[Instant, Pack, str], None],
    ) -> None:
        self._journal = journal
        self._packs = packs
        self._units = units
        self._tasks = tasks
        self._timing = timing
        self._vacate = vacate
        self.members: dict[str, dict[str, Unit]] = {}
        self.ordered: dict[str, str] = {}  # unit -> the operator's order it is carrying out
        self.closing = False
        self.silent_s = max(3 * timing.lease_s, 15.0)

    # --- cards --------------------------------------------------------------------------------------------------

    def register(self, at: Instant, card: Card) -> None:
        """Adds a card, or takes its new text; a werewolf that is new is woken for its day job."""
        unit = self._units.get(card.unit)
        if unit is not None and unit.card == card and unit.readiness is not Readiness.GONE:
            return
        if unit is None:
            unit = self._units[card.unit] = Unit(card)
            unit.wake_at = at.wall if card.day_job else 0.0
        unit.card = card
        if unit.readiness is Readiness.GONE:
            unit.readiness = Readiness.ASLEEP
        if unit.readiness is Readiness.QUARANTINED:
            unit.readiness, unit.failed_births = Readiness.ASLEEP, 0
        self._note(unit)
        unit.card_version = unit.version
        offers = (*sorted(card.offer.tags), *(f"{name}={value:g}" for name, value in card.offer.measures))
        self._journal.publish(
            at, UnitRegistered(unit=card.unit, kind=card.kind, nature=card.nature.value, offers=offers)
        )

    def forget(self, at: Instant, name: str) -> None:
        """The card left pack.yaml: an asleep unit is gone at once, an awake one when its process ends."""
        unit = self._units[name]
        if unit.readiness in LIVING or unit.readiness is Readiness.WAKING:
            self.lose(at, name, unit.boot, "its card was removed")
            self._journal.orders.append(EndUnit(unit=name, boot=unit.boot, reason="its card was removed"))
        unit.readiness, unit.wake_at = Readiness.GONE, 0.0
        self._note(unit)

    def restore(self, unit: Unit, at: Instant) -> None:
        """Takes a row from the ledger. A unit that was awake gets a fresh start to be heard."""
        unit.heard_mono = at.mono
        if unit.readiness is Readiness.WAKING:
            unit.waking_until_mono = at.mono + WAKE_LIMIT_S
        self._units[unit.id] = unit
        self._journal.roster_version += 1
        unit.version = unit.card_version = self._journal.roster_version
        if unit.pack is not None:
            self.members.setdefault(unit.pack, {})[unit.id] = unit

    # --- waking -------------------------------------------------------------------------------------------------

    def wake(self, at: Instant, unit: Unit, pack: str | None, reason: str) -> None:
        """Allots the next boot: the row says "waking for this pack until", and the driver creates the actor."""
        unit.boot += 1
        unit.n = 0
        unit.readiness = Readiness.WAKING
        unit.waking_until_mono = at.mono + WAKE_LIMIT_S
        unit.wake_at = 0.0
        unit.reason = reason
        self._place(unit, pack)
        self._note(unit)
        self._journal.orders.append(CreateUnit(unit=unit.id, boot=unit.boot))
        self._journal.publish(at, UnitWaking(unit=unit.id, boot=unit.boot, pack=pack, reason=reason))

    def wakes_since(self, at: Instant, unit: Unit) -> float:
        """For how many seconds this unit has been waking; infinite if it is not."""
        if unit.readiness is not Readiness.WAKING:
            return float("inf")
        return at.mono - (unit.waking_until_mono - WAKE_LIMIT_S)

    def allot(self, at: Instant, pack: Pack, kind: str, number: int, reason: str) -> int:
        """Wakes up to `number` sleepers of one kind for a pack, never beyond its size; says how many."""
        room = pack.spec.most - len(self.members.get(pack.name, {}))
        sleepers = [u for u in self._units.values() if u.card.kind == kind and u.readiness is Readiness.ASLEEP]
        sleepers.sort(key=lambda unit: natural_key(unit.id))
        chosen = sleepers[: max(0, min(number, room))]
        for unit in chosen:
            self.wake(at, unit, pack.name, reason)
        return len(chosen)

    def call_off(self, at: Instant, pack: str, name: str) -> None:
        """Ends a wake that is no longer wanted: its boot is spent."""
        unit = self._units.get(name)
        if unit is not None and unit.readiness is Readiness.WAKING and unit.pack == pack:
            self.forget_wake(at, unit, "called off: no longer wanted")

    def forget_wake(self, at: Instant, unit: Unit, reason: str) -> None:
        """A waking unit sleeps again, its boot spent."""
        self._put_to_sleep(at, unit, reason)
        self._journal.orders.append(EndUnit(unit=unit.id, boot=unit.boot, reason=reason))

    def hello(self, at: Instant, name: str, boot: int, pid: int, node: str) -> Where:
        """A new process says that it is ready. Any boot but the row's is told to end."""
        unit = self._units.get(name)
        if unit is None or self.closing or unit.boot != boot:
            return self._end("the den is closed" if self.closing else f"boot {boot} of {name} is not wanted")
        if unit.readiness is Readiness.WAKING:
            unit.readiness = Readiness.AWAKE
            unit.pid, unit.node, unit.heard_mono = pid, node, at.mono
            unit.reason, unit.failed_births = "", 0
            self._note(unit)
            self._journal.publish(at, UnitWoke(unit=name, boot=boot, pack=unit.pack))
            if unit.pack is not None:
                self._joined(at, unit, unit.pack, "woken for it")
        elif unit.readiness not in LIVING:
            return self._end(f"{name} is {unit.readiness}")
        return self.where(unit, ok=True)

    def birth_failed(self, at: Instant, name: str, boot: int, reason: str) -> None:
        """A process could not be made, or its set-up raised. The third in a row quarantines the card."""
        unit = self._units.get(name)
        if unit is None or unit.boot != boot or unit.readiness is not Readiness.WAKING:
            return
        unit.failed_births += 1
        self._put_to_sleep(at, unit, f"birth {unit.failed_births} failed: {reason}")
        if unit.failed_births >= BIRTHS_MOST:
            unit.readiness = Readiness.QUARANTINED
            unit.wake_at = at.wall + probe_after_s(unit.failed_births)
            text = f"{name} failed {unit.failed_births} births in a row; mend its set-up and wake it. Last: {reason}"
            self._journal.publish(at, UnitQuarantined(unit=name, reason=text))
        elif unit.card.day_job:
            unit.wake_at = at.wall + float(unit.failed_births)
        self._note(unit)

    # --- moving -------------------------------------------------------------------------------------------------

    def report(self, at: Instant, report: KeeperReport) -> Where:
        """A unit speaks for itself, since its alpha is gone or does not answer."""
        unit = self._current(report.unit, report.boot)
        if unit is None:
            acked = self._tasks.settle(at, self._same_boot(report), report.unit, report.boot, report.settled)
            return self._end(f"boot {report.boot} of {report.unit} is not wanted")._replace(acked=tuple(acked))
        unit.heard_mono = at.mono
        acked = self._tasks.settle(at, unit, unit.id, unit.boot, report.settled)
        cancels = self._tasks.renew(at, unit, report.held)
        return self.where(unit, ok=True, acked=acked, cancels=cancels)._replace(n=report.n)

    def _same_boot(self, report: KeeperReport | Move) -> Unit | None:
        unit = self._units.get(report.unit)
        return unit if unit is not None and unit.boot == report.boot else None

    def move(self, at: Instant, call: Move) -> Where:
        """Settles a unit's last reports, hands back what it never started, and sets where it stands; all or nothing."""
        unit = self._current(call.unit, call.boot)
        if unit is None:
            acked = self._tasks.settle(at, self._same_boot(call), call.unit, call.boot, call.settled)
            return self._end(f"boot {call.boot} of {call.unit} is not wanted")._replace(acked=tuple(acked))
        unit.heard_mono = at.mono
        acked = self._tasks.settle(at, unit, unit.id, unit.boot, call.settled)
        if call.n <= unit.n:
            arrived = call.n == unit.n and self._stands_at(unit, call.to)
            return self.where(unit, ok=arrived, reason="" if arrived else "an older message", acked=acked)
        refusal = self._why_not(unit, call)
        if refusal:
            return self.where(unit, ok=False, reason=refusal, acked=acked)
        unit.n = call.n
        for held in list(unit.held.values()):
            text = f"{unit.id} moved on ({call.reason})"
            self._tasks.end_without_report(at, unit, held, Cause.RETURNED, text, alone=False)
        if call.day_state is not None:
            unit.day_state = call.day_state
        left = unit.pack
        self.ordered.pop(unit.id, None)
        if left is not None:
            self._leave(at, unit, left, call.reason)
        if call.to.startswith("pack:"):
            self._place(unit, call.to.removeprefix("pack:"))
            self._joined(at, unit, unit.pack or "", call.reason)
        elif call.to == "asleep":
            unit.wake_at = at.wall + call.wake_in_s if call.wake_in_s is not None else 0.0
            self._put_to_sleep(at, unit, call.reason)
        self._note(unit)
        return self.where(unit, ok=True, acked=acked)

    def _why_not(self, unit: Unit, call: Move) -> str:
        ordered = unit.id in self.ordered
        if call.to.startswith("pack:"):
            pack = self._packs.get(call.to.removeprefix("pack:"))
            if pack is None or pack.draining:
                return f"{call.to.removeprefix('pack:')} takes no members"
            others = [name for name in self.members.get(pack.name, {}) if name != unit.id]
            if len(others) >= pack.spec.most:
                return f"{pack.name} is full: {len(others)} of {pack.spec.most}"
            if unit.pack == pack.name:
                return f"{unit.id} is a member of {pack.name} already"
            lender = self._packs.get(unit.pack or "")
            if lender is not None and not (lender.spec.lendable and lender.spec.priority < pack.spec.priority):
                return f"{lender.name} does not lend its members to {pack.name}"
        elif call.to not in ("free", "home", "asleep"):
            return f"there is no place {call.to!r}"
        if unit.pack is not None and not ordered:
            pack = self._packs.get(unit.pack)
            if pack is not None and not pack.draining:
                members = len(self.members.get(pack.name, {}))
                if members - 1 < pack.spec.fewest and self._due(pack):
                    return f"{pack.name} would have {members - 1} members, fewer than its {pack.spec.fewest}"
        if call.to == "asleep" and not ordered:
            return self._why_awake(unit)
        return ""

    def _why_awake(self, unit: Unit) -> str:
        """Why this unit must not sleep now: `awake_min` of its kind, or due work only it can do."""
        same = [u for u in self._units.values() if u.card.kind == unit.card.kind and u.readiness is Readiness.AWAKE]
        if len(same) - 1 < unit.card.awake_min:
            return f"awake_min: {unit.card.awake_min} of {unit.card.kind} stay awake"
        for pack in self._packs.values():
            queue = self._tasks.queues.get(pack.name)
            for needs, lane in queue.lanes.items() if queue else ():
                if lane.queued and needs.fits(unit.card.offer):
                    others = (u for u in self._units.values() if u is not unit and u.readiness is Readiness.AWAKE)
                    if not any(needs.fits(other.card.offer) for other in others):
                        return f"it is the only awake unit for {lane.queued} tasks of {pack.name} that need {needs}"
        return ""

    def _due(self, pack: Pack) -> bool:
        queue = self._tasks.queues.get(pack.name)
        return queue is not None and queue.runnable > 0

    def _stands_at(self, unit: Unit, to: str) -> bool:
        if to.startswith("pack:"):
            return unit.pack == to.removeprefix("pack:")
        return unit.pack is None and (to == "asleep") == (unit.readiness is Readiness.ASLEEP)

    def _leave(self, at: Instant, unit: Unit, left: str, reason: str) -> None:
        pack = self._packs.get(left)
        if pack is not None and (pack.alpha, pack.alpha_boot) == (unit.id, unit.boot):
            self._vacate(at, pack, f"{unit.id} left ({reason})")
        self._place(unit, None)
        self._journal.publish(at, UnitLeft(unit=unit.id, boot=unit.boot, pack=left, reason=reason))
        if unit.card.nature is Nature.WEREWOLF:
            unit.lent_at = 0.0
            unit.home_since_mono = at.mono
            self._journal.publish(at, UnitReturned(unit=unit.id, boot=unit.boot, pack=left))

    def _joined(self, at: Instant, unit: Unit, pack: str, reason: str) -> None:
        self._journal.publish(at, UnitJoined(unit=unit.id, boot=unit.boot, pack=pack, reason=reason))
        if unit.card.nature is Nature.WEREWOLF:
            unit.lent_at = at.wall
            self._journal.publish(at, UnitLent(unit=unit.id, boot=unit.boot, pack=pack))

    # --- losing -------------------------------------------------------------------------------------------------

    def lose(self, at: Instant, name: str, boot: int, reason: str) -> bool:
        """Its process is dead, or silent for too long: its leases and its term end now, its card sleeps."""
        unit = self._units.get(name)
        if unit is None or unit.boot != boot:
            return False
        if unit.readiness is Readiness.WAKING:
            self.birth_failed(at, name, boot, reason)
            return True
        if unit.readiness not in LIVING:
            return False
        pack = unit.pack
        self._journal.publish(at, UnitLost(unit=name, boot=boot, pack=pack, reason=reason))
        self._tasks.lose(at, unit, f"{name} vanished: {reason}")
        owner = self._packs.get(pack or "")
        if owner is not None and (owner.alpha, owner.alpha_boot) == (name, boot):
            self._vacate(at, owner, f"{name} vanished: {reason}")
        if unit.card.day_job:
            unit.wake_at = at.wall + 0.5  # its own work goes on from the last checkpoint
        self._put_to_sleep(at, unit, f"lost: {reason}", say=False)
        return True

    def end_all(self, at: Instant, reason: str) -> list[tuple[str, int]]:
        """The den ends: every unit sleeps, what it held is evicted, and nothing that its end looks like is believed."""
        self.closing = True
        ended = []
        for unit in self._units.values():
            if unit.readiness not in (*LIVING, Readiness.WAKING):
                continue
            ended.append((unit.id, unit.boot))
            for held in list(unit.held.values()):
                self._tasks.end_without_report(at, unit, held, Cause.EVICTED, reason, alone=False)
            self._put_to_sleep(at, unit, reason)
        return ended

    def heard(self, at: Instant, name: str, boot: int) -> None:
        unit = self._units.get(name)
        if unit is not None and unit.boot == boot:
            unit.heard_mono = at.mono

    def checkpoint(self, at: Instant, name: str, boot: int, state: bytes) -> bool:
        """Stores the day job's state, so that it resumes there also after a crash."""
        unit = self._current(name, boot)
        if unit is None:
            return False
        unit.heard_mono = at.mono
        unit.day_state = state
        self._journal.units[name] = unit
        return True

    def tick(self, at: Instant) -> None:
        """Judges wakes and silence, and keeps `awake_min` of each kind awake."""
        for unit in list(self._units.values()):
            if unit.readiness is Readiness.WAKING and at.mono > unit.waking_until_mono:
                self._journal.orders.append(EndUnit(unit=unit.id, boot=unit.boot, reason="never said hello"))
                self._put_to_sleep(
                    at, unit, f"not heard within {WAKE_LIMIT_S:g} s of its wake: waits for Ray resources"
                )
            elif unit.readiness in LIVING and at.mono - unit.heard_mono > self.silent_s:
                reason = f"silent for {at.mono - unit.heard_mono:.1f} s"
                self._journal.orders.append(EndUnit(unit=unit.id, boot=unit.boot, reason=reason))
                self.lose(at, unit.id, unit.boot, reason)
            elif unit.readiness is Readiness.ASLEEP and unit.wake_at and unit.wake_at <= at.wall and not self.closing:
                self.wake(at, unit, None, "its day job is due")
            elif unit.readiness is Readiness.QUARANTINED and unit.wake_at <= at.wall and not self.closing:
                self.wake(at, unit, None, f"a probe: {unit.failed_births} births failed in a row")
        if not self.closing:
            self._keep_awake(at)

    def _keep_awake(self, at: Instant) -> None:
        kinds: dict[str, list[Unit]] = {}
        for unit in self._units.values():
            if unit.card.awake_min:
                kinds.setdefault(unit.card.kind, []).append(unit)
        for kind, units in kinds.items():
            awake = sum(1 for unit in units if unit.readiness in (*LIVING, Readiness.WAKING))
            asleep = sorted(
                (u for u in units if u.readiness is Readiness.ASLEEP), key=lambda unit: natural_key(unit.id)
            )
            for unit in asleep[: max(0, units[0].card.awake_min - awake)]:
                self.wake(at, unit, None, f"awake_min of {kind} is {units[0].card.awake_min}")

    # --- small parts --------------------------------------------------------------------------------------------

    def _current(self, name: str, boot: int) -> Unit | None:
        unit = self._units.get(name)
        if unit is None or unit.boot != boot or unit.readiness not in LIVING or self.closing:
            return None
        return unit

    def _put_to_sleep(self, at: Instant, unit: Unit, reason: str, *, say: bool = True) -> None:
        unit.readiness = Readiness.ASLEEP
        unit.reason = reason
        unit.pid, unit.lent_at = 0, 0.0
        self._place(unit, None)
        self._note(unit)
        self.ordered.pop(unit.id, None)
        if say:
            self._journal.publish(at, UnitSlept(unit=unit.id, boot=unit.boot, reason=reason))

    def _place(self, unit: Unit, pack: str | None) -> None:
        if unit.pack is not None:
            self.members.get(unit.pack, {}).pop(unit.id, None)
        unit.pack = pack
        if pack is not None:
            self.members.setdefault(pack, {})[unit.id] = unit

    def _note(self, unit: Unit) -> None:
        self._journal.note_unit(unit)

    def _end(self, reason: str) -> Where:
        return Where(False, True, reason, None, 0, None, 0, (), (), (), b"", 0, 0)

    def where(
        self,
        unit: Unit,
        *,
        ok: bool,
        reason: str = "",
        acked: Iterable[int] = (),
        cancels: Iterable[tuple[int, bool, str]] = (),
    ) -> Where:
        pack = self._packs.get(unit.pack or "")
        ended = unit.readiness is Readiness.ASLEEP
        return Where(
            ok, ended, reason, unit.pack, pack.term if pack else 0, pack.alpha if pack else None,
            pack.alpha_boot if pack else 0, self.peers(unit.pack), tuple(acked), tuple(cancels), unit.day_state,
            unit.n, 0,
        )  # fmt: skip

    def peers(self, pack: str | None) -> tuple[tuple[str, int, int, bool], ...]:
        """The living members of a pack: unit, boot, lead, whether it can lead."""
        members = self.members.get(pack or "", {}).values()
        return tuple((u.id, u.boot, u.card.lead, u.card.can_lead) for u in members if u.readiness in LIVING)

    def roster_since(self, at: Instant, version: int) -> tuple[RosterEntry, ...]:
        """Every row that changed after this version; cards only where the receiver cannot have them."""
        return tuple(
            RosterEntry(
                unit.id, card_to_json(unit.card) if unit.card_version > version else "", unit.boot,
                unit.readiness.value, unit.pack, len(unit.held), self._tenure_left_s(at, unit),
                *self._lends(unit), unit.reason,
            )
            for unit in self._units.values()
            if unit.version > version
        )  # fmt: skip

    def _lends(self, unit: Unit) -> tuple[bool, int]:
        pack = self._packs.get(unit.pack or "")
        return (pack.spec.lendable, pack.spec.priority) if pack is not None else (False, 0)

    def _tenure_left_s(self, at: Instant, unit: Unit) -> float:
        if unit.card.nature is not Nature.WEREWOLF:
            return 0.0
        passed = at.wall - unit.lent_at if unit.lent_at else at.mono - unit.home_since_mono
        return max(0.0, unit.card.min_tenure_s - passed)
