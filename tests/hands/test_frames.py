import pytest

from wolfpack.den.frames import BrokenFrame, Decoder, encode

MESSAGES = [["jobs", 1, [[1, "c:1", b""]]], [7, 1.5, b"x" * 300], [], ["publish", "a", "{}"]]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 64, 10_000])
def test_messages_come_out_whole_however_the_stream_is_cut(size):
    stream = b"".join(map(encode, MESSAGES))
    decoder = Decoder()

    got = [message for at in range(0, len(stream), size) for message in decoder.feed(stream[at : at + size])]

    assert MESSAGES == got


def test_a_frame_above_the_limit_is_refused_before_its_body_arrives():
    with pytest.raises(BrokenFrame, match="4,294,967,295"):
        Decoder(max_bytes=1000).feed(b"\xff\xff\xff\xff")


def test_a_message_above_the_limit_is_not_sent():
    with pytest.raises(BrokenFrame, match="above the 10 bytes"):
        encode([b"x" * 20], max_bytes=10)


@pytest.mark.parametrize("body", [b"\xc1", b"\x01", b"\x93\x01"])
def test_a_body_that_is_no_list_is_broken(body):
    with pytest.raises(BrokenFrame):
        Decoder().feed(len(body).to_bytes(4, "big") + body)
