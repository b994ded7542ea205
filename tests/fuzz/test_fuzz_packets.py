"""Packets of any bytes are refused or taken, and nobody stops because of one."""

from __future__ import annotations

import contextlib
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.fuzzer import campaign, deep
from tests.fuzz.membership import Packets
from tests.fuzz.packets import HOWL, ME, MESSAGES, Howls, Messages, pack_any
from wolfpack.core import wire
from wolfpack.core.howls import TERMS_AHEAD, Howl
from wolfpack.core.succession import Succession
from wolfpack.core.succession_words import Heard
from wolfpack.errors import Malformed
from wolfpack.model import Timing, natural_key

INPUTS = 1000

SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary()
VALUES = st.recursive(
    SCALARS, lambda part: st.lists(part, max_size=12) | st.dictionaries(SCALARS, part, max_size=3), max_leaves=30
)


@pytest.mark.parametrize("door", [Messages(), Howls()], ids=lambda door: door.name)
def test_spoiled_packets_are_refused_or_taken_and_counted(door: Messages | Howls) -> None:
    tally = campaign(door, 1, inputs=INPUTS)
    print(tally)
    assert not tally.failures, tally.told()
    assert tally.refused + tally.accepted == INPUTS
    assert min(tally.refused, tally.accepted) > 100


@given(st.sampled_from(list(MESSAGES)), st.binary(max_size=80) | VALUES.map(pack_any))
def test_whatever_the_bytes_are_a_reader_refuses_them_or_reads_them(kind: str, data: bytes) -> None:
    with contextlib.suppress(Malformed):
        MESSAGES[kind][1](data)


@given(st.data())
def test_a_message_with_one_field_of_another_type_is_refused_or_read(data: st.DataObject) -> None:
    message, read = MESSAGES[data.draw(st.sampled_from(list(MESSAGES)))]
    fields = list(message)
    fields[data.draw(st.integers(0, len(fields) - 1))] = data.draw(VALUES)
    with contextlib.suppress(Malformed):
        read(pack_any(tuple(fields)))


def test_S38_spoiled_packets_of_membership_are_counted_and_no_living_unit_is_given_up() -> None:
    tally = campaign(Packets(), 1, inputs=8)
    print(tally)
    assert not tally.failures, tally.told()
    assert tally.refused > 4


@pytest.mark.parametrize("kind", list(MESSAGES))
@pytest.mark.parametrize("levels", [100, 900, 10_000])
def test_messages_nested_deeply_are_refused(kind: str, levels: int) -> None:
    data = b"\x91" * levels + b"\xc0"
    with pytest.raises(Malformed):
        MESSAGES[kind][1](data)
    with pytest.raises(Malformed):
        MESSAGES[kind][1](pack_any(deep(min(levels, 400))))


@pytest.mark.parametrize("kind", list(MESSAGES))
def test_a_list_that_claims_more_than_it_holds_takes_no_memory(kind: str) -> None:
    for head in (b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdb\x7f\xff\xff\xff"):
        with pytest.raises(Malformed, match="not a message"):
            MESSAGES[kind][1](head)


def test_a_text_that_is_no_utf8_travels() -> None:
    text = "No such file: caf\udce9"
    assert (text,) == wire.unpack(wire.pack((text,)))


@pytest.mark.parametrize("name", ["²", "grey-²", "٣", "٣²", "\ud800", "1" * 250])
def test_any_name_has_a_place_in_the_order_of_names(name: str) -> None:
    assert natural_key(name) == natural_key(name)
    assert isinstance(natural_key(name) < natural_key("grey-1"), bool)


def member() -> Succession:
    return Succession(
        me=ME, pack="p", timing=Timing(), rng=random.Random(1), now=0.0, term=3, alpha="grey-0", alpha_boot=1
    )


@pytest.mark.parametrize("kind", ["heartbeat", "coordinator", "ok", "stale", "election", "handover"])
def test_S38_a_howl_with_a_term_that_was_never_granted_moves_nobody(kind: str) -> None:
    one = member()
    wild = HOWL.to_wire()
    wild[0], wild[2] = kind, 3 + TERMS_AHEAD + 1
    one.step(0.1, Heard(howl=Howl.from_wire(wild)))
    assert (3, "grey-0") == (one.term, one.alpha)


def test_S38_after_a_poisoned_howl_the_next_good_one_is_heard() -> None:
    one = member()
    for poison in (b"", b"\xc1", wire.pack(["heartbeat"] * 7), wire.pack(["heartbeat", "p", 2**63, "x", 1, 0, None])):
        with pytest.raises(Malformed):
            Howl.from_wire(wire.unpack(poison))
    good = HOWL.to_wire()
    good[2] = 4
    one.step(0.1, Heard(howl=Howl.from_wire(wire.unpack(wire.pack(good)))))
    assert (4, "grey-2") == (one.term, one.alpha)
