"""A werewolf's own work: steps, checkpoints, howls that it follows or declines."""

import asyncio
import pickle
import time

import pytest

from wolfpack.den import day_job
from wolfpack.den.day_job import DayJob, restart_pause_s
from wolfpack.errors import SetupFailed


class Days:
    """One day job, and what it told."""

    def __init__(self, name, state=b""):
        self.steps = []
        self.failures = []
        self.job = DayJob(
            f"tests.hands.tasks:{name}", unit="silver-0", boot=1, folder=None, state=state,
            on_step=lambda count, next_s, state: self.steps.append((count, next_s, pickle.loads(state))),
            on_failed=self.failures.append,
        )  # fmt: skip

    async def until(self, condition):
        deadline = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain: {self.steps[-3:]} {self.failures}"
            await asyncio.sleep(0.001)


def live(scenario, name, state=b""):
    """Runs a scenario with a day job that was started, and stops it afterwards."""

    async def run():
        days = Days(name, state)
        await days.job.start()
        try:
            return await scenario(days)
        finally:
            await days.job.stop()
            assert not days.job.is_running

    return asyncio.run(run())


def test_steps_follow_one_another_each_with_its_checkpoint():
    async def scenario(days):
        await days.until(lambda: len(days.steps) >= 3)
        return days.steps[:3]

    assert [(1, 0.001, 1), (2, 0.001, 2), (3, 0.001, 3)] == live(scenario, "Watch")


def test_it_goes_on_from_the_state_it_is_given():
    async def scenario(days):
        await days.until(lambda: days.steps)
        return days.steps[0]

    assert (1, 0.001, 42) == live(scenario, "Watch", pickle.dumps(41))


def test_a_howl_between_two_steps_is_followed_at_once_and_the_next_day_goes_on_from_there():
    async def scenario(days):
        await days.until(lambda: days.steps)
        state = await days.job.leave(10.0)
        assert not days.job.is_running
        await days.job.start()
        await days.until(lambda: len(days.steps) == 2)
        return pickle.loads(state), days.steps[1][2]

    assert (1, 2) == live(scenario, "RestingWatch")


def test_a_howl_waits_for_the_step_to_end(tmp_path):
    async def scenario(days):
        await days.until((tmp_path / "began").exists)
        leaving = asyncio.create_task(days.job.leave(10.0))
        await asyncio.sleep(0)  # the howl is on its way
        (tmp_path / "gate").touch()
        state = await leaving
        return pickle.loads(state), len(days.steps), days.job.is_running

    assert (str(tmp_path), 1, False) == live(scenario, "GatedWatch", pickle.dumps(str(tmp_path)))


def test_a_howl_is_declined_when_the_step_takes_too_long_and_the_day_goes_on(tmp_path):
    async def scenario(days):
        await days.until((tmp_path / "began").exists)
        answer = await days.job.leave(0.01)
        (tmp_path / "gate").touch()
        await days.until(lambda: len(days.steps) >= 3)
        return answer, days.failures

    assert (None, []) == live(scenario, "GatedWatch", pickle.dumps(str(tmp_path)))


def test_a_step_that_fails_is_told_and_the_day_goes_on_from_the_last_whole_step(monkeypatch):
    monkeypatch.setattr(day_job, "RESTART_S", 0.001)

    async def scenario(days):
        await days.until(lambda: len(days.steps) >= 4)
        return days.steps[:4], days.failures[0]

    steps, failure = live(scenario, "FailingWatch")
    assert [1, 2, 3, 4] == [state for _, _, state in steps]
    assert "OSError: the bell is broken" in failure


def test_a_day_job_that_cannot_be_made_is_told_with_its_traceback():
    async def scenario():
        days = Days("UnmadeWatch")
        try:
            await days.job.start()
        finally:
            assert not days.job.is_running

    with pytest.raises(SetupFailed, match="no tower"):
        asyncio.run(scenario())


@pytest.mark.parametrize(("failures", "pause_s"), [(0, 1.0), (1, 2.0), (5, 32.0), (6, 60.0), (10_000, 60.0)])
def test_pauses_between_failures_grow_to_a_minute(failures, pause_s):
    assert pause_s == restart_pause_s(failures)
