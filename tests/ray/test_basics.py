"""The path of a task on real Ray: submitted, run by a unit that was woken for it, and settled once."""

from __future__ import annotations

import time

import pytest

import wolfpack
from tests.ray import work
from tests.ray.support import cards, wait_until
from wolfpack.model import Cause, HandsSpec, PackSpec, Readiness, Role


@pytest.fixture(scope="module")
def shared(make_shared_den):
    return make_shared_den(wolves=2)


def test_results_come_back_and_all_is_conserved(shared):
    pack = shared.pack()
    futures = [pack.submit(work.square, n) for n in range(300)]

    assert [n * n for n in range(300)] == [future.result(60) for future in futures]
    stats = pack.stats()
    assert stats["submitted"] == stats["done"] + stats["dead"] + stats["cancelled"] + stats["queued"] + stats["leased"]
    assert shared.stats()["conservation"] is True


def test_keywords_go_to_the_function_and_options_to_the_task(shared):
    future = shared.pack().options(priority=3, timeout_s=20).submit(work.nap, seconds=0.0, value="kept")

    assert "kept" == future.result(30)
    (attempt,) = future.attempts
    assert (1, Cause.DONE, future.unit) == (attempt.number, attempt.cause, attempt.unit)


def test_as_completed_yields_each_future_once(shared):
    futures = {shared.pack().submit(work.nap, 0.01, n) for n in range(20)}

    assert futures == set(wolfpack.as_completed(futures, timeout=60))


def test_map_streams_in_order_from_an_endless_generator(shared):
    def endless():
        n = 0
        while True:
            yield n
            n += 1

    squares = shared.pack().map(work.square, endless(), prefetch=50)

    assert [0, 1, 4, 9, 16] == [next(squares) for _ in range(5)]
    squares.close()


def test_a_coroutine_function_is_awaited(shared):
    assert "awaited" == shared.pack().submit(work.anap, 0.01, "awaited").result(30)


def test_a_large_value_and_a_large_argument_travel_aside(shared):
    blob = bytes(range(256)) * 20_000  # five million bytes

    assert blob == shared.pack().submit(work.nap, 0.0, blob).result(60)


def test_one_key_is_one_task_and_another_call_with_it_is_refused(shared, tmp_path):
    pack = shared.pack().options(key=f"once-{tmp_path}")
    first = pack.submit(work.mark, str(tmp_path), "once")
    second = pack.submit(work.mark, str(tmp_path), "once")

    assert ("once", "once") == (first.result(30), second.result(30))
    assert first.task_id == second.task_id
    assert 1 == work.starts(tmp_path, "once")
    with pytest.raises(wolfpack.KeyConflict, match="once-"):
        pack.submit(work.mark, str(tmp_path), "other").result(30)


def test_a_future_is_found_again_by_its_id(shared):
    future = shared.pack().submit(work.square, 9)
    assert 81 == future.result(30)

    assert 81 == shared.future(future.task_id).result(30)


def test_P54_an_unknown_task_is_an_error_and_a_waiting_one_tells_its_place(shared):
    with pytest.raises(wolfpack.UnknownName, match="no task named"):
        shared.why("nobody:1")
    future = shared.pack().options(delay_s=30).submit(work.nothing)
    wait_until(lambda: "not before" in future.why(), 10)

    assert "delay_s" in future.why()
    assert future.cancel()
    assert future.cancelled()


def test_a_cancel_before_the_start_and_one_that_kills(shared):
    slow = shared.pack().submit(work.nap, 60)
    wait_until(lambda: "leased" in slow.why(), 20)

    assert slow.cancel(kill=False) is False
    assert slow.cancel(kill=True)
    wait_until(slow.done, 10)
    assert slow.cancelled()


def test_names_that_do_not_exist_are_answered_with_those_that_do(shared):
    with pytest.raises(wolfpack.UnknownName, match="Existing: work"):
        shared.pack("wrok")
    with pytest.raises(wolfpack.UnknownName, match="grey-0"):
        shared.wake("gray-0")


def test_P32_an_idle_den_sleeps_and_wakes_on_the_next_task(make_den):
    den = make_den(units=cards(count=2, sleep_after_s=0.3))
    pack = den.pack()
    assert 4 == pack.submit(work.square, 2).result(30)

    def all_asleep():
        return all(unit.readiness is Readiness.ASLEEP for unit in den.units())

    wait_until(all_asleep, 40)
    began = time.monotonic()
    assert 9 == pack.submit(work.square, 3).result(30)
    assert time.monotonic() - began < 20


def test_one_alpha_leads_and_the_pack_grows_to_its_work(make_den):
    den = make_den(wolves=3)
    pack = den.pack()
    futures = [pack.submit(work.nap, 0.2, n) for n in range(60)]

    wait_until(lambda: pack.stats()["members"] == 3, 40)
    wait_until(lambda: sum(unit.role is Role.ALPHA for unit in den.units()) == 1, 10)
    assert list(range(60)) == [future.result(60) for future in futures]


def test_concurrency_runs_so_many_at_once(make_den, tmp_path):
    den = make_den(units=cards(count=1, hands=HandsSpec(concurrency=4)))
    folder = tmp_path / "meeting"
    folder.mkdir()
    futures = [den.pack().submit(work.meet, str(folder), f"task{n}", 4) for n in range(4)]

    assert [True] * 4 == [future.result(60) for future in futures]


def test_setup_runs_once_in_the_hands_and_its_value_is_the_state(make_den):
    den = make_den(units=cards(count=1, hands=HandsSpec(setup="tests.ray.work:where_set_up")))

    assert {"made": True} == den.pack().submit(work.state).result(30)


def test_two_packs_share_one_pool_by_their_needs(make_den):
    units = (*cards("grey", 2), *cards("black", 1, offers=("cpu", "gpu")))
    packs = (
        PackSpec(name="plain", most=2, needs=wolfpack.Needs.parse({"cpu"})),
        PackSpec(name="rare", most=1, needs=wolfpack.Needs.parse({"gpu"}), priority=5),
    )
    den = make_den(units=units, packs=packs)
    plain = [den.pack("plain").submit(work.needed) for _ in range(5)]
    rare = [den.pack("rare").submit(work.needed) for _ in range(5)]

    assert {"black-0"} == {future.result(60) for future in rare}
    assert {future.result(60) for future in plain} <= {"grey-0", "grey-1"}
