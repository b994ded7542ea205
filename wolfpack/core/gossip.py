"""News: what this unit still has to tell, and what of it goes into the next packet.

Each news is told `times` times. What was told least often goes first, of these the newest: when there is more than fits
each packet takes another slice. News of a unit replaces older news of the same unit. After memberlist's
`TransmitLimitedQueue`. Health goes before load.

When many die at once, a record each would fill all packets for many seconds: 2,000 deaths at seven bytes, told twenty
times, are 280 KB a unit. A bit for each unit of the base is 1,250 bytes for all of ten thousand. So beyond the size at
which the bitmap is smaller, deaths leave the queue and the bitmap is told instead, as often as one news.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from wolfpack.core.membership_words import Status
from wolfpack.core.packets import Bitmap, LoadRecord, Record, StallVote, Writer
from wolfpack.core.view import View

RECORD_BYTES = 7  # of a death: tag, word, number (2 or 3), boot, counter
BITMAP_BYTES = 12  # beside its bits
_MISSES = 3  # items that do not fit, before a packet counts as full


class _About(Protocol):
    @property
    def unit(self) -> str: ...


Item = TypeVar("Item", bound=_About)


class Queue(Generic[Item]):
    """News of one sort, at most one of each unit, in tiers by how often they were told."""

    __slots__ = ("_tier_of", "_tiers")

    def __init__(self) -> None:
        self._tiers: list[dict[str, Item]] = []
        self._tier_of: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._tier_of)

    def put(self, item: Item) -> None:
        self.drop(item.unit)
        if not self._tiers:
            self._tiers.append({})
        self._tiers[0][item.unit] = item
        self._tier_of[item.unit] = 0

    def drop(self, unit: str) -> None:
        tier = self._tier_of.pop(unit, None)
        if tier is not None:
            del self._tiers[tier][unit]

    def find(self, unit: str) -> Item | None:
        tier = self._tier_of.get(unit)
        return None if tier is None else self._tiers[tier][unit]

    def fill(self, write: Callable[[Item], bool], times: int) -> int:
        """Writes what fits; returns how many. Those told `times` times are done."""
        told: list[tuple[int, Item]] = []
        misses = 0
        for number, tier in enumerate(self._tiers):
            for item in reversed(tier.values()):
                if write(item):
                    told.append((number, item))
                else:
                    misses += 1
                    if misses == _MISSES:
                        break
            if misses == _MISSES:
                break
        for number, item in told:
            del self._tiers[number][item.unit]
            if number + 1 >= times:
                del self._tier_of[item.unit]
                continue
            if number + 1 == len(self._tiers):
                self._tiers.append({})
            self._tiers[number + 1][item.unit] = item
            self._tier_of[item.unit] = number + 1
        return len(told)


class News:
    """All that this unit has to tell."""

    __slots__ = ("_bitmap_left", "_bitmaps", "_dead", "health", "loads", "votes")

    def __init__(self, *, bitmaps: bool) -> None:
        self.health: Queue[Record] = Queue()
        self.loads: Queue[LoadRecord] = Queue()
        self.votes: Queue[StallVote] = Queue()
        self._bitmaps = bitmaps
        self._bitmap_left = 0  # so often the bitmap is still told
        self._dead: set[str] = set()  # units whose death is in the queue

    def __bool__(self) -> bool:
        return bool(self._bitmap_left or self.health or self.loads or self.votes)

    @property
    def urgent(self) -> bool:
        """Whether there is news of somebody's health."""
        return bool(self._bitmap_left or self.health)

    def tell(self, record: Record, view: View, times: int) -> None:
        """This is news; when the bitmap is on its way and says it too, it goes on for as long."""
        dies = record.status is Status.DEAD and view.in_bits(record.unit)
        if dies and self._bitmap_left:
            self.health.drop(record.unit)
            self._dead.discard(record.unit)
            self._bitmap_left = times
            return
        self.health.put(record)
        if not dies:
            self._dead.discard(record.unit)
            return
        self._dead.add(record.unit)
        if self._bitmaps and len(self._dead) * RECORD_BYTES > len(view.base.dead) + BITMAP_BYTES:
            self._dead = {unit for unit in self._dead if self.health.find(unit) is not None}
            if len(self._dead) * RECORD_BYTES > len(view.base.dead) + BITMAP_BYTES:
                for unit in self._dead:
                    self.health.drop(unit)
                self._dead.clear()
                self._bitmap_left = times

    def drop(self, unit: str) -> None:
        self.health.drop(unit)
        self.loads.drop(unit)
        self.votes.drop(unit)

    def fill(self, writer: Writer, view: View, times: int, load_times: int) -> None:
        """Health first, then load, into what is left of the packet."""
        if self._bitmap_left and writer.bitmap(Bitmap(view.base.digest, view.dead_bits)):
            self._bitmap_left -= 1
        if self.health:
            self.health.fill(writer.record, times)
        if self.votes:
            self.votes.fill(writer.vote, load_times)
        if self.loads:
            self.loads.fill(writer.load, load_times)
