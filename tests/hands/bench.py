"""A pool of hands on an event loop of its own, driven step by step from plain test functions."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Coroutine
from typing import Any

import cloudpickle

from wolfpack.den.hands_pool import HandsPool
from wolfpack.model import Cause, HandsSpec, Job, Report

PATIENCE_S = 20.0


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that ended and waits for its parent to take notice does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


class Bench:
    """Wraps one pool; every wait has a deadline, and fails with what is there."""

    def __init__(self, folder: str, *, memory_bytes: int | None = None, payload_max_bytes: int = 1 << 30, **spec: Any):
        self._runner = asyncio.Runner()
        self.reports: dict[int, Report] = {}
        self.order: list[int] = []
        self.began: list[dict[str, int]] = []
        self.logs: list[str] = []
        self.broken: list[str] = []
        self.code: dict[str, bytes] = {}
        self.fetched: list[str] = []
        self.blobs = os.path.join(folder, "blobs")
        self._lease_no = 0
        self.pool = HandsPool(
            HandsSpec(**spec), unit="grey-0", boot=3, memory_bytes=memory_bytes, folder=None, blobs=self.blobs,
            payload_max_bytes=payload_max_bytes, get_code=self._get_code, on_report=self._on_report,
            on_publish=self._on_publish, on_log=self.logs.append, on_broken=self.broken.append,
        )  # fmt: skip

    def start(self) -> Bench:
        self.run(self.pool.start())
        return self

    def close(self) -> None:
        self.run(self.pool.stop())
        self._runner.close()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(PATIENCE_S):
                return await work

        return self._runner.run(bounded())

    def _on_report(self, report: Report) -> None:
        assert report.lease_no not in self.reports, "a lease was reported twice"
        self.reports[report.lease_no] = report
        self.order.append(report.lease_no)

    def _on_publish(self, events: list[tuple[str, str]]) -> None:
        self.began += [json.loads(fields) for name, fields in events if name == "tests.hands.tasks:Began"]

    async def _get_code(self, fn: str) -> bytes:
        self.fetched.append(fn)
        return self.code[fn]

    def job(self, function: Any, *args: Any, timeout_s: float | None = None, blob: str = "", fn: str = "") -> Job:
        name = fn or getattr(function, "__qualname__", repr(function))
        if function is not None:
            self.code[name] = cloudpickle.dumps(function)
        self._lease_no += 1
        packed = b"" if blob or not args else cloudpickle.dumps((args, {}))
        is_async = asyncio.iscoroutinefunction(function)
        return Job(self._lease_no, f"c:{self._lease_no}", name, packed, blob, "", 1, timeout_s, is_async, 1)

    def give(self, *jobs: Job) -> None:
        async def give() -> None:
            self.pool.give(jobs)

        self.run(give())

    def call(self, method: str, *args: Any, **options: Any) -> None:
        """Calls a plain method of the pool on its loop."""

        async def call() -> None:
            getattr(self.pool, method)(*args, **options)

        self.run(call())

    def until(self, condition: Callable[[], Any], what: str) -> None:
        async def wait() -> None:
            deadline = time.monotonic() + PATIENCE_S
            while not condition():
                assert time.monotonic() < deadline, (
                    f"waited in vain until {what}; {self.pool.held} leases held; {self.logs}"
                )
                await asyncio.sleep(0.001)

        self._runner.run(wait())

    def until_began(self, count: int = 1) -> dict[str, int]:
        """Waits until that many tasks said that they run since the last time; the news of the last."""
        self.until(lambda: len(self.began) >= count, f"{count} tasks run")
        last = self.began[-1]
        self.began.clear()
        return last

    def wait(self, *jobs: Job) -> list[Report]:
        self.until(lambda: all(job.lease_no in self.reports for job in jobs), "all is reported")
        return [self.reports[job.lease_no] for job in jobs]

    def do(self, function: Any, *args: Any, **options: Any) -> Report:
        """Runs one task to its report."""
        job = self.job(function, *args, **options)
        self.give(job)
        return self.wait(job)[0]

    def value(self, function: Any, *args: Any) -> Any:
        report = self.do(function, *args)
        assert Cause.DONE == report.cause, report
        return cloudpickle.loads(report.payload)

    def reports_of(self, *jobs: Job) -> list[Report]:
        return [self.reports[job.lease_no] for job in jobs]
