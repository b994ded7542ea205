"""The book's task desk: submit, grant, renew, settle, cancel, expire. This layer ends leases and tasks.

Every change of state goes through `core.tasks.move`, so an illegal one raises and changes nothing. One function,
`settle`, takes every report, whoever brings it. Below it lie `granting` (leases) and `intake` (submit, and the tables).
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop

from wolfpack.core.book.granting import Granting
from wolfpack.core.book.journal import Journal
from wolfpack.core.book.queue import Queue
from wolfpack.core.book.state import Held, Instant, Pack, Task, Unit
from wolfpack.core.retry import Verdict, find_unpin_reason, judge
from wolfpack.core.rows import TaskRow
from wolfpack.core.tasks import TaskEvent, move
from wolfpack.events import TaskDied, TaskPinned
from wolfpack.model import FINAL_STATES, Cause, Needs, Readiness, Report, TaskState

DONE_IN_TIME = "The task was done before the cancel reached it."
ENDED_MOST = 20_000  # leases that ended their tasks, remembered to know repeats from ghosts


class TaskDesk(Granting):
    def __init__(self, journal: Journal, packs: dict[str, Pack], units: dict[str, Unit], lease_s: float) -> None:
        super().__init__(journal, packs, units)
        self._lease_s = lease_s
        self._ended: dict[int, None] = {}  # the leases that ended their tasks of late, oldest first
        # Node -> when a unit was last lost there, which, and the tasks it held.
        self._lost_on: dict[str, tuple[float, str, frozenset[str]]] = {}

    # --- reports ------------------------------------------------------------------------------------------------

    def settle(self, at: Instant, unit: Unit | None, name: str, boot: int, reports: Iterable[Report]) -> list[int]:
        """Takes reports on leases; every one is acknowledged, whether it settled its task or came too late.

        Args:
            unit: the sender's row, or None when it is no longer known.
            name: the sender, for the record of ghosts.
            boot: the sender's boot.
            reports: in the order in which the leases ended.
        """
        acked = []
        for report in reports:
            acked.append(report.lease_no)
            task = self.find(report.task_id)
            if task is None and report.lease_no in self._ended:
                continue  # a repeat: its sender did not hear that it was settled
            if task is None or task.lease_no != report.lease_no or (task.unit, task.boot) != (name, boot):
                why = "the task is final" if task is None else f"lease {task.lease_no} came after it"
                self._ghost(at, report, name, boot, why)
            elif task.state is TaskState.LEASED:
                alone = unit is not None and len(unit.held) == 1
                if unit is not None:
                    unit.held.pop(report.lease_no, None)
                if report.cause == Cause.DONE:
                    self._end_done(task, report)
                else:
                    self._end_lease(at, task, report, alone=alone)
            elif task.state is TaskState.QUEUED and report.cause == Cause.DONE:
                self.queues[task.fixed.pack].discard(task)  # late, but nobody else has it
                self._end_done(task, report)
            elif task.state in FINAL_STATES and task.cause != report.cause:
                self._ghost(at, report, name, boot, f"the task is {task.state}")
        return acked

    def _ghost(self, at: Instant, report: Report, name: str, boot: int, why: str) -> None:
        if report.started and report.cause == Cause.DONE:
            self._journal.note_ghost(at, report.lease_no, report.task_id, name, boot, report.cause, why)

    def _end_lease(self, at: Instant, task: Task, report: Report, *, alone: bool, blameless: bool = False) -> None:
        pack = self._packs[task.fixed.pack]
        queue = self.queues[task.fixed.pack]
        counts = self.counts[task.fixed.pack]
        policy = task.options.retry or pack.spec.retry
        cause = Cause(report.cause)
        if task.cancel and task.cause == Cause.EXPIRED and cause is not Cause.DONE:
            cause = Cause.EXPIRED  # however its unit ended it: the deadline is why
        try:
            verdict = judge(
                cause=cause, started=report.started, policy=policy, attempts=task.attempts, failures=task.failures,
                evictions=task.evictions, solo=task.solo, pinned=task.pinned, alone=alone,
                cancel=task.cancel and cause is not Cause.EXPIRED, progressed=report.progressed, kinds=report.kinds,
                retry_after_s=report.retry_after_s, needs=task.needs, blameless=blameless, rng=self._journal.rng,
            )  # fmt: skip
        except Exception as exc:  # one task that cannot be judged must not stop the pack
            verdict = Verdict(
                event=TaskEvent.BURY, attempts=task.attempts + report.started, failures=task.failures,
                evictions=task.evictions, not_before_delay_s=0.0, solo=task.solo, pinned=task.pinned,
                needs=task.needs, reason=f"its retry policy cannot be applied: {exc}",
            )  # fmt: skip
        before = task.state
        after = move(before, verdict.event)
        if before is TaskState.LEASED:
            task.lane_at.leased -= 1
        counts[before] -= 1
        counts[after] += 1
        if report.started:
            _tell_story(task, report, cause.value)
        task.state = after
        task.attempts, task.failures, task.evictions = verdict.attempts, verdict.failures, verdict.evictions
        task.cause = cause.value
        task.text = report.text or verdict.reason
        self._journal.tasks[task.fixed.id] = task
        if after is TaskState.QUEUED:
            task.solo = verdict.solo
            if verdict.needs != task.needs:
                task.ask_for(verdict.needs)
                self._unmet(at, pack, verdict.needs)
            self._pin(at, pack, task, verdict.pinned, verdict.reason)
            waits = verdict.not_before_delay_s > 0
            task.not_before = at.wall + verdict.not_before_delay_s if waits else 0.0
            task.started_at = at.wall if waits else 0.0  # since when, for a keeper whose clock was set back meanwhile
            queue.push(task, at.wall)
            return
        if after is TaskState.CANCELLED:
            task.cause, task.text = Cause.CANCELLED.value, task.text or "cancelled while it ran"
        if after is TaskState.DEAD:
            task.text = verdict.reason if not report.text else f"{report.text} ({verdict.reason})"
            self._journal.publish(
                at, TaskDied(pack=pack.name, task_id=task.id, cause=cause.value, reason=task.text[:500])
            )
        self._finish_with(task, report)

    def _end_done(self, task: Task, report: Report) -> None:
        """The commonest end of a lease: what `judge` says of DONE, without asking."""
        counts = self.counts[task.fixed.pack]
        if task.state is TaskState.LEASED:
            task.lane_at.leased -= 1
        counts[task.state] -= 1
        counts[TaskState.DONE] += 1
        task.state = move(task.state, TaskEvent.SETTLE_DONE)
        task.cause = report.cause
        task.text = report.text or (DONE_IN_TIME if task.cancel else "")
        if report.started:
            _tell_story(task, report, report.cause)
            task.attempts += 1
            task.lane_at.note_service(max(report.ended_at - report.started_at, 1e-6))
        self._finish_with(task, report)

    def _finish_with(self, task: Task, report: Report) -> None:
        task.started_at, task.ended_at = report.started_at, report.ended_at
        task.payload, task.payload_blob = report.payload, report.blob
        self._ended[report.lease_no] = None
        if len(self._ended) > ENDED_MOST:
            del self._ended[next(iter(self._ended))]
        self._finish(task)

    def _pin(self, at: Instant, pack: Pack, task: Task, pinned: bool, reason: str) -> None:
        """Pins a task to units that are not lent out, unless there can be none that serves it."""
        dropped = (
            find_unpin_reason(
                task.needs,
                (unit.card for unit in self._units.values() if unit.readiness is not Readiness.GONE),
                pack.spec.lendable,
            )
            if pinned
            else None
        )
        if dropped is not None:
            task.text = f"{task.text} {dropped}"
        elif pinned and not task.pinned:
            self._journal.publish(at, TaskPinned(pack=pack.name, task_id=task.id, reason=reason))
        task.pinned = pinned and dropped is None

    def _finish(self, task: Task) -> None:
        task_id = task.fixed.id
        del self.live[task_id]
        self.settled[task_id] = task
        self._journal.note_final(task)
        for client in self._joined.pop(task_id, ()):
            self._journal.note_final_for(client, task)

    def end_without_report(self, at: Instant, unit: Unit, held: Held, cause: Cause, text: str, *, alone: bool) -> None:
        """Ends a lease its unit can no longer speak for (lost, silent), or never learned of."""
        unit.held.pop(held.task.lease_no, None)
        blameless = cause is Cause.LOST and self._lost_together(at, unit, held.task)
        started = cause is Cause.LOST and alone
        since = held.task.started_at or at.wall
        report = Report(held.task.lease_no, held.task.id, cause.value, started, since, at.wall, text=text)
        self._end_lease(at, held.task, report, alone=alone, blameless=blameless)

    def lose(self, at: Instant, unit: Unit, reason: str) -> None:
        """Every lease of a vanished unit ends as LOST; if it held several, none of them is blamed."""
        alone = len(unit.held) == 1
        tasks = frozenset(held.task.id for held in unit.held.values())
        for held in list(unit.held.values()):
            self.end_without_report(at, unit, held, Cause.LOST, reason, alone=alone)
        self._lost_on[unit.node] = (at.mono, unit.id, tasks)

    def _lost_together(self, at: Instant, unit: Unit, task: Task) -> bool:
        """Whether it was the node; a task that both units held may well have been the one that killed them."""
        when, other, tasks = self._lost_on.get(unit.node, (float("-inf"), unit.id, frozenset[str]()))
        return other != unit.id and at.mono - when <= self._lease_s and task.id not in tasks

    def expire(self, at: Instant) -> None:
        """Judges life, not age: leases nobody listed for `lease_s` return; deadlines that passed bury their tasks."""
        for unit in self._units.values():
            if not unit.held or at.mono <= unit.expires_mono:
                continue
            late = [held for held in unit.held.values() if at.mono - held.renewed_mono > self._lease_s]
            kept = (held.renewed_mono for held in unit.held.values() if at.mono - held.renewed_mono <= self._lease_s)
            unit.expires_mono = min(kept, default=at.mono) + self._lease_s
            alone = len(unit.held) == 1
            for held in late:
                if held.listed:
                    text = f"{unit.id} did not renew its lease for {self._lease_s:g} s"
                    self.end_without_report(at, unit, held, Cause.LOST, text, alone=alone)
                else:
                    self.end_without_report(
                        at, unit, held, Cause.RETURNED, f"the lease never arrived at {unit.id}", alone=alone
                    )
        while self._deadlines and self._deadlines[0][0] <= at.wall:
            task = self.live.get(heappop(self._deadlines)[1])
            if task is None:
                continue
            if task.state is TaskState.QUEUED:
                self.queues[task.fixed.pack].discard(task)
                report = Report(task.lease_no, task.id, Cause.EXPIRED.value, False, 0.0, at.wall, text="")
                self._end_lease(at, task, report, alone=False)
            elif not task.cancel:
                task.cancel, task.kill, task.cause = True, True, Cause.EXPIRED.value

    # --- by hand ------------------------------------------------------------------------------------------------

    def cancel(self, at: Instant, task_ids: Iterable[str], *, kill: bool) -> tuple[list[str], set[str]]:
        """Cancels queued tasks at once and marks leased ones. Returns those found, and the packs that must be told."""
        found, packs = [], set()
        for task_id in task_ids:
            task = self.live.get(task_id)
            if task is None:
                continue
            found.append(task_id)
            if task.state is TaskState.QUEUED:
                self.queues[task.fixed.pack].discard(task)
                self._close(at, task, TaskEvent.CANCEL, Cause.CANCELLED, "cancelled before it started")
            else:
                task.cancel, task.kill = True, task.kill or kill
                held = self._units[task.unit].held.get(task.lease_no)
                if held is not None:
                    held.told_mono = float("-inf")
                self._journal.tasks[task_id] = task
                packs.add(task.fixed.pack)
        return found, packs

    def _close(self, at: Instant, task: Task, event: TaskEvent, cause: Cause, text: str) -> None:
        """Ends a queued task without a report."""
        after = move(task.state, event)
        counts = self.counts[task.fixed.pack]
        counts[task.state] -= 1
        counts[after] += 1
        task.state, task.cause, task.text, task.ended_at = after, cause.value, text, at.wall
        if after is TaskState.DEAD:
            self._journal.publish(
                at, TaskDied(pack=task.fixed.pack, task_id=task.id, cause=cause.value, reason=text[:500])
            )
        self._finish(task)

    def clear(self, at: Instant, pack: str, reason: str) -> None:
        """Cancels everything of a pack that has not started, and marks the rest."""
        ids = [task.id for task in self.live.values() if task.fixed.pack == pack]
        self.cancel(at, ids, kill=True)
        for task_id in ids:
            task = self.find(task_id)
            if task is not None and task.state is TaskState.CANCELLED:
                task.text = reason

    def replay(self, at: Instant, row: TaskRow, needs: Needs | None) -> None:
        """Queues a dead letter again with fresh budgets, and with other needs if given."""
        task = Task.from_row(row)
        task.state = move(task.state, TaskEvent.REPLAY)
        task.failures = task.evictions = 0
        task.pinned = task.cancel = False
        task.ask_for(needs or task.needs)
        task.payload, task.payload_blob, task.settle_no, task.cause, task.text = b"", "", 0, "", "replayed by a person"
        counts = self.counts[task.fixed.pack]
        counts[TaskState.DEAD] -= 1
        counts[TaskState.QUEUED] += 1
        self.live[task.id] = task
        if task.fixed.key is not None:
            self._keys[task.fixed.pack, task.fixed.key] = task
        self._journal.tasks[task.id] = task
        self.queues.setdefault(task.fixed.pack, Queue()).push(task, at.wall)


def _tell_story(task: Task, report: Report, cause: str) -> None:
    since, until = report.started_at, report.ended_at
    start = (task.attempts + 1, report.lease_no, task.unit, task.boot, cause, since, until, report.text)
    task.story = (*task.story, start)
    task.story_data = b""
