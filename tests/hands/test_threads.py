"""`isolation: thread`: the same face, in the process of the unit."""

import os
import pickle
import time

import pytest

from tests.hands import tasks
from tests.hands.bench import Bench
from wolfpack.errors import SetupFailed
from wolfpack.model import Cause


@pytest.fixture
def make(tmp_path):
    made = []

    def make(**options):
        made.append(Bench(str(tmp_path), isolation="thread", **options))
        return made[-1]

    yield make
    for bench in made:
        bench.close()


def test_tasks_run_in_the_units_own_process_in_order(make):
    bench = make().start()
    jobs = [bench.job(tasks.pid), *(bench.job(tasks.echo, n) for n in range(50))]
    bench.give(*jobs)

    assert [os.getpid(), *range(50)] == [pickle.loads(report.payload) for report in bench.wait(*jobs)]
    assert [job.lease_no for job in jobs] == bench.order


def test_a_task_knows_itself_and_the_state(make):
    bench = make(setup="tests.hands.tasks:set_up").start()
    job = bench.job(tasks.who_am_i)
    bench.give(job)

    expected = [job.task_id, job.lease_no, 1, job.task_id, "grey-0", {"pid": os.getpid()}]
    assert expected == pickle.loads(bench.wait(job)[0].payload)


def test_P46_sys_exit_is_a_fault_and_the_thread_goes_on(make):
    bench = make().start()

    assert (Cause.FAULT, 1) == (bench.do(tasks.leave_by_exit).cause, bench.value(tasks.echo, 1))


def test_what_has_not_started_comes_back_and_what_runs_hears_should_stop(make):
    bench = make().start()
    running, waiting = bench.job(tasks.until_stopped), bench.job(tasks.nothing)
    bench.give(running, waiting)
    bench.until_began()
    bench.call("take_back", [waiting.lease_no])
    assert Cause.RETURNED == bench.reports[waiting.lease_no].cause

    bench.call("cancel", running.lease_no, kill=False)
    assert "stopped" == pickle.loads(bench.wait(running)[0].payload)


def test_a_task_over_its_timeout_is_reported_and_the_unit_must_be_replaced(make):
    bench = make().start()
    report = bench.do(time.sleep, 0.5, timeout_s=0.05)

    assert (Cause.TIMEOUT, True) == (report.cause, report.started)
    assert 1 == len(bench.broken)


def test_coroutines_run_at_once(make, tmp_path):
    bench = make(concurrency=3).start()
    names = ["a", "b", "c"]
    jobs = [bench.job(tasks.meet, str(tmp_path), name, names) for name in names]
    bench.give(*jobs)

    assert names == [pickle.loads(report.payload) for report in bench.wait(*jobs)]
    assert os.getpid() == bench.value(tasks.pid)


def test_a_coroutine_over_its_timeout_ends_and_the_unit_stays(make):
    bench = make(concurrency=2).start()
    report = bench.do(tasks.hang_softly, timeout_s=0.05)

    assert (Cause.TIMEOUT, []) == (report.cause, bench.broken)
    assert 1 == bench.value(tasks.echo, 1)


def test_a_setup_that_fails_is_told_with_its_traceback(make):
    with pytest.raises(SetupFailed, match="the well is dry"):
        make(setup="tests.hands.tasks:set_up_badly").start()


def test_a_thread_is_replaced_after_so_many_tasks(make):
    bench = make(recycle_after=2).start()
    jobs = [bench.job(tasks.thread_name) for _ in range(4)]
    bench.give(*jobs)
    first, second, third, fourth = [pickle.loads(report.payload) for report in bench.wait(*jobs)]

    assert (first, third) == (second, fourth)
    assert first != third
