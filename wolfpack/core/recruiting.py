"""Who is called, who is woken, who leaves and who may sleep: plans as pure functions, each line with its reason.

The ladder, cheapest first: awake wolves that are free; sleeping wolves; awake werewolves, among them members that a
pack of lower priority lends; sleeping werewolves. Within a rung the narrowest unit that fits comes first, then the
cheapest, then the lowest id, so that a rare capability is not spent on common work. `core/seating.py` keeps that
promise across sub-packs: as many of them as possible get what they ask for, by the lowest rungs that allow it.

A plan asks for all that is missing at once and for no more. Units on their way count; a wake that is no longer wanted
is called off. Nothing here remembers how often a unit was recalled or lost: a source that is taken away a thousand
times is as good as before whenever it is there (quarantine, which is about failing, stands in the unit's readiness).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from wolfpack.core.seating import Seating, breadth, largest_measures
from wolfpack.model import Card, Nature, Needs, Offer, Rank, Readiness, natural_key


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A unit as a recruiter sees it. Those that cannot come now are listed too: a plan explains itself with them."""

    unit: str
    offer: Offer
    nature: Nature = Nature.WOLF
    readiness: Readiness = Readiness.AWAKE
    boot: int = 0
    cost_per_h: float = 0.0
    # The pack it is a member of, or waking for; None: free, or at its day job.
    place: str | None = None
    # It is a member of a pack of lower priority that lends its members.
    lendable: bool = False
    # Not to be lent (again) for so many seconds: `min_tenure_s` of where it is.
    tenure_left_s: float = 0.0
    # What its row says about it, such as "waits for Ray resources".
    reason: str = ""


class StepKind(StrEnum):
    SUMMON = "summon"  # ask an awake unit to join
    WAKE = "wake"  # create the unit from its card, for this pack
    CALL_OFF = "call_off"  # the wake is no longer wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A summons or a wake of this pack that is under way."""

    unit: str
    offer: Offer
    kind: StepKind = StepKind.WAKE
    boot: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    kind: StepKind
    unit: str
    # The boot that the order is about; a wake gets the next one.
    boot: int
    needs: Needs | None  # the sub-pack it is meant for; None: called off
    rung: int  # 1 to 4; 0: called off
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    steps: tuple[Step, ...]
    # One sentence a sub-pack, also where there is nothing to do or nobody to be found.
    reasons: tuple[str, ...]
    # What could not be found, by sub-pack.
    unmet: Mapping[Needs, int]


RUNGS: Mapping[int, str] = {1: "awake wolf", 2: "sleeping wolf", 3: "awake werewolf", 4: "sleeping werewolf"}


def find_rung(candidate: Candidate) -> int | None:
    """The rung of the ladder on which a unit stands, or None while it cannot come."""
    lent = candidate.place is not None
    if lent and not (candidate.lendable and candidate.readiness is Readiness.AWAKE):
        return None
    borrowed = lent or candidate.nature is Nature.WEREWOLF
    if borrowed and candidate.tenure_left_s > 0:
        return None
    if candidate.readiness is Readiness.AWAKE:
        return 3 if borrowed else 1
    if candidate.readiness is Readiness.ASLEEP:
        return 4 if borrowed else 2
    return None


def plan(
    *,
    wants: Mapping[Needs, int],
    candidates: Sequence[Candidate],
    pending: Sequence[Pending] = (),
    members: int = 0,
) -> Plan:
    """The orders that bring all missing units in one step.

    Args:
        wants: how many more members each sub-pack needs (`find_missing` of `core/seating.py`); those on their way are
            not yet taken off.
        candidates: all units of the den that are not members of this pack, also those that cannot come.
        members: how many members the pack has, for the reasons.
    """
    wants = {needs: count for needs, count in wants.items() if count > 0}
    coming = {order.unit for order in pending}
    ladder = [(rung, c) for c in candidates if c.unit not in coming and (rung := find_rung(c)) is not None]
    offers = [*(order.offer for order in pending), *(c.offer for _, c in ladder)]
    seating, largest = Seating(wants, offers), largest_measures(offers)
    steps: list[Step] = []
    # A summons is nearer than a wake; what is wanted least is called off.
    for order in sorted(
        pending, key=lambda o: (o.kind is StepKind.WAKE, breadth(o.offer, largest), natural_key(o.unit))
    ):
        if not seating.sit(order.unit, order.offer) and order.kind is StepKind.WAKE:
            reason = f"The wake of {order.unit} is called off: no task waits for it any more."
            steps.append(
                Step(kind=StepKind.CALL_OFF, unit=order.unit, boot=order.boot, needs=None, rung=0, reason=reason)
            )

    def preference(place: tuple[int, Candidate]) -> tuple[object, ...]:
        rung, c = place
        return rung, breadth(c.offer, largest), seating.fits(c.offer), c.cost_per_h, natural_key(c.unit)

    taken: list[tuple[int, Candidate]] = []
    for rung, candidate in sorted(ladder, key=preference):
        if seating.full:
            break
        if seating.sit(candidate.unit, candidate.offer):
            taken.append((rung, candidate))
    seats = seating.seats()
    for rung, c in taken:
        needs = seats[c.unit]
        kind = StepKind.SUMMON if rung in (1, 3) else StepKind.WAKE
        source = f"member that pack {c.place} lends" if c.place is not None else RUNGS[rung]
        reason = f"{wants[needs]} more wanted for {needs}: {c.unit} is the next {source}."
        steps.append(Step(kind=kind, unit=c.unit, boot=c.boot, needs=needs, rung=rung, reason=reason))
    unmet = seating.missing()
    coming |= {c.unit for _, c in taken}
    offered = {**{order.unit: order.offer for order in pending}, **{c.unit: c.offer for c in candidates}}
    reasons = []
    for needs, count in wants.items():
        told = f"{count} more wanted for {needs}: {_found(needs, seats, taken)}."
        if needs in unmet:
            why = _explain(needs, offered, candidates, None, coming)
            told += f" {unmet[needs]} of {count} could not be found: {why}"
        reasons.append(told)
    if not wants:
        reasons.append(f"Nothing missing: {members} of {members} members are there.")
    return Plan(steps=tuple(steps), reasons=tuple(reasons), unmet=unmet)


