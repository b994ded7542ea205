"""The size of a pack from its work: the formula, the patience in shrinking, and the fair share of leases."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wolfpack.core.scaling import Demand, Scaler, Size, desired_size, fair_prefetch, members_needed, shrink_hold_s
from wolfpack.model import Needs, PackSpec

CPU, GPU, BROWSER = Needs.parse("cpu"), Needs.parse("gpu"), Needs.parse("browser")
NAN, INF = float("nan"), float("inf")


def spec(fewest: int = 0, most: int = 100, **changes: Any) -> PackSpec:
    return PackSpec(**{"name": "computing", "fewest": fewest, "most": most, "needs": CPU, **changes})


def work(queued: int, service_s: float | None = 1.0, **changes: Any) -> Demand:
    return Demand(queued_runnable=queued, service_s=service_s, **changes)


def size_for(demands: dict[Needs, Demand], pack: PackSpec) -> Size:
    return desired_size(demands=demands, spec=pack, now_members=0)


# --- the formula --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "demand"),
    [
        (0, work(0)),
        (1, work(1)),
        (5, work(10)),  # 10 s of work in 2 s
        (6, work(11)),
        (1, work(1000, 0.001)),
        (10, work(10, 60.0)),  # never more than tasks
        (5, work(6, leased=4)),  # running tasks are work too
        (3, work(0, leased=6)),
        (3, work(10, concurrency=2)),
        (5, work(10, 60.0, concurrency=2)),
    ],
)
def test_members_empty_the_queue_within_the_target(members: int, demand: Demand) -> None:
    assert members == members_needed(demand, 2.0)


def test_a_rounding_error_adds_no_member() -> None:
    assert 3 == members_needed(work(6, 0.1), 0.2)


@pytest.mark.parametrize("service_s", [None, INF, NAN, -1.0])
def test_P30_an_unknown_time_gives_each_task_its_own_member(service_s: float | None) -> None:
    assert 12 == members_needed(work(12, service_s), 2.0)


def test_P30_a_burst_is_met_by_the_full_pack_in_one_step() -> None:
    scaler = Scaler()
    assert 6 == scaler.step(0.0, demands={CPU: work(50, None)}, spec=spec(most=6), now_members=1).size


def test_P38_growth_follows_queue_and_time_where_every_member_holds_one_lease() -> None:
    assert 11 == size_for({CPU: work(20, 1.0, leased=2)}, spec()).size


@pytest.mark.parametrize("drain_target_s", [0.0, -1.0, NAN])
def test_a_target_of_no_time_gives_each_task_its_own_member(drain_target_s: float) -> None:
    assert 7 == members_needed(work(7), drain_target_s)


@pytest.mark.parametrize(("members", "rate_per_s"), [(2, 10.0), (1, 0.5), (1, 0.0), (50, None), (50, 1e308)])
def test_a_limited_rate_needs_no_more_members_than_it_can_feed(members: int, rate_per_s: float | None) -> None:
    assert members == members_needed(work(500, 0.2), 2.0, rate_per_s)


# --- limits -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "queued", "pack"),
    [
        (6, 100, spec(most=6)),
        (2, 0, spec(fewest=2)),
        (2, 2, spec(fewest=2)),
        (0, 10, spec(most=0)),
        (0, 10, spec(fewest=3, most=0)),
        (0, 10, spec(most=-4)),
    ],
)
def test_the_size_keeps_to_the_limits_of_the_pack(size: int, queued: int, pack: PackSpec) -> None:
    assert size == size_for({CPU: work(queued)}, pack).size


@settings(deadline=None)
@given(queued=st.integers(0, 50), leased=st.integers(0, 50), service_s=st.one_of(st.none(), st.floats(0, 1e6)))
def test_P37_never_more_units_than_runnable_tasks(queued: int, leased: int, service_s: float | None) -> None:
    demand = Demand(queued_runnable=queued, leased=leased, service_s=service_s)
    assert size_for({CPU: demand}, spec(most=1000)).size <= queued + leased


def test_the_minimum_is_of_units_for_the_needs_of_the_pack() -> None:
    assert {GPU: 1, CPU: 2} == size_for({GPU: work(1)}, spec(fewest=3)).by_needs


def test_sub_packs_add_up() -> None:
    demands = {CPU: work(10), GPU: work(4)}
    assert {CPU: 5, GPU: 2} == size_for(demands, spec()).by_needs


def test_where_the_limit_cuts_shares_follow_the_wishes() -> None:
    demands = {CPU: work(60), GPU: work(30), BROWSER: work(2)}
    assert {CPU: 6, GPU: 3, BROWSER: 1} == size_for(demands, spec(most=10)).by_needs


def test_where_the_limit_is_below_the_number_of_sub_packs_the_longest_wait_is_served() -> None:
    demands = {CPU: work(60, oldest_wait_s=1.0), GPU: work(1, oldest_wait_s=9.0), BROWSER: work(1, oldest_wait_s=5.0)}
    assert {GPU: 1, BROWSER: 1} == size_for(demands, spec(most=2)).by_needs


@settings(deadline=None)
@given(queued=st.lists(st.integers(0, 300), min_size=1, max_size=5), fewest=st.integers(0, 5), most=st.integers(0, 40))
def test_the_shares_of_sub_packs_add_up_to_the_size(queued: list[int], fewest: int, most: int) -> None:
    demands = {Needs.parse(f"tag{n}"): work(count, None) for n, count in enumerate(queued)}
    size = size_for(demands, spec(fewest, most))
    wishes = {needs: members_needed(demand, 2.0) for needs, demand in demands.items()}
    assert size.size == sum(size.by_needs.values())
    assert all(0 <= n <= wishes.get(needs, 0) for needs, n in size.by_needs.items() if needs != CPU)


@pytest.mark.parametrize(
    ("reason", "demands", "pack"),
    [
        ("0 wanted, 1 there: no runnable task.", {}, spec()),
        ("2 wanted, the pack's fewest (the work needs 0), 1 there: no runnable task.", {CPU: work(0)}, spec(2)),
        ("5 wanted, 1 there: 10 tasks for cpu of 1 s, to be done in 2 s.", {CPU: work(10)}, spec()),
        (
            "3 wanted, 9 would be better but the pack's most is 3, 1 there: 9 tasks for gpu of unknown length.",
            {GPU: work(9, None)},
            spec(most=3),
        ),
    ],
)
def test_each_size_has_a_reason_with_numbers(reason: str, demands: dict[Needs, Demand], pack: PackSpec) -> None:
    assert reason == desired_size(demands=demands, spec=pack, now_members=1).reason


# --- patience -----------------------------------------------------------------------------------------------------


def run(scaler: Scaler, pack: PackSpec, tasks_at: list[tuple[float, int]]) -> list[int]:
    """The sizes of a pack that reaches each size at once, under a queue given as (now, tasks of 2 s)."""
    sizes, members = [], 0
    for now, tasks in tasks_at:
        members = scaler.step(now, demands={CPU: work(tasks, 2.0)}, spec=pack, now_members=members).size
        sizes.append(members)
    return sizes


def changes(sizes: list[int]) -> int:
    return sum(before != after for before, after in pairwise(sizes))


@pytest.mark.parametrize(("hold_s", "drain_target_s"), [(4.0, 2.0), (20.0, 10.0), (1.0, 0.1), (1.0, INF), (1.0, NAN)])
def test_a_lower_wish_holds_for_twice_the_target_before_the_pack_shrinks(hold_s: float, drain_target_s: float) -> None:
    assert hold_s == shrink_hold_s(spec(drain_target_s=drain_target_s))


def test_a_pack_shrinks_once_the_lower_wish_has_held() -> None:
    assert [8, 8, 8, 3] == run(Scaler(), spec(), [(0.0, 8), (1.0, 3), (4.9, 3), (5.0, 3)])


def test_a_wish_that_comes_back_within_the_hold_starts_it_anew() -> None:
    assert [8, 8, 8, 8] == run(Scaler(), spec(), [(0.0, 8), (1.0, 0), (4.0, 8), (6.0, 0)])


def test_a_pack_shrinks_to_the_highest_wish_of_the_second_half_of_the_hold() -> None:
    assert [8, 8, 8, 8, 5] == run(Scaler(), spec(), [(0.0, 8), (1.0, 7), (3.5, 5), (4.5, 2), (5.0, 1)])


@pytest.mark.parametrize("half_s", [1, 3, 5, 8, 30])
@pytest.mark.parametrize("drain_s", [0.0, 1.0, 2.0])
def test_P29_a_square_wave_changes_the_size_at_most_once_in_each_half(half_s: int, drain_s: float) -> None:
    scaler, pack, members = Scaler(), spec(most=20), 0
    for half in range(8):
        sizes = [members]
        for tick in range(half_s * 4):
            since_s = tick / 4
            ramp = max(0.0, 1 - since_s / drain_s) if drain_s else 0.0  # the old queue runs empty
            tasks = 16 if half % 2 == 0 else 2 + round(14 * ramp)
            now = half * half_s + since_s
            members = scaler.step(now, demands={CPU: work(tasks, 2.0)}, spec=pack, now_members=members).size
            sizes.append(members)
        assert changes(sizes) <= 1, sizes


def test_P29_a_long_low_half_does_shrink_the_pack() -> None:
    assert 2 == run(Scaler(), spec(), [(0.0, 16), *((1 + n / 4, 2) for n in range(40))])[-1]


def test_the_hold_asks_for_no_new_member_in_place_of_one_that_left() -> None:
    scaler = Scaler()
    scaler.step(0.0, demands={CPU: work(8, 2.0)}, spec=spec(), now_members=0)
    assert 3 == scaler.step(1.0, demands={CPU: work(1, 2.0)}, spec=spec(), now_members=3).size


def test_an_operators_lower_limit_holds_at_once() -> None:
    scaler = Scaler()
    scaler.step(0.0, demands={CPU: work(8, 2.0)}, spec=spec(), now_members=8)
    assert 4 == scaler.step(0.1, demands={CPU: work(8, 2.0)}, spec=spec(most=4), now_members=8).size


def test_a_size_that_is_kept_says_for_how_long() -> None:
    scaler = Scaler(8)
    reason = scaler.step(0.0, demands={}, spec=spec(), now_members=8).reason
    assert "0 wanted, 8 there: no runnable task. 8 are kept for 4.0 s more, in case work comes back." == reason


NUMBERS = st.one_of(st.none(), st.floats(), st.sampled_from([0.0, INF, NAN, 1e-320, 1e308]))
DEMANDS = st.dictionaries(
    st.sampled_from([CPU, GPU, BROWSER]),
    st.builds(
        Demand,
        queued_runnable=st.integers(-5, 10**9),
        leased=st.integers(-5, 10**6),
        service_s=NUMBERS,
        oldest_wait_s=st.floats(allow_nan=False),
        concurrency=st.integers(-1, 8),
    ),
)


@settings(deadline=None)
@given(
    steps=st.lists(st.tuples(st.floats(-100, 100), DEMANDS, st.integers(-3, 50)), min_size=1, max_size=12),
    fewest=st.integers(-2, 8),
    most=st.integers(-2, 40),
    drain_target_s=st.floats(),
    rate_per_s=NUMBERS,
)
def test_P39_the_size_is_never_negative_and_never_above_the_most(
    steps: list[tuple[float, dict[Needs, Demand], int]],
    fewest: int,
    most: int,
    drain_target_s: float,
    rate_per_s: float | None,
) -> None:
    pack = spec(fewest, most, drain_target_s=drain_target_s, rate_per_s=rate_per_s)
    scaler = Scaler(30)
    for now, demands, members in steps:
        size = scaler.step(now, demands=demands, spec=pack, now_members=members)
        assert 0 <= size.size <= max(0, most)
        assert size.size >= min(max(0, fewest), max(0, most))


# --- leases a unit ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("leases", "queued", "members", "concurrency", "service_s"),
    [
        (1, 1000, 4, 1, None),
        (3, 1000, 4, 3, None),
        (20, 1000, 4, 1, 0.01),
        (40, 1000, 4, 2, 0.01),
        (1, 1000, 4, 1, 5.0),  # long tasks are not hoarded
        (5, 20, 4, 1, 0.01),  # the fair share of a short queue
        (2, 0, 4, 2, 0.01),
        (2000, 100_000, 4, 1, 1e-6),
        (2000, 100_000, 4, 1, 0.0),
        (2000, 100_000, 0, 0, 0.0),
        (1, 100_000, 4, 1, INF),
        (1, 100_000, 4, 1, NAN),
        (1, -5, -5, -5, -5.0),
        (2, 1000, 4, 1, 0.1),
        (5000, 10**9, 1, 5000, 1e-320),
    ],
)
def test_a_unit_holds_work_for_a_moment_and_never_above_its_fair_share(
    leases: int, queued: int, members: int, concurrency: int, service_s: float | None
) -> None:
    actual = fair_prefetch(queued=queued, members=members, concurrency=concurrency, service_s=service_s)
    assert leases == actual


@settings(deadline=None)
@given(
    queued=st.integers(0, 10**6),
    members=st.integers(1, 100),
    concurrency=st.integers(1, 16),
    service_s=NUMBERS,
)
def test_a_unit_holds_at_least_what_it_runs_and_at_most_its_share(
    queued: int, members: int, concurrency: int, service_s: float | None
) -> None:
    leases = fair_prefetch(queued=queued, members=members, concurrency=concurrency, service_s=service_s)
    assert concurrency <= leases <= max(concurrency, math.ceil(queued / members))
