"""The messages between client, keeper, alpha and members: named tuples of plain builtins, packed with msgpack.

A message is bytes on the wire, since Ray carries bytes at once and pickles everything else object by object. Payloads
of users are opaque bytes inside; nobody but the hands and the client ever unpickles them.

A reader takes bytes from anybody: what is no such message is refused as `Malformed`, whatever it is. Whether the fields
of a message can be true is looked at by `core/shapes`.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import msgpack

from wolfpack.errors import Malformed
from wolfpack.model import Job, Report

Row = TypeVar("Row", bound=tuple[Any, ...])


def pack(message: Any) -> bytes:
    """Texts may hold lone surrogates: names of files that are no UTF-8 come into them by way of error messages."""
    data: bytes = msgpack.packb(message, use_bin_type=True, unicode_errors="surrogatepass")
    return data


def unpack(data: bytes) -> Any:
    """Tuples of builtins again.

    Raises:
        Malformed: these bytes are no message.
    """
    try:
        return msgpack.unpackb(data, use_list=False, strict_map_key=False, unicode_errors="surrogatepass")
    except Exception as exc:  # msgpack raises a dozen kinds
        raise Malformed(f"not a message: {type(exc).__name__}: {exc}") from exc


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


class Leases(NamedTuple):
    unit: str
    boot: int
    jobs: tuple[Job, ...]


class TurnReply(NamedTuple):
    seq: int
    leases: tuple[Leases, ...]
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


def read_row(kind: type[Row], fields: Any) -> Row:
    """One record from the tuple that it was on the wire.

    Raises:
        Malformed: this is no tuple, or of another length.
    """
    if type(fields) is not tuple:
        raise Malformed(f"a {kind.__name__} is a list of fields, not {type(fields).__name__}")
    try:
        return kind._make(fields)  # type: ignore[attr-defined,no-any-return]
    except TypeError as exc:
        raise Malformed(f"a {kind.__name__} has not {len(fields)} fields") from exc


def read_rows(kind: type[Row], rows: Any) -> tuple[Row, ...]:
    if type(rows) is not tuple:
        raise Malformed(f"a list of {kind.__name__} cannot be {type(rows).__name__}")
    try:
        if set(map(type, rows)) <= {tuple}:
            return tuple(map(kind._make, rows))  # type: ignore[attr-defined]
    except TypeError:
        pass
    return tuple(read_row(kind, fields) for fields in rows)  # says which is wrong


def read_reports(rows: Any) -> tuple[Report, ...]:
    return read_rows(Report, rows)


def read_turn(data: bytes) -> Turn:
    turn = read_row(Turn, unpack(data))
    members = read_rows(MemberTurn, turn.members)
    return turn._replace(members=tuple(each._replace(settled=read_reports(each.settled)) for each in members))


def read_turn_reply(data: bytes) -> TurnReply:
    reply = read_row(TurnReply, unpack(data))
    return reply._replace(
        leases=tuple(each._replace(jobs=read_rows(Job, each.jobs)) for each in read_rows(Leases, reply.leases)),
        demand=read_rows(DemandRow, reply.demand),
        roster=read_rows(RosterEntry, reply.roster),
    )


def read_hunt(data: bytes) -> Hunt:
    hunt = read_row(Hunt, unpack(data))
    return hunt._replace(settled=read_reports(hunt.settled))


def read_hunt_reply(data: bytes) -> HuntReply:
    reply = read_row(HuntReply, unpack(data))
    return reply._replace(jobs=read_rows(Job, reply.jobs))


def read_keeper_report(data: bytes) -> KeeperReport:
    report = read_row(KeeperReport, unpack(data))
    return report._replace(settled=read_reports(report.settled))


def read_move(data: bytes) -> Move:
    move = read_row(Move, unpack(data))
    return move._replace(settled=read_reports(move.settled))


def read_claim(data: bytes) -> Claim:
    return read_row(Claim, unpack(data))


def read_submit(data: bytes) -> Submit:
    submit = read_row(Submit, unpack(data))
    return submit._replace(items=read_rows(SubmitItem, submit.items))
