"""A herd: figures, invariants, and that the same plan is the same run."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from wolfpack.core.membership_words import Status, StatusChanged
from wolfpack.core.suspicion import all_know_bound
from wolfpack.errors import CallerError, UnknownName
from wolfpack.model import PROFILES
from wolfpack.sim.herd import Herd, HerdPlan, HerdResult, run_herd
from wolfpack.sim.herd_faults import MENUS
from wolfpack.sim.herd_unit import HerdUnit
from wolfpack.sim.herd_watch import share_at


def settled(units: int, seconds: float = 3.0, **fields: object) -> Herd:
    herd = Herd(HerdPlan(units=units, **fields))  # type: ignore[arg-type]
    herd.settle_in()
    herd.run(seconds)
    return herd


def kept(result: HerdResult) -> HerdResult:
    assert {} == result.violated, result.story
    return result


# --- without faults -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("units", [2, 5, 7, 8, 30])
def test_a_herd_finds_one_alpha_that_all_follow(units: int) -> None:
    herd = settled(units)
    assert herd.led_by_one()
    assert f"unit-{units - 1}" == herd.alpha


@pytest.mark.parametrize("units", [5, 50])
def test_an_idle_herd_sends_at_most_five_messages_a_unit_and_second(units: int) -> None:
    result = kept(run_herd(HerdPlan(units=units, seconds=20)))
    assert 0.5 < result.messages_per_unit_s <= 5.0
    assert 0 == result.false_positives


def test_outside_the_council_nobody_is_howled_to() -> None:
    herd = settled(40)
    before = herd.office.howls
    herd.run(10.0)
    assert 40 * 7 == pytest.approx(herd.office.howls - before, abs=14)  # a beat each 0.25 s, to seven


# --- crashes --------------------------------------------------------------------------------------------------------


def test_all_survivors_learn_of_a_mass_death_and_think_the_same() -> None:
    result = kept(run_herd(HerdPlan(units=40, seconds=45, crash=0.2)))
    assert 8 == result.crashed
    bound = all_know_bound(PROFILES["ray"], 40)
    assert result.views_equal_s is not None
    assert result.all_know_s["p99"] is not None
    assert result.first_dead_s["p50"] <= result.all_know_s["p50"] <= result.all_know_s["p99"] <= bound
    assert result.rounds == pytest.approx(result.all_know_s["p99"] / 0.5, abs=0.01)


def test_one_survivor_of_twenty_learns_of_all_deaths_in_its_own_time() -> None:
    kept(run_herd(HerdPlan(units=20, seconds=12, crash=0.95)))


@pytest.mark.parametrize(("units", "first_s", "equal_s"), [(5, 2.2, 4.0), (50, 3.0, 6.0)])
def test_crashes_are_noticed_and_known_within_the_figures(units: int, first_s: float, equal_s: float) -> None:
    results = [kept(run_herd(HerdPlan(units=units, seconds=12, crash=0.2, seed=seed))) for seed in range(5)]
    assert sorted(result.first_dead_s["p50"] for result in results)[2] <= first_s
    assert sorted(result.views_equal_s for result in results)[2] <= equal_s


def test_the_alpha_of_a_big_pack_is_followed_by_another_that_all_learn_of() -> None:
    herd = settled(40)
    herd.crash("unit-39")
    took = herd.run_until(herd.led_by_one, 10.0)
    assert took is not None
    assert "unit-38" == herd.alpha
    # The council hears the next alpha itself, the others from gossip.
    assert took <= 6 * PROFILES["ray"].silence_s


def test_a_unit_that_is_born_again_lives_in_all_views() -> None:
    herd = settled(20)
    herd.crash("unit-3")
    herd.run(20.0)
    assert {3} == {int(status) for name, status in herd.statuses("unit-3").items() if status is not None}
    herd.birth("unit-3")
    assert herd.run_until(herd.views_equal, 30.0) is not None
    assert 20 == herd.living


def test_loss_of_a_tenth_of_all_packets_breaks_no_promise() -> None:
    result = kept(run_herd(HerdPlan(units=20, seconds=60, loss=0.1, crash=0.1)))
    assert 0 == result.healthy_false_positives


@pytest.mark.parametrize("menu", [*MENUS])
def test_no_menu_of_faults_breaks_a_promise(menu: str) -> None:
    kept(run_herd(HerdPlan(units=15, seconds=60, faults=(menu,), seed=2)))


def test_all_menus_together_break_no_promise() -> None:
    kept(run_herd(HerdPlan(units=12, seconds=60, faults=tuple(MENUS), seed=3)))


def test_higher_ranks_that_come_and_go_change_no_alpha() -> None:
    result = kept(run_herd(HerdPlan(units=20, seconds=200, faults=("churn",), seed=5)))
    assert 0 == result.alpha_changes
    assert result.spread_9999_s is not None
    assert result.spread_9999_s < 3.0  # who is born later learns of old deaths later, and does not count


def test_a_change_of_alpha_without_a_fault_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    # A pack whose members give their alpha no sign of life: it is lonely and gives its term back.
    monkeypatch.setattr(HerdUnit, "_member_heard", lambda self, lead: None)
    assert run_herd(HerdPlan(units=4, seconds=10)).violated["L5"] == 1


# --- the same plan is the same run ----------------------------------------------------------------------------------


def test_the_same_plan_gives_the_same_trace_in_another_process_under_another_hash_seed() -> None:
    plan = HerdPlan(units=12, seconds=12, seed=9, crash=0.2, loss=0.05, faults=tuple(MENUS))
    code = f"from wolfpack.sim.herd import HerdPlan, run_herd; print(run_herd({plan!r}).trace_hash)"
    code = "from wolfpack.core.membership_words import MembershipOptions\n" + code
    hashes = {run_herd(plan).trace_hash}
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
        )  # fmt: skip
        hashes.add(done.stdout.strip())
    assert 1 == len(hashes)


def test_another_seed_is_another_run() -> None:
    one, two = (run_herd(HerdPlan(units=5, seconds=5, seed=seed)).trace_hash for seed in (1, 2))
    assert one != two


# --- plans that make no sense ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [{"units": 1}, {"units": 10_001}, {"seconds": 0.0}, {"seconds": float("nan")}, {"crash": 1.0}, {"loss": -0.1}],
)
def test_a_plan_that_makes_no_sense_is_refused(fields: dict[str, float]) -> None:
    with pytest.raises(CallerError):
        HerdPlan(**fields).checked()  # type: ignore[arg-type]


@pytest.mark.parametrize("fields", [{"profile": "rey"}, {"faults": ("netwrok",)}])
def test_a_name_that_does_not_exist_is_refused_with_what_there_is(fields: dict[str, object]) -> None:
    with pytest.raises(UnknownName, match=r"ray|network"):
        HerdPlan(**fields).checked()  # type: ignore[arg-type]


# --- the watch itself -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "values", "share"),
    [
        (None, [], 0.5),
        (1.0, [1.0], 0.99),
        (2.0, [3.0, 1.0, 2.0], 0.5),
        (3.0, [3.0, 1.0, 2.0], 0.99),
        (1.0, [1.0, 2.0], 0.5),
    ],
)
def test_a_share_is_taken_by_nearest_rank(expected: float | None, values: list[float], share: float) -> None:
    assert expected == share_at(values, share)


def test_who_takes_a_death_back_does_not_know_of_it() -> None:
    herd = settled(3)
    herd.crash("unit-0")
    death, observer = herd.watch.deaths["unit-0", 1], herd.units["unit-1"]
    herd.watch.on_status(observer, StatusChanged("unit-0", 1, Status.DEAD, "a test"))
    assert (1, None) == (death.count, death.all_us)
    herd.watch.on_status(observer, StatusChanged("unit-0", 1, Status.ALIVE, "a test"))
    assert 0 == death.count
    for other in (observer, herd.units["unit-2"]):
        herd.watch.on_status(other, StatusChanged("unit-0", 1, Status.DEAD, "a test"))
    assert herd.kernel.now_us == death.all_us


def test_accusations_of_the_living_are_told_apart_by_who_was_touched_by_a_fault() -> None:
    herd = settled(4)
    herd.units["unit-3"].healthy = False
    for accuser, subject in (("unit-0", "unit-1"), ("unit-3", "unit-1"), ("unit-0", "unit-3")):
        herd.watch.on_status(herd.units[accuser], StatusChanged(subject, 1, Status.DEAD, "a test"))
    watch = herd.watch
    assert (3, 2, 1) == (watch.false_positives, watch.subject_healthy, watch.healthy_false_positives)


def test_a_packet_that_is_too_long_is_seen() -> None:
    herd = settled(2)
    herd.count_packet(herd.units["unit-0"], b"x" * 1401)
    assert {"I11": 1} == dict(herd.watch.violations)


def test_an_incarnation_that_its_owner_never_had_is_seen() -> None:
    herd = settled(5)
    unit = herd.units["unit-0"]
    unit.machine.view.put(unit.machine.view.get("unit-1")._replace(counter=7))
    herd.crash("unit-1")
    herd.run(20.0)
    assert herd.watch.violations["I9"] > 0


def test_views_that_differ_at_the_end_are_seen() -> None:
    herd = settled(5)
    view = herd.units["unit-0"].machine.view
    view.put(view.get("unit-1")._replace(status=Status.DEAD))
    herd.watch.at_the_end()
    assert 1 == herd.watch.violations["L4"]
    assert 1 == herd.watch.violations["L3"]


def test_a_pack_without_alpha_at_the_end_is_seen() -> None:
    herd = settled(5)
    herd.crash("unit-4")
    herd.watch.at_the_end()
    assert 1 == herd.watch.violations["L1"]
