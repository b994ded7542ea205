"""Seating units on sub-packs: nobody sits where somebody rarer is needed."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wolfpack.core.seating import Seating, breadth, find_missing, largest_measures
from wolfpack.model import Needs, Offer

CPU, GPU, BROWSER = Needs.parse("cpu"), Needs.parse("gpu"), Needs.parse("browser")


def offer(*tags: str, **measures: float) -> Offer:
    return Offer(frozenset(tags), tuple(sorted(measures.items())))


def test_a_unit_moves_to_a_rarer_seat_when_another_can_take_its_own() -> None:
    seating = Seating({CPU: 1, GPU: 1})
    seating.sit("wide", offer("cpu", "gpu"))
    seating.sit("plain", offer("cpu"))
    assert {"wide": GPU, "plain": CPU} == seating.seats()


def test_a_chain_of_units_moves_up() -> None:
    seating = Seating({CPU: 1, GPU: 1, BROWSER: 1})
    seating.sit("a", offer("browser", "cpu"))
    seating.sit("b", offer("browser", "gpu"))
    seating.sit("c", offer("browser"))
    assert {"a": CPU, "b": GPU, "c": BROWSER} == seating.seats()


def test_nobody_sits_who_fits_nothing() -> None:
    assert not Seating({GPU: 1}).sit("plain", offer("cpu"))


def test_nobody_sits_beyond_the_seats() -> None:
    seating = Seating({CPU: 2})
    assert [True, True, False] == [seating.sit(f"u-{n}", offer("cpu")) for n in range(3)]


def test_a_unit_that_is_named_twice_has_one_seat() -> None:
    seating = Seating({CPU: 2})
    assert [True, True, False] == [seating.sit("u-0", offer("cpu")), seating.sit("u-0", offer("cpu")), seating.full]


def test_a_demand_of_nothing_is_full() -> None:
    assert Seating({CPU: 0, GPU: -1}).full


def test_the_scarcest_needs_are_served_first() -> None:
    assert {CPU: 1} == find_missing({CPU: 2, GPU: 1}, [("a", offer("cpu", "gpu")), ("b", offer("cpu"))])


def test_members_count_for_one_sub_pack_each() -> None:
    assert {GPU: 1} == find_missing({CPU: 1, GPU: 1}, [("a", offer("cpu"))])


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        (offer(), offer("cpu")),
        (offer("cpu"), offer("cpu", "gpu")),
        (offer("cpu"), offer("cpu", memory_gb=1)),
        (offer("cpu", memory_gb=4), offer("cpu", memory_gb=64)),
        (offer("cpu", memory_gb=64), offer("cpu", "gpu", memory_gb=4)),
    ],
)
def test_fewer_things_are_narrower_and_then_smaller_measures(narrow: Offer, wide: Offer) -> None:
    largest = largest_measures([narrow, wide])
    assert breadth(narrow, largest) < breadth(wide, largest)


@pytest.mark.parametrize("value", [0.0, -3.0])
def test_a_measure_without_size_adds_none(value: float) -> None:
    small = offer(memory_gb=value)
    assert (1, 0.0) == breadth(small, largest_measures([small]))


TAGS = ["cpu", "gpu", "browser"]
OFFERS = st.lists(st.sets(st.sampled_from(TAGS)).map(lambda tags: offer(*tags)), max_size=6)
DEMAND = st.dictionaries(st.sets(st.sampled_from(TAGS), max_size=2).map(Needs.parse), st.integers(0, 3), max_size=4)


def can_sit(demand: dict[Needs, int], offers: list[Offer]) -> bool:
    """Hall's theorem, by trying all subsets: everybody finds a seat if no group is larger than the seats it fits."""
    return all(
        len(group) <= sum(count for needs, count in demand.items() if any(needs.fits(one) for one in group))
        for size in range(1, len(offers) + 1)
        for group in combinations(offers, size)
    )


@settings(deadline=None)
@given(demand=DEMAND, offers=OFFERS)
def test_a_unit_sits_exactly_if_it_can_beside_all_who_sat_before(demand: dict[Needs, int], offers: list[Offer]) -> None:
    seating = Seating(demand, offers)
    seated: list[Offer] = []
    for n, one in enumerate(offers):
        sat = seating.sit(f"u-{n}", one)
        assert can_sit(demand, [*seated, one]) == sat
        seated += [one] * sat
        assert len(seated) == len(seating.seats())
        assert all(needs.fits(offers[int(unit[2:])]) for unit, needs in seating.seats().items())
        assert sum(demand.values()) - len(seated) == sum(seating.missing().values())
