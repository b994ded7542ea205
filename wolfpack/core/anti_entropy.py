"""Anti-entropy: two units compare their whole views over a stream, digests first, then differences.

    asker                                    answerer
    ASK digest, base               ->
                                   <-        SAME                       nothing differs
                                   <-        PULL its differences       both rest on one base, or the den is small
                                   <-        DIGESTS one for each bucket
    PUSH my differences            ->                                   after a PULL that left something to say
    PUSH my buckets that differ    ->
                                   <-        LAST its buckets that differ, after it took in mine

A digest covers who lives; differences hold the dead that are remembered too, and the loads. A bucket is a share of all
units by the hash of their ids: with sixteen units in each, one difference costs sixteen records and not ten thousand.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from wolfpack.core.items import AlphaRecord, Bitmap, Items, LoadRecord, Record, Writer, read_items
from wolfpack.core.loads import Loads
from wolfpack.core.packets import SYNC_MOST, Kind, Sender, read_packet, write_head
from wolfpack.core.view import Member, View, member_hash, name_hash
from wolfpack.model import natural_key

SMALL = 64  # units: everything is said at once
_UNITS_A_BUCKET = 16
_BUCKETS_MOST = 4096


class Scope(IntEnum):
    """What the items of a message cover."""

    ALL = 0
    SINCE_BASE = 1  # what differs from the base that both rest on
    BUCKETS = 2


class Message(NamedTuple):
    kind: Kind
    sender: Sender
    address: str
    digest: int
    base: int
    scope: Scope
    wanted: frozenset[int]  # buckets
    buckets: int  # how many there are
    digests: tuple[int, ...]
    items: Items


def bucket_count(n: int) -> int:
    """A power of two, so that about sixteen units share a bucket."""
    return min(_BUCKETS_MOST, 1 << max(0, (n // _UNITS_A_BUCKET).bit_length()))


def bucket_digests(view: View, buckets: int) -> tuple[int, ...]:
    """32 bits of who lives in each bucket."""
    digests = [0] * buckets
    for unit, _, boot, counter, status in view:
        if status <= 1:
            digests[name_hash(unit) % buckets] ^= member_hash(unit, boot, counter, 0)
    return tuple(digest & 0xFFFFFFFF for digest in digests)


def write_message(
    mark: bytes, sender: bytes, address: str, view: View, kind: Kind, *, loads: Loads | None = None,
    alphas: Iterable[AlphaRecord] = (),
    scope: Scope = Scope.ALL, buckets: int = 1, wanted: frozenset[int] = frozenset(),
) -> bytes:  # fmt: skip
    """Any message of a sync. With `loads` it has items: what `scope` and `wanted` cover."""
    place = address.encode()
    head = [write_head(mark, kind, 0, sender), len(place).to_bytes(1, "big"), place, view.digest.to_bytes(8, "big")]
    head += [view.base.digest.to_bytes(8, "big"), bytes((scope,)), buckets.to_bytes(2, "big")]
    if kind is Kind.SYNC_DIGESTS:
        head += [digest.to_bytes(4, "big") for digest in bucket_digests(view, buckets)]
    elif scope is Scope.BUCKETS:
        head.append(sum(1 << bucket for bucket in wanted).to_bytes((buckets + 7) // 8, "little"))
    writer = Writer(b"".join(head), SYNC_MOST)
    if loads is not None:
        for alpha in alphas:
            writer.alpha(alpha)
        for member in _covered(view, scope, buckets, wanted):
            writer.record(record_of(member))
        if scope is Scope.SINCE_BASE and view.base.members:
            writer.bitmap(Bitmap(view.base.digest, 0, view.dead_bits()))
        for unit, heard in sorted(loads.known.items(), key=lambda pair: natural_key(pair[0])):
            if scope is not Scope.BUCKETS or name_hash(unit) % buckets in wanted:
                writer.load(LoadRecord(unit, heard.boot, heard.load))
    return writer.done()


def _covered(view: View, scope: Scope, buckets: int, wanted: frozenset[int]) -> list[Member]:
    match scope:
        case Scope.ALL:
            return list(view)
        case Scope.SINCE_BASE:
            suspects = [member for unit in view.suspects if (member := view.get(unit)) is not None]
            return view.changes() + [member for member in suspects if member.unit in view.base.index]
        case Scope.BUCKETS:
            return [member for member in view if name_hash(member.unit) % buckets in wanted]


def record_of(member: Member) -> Record:
    """All that is thought of a unit, with its address."""
    return Record(member.unit, member.boot, member.counter, member.status, None, member.address or None)


def read_message(data: bytes) -> Message:
    """Reads what `write_message` wrote.

    Raises:
        ValueError: it is anything else.
    """
    packet = read_packet(data, SYNC_MOST)
    body = packet.body
    if packet.kind < Kind.SYNC_ASK:
        raise ValueError("a packet, and no message of a sync")
    try:
        at = 1 + body[0]
        address = body[1:at].decode()
        digest, base = int.from_bytes(body[at : at + 8], "big"), int.from_bytes(body[at + 8 : at + 16], "big")
        scope = Scope(body[at + 16])
        buckets = int.from_bytes(body[at + 17 : at + 19], "big")
        at += 19
    except IndexError as exc:
        raise ValueError("a message that is cut off") from exc
    if not 0 < buckets <= _BUCKETS_MOST or not address or at > len(body):
        raise ValueError("a message without buckets or address")
    digests: tuple[int, ...] = ()
    wanted: frozenset[int] = frozenset()
    size = 4 * buckets if packet.kind is Kind.SYNC_DIGESTS else (buckets + 7) // 8 if scope is Scope.BUCKETS else 0
    if at + size > len(body):
        raise ValueError("a message that is cut off")
    if packet.kind is Kind.SYNC_DIGESTS:
        digests = tuple(int.from_bytes(body[at + 4 * i : at + 4 * i + 4], "big") for i in range(buckets))
    elif scope is Scope.BUCKETS:
        bits = int.from_bytes(body[at : at + size], "little")
        wanted = frozenset(bucket for bucket in range(buckets) if bits >> bucket & 1)
    items = read_items(body[at + size :])
    return Message(packet.kind, packet.sender, address, digest, base, scope, wanted, buckets, digests, items)
