"""Rivals: what one unit knows of the other members of its pack, as far as leading goes.

The roster names them; hints of death take them out until a newer boot shows, or until they are heard again. Whoever is
taken out is not waited for, and not counted in the council; it is still told of the alpha, since a hint may be wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from wolfpack.core.howls import Peer
from wolfpack.model import Rank, natural_key

COUNCIL_SIZE = 7  # so many highest ranks pretend; the others learn


def council(candidates: Iterable[Peer]) -> tuple[Peer, ...]:
    """The highest ranks of those that can lead, highest first."""
    return tuple(sorted((p for p in candidates if p.can_lead), key=lambda p: p.rank, reverse=True)[:COUNCIL_SIZE])


class Rivals:
    """The other members. `grace_s`: for so long a hint of death outweighs signs of life sent before it."""

    def __init__(self, me: Peer, grace_s: float) -> None:
        self.me = me
        self._grace_s = grace_s
        self._peers: dict[str, Peer] = {}
        self._lost: dict[str, tuple[int, float]] = {}  # unit -> boot known dead, and since when

    def __iter__(self) -> Iterator[Peer]:
        """All of the roster, the lost ones too."""
        return iter(self._peers.values())

    def set_roster(self, peers: Iterable[Peer]) -> list[Peer]:
        """Takes a roster; a boot never goes back. Returns who is new, or was born again."""
        before = self._peers
        self._peers = {
            peer.unit: replace(peer, boot=max(peer.boot, self.boot_of(peer.unit)))
            for peer in peers
            if peer.unit != self.me.unit
        }
        return [peer for peer in self if peer.unit not in before or before[peer.unit].boot != peer.boot]

    def heard(self, unit: str, boot: int) -> None:
        """A sign of life that `is_just_lost` did not reject."""
        self._lost.pop(unit, None)
        peer = self._peers.get(unit)
        if peer is not None and boot > peer.boot:
            self._peers[unit] = replace(peer, boot=boot)

    def lose(self, now: float, unit: str, boot: int) -> None:
        self._lost[unit] = (boot, now)

    def is_lost(self, unit: str, boot: int) -> bool:
        return boot <= self._lost.get(unit, (-1, 0.0))[0]

    def is_just_lost(self, now: float, unit: str, boot: int) -> bool:
        """Whether signs of life of this process may still have been sent before it died."""
        lost_boot, at = self._lost.get(unit, (-1, 0.0))
        return boot < lost_boot or (boot == lost_boot and now < at + self._grace_s)

    def living(self) -> list[Peer]:
        return [peer for peer in self if not self.is_lost(peer.unit, peer.boot)]

    def others_can_lead(self) -> bool:
        return any(peer.can_lead for peer in self.living())

    def outrank_me(self) -> bool:
        """Whether a living one that can lead ranks higher."""
        return any(peer.can_lead and peer.rank > self.me.rank for peer in self.living())

    def are_many(self) -> bool:
        """Whether the pack is too big for all to pretend."""
        return len(self._peers) >= COUNCIL_SIZE

    def am_in_council(self) -> bool:
        return self.me in council([self.me, *self.living()])

    def find_first(self) -> str | None:
        """Who should lead if I do not."""
        return next((peer.unit for peer in council(self.living())), None)

    def boot_of(self, unit: str) -> int:
        """The newest boot known, dead or alive; 0 for a stranger."""
        peer = self._peers.get(unit)
        return max(peer.boot if peer else 0, self._lost.get(unit, (0, 0.0))[0])

    def lead_of(self, unit: str) -> int:
        peer = self._peers.get(unit)
        return peer.lead if peer else 0

    def rank_of(self, unit: str) -> Rank:
        return Rank(self.lead_of(unit), natural_key(unit))
