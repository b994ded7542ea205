"""Plain functions in one child process: order, ends and their causes, take-backs, evictions."""

import asyncio
import os
import pickle
import time

import cloudpickle
import msgpack
import pytest

from tests.hands import tasks
from tests.hands.bench import Bench, is_alive
from wolfpack.model import Cause


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    bench = Bench(str(tmp_path_factory.mktemp("pool")), setup="tests.hands.tasks:set_up", payload_max_bytes=4 << 20)
    yield bench.start()
    bench.close()


@pytest.fixture
def bench(shared):
    yield shared
    assert 0 == shared.pool.held, "a test left leases behind"
    shared.began.clear()
    shared.order.clear()


def test_jobs_run_in_the_order_given_and_each_is_reported_once(bench):
    jobs = [bench.job(tasks.echo, n) for n in range(2000)]
    bench.give(*jobs)
    reports = bench.wait(*jobs)

    assert [job.lease_no for job in jobs] == bench.order
    assert list(range(2000)) == [pickle.loads(report.payload) for report in reports]
    assert {Cause.DONE} == {report.cause for report in reports}


def test_a_lease_given_twice_is_run_once(bench):
    job = bench.job(tasks.pid)
    bench.give(job, job)
    bench.wait(job)
    bench.give(bench.job(tasks.nothing))
    bench.until(lambda: not bench.pool.held, "the pool is empty")

    assert 1 == bench.order.count(job.lease_no)


def test_the_code_of_a_function_is_fetched_once(bench):
    bench.value(tasks.echo, 1)
    bench.value(tasks.echo, 2)

    assert 1 == bench.fetched.count("echo")


def test_a_function_without_code_faults_and_does_not_start(bench):
    report = bench.do(None, fn="lost")

    assert (Cause.FAULT, False) == (report.cause, report.started)
    assert "lost" in report.text
    assert [b"", report.text] == msgpack.unpackb(report.payload)


def test_a_task_knows_itself_and_what_the_setup_made(bench):
    job = bench.job(tasks.who_am_i)._replace(key="k", attempt=2)
    bench.give(job)
    state = {"pid": bench.value(tasks.pid)}

    assert ["k", job.lease_no, 2, job.task_id, "grey-0", state] == pickle.loads(bench.wait(job)[0].payload)


def test_P46_sys_exit_is_a_fault_and_the_hands_go_on(bench):
    pid = bench.value(tasks.pid)
    report = bench.do(tasks.leave_by_exit)

    assert (Cause.FAULT, "builtins.SystemExit") == (report.cause, report.kinds[0])
    assert pid == bench.value(tasks.pid)


def test_P55_an_exception_comes_with_type_fields_and_traceback(bench):
    report = bench.do(tasks.poison, 3)
    exc, trace = msgpack.unpackb(report.payload)

    assert 3 == pickle.loads(exc).dose
    assert "in poison" in trace
    assert "tests.hands.tasks.Wolfsbane" == report.kinds[0]


def test_P55_an_exception_that_cannot_be_pickled_arrives_as_text_and_the_hands_go_on(bench):
    pid = bench.value(tasks.pid)
    report = bench.do(tasks.raise_with_lock)

    assert b"" == msgpack.unpackb(report.payload)[0]
    assert report.text.startswith("ValueError: ('holds a lock'")
    assert pid == bench.value(tasks.pid)


@pytest.mark.parametrize(
    ("function", "argument", "how"),
    [(tasks.end_process, 3, "exit code 3"), (tasks.end_process, 0, "exit code 0"), (tasks.kill_self, 11, "SIGSEGV")],
)
def test_P09_only_the_task_that_ended_its_hands_is_blamed(bench, function, argument, how):
    before, deadly = bench.job(tasks.pid), bench.job(function, argument)
    after = [bench.job(tasks.pid) for _ in range(5)]
    bench.give(before, deadly, *after)
    done, crash, *others = bench.wait(before, deadly, *after)

    assert (Cause.DONE, Cause.CRASH, True) == (done.cause, crash.cause, crash.started)
    assert how in crash.text
    assert {Cause.DONE} == {report.cause for report in others}
    assert done.payload != others[0].payload  # another process


def test_what_a_task_started_ends_with_its_hands(bench):
    job = bench.job(tasks.start_daemon_and_hang)
    bench.give(job)
    began = bench.until_began()
    assert is_alive(began["other"])
    bench.call("cancel", job.lease_no, kill=True)
    bench.wait(job)

    assert [False, False] == [is_alive(began["pid"]), is_alive(began["other"])]


