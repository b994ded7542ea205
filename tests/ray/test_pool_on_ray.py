"""One pool, several packs: werewolves lent and returned, operators' orders, packs made and dropped, events."""

from __future__ import annotations

import pickle
import time
from concurrent.futures import Executor
from dataclasses import dataclass

import pytest

import wolfpack
from tests.ray import work
from tests.ray.support import cards, wait_until, werewolves
from wolfpack.model import Cause, Needs, PackSpec, Readiness, RetryPolicy


def unit_of(den: wolfpack.Den, name: str) -> wolfpack.UnitRecord:
    return next(unit for unit in den.units() if unit.id == name)


def day_steps(den: wolfpack.Den, name: str) -> int:
    """How many steps the day job's last checkpoint counts."""
    state = den._ask("day_state", name)
    return pickle.loads(state)["number"] if state else 0


def events(den: wolfpack.Den, kind: type) -> list:
    return [each.event for each in den.events() if isinstance(each.event, kind)]


def test_two_packs_of_different_needs_and_priorities_share_a_pool_and_a_werewolf_goes_home_where_it_left_off(make_den):
    units = (
        *cards("grey", 1),
        *werewolves("silver", 1, offers=("cpu", "browser"), min_tenure_s=0.0, grace_s=10.0),
    )
    packs = (
        PackSpec(name="plain", most=2, needs=Needs.parse({"cpu"})),
        PackSpec(name="web", most=1, needs=Needs.parse({"browser"}), priority=5),
    )
    den = make_den(units=units, packs=packs)
    wait_until(lambda: day_steps(den, "silver-0") >= 2, 60, what="the werewolf works at home")
    before = day_steps(den, "silver-0")
    web = [den.pack("web").submit(work.where) for _ in range(5)]
    plain = [den.pack("plain").submit(work.where) for _ in range(5)]

    assert {"silver-0"} == {future.result(60)[0] for future in web}
    assert {"grey-0"} >= {future.result(60)[0] for future in plain} - {"silver-0"}
    assert ["web"] == [event.pack for event in events(den, wolfpack.UnitLent)][:1]
    wait_until(lambda: events(den, wolfpack.UnitReturned), 60, what="it went home")
    wait_until(lambda: day_steps(den, "silver-0") > before, 30, what="its day job goes on")
    assert den.stats()["conservation"]


def test_a_werewolf_that_was_killed_goes_on_from_its_last_checkpoint(make_den):
    import os
    import signal

    den = make_den(units=(*cards("grey", 1), *werewolves("silver", 1)))
    before = wait_until(lambda: (n := day_steps(den, "silver-0")) >= 2 and n, 60)
    os.kill(unit_of(den, "silver-0").pid, signal.SIGKILL)
    wait_until(lambda: unit_of(den, "silver-0").boot >= 2, 60)

    wait_until(lambda: day_steps(den, "silver-0") > before, 60)


def test_P01_P52_a_recalled_unit_hands_its_task_back_and_the_task_succeeds(make_den, tmp_path):
    pack = PackSpec(name="work", most=1, retry=RetryPolicy(max_attempts=1, max_evictions=100))
    den = make_den(units=cards(count=1, sleep_after_s=600.0, grace_s=0.05), packs=(pack,))
    future = den.pack().submit(work.mark, str(tmp_path), "task", 1.0)
    for n in range(1, 4):
        wait_until(lambda n=n: work.starts(tmp_path, "task") >= n, 30)
        den.recall("grey-0")
        wait_until(lambda n=n: len(future.attempts) >= n, 30)

    assert "task" == future.result(60)
    assert [Cause.EVICTED] * 3 + [Cause.DONE] == [attempt.cause for attempt in future.attempts]


def test_P04_P07_scaling_in_fails_no_task_and_counts_no_crash(make_den):
    pack = PackSpec(name="work", fewest=3, most=3, retry=RetryPolicy(max_attempts=1))
    den = make_den(units=cards(count=3, sleep_after_s=600.0), packs=(pack,))
    wait_until(lambda: den.pack().stats()["members"] == 3, 60)
    futures = [den.pack().submit(work.nap, 0.3, n) for n in range(30)]
    den.pack().scale(0, 1)

    assert list(range(30)) == [future.result(90) for future in futures]
    wait_until(lambda: den.pack().stats()["members"] <= 1, 30)
    assert not events(den, wolfpack.UnitLost)
    assert not events(den, wolfpack.TaskDied)


def test_scaling_up_by_hand_wakes_members_without_work(make_den):
    den = make_den(units=cards(count=3, sleep_after_s=600.0))
    den.pack().scale(2, 3)

    wait_until(lambda: den.pack().stats()["members"] == 2, 60)
    reasons = [event.reason for event in events(den, wolfpack.PackScaled)]
    assert any("by hand" in reason for reason in reasons)


def test_an_idle_den_writes_nothing(make_den):
    pack = PackSpec(name="work", fewest=2, most=2)
    den = make_den(units=cards(count=2, sleep_after_s=600.0), packs=(pack,))
    wait_until(lambda: [unit.readiness for unit in den.units()] == [Readiness.AWAKE] * 2, 60)
    before = [den.stats()["commits"]]

    def calm():
        before.append(den.stats()["commits"])
        return len(before) > 4 and len(set(before[-4:])) == 1

    wait_until(calm, 20, every_s=0.5)
    time.sleep(1.5)  # six heartbeats in which nothing must happen
    assert before[-1] == den.stats()["commits"]