def _found(needs: Needs, seats: Mapping[str, Needs], taken: Sequence[tuple[int, Candidate]]) -> str:
    rungs = Counter(rung for rung, c in taken if seats[c.unit] == needs)
    on_the_way = sum(seat == needs for seat in seats.values()) - rungs.total()
    parts = [f"{on_the_way} on the way"] if on_the_way else []
    for rung, name in RUNGS.items():
        if rungs[rung]:
            names = name if rungs[rung] == 1 else name.replace("wolf", "wolves")
            parts.append(f"{rungs[rung]} {names} {'called' if rung in (1, 3) else 'woken'}")
    return ", ".join(parts) or "nobody can come"


# --- why a need is not served -------------------------------------------------------------------------------------


def explain_unmet(needs: Needs, cards: Iterable[Card], roster: Sequence[Candidate], pack: str | None = None) -> str:
    """One sentence with numbers: why these needs cannot be served now.

    Args:
        cards: all cards of the den.
        roster: all its units, members of every pack among them.
        pack: the pack that asks; its own members are told apart from those of others.
    """
    return _explain(needs, {card.unit: card.offer for card in cards}, roster, pack)


def _explain(
    needs: Needs,
    offers: Mapping[str, Offer],
    roster: Sequence[Candidate],
    pack: str | None,
    coming: Collection[str] = (),
) -> str:
    if not offers:
        return f"there is no card at all, so nobody offers {needs}."
    fitting = sorted((unit for unit, offer in offers.items() if needs.fits(offer)), key=natural_key)
    if not fitting:
        nearest = min(offers, key=lambda unit: (len(needs.missing_from(offers[unit])), natural_key(unit)))
        lacking = ", ".join(needs.missing_from(offers[nearest]))
        return f"none of {len(offers)} cards offers {needs}; the nearest, {nearest}, lacks {lacking}."
    units = {candidate.unit: candidate for candidate in roster}
    states = Counter("on the way" if unit in coming else _state(units.get(unit), pack) for unit in fitting)
    told = ", ".join(f"{count} {state}" for state, count in states.items())
    return f"{needs} is offered by {len(fitting)} of {len(offers)} cards ({_names(fitting)}): {told}."


def _state(candidate: Candidate | None, pack: str | None) -> str:
    if candidate is None:
        return "without a unit"
    why = f" ({candidate.reason})" if candidate.reason else ""
    if candidate.readiness is not Readiness.AWAKE:
        place = f" for pack {candidate.place}" if candidate.place is not None else ""
        return f"{candidate.readiness}{place}{why}"
    if candidate.place is not None:
        return "already in this pack" if candidate.place == pack else f"in pack {candidate.place}{why}"
    if candidate.nature is Nature.WEREWOLF:
        if candidate.tenure_left_s > 0:
            return f"at its day job, to be lent in {candidate.tenure_left_s:.0f} s"
        return "at its day job"
    return f"awake and free{why}"


def _names(units: Sequence[str]) -> str:
    more = f" and {len(units) - 3} more" if len(units) > 3 else ""
    return ", ".join(units[:3]) + more


# --- who sleeps, who leaves ---------------------------------------------------------------------------------------


