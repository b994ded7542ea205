"""Ctrl-C while a job runs, with a den that only writes down what it is told (case P56)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from wolfpack.cli.interrupt import Interrupts, Killed
from wolfpack.cli.job import Job
from wolfpack.cli.render import Progress
from wolfpack.cli.run import run_job
from wolfpack.errors import CallerError, DenClosed


class ToldDen:
    """Keeps what it is told; its tasks end when they are cancelled, or by `settle`."""

    is_closed = False

    def __init__(self, tasks: int = 2) -> None:
        self.tasks = tasks
        self.told: list[str] = []
        self.changed = threading.Condition()

    def stop_submitting(self) -> int:
        self._tell("stop")
        return self.tasks

    def cancel_all(self, *, kill: bool = False) -> int:
        cancelled, self.tasks = self.tasks, 0
        self._tell(f"cancel kill={kill}")
        return cancelled

    def unsettled(self) -> int:
        return self.tasks

    def _tell(self, what: str) -> None:
        with self.changed:
            self.told.append(what)
            self.changed.notify_all()

    def wait_told(self, what: str) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: what in self.told, 10), self.told


def press() -> None:
    signal.raise_signal(signal.SIGINT)


def run_with(den: ToldDen, function: Callable[[Any], Any]) -> Any:
    job = Job(task="a:job", function=function, parameters={}, options={})
    return run_job(cast(Any, den), cast(Any, None), job, {}, Progress())


def test_P56_the_first_ctrl_c_stops_submitting_and_the_job_goes_on() -> None:
    den = ToldDen()

    def job(_: Any) -> str:
        press()
        den.wait_told("stop")
        return "all of it"

    ended = run_with(den, job)
    assert (["stop"], 1, "all of it") == (den.told, ended.interrupts, ended.summary)


def test_P56_what_was_submitted_is_drained_when_the_job_gives_up() -> None:
    den = ToldDen(tasks=1)

    def settle() -> None:
        den.wait_told("stop")
        den.tasks = 0

    settler = threading.Thread(target=settle)

    def job(_: Any) -> None:
        press()
        settler.start()
        raise DenClosed("takes no more tasks")

    ended = run_with(den, job)
    assert (1, False, 0) == (ended.interrupts, ended.has_summary, den.tasks)


def test_P56_the_second_ctrl_c_cancels() -> None:
    den = ToldDen()

    def job(_: Any) -> None:
        press()
        press()
        den.wait_told("cancel kill=True")

    assert 2 == run_with(den, job).interrupts
    assert ["stop", "cancel kill=True"] == den.told


def test_P56_the_third_ctrl_c_ends_the_job_where_it_stands() -> None:
    reached = []

    def job(_: Any) -> None:
        for _n in range(3):
            press()
        reached.append("the end")

    ended = run_with(ToldDen(), job)
    assert (3, [], False) == (ended.interrupts, reached, ended.has_summary)


def test_P56_the_third_ctrl_c_also_ends_a_drain() -> None:
    def job(_: Any) -> None:
        press()
        threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        threading.Timer(0.15, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        raise DenClosed("takes no more tasks")

    class Stubborn(ToldDen):
        def cancel_all(self, *, kill: bool = False) -> int:
            return 0

    assert 3 == run_with(Stubborn(), job).interrupts


def test_P56_a_fourth_ctrl_c_ends_the_process_with_its_last_words() -> None:
    code = (
        "import signal\n"
        "from tests.cli.test_interrupt import ToldDen\n"
        "from wolfpack.cli.interrupt import Interrupts, Killed\n"
        "with Interrupts(ToldDen(), print, 'Go on with X') as interrupts:\n"
        "    try:\n"
        "        for _ in range(3): signal.raise_signal(signal.SIGINT)\n"
        "    except Killed:\n"
        "        signal.raise_signal(signal.SIGINT)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (130, "Go on with X") == (done.returncode, done.stderr.strip())


def test_without_ctrl_c_everything_is_as_before() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupts(ToldDen(), print):
        assert signal.getsignal(signal.SIGINT) != before
    assert before == signal.getsignal(signal.SIGINT)


def test_what_the_keeper_refuses_is_said() -> None:
    said: list[str] = []

    class Closed(ToldDen):
        def stop_submitting(self) -> int:
            self._tell("stop")
            raise DenClosed("it is gone")

    den = Closed()
    with Interrupts(den, said.append) as interrupts:
        press()
        den.wait_told("stop")
    interrupts._thread.join(5)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    assert ["That did not work: it is gone"] == said


def test_an_error_of_an_uninterrupted_job_is_its_own() -> None:
    def job(_: Any) -> None:
        raise CallerError("limit must be at least 1")

    with pytest.raises(CallerError, match="limit must be"):
        run_with(ToldDen(), job)


def test_killed_is_an_interruption() -> None:
    assert issubclass(Killed, KeyboardInterrupt)


@pytest.fixture(autouse=True)
def _signals() -> Any:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)
