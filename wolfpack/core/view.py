"""What one unit thinks of all: a base that many views share, and the differences from it.

Ten thousand full views are a hundred million entries. Units agree nearly always, so a view is an immutable `Base` (one
object for all views that started from it) and what differs: a bit a unit for SUSPECT and for DEAD, since a mass death
changes thousands of entries at once, and a record for every other change (a new unit, a new boot, a refutation).

Two numbers are kept up to date by each change. `digest` is the XOR of one hash for each unit that is thought to live,
so that two units compare their whole views by eight bytes; the dead do not count, whether remembered or forgotten, and
nor does suspicion, which passes. `base.digest` names a base: who holds the same one can talk in bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import NamedTuple
from weakref import WeakValueDictionary

from wolfpack.core.membership_words import Incarnation, Status
from wolfpack.model import natural_key

_MASK = (1 << 64) - 1
_BITS = tuple(1 << bit for bit in range(8))
_HASHES_MOST = 1 << 17

_hashes: dict[str, int] = {}


class Member(NamedTuple):
    """What is thought of one unit. `address` is "" where nobody told it yet."""

    unit: str
    address: str
    boot: int
    counter: int = 0
    status: Status = Status.ALIVE

    @property
    def incarnation(self) -> Incarnation:
        return Incarnation(self.boot, self.counter)

    @property
    def lives(self) -> bool:
        return self.status <= Status.SUSPECT

    @property
    def standing(self) -> tuple[int, int, int]:
        """What only moves up (I10): a later incarnation beats every status of an older one."""
        return (self.boot, self.counter, self.status)


def name_hash(unit: str) -> int:
    """64 bits of a name, the same in every process."""
    known = _hashes.get(unit)
    if known is None:
        if len(_hashes) >= _HASHES_MOST:
            _hashes.clear()
        known = _hashes[unit] = int.from_bytes(blake2b(unit.encode(), digest_size=8).digest(), "big")
    return known


def member_hash(unit: str, boot: int, counter: int, status: int) -> int:
    """64 bits of one entry: the name's hash stirred with the rest as SplitMix64 does (Steele 2014)."""
    mixed = name_hash(unit) + boot * 0x9E3779B97F4A7C15 + counter * 0xC2B2AE3D27D4EB4F + status * 0x165667B19E3779F9
    mixed &= _MASK
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB & _MASK
    return mixed ^ (mixed >> 31)


def _entry_hash(member: Member) -> int:
    """64 bits of all that is kept of a unit; suspects as ALIVE, since no base holds any."""
    unit, address, boot, counter, status = member
    kept = 0 if status is Status.SUSPECT else status
    return member_hash(unit, boot, counter, kept + 8 * name_hash(address))


class Base:
    """An immutable roster in natural order of the ids, shared by views; nobody in it is SUSPECT."""

    __slots__ = ("__weakref__", "_fates", "by_address", "dead", "digest", "index", "living", "living_digest", "members")

    def __init__(self, members: Iterable[Member] = ()) -> None:
        self.members = tuple(sorted(members, key=lambda member: natural_key(member.unit)))
        self.index = {member.unit: at for at, member in enumerate(self.members)}
        self.by_address = {member.address: member.unit for member in self.members if member.address and member.lives}
        self.dead = bytearray(len(self.members) + 7 >> 3)
        self.living = 0
        self.living_digest = 0
        self.digest = 0
        self._fates: list[tuple[int, int] | None] = [None] * len(self.members)
        for at, member in enumerate(self.members):
            unit, _, boot, counter, status = member
            self.digest ^= _entry_hash(member)
            if status is Status.DEAD:
                self.dead[at >> 3] |= _BITS[at & 7]
            elif status is Status.ALIVE:
                self.living += 1
                self.living_digest ^= member_hash(unit, boot, counter, 0)
            elif status is Status.SUSPECT:
                raise ValueError(f"a base holds no suspects: {unit}")

    def __len__(self) -> int:
        return len(self.members)

    def fate(self, slot: int) -> tuple[int, int]:
        """What the death of this living unit flips in the digest of a view, and in that of its next base."""
        known = self._fates[slot]
        if known is None:
            member = self.members[slot]
            known = self._fates[slot] = (
                member_hash(member.unit, member.boot, member.counter, 0),
                _entry_hash(member) ^ _entry_hash(member._replace(status=Status.DEAD)),
            )
        return known