def test_hands_whose_guard_was_killed_leave_nothing_behind(bench):
    daemon = bench.job(tasks.start_daemon)
    bench.give(daemon)
    started = bench.until_began()["other"]
    job = bench.job(tasks.kill_guard)
    bench.give(job)

    assert Cause.CRASH == bench.wait(job)[0].cause
    bench.until(lambda: not is_alive(started), "the daemon is gone")


def test_a_task_over_its_timeout_is_ended_and_those_behind_it_run(bench):
    job, behind = bench.job(tasks.hang, timeout_s=0.05), bench.job(tasks.echo, 1)
    bench.give(job, behind)
    report, after = bench.wait(job, behind)

    assert (Cause.TIMEOUT, True, "it ran longer than its timeout of 0.05 s") == (
        report.cause, report.started, report.text,
    )  # fmt: skip
    assert 0.05 <= report.ended_at - report.started_at < 5
    assert Cause.DONE == after.cause


def test_the_timeout_of_a_task_starts_when_the_one_before_it_ends(bench):
    jobs = [bench.job(time.sleep, 0.03, timeout_s=0.2, fn="sleep") for _ in range(10)]
    bench.give(*jobs)

    assert {Cause.DONE} == {report.cause for report in bench.wait(*jobs)}


def test_what_has_not_started_comes_back_at_once_while_a_long_task_runs(bench):
    running, waiting = bench.job(tasks.until_stopped), [bench.job(tasks.nothing) for _ in range(3)]
    bench.give(running, *waiting)
    bench.until_began()
    bench.call("take_back", [running.lease_no, waiting[0].lease_no, waiting[2].lease_no])

    assert [waiting[0].lease_no, waiting[2].lease_no] == bench.order
    assert {(Cause.RETURNED, False)} == {(report.cause, report.started) for report in bench.reports_of(*waiting[::2])}
    assert [running.lease_no] == list(bench.pool.started())

    bench.call("cancel", running.lease_no, kill=False)
    done, other = bench.wait(running, waiting[1])
    assert ("stopped", Cause.DONE) == (pickle.loads(done.payload), other.cause)


def test_what_was_taken_back_can_be_given_again(bench):
    running, waiting = bench.job(tasks.until_stopped), bench.job(tasks.echo, 5)
    bench.give(running, waiting)
    bench.until_began()
    for _ in range(3):
        bench.call("take_back", [waiting.lease_no])
        assert Cause.RETURNED == bench.reports.pop(waiting.lease_no).cause
        bench.give(waiting)
    bench.call("cancel", running.lease_no, kill=False)

    assert Cause.DONE == bench.wait(waiting)[0].cause


def test_a_cancel_before_the_start_is_reported_at_once(bench):
    running, waiting = bench.job(tasks.until_stopped), bench.job(tasks.nothing)
    bench.give(running, waiting)
    bench.until_began()
    bench.call("cancel", waiting.lease_no, kill=True, cause=Cause.EXPIRED, text="too late")
    report = bench.reports[waiting.lease_no]

    assert (Cause.EXPIRED, False, "too late") == (report.cause, report.started, report.text)
    bench.call("cancel", running.lease_no, kill=False)
    bench.wait(running)


def test_a_cancel_with_kill_ends_the_running_task(bench):
    job = bench.job(tasks.hang)
    bench.give(job)
    pid = bench.until_began()["pid"]
    bench.call("cancel", job.lease_no, kill=True)
    report = bench.wait(job)[0]

    assert (Cause.CANCELLED, True) == (report.cause, report.started)
    assert not is_alive(pid)


def test_should_stop_is_heard_in_a_thread_of_the_task(bench):
    job = bench.job(tasks.until_stopped_in_a_thread)
    bench.give(job)
    bench.until_began()
    bench.call("cancel", job.lease_no, kill=False)

    assert "stopped" == pickle.loads(bench.wait(job)[0].payload)


def test_an_eviction_lets_the_running_task_end_within_its_grace(bench):
    running, waiting = bench.job(tasks.until_stopped), bench.job(tasks.nothing)
    bench.give(running, waiting)
    bench.until_began()
    bench.run(bench.pool.evict(10.0, "recalled"))
    done, returned = bench.reports_of(running, waiting)

    assert (Cause.DONE, "stopped") == (done.cause, pickle.loads(done.payload))
    assert (Cause.RETURNED, False, "recalled") == (returned.cause, returned.started, returned.text)
    assert 1 == bench.value(tasks.echo, 1)  # the pool can be used again


