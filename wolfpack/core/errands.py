"""What goes into a unit's brain and what comes out: its events and its orders, beside those of succession."""

from __future__ import annotations

from dataclasses import dataclass

from wolfpack.core.howls import Howl
from wolfpack.core.wire import Claim, Hunt, HuntReply, KeeperReport, Move, Turn, TurnReply, Verdict, Where
from wolfpack.model import Job, Report

# --- events -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time passed; the driver sends one at `next_wake()`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HowlHeard:
    howl: Howl


@dataclass(frozen=True, slots=True, kw_only=True)
class HuntArrived:
    """A member hunts at this unit, which is or was alpha."""

    hunt: Hunt


@dataclass(frozen=True, slots=True, kw_only=True)
class HuntAnswered:
    n: int
    reply: HuntReply


@dataclass(frozen=True, slots=True, kw_only=True)
class HuntFailed:
    n: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnDone:
    seq: int
    reply: TurnReply


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnLost:
    """The keeper did not answer; it may or may not have taken the turn."""

    seq: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRefused:
    """Deposed: the keeper knows a later term of this pack, or none. The unit may stand in another pack by now."""

    pack: str
    seq: int
    term: int
    alpha: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimAnswered:
    """The unit may stand in another pack by now than the one it claimed."""

    pack: str
    prev_term: int
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimLost:
    pack: str
    prev_term: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The keeper answered a report or a move."""

    n: int
    where: Where


@dataclass(frozen=True, slots=True, kw_only=True)
class Unanswered:
    """The keeper did not answer a report or a move; the same call goes out again."""

    n: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Summoned:
    """Somebody wants this unit in a pack. `ticket` names the call, which is answered by `AnswerSummons`."""

    pack: str
    ticket: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SummonsDeclined:
    """A unit that this one summoned does not come."""

    unit: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedFor:
    """The keeper asks this member to claim its pack's term."""

    pack: str
    term: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Instructed:
    """An operator's order: release, recall or sleep."""

    order: str
    grace_s: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """The hands ended leases."""

    reports: tuple[Report, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """What the hands run now, by lease number, and for how many seconds."""

    seconds: dict[int, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class DayStepped:
    """The day job finished a step and sleeps for so many seconds."""

    next_s: float
    state: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DayLeft:
    """The day job was left with this checkpoint, or, without one, did not end its step in time."""

    state: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitDied:
    """Ray says that the process of a unit is gone."""

    unit: str
    boot: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewChanged:
    """What gossip tells of a unit now: it lives, or it left or died. Advice: it may be late, or wrong."""

    unit: str
    boot: int
    lives: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AlphaTold:
    """Gossip tells who leads a pack, in a later term than it told before."""

    pack: str
    term: int
    alpha: str
    boot: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StallJudged:
    """Three other units see this one busy without progress; or, with `stalled` False, it goes on again."""

    stalled: bool


Event = (
    Tick | HowlHeard | HuntArrived | HuntAnswered | HuntFailed | TurnDone | TurnLost | TurnRefused | ClaimAnswered
    | ClaimLost | Answered | Unanswered | Summoned | SummonsDeclined | AskedFor | Instructed | Reported | Running
    | DayStepped | DayLeft | UnitDied | ViewChanged | AlphaTold | StallJudged
)  # fmt: skip

# --- orders -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SendHowl:
    to: str
    boot: int
    howl: Howl


@dataclass(frozen=True, slots=True, kw_only=True)
class SendHunt:
    to: str
    boot: int
    hunt: Hunt


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerHunt:
    unit: str
    n: int
    reply: HuntReply


@dataclass(frozen=True, slots=True, kw_only=True)
class SendTurn:
    turn: Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class SendClaim:
    claim: Claim


@dataclass(frozen=True, slots=True, kw_only=True)
class SendRelease:
    pack: str
    term: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SendReport:
    report: KeeperReport


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMove:
    move: Move


@dataclass(frozen=True, slots=True, kw_only=True)
class SendSummons:
    unit: str
    boot: int
    pack: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerSummons:
    ticket: int
    accepted: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveJobs:
    jobs: tuple[Job, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Allow:
    """The hands may start tasks until this monotonic time; later ones wait for the next `Allow`."""

    until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeBack:
    """Ask the hands for what they have not started."""

    lease_nos: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelJob:
    lease_no: int
    kill: bool
    cause: str
    text: str = ""  # what a person shall read of it, beside the cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Evict:
    grace_s: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveDayJob:
    grace_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StartDayJob:
    state: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Store the day job's state with the keeper."""

    state: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishFailure:
    pack: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndSelf:
    reason: str


Order = (
    SendHowl | SendHunt | AnswerHunt | SendTurn | SendClaim | SendRelease | SendReport | SendMove | SendSummons
    | AnswerSummons | GiveJobs | Allow | TakeBack | CancelJob | Evict | LeaveDayJob | StartDayJob | Checkpoint
    | PublishFailure | EndSelf
)  # fmt: skip
