"""The keeper's clock: pauses of its own are forgiven at the first look, and nobody sets its wall time."""

from __future__ import annotations

import pytest

from wolfpack.core.book.clock import KeeperClock, still_due


def test_time_passes_while_the_keeper_looks_often():
    clock = KeeperClock(100.0, 50.0, 1_000.0, 0.5)
    assert [(100.4, 1000.4), (100.8, 1000.8)] == [tuple(clock.read(100.0 + s, 50.0 + s)) for s in (0.4, 0.8)]


def test_a_pause_is_forgiven_at_the_first_look_after_it():
    clock = KeeperClock(100.0, 50.0, 1_000.0, 0.5)
    clock.read(100.1, 50.1)
    assert 100.1 == round(clock.read(105.1, 55.1).mono, 6)
    assert 100.2 == round(clock.read(105.2, 55.2).mono, 6)
    assert 5.0 == round(clock.forgiven_s, 6)


def test_its_time_never_goes_back():
    clock = KeeperClock(0.0, 0.0, 0.0, 0.5)
    seen = [round(clock.read(at, at).mono, 9) for at in (0.2, 0.6, 9.0, 9.0, 9.4, 20.0, 20.1)]
    assert seen == sorted(seen)


def test_wall_time_goes_on_through_a_pause():
    clock = KeeperClock(100.0, 50.0, 1_000.0, 0.5)
    assert 1_060.0 == clock.read(110.0, 110.0).wall


@pytest.mark.parametrize(
    ("due", "since", "wall", "expected"),
    [
        (130.0, 100.0, 110.0, 130.0),  # the usual case
        (130.0, 100.0, 500.0, 130.0),  # overdue
        (130.0, 100.0, 40.0, 70.0),  # the clock was set back by a minute and more: thirty seconds from now
        (0.0, 100.0, 40.0, 0.0),  # not delayed
    ],
)
def test_what_a_former_keeper_wrote_down_waits_no_longer_than_it_was_told_to(due, since, wall, expected):
    assert expected == still_due(due, since, wall)
