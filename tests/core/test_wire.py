"""Messages come back from the wire as they went in, and what is none is refused."""

from __future__ import annotations

from typing import Any

import pytest

from wolfpack.core import wire
from wolfpack.core.wire import (
    DemandRow,
    Hunt,
    HuntReply,
    KeeperReport,
    Leases,
    MemberTurn,
    Move,
    RosterEntry,
    Submit,
    SubmitItem,
    Turn,
    TurnReply,
)
from wolfpack.model import Job, Report

REPORT = Report(7, "c:1", "FAULT", True, 1.5, 2.5, b"\x00\xff", "", "text", ("a.B", "C"), 0.5, True)
JOB = Job(7, "c:1", "f", b"\x00", "", "key", 2, None, False, 3)
ITEM = SubmitItem(1, "f", "d", b"\x80", "", None, '{"cpu": true}', "{}", 0.0, 1.5)
ENTRY = RosterEntry("grey-0", "{}", 1, "awake", None, 2, 0.5, True, 1, "")

MESSAGES: list[tuple[Any, Any]] = [
    (wire.read_submit, Submit("c", "p", (ITEM, ITEM), (("f", b"\x00"),), 9)),
    (
        wire.read_turn,
        Turn(
            "p", 1, "u", 2, 3, (MemberTurn("u", 2, (7, 8), (REPORT,), 4),), (("grey", 2),), ("x",), 5, ("why",),
            (1, 2, "r"), 6,
        ),
    ),
    (
        wire.read_turn_reply,
        TurnReply(
            3, (Leases("u", 2, (JOB,)),), (("u", (7,)),), (("u", ((7, True, "CANCELLED"),)),),
            (DemandRow("{}", 1, 2, None, 0.5),), (ENTRY,), 9 << 32, "{}", False, 1,
        ),
    ),
    (wire.read_hunt, Hunt("p", "u", 1, 2, 3, (7,), (REPORT,), 5)),
    (
        wire.read_hunt_reply,
        HuntReply(1, "a", 2, 3, (JOB,), (7,), ((7, False, "CANCELLED"),), 2, (("u", 1, 0, True),), "go"),
    ),
    (wire.read_keeper_report, KeeperReport("u", 1, 2, (7,), (REPORT,), 3)),
    (wire.read_move, Move("u", 1, 2, "pack:p", (REPORT,), (8,), "why", b"state", 1.5, 3)),
]  # fmt: skip


@pytest.mark.parametrize(("read", "message"), MESSAGES, ids=lambda each: type(each).__name__)
def test_a_message_comes_back_as_it_went_in(read: Any, message: Any) -> None:
    back = read(wire.pack(message))
    assert message == back
    assert repr(message) == repr(back)  # records again, all the way down


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x92\x01", b"\x01\x02"])
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a message"):
        wire.unpack(data)


def test_a_message_may_be_large() -> None:
    report = REPORT._replace(payload=b"x" * (3 << 20))
    assert report == wire.read_hunt(wire.pack(Hunt("p", "u", 1, 2, 3, (), (report,), 0))).settled[0]
