"""What a herd is watched for: the truth beside every view, and what must hold.

The watch knows who lives. From each change of a status it takes who learned of which death when, and which accusations
were wrong. In small herds it checks every change against I9 and I10; in big ones a seeded share, since ten thousand
units change their minds millions of times. At the end, when faults have stopped, it asks for L1 to L5.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING

from wolfpack.core.membership_words import Stalled, Status, StatusChanged
from wolfpack.model import Role
from wolfpack.sim.herd_keeper import PACK
from wolfpack.sim.kernel import US

if TYPE_CHECKING:
    from wolfpack.sim.herd_unit import HerdUnit
    from wolfpack.sim.herd_world import Herd

CHECK_ALL = 200  # units: in herds up to this size every change is checked, in bigger ones one in CHECK_EACH
CHECK_EACH = 64
STORY_MOST = 40  # violations that are told in words; all are counted
BIN_US = 10_000  # of the histogram of delays


@dataclass(slots=True)
class Death:
    """One boot that died, and how the news of it spread."""

    unit: str
    boot: int
    at_us: int
    left: bool  # it said goodbye
    first_us: int | None = None  # somebody held it DEAD (or LEFT)
    all_us: int | None = None  # every survivor did
    known: bytearray = field(default_factory=bytearray)  # by number of the unit
    count: int = 0


def share_at(values: list[float], share: float) -> float | None:
    """The value that so big a share of all is not above (nearest rank); None: there are none."""
    if not values:
        return None
    ranked = sorted(values)
    return ranked[max(0, ceil(share * len(ranked)) - 1)]


class Watch:
    """The truth, and the figures.

    Attributes:
        false_positives: times that a unit came to hold a living one DEAD.
        healthy_false_positives: of these, where neither of the two was ever touched by a fault.
        accusations: by how many a living unit was called DEAD on its own account, not by hearsay.
        violations: what must never happen, counted by id.
        story: the first violations in words.
    """

    def __init__(self, herd: Herd) -> None:
        self._herd = herd
        self.deaths: dict[tuple[str, int], Death] = {}
        self.open: dict[tuple[str, int], Death] = {}  # not known to all survivors yet
        self.false_positives = 0
        self.subject_healthy = 0
        self.healthy_false_positives = 0
        self.stalled = 0
        self.violations: Counter[str] = Counter()
        self.story: list[str] = []
        self.since_first = Counter[int]()  # delay from a first DEAD to each survivor's, in bins of BIN_US
        self._accusers: dict[tuple[str, int], set[int]] = {}  # living boot -> who holds it DEAD
        self._standing: dict[tuple[int, str], tuple[int, int, int]] = {}
        self._looked = 0
        self._check_each = 1 if herd.size <= CHECK_ALL else CHECK_EACH

    def fault(self, number: str, text: str) -> None:
        self.violations[number] += 1
        self._herd.kernel.mix(f"violation {number} {text}")
        if len(self.story) < STORY_MOST:
            self.story.append(f"{self._herd.kernel.now:.3f} s: {number}: {text}")

    # --- lives and deaths -----------------------------------------------------------------------------------------

    def died(self, unit: HerdUnit, *, left: bool = False) -> None:
        """Called after it died: survivors are counted without it."""
        key, now_us = (unit.name, unit.boot), self._herd.kernel.now_us
        death = Death(unit.name, unit.boot, now_us, left, known=bytearray(self._herd.size))
        self.deaths[key] = self.open[key] = death
        for number in self._accusers.pop(key, ()):  # they were wrong until now
            death.known[number] = 1
            death.count += 1
            death.first_us = now_us
        for death in list(self.open.values()):
            if death.known[unit.no]:
                death.count -= 1
                death.known[unit.no] = 0
            self._maybe_all(death)

    def born(self, unit: HerdUnit) -> None:
        """A new unit has to learn of nobody who died before: it only ever knew the living."""
        for key in [key for key, death in self.open.items() if death.unit == unit.name]:
            del self.open[key]  # its next boot is the better news
        for death in self.open.values():
            if not death.known[unit.no]:
                death.known[unit.no] = 1
                death.count += 1

    def on_status(self, observer: HerdUnit, order: StatusChanged) -> None:
        herd = self._herd
        status = order.status
        if status >= Status.LEFT:
            death = self.deaths.get((order.unit, order.boot))
            if death is not None:
                self._learned(observer, death)
            elif status is Status.DEAD:
                self._wrong(observer, order)
        elif status is Status.ALIVE:
            self._took_back(observer, (order.unit, order.boot))
        self._looked += 1
        if self._looked % self._check_each == 0:
            self._check(observer, order)
        if herd.tells_all:
            herd.kernel.mix(f"{observer.name} holds {order.unit} {order.boot} {int(status)}")

    def _took_back(self, observer: HerdUnit, key: tuple[str, int]) -> None:
        accusers = self._accusers.get(key)
        if accusers:
            accusers.discard(observer.no)
        death = self.open.get(key)
        if death is not None and death.known[observer.no]:
            death.known[observer.no] = 0
            death.count -= 1

    def _learned(self, observer: HerdUnit, death: Death) -> None:
        now_us = self._herd.kernel.now_us
        if death.first_us is None:
            death.first_us = now_us
        if (death.unit, death.boot) not in self.open:
            return  # old news, to one that was born since
        if not death.known[observer.no]:
            death.known[observer.no] = 1
            death.count += 1
            self.since_first[(now_us - death.first_us) // BIN_US] += 1
            self._maybe_all(death)

    def _maybe_all(self, death: Death) -> None:
        if death.all_us is None and death.first_us is not None and death.count >= self._herd.living:
            death.all_us = self._herd.kernel.now_us
            self.open.pop((death.unit, death.boot), None)

    def _wrong(self, observer: HerdUnit, order: StatusChanged) -> None:
        subject = self._herd.units.get(order.unit)
        if subject is None or not subject.alive or subject.boot != order.boot or not observer.alive:
            return
        self.false_positives += 1
        self._accusers.setdefault((order.unit, order.boot), set()).add(observer.no)
        if subject.healthy:
            self.subject_healthy += 1
            if observer.healthy:
                self.healthy_false_positives += 1

    def on_stalled(self, order: Stalled) -> None:
        if order.stalled:
            self.stalled += 1

    # --- invariants -----------------------------------------------------------------------------------------------

    def _check(self, observer: HerdUnit, order: StatusChanged) -> None:
        member = observer.machine.view.get(order.unit)
        if member is None:
            return
        subject = self._herd.units.get(order.unit)
        if subject is not None and member.boot == subject.boot and member.counter > subject.machine.counter:
            text = f"{observer.name} holds {order.unit} at counter {member.counter}, it is at {subject.machine.counter}"
            self.fault("I9", text)
        if subject is not None and member.boot > subject.boot:
            self.fault("I9", f"{observer.name} holds boot {member.boot} of {order.unit}, which lives as {subject.boot}")
        if self._check_each == 1:
            key = observer.no, order.unit
            standing, before = member.standing, self._standing.get(key)
            if before is not None and standing < before:
                self.fault("I10", f"{observer.name} went back from {before} to {standing} about {order.unit}")
            self._standing[key] = standing

    def reborn(self, unit: HerdUnit) -> None:
        """A new process remembers nothing: its view may stand lower than the one before it."""
        for key in [key for key in self._standing if key[0] == unit.no]:
            del self._standing[key]
        for accusers in self._accusers.values():
            accusers.discard(unit.no)

    def at_the_end(self) -> None:
        """Asks for what must hold once faults have stopped for as long as the bounds say (`Herd.come_to_rest`)."""
        herd = self._herd
        units = [unit for unit in herd.units.values() if unit.alive]
        for death in self.open.values():
            self.fault("L2", f"{herd.living - death.count} do not know of the end of {death.unit} in time")
        self._ask_views(units)
        if herd.office is not None:
            self._ask_alpha(units)
            for text in herd.office.faults:
                number, _, what = text.partition(": ")
                self.fault(number, what)
            herd.office.faults.clear()

    def ask_for_peace(self) -> None:
        """L5: higher ranks that come and go are no reason for another alpha."""
        office, plan = self._herd.office, self._herd.plan
        if office is None or plan.crash or plan.loss or not set(plan.faults) <= {"churn"}:
            return
        changes = len(office.keeper.grants) - 1
        if changes > 0:
            self.fault("L5", f"{changes} changes of alpha without a fault")

    def _ask_views(self, units: list[HerdUnit]) -> None:
        """L3 and L4."""
        digests = Counter(unit.machine.view.digest for unit in units)
        if len(digests) <= 1:
            return
        truth = digests.most_common(1)[0][0]
        self.fault("L4", f"{len(units) - digests[truth]} of {len(units)} views differ from the others'")
        for observer in units:
            if observer.machine.view.digest == truth:
                continue
            for subject in units:
                member = observer.machine.view.get(subject.name)
                if member is not None and not member.lives and member.boot == subject.boot:
                    self.fault("L3", f"{observer.name} still holds {subject.name} {member.status.name}")

    def _ask_alpha(self, units: list[HerdUnit]) -> None:
        """L1."""
        alphas = [unit for unit in units if unit.lead is not None and unit.lead.machine.role is Role.ALPHA]
        if len(alphas) != 1:
            self.fault("L1", f"{len(alphas)} alphas of {PACK}: {', '.join(unit.name for unit in alphas) or 'none'}")
            return
        alpha = alphas[0]
        lost = [unit.name for unit in units if unit.lead is not None and unit.lead.machine.alpha != alpha.name]
        if lost:
            self.fault("L1", f"{len(lost)} do not follow {alpha.name}: {', '.join(lost[:5])}")

    # --- figures --------------------------------------------------------------------------------------------------

    def firsts_s(self) -> list[float]:
        """From each crash to the first unit that held it DEAD."""
        return [(d.first_us - d.at_us) / US for d in self.deaths.values() if d.first_us is not None and not d.left]

    def alls_s(self) -> list[float]:
        """From each crash until every survivor held it DEAD."""
        return [(d.all_us - d.at_us) / US for d in self.deaths.values() if d.all_us is not None and not d.left]

    def since_first_s(self, share: float) -> float | None:
        """How long after the first DEAD about a unit this share of all survivors had it too."""
        total = sum(self.since_first.values())
        if not total:
            return None
        seen = 0
        for at in sorted(self.since_first):
            seen += self.since_first[at]
            if seen >= share * total:
                return at * BIN_US / US
        return None
