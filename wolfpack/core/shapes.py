"""Whether a message has the shape it should have: the keeper and the units believe nobody.

A row is checked by the types of its fields. The types of rows that were found good are remembered, so that the
thousandth row of a batch costs one look-up. Numbers must fit where the ledger keeps them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from math import isfinite
from typing import Any

from wolfpack.core.wire import Claim, Hunt, KeeperReport, MemberTurn, Move, Submit, Turn
from wolfpack.model import Report

NUMBER_MOST = 1 << 62  # of leases, terms, boots, commits
COUNTER_MOST = 1 << 40  # of tasks of one client
TEXT_MOST = 1 << 20

NONE, NUMBER = type(None), (int, float)
_ITEM = ((int,), (str,), (str,), (bytes,), (str,), (str, NONE), (str, NONE), (str,), NUMBER, (*NUMBER, NONE))
_REPORT = (
    (int,), (str,), (str,), (bool,), NUMBER, NUMBER, (bytes,), (str,), (str,), (tuple,), (*NUMBER, NONE), (bool,),
)  # fmt: skip
_good: set[tuple[type, ...]] = set()


def _check_row(row: tuple[Any, ...], shape: tuple[tuple[type, ...], ...], what: str) -> None:
    kinds = (*map(type, row),)
    if kinds in _good:
        return
    if len(kinds) != len(shape):
        raise ValueError(f"{what} has {len(shape)} fields, not {len(kinds)}")
    for place, (kind, allowed) in enumerate(zip(kinds, shape, strict=True)):
        if kind not in allowed:
            raise ValueError(f"field {place} of {what} cannot be {kind.__name__}")
    if len(_good) < 1000:
        _good.add(kinds)


def _check_numbers(what: str, *numbers: Any, most: int = NUMBER_MOST) -> None:
    for number in numbers:
        if type(number) is not int or not 0 <= number < most:
            raise ValueError(f"{what} must be a whole number from 0 to below {most}, not {number!r:.40}")


def _check_texts(what: str, *texts: Any) -> None:
    for text in texts:
        if type(text) is not str or len(text) > TEXT_MOST:
            raise ValueError(f"{what} must be text, not {text!r:.40}")


def _check_seconds(what: str, seconds: float | None) -> None:
    if seconds is not None and not (isfinite(seconds) and seconds >= 0):
        raise ValueError(f"{what} must be seconds, at least 0, not {seconds!r}")


def check_client(client: Any) -> None:
    if type(client) is not str or not 0 < len(client) <= 64 or not client.isascii() or ":" in client:
        raise ValueError(f"a client is named by up to 64 ASCII characters without a colon, not {client!r:.80}")


def check_submit(submit: Submit) -> Submit:
    """Raises ValueError: it is no submit; nothing of it may be used."""
    check_client(submit.client)
    _check_texts("a pack's name", submit.pack)
    _check_numbers("the seen commit", submit.seen_commit)
    for item in submit.items:
        _check_row(item, _ITEM, "a task")
        if not 0 <= item.counter < COUNTER_MOST:
            raise ValueError(f"a task's number must be from 0 to below {COUNTER_MOST}, not {item.counter}")
        if item.delay_s or item.deadline_s is not None:
            _check_seconds("delay_s", item.delay_s)
            _check_seconds("deadline_s", item.deadline_s)
    for row in submit.functions:
        if len(row) != 2 or type(row[0]) is not str or type(row[1]) is not bytes:
            raise ValueError("a function is its hash and its code")
    return submit


def _check_reports(reports: Iterable[Report]) -> None:
    for report in reports:
        _check_row(report, _REPORT, "a report")
        if not 0 <= report.lease_no < NUMBER_MOST:
            raise ValueError(f"there is no lease {report.lease_no}")
        if not (isfinite(report.started_at) and isfinite(report.ended_at)):
            raise ValueError(f"lease {report.lease_no} cannot have run from {report.started_at} to {report.ended_at}")


def _check_held(held: Any) -> None:
    if type(held) is not tuple or any(type(lease_no) is not int for lease_no in held):
        raise ValueError("leases held are a list of numbers")


def check_turn(turn: Turn) -> Turn:
    _check_texts("a name in a turn", turn.pack, turn.unit, *_texts_of(turn))
    _check_numbers("a number in a turn", turn.term, turn.boot, turn.seq, turn.roster_version, turn.seen_commit)
    for kind, number in turn.wakes:
        _check_texts("a kind of unit", kind)
        _check_numbers("a number of units", number)
    if turn.size is not None:
        before, after, reason = turn.size
        _check_numbers("a size", before, after)
        _check_texts("a reason", reason)
    for member in turn.members:
        check_member(member)
    return turn


def _texts_of(turn: Turn) -> Iterator[Any]:
    yield from turn.call_off
    yield from turn.plan


def check_member(member: MemberTurn) -> None:
    _check_texts("a unit's name", member.unit)
    _check_numbers("a number of a member", member.boot, member.ask)
    _check_held(member.held)
    _check_reports(member.settled)


def check_hunt(hunt: Hunt) -> Hunt:
    _check_texts("a name in a hunt", hunt.pack, hunt.unit)
    _check_numbers("a number in a hunt", hunt.boot, hunt.n, hunt.term, hunt.spare)
    _check_held(hunt.held)
    _check_reports(hunt.settled)
    return hunt


def check_keeper_report(report: KeeperReport) -> KeeperReport:
    _check_texts("a unit's name", report.unit)
    _check_numbers("a number in a report", report.boot, report.n, report.seen_commit)
    _check_held(report.held)
    _check_reports(report.settled)
    return report


def check_move(move: Move) -> Move:
    _check_texts("a name in a move", move.unit, move.to, move.reason)
    _check_numbers("a number in a move", move.boot, move.n, move.seen_commit)
    _check_held(move.returned)
    _check_reports(move.settled)
    if move.day_state is not None and type(move.day_state) is not bytes:
        raise ValueError("a day job's state is bytes")
    if move.wake_in_s is not None:
        _check_seconds("wake_in_s", float(move.wake_in_s))
    return move


def check_claim(claim: Claim) -> Claim:
    _check_texts("a name in a claim", claim.pack, claim.unit)
    _check_numbers("a number in a claim", claim.prev_term, claim.boot, claim.seen_commit)
    return claim


def check_events(events: Any) -> list[tuple[str, str]]:
    """Events as they are published: a name, and an object of fields as JSON."""
    if not isinstance(events, (list, tuple)):
        raise TypeError("events are a list of (name, fields as JSON)")
    found: list[tuple[str, str]] = []
    for row in events:
        if not isinstance(row, (list, tuple)) or len(row) != 2:
            raise ValueError("an event is a name and its fields as JSON")
        _check_texts("an event's name or fields", *row)
        if not row[0] or not isinstance(json.loads(row[1]), dict):
            raise ValueError("an event's fields are a JSON object")
        found.append((row[0], row[1]))
    return found


def check_names(what: str, *names: Any) -> None:
    """Short texts, such as names of units, packs and tethers."""
    for name in names:
        if type(name) is not str or not 0 < len(name) <= 512:
            raise ValueError(f"{what} must be a name, not {name!r:.80}")


def check_whole(what: str, *numbers: Any) -> None:
    _check_numbers(what, *numbers)


def check_list(what: str, value: Any) -> list[str]:
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"{what} must be a list of names")
    check_names(what, *value)
    return list(value)
