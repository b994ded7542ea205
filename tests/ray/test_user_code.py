"""User code that raises, exits, crashes, forks, eats, prints or runs long: each has its cause, the unit lives on."""

from __future__ import annotations

import os
import threading
import time

import pytest

import wolfpack
from tests.ray import work
from tests.ray.support import cards, is_gone, wait_until
from wolfpack.model import Cause, PackSpec, Readiness, RetryPolicy

ONCE = {"max_attempts": 1}


@pytest.fixture(scope="module")
def shared(make_shared_den):
    units = cards(count=2, ray={"num_cpus": 0, "memory": 300 << 20}, sleep_after_s=600.0)
    pack = PackSpec(name="work", most=2, retry=RetryPolicy(max_attempts=2, backoff_s=0.01))
    return make_shared_den(units=units, packs=(pack,))


@pytest.fixture
def pack(shared):
    before = {unit.id: unit.boot for unit in shared.units()}
    yield shared.pack()
    after = {unit.id: unit.boot for unit in shared.units()}
    assert all(after[unit] == boot for unit, boot in before.items() if boot), "a unit died of user code"


def test_P55_the_original_exception_arrives_with_its_attributes_a_note_and_the_remote_traceback(pack):
    future = pack.options(retry=ONCE).submit(work.fail, "broken", code=42)
    with pytest.raises(work.Trouble, match="broken") as caught:
        future.result(60)

    assert 42 == caught.value.code
    assert "work.py" in str(caught.value.__cause__)
    assert future.task_id in caught.value.__notes__[0]
    assert f"on unit {future.unit}" in caught.value.__notes__[0]


def test_P55_an_exception_that_cannot_be_pickled_arrives_as_text(pack):
    with pytest.raises(wolfpack.TaskFault, match="stubborn"):
        pack.options(retry=ONCE).submit(work.fail_stubbornly).result(60)


def test_P46_sys_exit_is_a_fault_and_the_unit_goes_on(pack):
    with pytest.raises(wolfpack.TaskFault, match="SystemExit"):
        pack.options(retry=ONCE).submit(work.leave, 0).result(60)
    assert 4 == pack.submit(work.square, 2).result(60)


def test_P09_a_task_that_kills_its_hands_is_a_dead_letter_after_its_budget(pack, shared):
    killer = pack.submit(work.die)
    beside = [pack.submit(work.square, n) for n in range(20)]
    with pytest.raises(wolfpack.TaskCrashed) as caught:
        killer.result(60)

    assert "CRASH" == caught.value.cause
    assert [Cause.CRASH, Cause.CRASH] == [attempt.cause for attempt in killer.attempts]
    assert [n * n for n in range(20)] == [future.result(60) for future in beside]
    assert all(Cause.DONE == attempt.cause for future in beside for attempt in future.attempts)
    assert killer.task_id in [letter["task_id"] for letter in shared.dead()]


def test_P08_a_crash_is_retried_and_is_no_fault(pack, tmp_path):
    future = pack.submit(work.die_once, str(tmp_path))

    assert 2 == future.result(60)
    crash, done = future.attempts
    assert (Cause.CRASH, Cause.DONE) == (crash.cause, done.cause)
    assert "fault" not in crash.text.lower()


def test_P10_P63_a_task_that_eats_memory_dies_with_cause_oom_and_units_and_keeper_live(pack, shared):
    keeper = shared._gateway.status["pid"]
    with pytest.raises(wolfpack.TaskCrashed) as caught:
        pack.options(retry=ONCE).submit(work.eat, 600 << 20).result(90)

    assert "OOM" == caught.value.cause
    os.kill(keeper, 0)
    assert 4 == pack.submit(work.square, 2).result(60)


def test_a_task_beyond_its_timeout_is_killed_with_cause_timeout(pack):
    future = pack.options(timeout_s=0.3, retry=ONCE).submit(work.nap, 60)
    with pytest.raises(wolfpack.TaskTimeout):
        future.result(60)

    assert Cause.TIMEOUT == future.attempts[0].cause


def test_a_task_whose_deadline_passes_expires(pack):
    with pytest.raises(wolfpack.TaskExpired):
        pack.options(deadline_s=0.2, delay_s=30).submit(work.nothing).result(60)


def test_P05_a_running_task_whose_deadline_passes_is_killed_and_expired(pack):
    future = pack.options(deadline_s=1.5).submit(work.nap, 60)
    with pytest.raises(wolfpack.TaskExpired):
        future.result(60)


def test_what_prints_a_lot_or_returns_a_generator_does_no_harm(pack):
    assert 3000 == pack.submit(work.shout, 3000).result(60)
    with pytest.raises(wolfpack.WolfPackError, match="generator"):
        pack.options(retry=ONCE).submit(work.unpicklable).result(60)


def test_P47_a_process_that_a_task_left_behind_ends_with_its_unit(make_den):
    den = make_den(wolves=1)
    pid = den.pack().submit(work.fork_and_stay, 300).result(60)
    os.kill(pid, 0)
    (unit,) = [unit for unit in den.units() if unit.pid]
    os.kill(unit.pid, 9)

    wait_until(lambda: is_gone(pid), 15)


def test_P16_code_that_holds_the_gil_for_three_leases_starts_once_and_keeps_its_lease(make_den, tmp_path):
    from dataclasses import replace

    from wolfpack.model import PROFILES

    den = make_den(wolves=1, timing=replace(PROFILES["ray"], lease_s=1.0))
    future = den.pack().submit(work.hold_the_gil, 3.5)

    assert future.result(60) is None
    assert [Cause.DONE] == [attempt.cause for attempt in future.attempts]


