"""Hands, seen from their unit: what they were given, what of it runs, and what became of it.

`Hands` is the book-keeping that both kinds share. `ProcessHands` run user code in a child process. The kind that uses
threads of the unit is in `hands_thread.py`. The pool talks to both in the same words.

What runs is known without a message: hands take jobs in the order given and report each before they start the next, so
of plain functions the first without a report runs, since the moment of the report before it. Coroutines all run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from wolfpack.den import processes
from wolfpack.den.child import Child
from wolfpack.model import Cause, Job, Report

PORTION_BYTES = 16 << 20


class Held(NamedTuple):
    """A job in the order in which the pool got it."""

    order: int
    job: Job


class Started(NamedTuple):
    """When a job started, as well as the unit knows."""

    monotonic_s: float
    at: float  # wall clock


class Verdict(NamedTuple):
    """What a job's report shall say, decided before its hands are killed or its coroutine is cancelled."""

    cause: Cause
    text: str


class Owner(Protocol):
    """What the pool does with the news of its hands."""

    def on_ready(self, hands: Hands) -> None: ...

    def on_reports(self, hands: Hands, reports: list[Report]) -> None: ...

    def on_publish(self, events: list[tuple[str, str]]) -> None: ...

    def on_progress(self) -> None: ...

    def on_gone(self, hands: Hands, how: str) -> None: ...


