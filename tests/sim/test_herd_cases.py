"""Cases from the field that need membership and succession together, in virtual time. Ids: the cases of leadership."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from wolfpack.core.howls import HowlKind
from wolfpack.core.membership_words import MembershipOptions, Status
from wolfpack.model import PROFILES, Role, Timing
from wolfpack.sim.herd import Herd, HerdPlan
from wolfpack.sim.herd_unit import Clock
from wolfpack.sim.network import Weather

SILENCE_S = PROFILES["ray"].silence_s


def settled(units: int, seconds: float = 3.0, *, weather: Weather | None = None, **fields: object) -> Herd:
    herd = Herd(HerdPlan(units=units, **fields), weather=weather)  # type: ignore[arg-type]
    herd.settle_in()
    herd.run(seconds)
    return herd


def promises_kept(herd: Herd) -> None:
    """Faults have stopped: the herd comes to rest, and all that DESIGN promises holds."""
    assert herd.come_to_rest() is not None, herd.watch.story
    herd.watch.at_the_end()
    assert {} == dict(herd.watch.violations), herd.watch.story


# --- S04, S05: a few bad units ---------------------------------------------------------------------------------------


def refuted(limiter: bool, units: int) -> tuple[int, int, Herd]:
    """Two slow units, accused again and again for a minute: how often they defended themselves, and what was sent."""
    options = replace(MembershipOptions(), limit_refutations=limiter)
    herd = settled(units, pack=False, options=options)
    slow = [herd.units["unit-1"], herd.units["unit-2"]]
    before = herd.packets
    for unit in slow:
        unit.healthy = False
        unit.service_us = 300_000
    herd.run(60.0)
    return sum(unit.machine.counter for unit in slow), herd.packets - before, herd


def test_S04_refutations_of_two_slow_units_are_gathered_and_fail_nobody_else() -> None:
    limited, packets, herd = refuted(limiter=True, units=60)
    free, packets_free, herd_free = refuted(limiter=False, units=60)
    assert limited <= free
    assert packets <= 1.05 * packets_free
    for each in (herd, herd_free):
        assert 0 == each.watch.subject_healthy
    for unit in ("unit-1", "unit-2"):
        herd.units[unit].service_us = 0
    promises_kept(herd)


def test_S05_a_starved_twentieth_fails_no_healthy_unit_and_is_alive_again_when_fed() -> None:
    herd = settled(40, seconds=3.0)
    starved = [herd.units[f"unit-{no}"] for no in (3, 17)]
    for unit in starved:
        unit.healthy = False
        unit.service_us = 100_000
    herd.run(60.0)
    assert 0 == herd.watch.subject_healthy
    for unit in starved:
        unit.service_us = 0
    promises_kept(herd)
    assert herd.views_equal()


# --- S06, S07: long partitions ---------------------------------------------------------------------------------------


def test_S06_a_partition_of_25_hours_heals() -> None:
    # A slow profile: the same rounds, sixty times longer each, so that 25 hours are cheap.
    slow = Timing(
        name="slow",
        heartbeat_s=15.0,
        silence_s=60.0,
        answer_s=18.0,
        probe_s=30.0,
        ack_s=12.0,
        gossip_s=12.0,
        sync_s=600.0,
    )
    options = replace(MembershipOptions(), heal_s=600.0, settle_s=600.0)
    herd = Herd(HerdPlan(units=6, options=options), timing=slow)
    herd.settle_in()
    herd.run(600.0)
    cut = herd.network.cut(["unit-0", "unit-1", "unit-2"])
    herd.run(25 * 3600.0)
    assert {Status.DEAD} == {herd.units["unit-0"].machine.view.get(f"unit-{no}").status for no in (3, 4, 5)}
    herd.network.heal(cut)
    assert herd.run_until(lambda: herd.views_equal() and herd.led_by_one(), 3 * 3600.0, look_s=10.0) is not None


def test_S07_who_was_alone_until_it_saw_all_dead_comes_back() -> None:
    herd = settled(8)
    cut = herd.network.cut(["unit-0"])
    alone = herd.units["unit-0"].machine.view
    assert herd.run_until(lambda: alone.living == 1, 60.0) is not None
    herd.network.heal(cut)
    assert herd.run_until(lambda: herd.views_equal() and herd.led_by_one(), 60.0) is not None
    promises_kept(herd)


# --- S11: few of many -------------------------------------------------------------------------------------------------


def test_S11_the_first_of_five_that_boots_leads_alone() -> None:
    herd = Herd(HerdPlan(units=5))
    herd.settle_in(["unit-0"])
    assert herd.run_until(lambda: herd.alpha == "unit-0", 2 * SILENCE_S) is not None
    for no in range(1, 5):
        herd.run(1.0)
        herd.birth(f"unit-{no}", told=False)
    promises_kept(herd)
    assert 1 == len(herd.office.keeper.grants), "who joins changes no alpha"


def test_S11_when_the_oldest_crashes_the_others_go_on() -> None:
    herd = Herd(HerdPlan(units=5))
    herd.settle_in(["unit-0"])
    for no in range(1, 5):
        herd.run(1.0)
        herd.birth(f"unit-{no}")
    herd.run(10.0)
    herd.crash("unit-0")
    assert herd.run_until(herd.led_by_one, 6 * SILENCE_S) is not None
    promises_kept(herd)
    assert 4 == herd.living


# --- S13, S35: two units ----------------------------------------------------------------------------------------------


def test_S13_two_units_with_a_slow_link_keep_their_alpha() -> None:
    slow = Weather(delay_s=(0.1, 0.3), exponential_s=0.05)
    herd = settled(2, seconds=10.0, weather=slow)
    herd.run(300.0)
    assert 1 == len(herd.office.keeper.grants)


@pytest.mark.parametrize("seed", range(2))
def test_S35_two_units_that_were_split_have_one_alpha_and_find_each_other(seed: int) -> None:
    herd = settled(2, seed=seed)
    cut = herd.network.cut(["unit-0"], ["unit-1"])
    herd.run(30.0)
    alphas = [unit.name for unit in herd.alive if unit.lead.machine.may_lease(herd.kernel.now)]
    assert len(alphas) <= 1, "the keeper has one term"
    herd.network.heal(cut)
    promises_kept(herd)


# --- S14, S15: ranks --------------------------------------------------------------------------------------------------


def test_S14_the_highest_rank_returns_1000_times_and_changes_no_alpha() -> None:
    herd = Herd(HerdPlan(units=4))
    herd.settle_in([f"unit-{no}" for no in range(3)])
    herd.run(2.0)
    assert "unit-2" == herd.alpha
    dice = random.Random(14)
    for turn in range(1000):
        herd.birth("unit-3", told=turn % 2 == 0)
        herd.run(dice.uniform(0.05, 1.0))
        if turn % 3:
            herd.leave("unit-3")
        else:
            herd.crash("unit-3")
        herd.run(dice.uniform(0.05, 0.4))
    assert [(1, "unit-2", 1)] == herd.office.keeper.grants
    promises_kept(herd)


@pytest.mark.parametrize("seed", range(2))
def test_S15_after_a_partition_of_equal_ranks_all_follow_one_alpha(seed: int) -> None:
    herd = settled(6, seed=seed)  # one lead, told apart by their ids alone
    cut = herd.network.cut(herd.names[:3], herd.names[3:])
    herd.run(20.0)
    herd.network.heal(cut)
    promises_kept(herd)
    assert herd.led_by_one()


# --- S16, S17, S21: elections that go wrong ---------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(2))
def test_S16_leaving_rejoining_and_a_lost_election_make_one_alpha(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    herd = settled(4, seed=seed)
    office = herd.office
    send, dropped = herd.network.send, []

    def lossy(source, target, deliver, *args):
        howl = args[1] if len(args) == 2 else None
        if not dropped and getattr(howl, "kind", None) is HowlKind.ELECTION:
            dropped.append(howl)
            return
        send(source, target, deliver, *args)

    monkeypatch.setattr(herd.network, "send", lossy)
    herd.crash("unit-3")
    herd.run(0.3)
    herd.birth("unit-3", told=False)
    herd.run(0.1)
    herd.crash("unit-3")
    herd.birth("unit-3", told=False)
    promises_kept(herd)
    assert dropped
    assert len({term for term, _, _ in office.keeper.grants}) == len(office.keeper.grants)


def test_S17_a_cut_off_alpha_hands_out_nothing_after_silence_s() -> None:
    herd = settled(5)
    alpha = herd.units[herd.alpha]
    assert alpha.lead.machine.may_lease(herd.kernel.now)
    cut = herd.network.cut([alpha.name])  # from the keeper too
    herd.run(SILENCE_S)
    assert not alpha.lead.machine.may_lease(herd.kernel.now)
    assert herd.run_until(lambda: herd.alpha != alpha.name, 6 * SILENCE_S) is not None
    herd.network.heal(cut)
    promises_kept(herd)
    assert Role.MEMBER is alpha.lead.machine.role


@pytest.mark.parametrize("seed", range(2))
def test_S21_an_alpha_heard_through_one_bridge_blocks_nobody(seed: int) -> None:
    herd = settled(5, seed=seed)
    cut = herd.network.cut(["unit-0", "unit-1"], ["unit-3", "unit-4"])  # unit-2 hears both sides
    herd.run(40.0)
    leases = [unit.name for unit in herd.alive if unit.lead.machine.may_lease(herd.kernel.now)]
    assert 1 == len(leases), "the pack works on all the time"
    herd.network.heal(cut)
    promises_kept(herd)


def test_S22_pretenders_whose_claims_are_lost_again_and_again_part_and_one_leads() -> None:
    herd = settled(5)
    herd.office.keeper_up = False
    herd.crash(herd.alpha)
    herd.run(20.0)
    pretending = [unit.lead.machine for unit in herd.alive if unit.lead.machine.role is Role.PRETENDER]
    assert pretending
    assert len({machine.next_wake() for machine in pretending}) == len(pretending)
    herd.office.keeper_up = True
    assert herd.run_until(herd.led_by_one, 6 * SILENCE_S) is not None
    promises_kept(herd)


# --- S29: clocks ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(2))
def test_S29_clocks_that_run_five_percent_apart_and_jump_by_three_minutes_split_nothing(seed: int) -> None:
    herd = Herd(HerdPlan(units=5, seed=seed))
    herd.settle_in()
    dice = random.Random(seed)
    for unit in herd.alive:
        unit.clock = Clock(dice.uniform(0.95, 1.05))
    herd.run(30.0)
    grants = len(herd.office.keeper.grants)
    assert herd.led_by_one()
    for unit in herd.alive:
        unit.clock.offset_s += 180.0
        unit.awake()
        herd.run(5.0)
    promises_kept(herd)
    assert 0 == herd.watch.false_positives
    assert len(herd.office.keeper.grants) <= grants + 1, "an alpha may be missed when its own clock jumps, nobody else"
