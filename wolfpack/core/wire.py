"""The messages between client, keeper, alpha and members: named tuples of plain builtins, packed with msgpack.

A message is bytes on the wire, since Ray carries bytes at once and pickles everything else object by object. Payloads
of users are opaque bytes inside; nobody but the hands and the client ever unpickles them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgpack

from wolfpack.model import Job, Report


def pack(message: Any) -> bytes:
    data: bytes = msgpack.packb(message, use_bin_type=True)
    return data


def unpack(data: bytes) -> Any:
    """Tuples of builtins again.

    Raises:
        ValueError: these bytes are no message.
    """
    try:
        return msgpack.unpackb(data, use_list=False, strict_map_key=False)
    except Exception as exc:  # msgpack raises a dozen kinds
        raise ValueError(f"not a message: {type(exc).__name__}: {exc}") from exc


class SubmitItem(NamedTuple):
    counter: int
    fn: str
    digest: str
    args: bytes
    blob: str
    key: str | None
    needs: str | None  # JSON; None: the pack's own
    options: str  # JSON of priority, timeout_s, retry, is_async, name
    delay_s: float
    deadline_s: float | None


class Submit(NamedTuple):
    client: str
    pack: str
    items: tuple[SubmitItem, ...]
    functions: tuple[tuple[str, bytes], ...]  # those this client has not sent before
    seen_commit: int


class Final(NamedTuple):
    """A task's end, as the client that waits for it gets it."""

    task_id: str
    state: str
    cause: str
    text: str
    payload: bytes
    blob: str
    unit: str
    story: bytes
    settle_no: int


class MemberTurn(NamedTuple):
    """What the alpha passes on of one member: leases it holds, reports, and how many more it can take."""

    unit: str
    boot: int
    held: tuple[int, ...]
    settled: tuple[Report, ...]
    ask: int


class Turn(NamedTuple):
    pack: str
    term: int
    unit: str
    boot: int
    seq: int
    members: tuple[MemberTurn, ...]
    wakes: tuple[tuple[str, int], ...]  # kind of unit -> how many to wake for this pack
    call_off: tuple[str, ...]  # units whose wake is no longer wanted
    roster_version: int  # the alpha's: rows that changed since come back
    plan: tuple[str, ...]  # the latest plan, with reasons
    size: tuple[int, int, str] | None  # a decision on the size: before, after, reason
    seen_commit: int


class RosterEntry(NamedTuple):
    unit: str
    card: str  # JSON; "" when the receiver has it
    boot: int
    readiness: str
    pack: str | None
    leases: int
    tenure_left_s: float  # a werewolf is not lent, or sent home, before
    lendable: bool  # a member of a pack that lends its members
    priority: int  # of that pack
    reason: str


class DemandRow(NamedTuple):
    needs: str  # JSON
    queued: int  # runnable now
    leased: int
    service_s: float | None
    oldest_wait_s: float


class TurnReply(NamedTuple):
    seq: int
    leases: tuple[tuple[str, int, tuple[Job, ...]], ...]  # unit, boot, jobs
    acked: tuple[tuple[str, tuple[int, ...]], ...]
    cancels: tuple[tuple[str, tuple[tuple[int, bool, str], ...]], ...]  # unit, (lease_no, kill, cause)
    demand: tuple[DemandRow, ...]
    roster: tuple[RosterEntry, ...]
    roster_version: int
    spec: str  # JSON of the PackSpec
    draining: bool
    commit_no: int


class Hunt(NamedTuple):
    pack: str
    unit: str
    boot: int
    n: int  # newer hunts supersede older ones
    term: int
    held: tuple[int, ...]
    settled: tuple[Report, ...]
    spare: int  # leases it could take beyond those it holds; 0 while it leaves


class HuntReply(NamedTuple):
    term: int
    alpha: str | None
    alpha_boot: int
    n: int
    jobs: tuple[Job, ...] = ()
    acked: tuple[int, ...] = ()
    cancels: tuple[tuple[int, bool, str], ...] = ()
    renewed: int = 0  # the newest hunt of this unit whose leases the keeper is known to have renewed
    peers: tuple[tuple[str, int, int, bool], ...] | None = None  # unit, boot, lead, can_lead; None: unchanged
    leave: str = ""  # a reason: finish and leave the pack


class KeeperReport(NamedTuple):
    """A unit's own word to the keeper, when its alpha is gone or it moves."""

    unit: str
    boot: int
    n: int
    held: tuple[int, ...]
    settled: tuple[Report, ...]
    seen_commit: int


class Move(NamedTuple):
    unit: str
    boot: int
    n: int
    to: str  # "free", "home", "asleep", or "pack:NAME"
    settled: tuple[Report, ...]
    returned: tuple[int, ...]
    reason: str
    day_state: bytes | None = None
    wake_in_s: float | None = None
    seen_commit: int = 0


class Where(NamedTuple):
    """The keeper's answer to hello, report and move: where the unit stands, and what it must know there."""

    ok: bool
    end: bool  # this boot is not (or no longer) wanted: end the process
    reason: str
    pack: str | None
    term: int
    alpha: str | None
    alpha_boot: int
    peers: tuple[tuple[str, int, int, bool], ...]
    acked: tuple[int, ...]
    cancels: tuple[tuple[int, bool, str], ...]
    day_state: bytes
    n: int
    commit_no: int


class Claim(NamedTuple):
    pack: str
    prev_term: int
    unit: str
    boot: int
    seen_commit: int


class Verdict(NamedTuple):
    """The keeper's answer to a claim."""

    granted: bool
    term: int
    alpha: str | None
    alpha_boot: int
    peers: tuple[tuple[str, int, int, bool], ...]
    reason: str
    commit_no: int


def read_reports(rows: Any) -> tuple[Report, ...]:
    return tuple(map(Report._make, rows))


def read_turn(data: bytes) -> Turn:
    turn = Turn(*unpack(data))
    members = tuple(
        MemberTurn(unit, boot, held, read_reports(settled), ask) for unit, boot, held, settled, ask in turn.members
    )
    return turn._replace(members=members)


def read_turn_reply(data: bytes) -> TurnReply:
    reply = TurnReply(*unpack(data))
    return reply._replace(
        leases=tuple((unit, boot, tuple(map(Job._make, jobs))) for unit, boot, jobs in reply.leases),
        demand=tuple(DemandRow(*row) for row in reply.demand),
        roster=tuple(RosterEntry(*row) for row in reply.roster),
    )


def read_hunt(data: bytes) -> Hunt:
    hunt = Hunt(*unpack(data))
    return hunt._replace(settled=read_reports(hunt.settled))


def read_hunt_reply(data: bytes) -> HuntReply:
    reply = HuntReply(*unpack(data))
    return reply._replace(jobs=tuple(map(Job._make, reply.jobs)))


def read_keeper_report(data: bytes) -> KeeperReport:
    report = KeeperReport(*unpack(data))
    return report._replace(settled=read_reports(report.settled))


def read_move(data: bytes) -> Move:
    move = Move(*unpack(data))
    return move._replace(settled=read_reports(move.settled))


def read_submit(data: bytes) -> Submit:
    submit = Submit(*unpack(data))
    return submit._replace(items=tuple(map(SubmitItem._make, submit.items)))
