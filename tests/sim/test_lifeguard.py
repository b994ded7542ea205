"""Lifeguard's experiment, small: the machinery, and that the arms differ as they should."""

from __future__ import annotations

import pytest

from wolfpack.core.membership_words import LIFEGUARD, SWIM, MembershipOptions
from wolfpack.sim.lifeguard import ARMS, GRIDS, MEMBERS, Cell, CellResult, Grid, run_cell, summed

SMALL = Cell(blocked=5, block_s=16.384, free_s=0.064, test_s=60.0, seed=1)


def test_the_grids_have_the_papers_members_and_blocked_members() -> None:
    assert 128 == MEMBERS
    assert (1, 4, 8, 12, 16, 20, 24, 28, 32) == GRIDS["full"].blocked
    assert 9 * 6 * 8 == len(GRIDS["full"].cells())
    for grid in GRIDS.values():
        assert set(grid.cells()[0]._fields) == {"blocked", "block_s", "free_s", "test_s", "seed"}
        assert set(grid.blocked) <= set(GRIDS["full"].blocked)
        assert set(grid.block_s) <= set(GRIDS["full"].block_s)
        assert set(grid.free_s) <= set(GRIDS["full"].free_s)


def test_each_arm_is_swim_and_one_part_or_all_of_them() -> None:
    parts = ("local_health_probe", "local_health_suspicion", "buddy")
    on = {name: tuple(part for part in parts if getattr(options, part)) for name, options in ARMS.items()}
    assert on["SWIM"] == ()
    assert [on[name] for name in ("LHA-Probe", "LHA-Suspicion", "Buddy System")] == [(part,) for part in parts]
    assert on["Lifeguard"] == on["ours"] == parts
    assert (ARMS["SWIM"], ARMS["Lifeguard"], ARMS["ours"]) == (SWIM, LIFEGUARD, MembershipOptions())


@pytest.fixture(scope="module")
def results() -> dict[str, CellResult]:
    return {arm: run_cell(arm, SMALL, members=32) for arm in ("SWIM", "Lifeguard", "ours")}


def test_plain_swim_calls_healthy_members_dead_and_ours_hardly_ever(results: dict[str, CellResult]) -> None:
    swim, ours = results["SWIM"], results["ours"]
    assert swim.false_positives > 50
    assert 0 < swim.healthy_false_positives <= swim.false_positives
    assert ours.false_positives <= 0.02 * swim.false_positives
    assert ours.healthy_false_positives <= 0.02 * swim.healthy_false_positives


def test_lifeguard_itself_is_far_better_than_swim(results: dict[str, CellResult]) -> None:
    assert results["Lifeguard"].false_positives <= 0.1 * results["SWIM"].false_positives


@pytest.mark.parametrize("arm", ["SWIM", "Lifeguard", "ours"])
def test_a_true_crash_is_found_and_known_to_all(arm: str, results: dict[str, CellResult]) -> None:
    result = results[arm]
    assert result.first_s is not None
    assert result.all_s is not None
    assert result.first_s <= result.all_s


def test_without_blocked_members_nobody_is_wrong() -> None:
    free = Cell(blocked=0, block_s=1.0, free_s=1.0, test_s=20.0, seed=1)
    assert 0 == run_cell("SWIM", free, members=16).false_positives


def test_arms_are_summed_and_compared_with_swim() -> None:
    cell = SMALL
    rows = [
        CellResult("SWIM", cell, 100, 40, 1000, 50_000, 10.0, 12.0),
        CellResult("SWIM", cell, 300, 60, 3000, 150_000, 20.0, 22.0),
        CellResult("ours", cell, 2, 0, 2200, 100_000, 15.0, None),
        CellResult("ours", cell, 2, 1, 2200, 100_000, None, None),
    ]
    arms = summed(rows)
    assert ["SWIM", "ours"] == list(arms)
    ours = arms["ours"]
    assert (4, 1, 4400, 200_000) == (ours.false_positives, ours.healthy_false_positives, ours.messages, ours.bytes)
    assert (15.0, None, 1) == (ours.first_s, ours.all_s, ours.missed)
    assert {
        "false_positives": 0.01, "healthy_false_positives": 0.01, "messages": 1.1, "bytes": 1.0, "first_s": 1.0,
        "all_s": None,
    } == ours.relative  # fmt: skip


def test_a_grid_combines_everything_once_a_seed() -> None:
    cells = Grid((1, 2), (0.5,), (0.1, 0.2), seeds=2).cells()
    assert 8 == len(cells) == len(set(cells))
