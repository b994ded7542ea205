"""Several hands, and coroutines that share one."""

import pickle
import time

import pytest

from tests.hands import tasks
from tests.hands.bench import Bench
from wolfpack.model import Cause


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    bench = Bench(str(tmp_path_factory.mktemp("pool")), concurrency=3, setup="tests.hands.tasks:set_up_later")
    yield bench.start()
    bench.close()


@pytest.fixture
def bench(shared):
    yield shared
    assert 0 == shared.pool.held, "a test left leases behind"
    shared.began.clear()


def values(reports):
    return [pickle.loads(report.payload) for report in reports]


def test_plain_functions_run_in_as_many_processes_at_once(bench):
    jobs = [bench.job(tasks.until_stopped) for _ in range(3)]
    bench.give(*jobs)
    bench.until(lambda: len(bench.began) == 3, "three tasks run")

    assert 3 == len({began["pid"] for began in bench.began})
    assert {job.lease_no for job in jobs} == set(bench.pool.started())
    for job in jobs:
        bench.call("cancel", job.lease_no, kill=False)
    bench.wait(*jobs)


def test_P48_no_short_task_waits_behind_a_long_one_while_hands_are_idle(bench, tmp_path):
    bench.value(tasks.echo, 0)
    (tmp_path / "gate").touch()
    bench.value(tasks.until_told, str(tmp_path))  # now the code of both is known, and all are given at once
    (tmp_path / "gate").unlink()
    long, short = bench.job(tasks.until_told, str(tmp_path)), [bench.job(tasks.echo, n) for n in range(300)]
    bench.give(long, *short)

    assert list(range(300)) == values(bench.wait(*short))
    assert {long.lease_no} == set(bench.pool.started())
    (tmp_path / "gate").touch()
    bench.wait(long)


def test_coroutines_run_at_once_in_one_process(bench, tmp_path):
    names = ["a", "b", "c"]
    jobs = [bench.job(tasks.meet, str(tmp_path), name, names) for name in names]
    bench.give(*jobs)

    assert names == values(bench.wait(*jobs))


def test_each_coroutine_knows_its_own_task_and_the_state_made_on_the_loop(bench):
    jobs = [bench.job(tasks.who_am_i_later) for _ in range(6)]
    bench.give(*jobs)

    expected = [[job.task_id, job.lease_no, 1, job.task_id, "grey-0", "made on the loop"] for job in jobs]
    assert expected == values(bench.wait(*jobs))


def test_plain_functions_and_coroutines_take_turns_in_the_order_given(bench):
    jobs = [bench.job(tasks.who_am_i_later if n % 3 else tasks.who_am_i) for n in range(30)]
    bench.give(*jobs)

    assert [job.lease_no for job in jobs] == [value[1] for value in values(bench.wait(*jobs))]


def test_a_coroutine_over_its_timeout_ends_alone(bench):
    late, other = bench.job(tasks.hang_softly, timeout_s=0.05), bench.job(tasks.hang_until_stopped)
    bench.give(late, other)
    assert Cause.TIMEOUT == bench.wait(late)[0].cause

    bench.call("cancel", other.lease_no, kill=False)
    assert ["stopped"] == values(bench.wait(other))


def test_a_cancelled_coroutine_ends_alone(bench):
    one, other = bench.job(tasks.hang_softly), bench.job(tasks.hang_until_stopped)
    bench.give(one, other)
    bench.until_began(2)
    bench.call("cancel", one.lease_no, kill=True)
    report = bench.wait(one)[0]

    assert (Cause.CANCELLED, True) == (report.cause, report.started)
    bench.call("cancel", other.lease_no, kill=False)
    assert ["stopped"] == values(bench.wait(other))


def test_a_coroutine_that_refuses_to_end_takes_its_hands_along_and_the_others_are_not_blamed(bench, monkeypatch):
    monkeypatch.setattr("wolfpack.den.hands_pool.COROUTINE_GRACE_S", 0.05)
    stubborn, other = bench.job(tasks.refuse_to_end, timeout_s=0.05), bench.job(tasks.hang_softly)
    bench.give(stubborn, other)

    assert [Cause.TIMEOUT, Cause.EVICTED] == [report.cause for report in bench.wait(stubborn, other)]


def test_P09_where_several_coroutines_ran_in_hands_that_died_none_is_blamed(bench):
    quiet = [bench.job(tasks.hang_softly) for _ in range(2)]
    deadly = bench.job(tasks.end_process_softly)
    bench.give(*quiet)
    bench.until_began(2)
    bench.give(deadly)

    assert [Cause.LOST] * 3 == [report.cause for report in bench.wait(*quiet, deadly)]


def test_P09_a_coroutine_that_ran_alone_is_blamed(bench):
    report = bench.do(tasks.end_process_softly)

    assert (Cause.CRASH, True) == (report.cause, report.started)
    assert "exit code 9" in report.text


def test_a_task_that_kills_its_hands_leaves_those_beside_it_alone(bench):
    beside, deadly = bench.job(tasks.until_stopped), bench.job(tasks.end_process, 1)
    bench.give(beside)
    bench.until_began()
    bench.give(deadly)
    assert Cause.CRASH == bench.wait(deadly)[0].cause

    bench.call("cancel", beside.lease_no, kill=False)
    assert ["stopped"] == values(bench.wait(beside))


def test_a_closed_gate_lets_the_coroutines_that_run_go_on(bench):
    running, waiting = bench.job(tasks.hang_until_stopped), bench.job(tasks.who_am_i_later)
    bench.give(running)
    bench.until_began()
    bench.call("allow", time.monotonic() - 1.0)
    try:
        bench.give(waiting)
        bench.call("cancel", running.lease_no, kill=False)
        assert ["stopped"] == values(bench.wait(running))
        assert waiting.lease_no not in bench.reports
    finally:
        bench.call("allow", float("inf"))
    assert Cause.DONE == bench.wait(waiting)[0].cause
