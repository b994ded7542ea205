"""Cases from the field about tasks: attempts, causes, leases, evictions, cancels. The world is a whole den."""

from __future__ import annotations

import pytest

from tests.core.book_desk import den, ended
from wolfpack.core.book.queue import Queue
from wolfpack.core.book.state import Task
from wolfpack.core.rows import TaskFixed
from wolfpack.errors import UnknownName
from wolfpack.model import Card, Cause, Nature, Needs, Offer, PackSpec, RetryPolicy, TaskState, Timing
from wolfpack.sim.den import World, task, wolves

QUICK = Timing(name="quick", heartbeat_s=0.1, silence_s=0.4, answer_s=0.12, lease_s=1.0)
CPU = Offer(frozenset({"cpu"}))


def pack(most: int = 8, **fields: object) -> PackSpec:
    retry = fields.pop("retry", RetryPolicy(max_attempts=3, max_evictions=100, backoff_s=0.01))
    return PackSpec(name="p", most=most, retry=retry, **fields)  # type: ignore[arg-type]


def order(world: World, unit: str, what: str, grace_s: float | None = None) -> None:
    world.act(lambda book, at: book.order_unit(at, unit, what, grace_s, "a test"))


def running(world: World, task_id: str) -> bool:
    """Whether user code of this task runs somewhere now."""
    return any(
        job.task_id == task_id
        for process in world.processes.values()
        if not process.dead
        for job, _ in process.hands.running.values()
    )


def unit_of(world: World, task_id: str) -> str:
    return world.starts[task_id][-1][1]


def causes(world: World, task_id: str) -> list[str]:
    return [attempt[4] for attempt in world.book.attempts(task_id, world.disk.tasks[task_id])]


def test_P01_fifty_recalls_of_its_unit_do_not_cost_a_task_its_attempts() -> None:
    world = World(cards=wolves(1), packs=[pack()], timing=QUICK, birth_s=0.01)
    (task_id,) = world.submit("p", [task(5.0)])
    for _ in range(50):
        assert world.run_until(lambda: running(world, task_id), 10.0)
        order(world, "grey-0", "recall", 0.0)
        assert world.run_until(lambda: not running(world, task_id), 1.0)
    world.settle()
    assert ["EVICTED"] * 50 + ["DONE"] == causes(world, task_id)
    assert (51, 0) == (world.row(task_id).attempts, world.row(task_id).failures)


def test_P02_a_task_submitted_while_its_unit_restarts_has_no_attempt_before_it_starts() -> None:
    world = World(cards=wolves(1), packs=[pack(fewest=1)], birth_s=0.5)
    assert world.run_until(lambda: world.members("p"), 5.0)
    world.crash("grey-0")
    (task_id,) = world.submit("p", [task(0.1)])
    world.run(0.3)
    assert 0 == world.row(task_id).attempts
    world.settle()
    assert ["DONE"] == causes(world, task_id)


def test_P03_attempts_count_starts_of_user_code_and_no_lost_calls() -> None:
    world = World(cards=wolves(3), packs=[pack(retry=RetryPolicy(max_attempts=9, backoff_s=0.01))], timing=QUICK)
    world.change_weather(unreachable=0.05)
    ids = world.submit("p", [task(0.05, "FAULT", "CRASH", "DONE")] * 30)
    world.after(0.4, world.crash_keeper)
    world.settle()
    assert {each: len(world.starts[each]) for each in ids} == {each: world.row(each).attempts for each in ids}


def test_P04_scaling_in_fails_no_task_that_has_a_single_attempt() -> None:
    world = World(cards=wolves(4), packs=[pack(retry=RetryPolicy(max_attempts=1))])
    ids = world.submit("p", [task(0.3)] * 40)
    assert world.run_until(lambda: len(world.members("p")) == 4, 10.0)
    world.act(lambda book, at: book.scale(at, "p", 0, 1, ""))
    world.settle()
    assert world.done(ids)
    assert 1 == len(world.members("p"))


@pytest.mark.parametrize("cause", ["FAULT", "CRASH", "OOM", "TIMEOUT"])
def test_P05_what_a_task_does_wrong_is_told_by_its_cause(cause: str) -> None:
    world = World(cards=wolves(1), packs=[pack(retry=RetryPolicy(max_attempts=2, backoff_s=0.01))])
    (task_id,) = world.submit("p", [task(0.01, cause)])
    world.settle()
    assert ("dead", cause, [cause] * 2) == (world.row(task_id).state, world.row(task_id).cause, causes(world, task_id))