@pytest.mark.parametrize(("function", "progressed"), [(tasks.hang, False), (tasks.hang_with_progress, True)])
def test_P05_an_eviction_is_no_crash_and_tells_of_progress(bench, function, progressed):
    job = bench.job(function)
    bench.give(job)
    bench.until_began()
    bench.run(bench.pool.evict(0.01, "recalled"))
    report = bench.reports[job.lease_no]

    assert (Cause.EVICTED, True, "recalled", progressed) == (
        report.cause, report.started, report.text, report.progressed,
    )  # fmt: skip


def test_P16_the_unit_answers_while_native_code_holds_the_interpreter(bench):
    running, waiting = bench.job(tasks.hold_the_interpreter), bench.job(tasks.nothing)
    bench.give(running, waiting)
    bench.until_began()
    before = time.monotonic()
    bench.call("take_back", [waiting.lease_no])

    assert Cause.RETURNED == bench.reports[waiting.lease_no].cause
    assert time.monotonic() - before < 0.3
    assert running.lease_no in bench.pool.started()
    bench.wait(running)


def test_a_copy_of_the_process_that_comes_back_is_not_heard(bench):
    assert "original" == bench.value(tasks.come_back_twice)
    assert 7 == bench.value(tasks.echo, 7)


def test_a_daemon_of_a_task_keeps_the_files_it_opened(bench, tmp_path):
    bench.value(tasks.daemon_that_writes, str(tmp_path / "diary"))
    bench.until((tmp_path / "diary").exists, "the daemon wrote")

    assert "dear diary" == (tmp_path / "diary").read_text()


def test_what_a_task_prints_cannot_hurt_the_protocol(bench):
    assert 2000 == bench.value(tasks.print_much)


def test_a_task_that_writes_into_our_pipes_ends_its_own_hands_only(bench):
    report = bench.do(tasks.write_garbage_into_every_pipe)

    assert Cause.CRASH == report.cause
    assert 7 == bench.value(tasks.echo, 7)


def test_a_large_value_travels_by_file(bench):
    report = bench.do(tasks.make_bytes, 2 << 20)

    with open(report.blob, "rb") as file:
        assert b"x" * (2 << 20) == pickle.load(file)


def test_values_just_below_a_mebibyte_travel_by_the_pipe(bench):
    jobs = [bench.job(tasks.echo, b"x" * 1_000_000) for _ in range(4)]
    bench.give(*jobs)

    assert {1_000_000} == {len(cloudpickle.loads(report.payload)) for report in bench.wait(*jobs)}


def test_a_value_above_the_limit_is_a_fault(bench):
    report = bench.do(tasks.make_bytes, 5 << 20)

    assert (Cause.FAULT, "wolfpack.errors.PayloadTooLarge") == (report.cause, report.kinds[0])


def test_the_working_directory_of_the_hands_is_that_of_the_unit(bench):
    assert os.getcwd() == bench.value(os.getcwd)


def test_nothing_starts_behind_a_closed_gate_and_what_waited_can_be_taken_back(bench):
    bench.value(tasks.nothing)
    bench.call("allow", time.monotonic() - 1.0)
    try:
        first, second = bench.job(tasks.nothing), bench.job(tasks.nothing)
        before = len(bench.order)
        bench.give(first, second)
        time.sleep(0.1)  # long enough for an open gate; the closed one lets nothing through however long we wait
        bench.call("take_back", [second.lease_no])

        assert [second.lease_no] == bench.order[before:]
    finally:
        bench.call("allow", float("inf"))
    assert Cause.DONE == bench.wait(first)[0].cause


def test_time_behind_a_closed_gate_does_not_count_against_the_timeout(bench):
    bench.value(tasks.nap, 0.0)
    pid = bench.value(tasks.pid)
    bench.call("allow", time.monotonic() - 1.0)
    try:
        job = bench.job(tasks.nap, 0.3, timeout_s=0.5)
        bench.give(job)
        bench.run(asyncio.sleep(0.4))
    finally:
        bench.call("allow", float("inf"))

    assert Cause.DONE == bench.wait(job)[0].cause
    assert pid == bench.value(tasks.pid)  # and nobody was killed for it


def test_large_arguments_travel_in_portions_and_arrive_in_order(bench):
    jobs = [bench.job(tasks.size_of, bytes(900_000 + n)) for n in range(40)]
    bench.give(*jobs)

    assert [900_000 + n for n in range(40)] == [pickle.loads(report.payload) for report in bench.wait(*jobs)]
