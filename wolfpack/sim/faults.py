"""What can go wrong in a simulated den, as a schedule: plain records, drawn from a seed, saved, shrunk, replayed.

A `Fault` says when, what, to whom, for how long and how much; `FaultKind` says what each kind does. A menu is a set of
kinds with weights; `draw_faults` draws a schedule from one. What the records do to a world stands in `den_trouble`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, NamedTuple, assert_never

from wolfpack.errors import CallerError, unknown_name
from wolfpack.sim.kernel import US, to_us

KEEPER = "keeper"  # the keeper's end of the network
ALPHA = "the alpha"  # as a target: whoever leads then


class FaultKind(StrEnum):
    # The network, for `for_us`: `amount` is a part of all messages, or seconds.
    LOSS = "loss"  # one-way messages are lost; connections retransmit
    DOUBLING = "doubling"  # one-way messages arrive twice
    LATENESS = "lateness"  # messages are overtaken
    DELAY = "delay"  # an exponential delay with this mean on top
    UNREACHABLE = "unreachable"  # calls fail at the caller, taken by the other side or not
    CLOG = "clog"  # nothing passes from target to other, or out of target, until the end; then all of it
    SPLIT = "split"  # targets and others do not hear each other
    ONE_WAY = "one way"  # the others do not hear the targets
    ISOLATE = "isolate"  # nobody hears the target, and it hears nobody
    BRIDGE = "bridge"  # targets and others do not hear each other; the rest hears both
    # Units.
    CRASH = "crash"  # the process dies, its memory is lost; Ray tells the others
    SILENT_CRASH = "silent crash"  # as with its node: nobody is told
    PAUSE = "pause"  # stopped; what arrives waits and is handled in order. amount 1: its hands too
    DEAF_PAUSE = "deaf pause"  # stopped and cut off: its memory is kept, its connections break
    SLOW = "slow"  # each message takes `amount` times as long
    CLOCK_RATE = "clock rate"  # its clock runs `amount` times as fast
    CLOCK_JUMP = "clock jump"  # its clock jumps by `amount` seconds
    FALSE_DEATH = "false death"  # the keeper is told that it died, and it lives: soon two boots of it do
    OLD_BOOT = "old boot"  # it dies, and what it sent arrives late, from a boot that is no more
    # The keeper.
    KEEPER_CRASH = "keeper crash"  # down for `for_us`
    KEEPER_PAUSE = "keeper pause"
    KEEPER_SLOW = "keeper slow"  # commits take `amount` times as long
    KEEPER_JUMP = "keeper jump"  # its wall clock jumps by `amount` seconds
    REPLY_LOST = "reply lost"  # it dies between one of its next commits and the replies
    COMMIT_FAILS = "commit fails"  # the disk is full: it ends and starts again
    TWO_KEEPERS = "two keepers"  # a second one is born; the targets call the old one on
    # Persons.
    WAKE = "wake"
    SLEEP = "sleep"
    RELEASE = "release"
    RECALL = "recall"
    SCALE = "scale"  # the target is a pack, `amount` its most members
    CANCEL = "cancel"  # a task: `amount` of the way through those that are open


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong, at `at_us` after the start of the run.

    Raises:
        UnknownName: there is no such kind.
    """

    at_us: int
    kind: FaultKind
    targets: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    for_us: int = 0
    amount: float = 0.0

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "kind", FaultKind(self.kind))
        except ValueError:
            raise unknown_name("fault", self.kind, list(FaultKind)) from None

    def __str__(self) -> str:
        parts = [f"{self.at_us / US:.3f} s: {self.kind}", ", ".join(self.targets)]
        if self.others:
            parts.append(f"from {', '.join(self.others)}")
        if self.for_us:
            parts.append(f"for {self.for_us / US:.3g} s")
        if self.amount:
            parts.append(f"({self.amount:.3g})")
        return " ".join(part for part in parts if part)

    def to_plain(self) -> dict[str, Any]:
        """For JSON; what is not said is left out."""
        return {name: value for name, value in asdict(self).items() if value or name == "at_us"}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Fault:
        """Reads what `to_plain` wrote.

        Raises:
            ValueError, TypeError, KeyError: it is no fault.
        """
        fields = {**plain, "kind": FaultKind(plain["kind"])}
        for name in ("targets", "others"):
            fields[name] = tuple(map(str, fields.get(name, ())))
        return cls(**fields)


