"""Howls on the wire: what was sent arrives, and garbage is refused."""

from __future__ import annotations

import pytest

from wolfpack.core.howls import Howl, HowlKind


@pytest.mark.parametrize("kind", HowlKind)
def test_a_howl_survives_the_wire(kind: HowlKind):
    sent = Howl(kind=kind, pack="p", term=3, unit="grey-1", boot=2, lead=-1, next_unit="grey-2")
    assert sent == Howl.from_wire(sent.to_wire())
    assert {str, int} == {type(value) for value in sent.to_wire()}


@pytest.mark.parametrize(
    "wire",
    [
        None, "heartbeat", [], [1] * 7, ["bark", "p", 1, "a", 1, 0, None], ["heartbeat", "", 1, "a", 1, 0, None],
        ["heartbeat", "p", -1, "a", 1, 0, None], ["heartbeat", "p", True, "a", 1, 0, None],
        ["heartbeat", "p", 1, "a" * 300, 1, 0, None], ["heartbeat", "p", 1, "a", 1.5, 0, None],
        ["heartbeat", "p", 1, "a", 2**64, 0, None], ["heartbeat", "p", 1, "a", 1, 0, 7],
        ["heartbeat", "p", 1, "a", 1, 0, None, 8], [["heartbeat"], "p", 1, "a", 1, 0, None],
    ],
    ids=repr,
)  # fmt: skip
def test_garbage_on_the_wire_is_refused(wire: object):
    with pytest.raises(ValueError, match="howl"):
        Howl.from_wire(wire)
