"""Each kind of fault does what it says, and a run in which it happens comes to rest."""

import json
import random

import pytest

from tests.sim.dens import batch, fault, plan, start
from wolfpack.errors import CallerError
from wolfpack.sim.den_run import Run, play
from wolfpack.sim.faults import ALPHA, MENUS, Fault, FaultKind, draw_faults
from wolfpack.sim.network import Weather
from wolfpack.sim.plan import draw_plan

K = FaultKind
NAMES = ["grey-0", "grey-1", "grey-2"]


def lost(run: Run) -> list[tuple[str, int]]:
    return [(event["unit"], event["boot"]) for event in run.world.events("UnitLost")]


@pytest.mark.parametrize(
    ("kind", "amount", "weather"),
    [
        (K.LOSS, 0.3, Weather(lost=0.3)),
        (K.DOUBLING, 0.3, Weather(doubled=0.3)),
        (K.LATENESS, 0.3, Weather(late=0.3)),
        (K.DELAY, 0.05, Weather(exponential_s=0.05)),
        (K.UNREACHABLE, 0.1, Weather(unreachable=0.1)),
    ],
)
def test_weather_comes_and_goes(kind: FaultKind, amount: float, weather: Weather) -> None:
    run = start(fault(2.5, kind, for_s=2.0, amount=amount))
    run.world.run(1.0)
    assert weather == run.world.weather
    run.world.run(2.0)
    assert Weather() == run.world.weather


def test_of_two_weathers_the_worse_one_holds_and_each_ends_by_itself() -> None:
    run = start(fault(2.5, K.LOSS, for_s=4.0, amount=0.1), fault(3.0, K.LOSS, for_s=1.0, amount=0.4))
    lost_then = []
    for _ in range(3):
        run.world.run(1.25)
        lost_then.append(run.world.weather.lost)
    run.world.run(2.0)
    assert ([0.4, 0.1, 0.1], 0.0) == (lost_then, run.world.weather.lost)


@pytest.mark.parametrize(
    ("kind", "others", "severed"),
    [
        (K.SPLIT, ("grey-1",), ["grey-0>grey-1", "grey-1>grey-0"]),
        (K.BRIDGE, ("grey-1",), ["grey-0>grey-1", "grey-1>grey-0"]),
        (K.ONE_WAY, ("grey-1",), ["grey-0>grey-1"]),
        (K.ISOLATE, (), ["grey-0>grey-1", "grey-0>grey-2", "grey-1>grey-0", "grey-2>grey-0"]),
    ],
)
def test_a_partition_cuts_its_paths_and_heals(kind: FaultKind, others: tuple[str, ...], severed: list[str]) -> None:
    run = start(Fault(at_us=2_500_000, kind=kind, targets=("grey-0",), others=others, for_us=1_000_000))

    def cuts() -> list[str]:
        return [f"{a}>{b}" for a in NAMES for b in NAMES if a != b and run.world.network.severed(a, b)]

    assert [] == cuts()
    run.world.run(1.0)
    assert severed == cuts()
    run.world.run(1.0)
    assert [] == cuts()


def test_a_crash_is_told_at_once_and_a_silent_one_is_found_by_silence() -> None:
    run = start(fault(2.5, K.CRASH, "grey-0"), fault(2.5, K.SILENT_CRASH, "grey-1"))
    run.world.run(0.6)
    assert [("grey-0", 1)] == lost(run)
    run.world.run(17.0)
    assert [("grey-0", 1), ("grey-1", 1)] == lost(run)


@pytest.mark.parametrize("pause_s", [0.128, 2.048, 8.192])
def test_a_paused_unit_does_nothing_and_then_takes_what_waited_in_its_order(pause_s: float) -> None:
    run = start(fault(2.5, K.PAUSE, "grey-0", for_s=pause_s), seconds=60.0)
    world, seen = run.world, []
    world.run(0.6)
    process = world.processes["grey-0", 1]
    for no in range(3):
        process.hear(lambda no=no: seen.append((no, world.now)))
    world.run(pause_s + 0.1)
    began = 2.5 + pause_s
    assert [0, 1, 2] == [no for no, _ in seen]
    assert all(began <= at <= began + 0.1 for _, at in seen)


def test_a_unit_that_is_paused_longer_than_any_patience_finds_its_next_boot_in_its_place() -> None:
    run = start(fault(2.5, K.PAUSE, "grey-0", for_s=32.0), seconds=60.0)
    run.world.run(40.0)
    assert (2, [("grey-0", 1)]) == (run.world.process("grey-0").boot, lost(run))
    assert ("grey-0", 1) not in run.world.alive()


