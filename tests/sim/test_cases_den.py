"""Cases of the field that need a whole den: see the tables of cases that the ids name."""

import pytest

from tests.sim.dens import QUICK
from wolfpack.core import errands as e
from wolfpack.model import PackSpec, RetryPolicy
from wolfpack.sim.den import World, task, wolves
from wolfpack.sim.den_hands import Hands
from wolfpack.sim.den_units import Process

LEASE_S, SILENCE_S = QUICK.lease_s, QUICK.silence_s


def den(units: int = 3, *, seed: int = 0, **fields: object) -> World:
    """Wolves that stay awake in one pack `p`, under an alpha."""
    retry = RetryPolicy(max_attempts=20, backoff_s=0.01, backoff_max_s=0.05)
    world = World(
        cards=wolves(units, awake_min=units), packs=[PackSpec(name="p", fewest=units, most=units, retry=retry)],
        seed=seed, timing=QUICK, **fields,  # type: ignore[arg-type]
    )  # fmt: skip
    assert world.run_until(lambda: world.alpha("p") and len(world.members("p")) == units, 10.0)
    world.run(1.0)
    return world


def alpha_of(world: World) -> str:
    alpha = world.alpha("p")
    assert alpha is not None
    return alpha


def members_beside(world: World, *others: str) -> list[str]:
    return [unit for unit in world.members("p") if unit not in others]


def running_on(world: World, unit: str) -> bool:
    process = world.find_process(unit)
    return process is not None and bool(process.hands.running)


def started(world: World, task_id: str) -> list[tuple[str, int]]:
    """Units and boots that started this task, in their order."""
    return [(unit, boot) for _, unit, boot, _ in world.starts[task_id]]


def crownings(world: World) -> list[str]:
    return [event["unit"] for event in world.events("AlphaCrowned")]


# --- tasks and units ----------------------------------------------------------------------------------------------


def test_P15_a_task_of_many_leases_on_a_living_unit_runs_once_also_over_a_restart_of_the_keeper() -> None:
    world = den(2)
    ids = world.submit("p", [task(8 * LEASE_S), task(8 * LEASE_S)])
    for _ in range(3):
        world.run(2 * LEASE_S)
        world.crash_keeper(0.5)
    world.settle()
    assert [1, 1] == [len(world.starts[each]) for each in ids]


def test_P17_leases_of_a_unit_that_died_do_not_live_on_in_its_next_boot() -> None:
    world = den(1)
    (task_id,) = world.submit("p", [task(1.0)])
    assert world.run_until(lambda: running_on(world, "grey-0"), 5.0)
    old_lease = world.row(task_id).lease_no
    world.crash("grey-0")
    assert world.run_until(lambda: ("grey-0", 2) in world.alive(), 5.0)
    assert not world.process("grey-0").hands.running
    world.settle()
    assert [("grey-0", 1), ("grey-0", 2)] == started(world, task_id)
    assert old_lease < world.row(task_id).lease_no
    assert 2 == world.row(task_id).boot


def test_P18_a_boot_that_was_given_up_and_still_runs_commits_nothing_over_its_next_boot() -> None:
    world = den(1)
    (task_id,) = world.submit("p", [task(0.8)])
    assert world.run_until(lambda: running_on(world, "grey-0"), 5.0)
    world.tell_death("grey-0", 1)  # and it is not so
    assert world.run_until(lambda: len(world.starts[task_id]) == 2, 5.0)
    assert {("grey-0", 1), ("grey-0", 2)} <= world.alive()
    assert world.run_until(world.settled, 10.0)
    assert (2, "done") == (world.row(task_id).boot, world.row(task_id).state)
    assert world.run_until(lambda: ("grey-0", 1) not in world.alive(), 20.0)
    assert [("grey-0", 1)] == [(ghost.unit, ghost.boot) for ghost in world.disk.ghosts]


def test_P19_a_unit_whose_death_nobody_tells_twice_in_a_row_is_missed_within_its_lease_both_times() -> None:
    world = den(3)
    for _ in range(2):
        (task_id,) = world.submit("p", [task(3.0)])
        assert world.run_until(lambda task_id=task_id: world.starts[task_id], 5.0)
        unit, _ = started(world, task_id)[0]
        world.crash(unit, quiet=True)
        died = world.now
        assert world.run_until(lambda task_id=task_id: len(world.starts[task_id]) == 2, 10.0)
        assert world.now - died <= LEASE_S + 4 * SILENCE_S
        world.settle()
        assert world.run_until(lambda: len(world.members("p")) == 3, 30.0)
        world.run(2.0)


