"""Howls: what the units of a pack say to each other about who leads, and how it looks on the wire.

Six kinds suffice. HEARTBEAT: I am alpha. ELECTION: I want to lead. OK: I rank above you and live, let me try.
COORDINATOR: I was granted this term. STALE: the term you speak of is over. HANDOVER: I gave my term back, `next_unit`
goes on.

Every howl carries the pack, the highest term its sender knows, and who the sender is: unit, boot and lead, so that the
receiver can rank a unit it never heard of. A howl says nothing about tasks.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from wolfpack.errors import Malformed
from wolfpack.model import Rank, natural_key

_INT_MAX = 2**62 - 1  # whatever a howl says, a claim can carry (`core/shapes`)
_NAME_MAX = 256
# A term so far beyond the known one was never granted: who speaks of it is not believed. If one lie could move all
# members to the last number there is, nobody could ever claim again.
TERMS_AHEAD = 1 << 32


class HowlKind(StrEnum):
    HEARTBEAT = "heartbeat"
    ELECTION = "election"
    OK = "ok"
    COORDINATOR = "coordinator"
    STALE = "stale"
    HANDOVER = "handover"


_KINDS = frozenset(str(kind) for kind in HowlKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Howl:
    kind: HowlKind
    pack: str
    # The highest term the sender knows; of HEARTBEAT and COORDINATOR its own, of HANDOVER the one it gave back.
    term: int
    # The sender, its boot and its `lead`.
    unit: str
    boot: int
    lead: int = 0
    # Only of HANDOVER: who should claim now; None: nobody the sender knows of.
    next_unit: str | None = None

    @property
    def rank(self) -> Rank:
        return Rank(self.lead, natural_key(self.unit))

    def to_wire(self) -> list[Any]:
        """Plain builtins, for msgpack."""
        return [str(self.kind), self.pack, self.term, self.unit, self.boot, self.lead, self.next_unit]

    @classmethod
    def from_wire(cls, wire: Any) -> Howl:
        """Reads what `to_wire` wrote.

        Raises:
            Malformed: it is anything else; nothing of it is used.
        """
        if not isinstance(wire, (list, tuple)) or len(wire) != 7:
            raise Malformed(f"a howl is a list of seven fields, not {type(wire).__name__}")
        kind, pack, term, unit, boot, lead, next_unit = wire
        if not isinstance(kind, str) or kind not in _KINDS:
            raise Malformed(f"unknown kind of howl: {str(kind)[:40]!r}")
        return cls(
            kind=HowlKind(kind),
            pack=_name("pack", pack),
            term=_number("term", term, 0),
            unit=_name("unit", unit),
            boot=_number("boot", boot, 0),
            lead=_number("lead", lead, -_INT_MAX),
            next_unit=None if next_unit is None else _name("next_unit", next_unit),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A member of the pack as the roster tells of it."""

    unit: str
    boot: int
    lead: int = 0
    can_lead: bool = True

    @property
    def rank(self) -> Rank:
        return Rank(self.lead, natural_key(self.unit))


def _name(field: str, value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= _NAME_MAX:
        raise Malformed(f"a howl's {field} must be a name of 1 to {_NAME_MAX} characters")
    return value


def _number(field: str, value: Any, least: int) -> int:
    if type(value) is not int or not least <= value <= _INT_MAX:  # a bool is an int to isinstance
        raise Malformed(f"a howl's {field} must be a whole number of at least {least}")
    return value
