"""The words of succession: what a unit can learn (events) and what it then does (orders).

Records only. `core/succession` turns the first into the second; `docs/succession.md` has the table.
"""

from __future__ import annotations

from dataclasses import dataclass

from wolfpack.core.howls import Howl, Peer

# --- events -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time passed; due at `next_wake()`."""


@dataclass(frozen=True, slots=True)
class Heard:
    howl: Howl


@dataclass(frozen=True, slots=True)
class PeerLost:
    """A hint that this process died. No proof: it may start a claim, the arbiter's fence makes that safe."""

    unit: str
    boot: int


@dataclass(frozen=True, slots=True)
class PeerLives:
    """The hint was wrong: this process spoke for itself since (a refutation that only it can make)."""

    unit: str
    boot: int


@dataclass(frozen=True, slots=True)
class PeersChanged:
    """The roster of the pack, with or without me. Of a big pack that gossips its highest living ranks suffice."""

    peers: tuple[Peer, ...]


@dataclass(frozen=True, slots=True)
class TermSeen:
    """Somebody who reads the ledger told the current term; `alpha` None: it was released."""

    term: int
    alpha: str | None
    boot: int = 0


@dataclass(frozen=True, slots=True)
class Granted:
    term: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The answer to a claim that was not granted; one that names me and my boot *is* a grant whose reply was lost."""

    term: int
    alpha: str | None
    boot: int = 0


@dataclass(frozen=True, slots=True)
class ClaimFailed:
    """The keeper did not answer the claim."""

    reason: str


@dataclass(frozen=True, slots=True)
class TurnAnswered:
    """The keeper answered the turn that left at `sent_at` (monotonic seconds)."""

    sent_at: float


@dataclass(frozen=True, slots=True)
class TurnFailed:
    """A turn could not be made; `permanent`: it will not get better while I lead (a bad disk, a bug of mine)."""

    reason: str
    permanent: bool = False


@dataclass(frozen=True, slots=True)
class DeposedBy:
    """A write was refused: the term is no longer mine."""

    term: int
    alpha: str | None


@dataclass(frozen=True, slots=True)
class MemberHeard:
    """A message from any member arrived at me, the alpha."""


@dataclass(frozen=True, slots=True)
class StepDown:
    """I leave on purpose: sleep, end of a loan, drain. The machine does not pretend again, unless asked to lead."""

    reason: str
    next_unit: str | None = None


@dataclass(frozen=True, slots=True)
class AskedToLead:
    """The keeper asks me to claim: no alpha renews."""


Event = (
    Ticked | Heard | PeerLost | PeerLives | PeersChanged | TermSeen | Granted | Refused | ClaimFailed
    | TurnAnswered | TurnFailed | DeposedBy | MemberHeard | StepDown | AskedToLead
)  # fmt: skip


# --- orders -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tell:
    to: str
    howl: Howl


@dataclass(frozen=True, slots=True)
class Claim:
    """Ask the keeper for the term after `prev_term`; a repeated one is the same claim."""

    prev_term: int


@dataclass(frozen=True, slots=True)
class ReleaseTerm:
    """Give the term back to the keeper; harmless where it is no longer current."""

    term: int


@dataclass(frozen=True, slots=True)
class Crowned:
    term: int


@dataclass(frozen=True, slots=True)
class StoppedLeading:
    term: int
    reason: str


@dataclass(frozen=True, slots=True)
class Following:
    """A new alpha is known: hunt there."""

    term: int
    alpha: str
    boot: int


@dataclass(frozen=True, slots=True)
class Alone:
    """No alpha is known any more."""

    reason: str


Order = Tell | Claim | ReleaseTerm | Crowned | StoppedLeading | Following | Alone