def test_P05_a_killed_unit_a_recall_a_cancel_and_a_deadline_have_causes_of_their_own() -> None:
    world = World(cards=wolves(1), packs=[pack()], timing=QUICK)
    (lost,) = world.submit("p", [task(1.0)])
    assert world.run_until(lambda: running(world, lost), 5.0)
    world.crash("grey-0")
    assert world.run_until(lambda: causes(world, lost) == ["LOST"], 5.0)
    world.settle()
    (evicted,) = world.submit("p", [task(1.0)])
    assert world.run_until(lambda: running(world, evicted), 5.0)
    order(world, "grey-0", "recall", 0.0)
    assert world.run_until(lambda: causes(world, evicted) == ["EVICTED"], 5.0)
    world.settle()
    (cancelled,) = world.submit("p", [task(9.0)])
    assert world.run_until(lambda: running(world, cancelled), 5.0)
    world.act(lambda book, at: book.cancel(at, [cancelled], kill=True))
    world.settle()
    (expired,) = world.submit("p", [task(9.0, deadline_s=1.0)])
    world.settle(3.0)
    assert ["CANCELLED", "EXPIRED"] == [world.row(each).cause for each in (cancelled, expired)]
    assert ["cancelled", "dead"] == world.states([cancelled, expired])


def test_P07_releasing_and_sleeping_a_unit_leaves_all_counters_alone() -> None:
    world = World(cards=wolves(1), packs=[pack()])
    ids = world.submit("p", [task(0.3)] * 6)
    for what in ("release", "sleep", "release"):
        assert world.run_until(lambda: any(running(world, each) for each in ids), 10.0)
        order(world, "grey-0", what)
        world.run(0.5)
    world.settle()
    assert {(1, 0, 0)} == {(row.attempts, row.failures, row.evictions) for row in map(world.row, ids)}


def test_P08_a_lost_unit_and_dead_hands_are_no_fault_and_the_text_says_so() -> None:
    world = World(cards=wolves(1), packs=[pack(retry=RetryPolicy(max_attempts=1))])
    crashed, lost = world.submit("p", [task(0.1, "CRASH")])[0], world.submit("p", [task(0.1, "KILL")])[0]
    world.settle()
    assert ["CRASH", "LOST"] == [world.row(each).cause for each in (crashed, lost)]
    assert all("no fault" in world.row(each).text for each in (crashed, lost))


def test_P09_a_task_that_kills_its_unit_is_buried_and_those_beside_it_are_not_blamed() -> None:
    world = World(
        cards=wolves(3), packs=[pack(retry=RetryPolicy(max_attempts=3, backoff_s=0.01))], timing=QUICK,
        node=lambda _: "one machine",
    )  # fmt: skip
    good = world.submit("p", [task(0.02)] * 60)
    (bad,) = world.submit("p", [task(0.02, "KILL")])
    good += world.submit("p", [task(0.02)] * 60)
    world.settle()
    assert "dead" == world.row(bad).state
    assert world.done(good)
    assert {0} == {world.row(each).failures for each in good}


def test_P11_a_task_pushed_back_too_often_is_pinned_to_a_unit_that_is_not_lent_and_finishes_there() -> None:
    silver = Card(unit="silver-0", kind="silver", nature=Nature.WEREWOLF, offer=CPU, min_tenure_s=0.0, grace_s=0.0)
    packs = [pack(most=2, retry=RetryPolicy(max_evictions=3)), PackSpec(name="other", most=1)]
    world = World(cards=[silver, *wolves(1)], packs=packs, timing=QUICK)
    (busy,) = world.submit("other", [task(9.0)])
    assert world.run_until(lambda: running(world, busy), 5.0)
    (task_id,) = world.submit("p", [task(5.0)])
    for _ in range(3):
        assert world.run_until(lambda: running(world, task_id), 10.0)
        assert "silver-0" == unit_of(world, task_id)
        order(world, "silver-0", "recall", 0.0)
        assert world.run_until(lambda: not running(world, task_id), 1.0)
    world.settle()
    assert ["EVICTED"] * 3 + ["DONE"] == causes(world, task_id)
    assert "grey-0" == unit_of(world, task_id)
    assert 1 == len(world.events("TaskPinned"))


