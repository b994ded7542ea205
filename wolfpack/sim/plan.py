"""What one run of a simulated den is: its units and packs, what is submitted when, and what goes wrong. Plain records.

A plan is drawn from a seed, or written by hand, or read from a file; played, it does the same each time (`den_run`).
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from wolfpack.core.book.state import needs_from_json, needs_to_json
from wolfpack.errors import CallerError, unknown_name
from wolfpack.model import PROFILES, Card, Cause, Nature, Needs, Offer, PackSpec, RetryPolicy, Timing
from wolfpack.plain import card_from_json, card_to_json, pack_from_json, pack_to_json
from wolfpack.sim.faults import Fault, FaultKind, check_fault, draw_faults
from wolfpack.sim.kernel import check_seconds, seed_of, to_us

NEVER_DEAD = RetryPolicy(max_attempts=100, max_evictions=5, backoff_s=0.01, backoff_max_s=0.1)
SECONDS = (0.0, 0.0, 0.01, 0.01, 0.1, 0.1, 0.4, 1.5, 6.0)  # how long tasks take
ENDS = (*[("DONE",)] * 8, ("FAULT", "DONE"), ("CRASH", "DONE"), ("OOM", "TIMEOUT", "DONE"), ("KILL", "DONE"))
KILL = "KILL"  # as the end of an attempt: it takes the unit's process along
VERSION = 1
PATIENCE_S = 60.0  # the keeper waits no longer for a unit that is being born
LEAST_S, MOST_S = 1e-3, 1e6  # of any time or factor of a timing
HELPERS_MOST = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """One task: how long it runs, how its attempts end (the last end for ever), and what the submit says of it.

    `needs` are given as to `pack.options`, or as JSON, which they are kept as.

    Raises:
        UnknownName: an attempt cannot end so; the ends are the names of `Cause`, and KILL.
        CallerError: a time, the key or the needs make no sense.
    """

    seconds: float = 0.0
    ends: tuple[str, ...] = ("DONE",)
    key: str | None = None
    needs: str | Collection[str] | Mapping[str, Any] | None = None
    deadline_s: float | None = None
    delay_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("seconds", "delay_s", "deadline_s"):
            value = getattr(self, name)
            if name == "deadline_s" and value is None:
                continue
            if not (isinstance(value, int | float) and math.isfinite(value) and value >= 0):
                raise CallerError(f"The {name} of a task must be a number of seconds, at least 0; not {value!r}.")
        if not self.ends or type(self.ends) is not tuple:
            raise CallerError(
                f'The ends of a task must be one or more in a tuple, such as ("DONE",); not {self.ends!r}.'
            )
        for end in self.ends:
            if end not in (*Cause, KILL):
                raise unknown_name("end of an attempt", end, (*Cause, KILL))
        if self.key is not None and (type(self.key) is not str or not self.key):
            raise CallerError(f"The key of a task must be a text or None, not {self.key!r}.")
        if self.needs is not None:
            object.__setattr__(self, "needs", _needs_text(self.needs))

    def longest_s(self, attempts: int) -> float:
        """The most it runs, in as many attempts as it may have, and what it waits before the first."""
        starts = len(self.ends) if self.ends[-1] == Cause.DONE else max(attempts, len(self.ends))
        return self.delay_s + self.seconds * starts


def _needs_text(needs: Any) -> str:
    try:
        return needs_to_json(needs_from_json(needs) if isinstance(needs, str) else Needs.parse(needs))
    except (TypeError, ValueError) as exc:
        raise CallerError(f"The needs of a task must be tags, or tags and least values, not {needs!r:.80}.") from exc


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What one client submits at once."""

    at_us: int
    client: str
    pack: str
    tasks: tuple[Draft, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DenPlan:
    """One run.

    Attributes:
        seed: what delays, jitter and back-off are derived from.
        seconds: how long faults may happen; then all is made well, and the den must come to rest.
        timing: the timing profile.
        birth_s: what it takes to create a unit's process.
        gossips: whether each process runs membership beside its brain.

    Raises:
        UnknownName: a fault or a batch is about a unit or pack that does not exist.
        CallerError: a number makes no sense, or a fault would do nothing.
    """

    seed: int
    seconds: float
    cards: tuple[Card, ...]
    packs: tuple[PackSpec, ...]
    timing: Timing = PROFILES["ray"]
    birth_s: float = 0.3
    gossips: bool = True
    batches: tuple[Batch, ...] = ()
    faults: tuple[Fault, ...] = ()

    def __post_init__(self) -> None:
        check_seconds(self.seconds)
        if type(self.seed) is not int:
            raise CallerError(f"The seed of a plan must be a whole number, not {self.seed!r}.")
        if not (isinstance(self.birth_s, int | float) and 0 <= self.birth_s <= PATIENCE_S):
            raise CallerError(f"A unit is born within 0 to {PATIENCE_S:g} s, not {self.birth_s!r}.")
        check_timing(self.timing)
        units, packs = [card.unit for card in self.cards], [pack.name for pack in self.packs]
        for batch in self.batches:
            if batch.pack not in packs:
                raise unknown_name("pack", batch.pack, packs)
            if not 0 <= batch.at_us <= to_us(self.seconds):
                raise CallerError(
                    f"A batch must come within the {self.seconds:g} s of its plan, not at {batch.at_us} us."
                )
        for fault in self.faults:
            check_fault(fault, units=units, packs=packs, seconds=self.seconds)

    def to_plain(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "version": VERSION,
            "seed": self.seed,
            "seconds": self.seconds,
            "timing": asdict(self.timing),
            "birth_s": self.birth_s,
            "gossips": self.gossips,
            "cards": [card_to_json(card) for card in self.cards],
            "packs": [pack_to_json(pack) for pack in self.packs],
            "batches": [asdict(batch) for batch in self.batches],
            "faults": [fault.to_plain() for fault in self.faults],
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> DenPlan:
        """Reads what `to_plain` wrote.

        Raises:
            ValueError: it is no plan, or one of another version.
        """
        if isinstance(plain, Mapping) and plain.get("version", VERSION) != VERSION:
            raise ValueError(f"this plan has version {plain['version']}; this wolfpack reads version {VERSION}")
        try:
            return cls(
                seed=int(plain["seed"]),
                seconds=float(plain["seconds"]),
                timing=Timing(**plain["timing"]),
                birth_s=float(plain["birth_s"]),
                gossips=bool(plain["gossips"]),
                cards=tuple(card_from_json(text) for text in plain["cards"]),
                packs=tuple(pack_from_json(text) for text in plain["packs"]),
                batches=tuple(_read_batch(each) for each in plain["batches"]),
                faults=tuple(Fault.from_plain(each) for each in plain["faults"]),
            )
        except (KeyError, TypeError, AttributeError, ValueError, CallerError) as exc:
            raise ValueError(f"this is no plan of a simulated den: {type(exc).__name__}: {exc}") from exc


def _read_batch(plain: Mapping[str, Any]) -> Batch:
    tasks = tuple(Draft(**{**each, "ends": tuple(each["ends"])}) for each in plain["tasks"])
    return Batch(at_us=int(plain["at_us"]), client=str(plain["client"]), pack=str(plain["pack"]), tasks=tasks)


def check_timing(timing: Timing) -> None:
    """Raises CallerError for times that no den can live by: not numbers, too short to get on, or too long."""
    for each in fields(timing):
        value = getattr(timing, each.name)
        if each.name == "name":
            continue
        if each.name in ("helpers", "fan_out"):
            if type(value) is not int or not 0 <= value <= HELPERS_MOST:
                raise CallerError(f"{each.name} of a timing must be a number from 0 to {HELPERS_MOST}, not {value!r}.")
        elif not isinstance(value, int | float) or not LEAST_S <= value <= MOST_S:
            raise CallerError(f"{each.name} of a timing must be {LEAST_S:g} to {MOST_S:g}, not {value!r}.")


# --- drawing ------------------------------------------------------------------------------------------------------


def draw_plan(
    seed: int,
    *,
    units: int | None = None,
    seconds: float = 120.0,
    menu: str = "all",
    profile: str | Timing = "ray",
    crash: float = 0.0,
    loss: float = 0.0,
    every_s: float = 4.0,
    busy: float = 1.0,
) -> DenPlan:
    """A plan from a seed: a den of some shape, work now and then, faults from a menu.

    Args:
        seed: the same seed and arguments give the same plan.
        units: how many; None: two to six, as the seed will have it.
        seconds: how long faults may happen.
        menu: a name of `faults.MENUS`.
        profile: the name of a timing profile, or one of your own.
        crash: this part of the units crashes, all at a third of the time.
        loss: this part of one-way messages is lost, all the time.
        every_s: mean time between faults of the menu.
        busy: how much work, against the usual.

    Raises:
        UnknownName: there is no such menu or profile.
        CallerError: a number makes no sense.
    """
    if isinstance(profile, str) and profile not in PROFILES:
        raise unknown_name("profile", profile, PROFILES)
    check_seconds(seconds)
    if not ((units is None or units >= 1) and 0 <= crash <= 1 and 0 <= loss < 1 and every_s > 0):
        raise CallerError(
            f"A den needs units >= 1, crash from 0 to 1, loss below 1, every_s > 0; not "
            f"{units}, {crash}, {loss}, {every_s}."
        )
    timing = PROFILES[profile] if isinstance(profile, str) else profile
    shape = random.Random(seed_of(seed, "shape"))
    cards = _draw_cards(shape, units)
    names = [card.unit for card in cards]
    packs = _draw_packs(shape, cards)
    birth_s = shape.choice([0.02, 0.3])
    pack_names = [pack.name for pack in packs]
    faults = list(
        draw_faults(
            random.Random(seed_of(seed, "faults")), menu, units=names, packs=pack_names, seconds=seconds,
            every_s=every_s,
        )
    )  # fmt: skip
    if loss:
        faults.append(Fault(at_us=0, kind=FaultKind.LOSS, for_us=to_us(seconds), amount=loss))
    if crash:
        gone = random.Random(seed_of(seed, "crash")).sample(names, round(crash * len(names)))
        if gone:
            faults.append(Fault(at_us=to_us(seconds / 3), kind=FaultKind.CRASH, targets=tuple(gone)))
    return DenPlan(
        seed=seed, seconds=seconds, cards=cards, packs=packs, timing=timing, birth_s=birth_s,
        batches=_draw_batches(random.Random(seed_of(seed, "work")), pack_names, seconds, busy),
        faults=tuple(sorted(faults, key=lambda fault: fault.at_us)),
    )  # fmt: skip


def _draw_cards(rng: random.Random, units: int | None) -> tuple[Card, ...]:
    count = units if units is not None else rng.randint(2, 6)
    borrowed = min(count - 1, rng.randint(1, 2)) if rng.random() < 0.5 else 0
    awake_min, sleep_after_s = rng.choice([0, 0, 1, 2]), rng.choice([1.0, 10.0])
    wolves = [
        Card(
            unit=f"grey-{no}", kind="grey", offer=Offer(frozenset({"cpu"})), awake_min=awake_min,
            sleep_after_s=sleep_after_s,
        )
        for no in range(count - borrowed)
    ]  # fmt: skip
    offer, max_loan_s = Offer(frozenset({"cpu", "browser"})), rng.choice([None, 5.0])
    return (
        *wolves,
        *(
            Card(
                unit=f"silver-{no}", kind="silver", nature=Nature.WEREWOLF, day_job="m:J", offer=offer,
                min_tenure_s=1.0, max_loan_s=max_loan_s, grace_s=0.5,
            )
            for no in range(borrowed)
        ),
    )  # fmt: skip


def _draw_packs(rng: random.Random, cards: Sequence[Card]) -> tuple[PackSpec, ...]:
    # One wolf is nobody's for ever: a task that was pushed back too often waits for one that is not lent.
    spare = sum(card.nature is Nature.WOLF for card in cards) - 1
    first = PackSpec(
        name="a", most=len(cards), fewest=min(spare, rng.choice([0, 1, 3])), retry=NEVER_DEAD,
        lendable=rng.random() < 0.5,
    )  # fmt: skip
    if rng.random() < 0.5:
        return (first, PackSpec(name="b", most=2, priority=1, retry=NEVER_DEAD, drain_target_s=0.5))
    return (first,)


def _draw_batches(rng: random.Random, packs: Sequence[str], seconds: float, busy: float) -> tuple[Batch, ...]:
    """A batch at once for each pack, then one in ten seconds or so."""
    if busy <= 0:
        return ()
    batches = [_draw_batch(rng, 0.0, pack, busy) for pack in packs]
    at_s = rng.expovariate(busy / 10.0)
    while at_s < seconds:
        batches.append(_draw_batch(rng, at_s, rng.choice(packs), busy))
        at_s += rng.expovariate(busy / 10.0)
    return tuple(batches)


def _draw_batch(rng: random.Random, at_s: float, pack: str, busy: float) -> Batch:
    tasks = tuple(_draw_task(rng) for _ in range(rng.randint(1, max(1, round(20 * min(busy, 10.0))))))
    return Batch(at_us=to_us(at_s), client=rng.choice(["c", "d"]), pack=pack, tasks=tasks)


def _draw_task(rng: random.Random) -> Draft:
    if rng.random() < 0.1:
        return Draft(seconds=0.1, key=f"key {rng.randint(0, 5)}")
    draft = Draft(seconds=rng.choice(SECONDS), ends=rng.choice(ENDS))
    if rng.random() < 0.1:
        draft = replace(draft, deadline_s=round(rng.uniform(0.1, 5.0), 3))
    if rng.random() < 0.1:
        draft = replace(draft, delay_s=round(rng.uniform(0.0, 3.0), 3))
    if rng.random() < 0.1:
        draft = replace(draft, needs='{"cpu": true}')
    return draft
