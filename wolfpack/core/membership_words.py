"""The words of membership: what a unit can learn about the others (events) and what it then does (orders).

Records only. `core/membership` turns the first into the second. Units have ids; what packets are sent to are addresses:
on Ray the id of the unit, over UDP `host:port`, in the simulator the number of the unit as text. An address has no id
until it answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple


class Status(IntEnum):
    """What one unit thinks of another. Of one incarnation the higher one wins."""

    ALIVE = 0
    SUSPECT = 1  # did not answer; may still defend itself
    LEFT = 2  # said goodbye: it sleeps, or went home for good
    DEAD = 3


class Incarnation(NamedTuple):
    """Which life of a unit, and how often it defended itself in it. Only the unit itself raises it."""

    boot: int
    counter: int


@dataclass(frozen=True, slots=True)
class Load:
    """What a unit says of itself. Seconds old when it arrives; `seq` rises within a boot, the higher one wins."""

    seq: int = 0
    leases: int = 0  # in hand
    queued: int = 0  # of these, not started
    capacity: int = 1  # how many it runs at once
    progress: int = 0  # rises whenever something of its work went on; busy without: it may be stalled
    budgets: tuple[tuple[str, float], ...] = ()  # named, such as gpu or tokens: what is left of each


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipOptions:
    """Switches and bounds of the machine. The switches exist so that each part's worth can be measured alone.

    local_health_probe, local_health_suspicion, buddy: the three parts of Lifeguard (Dadgar et al. 2018): a slow unit
    stretches its own probes; a suspicion is shortened by confirmations; a suspect is told so in every ping. All three
    off is plain SWIM. helpers_confirm: a helper that heard nothing either confirms a suspicion. hearsay_timers: whoever
    is told of a suspect times it too; otherwise only accusers do. limit_refutations: coalesce them. bitmaps: many
    deaths travel as one bitmap. hurry: while many fall, probe faster, and pass no suspicions of others on.
    forgive_pauses: a tick that comes late moves all deadlines.
    """

    local_health_probe: bool = True
    local_health_suspicion: bool = True
    buddy: bool = True
    helpers_confirm: bool = True
    hearsay_timers: bool = False
    limit_refutations: bool = True
    bitmaps: bool = True
    hurry: bool = True
    forgive_pauses: bool = True
    retransmit: float = 4.0  # each news is sent so many times log10(n + 1)
    stall_s: float = 30.0  # busy without progress for so long, seen by three: stalled
    stalls: Mapping[str, float] | None = None  # `stall_s` by unit, where they differ: who is not in it never stalls
    load_s: float = 1.0  # own load is told at most so often
    tombstone_s: float = 86_400.0  # who died or left is remembered so long, to know late news of them
    tombstones_most: int = 4096
    heal_s: float = 10.0  # one of the dead is called so often: a partition may have healed
    settle_s: float = 10.0  # without news for so long: the view becomes the base of the next differences


SWIM = MembershipOptions(
    local_health_probe=False, local_health_suspicion=False, buddy=False, helpers_confirm=False, hearsay_timers=True,
    limit_refutations=False, bitmaps=False, hurry=False, forgive_pauses=False,
)  # fmt: skip
LIFEGUARD = MembershipOptions(
    helpers_confirm=False, hearsay_timers=True, limit_refutations=False, bitmaps=False, hurry=False,
    forgive_pauses=False,
)  # fmt: skip


# --- events -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time passed; due at `next_wake()`."""


@dataclass(frozen=True, slots=True)
class PacketHeard:
    """A packet came from this address: lost, late, doubled, from anybody, of any bytes."""

    source: str
    data: bytes


@dataclass(frozen=True, slots=True)
class SyncAsked:
    """Another unit calls and shows (a digest of) its view; `AnswerSync` with the same ticket is the reply."""

    source: str
    data: bytes
    ticket: int


@dataclass(frozen=True, slots=True)
class SyncAnswered:
    source: str
    data: bytes


@dataclass(frozen=True, slots=True)
class AddressesGiven:
    """Where others may be found (the keeper's roster, a list of seeds): (address, unit or "", boot or 0) each."""

    addresses: tuple[tuple[str, str, int], ...]


@dataclass(frozen=True, slots=True)
class LoadChanged:
    load: Load  # `seq` is the machine's own business


@dataclass(frozen=True, slots=True)
class DeathHinted:
    """The transport says that this process is gone (Ray's ActorDiedError). A hint: it is suspected at once."""

    unit: str
    boot: int


@dataclass(frozen=True, slots=True)
class AlphaSeen:
    """This unit leads a pack, or hears its alpha: gossip shall carry it to those outside the council."""

    pack: str
    term: int
    alpha: str
    boot: int


@dataclass(frozen=True, slots=True)
class Leaving:
    """This unit goes to sleep: it says LEFT, and answers nothing any more."""


Event = (
    Ticked | PacketHeard | SyncAsked | SyncAnswered | AddressesGiven | LoadChanged | DeathHinted | AlphaSeen
    | Leaving
)  # fmt: skip

# --- orders -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SendPacket:
    """One datagram of at most 1400 bytes; it may be lost."""

    to: str
    data: bytes


@dataclass(frozen=True, slots=True)
class AskSync:
    """A call over a stream (a Ray call, TCP): the answer comes back as `SyncAnswered`, or never."""

    to: str
    data: bytes


@dataclass(frozen=True, slots=True)
class AnswerSync:
    ticket: int
    data: bytes


@dataclass(frozen=True, slots=True)
class StatusChanged:
    """What this unit thinks of another one is now this."""

    unit: str
    boot: int
    status: Status
    reason: str


@dataclass(frozen=True, slots=True)
class Stalled:
    """Three witnesses saw this unit busy without progress for `stall_s`; again with `stalled` False when it goes on."""

    unit: str
    boot: int
    stalled: bool


@dataclass(frozen=True, slots=True)
class AlphaHeard:
    """Who leads a pack, as gossip tells it, in a later term than was known: news for succession (`TermSeen`)."""

    pack: str
    term: int
    alpha: str
    boot: int


Order = SendPacket | AskSync | AnswerSync | StatusChanged | Stalled | AlphaHeard