def test_P11_a_pin_that_no_unit_could_ever_serve_is_dropped() -> None:
    silver = Card(unit="silver-0", kind="silver", nature=Nature.WEREWOLF, offer=CPU, min_tenure_s=0.0, grace_s=0.0)
    world = World(cards=[silver], packs=[pack(retry=RetryPolicy(max_evictions=1))], timing=QUICK)
    (task_id,) = world.submit("p", [task(2.0)])
    assert world.run_until(lambda: running(world, task_id), 5.0)
    order(world, "silver-0", "recall", 0.0)
    assert world.run_until(lambda: not running(world, task_id), 1.0)
    world.run(0.1)
    assert "The pin is dropped" in world.row(task_id).text
    world.settle()


def test_P12_a_task_ten_leases_long_starts_once() -> None:
    world = World(cards=wolves(2), packs=[pack()], timing=QUICK)
    ids = world.submit("p", [task(10.0), task(10.0), task(0.1)])
    world.settle()
    assert [1, 1, 1] == [len(world.starts[each]) for each in ids]
    assert 0 == world.book.journal.ghosts_counted


def test_P13_a_task_delayed_by_five_leases_runs_once_and_not_early() -> None:
    world = World(cards=wolves(2), packs=[pack()], timing=QUICK)
    (task_id,) = world.submit("p", [task(0.1, delay_s=5.0)])
    world.settle()
    assert 1 == len(world.starts[task_id])
    assert world.starts[task_id][0][0] >= 5.0


@pytest.mark.parametrize("tell", [True, False])
def test_P14_a_lost_unit_s_task_is_leased_again_within_one_lease(tell: bool) -> None:
    world = World(cards=wolves(2), packs=[pack(fewest=2)], timing=QUICK)
    assert world.run_until(lambda: len(world.members("p")) == 2, 5.0)
    (task_id,) = world.submit("p", [task(3.0)])
    assert world.run_until(lambda: running(world, task_id), 5.0)
    world.run(QUICK.lease_s / 2)
    world.crash(unit_of(world, task_id), tell=tell)
    since = world.now
    assert world.run_until(lambda: running(world, task_id), 5.0)
    # A notice of death frees the lease at once; else its time must run out, and an alpha may have to be found.
    assert world.now - since < (0.5 if tell else QUICK.lease_s + 2 * QUICK.silence_s)
    world.settle()
    assert 2 == len(world.starts[task_id])


def test_P16_a_unit_whose_hands_are_deaf_for_three_leases_keeps_its_lease() -> None:
    world = World(cards=wolves(2), packs=[pack()], timing=QUICK)
    (task_id,) = world.submit("p", [task(3 * QUICK.lease_s)])
    assert world.run_until(lambda: running(world, task_id), 5.0)
    world.process(unit_of(world, task_id)).hands.frozen = True  # the brain lives, and speaks for them
    world.run(3 * QUICK.lease_s)
    world.process(unit_of(world, task_id)).hands.thaw()
    world.settle()
    assert 1 == len(world.starts[task_id])


def test_P19_two_losses_in_a_row_are_each_found_at_once() -> None:
    world = World(cards=wolves(1), packs=[pack()], timing=QUICK)
    (task_id,) = world.submit("p", [task(2.0)])
    for _ in range(2):
        assert world.run_until(lambda: running(world, task_id), QUICK.lease_s)
        world.run(0.2)
        world.crash("grey-0")
        assert world.run_until(lambda: not running(world, task_id), 0.1)
    world.settle()
    assert ["LOST", "LOST", "DONE"] == causes(world, task_id)


@pytest.mark.parametrize("how", ["killed", "killed silently", "frozen"])
def test_P21_the_future_of_a_task_settles_whatever_becomes_of_its_unit(how: str) -> None:
    world = World(cards=wolves(2), packs=[pack()], timing=QUICK)
    (task_id,) = world.submit("p", [task(0.5)])
    assert world.run_until(lambda: running(world, task_id), 5.0)
    unit = unit_of(world, task_id)
    if how == "frozen":
        world.freeze(unit, hands=True)
    else:
        world.crash(unit, tell=how == "killed")
    world.settle(QUICK.lease_s + 6 * QUICK.silence_s + 0.5 + 1.0)
    assert world.done([task_id])


def test_P24_all_futures_settle_when_a_node_with_half_of_the_units_is_removed() -> None:
    world = World(cards=wolves(4), packs=[pack(fewest=4)], timing=QUICK, node=lambda unit: f"node {int(unit[-1]) // 2}")
    ids = world.submit("p", [task(0.2)] * 60)
    world.run(1.0)
    for unit in ("grey-0", "grey-1"):
        world.crash(unit)
    world.settle()
    assert world.done(ids)