def test_P20_what_a_dead_unit_held_is_found_within_one_lease_without_any_restart() -> None:
    world = den(3)
    victim = members_beside(world, alpha_of(world))[0]
    ids = world.submit("p", [task(1.5)] * 3)
    assert world.run_until(lambda: running_on(world, victim), 5.0)
    (orphan,) = [each for each in ids if (victim, 1) in started(world, each)]
    world.crash(victim, quiet=True)
    died = world.now
    assert world.run_until(lambda: len(world.starts[orphan]) == 2, 10.0)
    assert world.now - died <= LEASE_S + SILENCE_S + 1.5  # a busy unit takes it when it is free
    assert 1 == world.disk.epoch
    world.settle()


def test_P26_work_flows_to_a_unit_again_that_was_cut_off_from_its_alpha_for_thirty_seconds() -> None:
    world = den(3)
    alpha = alpha_of(world)
    away = members_beside(world, alpha)[0]
    cut = world.network.cut({away}, {alpha})
    before = world.submit("p", [task(0.3)] * 60)
    world.run(30.0)
    assert world.done(before)
    world.network.heal(cut)
    world.run(LEASE_S + SILENCE_S)  # a hunt that was on its way then is given up
    after = world.submit("p", [task(0.3)] * 30)
    world.settle()
    assert away in {unit for each in after for unit, _ in started(world, each)}


def test_P27_a_unit_that_fails_at_once_does_not_keep_the_pack_from_the_others() -> None:
    world = World(cards=wolves(4), packs=[PackSpec(name="p", most=4)], timing=QUICK)
    world.broken.add("grey-0")  # the first that is asked
    ids = world.submit("p", [task(0.5)] * 30)
    assert world.run_until(lambda: world.members("p") == ["grey-1", "grey-2", "grey-3"], 10.0)
    world.settle()
    assert {"grey-1", "grey-2", "grey-3"} == {unit for each in ids for unit, _ in started(world, each)}


# --- leadership ---------------------------------------------------------------------------------------------------


def test_S19_a_member_that_was_isolated_for_thirty_seconds_changes_no_alpha_on_its_return() -> None:
    world = den(4)
    alpha = alpha_of(world)
    away = members_beside(world, alpha)[-1]
    cut = world.network.cut({away})
    world.run(30.0)
    world.network.heal(cut)
    world.run(10.0)
    assert [alpha] == crownings(world)
    assert away in world.members("p")


def test_S20_a_unit_that_slept_through_many_terms_follows_the_present_one_at_once() -> None:
    world = den(4)
    away = members_beside(world, alpha_of(world))[0]
    world.freeze(away)
    for _ in range(3):
        world.crash(alpha_of(world))
        world.run(1.0)
    world.thaw(away)
    world.run(2 * SILENCE_S)
    brain = world.process(away).brain
    assert brain is not None
    assert brain.succession is not None
    assert (world.book.packs["p"].term, alpha_of(world)) == (
        brain.succession.term, brain.succession.alpha or away,
    )  # fmt: skip


def test_S23_an_alpha_that_the_keeper_cannot_hear_is_followed_by_another_and_does_not_come_back() -> None:
    world = den(3)
    alpha = alpha_of(world)
    cut = world.network.cut({alpha}, {"keeper"})
    ids = world.submit("p", [task(0.1)] * 30)
    assert world.run_until(lambda: alpha_of(world) != alpha, 8 * SILENCE_S)
    world.network.heal(cut)
    world.run(10.0)
    assert 2 == len(crownings(world))
    assert world.done(ids)


def given_terms(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, int, int]]:
    """When hands are given jobs: the time, the job's term, and the pack's term in the ledger."""
    seen: list[tuple[float, int, int]] = []
    give = Hands.give

    def watched(self: Hands, jobs: tuple[object, ...]) -> None:
        world = self._world
        seen.extend((world.now, job.term, world.disk.packs["p"].term) for job in jobs)  # type: ignore[attr-defined]
        give(self, jobs)  # type: ignore[arg-type]

    monkeypatch.setattr(Hands, "give", watched)
    return seen


