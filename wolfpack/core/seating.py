"""Seats units on what is asked for, so that nobody sits where somebody rarer is needed.

The question is always the same: given sub-packs that ask for so many units each, and units that fit one or several of
them, which units serve best? Taking the first that fits goes wrong: a unit with `cpu, gpu` on the only cpu seat leaves
the gpu seat empty while a plain cpu unit stands by. So a unit that finds its seats taken may ask one who sits there to
move (an augmenting path; Berge 1957, Kuhn 1955).

Two properties make this right for every caller. A unit once seated may move but never loses its seat, so units are
offered in order of preference. And whatever that order, in the end as many seats are taken as is possible at all: the
sets of units that can sit together form a transversal matroid (Edmonds, Fulkerson 1965), where greedy is optimal. A
unit that found no way to a seat will not find one later either, nor will any with the same offer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from wolfpack.model import Needs, Offer


class Seating:
    """Seats for a demand, `needs -> how many units`, filled one unit at a time."""

    def __init__(self, demand: Mapping[Needs, int], offers: Iterable[Offer] = ()) -> None:
        """`offers` are those of all units that may come: needs that few of them fit are served first."""
        known = list(offers)
        self._room = {needs: count for needs, count in demand.items() if count > 0}
        scarce = {needs: sum(map(needs.fits, known)) for needs in self._room}
        self._order = sorted(self._room, key=lambda needs: (scarce[needs], str(needs)))
        self._sitting: dict[Needs, dict[str, Offer]] = {needs: {} for needs in self._order}
        self._seated: set[str] = set()
        self._hopeless: set[Offer] = set()

    def fits(self, offer: Offer) -> int:
        """How many of the sub-packs a unit with this offer can serve."""
        return sum(needs.fits(offer) for needs in self._order)

    def sit(self, unit: str, offer: Offer) -> bool:
        """Gives the unit a seat, one at most, if there is any way to; others may move to seats that fit them."""
        if unit in self._seated:
            return True
        if offer in self._hopeless:
            return False
        came_from: dict[Needs, tuple[Needs, str] | None] = {n: None for n in self._order if n.fits(offer)}
        waiting = list(came_from)
        for needs in waiting:  # grows while it is walked: the shortest way comes first
            if len(self._sitting[needs]) < self._room[needs]:
                self._shift(needs, came_from, unit, offer)
                return True
            for other in self._order:
                if other not in came_from:
                    mover = next((u for u, o in self._sitting[needs].items() if other.fits(o)), None)
                    if mover is not None:
                        came_from[other] = (needs, mover)
                        waiting.append(other)
        self._hopeless.add(offer)
        return False

    def _shift(self, free: Needs, came_from: Mapping[Needs, tuple[Needs, str] | None], unit: str, offer: Offer) -> None:
        while (step := came_from[free]) is not None:
            needs, mover = step
            self._sitting[free][mover] = self._sitting[needs].pop(mover)
            free = needs
        self._sitting[free][unit] = offer
        self._seated.add(unit)

    def seats(self) -> dict[str, Needs]:
        """Who sits where."""
        return {unit: needs for needs in self._order for unit in self._sitting[needs]}

    def missing(self) -> dict[Needs, int]:
        """How many seats of each sub-pack are empty; full ones are left out."""
        empty = {needs: self._room[needs] - len(self._sitting[needs]) for needs in self._order}
        return {needs: count for needs, count in empty.items() if count}

    @property
    def full(self) -> bool:
        return all(len(self._sitting[needs]) == room for needs, room in self._room.items())


def find_missing(wished: Mapping[Needs, int], members: Iterable[tuple[str, Offer]]) -> dict[Needs, int]:
    """How many more units each sub-pack needs beside these members: what `plan` of `core/recruiting.py` wants."""
    sitting = list(members)
    seating = Seating(wished, (offer for _, offer in sitting))
    for unit, offer in sitting:
        seating.sit(unit, offer)
    return seating.missing()


def breadth(offer: Offer, largest: Mapping[str, float]) -> tuple[int, float]:
    """How wide an offer is, for comparing: how many things it names, then how large its measures are.

    Args:
        largest: of each measure the largest value on offer; each measure adds its share of that.
    """
    things = len(offer.tags) + len(offer.measures)
    return things, sum(value / largest[name] for name, value in offer.measures if largest.get(name, 0.0) > 0)


def largest_measures(offers: Iterable[Offer]) -> dict[str, float]:
    """Of each measure the largest value among these offers."""
    largest: dict[str, float] = {}
    for offer in offers:
        for name, value in offer.measures:
            largest[name] = max(value, largest.get(name, value))
    return largest