def test_P25_the_task_of_a_frozen_unit_runs_elsewhere_and_its_late_report_is_a_ghost() -> None:
    world = World(cards=wolves(2), packs=[pack(fewest=2)], timing=QUICK)
    assert world.run_until(lambda: len(world.members("p")) == 2, 5.0)
    (task_id,) = world.submit("p", [task(0.5)])
    assert world.run_until(lambda: running(world, task_id), 5.0)
    frozen = unit_of(world, task_id)
    world.freeze(frozen)
    world.settle()
    assert frozen != unit_of(world, task_id)
    world.thaw(frozen)
    world.run(2.0)
    assert 1 == world.book.journal.ghosts_counted
    assert "DONE" == world.disk.ghosts[0].cause


def test_P25_an_alpha_does_not_renew_the_leases_of_a_member_that_fell_silent() -> None:
    world = World(cards=wolves(3), packs=[pack(fewest=3)], timing=QUICK)
    assert world.run_until(lambda: len(world.members("p")) == 3 and world.alpha("p"), 5.0)
    ids = world.submit("p", [task(0.5)] * 3)
    assert world.run_until(lambda: all(running(world, each) for each in ids), 5.0)
    frozen = next(unit for unit in world.members("p") if unit != world.alpha("p"))
    world.freeze(frozen, hands=True)
    world.settle(QUICK.lease_s + 2.0)


def test_P48_short_tasks_do_not_wait_behind_a_long_one() -> None:
    world = World(cards=wolves(2), packs=[pack(fewest=2)])
    assert world.run_until(lambda: len(world.members("p")) == 2, 5.0)
    since = world.now
    (long_one,) = world.submit("p", [task(10.0)])
    short = world.submit("p", [task(0.01)] * 300)
    assert world.run_until(lambda: world.done(short), 9.0)
    # One unit is left for them: 3 s of work, and what it takes to hand it out.
    assert world.now - since < 3.0 * 1.2 + 0.4
    world.settle()
    assert 1 == len(world.starts[long_one])


def a_task(counter: int, priority: int, submitted_at: float, deadline_at: float | None = None) -> Task:
    options = (
        f'{{"priority":{priority}{"" if deadline_at is None else f",{chr(34)}deadline_at{chr(34)}:{deadline_at}"}}}'
    )
    fixed = TaskFixed(f"c:{counter}", "p", "c", counter, None, "f", "", b"", "", options, submitted_at)
    return Task(fixed, Needs())


def drained(tasks: list[Task]) -> list[int]:
    queue = Queue()
    for each in tasks:
        queue.push(each, 1e9)
    return [each.fixed.counter for each in queue.pop(CPU, len(tasks))]


def test_P49_priority_goes_first_then_deadline_then_age() -> None:
    tasks = [a_task(1, 0, 0.0), a_task(2, 5, 3.0), a_task(3, 0, 1.0, deadline_at=50.0), a_task(4, 5, 2.0)]
    assert [4, 2, 3, 1] == drained(tasks)


def test_P49_a_task_of_low_priority_is_overtaken_only_for_so_long() -> None:
    old = a_task(0, 0, 0.0)
    later = [a_task(no, 3, no * 10.0) for no in range(1, 60)]
    place = drained([old, *later]).index(0)
    assert 0 < place < 30


def test_P52_a_recall_with_grace_lets_the_task_finish() -> None:
    world = World(cards=wolves(1), packs=[pack()])
    (task_id,) = world.submit("p", [task(1.0)])
    assert world.run_until(lambda: running(world, task_id), 5.0)
    order(world, "grey-0", "recall", 2.0)
    world.settle()
    assert ["DONE"] == causes(world, task_id)


def test_P52_a_recall_whose_grace_is_too_short_evicts_with_a_reason() -> None:
    world = World(cards=wolves(1), packs=[pack()])
    (task_id,) = world.submit("p", [task(1.0)])
    assert world.run_until(lambda: running(world, task_id), 5.0)
    order(world, "grey-0", "recall", 0.1)
    assert world.run_until(lambda: world.row(task_id).evictions == 1, 2.0)
    assert "not the task's fault" in world.row(task_id).text
    world.settle()
    assert ["EVICTED", "DONE"] == causes(world, task_id)


def test_P54_an_unknown_task_is_an_error_and_a_waiting_one_says_its_place() -> None:
    desk = den()
    first, second, third = desk.submit(3)
    with pytest.raises(UnknownName, match=r"no task named 'c:99' in this den\. Ids of tasks look like") as unknown:
        desk.book.why(desk.at, "c:99", None)
    assert first not in str(unknown.value)
    assert "0 of 3 go before it" in desk.book.why(desk.at, first, None)
    assert "2 of 3 go before it" in desk.book.why(desk.at, third, None)
    desk.lease(1)
    assert "leased to grey-0" in desk.book.why(desk.at, first, None)
    assert "0 of 2 go before it" in desk.book.why(desk.at, second, None)


