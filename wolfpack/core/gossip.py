"""News: what this unit still has to tell, and what of it goes into the next packet.

Each news is told `times` times. What was told least often goes first, of these the newest: when there is more than fits
each packet takes another slice. News of a unit replaces older news of the same unit. After memberlist's
`TransmitLimitedQueue`. Health goes before load.

When many die at once, a record each would fill all packets for many seconds: 2,000 deaths at seven bytes, told twenty
times, are 280 KB a unit. A bit for each unit of the base is 1,250 bytes for all of ten thousand. So beyond the size at
which bits are smaller, the deaths of a stretch of the base leave the queue, and its bits are told instead, as often as
one news. A stretch has 4,096 units, so that one always fits a packet, and three.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from wolfpack.core.items import AlphaRecord, Bitmap, LoadRecord, Record, StallVote, Writer
from wolfpack.core.membership_words import Status
from wolfpack.core.view import Member, View

STRETCH = 512  # bytes of bits
RECORD_BYTES = 7  # of a death: tag, word, number (2 or 3), boot, counter
BITMAP_BYTES = 13  # beside its bits
_MISSES = 3  # items that do not fit, before a packet counts as full


Item = TypeVar("Item")


class Queue(Generic[Item]):
    """News of one sort, at most one for each key, in tiers by how often they were told."""

    __slots__ = ("_tiers", "tier_of")

    def __init__(self) -> None:
        self._tiers: list[dict[str, Item]] = []
        self.tier_of: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.tier_of)

    def put(self, key: str, item: Item) -> None:
        self.drop(key)
        if not self._tiers:
            self._tiers.append({})
        self._tiers[0][key] = item
        self.tier_of[key] = 0

    def drop(self, key: str) -> None:
        tier = self.tier_of.pop(key, None)
        if tier is not None:
            del self._tiers[tier][key]

    def find(self, key: str) -> Item | None:
        tier = self.tier_of.get(key)
        return None if tier is None else self._tiers[tier][key]

    def fill(self, write: Callable[[Item], bool], times: int) -> int:
        """Writes what fits; returns how many. Those told `times` times are done."""
        told: list[tuple[int, str, Item]] = []
        misses = 0
        for number, tier in enumerate(self._tiers):
            for key in reversed(tier):
                item = tier[key]
                if write(item):
                    told.append((number, key, item))
                else:
                    misses += 1
                    if misses == _MISSES:
                        break
            if misses == _MISSES:
                break
        for number, key, item in told:
            del self._tiers[number][key]
            if number + 1 >= times:
                del self.tier_of[key]
                continue
            if number + 1 == len(self._tiers):
                self._tiers.append({})
            self._tiers[number + 1][key] = item
            self.tier_of[key] = number + 1
        return len(told)


class News:
    """All that this unit has to tell."""

    __slots__ = ("_bitmaps", "_dead", "_stretches", "alphas", "health", "loads", "votes")

    def __init__(self, *, bitmaps: bool) -> None:
        self.health: Queue[Record] = Queue()
        self.loads: Queue[LoadRecord] = Queue()
        self.votes: Queue[StallVote] = Queue()
        self.alphas: Queue[AlphaRecord] = Queue()
        self._bitmaps = bitmaps
        self._stretches: dict[int, int] = {}  # of the base -> so often its bits are still told
        self._dead: dict[int, set[str]] = {}  # stretch -> units whose death is in the queue

    def __bool__(self) -> bool:
        health, loads, alphas, votes = self.health, self.loads, self.alphas, self.votes
        return bool(self._stretches or health.tier_of or loads.tier_of or alphas.tier_of or votes.tier_of)

    def tell(self, record: Record, view: View, times: int) -> None:
        """This is news. Where bits that say it are on their way, they go on for as long as it should."""
        slot = view.slot_in_bits(record.unit) if self._bitmaps and record.status is Status.DEAD else None
        if slot is None:
            self.health.put(record.unit, record)
            return
        stretch = slot // (STRETCH * 8)
        if stretch in self._stretches:
            self.health.drop(record.unit)
            self._stretches[stretch] = times
            return
        self.health.put(record.unit, record)
        dead = self._dead.setdefault(stretch, set())
        dead.add(record.unit)
        size = min(STRETCH, len(view.base.dead) - stretch * STRETCH) + BITMAP_BYTES
        if len(dead) * RECORD_BYTES > size:
            dead = {unit for unit in dead if (item := self.health.find(unit)) and item.status is Status.DEAD}
            self._dead[stretch] = dead
            if len(dead) * RECORD_BYTES > size:
                for unit in dead:
                    self.health.drop(unit)
                del self._dead[stretch]
                self._stretches[stretch] = times

    def tell_deaths(self, members: Iterable[Member], view: View, times: int) -> None:
        """`tell` for units of the base whose deaths bits can tell."""
        for unit, _, boot, counter, _ in members:
            stretch = view.base.index[unit] // (STRETCH * 8)
            if stretch not in self._stretches:
                self.tell(Record(unit, boot, counter, Status.DEAD), view, times)
                continue
            self._stretches[stretch] = times
            if unit in self.health.tier_of:
                self.health.drop(unit)

    def fill(self, writer: Writer, view: View, times: int, load_times: int) -> None:
        """Health first, then load, into what is left of the packet."""
        for stretch, left in sorted(self._stretches.items(), key=lambda pair: -pair[1]):
            start = stretch * STRETCH
            if not writer.bitmap(Bitmap(view.base.digest, start, view.dead_bits(start, STRETCH))):
                break
            if left > 1:
                self._stretches[stretch] = left - 1
            else:
                del self._stretches[stretch]
        if self.health:
            self.health.fill(writer.record, times)
        elif self._dead:
            self._dead.clear()
        if self.alphas:
            self.alphas.fill(writer.alpha, times)
        if self.votes:
            self.votes.fill(writer.vote, load_times)
        if self.loads:
            self.loads.fill(writer.load, load_times)
