"""The words of the exhaustive model: what is said, to whom, and how a broken promise is told."""

from __future__ import annotations

from typing import Any, NamedTuple

from wolfpack.core.howls import Howl, HowlKind
from wolfpack.core.succession import DeposedBy, PeerLost
from wolfpack.core.wire import Claim, KeeperReport, Turn, Verdict, Where
from wolfpack.model import Timing

PACK = "p"
KEEPER = "keeper"
EVERYBODY = "the pack"
TASK = "client:1"
TIMING = Timing()
# What these say, "I want to lead", "I live", "there is a later term", anybody may hear at any time, said or not: they
# only decide who tries. So they are no part of a state, and a promise that holds in the model needs none of them true.
TALK = frozenset({HowlKind.ELECTION, HowlKind.OK, HowlKind.STALE})


class Letter(NamedTuple):
    """What was said to one process, to everybody, or to the keeper. It stays readable."""

    to: str
    boot: int  # 0: of the keeper, and of everybody
    what: Any
    by: str = ""


class Hello(NamedTuple):
    unit: str
    boot: int


class Release(NamedTuple):
    term: int
    unit: str
    boot: int


class Lease(NamedTuple):
    """A turn's answer that brought a lease for the alpha's own hands."""

    term: int
    lease_no: int


class Violation(Exception):
    """An invariant is broken."""

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant


def must(holds: bool, invariant: str, text: str) -> None:
    if not holds:
        raise Violation(invariant, text)


def tell(letter: Letter) -> str:
    """What one letter says, in words."""
    match letter.what:
        case Howl(kind=kind, term=term, unit=unit, boot=boot):
            return f"{str(kind).upper()}(term {term}) of {unit} (boot {boot}) to {letter.to}"
        case Claim(_, prev_term, unit, boot, _):
            return f"claim({prev_term}) of {unit} (boot {boot})"
        case Turn(term=term, unit=unit, boot=boot, seq=seq):
            return f"turn {seq} of {unit} (boot {boot}) in term {term}"
        case Release(term, unit, boot):
            return f"release of term {term} by {unit} (boot {boot})"
        case KeeperReport(unit=unit, boot=boot, settled=settled):
            return f"report of {unit} (boot {boot}) that lease {settled[0].lease_no} is done"
        case Hello(unit, boot):
            return f"hello of {unit} (boot {boot})"
        case Verdict(granted, term, alpha, boot):
            said = f"GRANT({term})" if granted else f"REFUSED({term}, {alpha} boot {boot})"
            return f"{said} to {letter.to} (boot {letter.boot})"
        case Lease(term, lease_no):
            return f"lease {lease_no} to {letter.to} (boot {letter.boot}) in term {term}"
        case Where(end=end, term=term, alpha=alpha):
            said = "end" if end else f"{alpha} leads term {term}"
            return f"{said!r} to {letter.to} (boot {letter.boot})"
        case DeposedBy(term, alpha):
            return f"DEPOSED({term}, {alpha or 'nobody'}) to {letter.to} (boot {letter.boot})"
        case PeerLost(unit, boot):
            return f"{unit} (boot {boot}) died, to {letter.to}"
        case _:
            return f"{type(letter.what).__name__} to {letter.to}"
