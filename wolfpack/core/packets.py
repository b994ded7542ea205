"""Packets: how membership looks on the wire. At most 1400 bytes each, some six to ten of them a record.

    0   'W', version, den        6 bytes: packets of other dens end here (S10)
    6   kind                     1
    7   number                   4: of the ping; an ack and a nack repeat it
    11  sender                   length, then boot, counter and name
    ..  target, whom             of PING_REQ only: an address, and the unit that must answer there (S03)
    ..  items                    until the end, see `items`

Everything that comes in may be hostile: `read_packet` raises ValueError before anything is used.
"""

from __future__ import annotations

from enum import IntEnum
from hashlib import blake2b
from typing import NamedTuple

from wolfpack.core.items import NAME_MOST, PACKET_MOST, read_text, read_varint, text_bytes, varint

SYNC_MOST = 16 << 20
_VERSION = 1
_CACHE_MOST = 1 << 17


class Kind(IntEnum):
    PING = 1
    ACK = 2
    PING_REQ = 3
    NACK = 4
    GOSSIP = 5
    # over a stream
    SYNC_ASK = 6  # digests
    SYNC_SAME = 7
    SYNC_DIGESTS = 8  # ours differ: here are more of mine
    SYNC_PUSH = 9  # my differences; send yours
    SYNC_PULL = 10  # here are mine, if yours differ still, push them
    SYNC_LAST = 11


_KINDS = {int(kind): kind for kind in Kind}


class Sender(NamedTuple):
    unit: str
    boot: int
    counter: int


class Packet(NamedTuple):
    kind: Kind
    number: int
    sender: Sender
    target: str  # of PING_REQ
    body: bytes  # where items start, for `read_items`; empty: none
    whom: str  # of PING_REQ: addresses are used again, and another unit's answer proves nothing; empty: not yet known


def den_mark(den: str) -> bytes:
    """The first six bytes of each packet of this den."""
    return b"W" + bytes((_VERSION,)) + blake2b(den.encode(), digest_size=4).digest()


def write_sender(sender: Sender) -> bytes:
    """The part of the head that changes only when the unit defends itself."""
    data = varint(sender.boot) + varint(sender.counter) + sender.unit.encode()
    if not 0 < len(sender.unit.encode()) <= NAME_MOST:
        raise ValueError(f"a unit's id has 1 to {NAME_MOST} bytes, not {len(sender.unit.encode())}")
    return bytes((len(data),)) + data


def write_head(mark: bytes, kind: Kind, number: int, sender: bytes, target: str = "", whom: str = "") -> bytes:
    head = mark + bytes((kind,)) + number.to_bytes(4, "big") + sender
    return head + text_bytes(target) + text_bytes(whom) if kind is Kind.PING_REQ else head


_senders: dict[bytes, Sender] = {}


def _read_sender(data: bytes) -> Sender:
    known = _senders.get(data)
    if known is None:
        boot, at = read_varint(data, 0)
        counter, at = read_varint(data, at)
        known = Sender(data[at:].decode(), boot, counter)
        if not 0 < len(data) - at <= NAME_MOST:
            raise ValueError("a sender without a name")
        if len(_senders) >= _CACHE_MOST:
            _senders.clear()
        _senders[data] = known
    return known


def read_packet(data: bytes, most: int = PACKET_MOST) -> Packet:
    """The head of a packet whose den is already known to be ours.

    Raises:
        ValueError: it is no packet.
    """
    size = len(data)
    if size > most:
        raise ValueError(f"a packet of {size} bytes")
    try:
        end = 12 + data[11]
        kind = _KINDS[data[6]]
        if end > size:
            raise ValueError("a packet that is cut off")
        sender = _read_sender(data[12:end])
        target = whom = ""
        if kind is Kind.PING_REQ:
            target, end = read_text(data, end)
            whom, end = read_text(data, end)
    except (IndexError, KeyError) as exc:
        raise ValueError("not a packet") from exc
    body = data[end:] if end < size else b""
    return Packet(kind, int.from_bytes(data[7:11], "big"), sender, target, body, whom)