K = FaultKind
_NETWORK = {
    K.LOSS: 2, K.DOUBLING: 2, K.LATENESS: 2, K.DELAY: 1, K.UNREACHABLE: 2, K.CLOG: 2, K.SPLIT: 1, K.ONE_WAY: 1,
    K.ISOLATE: 2, K.BRIDGE: 1,
}  # fmt: skip
_CRASHES = {K.CRASH: 6, K.SILENT_CRASH: 2, K.KEEPER_CRASH: 1}
_PAUSES = {K.PAUSE: 4, K.DEAF_PAUSE: 2, K.SLOW: 2, K.KEEPER_PAUSE: 1}
_CLOCKS = {K.CLOCK_RATE: 2, K.CLOCK_JUMP: 2, K.KEEPER_JUMP: 1}
_KEEPER = {
    K.KEEPER_CRASH: 2, K.KEEPER_PAUSE: 2, K.KEEPER_SLOW: 1, K.REPLY_LOST: 3, K.COMMIT_FAILS: 1, K.TWO_KEEPERS: 2,
}  # fmt: skip
_BOOTS = {K.FALSE_DEATH: 3, K.OLD_BOOT: 3}
_PERSONS = {K.WAKE: 1, K.SLEEP: 2, K.RELEASE: 1, K.RECALL: 2, K.SCALE: 2, K.CANCEL: 2}

# name -> how often each kind comes, against the others
MENUS: Mapping[str, Mapping[FaultKind, int]] = {
    "calm": {},
    "network": _NETWORK,
    "crashes": _CRASHES,
    "pauses": _PAUSES,
    "clocks": _CLOCKS,
    "keeper": _KEEPER,
    "boots": _BOOTS,
    "persons": _PERSONS,
    "all": {**_NETWORK, **_CRASHES, **_PAUSES, **_CLOCKS, **_KEEPER, **_BOOTS, **_PERSONS},
}

ALPHAS = 0.3  # part of the faults of units that hit an alpha
PAUSES_S = (0.128, 0.512, 2.048, 8.192, 16.384, 32.0)  # Lifeguard's lengths, and one longer than any patience here


def draw_faults(
    rng: random.Random, menu: str, *, units: Sequence[str], packs: Sequence[str], seconds: float, every_s: float = 4.0
) -> tuple[Fault, ...]:
    """A schedule of faults from this menu, one in `every_s` at the mean; all end before `seconds`.

    Raises:
        UnknownName: there is no such menu.
    """
    if menu not in MENUS:
        raise unknown_name("menu", menu, MENUS)
    kinds, weights = list(MENUS[menu]), list(MENUS[menu].values())
    faults: list[Fault] = []
    at_s = rng.expovariate(1.0 / every_s) if kinds else seconds
    while at_s < seconds:
        (kind,) = rng.choices(kinds, weights)
        faults.append(_draw(rng, kind, at_s, seconds - at_s, units, packs))
        at_s += rng.expovariate(1.0 / every_s)
    return tuple(faults)


def _draw(
    rng: random.Random, kind: FaultKind, at_s: float, left_s: float, units: Sequence[str], packs: Sequence[str]
) -> Fault:
    row = _ROWS[kind]
    targets, others = _draw_ends(rng, row.whom, units, packs)
    return Fault(
        at_us=to_us(at_s),
        kind=kind,
        targets=tuple(targets),
        others=tuple(others),
        for_us=to_us(min(row.for_s(rng), left_s)),
        amount=round(row.amount(rng), 4),
    )


