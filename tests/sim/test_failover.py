"""How long a pack is without an alpha."""

from __future__ import annotations

import pytest

from wolfpack.sim.failover import run_failover


def test_a_crashed_alpha_is_followed_within_400_ms_and_half_of_the_time_within_200() -> None:
    result = run_failover(crashes=60, seed=3)
    assert 60 == result.crashes
    assert () == result.violations
    assert result.median_s <= 0.2
    assert result.max_s <= 0.4


def test_silence_is_waited_for_before_anybody_claims() -> None:
    # A beat is heard at most a heartbeat before the crash: nobody can know before silence_s less that.
    result = run_failover(crashes=20, seed=4)
    assert result.median_s >= 0.1


def test_the_same_seed_is_the_same_run() -> None:
    first, again = run_failover(crashes=10, seed=5), run_failover(crashes=10, seed=5)
    assert first == again
    assert first.trace_hash != run_failover(crashes=10, seed=6).trace_hash


@pytest.mark.parametrize(("crashes", "units"), [(0, 5), (1, 1)])
def test_a_failover_needs_a_crash_and_somebody_left(crashes: int, units: int) -> None:
    with pytest.raises(ValueError, match="at least one crash and two units"):
        run_failover(crashes=crashes, units=units)
