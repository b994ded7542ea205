"""Messages that have not the shape they should have are refused, whatever they are."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wolfpack.core import shapes, wire
from wolfpack.model import Report

ITEM = wire.SubmitItem(1, "f", "", b"", "", None, None, '{"name": "f"}', 0.0, None)
SUBMIT = wire.Submit("client", "work", (ITEM,), (("f", b"code"),), 0)
REPORT = Report(1, "c:1", "DONE", True, 1.0, 2.0, b"", "", "", (), None, False)
TURN = wire.Turn(
    "work", 1, "a", 1, 1, (wire.MemberTurn("a", 1, (1,), (REPORT,), 2),), (("grey", 1),), (), 0, (), None, 0
)
HUNT = wire.Hunt("work", "a", 1, 1, 1, (1, 2), (REPORT,), 3)
MOVE = wire.Move("a", 1, 1, "free", (REPORT,), (), "why", b"", 1.0, 0)
CLAIM = wire.Claim("work", 0, "a", 1, 0)

READERS = [
    (SUBMIT, lambda data: shapes.check_submit(wire.read_submit(data))),
    (TURN, lambda data: shapes.check_turn(wire.read_turn(data))),
    (HUNT, lambda data: shapes.check_hunt(wire.read_hunt(data))),
    (MOVE, lambda data: shapes.check_move(wire.read_move(data))),
    (
        wire.KeeperReport("a", 1, 1, (1,), (REPORT,), 0),
        lambda data: shapes.check_keeper_report(wire.read_keeper_report(data)),
    ),
    (CLAIM, lambda data: shapes.check_claim(wire.Claim(*wire.unpack(data)))),
]


@pytest.mark.parametrize(("message", "read"), READERS)
def test_a_good_message_comes_back_as_it_was(message, read):
    assert message == read(wire.pack(message))


@pytest.mark.parametrize(
    "change",
    [
        {"client": "a:b"},
        {"client": 7},
        {"client": ""},
        {"pack": b"work"},
        {"items": (ITEM._replace(counter=2**63),)},
        {"items": (ITEM._replace(counter=1.5),)},
        {"items": (ITEM._replace(counter=-1),)},
        {"items": (ITEM._replace(key=5),)},
        {"items": (ITEM._replace(args="text"),)},
        {"items": (ITEM._replace(delay_s=float("nan")),)},
        {"items": (ITEM._replace(deadline_s=float("nan")),)},
        {"items": ((1, "f"),)},
        {"functions": ((5, "x"),)},
        {"functions": (("fn", "text"),)},
        {"seen_commit": -1},
    ],
)
def test_a_submit_of_another_shape_is_refused(change):
    with pytest.raises((ValueError, TypeError)):
        shapes.check_submit(wire.read_submit(wire.pack(SUBMIT._replace(**change))))


@pytest.mark.parametrize(
    "change",
    [
        {"lease_no": 2**63},
        {"lease_no": "1"},
        {"payload": "text"},
        {"started_at": None},
        {"kinds": "text"},
        {"ended_at": float("nan")},
    ],
)
def test_a_report_of_another_shape_is_refused(change):
    with pytest.raises((ValueError, TypeError)):
        shapes.check_hunt(wire.read_hunt(wire.pack(HUNT._replace(settled=(REPORT._replace(**change),)))))


@pytest.mark.parametrize("events", [5, [("a",)], [("", "{}")], [("a", "[]")], [("a", "{")], [(1, "{}")]])
def test_events_of_another_shape_are_refused(events):
    with pytest.raises((ValueError, TypeError)):
        shapes.check_events(events)


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=12) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=30,
)


@given(data=st.binary(max_size=60) | PLAIN.map(msgpack.packb))
def test_whatever_the_bytes_are_they_are_read_or_refused(data):
    for _, read in READERS:
        try:
            read(data)
        except (ValueError, TypeError, AttributeError):
            continue