def test_orders_by_hand_wake_release_and_put_to_sleep(make_den):
    den = make_den(units=cards(count=2, sleep_after_s=600.0))
    den.wake("grey-1")
    wait_until(lambda: unit_of(den, "grey-1").readiness is Readiness.AWAKE, 60)
    den.sleep("grey-1")
    wait_until(lambda: unit_of(den, "grey-1").readiness is Readiness.ASLEEP, 30)
    den.pack().scale(1, 1)
    member = wait_until(lambda: next((u for u in den.units() if u.pack), None), 60)
    den.pack().scale(0, 1)
    den.release(member.id)
    wait_until(lambda: unit_of(den, member.id).pack is None, 30)

    orders = [(event.order, event.target) for event in events(den, wolfpack.OperatorActed)]
    assert [("wake", "grey-1"), ("sleep", "grey-1"), ("release", member.id)] == orders


def test_a_pack_is_made_used_drained_and_dropped_while_the_den_runs(make_den):
    den = make_den(wolves=2)
    made = den.create_pack("extra", size=(0, 2), needs={"cpu"}, priority=2)

    assert ["extra", "work"] == den.packs()
    assert 25 == made.submit(work.square, 5).result(60)
    futures = [made.submit(work.nap, 0.2, n) for n in range(4)]
    wait_until(lambda: made.stats()["submitted"] >= 5, 20)
    made.drain(timeout_s=60)
    assert all(future.done() for future in futures)
    with pytest.raises(wolfpack.CallerError, match="draining"):
        made.submit(work.nothing).result(20)
    den.drop_pack("extra")
    wait_until(lambda: den.packs() == ["work"], 30)
    with pytest.raises(wolfpack.CallerError, match="unicorn"):
        den.create_pack("never", needs={"unicorn"})


def test_dropping_a_pack_cancels_what_waits_and_kills_what_runs(make_den):
    den = make_den(wolves=1)
    extra = den.create_pack("extra", size=(0, 1))
    running, waiting = extra.submit(work.nap, 120), extra.submit(work.nap, 120)
    wait_until(lambda: "leased" in running.why(), 60)
    den.drop_pack("extra")

    wait_until(lambda: running.cancelled() and waiting.cancelled(), 30)


def test_an_executor_takes_the_place_of_one_of_the_standard_library(make_den):
    den = make_den(wolves=1)
    with wolfpack.PackExecutor(den.pack()) as executor:
        assert isinstance(executor, Executor)
        assert [0, 1, 4] == list(executor.map(work.square, range(3)))


@dataclass(frozen=True)
class Noticed:
    what: str
    amount: int


def announce(what: str) -> None:
    wolfpack.current().publish(Noticed(what, 2))


def test_events_of_users_come_in_order_and_a_failing_handler_harms_nobody(make_den):
    den = make_den(wolves=1)
    heard: list[Noticed] = []

    def fails(event):
        raise RuntimeError("not my day")

    den.on(Noticed, fails)
    den.on(Noticed, heard.append)
    den.publish(Noticed("first", 1))
    den.pack().submit(announce, "second").result(60)

    wait_until(lambda: len(heard) == 2, 20)
    assert [Noticed("first", 1), Noticed("second", 2)] == heard
    assert [Noticed("first", 1), Noticed("second", 2)] == events(den, Noticed)
    with pytest.raises(wolfpack.CallerError, match="frozen"):
        den.publish("just text")


def test_a_graph_is_drawn_at_each_change_of_leadership_and_on_demand(make_den, tmp_path):
    import os
    import signal

    den = make_den(wolves=2, graphs=str(tmp_path / "graphs"))
    assert 4 == den.pack().submit(work.square, 2).result(60)
    first = wait_until(lambda: next((u for u in den.units() if u.role is wolfpack.Role.ALPHA), None), 20)
    os.kill(first.pid, signal.SIGKILL)
    assert 9 == den.pack().submit(work.square, 3).result(60)

    wait_until(lambda: len(list((tmp_path / "graphs").glob("*.svg"))) >= 3, 30)
    assert (tmp_path / "now.svg") == den.graph(tmp_path / "now.svg")
    assert "term 2" in (tmp_path / "now.svg").read_text()


def test_dead_letters_are_listed_replayed_with_other_needs_and_dropped(make_den):
    units = (*cards("small", 1), *cards("big", 1, measures={"memory_gb": 16}))
    den = make_den(units=units, packs=(PackSpec(name="work", most=2),))
    pack = den.pack().options(retry={"max_attempts": 1})
    one, two = pack.submit(work.fail), pack.submit(work.fail, "twice")
    for future in (one, two):
        assert isinstance(future.exception(60), work.Trouble)
    assert {one.task_id, two.task_id} == {letter["task_id"] for letter in den.dead()}
    den.replay([one.task_id], needs={"memory_gb": 8})
    wait_until(lambda: len(den._ask("attempts", one.task_id)) == 2, 60)

    assert "big-0" == den._ask("attempts", one.task_id)[1][2]
    den.drop_dead([two.task_id])
    stats = den.stats()
    assert (2, 2, True) == (stats["submitted"], stats["dead"], stats["conservation"])
