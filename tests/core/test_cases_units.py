"""Cases from the field about units and scaling: births, sleep, packs that share, and places that must agree."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.book_desk import Desk, cards, den
from tests.core.test_cases_tasks import CPU, QUICK, order, pack, running
from wolfpack.core.book.journal import AskToLead, CreateUnit, Instruct, Summon
from wolfpack.core.book.units import probe_after_s
from wolfpack.core.hand import LeaseBook
from wolfpack.core.wire import Move
from wolfpack.model import Card, Cause, Job, Nature, Offer, PackSpec, Readiness, Report
from wolfpack.sim.checks import check_book
from wolfpack.sim.den import World, task, wolves


def job(lease_no: int) -> Job:
    return Job(lease_no, f"c:{lease_no}", "f", b"", "", "", 1, None, False, 1)


def done(lease_no: int) -> Report:
    return Report(lease_no, f"c:{lease_no}", "DONE", True, 0.0, 0.0)


def test_P06_a_source_recalled_a_thousand_times_is_called_again() -> None:
    desk = Desk(cards(1), [PackSpec(name="p")])
    desk.wake("grey-0", None)
    desk.submit()
    for _ in range(1000):
        desk.orders.clear()
        desk.wait(2.0)
        assert [Summon(unit="grey-0", boot=1, pack="p")] == desk.orders
        assert desk.move("grey-0", "pack:p").ok
        desk.book.order_unit(desk.at, "grey-0", "recall", None, "a test")
        assert desk.move("grey-0", "free").ok


def test_P23_a_unit_whose_set_up_raises_is_quarantined_after_three_births_and_others_serve() -> None:
    world = World(cards=wolves(3), packs=[pack()], timing=QUICK)
    world.broken.add("grey-0")
    ids = world.submit("p", [task(0.4)] * 20)
    world.settle()
    assert world.done(ids)
    (event,) = world.events("UnitQuarantined")
    assert "grey-0 failed 3 births in a row" in event["reason"]
    assert 3 == sum(unit == "grey-0" for unit, _ in world.processes)
    assert Readiness.QUARANTINED == world.book.units["grey-0"].readiness


def test_P23_a_quarantined_unit_is_probed_after_a_minute_then_after_two_and_serves_once_it_can() -> None:
    world = World(cards=wolves(1), packs=[pack()], timing=QUICK)
    world.broken.add("grey-0")
    (task_id,) = world.submit("p", [task()])
    assert world.run_until(lambda: world.events("UnitQuarantined"), 20.0)
    assert world.run_until(lambda: len(world.events("UnitQuarantined")) == 2, 62.0)
    world.broken.clear()
    world.run(100.0)
    assert not world.done([task_id])
    world.settle(25.0)
    assert world.done([task_id])


@pytest.mark.parametrize(("births", "seconds"), [(3, 60.0), (4, 120.0), (5, 240.0), (9, 3600.0), (5000, 3600.0)])
def test_a_card_is_probed_after_twice_as_long_each_time_at_most_an_hour(births: int, seconds: float) -> None:
    assert seconds == probe_after_s(births)


def test_P23_a_quarantined_unit_is_woken_by_an_operator() -> None:
    world = World(cards=wolves(1), packs=[pack()], timing=QUICK)
    world.broken.add("grey-0")
    (task_id,) = world.submit("p", [task()])
    assert world.run_until(lambda: world.events("UnitQuarantined"), 20.0)
    world.broken.clear()
    order(world, "grey-0", "wake")
    world.settle()
    assert world.done([task_id])


def test_P28_a_den_that_closes_wakes_nobody_and_wants_nobody() -> None:
    desk = den(1)
    boot = desk.book.units["grey-0"].boot
    desk.submit(5)
    desk.book.desk.closing = True
    desk.lose("grey-0")
    desk.orders.clear()
    desk.wait(30.0)
    assert [] == desk.orders
    assert desk.book.hello(desk.at, "grey-0", boot, 1, "n").end


def test_P30_a_burst_grows_the_pack_within_a_plan_and_a_wake() -> None:
    world = World(cards=wolves(8), packs=[pack()], birth_s=0.3)
    world.submit("p", [task(1.0)] * 30)
    since = world.now
    # Two wakes: of the one that leads, and of all the others at once.
    assert world.run_until(lambda: len(world.members("p")) == 8, 2 * 0.3 * 1.2 + 0.25)
    assert len({event["at"] for event in world.events("UnitWaking")}) == 2
    assert world.now > since


def test_P31_two_hundred_sleepers_are_woken_in_one_step() -> None:
    world = World(cards=wolves(200), packs=[pack(200)], birth_s=1.0)
    world.submit("p", [task(5.0)] * 400)
    assert world.run_until(lambda: len(world.events("UnitWaking")) == 200, 2.0)
    assert 2 == len({event["at"] for event in world.events("UnitWaking")})


def test_P32_an_idle_pack_sleeps_to_zero_and_wakes_on_the_next_task() -> None:
    world = World(cards=wolves(3, sleep_after_s=2.0), packs=[pack()])
    world.submit("p", [task(0.5)] * 9)
    world.settle()
    assert world.run_until(lambda: not world.awake(), 20.0)
    world.run(0.5)
    events = world.disk.event_no
    commits = world.disk.commit_no
    world.run(30.0)
    assert (events, commits) == (world.disk.event_no, world.disk.commit_no)
    (task_id,) = world.submit("p", [task()])
    world.settle(1.0)
    assert world.done([task_id])


def test_P33_without_work_nobody_is_woken_again() -> None:
    world = World(cards=wolves(4, sleep_after_s=1.0, awake_min=1), packs=[pack()])
    world.submit("p", [task(0.3)] * 12)
    world.settle()
    wakes = len(world.events("UnitWaking"))
    world.run(60.0)
    assert wakes == len(world.events("UnitWaking"))
    assert 1 == len(world.awake())


def test_P34_a_wake_that_is_no_longer_wanted_is_called_off() -> None:
    world = World(cards=wolves(3), packs=[pack(fewest=1)])
    assert world.run_until(lambda: world.alpha("p"), 5.0)
    world.birth_s = 20.0
    ids = world.submit("p", [task(1.0)] * 3)
    assert world.run_until(lambda: len(world.events("UnitWaking")) == 3, 5.0)
    world.act(lambda book, at: book.cancel(at, ids, kill=True))
    assert world.run_until(lambda: len(world.events("UnitSlept")) == 2, 10.0)
    assert {"called off: no longer wanted"} == {event["reason"] for event in world.events("UnitSlept")}
    world.run(30.0)
    assert ["grey-0"] == world.awake()


def test_P35_a_unit_takes_its_reports_along_when_it_goes_to_sleep() -> None:
    world = World(cards=wolves(1), packs=[pack()], timing=QUICK)
    ids = world.submit("p", [task(0.3)] * 3)
    assert world.run_until(lambda: running(world, ids[0]), 5.0)
    world.crash_keeper(2.0)
    world.process("grey-0").instruct("sleep", 1.0, "a test")
    world.run(1.0)
    assert [1] == [len(world.starts[ids[0]])]
    world.settle()
    assert 1 == len(world.starts[ids[0]])


def test_P36_a_plan_that_raises_is_told_once_and_work_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def boom(**_: object) -> None:
        raise RuntimeError("boom")

    world = World(cards=wolves(2), packs=[pack()])
    with monkeypatch.context() as patch:
        patch.setattr("wolfpack.core.alpha.plan", boom)
        world.submit("p", [task(0.1)] * 10)
        world.settle()
    assert ["planning failed: RuntimeError: boom"] == world.failures
    world.submit("p", [task(0.1)] * 60)
    assert world.run_until(lambda: len(world.members("p")) == 2, 5.0)


def test_P37_there_are_never_more_units_than_runnable_tasks() -> None:
    world = World(cards=wolves(8), packs=[pack()], birth_s=0.1)
    world.submit("p", [task(1.0)] * 3)
    world.settle()
    assert 3 == len({event["unit"] for event in world.events("UnitWaking")})


def test_P38_a_pack_grows_though_its_units_hold_one_task_at_a_time() -> None:
    world = World(cards=wolves(6), packs=[pack()])
    world.submit("p", [task(1.5)] * 2)
    world.settle()
    world.submit("p", [task(1.5)] * 30)  # of known length now: longer than any look-ahead
    assert world.run_until(lambda: len(world.members("p")) == 6, 3.0)


@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_P39_whatever_bounds_are_set_the_pack_keeps_them(seed: int) -> None:
    rng = random.Random(seed)
    world = World(cards=wolves(5, sleep_after_s=0.5), packs=[pack(3)], timing=QUICK, seed=seed)
    most = 3
    for _ in range(6):
        world.submit("p", [task(rng.choice([0.05, 0.5]))] * rng.randint(0, 20))
        if rng.random() < 0.6:
            most = rng.randint(0, 5)
            fewest = rng.randint(0, most)
            world.act(lambda book, at, fewest=fewest, most=most: book.scale(at, "p", fewest, most, ""))
        world.run(rng.uniform(0.1, 2.0))
        assert all(event["after"] >= 0 and event["before"] >= 0 for event in world.events("PackScaled"))
    world.act(lambda book, at: book.scale(at, "p", 0, max(most, 1), ""))
    world.settle()
    world.run(3.0)
    assert len(world.members("p")) <= max(most, 1)


def test_P50_two_packs_keep_their_minimum_borrow_the_idle_rest_and_give_it_back() -> None:
    packs = [
        PackSpec(name="low", fewest=1, most=4, lendable=True),
        PackSpec(name="high", fewest=1, most=3, priority=1, drain_target_s=0.5),
    ]
    world = World(cards=wolves(4), packs=packs)
    low = world.submit("low", [task(0.2)] * 120)
    assert world.run_until(lambda: len(world.members("low")) == 3, 10.0)  # one stays for `high`, as its minimum
    high = world.submit("high", [task(0.2)] * 40)
    assert world.run_until(lambda: len(world.members("high")) == 3, 10.0)
    assert 1 == len(world.members("low"))
    assert world.run_until(lambda: world.done(high), 20.0)
    assert world.run_until(lambda: len(world.members("low")) == 3, 20.0)
    world.settle()
    assert world.done(low)


def test_P50_a_pack_without_members_summons_one_that_a_lower_pack_lends() -> None:
    packs = [PackSpec(name="low", fewest=2, most=2, lendable=True), PackSpec(name="high", most=1, priority=1)]
    world = World(cards=wolves(2), packs=packs)
    assert world.run_until(lambda: len(world.members("low")) == 2, 5.0)
    (task_id,) = world.submit("high", [task(0.1)])
    world.settle(5.0)
    assert world.done([task_id])


def test_P51_units_flow_to_the_slow_pack_of_a_pipeline() -> None:
    packs = [PackSpec(name=name, most=6, drain_target_s=1.0) for name in ("first", "slow", "last")]
    world = World(cards=wolves(6), packs=packs)
    for name in ("first", "last"):
        world.submit(name, [task(0.02)] * 60)
    world.submit("slow", [task(0.5)] * 40)
    assert world.run_until(lambda: len(world.members("slow")) >= 5, 15.0)
    world.settle()


@pytest.mark.parametrize("delayed", [False, True])
def test_P64_work_wakes_a_pack_whose_only_member_is_gone(delayed: bool) -> None:
    world = World(cards=wolves(1, sleep_after_s=1.0), packs=[pack()], timing=QUICK)
    if delayed:
        ids = world.submit("p", [task(0.0, delay_s=10.0)])
        assert world.run_until(lambda: not world.awake(), 5.0)
        world.run(5.0)
        assert not world.awake()
    else:
        ids = world.submit("p", [task(0.001)] * 1000)
        assert world.run_until(lambda: world.members("p"), 5.0)
        world.run(0.1)
        world.crash("grey-0")
    world.settle()
    assert world.done(ids)


def test_P65_of_two_free_wolves_exactly_one_sleeps() -> None:
    world = World(cards=wolves(2, sleep_after_s=1.0, awake_min=1), packs=[pack()])
    order(world, "grey-0", "wake")
    order(world, "grey-1", "wake")
    assert world.run_until(lambda: len(world.awake()) == 2, 5.0)
    world.run(30.0)
    assert 1 == len(world.awake())
    assert 1 == len(world.events("UnitSlept"))


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_P66_moves_repeated_and_overtaken_leave_row_and_unit_in_agreement(data: st.DataObject) -> None:
    """The unit sends one move after the other; each may come again, however late. The row follows the newest only."""
    desk = Desk(cards(2), [PackSpec(name="p"), PackSpec(name="q")])
    desk.wake("grey-0", None)
    sent: list[Move] = []
    place: str | None = None
    for n in range(1, data.draw(st.integers(2, 8))):
        to = data.draw(st.sampled_from(["free", "pack:p", "pack:q"]))
        if to == f"pack:{place}" or (place is not None and to != "free"):
            to = "free"
        sent.append(Move("grey-0", 1, n, to, (), (), "a test"))
        where = desk.book.move(desk.at, sent[-1])
        assert where.ok, where.reason
        place = where.pack
        for old in data.draw(st.lists(st.sampled_from(sent), max_size=3)):
            answer = desk.book.move(desk.at, old)
            assert place == answer.pack == desk.book.units["grey-0"].pack
            assert answer.ok == (old.n == n)
    desk.commit()
    check_book(desk.book)


def test_P66_a_message_of_an_earlier_boot_changes_nothing_and_tells_it_to_end() -> None:
    desk = den(1)
    desk.lose("grey-0")
    desk.wake("grey-0")
    assert desk.move("grey-0", "asleep", n=99, boot=1).end
    assert desk.report("grey-0", boot=1).end
    assert ("p", 2) == (desk.book.units["grey-0"].pack, desk.book.units["grey-0"].boot)


# --- places -------------------------------------------------------------------------------------------------------


def silver(**fields: object) -> Card:
    plain: dict[str, object] = {"min_tenure_s": 1.0, "grace_s": 0.5, "day_job": "m:J", **fields}
    return Card(unit="silver-0", kind="silver", nature=Nature.WEREWOLF, offer=CPU, **plain)  # type: ignore[arg-type]


def test_a_werewolf_leaves_its_day_job_for_a_pack_and_resumes_where_it_left_off() -> None:
    world = World(cards=[silver()], packs=[pack()])
    assert world.run_until(lambda: world.day_steps["silver-0"] == 3, 10.0)
    (task_id,) = world.submit("p", [task(2.0)])
    assert world.run_until(lambda: running(world, task_id), 5.0)
    assert not world.process("silver-0").day_job.working
    world.settle()
    steps = world.day_steps["silver-0"]
    assert world.run_until(lambda: world.day_steps["silver-0"] > steps, 10.0)
    assert steps + 1 == world.day_steps["silver-0"]
    assert 1 == len(world.events("UnitLent")) == len(world.events("UnitReturned"))


def test_a_loan_that_is_over_goes_home_and_the_task_is_evicted() -> None:
    world = World(cards=[silver(max_loan_s=3.0)], packs=[pack()])
    (task_id,) = world.submit("p", [task(4.0)])
    assert world.run_until(lambda: world.events("UnitReturned"), 6.0)
    assert 1 == world.row(task_id).evictions


def test_a_loan_that_is_over_is_not_cut_again_at_once_where_the_pack_needs_the_unit() -> None:
    world = World(cards=[silver(max_loan_s=3.0, min_tenure_s=5.0)], packs=[pack(fewest=1)])
    (task_id, _) = world.submit("p", [task(4.0)] * 2)
    world.settle()
    assert world.done([task_id])


def test_a_task_longer_than_the_loan_is_done_where_the_pack_cannot_spare_the_unit() -> None:
    world = World(cards=[silver(max_loan_s=3.0, min_tenure_s=1.0)], packs=[pack(fewest=1)])
    (task_id, _) = world.submit("p", [task(6.0)] * 2)
    assert world.run_until(lambda: world.done([task_id]), 20.0)
    assert 1 == world.row(task_id).evictions


def test_a_day_job_with_a_long_pause_sleeps_and_wakes_for_its_next_step() -> None:
    world = World(cards=[silver(sleep_after_s=1.0)], packs=[pack()])
    world.day_pause_s = 20.0
    assert world.run_until(lambda: not world.awake() and world.day_steps["silver-0"] == 1, 5.0)
    assert world.run_until(lambda: world.day_steps["silver-0"] == 2, 25.0)


def test_a_day_job_that_may_not_sleep_does_not_step_all_the_time() -> None:
    world = World(cards=[silver(sleep_after_s=1.0, awake_min=1)], packs=[pack()])
    world.day_pause_s = 20.0
    world.run(40.0)
    assert world.day_steps["silver-0"] <= 5


def test_a_summons_during_a_long_step_is_declined_and_another_unit_comes() -> None:
    other = Card(unit="silver-1", kind="silver", nature=Nature.WEREWOLF, offer=CPU, day_job="m:J", min_tenure_s=1.0)
    world = World(cards=[silver(), other], packs=[pack()])
    world.day_step_s = 30.0
    assert world.run_until(lambda: len(world.awake()) == 2, 5.0)
    world.run(1.0)
    world.process("silver-1").day_job.stepping_until = world.now  # its step just ended
    (task_id,) = world.submit("p", [task(0.1)])
    world.settle(10.0)
    assert world.done([task_id])


def test_an_order_to_sleep_given_to_an_alpha_hands_the_pack_over() -> None:
    world = World(cards=wolves(2), packs=[pack(fewest=2)])
    assert world.run_until(lambda: len(world.members("p")) == 2 and world.alpha("p"), 5.0)
    alpha = str(world.alpha("p"))
    order(world, alpha, "sleep")
    assert world.run_until(lambda: world.alpha("p") not in (None, alpha), 1.0)
    world.settle()


def test_an_order_that_asks_nothing_leaves_no_trace() -> None:
    desk = Desk(cards(1, awake_min=1), [PackSpec(name="p")])
    desk.wake("grey-0", None)
    desk.book.order_unit(desk.at, "grey-0", "release", None, "a test")
    assert not any(isinstance(order, Instruct) for order in desk.orders)
    assert not desk.move("grey-0", "asleep").ok  # awake_min holds, as for everybody


def test_a_dropped_pack_is_empty_and_gone_though_nobody_leads_it() -> None:
    world = World(cards=wolves(2, can_lead=True), packs=[pack(fewest=2)], timing=QUICK)
    assert world.run_until(lambda: len(world.members("p")) == 2, 5.0)
    ids = world.submit("p", [task(30.0)] * 4)
    world.run(0.5)
    world.act(lambda book, at: book.drop_pack(at, "p", "a test"))
    world.settle(5.0)
    assert {"cancelled"} == set(world.states(ids))
    assert world.run_until(lambda: not world.disk.packs, 10.0)
    assert {None} == {unit.pack for unit in world.book.units.values()}


def test_a_pack_dropped_and_made_again_in_one_commit_is_there() -> None:
    desk = Desk(cards(1), [PackSpec(name="p")])
    desk.book.drop_pack(desk.at, "p", "a test")
    desk.book.sweep()
    desk.book.create_pack(desk.at, PackSpec(name="p", most=3))
    desk.commit()
    assert "p" in desk.disk.packs
    desk.rebirth()
    assert 3 == desk.book.packs["p"].spec.most


def test_a_pack_drained_by_hand_stays_closed_when_its_keeper_is_born_again() -> None:
    desk = Desk(cards(1), [PackSpec(name="p")])
    desk.book.drain(desk.at, "p", "a test")
    desk.commit()
    desk.rebirth()
    assert desk.book.packs["p"].closed


def test_a_unit_that_left_gets_no_lease_of_a_turn_that_was_parked() -> None:
    desk = den(2)
    assert desk.turn(ask=4, of="grey-1") is None
    assert desk.move("grey-1", "free").ok
    desk.submit(4)
    assert {0} == {row.mutable.lease_no for row in desk.disk.tasks.values()}


def test_the_roster_of_a_reborn_keeper_is_newer_than_any_before() -> None:
    desk = den(1)
    for _ in range(50):
        desk.book.journal.note_unit(desk.book.units["grey-0"])
    seen = desk.book.journal.roster_version
    desk.commit()
    desk.rebirth()
    assert 1 == len(desk.book.desk.roster_since(desk.at, seen))


def test_a_keeper_asks_the_highest_living_member_but_never_the_silent_alpha() -> None:
    desk = den(3)
    desk.submit()
    desk.book.desk.heard(desk.at, "grey-2", 1)
    desk.book.terms.vacate(desk.at, desk.book.packs["p"], "a test")
    desk.crown("grey-2")
    desk.orders.clear()
    desk.wait(2.5)
    assert [AskToLead(unit="grey-1", boot=1, pack="p", term=2)] == desk.orders


def test_a_wake_is_allotted_once_though_its_turn_is_repeated() -> None:
    desk = Desk(cards(4), [PackSpec(name="p", most=4)])
    desk.wake("grey-0")
    desk.crown("grey-0")
    desk.turn(wakes=(("grey", 1),), roster_version=0)
    desk.turn(wakes=(("grey", 1),), roster_version=0, seq=1)
    assert 1 == sum(isinstance(order, CreateUnit) and order.unit != "grey-0" for order in desk.orders)
    desk.rebirth()
    desk.turn(wakes=(("grey", 1),), roster_version=0, seq=1)
    assert ["waking"] == [unit.readiness for unit in desk.book.units.values() if unit.readiness == "waking"]


# --- leases in hand -----------------------------------------------------------------------------------------------


def test_a_report_goes_out_again_only_when_it_waited_long_and_until_it_is_acknowledged() -> None:
    book = LeaseBook(5.0)
    book.accept([job(1), job(2)], 0.0)
    book.report(done(1))
    assert [1] == [report.lease_no for report in book.take_unsent(1.0)]
    assert () == book.take_unsent(1.5)
    book.report(done(2))
    assert [2] == [report.lease_no for report in book.take_unsent(1.9)]
    assert [1] == [report.lease_no for report in book.take_unsent(2.2)]
    book.acknowledge([1, 2])
    assert (0, False) == (book.unacknowledged, book.has_unsent(9.0))


def test_a_steady_flow_of_reports_that_are_acknowledged_needs_no_call_to_the_keeper() -> None:
    book = LeaseBook(2.0)
    for no in range(200):
        now = no * 0.1
        book.accept([job(no)], now)
        book.report(done(no))
        book.take_unsent(now)
        book.acknowledge([no - 1])
        assert not book.needs_keeper(now)


def test_a_report_that_nobody_takes_makes_the_unit_call_the_keeper() -> None:
    book = LeaseBook(2.0)
    book.accept([job(1)], 0.0)
    book.report(done(1))
    book.take_unsent(0.1)
    assert (False, True) == (book.needs_keeper(1.0), book.needs_keeper(1.2))


def test_a_lease_may_be_started_only_so_long_after_the_message_that_renewed_it_was_sent() -> None:
    book = LeaseBook(3.0)
    book.accept([job(1)], 10.0)
    book.hunt_sent(2, 11.0)
    assert 12.0 == book.start_until
    book.accept([job(2)], 11.0)
    assert 12.0 == book.start_until  # the older lease sets the limit
    assert book.hunt_renewed(2)
    assert 13.0 == book.start_until
    assert not book.hunt_renewed(2)


def test_a_lease_that_cannot_be_started_is_handed_back() -> None:
    book = LeaseBook(3.0)
    book.decline([job(1)])
    assert [Cause.RETURNED] == [report.cause for report in book.take_unsent(0.0)]


def test_narrow_units_are_served_first_so_that_rare_ones_stay_free() -> None:
    wide = Card(unit="gold-0", kind="gold", offer=Offer(frozenset({"cpu", "gpu"})))
    desk = Desk([*cards(1), wide], [PackSpec(name="p", most=2)])
    desk.wake("grey-0")
    desk.wake("gold-0")
    desk.crown("grey-0")
    desk.submit(1, needs='{"cpu": true}')
    desk.book.packs["p"].parked = None
    desk.turn(of="gold-0")
    assert [True] == [bool(desk.lease(1, of="grey-0"))]


def test_a_wake_that_gets_no_resources_does_not_keep_others_from_leading() -> None:
    desk = Desk(cards(2), [PackSpec(name="p")])
    desk.submit()
    assert [CreateUnit(unit="grey-0", boot=1)] == desk.orders
    desk.orders.clear()
    desk.wait(9.0)
    assert [] == desk.orders
    desk.wait(2.0)
    assert [CreateUnit(unit="grey-1", boot=1)] == desk.orders