@pytest.mark.parametrize("seed", range(3))
def test_S26_no_lease_leaves_an_alpha_whose_stepping_down_hangs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    given = given_terms(monkeypatch)
    world = den(4, seed=seed)
    alpha = alpha_of(world)
    ids = world.submit("p", [task(0.1)] * 150)
    assert world.run_until(lambda: sum(world.done([each]) for each in ids) > 20, 10.0)
    world.process(alpha).slow_down(5000.0)  # half a second for each message, also for the one that deposes it
    assert world.run_until(lambda: alpha_of(world) != alpha, 60.0)
    world.run(5.0)
    world.process(alpha).slow_down(0.0)
    world.settle()
    crowned_at = [event["at"] for event in world.events("AlphaCrowned")]
    late = [at - crowned_at[term] for at, term, newest in given if term < newest]
    assert all(seconds <= SILENCE_S for seconds in late)
    assert len(given) >= 150


@pytest.mark.parametrize("seed", range(4))
def test_S30_partitions_that_heal_while_leases_are_handed_out_lose_no_task(seed: int) -> None:
    world = den(4, seed=seed)
    ids = world.submit("p", [task(0.05)] * 300)
    dice = world.kernel.stream("test")
    for _ in range(8):
        cut = world.network.cut(dice.sample(["keeper", *world.members("p")], 2))
        world.run(dice.uniform(0.05, 1.5))
        world.network.heal(cut)
        world.run(dice.uniform(0.05, 0.5))
    world.settle(120.0)
    assert {"done"} == set(world.states(ids))


def test_S31_wrong_news_of_a_death_costs_a_living_alpha_nothing() -> None:
    world = den(4)
    alpha = alpha_of(world)
    ids = world.submit("p", [task(0.1)] * 100)
    for _ in range(10):
        world.run(0.2)
        for unit in members_beside(world, alpha):
            world.process(unit).step(e.UnitDied(unit=alpha, boot=1))
    world.settle()
    world.run(5.0)
    assert [alpha] == crownings(world)
    assert ("grey-0", 1) in world.alive()
    assert [1] * 100 == [len(world.starts[each]) for each in ids]


def test_S31_a_keeper_that_believes_in_a_death_commits_nothing_twice() -> None:
    world = den(4)
    ids = world.submit("p", [task(0.1)] * 100)
    for _ in range(4):
        world.run(0.5)
        unit = world.members("p")[0]
        world.tell_death(unit, world.process(unit).boot)
    assert world.run_until(world.settled, 60.0)
    assert {"done"} == set(world.states(ids))
    assert world.run_until(lambda: len(world.alive()) == 4, 30.0)


def test_S32_calls_that_are_never_answered_hold_nothing_up_for_ever() -> None:
    world = den(3)
    cut = world.network.cut({"keeper"}, one_way=True)  # it hears everything, and nobody hears it
    ids = world.submit("p", [task(0.1)] * 30)
    world.run(20.0)
    world.network.heal(cut)
    world.settle(30.0)
    assert {"done"} == set(world.states(ids))


def test_S32_an_alpha_whose_node_falls_silent_leaves_no_hunt_waiting() -> None:
    world = den(3)
    ids = world.submit("p", [task(0.3)] * 30)
    world.run(1.0)
    world.crash(alpha_of(world), quiet=True)
    assert world.run_until(lambda: world.done(ids), 30.0)


def test_S33_of_two_boots_of_one_unit_the_older_one_is_refused_and_ends() -> None:
    world = den(2)
    world.crash("grey-0")
    assert world.run_until(lambda: ("grey-0", 2) in world.alive(), 5.0)
    world.create(world.book.units["grey-0"].card, 1)  # Ray made the first one again
    world.run(1.0)
    assert (False, True) == (("grey-0", 1) in world.alive(), ("grey-0", 2) in world.alive())
    assert 2 == world.book.units["grey-0"].boot


def test_S33_a_boot_that_nobody_wants_any_more_rests_between_its_hunts(monkeypatch: pytest.MonkeyPatch) -> None:
    hunts: list[tuple[str, int]] = []
    send = Process._send_hunt

    def counted(self: Process, to: str, its: int, hunt: object) -> None:
        hunts.append((self.card.unit, self.boot))
        send(self, to, its, hunt)  # type: ignore[arg-type]

    monkeypatch.setattr(Process, "_send_hunt", counted)
    world = den(3)
    old = members_beside(world, alpha_of(world))[0]
    world.tell_death(old, 1)
    assert world.run_until(lambda: (old, 2) in world.alive(), 5.0)
    world.run(1.0)
    hunts.clear()
    world.run(2.0)
    assert (old, 1) in world.alive()
    assert hunts.count((old, 1)) <= 50
