"""The hands and the day job of a simulated unit: they take as long, and end, as each task says of itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgpack

from wolfpack.core import errands as e
from wolfpack.model import Cause, Job, Report
from wolfpack.sim.checks import BrokenPromise

if TYPE_CHECKING:
    from wolfpack.sim.den_units import Process


class Hands:
    """Runs jobs side by side up to `concurrency`, in order, within the time allowed.

    They start a task only within the time that the brain allowed, and run on while the process around them is frozen,
    unless they are frozen too.
    """

    def __init__(self, process: Process) -> None:
        self._world, self._process = process.world, process
        self.waiting: deque[Job] = deque()
        self.running: dict[int, tuple[Job, float]] = {}  # lease -> job, and since when
        self.until = float("-inf")  # by the unit's own clock
        self.ended = 0  # tasks; the progress that membership tells
        self.evicting = False
        self._eviction = 0
        self.stopped = False
        self.frozen = False
        self._owed: list[Callable[[], None]] = []

    def give(self, jobs: tuple[Job, ...]) -> None:
        for job in jobs:
            if self.evicting:
                self._report(job, Cause.RETURNED, None)
            else:
                self.waiting.append(job)
        self.pump()

    def pump(self) -> None:
        world, process = self._world, self._process
        slots = process.card.hands.concurrency
        while (
            self.waiting
            and len(self.running) < slots
            and process.now <= self.until
            and not self.stopped
            and not self.frozen
        ):
            job = self.waiting.popleft()
            if job.lease_no in self.running:
                raise BrokenPromise("I7", f"{process.name} starts lease {job.lease_no} twice")
            self.running[job.lease_no] = (job, world.now)
            starts = world.starts[job.task_id]
            starts.append((world.now, process.card.unit, process.boot, job.lease_no))
            seconds, ends = msgpack.unpackb(job.args)
            world.kernel.after(seconds, self._finish, job, ends[min(job.attempt, len(ends)) - 1])
            process.watch_running()

    def _finish(self, job: Job, end: str) -> None:
        if self.frozen:
            self._owed.append(lambda: self._finish(job, end))
            return
        if self.stopped or job.lease_no not in self.running:
            return
        if end == "KILL":
            self._world.end_process(self._process.card.unit, self._process.boot)
            return
        _, since = self.running.pop(job.lease_no)
        self._report(job, Cause(end), since)
        self._maybe_evicted()
        self.pump()

    def _report(self, job: Job, cause: Cause, since: float | None, **fields: Any) -> None:
        self.ended += 1
        wall = self._process.wall - self._world.now
        kinds = ("builtins.ValueError",) if cause is Cause.FAULT else ()
        payload = b"value" if cause is Cause.DONE else b""
        report = Report(
            job.lease_no, job.task_id, cause.value, since is not None, wall + (since or 0.0), wall + self._world.now,
            payload=payload, kinds=kinds, **fields,
        )  # fmt: skip
        self._process.report(report)

    def seconds(self) -> dict[int, float]:
        """What runs now, and for how long."""
        now = self._world.now
        return {lease_no: now - since for lease_no, (_, since) in self.running.items()}

    def take_back(self, lease_nos: tuple[int, ...]) -> None:
        for job in [job for job in self.waiting if job.lease_no in lease_nos]:
            self.waiting.remove(job)
            self._report(job, Cause.RETURNED, None)

    def cancel(self, lease_no: int, *, kill: bool, cause: Cause, text: str = "") -> None:
        for job in [job for job in self.waiting if job.lease_no == lease_no]:
            self.waiting.remove(job)
            self._report(job, cause, None, text=text)
        if kill and lease_no in self.running:
            job, since = self.running.pop(lease_no)
            self._report(job, cause, since, text=text)
            self._maybe_evicted()
            self.pump()

    def evict(self, grace_s: float) -> None:
        """Nothing is started until what runs has ended, by itself or at the end of the grace."""
        self.evicting = True
        self._eviction += 1
        self.take_back(tuple(job.lease_no for job in self.waiting))
        self._maybe_evicted()
        self._world.kernel.after(grace_s, self._end_all, self._eviction)

    def _end_all(self, eviction: int) -> None:
        if self.evicting and eviction == self._eviction and not self.stopped:
            for job, since in [*self.running.values()]:
                del self.running[job.lease_no]
                self._report(job, Cause.EVICTED, since)
            self._maybe_evicted()

    def _maybe_evicted(self) -> None:
        if not self.running:
            self.evicting = False

    def thaw(self) -> None:
        self.frozen = False
        owed, self._owed = self._owed, []
        for one in owed:
            one()
        self.pump()


class DayJob:
    """A werewolf's own work: a counter that goes up with each step, its checkpoint the counter as text."""

    def __init__(self, process: Process) -> None:
        self._world, self._process = process.world, process
        self._life = 0
        self._state = 0
        self.working = False
        self.stepping_until = 0.0

    def start(self, state: bytes) -> None:
        self._life += 1
        self.working = True
        self._step(self._life, int(state or b"0"))

    def _step(self, life: int, count: int) -> None:
        if life != self._life:
            return
        world = self._world
        self.stepping_until = world.now + world.day_step_s
        self._state = count
        self._process.after(world.day_step_s, lambda: self._stepped(life, count + 1))

    def _stepped(self, life: int, count: int) -> None:
        if life != self._life:
            return
        world, process = self._world, self._process
        self._state = world.day_steps[process.card.unit] = count
        self.stepping_until = world.now
        process.step(e.DayStepped(next_s=world.day_pause_s, state=str(count).encode()))
        if life == self._life:
            process.after(world.day_pause_s, lambda: self._step(life, count))

    def leave(self, grace_s: float) -> None:
        process = self._process
        left_s = max(0.0, self.stepping_until - self._world.now)
        if left_s > grace_s:
            process.after(grace_s, lambda: process.step(e.DayLeft(state=None)))
        else:
            process.after(left_s + 0.001, self._stop)

    def _stop(self) -> None:
        self._life += 1
        self.working = False
        self._process.step(e.DayLeft(state=str(self._state).encode()))