class Pick(NamedTuple):
    unit: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """Who goes, in this order, and who stays although it was looked at; each with its reason."""

    go: tuple[Pick, ...]
    stay: tuple[Pick, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rester:
    """A free, awake wolf."""

    unit: str
    kind: str
    offer: Offer
    free_s: float
    sleep_after_s: float
    cost_per_h: float = 0.0
    # Reports that the keeper has not confirmed.
    unacked: int = 0


def who_sleeps(
    *,
    resting: Sequence[Rester],
    awake: Mapping[str, int],
    awake_min: Mapping[str, int],
    due: Mapping[Needs, int],
) -> Parting:
    """Which free wolves may go to sleep: the dearest first, then the widest, then the one that is free longest.

    Args:
        awake: units awake of each kind, wherever they are.
        awake_min: of each kind, never fewer awake.
        due: units that due work still misses, of all packs; who can serve it stays awake.
    """
    largest = largest_measures(r.offer for r in resting)
    order = sorted(
        resting,
        key=lambda r: (-r.cost_per_h, *_negated(breadth(r.offer, largest)), -r.free_s, natural_key(r.unit)),
    )
    held = {r.unit: reason for r in order if (reason := _find_wakeful_reason(r)) is not None}
    needed = _needed(due, [(r.unit, r.offer) for r in order if r.unit not in held], held, resting)
    spare = {kind: count - awake_min.get(kind, 0) for kind, count in awake.items()}
    go: list[Pick] = []
    stay: list[Pick] = []
    for r in order:
        if r.unit in held:
            stay.append(Pick(r.unit, held[r.unit]))
        elif r.unit in needed:
            stay.append(Pick(r.unit, f"Work for {needed[r.unit]} is due and {r.unit} can serve it."))
        elif spare.get(r.kind, 0) <= 0:
            stay.append(Pick(r.unit, f"awake_min keeps {awake_min.get(r.kind, 0)} of kind {r.kind} awake."))
        else:
            spare[r.kind] -= 1
            go.append(Pick(r.unit, f"Free for {r.free_s:.1f} s, longer than sleep_after_s of {r.sleep_after_s:g} s."))
    return Parting(go=tuple(go), stay=tuple(stay))


def _find_wakeful_reason(r: Rester) -> str | None:
    if r.unacked > 0:
        return f"{r.unacked} of its reports are not yet confirmed."
    if r.free_s < r.sleep_after_s:
        return f"Free for {r.free_s:.1f} s only, sleep_after_s is {r.sleep_after_s:g} s."
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A member of the pack that plans."""

    unit: str
    offer: Offer
    rank: Rank
    nature: Nature = Nature.WOLF
    cost_per_h: float = 0.0
    leases: int = 0
    alpha: bool = False
    # A werewolf is not sent home sooner.
    tenure_left_s: float = 0.0


def who_leaves(*, members: Sequence[Member], surplus: int, due: Mapping[Needs, int]) -> Parting:
    """Which members leave a pack that has `surplus` too many.

    Werewolves first, once their tenure is over; then the dearest, the widest, the least busy, the lowest rank. The
    alpha only when all others are gone, and never one without whom a sub-pack had fewer members than it can use.

    Args:
        due: members that each sub-pack should keep (`Size.by_needs` of `core/scaling.py`).
    """
    if surplus <= 0:
        return Parting(go=(), stay=())
    largest = largest_measures(m.offer for m in members)
    order = sorted(
        members,
        key=lambda m: (
            m.alpha, m.nature is not Nature.WEREWOLF, -m.cost_per_h, *_negated(breadth(m.offer, largest)), m.leases,
            m.rank,
        ),
    )  # fmt: skip
    held = {
        m.unit: f"Lent for too short a time: {m.tenure_left_s:.1f} s of its tenure are left."
        for m in order
        if m.nature is Nature.WEREWOLF and m.tenure_left_s > 0
    }
    needed = _needed(due, [(m.unit, m.offer) for m in order if m.unit not in held], held, members)
    go: list[Pick] = []
    stay: list[Pick] = []
    for m in order:
        if len(go) == surplus:
            break
        if m.unit in held:
            stay.append(Pick(m.unit, held[m.unit]))
        elif m.unit in needed:
            stay.append(Pick(m.unit, f"Work for {needed[m.unit]} is due and needs {m.unit}."))
        elif m.alpha and len(go) + 1 < len(members):
            stay.append(Pick(m.unit, "It is the alpha, and others stay."))
        else:
            load = f"{m.leases} leases" if m.leases else "nothing"
            go.append(Pick(m.unit, f"The pack has {surplus} too many; {m.unit} is next to leave and holds {load}."))
    return Parting(go=tuple(go), stay=tuple(stay))


def _needed(
    due: Mapping[Needs, int],
    leaving: Sequence[tuple[str, Offer]],
    held: Iterable[str],
    everybody: Iterable[Rester | Member],
) -> dict[str, Needs]:
    """Who of `leaving`, given in the order of leaving, must stay to serve what is due; those held stay anyway."""
    offers = {one.unit: one.offer for one in everybody}
    seating = Seating(due, offers.values())
    for unit in held:
        seating.sit(unit, offers[unit])
    for unit, offer in reversed(leaving):
        seating.sit(unit, offer)
    return seating.seats()


def _negated(pair: tuple[int, float]) -> tuple[int, float]:
    return -pair[0], -pair[1]