class _Whom(StrEnum):
    """Whom a fault is about."""

    NOBODY = "nobody"  # or the keeper, or everybody
    UNIT = "unit"
    UNITS = "units"
    PACK = "pack"
    PATH = "path"  # from one end to another, or to all
    SIDES = "sides"  # all ends, the keeper's too, in two
    BRIDGE = "bridge"  # all ends but one, in two


def _draw_ends(
    rng: random.Random, whom: _Whom, units: Sequence[str], packs: Sequence[str]
) -> tuple[Sequence[str], Sequence[str]]:
    """Targets and others."""
    ends = [*units, KEEPER]
    match whom:
        case _Whom.NOBODY:
            return (), ()
        case _Whom.UNIT:
            return [ALPHA if rng.random() < ALPHAS else rng.choice(units)], ()
        case _Whom.UNITS:
            return rng.sample(list(units), rng.randint(1, len(units))), ()
        case _Whom.PACK:
            return [rng.choice(packs)], ()
        case _Whom.PATH:
            source, target = rng.sample(ends, 2)
            return [source], [target] if rng.random() < 0.5 else []
        case _Whom.SIDES | _Whom.BRIDGE:
            mixed = rng.sample(ends, len(ends) - (whom is _Whom.BRIDGE))
            cut = rng.randint(1, max(1, len(mixed) - 1))
            return mixed[:cut], mixed[cut:]
        case _:
            assert_never(whom)


_Number = Callable[[random.Random], float]


def _between(low: float, high: float) -> _Number:
    return lambda rng: rng.uniform(low, high)


def _of(*values: float) -> _Number:
    return lambda rng: rng.choice(values)


class _Row(NamedTuple):
    whom: _Whom = _Whom.NOBODY
    for_s: _Number = _of(0.0)
    amount: _Number = _of(0.0)


_A_WHILE = _between(1.0, 20.0)
_ROWS: Mapping[FaultKind, _Row] = {
    K.LOSS: _Row(for_s=_A_WHILE, amount=_between(0.02, 0.4)),
    K.DOUBLING: _Row(for_s=_A_WHILE, amount=_between(0.02, 0.4)),
    K.LATENESS: _Row(for_s=_A_WHILE, amount=_between(0.02, 0.3)),
    K.DELAY: _Row(for_s=_A_WHILE, amount=_between(0.002, 0.1)),
    K.UNREACHABLE: _Row(for_s=_A_WHILE, amount=_between(0.01, 0.2)),
    K.CLOG: _Row(_Whom.PATH, _between(0.1, 8.0)),
    K.SPLIT: _Row(_Whom.SIDES, _A_WHILE),
    K.ONE_WAY: _Row(_Whom.SIDES, _A_WHILE),
    K.ISOLATE: _Row(_Whom.UNIT, _between(0.5, 30.0)),
    K.BRIDGE: _Row(_Whom.BRIDGE, _A_WHILE),
    K.CRASH: _Row(_Whom.UNIT),
    K.SILENT_CRASH: _Row(_Whom.UNIT),
    K.PAUSE: _Row(_Whom.UNIT, _of(*PAUSES_S), _of(0.0, 0.0, 1.0)),
    K.DEAF_PAUSE: _Row(_Whom.UNIT, _of(*PAUSES_S), _of(0.0, 0.0, 1.0)),
    K.SLOW: _Row(_Whom.UNIT, _A_WHILE, _between(10.0, 200.0)),
    K.CLOCK_RATE: _Row(_Whom.UNIT, _between(5.0, 60.0), _between(0.95, 1.05)),
    K.CLOCK_JUMP: _Row(_Whom.UNIT, amount=_of(-180.0, 180.0)),
    K.FALSE_DEATH: _Row(_Whom.UNIT),
    K.OLD_BOOT: _Row(_Whom.UNIT, _between(0.5, 8.0)),
    K.KEEPER_CRASH: _Row(for_s=_between(0.1, 3.0)),
    K.KEEPER_PAUSE: _Row(for_s=_between(0.1, 8.0)),
    K.KEEPER_SLOW: _Row(for_s=_A_WHILE, amount=_between(10.0, 300.0)),
    K.KEEPER_JUMP: _Row(amount=_of(-180.0, 180.0)),
    K.REPLY_LOST: _Row(amount=_of(1.0, 2.0, 5.0)),
    K.COMMIT_FAILS: _Row(),
    K.TWO_KEEPERS: _Row(_Whom.UNITS, _between(0.5, 10.0)),
    K.WAKE: _Row(_Whom.UNIT),
    K.SLEEP: _Row(_Whom.UNIT, _between(0.0, 1.0)),
    K.RELEASE: _Row(_Whom.UNIT),
    K.RECALL: _Row(_Whom.UNIT, _between(0.0, 1.0)),
    K.SCALE: _Row(_Whom.PACK, amount=_of(1.0, 2.0, 3.0, 4.0)),
    K.CANCEL: _Row(amount=_between(0.0, 1.0)),
}