def test_P12_a_task_of_ten_leases_starts_once(make_den, tmp_path):
    from dataclasses import replace

    from wolfpack.model import PROFILES

    den = make_den(wolves=2, timing=replace(PROFILES["ray"], lease_s=0.6))
    future = den.pack().submit(work.mark, str(tmp_path), "long", 6.0)

    assert "long" == future.result(60)
    assert 1 == work.starts(tmp_path, "long")


def test_P22_an_argument_that_cannot_be_pickled_fails_its_submit_only_and_is_named(pack):
    lock = threading.Lock()
    with pytest.raises(wolfpack.PayloadNotPicklable, match=r"argument 1 of nap.*lock"):
        pack.submit(work.nap, 0.0, lock)

    def uses_it():
        return lock

    with pytest.raises(wolfpack.PayloadNotPicklable, match=r"uses_it.*'lock'"):
        pack.submit(uses_it)
    assert 1 == pack.submit(work.square, 1).result(60)


def test_a_payload_over_the_limit_is_refused_by_the_limits_name(make_den):
    den = make_den(wolves=1, payload_max_bytes=10_000)
    with pytest.raises(wolfpack.PayloadTooLarge, match="payload_max_bytes"):
        den.pack().submit(work.nap, 0.0, b"x" * 20_000)
    with pytest.raises(wolfpack.WolfPackError, match="payload_max_bytes"):
        den.pack().options(retry=ONCE).submit(bytes, 20_000).result(60)


def test_P57_a_need_nobody_offers_is_said_at_once_with_numbers_or_raises(make_den, caplog):
    units = cards(count=2)
    packs = (PackSpec(name="waits", most=2), PackSpec(name="fails", most=2, infeasible="fail"))
    den = make_den(units=units, packs=packs)
    began = time.monotonic()
    future = den.pack("waits").options(needs={"gpu"}).submit(work.nothing)
    said = wait_until(lambda: [e.event for e in den.events() if isinstance(e.event, wolfpack.NeedUnmet)], 5)

    assert time.monotonic() - began < 5
    assert "none of the den's 2 cards" in said[0].reason
    assert "gpu" in future.why()
    wait_until(lambda: "none of the den's 2 cards" in caplog.text, 5, what="it is logged where it was submitted")
    with pytest.raises(wolfpack.NeedInfeasible, match="gpu"):
        den.pack("fails").options(needs={"gpu"}).submit(work.nothing).result(30)


def test_P23_a_set_up_that_raises_quarantines_its_card_and_others_serve(make_den):
    from wolfpack.model import HandsSpec

    units = (
        *cards("bad", 1, offers=("cpu", "odd"), hands=HandsSpec(setup="tests.ray.work:no_such_thing")),
        *cards("good", 1),
    )
    den = make_den(units=units, packs=(PackSpec(name="work", most=2),))
    pack = den.pack()
    needy = pack.options(needs={"odd"}).submit(work.nothing)

    def quarantined():
        return any(u.id == "bad-0" and u.readiness is Readiness.QUARANTINED for u in den.units())

    assert 4 == pack.submit(work.square, 2).result(60)
    wait_until(quarantined, 60)
    (event,) = [e.event for e in den.events() if isinstance(e.event, wolfpack.UnitQuarantined)]
    assert "no_such_thing" in event.reason
    assert 9 == pack.submit(work.square, 3).result(60)
    assert not needy.done()


def test_whatever_is_sent_to_keeper_and_units_is_refused_and_nothing_dies(make_den):
    import ray

    den = make_den(wolves=1)
    assert 4 == den.pack().submit(work.square, 2).result(60)
    keeper = ray.get_actor("keeper", namespace=den.name)
    pid = den._ask("status")["pid"]
    calls = [
        *(
            getattr(keeper, method).remote(data)
            for method in ("submit", "turn", "report", "move", "claim")
            for data in (b"", b"\xc1garbage", b"\x93\x01\x02\x03", 5, None)
        ),
        keeper.hold_tether.remote(5),
        keeper.let_go.remote(None, 5),
        keeper.watch.remote([], 0),
        keeper.look.remote("c", 5),
        keeper.cancel.remote([5], False),
        keeper.publish.remote("me", [("x", "no json")]),
        keeper.checkpoint.remote("grey-0", 1, 5),
        keeper.hello.remote("grey-0", 1, "pid", 5),
        keeper.scale.remote("work", "0", "2", ""),
        keeper.create_pack.remote({"name": "x"}),
        keeper.order_unit.remote("grey-0", "dance", None, ""),
        keeper.why.remote(5),
    ]
    for call in calls:
        with pytest.raises(Exception, match=r"."):
            ray.get(call, timeout=30)
    (unit,) = [unit for unit in den.units() if unit.pid]
    actor = ray.get_actor(f"{unit.id}#{unit.boot}", namespace=den.name)
    for call in (actor.hunt.remote(b"\xc1"), actor.howl.remote(b"\x01")):
        with pytest.raises(Exception, match=r"."):
            ray.get(call, timeout=30)

    assert 9 == den.pack().submit(work.square, 3).result(60)
    assert (pid, unit.pid) == (den._ask("status")["pid"], next(u.pid for u in den.units() if u.pid))
