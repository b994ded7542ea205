"""What is written is read; what is read and was not written raises ValueError and nothing else."""

from __future__ import annotations

import contextlib
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wolfpack.core.anti_entropy import read_message
from wolfpack.core.items import (
    NAME_MOST,
    NUMBER_MOST,
    PACKET_MOST,
    AlphaRecord,
    Bitmap,
    LoadRecord,
    Record,
    StallVote,
    Writer,
    read_items,
    varint,
)
from wolfpack.core.membership_words import Load, Status
from wolfpack.core.packets import Kind, Sender, den_mark, read_packet, write_head, write_sender

MARK = den_mark("timber")
ME = write_sender(Sender("grey-1", 3, 4))
HEAD = write_head(MARK, Kind.GOSSIP, 0, ME)


def filled(*items) -> Writer:
    writer = Writer(HEAD)
    write = {
        Record: writer.record, LoadRecord: writer.load, StallVote: writer.vote, AlphaRecord: writer.alpha,
        Bitmap: writer.bitmap,
    }  # fmt: skip
    for item in items:
        assert write[type(item)](item)
    return writer


def sizes(*records: Record) -> list[int]:
    writer, found = Writer(HEAD), []
    for record in records:
        before = writer.left
        assert writer.record(record)
        found.append(before - writer.left)
    return found


def test_an_idle_ping_of_a_short_name_is_twenty_bytes():
    data = write_head(MARK, Kind.PING, 7, ME)
    assert len(data) == 20
    assert read_packet(data) == (Kind.PING, 7, Sender("grey-1", 3, 4), "", b"", "")


def test_a_ping_request_names_its_target_and_who_must_answer_there():
    data = write_head(MARK, Kind.PING_REQ, 2**32 - 1, ME, "10.0.0.7:4000", "grey-9")
    assert read_packet(data) == (Kind.PING_REQ, 2**32 - 1, Sender("grey-1", 3, 4), "10.0.0.7:4000", b"", "grey-9")


def test_a_record_takes_at_most_ten_bytes_once_its_word_is_said():
    died = [Record(f"grey-{i}", 3, 2, Status.DEAD) for i in range(9000, 9100)]
    accused = [Record(f"grey-{i}", 3, 2, Status.SUSPECT, "grey-4711") for i in range(9100, 9200)]
    assert max(sizes(*died)[1:]) == 6
    assert max(sizes(*accused)[1:]) == 9


def test_what_does_not_fit_leaves_the_packet_as_it_was():
    writer = Writer(HEAD)
    i = 0
    while writer.record(Record(f"word{i}x-5", 1, 0, Status.DEAD)):
        i += 1
    data = writer.done()
    assert PACKET_MOST - 20 < len(data) <= PACKET_MOST
    assert [r.unit for r in read_items(read_packet(data).body).records] == [f"word{j}x-5" for j in range(i)]
    assert not writer.record(Record(f"word{i}x-5", 1, 0, Status.DEAD))
    assert writer.done() == data


def test_more_words_than_a_byte_can_name_are_written_in_full():
    writer = Writer(HEAD, 1 << 16)
    records = [Record(f"word{i}x", 1, 0, Status.LEFT) for i in range(300)]
    assert all(map(writer.record, records))
    assert read_items(read_packet(writer.done(), 1 << 16).body).records == records


@pytest.mark.parametrize(
    "unit", ["grey-0", "grey-007", "grey-10", "7", "007", "a", "grey-", "x" + "9" * 40, "wölfe-3", "0", "00", "a\n5"]
)
def test_every_name_comes_back_as_it_was(unit):
    record = Record(unit, 0, 0, Status.ALIVE, None, unit)
    assert read_items(read_packet(filled(record).done()).body).records == [record]


def test_a_name_nobody_could_pass_on_is_refused():
    with pytest.raises(ValueError, match="bytes"):
        write_sender(Sender("x" * (NAME_MOST + 1), 1, 0))
    word = b"\x80" + bytes((NAME_MOST,)) + b"y" * NAME_MOST
    with pytest.raises(ValueError, match="long"):
        read_items(word + b"\x00\x00" + varint(7) + b"\x01\x01")