def test_a_deaf_unit_keeps_its_memory_and_loses_what_is_sent_to_it() -> None:
    run = start(fault(2.5, K.DEAF_PAUSE, "grey-0", for_s=1.0))
    world, seen = run.world, []
    world.run(0.6)
    process = world.processes["grey-0", 1]
    brain = process.brain
    process.hear(lambda: seen.append("lost"))
    world.run(1.0)
    process.hear(lambda: seen.append("heard"))
    assert (["heard"], True) == (seen, brain is process.brain and brain is not None)


def test_the_hands_of_a_frozen_unit_go_on_unless_they_are_frozen_too() -> None:
    def done_in_time(hands_too: float) -> bool:
        run = start(batch(2.2, 1.0, 1.0, 1.0), fault(2.8, K.PAUSE, *NAMES, for_s=0.8, amount=hands_too))
        run.world.run(0.7)
        running = [len(p.hands.running) for p in run.world.processes.values()]
        assert [1, 1, 1] == running
        run.world.run(0.7)
        return all(not p.hands.running for p in run.world.processes.values())

    assert [True, False] == [done_in_time(0.0), done_in_time(1.0)]


def test_each_message_takes_a_slow_unit_its_time_one_after_the_other() -> None:
    run = start(fault(2.5, K.SLOW, "grey-0", for_s=5.0, amount=1000.0))
    world, seen = run.world, []
    world.run(0.6)
    process = world.processes["grey-0", 1]
    for _ in range(3):
        process.hear(lambda: seen.append(world.now))
    world.run(2.0)
    assert all(gap >= 0.0999 for gap in (seen[0] - 2.6, seen[1] - seen[0], seen[2] - seen[1]))


def test_a_clock_runs_faster_and_jumps() -> None:
    run = start(
        fault(2.5, K.CLOCK_RATE, "grey-0", for_s=10.0, amount=1.05),
        fault(2.5, K.CLOCK_JUMP, "grey-1", amount=180.0),
        fault(2.5, K.CLOCK_JUMP, "grey-2", amount=-180.0),
    )
    run.world.run(2.5)
    fast, ahead, behind = (run.world.processes[name, 1] for name in NAMES)
    assert pytest.approx([4.6, 184.5, 4.5]) == [fast.now, ahead.now, behind.now]  # the monotonic one never goes back
    assert pytest.approx([0.0, 180.0, -180.0]) == [p.wall - 1_000_000.0 - 4.5 for p in (fast, ahead, behind)]


def test_a_unit_told_dead_lives_on_beside_its_next_boot_until_it_is_ended() -> None:
    run = start(fault(2.5, K.FALSE_DEATH, "grey-0"))
    together = run.world.run_until(lambda: {("grey-0", 1), ("grey-0", 2)} <= run.world.alive(), 1.0)
    assert (True, [("grey-0", 1)]) == (together, lost(run))
    run.come_to_rest()
    assert ("grey-0", 1) not in run.world.alive()


def test_what_a_former_boot_sent_arrives_after_the_next_one_is_born() -> None:
    run = start(batch(2.2, 0.6, 0.6, 0.6), fault(2.5, K.OLD_BOOT, "grey-0", for_s=2.0))
    run.world.run(3.0)
    assert 2 == run.world.process("grey-0").boot
    assert None is play(run.plan).violation


def test_a_keeper_crashes_and_is_back_after_its_time() -> None:
    run = start(fault(2.5, K.KEEPER_CRASH, for_s=1.5))
    up = []
    for _ in range(4):
        run.world.run(0.75)
        up.append(run.world.keeper.up)
    assert ([False, False, True, True], 2) == (up, run.world.disk.epoch)


def test_a_paused_keeper_forgives_its_own_pause() -> None:
    run = start(fault(2.5, K.KEEPER_PAUSE, for_s=8.0))
    run.world.run(1.0)
    assert run.world.keeper.paused
    run.world.run(9.0)
    assert (False, []) == (run.world.keeper.paused, lost(run))


def test_a_slow_keepers_commits_take_longer() -> None:
    def acknowledged_s(*faults: Fault) -> float:
        run = start(*faults, batch(3.0, 0.0))
        world = run.world
        world.run_until(lambda: world.clients["c"].acknowledged if "c" in world.clients else (), 5.0)
        return world.now - 3.0

    assert acknowledged_s(fault(2.5, K.KEEPER_SLOW, for_s=5.0, amount=300.0)) > 0.29 > 0.01 > acknowledged_s()


def test_a_reply_is_lost_after_its_commit() -> None:
    run = start(fault(2.5, K.REPLY_LOST, amount=1.0), batch(3.0, 0.1))
    world = run.world
    assert world.run_until(lambda: not world.keeper.up, 2.0)
    assert (["c:1"], set()) == (list(world.disk.tasks), world.clients["c"].acknowledged)
    run.come_to_rest()
    assert ["c:1"] == list(world.disk.tasks)