class Hands:
    """The book-keeping of one process, or one thread, that runs tasks."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self.assigned: dict[int, Held] = {}
        self.starts: dict[int, Started] = {}
        self.verdicts: dict[int, Verdict] = {}
        self.progressed: set[int] = set()
        self.given = 0  # jobs ever, without those taken back
        self.runs_async = False  # of the jobs assigned now
        self.is_ready = False
        self.was_ready = False
        self.is_ending = False  # takes no more jobs
        self.is_gone = False
        self.failed_start = ""  # the traceback of a setup that raised
        self.known_functions: set[str] = set()

    def give(self, held: Sequence[Held], code: Mapping[str, bytes]) -> None:
        """Gives jobs to run after those assigned. All plain, or all coroutines and then all start at once.

        Args:
            code: of the functions that these hands do not know yet.
        """
        self.runs_async = held[0].job.is_async
        self.given += len(held)
        self.assigned.update((item.job.lease_no, item) for item in held)
        now = Started(time.monotonic(), time.time())
        if self.runs_async:
            self.starts.update((item.job.lease_no, now) for item in held)
        elif not self.starts:
            self.starts[held[0].job.lease_no] = now
        self.known_functions.update(code)
        self._give(held, code)

    def withdraw(self) -> list[Held]:
        """Takes back, in their order, all jobs that have not started; exact also while user code runs."""
        count = self._withdraw()
        if not count:
            return []
        leases = list(self.assigned)[-count:]
        self.given -= count
        for lease_no in leases:
            self.starts.pop(lease_no, None)
        return [self.assigned.pop(lease_no) for lease_no in leases]

    def on_messages(self, messages: list[list[Any]]) -> None:
        reports: list[Report] = []
        events: list[tuple[str, str]] = []
        for message in messages:
            head = message[0]
            if head.__class__ is int:
                lease_no, started_at, ended_at, payload, blob = message
                held = self.assigned.pop(lease_no, None)
                if held is not None:
                    self.starts.pop(lease_no, None)
                    reports.append(
                        Report(lease_no, held.job.task_id, Cause.DONE, True, started_at, ended_at, payload, blob)
                    )
            elif head == "fault":
                report = self._on_fault(*message[1:])
                if report is not None:
                    reports.append(report)
            elif head == "publish":
                events.append((message[1], message[2]))
            elif head == "progress":
                self.progressed.add(message[1])
                self._owner.on_progress()
            elif head == "ready":
                self.is_ready = self.was_ready = True
                self._owner.on_ready(self)
            elif head == "failed":
                self.failed_start = message[2]
        if events:
            self._owner.on_publish(events)
        if reports:
            if self.assigned and not self.starts:
                self.starts[next(iter(self.assigned))] = Started(time.monotonic(), reports[-1].ended_at)
            for report in reports if self.progressed or self.verdicts else ():
                self.progressed.discard(report.lease_no)
                self.verdicts.pop(report.lease_no, None)
            self._owner.on_reports(self, reports)

    def _on_fault(
        self,
        lease_no: int,
        started_at: float,
        ended_at: float,
        payload: bytes,
        text: str,
        kinds: list[str],
        retry_after_s: float | None,
    ) -> Report | None:
        held = self.assigned.pop(lease_no, None)
        if held is None:
            return None
        self.starts.pop(lease_no, None)
        verdict = self.verdicts.get(lease_no)
        if verdict is not None and kinds[0].endswith(".CancelledError"):
            return self._judged(held.job, verdict, Started(0.0, started_at), ended_at)
        return Report(
            lease_no, held.job.task_id, Cause.FAULT, True, started_at, ended_at, payload, "", text, tuple(kinds),
            retry_after_s,
        )  # fmt: skip

    def _judged(self, job: Job, verdict: Verdict, started: Started, ended_at: float) -> Report:
        return Report(
            job.lease_no, job.task_id, verdict.cause, True, started.at, ended_at, text=verdict.text,
            progressed=job.lease_no in self.progressed,
        )  # fmt: skip

    def end_running(self, default: Callable[[int], Verdict]) -> list[Report]:
        """Reports for everything that is assigned: it was started, and has no report of its own.

        Args:
            default: what is said of those without a verdict, given how many they are.
        """
        now, unknown = time.time(), sum(lease_no not in self.verdicts for lease_no in self.assigned)
        reports = [
            self._judged(
                held.job,
                self.verdicts.get(lease_no) or default(unknown),
                self.starts.get(lease_no, Started(0, now)),
                now,
            )
            for lease_no, held in self.assigned.items()
        ]
        self.assigned.clear()
        self.starts.clear()
        self.verdicts.clear()
        self.progressed.clear()
        return reports

    # --- what the two kinds do each in their way

    def _give(self, held: Sequence[Held], code: Mapping[str, bytes]) -> None:
        raise NotImplementedError

    def _withdraw(self) -> int:
        """How many of the last given have not started, and now never will."""
        raise NotImplementedError

    def allow(self, until: float) -> None:
        """No job starts after this monotonic time, until a later one is allowed."""

    def forget_functions(self) -> None:
        """Drops the code of functions; only while nothing is assigned."""
        raise NotImplementedError

    def ask_stop(self, lease_no: int) -> None:
        """`should_stop()` of this running task is true from now on."""
        raise NotImplementedError

    def cancel_coroutine(self, lease_no: int) -> None:
        raise NotImplementedError

    def end(self, grace_s: float) -> None:
        """Lets the hands finish in order; `on_gone` follows."""
        raise NotImplementedError

    def kill(self) -> None:
        """Ends the hands, whatever runs; `on_gone` follows. What shall be said of running jobs stands in `verdicts`."""
        raise NotImplementedError

    def find_pids(self, parents: Mapping[int, int]) -> list[int]:
        """The processes whose memory is that of these hands."""
        raise NotImplementedError


class ProcessHands(Hands):
    """Hands in a child process."""

    def __init__(
        self, owner: Owner, config: dict[str, Any], *, unit: str, folder: str | None, on_log: Callable[[str], None]
    ) -> None:
        super().__init__(owner)
        self._next_number = 0
        self._child = Child(
            {**config, "mode": "tasks"},
            unit=unit,
            folder=folder,
            on_messages=self.on_messages,
            on_gone=self._on_gone,
            on_log=on_log,
        )

    def _give(self, held: Sequence[Held], code: Mapping[str, bytes]) -> None:
        first = self._next_number
        self._next_number += len(held)
        messages: list[list[Any]] = [["code", fn, text] for fn, text in code.items()]
        messages += [["jobs", first + place, jobs] for place, jobs in _portions([item.job for item in held])]
        self._child.send(*messages)
        self._child.permit(first, len(held))

    def _withdraw(self) -> int:
        return self._child.withdraw()

    def allow(self, until: float) -> None:
        self._child.allow(until)

    def forget_functions(self) -> None:
        self.known_functions.clear()
        self._child.send(["forget"])

    def ask_stop(self, lease_no: int) -> None:
        self._child.send(["stop", lease_no])

    def cancel_coroutine(self, lease_no: int) -> None:
        self._child.send(["stop", lease_no], ["cancel", lease_no])

    def end(self, grace_s: float) -> None:
        self.is_ending = True
        self._child.end(grace_s)

    def kill(self) -> None:
        self.is_ending = True
        self._child.kill()

    def find_pids(self, parents: Mapping[int, int]) -> list[int]:
        return processes.descendants(self._child.guard_pid, parents)

    def _on_gone(self, status: int | None) -> None:
        self.is_gone = self.is_ending = True
        self.is_ready = False
        how = "their guard process was killed" if status is None else processes.describe_end(status)
        self._owner.on_gone(self, how)


def _portions(jobs: Sequence[Job]) -> Iterator[tuple[int, list[Job]]]:
    """The jobs in portions whose arguments fit into one frame, each with the place of its first job."""
    start = size = 0
    for place, job in enumerate(jobs):
        if size and size + len(job.args) > PORTION_BYTES:
            yield start, list(jobs[start:place])
            start, size = place, 0
        size += len(job.args)
    yield start, list(jobs[start:])
