"""The event of a term's first lease: one for each term that gave a lease, also across keepers that died meanwhile."""

from __future__ import annotations

import json

from tests.core.book_desk import den


def told(desk) -> list[int]:
    return [json.loads(fields)["term"] for fields in desk.events("FirstLease")]


def test_a_keeper_that_dies_between_grant_and_first_lease_does_not_hide_the_first_lease():
    desk = den()
    desk.submit(2)
    desk.rebirth()
    desk.lease(2)

    assert [1] == told(desk)


def test_a_keeper_that_dies_after_the_first_lease_tells_of_no_second_one():
    desk = den()
    desk.submit(3)
    first = desk.lease(1)
    desk.settle(first[0])
    desk.rebirth()
    desk.lease(2)

    assert [1] == told(desk)


def test_the_next_term_has_a_first_lease_of_its_own():
    desk = den(2)
    desk.submit(2)
    desk.lease(1)
    desk.lose("grey-0")
    desk.crown("grey-1")
    desk.rebirth()
    desk.lease(1)

    assert [1, 2] == told(desk)