def test_P57_a_need_nobody_offers_is_told_at_once_with_numbers() -> None:
    desk = den(2)
    (task_id,) = desk.submit(needs='{"gpu": true}')
    assert "none of the den's 2 cards offers it" in desk.events("NeedUnmet")[0]
    assert "lacks tag 'gpu'" in desk.book.why(desk.at, task_id, None)


def test_P57_infeasible_fail_refuses_the_task() -> None:
    desk = den(1, [PackSpec(name="p", infeasible="fail")])
    ((verdict, _, _),) = desk.submit_items(needs='{"gpu": true}')
    assert verdict.startswith("infeasible: No unit can serve gpu")
    assert not desk.book.tasks.live


@pytest.mark.parametrize(
    ("then", "state", "ghosts"),
    [
        ("nothing", "done", 0),
        ("cancel mark", "done", 0),
        ("expired", "done", 0),
        ("leased again", "leased", 1),
        ("cancelled", "cancelled", 1),
        ("dead", "dead", 1),
        ("done", "done", 0),
    ],
)
def test_P67_a_late_result_counts_only_under_the_latest_lease_and_where_the_state_allows_it(
    then: str, state: str, ghosts: int
) -> None:
    desk = den(2, [PackSpec(name="p", retry=RetryPolicy(max_attempts=1))])
    (task_id,) = desk.submit()
    (job,) = desk.lease(of="grey-1")
    late = ended(job)
    if then == "cancel mark":
        desk.book.cancel(desk.at, [task_id], kill=False)
    elif then in ("expired", "leased again", "cancelled", "dead"):
        desk.wait(6.0)  # the lease was never listed: it returns, and the task is queued
        assert TaskState.QUEUED == desk.row(task_id).state
    if then in ("leased again", "dead"):
        (again,) = desk.lease()
        if then == "dead":
            desk.settle(again, Cause.FAULT)
    elif then == "cancelled":
        desk.book.cancel(desk.at, [task_id], kill=False)
    elif then == "done":
        desk.settle(job, of="grey-1")
    desk.turn(of="grey-1", settled=[late])
    assert (state, ghosts) == (desk.row(task_id).state, desk.book.journal.ghosts_counted)


def test_P09_a_task_that_kills_one_unit_of_a_node_after_the_other_is_blamed_each_time() -> None:
    desk = den(2, [PackSpec(name="p", retry=RetryPolicy(max_attempts=3, backoff_s=0.0))])
    (task_id,) = desk.submit()
    desk.lease(of="grey-1")
    desk.lose("grey-1")
    assert 1 == desk.row(task_id).failures
    desk.lease(of="grey-0")
    desk.lose("grey-0")
    assert 2 == desk.row(task_id).failures


def test_several_units_lost_on_one_node_blame_nobody() -> None:
    desk = den(3)
    first, second = desk.submit(2)
    desk.lease(of="grey-1")
    desk.lease(of="grey-2")
    desk.lose("grey-1")
    desk.lose("grey-2")
    assert [1, 0] == [desk.row(each).failures for each in (first, second)]


def test_P67_an_old_lease_of_the_same_unit_settles_nothing() -> None:
    desk = den(1)
    (task_id,) = desk.submit()
    (job,) = desk.lease()
    desk.wait(6.0)
    (again,) = desk.lease()
    desk.settle(job)
    assert ("leased", again.lease_no, 1) == (
        desk.row(task_id).state, desk.row(task_id).lease_no, desk.book.journal.ghosts_counted,
    )  # fmt: skip


def test_a_unit_that_asked_for_many_short_tasks_gives_longer_ones_back_when_another_joins() -> None:
    world = World(cards=wolves(2), packs=[pack(most=1)], timing=QUICK)
    short = world.submit("p", [task(0.0001)] * 600)
    assert world.run_until(lambda: world.done(short), 20.0)
    long = world.submit("p", [task(0.05)] * 200)
    world.run(0.2)
    world.act(lambda book, at: book.scale(at, "p", 0, 2, ""))
    assert world.run_until(lambda: len(world.members("p")) == 2, 20.0)
    world.run(1.0)
    began, left = world.now, sum(not world.done([each]) for each in long)
    assert world.run_until(lambda: world.done(long), 30.0)
    assert world.now - began < 0.7 * left * 0.05  # one unit alone would take all of that time