def test_a_full_disk_ends_the_keeper_and_the_next_one_goes_on() -> None:
    run = start(fault(2.5, K.COMMIT_FAILS), batch(3.0, 0.1))
    assert run.world.run_until(lambda: not run.world.keeper.up, 2.0)
    assert [] == list(run.world.disk.tasks)
    run.come_to_rest()
    assert (["done"], 2) == (run.world.states(["c:1"]), run.world.disk.epoch)


def test_of_two_keepers_the_older_one_ends_at_its_next_commit() -> None:
    run = start(fault(2.5, K.TWO_KEEPERS, "grey-0", for_s=5.0))
    world = run.world
    world.run(0.6)
    assert [True, True] == [keeper.up for keeper in world.keepers]
    world.keepers[0].book.desk.birth_failed(world.keepers[0].at(), "nobody", 0, "")
    world.keepers[0].book.journal.meta["x"] = "y"
    world.keepers[0].make_dirty()
    world.run(0.1)
    assert ([False, True], None) == ([keeper.up for keeper in world.keepers], world.disk.meta.get("x"))


def test_persons_orders_reach_the_book() -> None:
    run = start(
        fault(2.5, K.SCALE, "a", amount=1.0), fault(3.0, K.RECALL, "grey-0"), fault(3.0, K.SLEEP, "grey-1"),
        batch(2.6, 9.0), fault(3.5, K.CANCEL, amount=0.0),
    )  # fmt: skip
    run.world.run(4.0)
    assert (0, 1) == (run.world.book.packs["a"].spec.fewest, run.world.book.packs["a"].spec.most)
    ordered = {(event["order"], event["target"]) for event in run.world.events("OperatorActed")}
    assert {("recall", "grey-0"), ("sleep", "grey-1")} == ordered
    assert ["cancelled"] == run.world.states(["c:1"])


def test_a_fault_of_the_alpha_hits_whoever_leads() -> None:
    run = start(fault(2.5, K.CRASH, ALPHA))
    alpha = run.world.alpha("a")
    run.world.run(1.0)
    assert [(alpha, 1)] == lost(run)


def test_a_fault_whose_target_sleeps_hits_the_next_unit_that_does_not() -> None:
    run = start(fault(2.5, K.CRASH, "grey-0"), fault(2.52, K.CRASH, "grey-0"))
    run.world.run(0.58)
    assert [("grey-0", 1), ("grey-1", 1)] == lost(run)


# --- schedules ----------------------------------------------------------------------------------------------------


def test_every_kind_of_fault_is_on_the_menu_of_all() -> None:
    assert set(FaultKind) == set(MENUS["all"])
    assert {} == MENUS["calm"]


@pytest.mark.parametrize("menu", sorted(MENUS))
def test_a_menu_draws_only_its_kinds_and_all_end_in_time(menu: str) -> None:
    faults = draw_faults(random.Random(3), menu, units=NAMES, packs=["a"], seconds=2000.0, every_s=2.0)
    assert set(MENUS[menu]) == {each.kind for each in faults}
    assert all(0 < each.at_us and each.at_us + each.for_us <= 2_000_000_001 for each in faults)
    assert list(faults) == sorted(faults, key=lambda each: each.at_us)


def test_a_fault_survives_json_and_says_what_it_is() -> None:
    one = Fault(at_us=1_500_000, kind=K.SPLIT, targets=("grey-0",), others=("grey-1", "keeper"), for_us=2_000_000)
    assert one == Fault.from_plain(json.loads(json.dumps(one.to_plain())))
    assert "1.500 s: split grey-0 from grey-1, keeper for 2 s" == str(one)
    assert "2.000 s: slow grey-0 for 5 s (100)" == str(fault(2.0, K.SLOW, "grey-0", for_s=5.0, amount=100.0))


def test_an_unknown_menu_or_profile_is_refused_by_name() -> None:
    with pytest.raises(CallerError, match="crashs"):
        draw_plan(1, menu="crashs")
    with pytest.raises(CallerError, match="rai"):
        draw_plan(1, profile="rai")


@pytest.mark.parametrize("kind", list(FaultKind), ids=str)
def test_a_den_in_which_one_kind_of_fault_happens_comes_to_rest_with_all_promises_kept(kind: FaultKind) -> None:
    drawn = draw_faults(random.Random(1), "all", units=NAMES, packs=["a"], seconds=3000.0, every_s=1.0)
    faults = [each for each in drawn if each.kind is kind][:3]
    moved = [
        Fault(at_us=2_000_000 + 3_000_000 * no, kind=kind, targets=each.targets, others=each.others,
              for_us=min(each.for_us, 4_000_000), amount=each.amount)
        for no, each in enumerate(faults)
    ]  # fmt: skip
    result = play(plan(*moved, batch(2.0, *[0.5] * 10), batch(6.0, *[0.1] * 20), seconds=12.0))
    assert (None, 3) == (result.violation, result.faults)
    assert 30 == result.done + result.cancelled
