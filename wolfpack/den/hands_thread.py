"""Hands in a thread of the unit itself: for tasks that need Ray's API, or a model shared with others in the process.

They keep the same books and speak the same messages as hands in a child process, without pipes. Two things they cannot
do: a thread that does not end by itself cannot be killed (what runs in it is reported, and the unit must be replaced),
and user code that holds the interpreter's lock, crashes or eats memory takes the unit with it.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from wolfpack import context as task_here
from wolfpack.den.hands import Hands, Held, Owner
from wolfpack.den.hands_main import load_named
from wolfpack.den.runner import Runner, describe_fault
from wolfpack.model import Job


class ThreadHands(Hands):
    """One thread that runs plain functions one after the other, and coroutines on an event loop of its own."""

    def __init__(self, owner: Owner, config: dict[str, Any]) -> None:
        super().__init__(owner)
        self.unit: str = config["unit"]
        self.state: Any = None
        self._home = asyncio.get_running_loop()
        self._setup: str | None = config["setup"]
        self._runner = Runner(blobs=config["blobs"], payload_max_bytes=config["payload_max_bytes"])
        self._lock = threading.Condition()
        self._jobs: deque[Job] = deque()  # given and not started
        self._stopping: set[int] = set()
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None  # made and run by the thread
        self._coroutines: dict[int, asyncio.Task[None]] = {}
        self._thread = threading.Thread(target=self._live, name=f"hands of {self.unit}", daemon=True)
        self._thread.start()

    # --- called by the pool, on its loop

    def _give(self, held: Sequence[Held], code: Mapping[str, bytes]) -> None:
        with self._lock:
            for fn, text in code.items():
                self._runner.learn(fn, text)
            self._jobs.extend(item.job for item in held)
            self._lock.notify()
            self._wake_loop()

    def _withdraw(self) -> int:
        with self._lock:
            count = len(self._jobs)
            self._jobs.clear()
            return count

    def forget_functions(self) -> None:
        self.known_functions.clear()
        self._runner.forget()

    def ask_stop(self, lease_no: int) -> None:
        self._stopping.add(lease_no)

    def cancel_coroutine(self, lease_no: int) -> None:
        self._stopping.add(lease_no)
        task = self._coroutines.get(lease_no)
        if task is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(task.cancel)

    def end(self, grace_s: float) -> None:
        self.is_ending = True
        self._close()
        self._home.call_later(grace_s, self._gone)

    def kill(self) -> None:
        self.is_ending = True
        self._stopping.update(self.assigned)
        self._close()
        self._home.call_soon(self._gone)

    def find_pids(self, parents: Mapping[int, int]) -> list[int]:  # noqa: ARG002
        return []

    def _close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._lock.notify()
            self._wake_loop()

    def _gone(self) -> None:
        if not self.is_gone:
            self.is_gone = self.is_ending = True
            self.is_ready = False
            self._owner.on_gone(self, "its thread was given up" if self.starts else "its thread ended")

    # --- the Link of running tasks; called in the thread

    def should_stop(self, lease_no: int) -> bool:
        return lease_no in self._stopping

    def progress(self, lease_no: int) -> None:
        self._tell(["progress", lease_no])

    def publish(self, name: str, fields: str) -> None:
        self._tell(["publish", name, fields])

    # --- the thread

    def _tell(self, message: list[Any]) -> None:
        try:
            self._home.call_soon_threadsafe(self._hear, message)
        except RuntimeError:
            return  # the unit's loop is closed: nobody is left to hear it

    def _hear(self, message: list[Any]) -> None:
        if not self.is_gone:
            self.on_messages([message])

    def _live(self) -> None:
        try:
            if self._setup:
                self.state = load_named(self._setup)()
                if hasattr(self.state, "__await__"):
                    self.state = self._get_loop().run_until_complete(self.state)
        except BaseException as exc:
            self._tell(["failed", "setup", describe_fault(exc)])
            self._say_gone()
            return
        self._tell(["ready", 0])
        while True:
            with self._lock:
                while not self._jobs and not self._is_closed:
                    self._lock.wait()
                if self._is_closed:
                    break
                job = self._jobs.popleft()
            if job.is_async:
                self._get_loop().run_until_complete(self._side_by_side(job))
            else:
                task_here.enter_context(job, self)
                message = self._runner.run(job)
                task_here.leave_context()
                self._tell(message)
        self._say_gone()

    def _say_gone(self) -> None:
        try:
            self._home.call_soon_threadsafe(self._gone)
        except RuntimeError:
            return

    def _get_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self._loop)
        return self._loop

    def _wake_loop(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._start_coroutines)

    def _start_coroutines(self) -> None:
        with self._lock:
            while self._jobs and self._jobs[0].is_async:
                job = self._jobs.popleft()
                self._coroutines[job.lease_no] = self._get_loop().create_task(self._run_coroutine(job))

    async def _side_by_side(self, first: Job) -> None:
        """Runs coroutines, also those that come meanwhile, until none is left."""
        self._coroutines[first.lease_no] = self._get_loop().create_task(self._run_coroutine(first))
        self._start_coroutines()
        while self._coroutines:
            await asyncio.wait(list(self._coroutines.values()), return_when=asyncio.FIRST_COMPLETED)

    async def _run_coroutine(self, job: Job) -> None:
        task_here.enter_context(job, self)
        message = await self._runner.run_async(job)
        self._coroutines.pop(job.lease_no, None)
        self._tell(message)