EMPTY = Base()
# By digest, as long as a view rests on them: equal views find the same one, and only the first one builds it.
_bases: WeakValueDictionary[int, Base] = WeakValueDictionary()


class View:
    """What one unit thinks of all units of its den, itself included.

    `living` counts those thought to live (ALIVE or SUSPECT); `digest` is equal in two views exactly when they think
    that the same incarnations live (but for a chance of 2**-64).
    """

    __slots__ = (
        "_addresses", "_dead", "_free", "_later", "_others", "_slots", "_suspect", "_whole", "base", "digest", "living",
    )  # fmt: skip

    def __init__(self, base: Base = EMPTY) -> None:
        self._rest_on(base)

    def _rest_on(self, base: Base) -> None:
        self.base = base
        self.living = base.living
        self.digest = base.living_digest
        self._whole = base.digest  # the digest of the base that would hold all of this
        self._dead: bytearray | None = None  # DEAD in the incarnation that the base has; None: as the base
        self._suspect: bytearray | None = None
        self._others: dict[str, Member] = {}  # whatever bits cannot say
        self._addresses: dict[str, str] = {}
        self._later: list[str | None] = []  # units that the base lacks, in the order of their slots after the base's
        self._slots: dict[str, int] = {}
        self._free: list[int] = []

    # --- reading

    def __len__(self) -> int:
        return len(self.base.members) + len(self._slots)

    def __contains__(self, unit: str) -> bool:
        return unit in self.base.index or unit in self._slots

    def __iter__(self) -> Iterator[Member]:
        """Every member, dead ones that are still remembered too."""
        for slot in range(self.slots):
            member = self.at(slot)
            if member is not None:
                yield member

    @property
    def slots(self) -> int:
        """Members can be drawn by number: `at(slot)` for each slot below this."""
        return len(self.base.members) + len(self._later)

    def at(self, slot: int) -> Member | None:
        members = self.base.members
        if slot >= len(members):
            unit = self._later[slot - len(members)]
            return None if unit is None else self._others[unit]
        member = members[slot]
        if self._others:
            other = self._others.get(member.unit)
            if other is not None:
                return other
        return self._marked(slot, member)

    def get(self, unit: str) -> Member | None:
        if self._others:
            other = self._others.get(unit)
            if other is not None:
                return other
        slot = self.base.index.get(unit)
        return None if slot is None else self._marked(slot, self.base.members[slot])

    def _marked(self, slot: int, member: Member) -> Member:
        if self._dead is not None and self._dead[slot >> 3] & _BITS[slot & 7]:
            return member if member.status is Status.DEAD else member._replace(status=Status.DEAD)
        if self._suspect is not None and self._suspect[slot >> 3] & _BITS[slot & 7]:
            return member._replace(status=Status.SUSPECT)
        return member

    def unit_at(self, address: str) -> str | None:
        """Who answers at this address, as far as known."""
        return self._addresses.get(address) or self.base.by_address.get(address)

    @property
    def suspects(self) -> list[str]:
        members = self.base.members
        found = [] if self._suspect is None else [members[slot].unit for slot in set_bits(self._suspect)]
        return found + [m.unit for m in self._others.values() if m.status is Status.SUSPECT]

    def dead_bits(self, start: int = 0, size: int | None = None) -> bytes:
        """A bit for each unit of the base, in its order: DEAD in the incarnation the base has. Counted in bytes."""
        own = self.base.dead if self._dead is None else self._dead
        return bytes(own[start:] if size is None else own[start : start + size])

    def slot_in_bits(self, unit: str) -> int | None:
        """The number of the bit that tells all that is thought of this dead unit, if one does."""
        return None if unit in self._others else self.base.index.get(unit)

    def newly_dead(self, start: int, bits: bytes) -> list[Member]:
        """Which units of the base, as the base has them, these bits call DEAD and this view does not.

        Raises:
            ValueError: there are more bits than units.
        """
        own = (self.base.dead if self._dead is None else self._dead)[start : start + len(bits)]
        if len(bits) != len(own):
            raise ValueError(f"a bitmap of {len(bits)} bytes from {start} on, for {len(self.base)} units")
        fresh = int.from_bytes(bits, "little") & ~int.from_bytes(own, "little")
        if not fresh:
            return []
        members, first = self.base.members, start << 3
        return [members[first + at] for at in _ones(fresh) if first + at < len(members)]

    def bury(self, members: Iterable[Member]) -> list[Member]:
        """Marks these units of the base DEAD as the base has them; returns those it could not, that bits cannot tell.

        The same as `put` for each, at a fraction of the time: thousands die at once in thousands of views.
        """
        base, others, rest = self.base, self._others, []
        if self._dead is None:
            self._dead = bytearray(base.dead)
        dead, suspect = self._dead, self._suspect
        buried = living_digest = whole = 0
        for member in members:
            if member.unit in others or member.status is not Status.ALIVE:
                rest.append(member)
                continue
            slot = base.index[member.unit]
            byte, bit = slot >> 3, _BITS[slot & 7]
            dead[byte] |= bit
            if suspect is not None:
                suspect[byte] &= ~bit
            lived, entry = base.fate(slot)
            buried += 1
            living_digest ^= lived
            whole ^= entry
        self.living -= buried
        self.digest ^= living_digest
        self._whole ^= whole
        return rest

    def changes(self) -> list[Member]:
        """What bits cannot say: every entry whose incarnation, address or goodbye the base lacks."""
        return list(self._others.values())

    # --- changing

    def put(self, member: Member) -> None:
        """Makes this what is thought of the unit, and keeps counts and digests."""
        unit, address, boot, counter, status = member
        before = self.get(unit)
        if before is not None:
            was = before.status
            self._whole ^= _entry_hash(before)
            if was <= Status.SUSPECT:
                self.living -= 1
                self.digest ^= member_hash(unit, before.boot, before.counter, 0)
            if before.address != address and self._addresses.get(before.address) == unit:
                del self._addresses[before.address]
        self._whole ^= _entry_hash(member)
        if status <= Status.SUSPECT:
            self.living += 1
            self.digest ^= member_hash(unit, boot, counter, 0)
        slot = self.base.index.get(unit)
        if slot is not None:
            first = self.base.members[slot]
            plain = status is not Status.LEFT and first.status is not Status.LEFT
            same = (boot, counter, address) == (first.boot, first.counter, first.address)
            if plain and same and (first.status is Status.ALIVE or status is Status.DEAD):
                self._others.pop(unit, None)
                self._mark(slot, status)
                return
            self._mark(slot, Status.ALIVE)
        elif unit not in self._slots:
            place = self._free.pop() if self._free else len(self._later)
            if place == len(self._later):
                self._later.append(unit)
            else:
                self._later[place] = unit
            self._slots[unit] = place
        self._others[unit] = member
        if address and (status <= Status.SUSPECT or address not in self._addresses):
            self._addresses[address] = unit

    def _mark(self, slot: int, status: Status) -> None:
        byte, bit = slot >> 3, _BITS[slot & 7]
        if status is Status.DEAD:
            if self._dead is None:
                self._dead = bytearray(self.base.dead)
            self._dead[byte] |= bit
        elif self._dead is not None:
            self._dead[byte] &= ~bit
        if status is Status.SUSPECT:
            if self._suspect is None:
                self._suspect = bytearray(len(self.base.dead))
            self._suspect[byte] |= bit
        elif self._suspect is not None:
            self._suspect[byte] &= ~bit

    def forget(self, unit: str) -> None:
        """Drops a unit that the base lacks; one that it has is only dropped with the base."""
        place = self._slots.pop(unit, None)
        if place is None:
            return
        member = self._others.pop(unit)
        self._whole ^= _entry_hash(member)
        if member.lives:
            self.living -= 1
            self.digest ^= member_hash(unit, member.boot, member.counter, 0)
        if self._addresses.get(member.address) == unit:
            del self._addresses[member.address]
        self._later[place] = None
        self._free.append(place)

    def settle(self, *, keep_dead: bool = True) -> bool:
        """Rests on a base that holds all of this, so that nothing differs; False while anybody is suspect.

        Slots change. `keep_dead` False forgets the dead and those who left.
        """
        if self.suspects:
            return False
        found = _bases.get(self._whole) if keep_dead else None
        if found is None:
            found = Base(member for member in self if keep_dead or member.lives)
            found = _bases.setdefault(found.digest, found)
        self._rest_on(found)
        return True

    @property
    def differs(self) -> bool:
        """Whether there is anything that the base does not say."""
        return bool(self._others) or self._dead is not None


def set_bits(bits: bytes | bytearray) -> Iterator[int]:
    """Numbers of the bits that are set, in order; bit 0 is the lowest of the first byte."""
    return _ones(int.from_bytes(bits, "little"))


def _ones(number: int) -> Iterator[int]:
    while number:
        low = number & -number
        yield low.bit_length() - 1
        number ^= low
