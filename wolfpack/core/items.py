"""Items: the records inside packets and syncs, how they are written and how they are read.

An item is a record (what is thought of one unit), a load, a stall vote, an alpha, a bitmap of the dead, or a word. Unit
ids are mostly a word and a number (`grey-17`), so a packet says each word once and then refers to it: `grey-17` is two
bytes. Numbers are LEB128 varints. A bitmap counts in the order of a base that it names, and says nothing to those who
hold another one.

Everything that comes in may be hostile: `read_items` raises ValueError before anything is used.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from typing import NamedTuple

from wolfpack.core.membership_words import Load, Status

PACKET_MOST = 1400
NAME_MOST = 200  # bytes of an id
NUMBER_MOST = 2**63 - 1
BUDGETS_MOST = 16
_CACHE_MOST = 1 << 17
_LITERAL = 255  # instead of a word's number: the id follows in full

_RECORD, _LOAD, _WORD, _BITMAP = 0x00, 0x40, 0x80, 0xC0  # the two highest bits of an item
_HAS_ADDRESS, _NAMED_ADDRESS, _HAS_ACCUSER = 0x20, 0x10, 0x08
_ALPHA = 0x20  # on a word: who leads a pack instead
_VOTE = 0x20  # on a load: a stall vote instead
_STATUSES = tuple(Status)
_SPLIT = re.compile(r"(.*?)(0|[1-9][0-9]{0,14})?", re.DOTALL | re.ASCII)
_FLOAT = struct.Struct(">d")


class Record(NamedTuple):
    """What a unit thinks of another; `accuser` of a SUSPECT found out itself. No address: None."""

    unit: str
    boot: int
    counter: int
    status: Status
    accuser: str | None = None
    address: str | None = None


class LoadRecord(NamedTuple):
    unit: str
    boot: int
    load: Load


class StallVote(NamedTuple):
    """`witness` heard from this unit itself, and sees it busy without progress."""

    unit: str
    boot: int
    progress: int
    witness: str


class AlphaRecord(NamedTuple):
    pack: str
    term: int
    alpha: str
    boot: int


class Bitmap(NamedTuple):
    """A bit for each unit of this base from number 8 * `start` on: DEAD in the incarnation that the base has."""

    base: int
    start: int
    bits: bytes


class Items(NamedTuple):
    records: list[Record]
    loads: list[LoadRecord]
    votes: list[StallVote]
    alphas: list[AlphaRecord]
    bitmaps: list[Bitmap]


# --- numbers and names --------------------------------------------------------------------------------------------

_SMALL = tuple(bytes((value,)) for value in range(128))


def varint(value: int) -> bytes:
    if value < 128:
        return _SMALL[value]
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    at += 1
    if byte < 128:
        return byte, at
    value, shift = byte & 127, 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than ten bytes")
    if value > NUMBER_MOST:
        raise ValueError("a number beyond 63 bits")
    return value, at


def text_bytes(value: str) -> bytes:
    data = value.encode()
    if len(data) > 255:
        raise ValueError(f"a name or address of {len(data)} bytes; at most 255")
    return bytes((len(data),)) + data


def is_address(value: str) -> bool:
    """Whether packets can pass this on: 1 to 255 bytes of UTF-8."""
    try:
        return 0 < len(value.encode()) <= 255
    except UnicodeEncodeError:  # a lone surrogate
        return False


def read_text(data: bytes, at: int) -> tuple[str, int]:
    size = data[at]
    end = at + 1 + size
    if end > len(data):
        raise ValueError("a text that is cut off")
    return data[at + 1 : end].decode(), end


_splits: dict[str, tuple[str, bytes]] = {}


def _split(unit: str) -> tuple[str, bytes]:
    """An id as its word and its number (plus one; 0: it ends with no number)."""
    known = _splits.get(unit)
    if known is None:
        if len(_splits) >= _CACHE_MOST:
            _splits.clear()
        match = _SPLIT.fullmatch(unit)
        assert match is not None, "the pattern fits any text"
        word, number = match[1], match[2]
        known = _splits[unit] = (word, varint(int(number) + 1) if number is not None else b"\x00")
    return known


# --- writing -------------------------------------------------------------------------------------------------------


class Writer:
    """Fills one packet with items, as long as they fit."""

    __slots__ = ("_left", "_parts", "_words")

    def __init__(self, head: bytes, most: int = PACKET_MOST) -> None:
        self._parts = [head]
        self._left = most - len(head)
        self._words: dict[str, int] = {}

    @property
    def left(self) -> int:
        return self._left

    def done(self) -> bytes:
        return b"".join(self._parts)

    def record(self, record: Record) -> bool:
        """Whether it fitted."""
        unit, boot, counter, status, accuser, address = record
        tag = _RECORD | status
        words: list[bytes] = []
        name = self._name(unit, words)
        tail = varint(boot) + varint(counter)
        if accuser is not None:
            tag |= _HAS_ACCUSER
            tail += self._name(accuser, words)
        if address is not None:
            if address == unit:
                tag |= _NAMED_ADDRESS
            else:
                tag |= _HAS_ADDRESS
                tail += text_bytes(address)
        return self._add(words, _byte(tag) + name + tail)

    def load(self, record: LoadRecord) -> bool:
        unit, boot, load = record
        words: list[bytes] = []
        numbers = (boot, load.seq, load.leases, load.queued, load.capacity, load.progress)
        data = _byte(_LOAD | len(load.budgets)) + self._name(unit, words) + b"".join(map(varint, numbers))
        for name, left in load.budgets:
            data += text_bytes(name) + _FLOAT.pack(left)
        return self._add(words, data)

    def vote(self, vote: StallVote) -> bool:
        words: list[bytes] = []
        data = self._name(vote.unit, words) + varint(vote.boot) + varint(vote.progress)
        return self._add(words, _byte(_LOAD | _VOTE) + data + self._name(vote.witness, words))

    def alpha(self, alpha: AlphaRecord) -> bool:
        words: list[bytes] = []
        data = _byte(_WORD | _ALPHA) + text_bytes(alpha.pack) + varint(alpha.term)
        return self._add(words, data + self._name(alpha.alpha, words) + varint(alpha.boot))

    def bitmap(self, bitmap: Bitmap) -> bool:
        base, start, bits = bitmap
        data = _byte(_BITMAP) + base.to_bytes(8, "big") + varint(start) + varint(len(bits)) + bits
        return self._add([], data)

    def _add(self, words: list[bytes], data: bytes) -> bool:
        size = len(data) + sum(map(len, words))
        if size > self._left:
            for word in list(self._words)[len(self._words) - len(words) :]:
                del self._words[word]
            return False
        self._left -= size
        self._parts += words
        self._parts.append(data)
        return True

    def _name(self, unit: str, words: list[bytes]) -> bytes:
        word, number = _split(unit)
        at = self._words.get(word)
        if at is None:
            at = len(self._words)
            if at >= _LITERAL:
                return _byte(_LITERAL) + text_bytes(unit)
            words.append(_byte(_WORD) + text_bytes(word))
            self._words[word] = at
        return _byte(at) + number


_BYTES = tuple(bytes((value,)) for value in range(256))
_byte: Callable[[int], bytes] = _BYTES.__getitem__


# --- reading -------------------------------------------------------------------------------------------------------


def read_items(data: bytes) -> Items:
    """All items, or none.

    Raises:
        ValueError: one of them is malformed.
    """
    items = Items([], [], [], [], [])
    words: list[str] = []
    at, size = 0, len(data)
    try:
        while at < size:
            tag = data[at]
            match tag & 0xC0:
                case 0x00:
                    record, at = _read_record(data, at, words)
                    items.records.append(record)
                case 0x40 if tag & _VOTE:
                    vote, at = _read_vote(data, at, words)
                    items.votes.append(vote)
                case 0x40:
                    load, at = _read_load(data, at, words)
                    items.loads.append(load)
                case 0x80 if tag & _ALPHA:
                    alpha, at = _read_alpha(data, at, words)
                    items.alphas.append(alpha)
                case 0x80:
                    word, at = read_text(data, at + 1)
                    words.append(word)
                    if len(words) > _LITERAL:
                        raise ValueError("too many words")
                case _:
                    bitmap, at = _read_bitmap(data, at)
                    items.bitmaps.append(bitmap)
    except IndexError as exc:
        raise ValueError("an item that is cut off") from exc
    return items


def _read_name(data: bytes, at: int, words: list[str]) -> tuple[str, int]:
    word = data[at]
    if word == _LITERAL:
        unit, at = read_text(data, at + 1)
    else:
        number, at = read_varint(data, at + 1)
        unit = f"{words[word]}{number - 1}" if number else words[word]
    if not unit or (len(unit) > NAME_MOST // 4 and len(unit.encode()) > NAME_MOST):
        raise ValueError("a unit without a name, or with a long one: nobody could pass it on")
    return unit, at


def _read_record(data: bytes, at: int, words: list[str]) -> tuple[Record, int]:
    tag = data[at]
    if tag & 0x04:
        raise ValueError("an unknown mark on a record")
    unit, at = _read_name(data, at + 1, words)
    boot, at = read_varint(data, at)
    counter, at = read_varint(data, at)
    accuser = address = None
    if tag & _HAS_ACCUSER:
        accuser, at = _read_name(data, at, words)
    if tag & _NAMED_ADDRESS:
        address = unit
    elif tag & _HAS_ADDRESS:
        address, at = read_text(data, at)
    return Record(unit, boot, counter, _STATUSES[tag & 3], accuser, address), at


def _read_load(data: bytes, at: int, words: list[str]) -> tuple[LoadRecord, int]:
    count = data[at] & 0x1F
    if count > BUDGETS_MOST:
        raise ValueError("too many budgets")
    unit, at = _read_name(data, at + 1, words)
    numbers = []
    for _ in range(6):
        number, at = read_varint(data, at)
        numbers.append(number)
    budgets = []
    for _ in range(count):
        name, at = read_text(data, at)
        if at + 8 > len(data):
            raise ValueError("a budget that is cut off")
        (left,) = _FLOAT.unpack_from(data, at)
        if not math.isfinite(left):
            raise ValueError("a budget that is no number")
        budgets.append((name, left))
        at += 8
    boot, seq, leases, queued, capacity, progress = numbers
    return LoadRecord(unit, boot, Load(seq, leases, queued, capacity, progress, tuple(budgets))), at


def _read_vote(data: bytes, at: int, words: list[str]) -> tuple[StallVote, int]:
    unit, at = _read_name(data, at + 1, words)
    boot, at = read_varint(data, at)
    progress, at = read_varint(data, at)
    witness, at = _read_name(data, at, words)
    return StallVote(unit, boot, progress, witness), at


def _read_alpha(data: bytes, at: int, words: list[str]) -> tuple[AlphaRecord, int]:
    pack, at = read_text(data, at + 1)
    term, at = read_varint(data, at)
    alpha, at = _read_name(data, at, words)
    boot, at = read_varint(data, at)
    if not pack or len(pack.encode()) > NAME_MOST:
        raise ValueError("a pack without a name, or with a long one")
    return AlphaRecord(pack, term, alpha, boot), at


def _read_bitmap(data: bytes, at: int) -> tuple[Bitmap, int]:
    base = int.from_bytes(data[at + 1 : at + 9], "big")
    start, at = read_varint(data, at + 9)
    size, at = read_varint(data, at)
    end = at + size
    if end > len(data):
        raise ValueError("a bitmap that is cut off")
    return Bitmap(base, start, data[at:end]), end