def test_a_number_beyond_63_bits_is_refused():
    assert read_items(b"\x80\x01a\x00\x00\x00" + varint(NUMBER_MOST) + b"\x01").records[0].boot == NUMBER_MOST
    with pytest.raises(ValueError, match="63 bits"):
        read_items(b"\x80\x01a\x00\x00\x00" + varint(NUMBER_MOST + 1) + b"\x01")


names = st.from_regex(r"[a-z]{1,6}-?[0-9]{0,4}", fullmatch=True) | st.text("aä7", min_size=1, max_size=20)
numbers = st.integers(0, NUMBER_MOST)
short = st.integers(0, 1 << 20)
loads = st.builds(
    Load,
    numbers,
    short,
    short,
    short,
    numbers,
    st.lists(st.tuples(names, st.floats(allow_nan=False, allow_infinity=False)), max_size=4).map(tuple),
)
items = st.one_of(
    st.builds(Record, names, numbers, numbers, st.sampled_from(Status), st.none() | names, st.none() | names),
    st.builds(LoadRecord, names, numbers, loads), st.builds(StallVote, names, numbers, numbers, names),
    st.builds(AlphaRecord, names, numbers, names, numbers),
    st.builds(Bitmap, st.integers(0, 2**64 - 1), short, st.binary(max_size=90)),
)  # fmt: skip


@settings(max_examples=120, deadline=None)
@given(st.lists(items, max_size=30))
def test_I11_whatever_is_written_fits_1400_bytes_and_is_read_back(wanted):
    writer = Writer(HEAD)
    write = {
        Record: writer.record, LoadRecord: writer.load, StallVote: writer.vote, AlphaRecord: writer.alpha,
        Bitmap: writer.bitmap,
    }  # fmt: skip
    written = [item for item in wanted if write[type(item)](item)]
    data = writer.done()
    assert len(data) <= PACKET_MOST
    assert len(data) + writer.left == PACKET_MOST
    found = read_items(read_packet(data).body)
    for kind, got in zip((Record, LoadRecord, StallVote, AlphaRecord, Bitmap), found, strict=True):
        assert got == [item for item in written if type(item) is kind]


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200))
def test_S38_any_bytes_are_read_or_refused(data):
    for read in (read_items, read_packet, read_message):
        with contextlib.suppress(ValueError):
            read(data)


def mutated(rng: random.Random, data: bytes) -> bytes:
    """A packet with a few bytes changed, cut, doubled or put in."""
    out = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(out)) if out else 0
        match rng.randrange(5):
            case 0 if out:
                out[at] = rng.randrange(256)
            case 1 if out:
                out[at] ^= 1 << rng.randrange(8)
            case 2:
                del out[at:]
            case 3:
                out[at:at] = rng.randbytes(rng.randrange(1, 9))
            case _:
                out += out[at:]
    return bytes(out)


def test_S38_twenty_thousand_mutated_packets_are_read_or_refused_within_seconds():
    rng = random.Random(7)
    good = [
        write_head(MARK, Kind.PING, 7, ME), write_head(MARK, Kind.PING_REQ, 7, ME, "10.0.0.7:4000"),
        filled(*[Record(f"grey-{i}", 3, 2, Status(i % 4), f"u{i}", f"a{i}:1") for i in range(12)]).done(),
        filled(LoadRecord("grey-5", 3, Load(5, 6, 7, 8, 9, (("gpu", 0.5), ("tokens", 7.0))))).done(),
        filled(StallVote("grey-1", 2, 3, "grey-2"), AlphaRecord("p", 4, "grey-1", 3), Bitmap(1, 2, b"abc")).done(),
    ]  # fmt: skip
    read = refused = 0
    started = time.process_time()
    for i in range(20_000):
        data = mutated(rng, good[i % len(good)])
        try:
            packet = read_packet(data)
            read_items(packet.body)
            read += 1
        except ValueError:
            refused += 1
    assert read + refused == 20_000
    assert min(read, refused) > 2_000  # both happen, or the mutations are no test
    assert time.process_time() - started < 5.0
