"""Each formula of suspicion against a table, and the states that are built of them."""

from __future__ import annotations

import pytest

from wolfpack.core.membership_words import Incarnation
from wolfpack.core.suspicion import (
    LocalHealth,
    RefutationLimiter,
    Suspicion,
    all_know_bound,
    confirmations_expected,
    few_left_bound_s,
    first_probe_bound_s,
    load_retransmits,
    refutation_window_s,
    retransmits,
    stretched,
    suspicion_max_s,
    suspicion_min_s,
    suspicion_s,
    time_to_dead_bound,
)
from wolfpack.model import PROFILES

RAY, CLASSIC = PROFILES["ray"], PROFILES["classic"]


@pytest.mark.parametrize(
    ("timing", "n", "least", "most"),
    [(RAY, 1, 1.0, 6.0), (RAY, 10, 1.0, 6.0), (RAY, 1000, 3.0, 18.0), (RAY, 10_000, 4.0, 24.0), (CLASSIC, 100, 10, 60)],
)
def test_a_suspicion_runs_between_alpha_log_n_periods_and_beta_times_that(timing, n, least, most):
    assert suspicion_min_s(timing, n) == pytest.approx(least)
    assert suspicion_max_s(timing, n) == pytest.approx(most)


@pytest.mark.parametrize(
    ("n", "expected"), [(0, 0), (1, 0), (2, 0), (3, 1), (4, 1), (5, 2), (6, 2), (7, 3), (128, 3), (10_000, 3)]
)
def test_three_confirmations_or_half_of_the_others_are_expected(n, expected):
    assert confirmations_expected(n) == expected


@pytest.mark.parametrize(
    # memberlist's own table (suspicion_test.go: TestSuspicion_remainingSuspicionTime), at elapsed 0
    ("confirmed", "expected", "least", "most", "seconds"),
    [
        (0, 3, 2.0, 30.0, 30.0),
        (1, 3, 2.0, 30.0, 16.0),
        (2, 3, 2.0, 30.0, 7.81),
        (3, 3, 2.0, 30.0, 2.0),
        (4, 3, 2.0, 30.0, 2.0),
        (5, 3, 2.0, 30.0, 2.0),
        (0, 0, 2.0, 30.0, 2.0),
    ],
)
def test_each_confirmation_shortens_a_suspicion_by_a_logarithm(confirmed, expected, least, most, seconds):
    assert suspicion_s(confirmed, expected, least, most) == pytest.approx(seconds, abs=0.01)


@pytest.mark.parametrize(
    ("factor", "n", "times"), [(4, 0, 1), (4, 1, 4), (4, 5, 4), (4, 10, 8), (4, 99, 8), (4, 999, 12), (4, 10_000, 20)]
)
def test_news_is_told_lambda_log_n_times(factor, n, times):
    assert retransmits(factor, n) == times


@pytest.mark.parametrize(("times", "expected"), [(1, 6), (4, 6), (12, 6), (13, 6), (16, 8)])
def test_a_load_is_sent_half_as_often_and_six_times_at_least(times: int, expected: int):
    assert expected == load_retransmits(times)


@pytest.mark.parametrize(("health", "seconds"), [(0, 0.5), (1, 1.0), (8, 4.5)])
def test_a_slow_unit_stretches_its_own_times(health, seconds):
    assert stretched(0.5, health) == seconds


@pytest.mark.parametrize(
    ("window", "recent", "next_window"),
    [(0.2, 5, 0.2), (0.2, 6, 0.4), (0.4, 6, 0.5), (0.5, 6, 0.5), (0.5, 5, 0.25), (0.25, 0, 0.2)],
)
def test_the_window_of_refutations_doubles_above_five_and_halves_when_calm(window, recent, next_window):
    assert refutation_window_s(window, recent, 0.2, 0.5) == pytest.approx(next_window)


@pytest.mark.parametrize(("n", "seconds"), [(2, 1.5), (5, 4.5), (10_000, 10.36)])
def test_a_crashed_unit_is_probed_within_two_laps_or_some_twenty_periods(n, seconds):
    assert first_probe_bound_s(RAY, n) == pytest.approx(seconds, abs=0.01)


@pytest.mark.parametrize(("n", "dead", "all_know"), [(5, 11.0, 41.56), (1000, 21.4, 53.7)])
def test_bounds_of_a_crash(n, dead, all_know):
    assert time_to_dead_bound(RAY, n) == pytest.approx(dead, abs=0.1)
    assert all_know_bound(RAY, n) == pytest.approx(all_know, abs=0.1)


@pytest.mark.parametrize(("living", "dead", "longer"), [(2, 48, 216.0), (25, 25, 0.0), (8, 2, 0.0), (1, 2, 9.0)])
def test_where_more_died_than_are_left_each_survivor_comes_to_all_of_them_slowly(living, dead, longer):
    assert few_left_bound_s(RAY, living, dead) == pytest.approx(longer)


def test_health_stays_between_nought_and_eight():
    health = LocalHealth()
    health.improve()
    assert health.score == 0
    for _ in range(5):
        health.worsen(3)
    assert health.score == 8
    health.improve()
    assert health.score == 7


def suspicion(expected: int = 3) -> Suspicion:
    return Suspicion(
        incarnation=Incarnation(1, 0), accuser="a", started=100.0, expected=expected, least_s=2.0, most_s=30.0
    )


def test_only_distinct_confirmations_shorten_a_suspicion():
    running = suspicion()
    assert running.deadline == 130.0
    assert not running.confirm("a")
    assert running.confirm("b")
    assert not running.confirm("b")
    assert running.deadline == pytest.approx(116.0)
    assert running.confirm("c")
    assert running.confirm("d")
    assert running.settled
    assert not running.confirm("e")
    assert running.deadline == pytest.approx(102.0)


def test_a_suspicion_begins_again_when_its_unit_is_heard_of():
    running = suspicion()
    running.confirm("b")
    running.restart(110.0)
    assert running.deadline == pytest.approx(126.0)


def test_the_first_refutation_leaves_at_once_and_the_next_at_the_end_of_the_window():
    limiter = RefutationLimiter(0.2)
    assert limiter.ask(10.0) == 10.0
    limiter.leave(10.0, 1.0)
    assert limiter.ask(10.1) == pytest.approx(10.2)
    assert limiter.ask(10.15) == pytest.approx(10.2)  # gathered with the one before


def test_the_window_never_outgrows_half_of_the_least_suspicion():
    limiter = RefutationLimiter(0.2)
    now = 0.0
    for _ in range(30):
        now = limiter.ask(now)
        limiter.leave(now, 1.0)
    assert limiter.window_s == 0.5
    for _ in range(8):
        now += 20.0
        limiter.leave(limiter.ask(now), 1.0)
    assert limiter.window_s == 0.2
