"""Whether a message has the shape it should have: the keeper and the units believe nobody.

A row is checked by the types of its fields. The types of rows that were found good are remembered, so that the
thousandth row of a batch costs one look-up. Numbers must fit where the ledger keeps them. Every refusal is `Malformed`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import chain
from math import isfinite
from typing import Any

from wolfpack.core.wire import Claim, Hunt, KeeperReport, MemberTurn, Move, Submit, Turn
from wolfpack.errors import Malformed
from wolfpack.model import Cause, PackSpec, Report
from wolfpack.plain import pack_from_json, pack_to_json

NUMBER_MOST = 1 << 62  # of leases, terms, boots, commits
COUNTER_MOST = 1 << 40  # of tasks of one client
TEXT_MOST = 1 << 20
NAME_MOST = 512  # characters
LIMIT_MOST = 1 << 40  # of rows asked for

NONE, NUMBER = type(None), (int, float)
_ITEM = ((int,), (str,), (str,), (bytes,), (str,), (str, NONE), (str, NONE), (str,), NUMBER, (*NUMBER, NONE))
_REPORT = (
    (int,), (str,), (str,), (bool,), NUMBER, NUMBER, (bytes,), (str,), (str,), (tuple,), (*NUMBER, NONE), (bool,),
)  # fmt: skip
_CAUSES = frozenset(str(cause) for cause in Cause)
_good: set[tuple[type, ...]] = set()


def _check_row(row: tuple[Any, ...], shape: tuple[tuple[type, ...], ...], what: str) -> None:
    kinds = (*map(type, row),)
    if kinds in _good:
        return
    if len(kinds) != len(shape):
        raise Malformed(f"{what} has {len(shape)} fields, not {len(kinds)}")
    for place, (kind, allowed) in enumerate(zip(kinds, shape, strict=True)):
        if kind not in allowed:
            raise Malformed(f"field {place} of {what} cannot be {kind.__name__}")
    if len(_good) < 1000:
        _good.add(kinds)


def _check_numbers(what: str, *numbers: Any, most: int = NUMBER_MOST) -> None:
    for number in numbers:
        if type(number) is not int or not 0 <= number < most:
            raise Malformed(f"{what} must be a whole number from 0 to below {most}, not {number!r:.40}")


def _check_texts(what: str, *texts: Any) -> None:
    for text in texts:
        if type(text) is not str or len(text) > TEXT_MOST:
            raise Malformed(f"{what} must be text, not {text!r:.40}")


def _check_tuple(what: str, value: Any, length: int | None = None) -> None:
    if type(value) is not tuple or (length is not None and len(value) != length):
        raise Malformed(f"{what} cannot be {value!r:.40}")


def _check_seconds(what: str, seconds: Any) -> None:
    if seconds is not None and not (type(seconds) in NUMBER and 0 <= seconds < float("inf")):
        raise Malformed(f"{what} must be seconds, at least 0, not {seconds!r:.40}")


def check_client(client: Any) -> None:
    if type(client) is not str or not 0 < len(client) <= 64 or not client.isascii() or ":" in client:
        raise Malformed(f"a client is named by up to 64 ASCII characters without a colon, not {client!r:.80}")


def check_submit(submit: Submit) -> Submit:
    """Raises ValueError: it is no submit; nothing of it may be used."""
    check_client(submit.client)
    _check_texts("a pack's name", submit.pack)
    _check_numbers("the seen commit", submit.seen_commit)
    for item in submit.items:
        _check_row(item, _ITEM, "a task")
        if not 0 <= item.counter < COUNTER_MOST:
            raise Malformed(f"a task's number must be from 0 to below {COUNTER_MOST}, not {item.counter}")
        if item.delay_s or item.deadline_s is not None:
            _check_seconds("delay_s", item.delay_s)
            _check_seconds("deadline_s", item.deadline_s)
    _check_tuple("functions", submit.functions)
    for row in submit.functions:
        _check_tuple("a function", row, 2)
        check_hash(row[0])
        if type(row[1]) is not bytes:
            raise Malformed("a function's code is bytes")
    return submit


def check_hash(fn: Any) -> None:
    """The hash of a function; a column of the ledger holds it as text, so it must be plain."""
    if type(fn) is not str or not 0 < len(fn) <= NAME_MOST or not fn.isascii():
        raise Malformed(f"a function is named by the hash of its code, not by {fn!r:.80}")


def _check_reports(reports: Iterable[Report]) -> None:
    for report in reports:
        _check_row(report, _REPORT, "a report")
        if not 0 <= report.lease_no < NUMBER_MOST:
            raise Malformed(f"there is no lease {report.lease_no}")
        if not (isfinite(report.started_at) and isfinite(report.ended_at)):
            raise Malformed(f"lease {report.lease_no} cannot have run from {report.started_at} to {report.ended_at}")
        if report.cause not in _CAUSES:
            raise Malformed(f"lease {report.lease_no} cannot have ended as {report.cause!r:.40}")
        if report.kinds and set(map(type, report.kinds)) != {str}:
            raise Malformed(f"the classes of the exception under lease {report.lease_no} must be names")
        if report.retry_after_s is not None and not isfinite(report.retry_after_s):
            raise Malformed(f"lease {report.lease_no} cannot ask for a retry after {report.retry_after_s} s")


def _check_held(held: Any) -> None:
    if type(held) is not tuple or any(type(lease_no) is not int for lease_no in held):
        raise Malformed("leases held are a list of numbers")


def check_turn(turn: Turn) -> Turn:
    for what, rows in (("units to call off", turn.call_off), ("a plan", turn.plan), ("wakes", turn.wakes)):
        _check_tuple(what, rows)
    _check_texts("a text in a turn", turn.pack, turn.unit, *chain(turn.call_off, turn.plan))
    _check_numbers("a number in a turn", turn.term, turn.boot, turn.seq, turn.roster_version, turn.seen_commit)
    for wake in turn.wakes:
        _check_tuple("a wake", wake, 2)
        kind, number = wake
        _check_texts("a kind of unit", kind)
        _check_numbers("a number of units", number)
    if turn.size is not None:
        _check_tuple("a decision on the size", turn.size, 3)
        before, after, reason = turn.size
        _check_numbers("a size", before, after)
        _check_texts("a reason", reason)
    for member in turn.members:
        check_member(member)
    return turn


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
        raise Malformed("a day job's state is bytes")
    if move.wake_in_s is not None:
        _check_seconds("wake_in_s", move.wake_in_s)
    return move


def check_claim(claim: Claim) -> Claim:
    _check_texts("a name in a claim", claim.pack, claim.unit)
    _check_numbers("a number in a claim", claim.prev_term, claim.boot, claim.seen_commit)
    return claim


def check_events(events: Any) -> list[tuple[str, str]]:
    """Events as they are published: a name, and an object of fields as JSON."""
    if not isinstance(events, (list, tuple)):
        raise Malformed("events are a list of (name, fields as JSON)")
    found: list[tuple[str, str]] = []
    for row in events:
        if not isinstance(row, (list, tuple)) or len(row) != 2:
            raise Malformed("an event is a name and its fields as JSON")
        _check_texts("an event's name or fields", *row)
        if not row[0] or not isinstance(_read_json(row[1]), dict):
            raise Malformed("an event's fields are a JSON object")
        found.append((row[0], row[1]))
    return found


def _read_json(text: str) -> Any:
    try:
        value = json.loads(text)
        json.dumps(value, allow_nan=False)
        return value
    except (ValueError, RecursionError) as exc:
        raise Malformed(f"this is no JSON: {exc}") from exc


def check_names(what: str, *names: Any) -> None:
    """Short texts, such as names of units, packs and tethers."""
    for name in names:
        if type(name) is not str or not 0 < len(name) <= NAME_MOST:
            raise Malformed(f"{what} must be a name, not {name!r:.80}")


def check_whole(what: str, *numbers: Any) -> None:
    _check_numbers(what, *numbers)


def check_list(what: str, value: Any) -> list[str]:
    if not isinstance(value, (list, tuple)):
        raise Malformed(f"{what} must be a list of names")
    check_names(what, *value)
    return list(value)


def check_text(what: str, text: Any) -> None:
    _check_texts(what, text)


def check_seconds(what: str, seconds: Any) -> None:
    """Seconds, at least 0, or None."""
    _check_seconds(what, seconds)


def check_limit(what: str, number: Any) -> None:
    _check_numbers(what, number, most=LIMIT_MOST)


def check_pack(spec: Any) -> None:
    """The description of a pack, as a row of the ledger must give it back: another one would be lost, or lose all."""
    if type(spec) is not PackSpec:
        raise Malformed(f"a pack is described by a PackSpec, not by {type(spec).__name__}")
    check_names("a pack's name", spec.name)
    if any(0xD800 <= ord(each) < 0xE000 or each == "\0" for each in spec.name):
        raise Malformed(f"a pack cannot be named {spec.name!r}: a column of the ledger could not hold it")
    _check_numbers("a pack's size", spec.fewest, spec.most)
    _check_seconds("drain_target_s", spec.drain_target_s)
    _check_seconds("submit_timeout_s", spec.submit_timeout_s)
    _check_seconds("rate_per_s", spec.rate_per_s)
    if spec.queue_max is not None:
        _check_numbers("queue_max", spec.queue_max)
    if type(spec.priority) is not int or abs(spec.priority) >= NUMBER_MOST:
        raise Malformed(f"a pack's priority must be a whole number, not {spec.priority!r:.40}")
    try:
        same = pack_from_json(pack_to_json(spec)) == spec
    except (TypeError, ValueError, AttributeError, RecursionError) as exc:
        raise Malformed(f"the pack {spec.name!r} cannot be written to the ledger: {exc}") from exc
    if not same:
        raise Malformed(f"the pack {spec.name!r} would come back from the ledger as another one")
