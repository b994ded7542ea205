"""The schedule of faults is a function of the seed."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wolfpack.chaos.plan import (
    FIRST_SHARE,
    FREEZE_LEAST_S,
    FREEZE_MOST_S,
    LAST_SHARE,
    Kind,
    choose,
    plan_faults,
    task_seconds,
)

COUNTS = {Kind.ALPHA: 20, Kind.UNIT: 50, Kind.HANDS: 50, Kind.FREEZE: 5, Kind.KEEPER: 5}


def test_the_same_seed_gives_the_same_faults_and_another_seed_others():
    assert plan_faults(COUNTS, 7) == plan_faults(COUNTS, 7)
    assert plan_faults(COUNTS, 7) != plan_faults(COUNTS, 8)


def test_each_kind_is_given_as_often_as_asked():
    assert COUNTS == Counter(fault.kind for fault in plan_faults(COUNTS, 1))


def test_no_two_faults_come_at_the_same_share():
    faults = plan_faults(COUNTS, 1)
    assert len(faults) == len({fault.share for fault in faults})


def test_no_faults_are_an_empty_plan():
    assert () == plan_faults(dict.fromkeys(Kind, 0), 1)


def test_more_of_one_kind_moves_no_fault_of_another():
    fewer = [fault for fault in plan_faults({**COUNTS, Kind.UNIT: 1}, 3) if fault.kind is not Kind.UNIT]
    assert fewer == [fault for fault in plan_faults(COUNTS, 3) if fault.kind is not Kind.UNIT]


def test_the_first_faults_of_a_kind_stay_when_more_are_asked_for():
    assert set(plan_faults({Kind.FREEZE: 2}, 5)) <= set(plan_faults({Kind.FREEZE: 4}, 5))


@given(st.integers())
def test_shares_and_times_keep_their_bounds_and_the_order_is_that_of_the_shares(seed):
    faults = plan_faults(COUNTS, seed)
    assert sorted(fault.share for fault in faults) == [fault.share for fault in faults]
    assert all(FIRST_SHARE <= fault.share <= LAST_SHARE and 0 <= fault.draw < 1 for fault in faults)
    for fault in faults:
        if fault.kind is Kind.FREEZE:
            assert FREEZE_LEAST_S <= fault.freeze_s <= FREEZE_MOST_S
        else:
            assert (0.0, False) == (fault.freeze_s, fault.at_alpha)


@pytest.mark.parametrize(
    ("draw", "chosen"), [(0.0, "a"), (0.33, "a"), (0.34, "b"), (0.99, "c"), (1.0, "c")]
)  # fmt: skip
def test_a_draw_picks_among_the_targets_there_are(draw, chosen):
    assert chosen == choose(["a", "b", "c"], draw)


def test_of_no_targets_none_is_picked():
    assert choose([], 0.5) is None


def test_tasks_take_1_to_50_ms_each_its_own_time():
    seconds = [task_seconds(1, number) for number in range(1000)]
    assert 0.001 <= min(seconds) < 0.002
    assert 0.049 < max(seconds) <= 0.050
    assert seconds == [task_seconds(1, number) for number in range(1000)]
