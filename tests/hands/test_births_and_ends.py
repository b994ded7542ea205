"""Hands that start, fail to start, are replaced, outgrow their memory, and end with their unit."""

import os
import pickle
import signal
import subprocess
import sys
import time

import pytest

from tests.hands import tasks
from tests.hands.bench import Bench, is_alive
from wolfpack.den import hands_main, memory, processes
from wolfpack.errors import SetupFailed
from wolfpack.model import Cause, Job


@pytest.fixture
def make(tmp_path):
    made = []

    def make(**options):
        made.append(Bench(str(tmp_path), **options))
        return made[-1]

    yield make
    for bench in made:
        bench.close()


def test_hands_know_the_fields_of_a_job():
    assert Job._fields == hands_main.Job._fields


def test_hands_import_nothing_heavy():
    code = "import sys, wolfpack.den.hands_main; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    assert set() == {"ray", "pydantic", "asyncio", "cloudpickle", "dataclasses", "yaml", "logging"}.intersection(loaded)


@pytest.mark.parametrize(
    ("setup", "expected"),
    [
        ("tests.hands.tasks:set_up_badly", "OSError: the well is dry"),
        ("tests.hands.tasks:set_up_and_die", "exit code 4"),
        ("tests.hands.no_such:thing", "No module named 'tests.hands.no_such'"),
    ],
)
def test_P23_a_setup_that_fails_is_told_with_its_traceback_and_leaves_no_process(make, setup, expected):
    bench = make(setup=setup)
    with pytest.raises(SetupFailed, match=expected):
        bench.start()

    assert [True] == [hands.is_gone for hands in bench.pool._all()]


def test_hands_are_replaced_between_tasks_after_so_many(make):
    bench = make(recycle_after=2).start()
    jobs = [bench.job(tasks.pid) for _ in range(5)]
    bench.give(*jobs)
    first, second, third, fourth, fifth = [pickle.loads(report.payload) for report in bench.wait(*jobs)]

    assert (first, third) == (second, fourth)
    assert 3 == len({first, third, fifth})


def test_stop_ends_everything_also_what_a_task_started(make):
    bench = make().start()
    bench.give(bench.job(tasks.start_daemon_and_hang))
    began = bench.until_began()
    bench.run(bench.pool.stop())

    assert [False, False] == [is_alive(began["pid"]), is_alive(began["other"])]


@pytest.mark.parametrize("eat", [tasks.eat_memory, tasks.eat_memory_in_a_child])
def test_P10_P63_a_task_that_eats_memory_ends_as_OOM_and_the_others_live(make, eat):
    bench = make(concurrency=2, memory_bytes=120 * memory.MIB).start()
    beside, hungry = bench.job(tasks.until_stopped), bench.job(eat, 150 * memory.MIB)
    bench.give(beside, hungry)
    report = bench.wait(hungry)[0]

    assert (Cause.OOM, True) == (report.cause, report.started)
    assert "the card's `memory` allows 120 MiB" in report.text
    bench.call("cancel", beside.lease_no, kill=False)
    assert Cause.DONE == bench.wait(beside)[0].cause


def test_hands_that_the_kernel_killed_for_memory_end_as_OOM(make, monkeypatch):
    monkeypatch.setattr(memory, "watch_pause_s", lambda *_: 3600.0)  # no look comes between the kill and its news
    bench = make().start()
    job = bench.job(tasks.hang)
    bench.give(job)
    pid = bench.until_began()["pid"]
    kills = memory.find_kernel_kills()
    monkeypatch.setattr(memory, "find_kernel_kills", lambda: kills + 1)
    os.kill(pid, signal.SIGKILL)

    assert Cause.OOM == bench.wait(job)[0].cause


OWNER = """
import sys
from tests.hands import tasks
from tests.hands.bench import Bench
bench = Bench(sys.argv[1], concurrency=2).start()
bench.give(bench.job(tasks.start_daemon_and_hang), bench.job(tasks.hang))
bench.until(lambda: len(bench.began) == 2, "both run")
print(*(began[who] for who in ("pid", "other") for began in bench.began if began[who]), flush=True)
bench.until(lambda: False, "the end")
"""


@pytest.fixture
def owner(tmp_path):
    """A process with hands that run two tasks, the ids of its two hands, and that of a daemon that one task started."""
    command = [sys.executable, "-c", OWNER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process, [int(word) for word in process.stdout.readline().split()]
        finally:
            process.kill()


def still_alive(pids):
    """Which of them do not end within some seconds."""
    deadline = time.monotonic() + 10
    while any(map(is_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.005)
    return [pid for pid in pids if is_alive(pid)]


def test_P47_a_unit_that_is_killed_leaves_no_orphan(owner):
    process, pids = owner
    parents = processes.find_parents()
    assert 3 == len(pids)
    process.kill()

    assert [] == still_alive([*pids, *(parents[pid] for pid in pids)])


def test_P47_hands_end_with_their_guard_also_when_the_unit_cannot_see_to_it(owner):
    process, pids = owner
    parents = processes.find_parents()
    os.kill(process.pid, signal.SIGSTOP)
    for pid in pids[:2]:
        os.kill(parents[pid], signal.SIGKILL)

    assert [] == still_alive(pids[:2])
    os.kill(process.pid, signal.SIGCONT)  # now it can look for the rest
    assert [] == still_alive(pids)


def test_hands_stay_in_the_process_group_of_their_unit_and_ignore_ctrl_c(make):
    bench = make().start()
    job = bench.job(tasks.hang)
    bench.give(job)
    pid = bench.until_began()["pid"]
    os.kill(pid, signal.SIGINT)

    assert os.getpgrp() == os.getpgid(pid)
    assert is_alive(pid)
    assert {job.lease_no} == set(bench.pool.started())
    with open(f"/proc/{pid}/oom_score_adj") as file:
        assert "1000" == file.read().strip()
    bench.call("cancel", job.lease_no, kill=True)
    assert Cause.CANCELLED == bench.wait(job)[0].cause