# --- what can be asked for ----------------------------------------------------------------------------------------

RATES = 0.1, 10.0  # of clocks
_NEED_AMOUNT = {K.LOSS, K.DOUBLING, K.LATENESS, K.DELAY, K.UNREACHABLE, K.SLOW, K.KEEPER_SLOW, K.CLOCK_RATE}


def check_fault(fault: Fault, *, units: Sequence[str], packs: Sequence[str], seconds: float) -> None:
    """A fault that would happen to nobody, or never, would make a test that tests nothing.

    Raises:
        UnknownName: it is about a unit or pack that does not exist.
        CallerError: it is about nobody, has a number that makes no sense, or comes after faults have stopped.
    """
    if not (0 <= fault.at_us <= to_us(seconds) and fault.for_us >= 0 and math.isfinite(fault.amount)):
        raise CallerError(
            f"The fault {fault.kind} must come within the {seconds:g} s of its plan (at_us), for no negative time "
            f"(for_us), with a finite amount; not at_us={fault.at_us}, for_us={fault.for_us}, amount={fault.amount}."
        )
    if fault.kind in _NEED_AMOUNT and fault.amount <= 0:
        raise CallerError(f"The fault {fault.kind} needs an amount above 0, not {fault.amount:g}.")
    if fault.kind is K.CLOCK_RATE and not RATES[0] <= fault.amount <= RATES[1]:
        raise CallerError(f"A clock runs {RATES[0]:g} to {RATES[1]:g} times as fast, not {fault.amount:g} times.")
    if fault.kind in (K.CLOCK_JUMP, K.KEEPER_JUMP) and not fault.amount:
        raise CallerError(f"The fault {fault.kind} does nothing with amount 0: give seconds to jump, forward or back.")
    whom = _ROWS[fault.kind].whom
    if whom is _Whom.NOBODY:
        if set(fault.targets + fault.others) - {KEEPER}:
            raise CallerError(f"The fault {fault.kind} takes no targets.")
        return
    if not fault.targets:
        what = "pack" if whom is _Whom.PACK else "unit"
        raise CallerError(f"The fault {fault.kind} happens to nobody: name a {what} in targets.")
    if whom is _Whom.PACK:
        _check_names("pack", fault.targets, packs)
        return
    ends = units if whom in (_Whom.UNIT, _Whom.UNITS) else [*units, KEEPER]
    _check_names("unit", fault.targets, [*ends, ALPHA] if whom is _Whom.UNIT else ends)
    _check_names("unit", fault.others, ends)


def _check_names(what: str, names: Sequence[str], existing: Sequence[str]) -> None:
    for name in names:
        if name not in existing:
            raise unknown_name(what, name, existing)
