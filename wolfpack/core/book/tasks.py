"""The book's task desk: submit, grant, renew, settle, cancel, expire.

A task is live while queued or leased and is found here; a final one stays until its end is durable, then only the
ledger knows it. Every change of state goes through `core.tasks.move`, so an illegal one raises and changes nothing.
One function, `settle`, takes every report, whoever brings it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import ceil

from wolfpack.core.book.clock import still_due
from wolfpack.core.book.journal import Journal
from wolfpack.core.book.queue import Queue
from wolfpack.core.book.state import Held, Instant, Options, Pack, ParkedTurn, Task, Unit, final_of_row, needs_from_json
from wolfpack.core.retry import Verdict, find_unpin_reason, judge, pinned_offer
from wolfpack.core.rows import TaskFixed, TaskRow
from wolfpack.core.tasks import TaskEvent, move
from wolfpack.core.wire import Final, Submit, SubmitItem
from wolfpack.errors import Malformed, QueueFull
from wolfpack.events import FirstLease, NeedUnmet, TaskDied, TaskPinned
from wolfpack.model import FINAL_STATES, Cause, Job, Needs, Readiness, Report, TaskState

DONE_IN_TIME = "The task was done before the cancel reached it."
ENDED_MOST = 20_000  # leases that ended their tasks, remembered to know repeats from ghosts
CANCEL_AGAIN_S = 1.0  # a cancel that had no effect yet is told again after so long

Ack = tuple[str, str, Final | None]  # what became of one item; its task; its end


@dataclass(slots=True)
class Keyed:
    """What a batch needs to know of tasks that only the ledger knows."""

    ids: dict[str, TaskRow] = field(default_factory=dict)
    keys: dict[str, TaskRow] = field(default_factory=dict)


class TaskDesk:
    def __init__(self, journal: Journal, packs: dict[str, Pack], units: dict[str, Unit], lease_s: float) -> None:
        self._journal = journal
        self._packs = packs
        self._units = units
        self._lease_s = lease_s
        self.live: dict[str, Task] = {}
        self.settled: dict[str, Task] = {}  # final, but not yet durable: the newest commit's
        self._settling: dict[str, Task] = {}  # and those whose commit is under way
        self._keys: dict[tuple[str, str], Task] = {}  # of tasks in the three tables above
        self.queues: dict[str, Queue] = {}
        self.clients: dict[str, int] = {}
        self.counts: dict[str, Counter[TaskState]] = {}
        self._joined: dict[str, set[str]] = {}  # task -> clients that watch it beside its own
        self._deadlines: list[tuple[float, str]] = []  # a heap; entries of tasks that ended are dropped when due
        self.functions: set[str] = set()
        self._ended: dict[int, None] = {}  # the leases that ended their tasks of late, oldest first
        # Node -> when a unit was last lost there, which, and the tasks it held.
        self._lost_on: dict[str, tuple[float, str, frozenset[str]]] = {}

    # --- finding ------------------------------------------------------------------------------------------------

    def find(self, task_id: str) -> Task | None:
        return self.live.get(task_id) or self.settled.get(task_id) or self._settling.get(task_id)

    def taken(self) -> None:
        """A commit was taken from the journal; its finals stay findable until it is durable."""
        self._settling, self.settled = self.settled, {}

    def committed(self) -> None:
        """The commit last taken is durable."""
        for task in self._settling.values():
            if task.fixed.key is not None:
                self._keys.pop((task.fixed.pack, task.fixed.key), None)
        self._settling = {}

    def unknown(self, submit: Submit) -> tuple[list[str], list[str]]:
        """The ids and keys of a batch that only the ledger can tell about: it must be asked before `submit`."""
        highest = self.clients.get(submit.client, -1)
        ids = [f"{submit.client}:{item.counter}" for item in submit.items if item.counter <= highest]
        keys = [item.key for item in submit.items if item.key is not None]
        return (
            [each for each in ids if self.find(each) is None],
            [each for each in keys if (submit.pack, each) not in self._keys],
        )

    def restore(self, task: Task, at: Instant) -> None:
        """Takes a live task from the ledger; its lease gets a fresh start."""
        self.live[task.fixed.id] = task
        if task.fixed.key is not None:
            self._keys[task.fixed.pack, task.fixed.key] = task
        since = max(task.fixed.submitted_at, task.started_at, task.ended_at)
        if task.options.deadline_at is not None and not task.ended_at:  # a person's replay sets the deadline aside
            due = still_due(task.options.deadline_at, task.fixed.submitted_at, at.wall)
            heappush(self._deadlines, (due, task.fixed.id))
        task.not_before = still_due(task.not_before, since, at.wall)
        queue = self.queues.setdefault(task.fixed.pack, Queue())
        if task.state is TaskState.QUEUED:
            queue.push(task, at.wall)
            return
        task.lane_at = queue.lane(task.lane)
        task.lane_at.leased += 1
        unit = self._units.get(task.unit)
        if unit is not None:
            unit.held[task.lease_no] = Held(task, at.mono)

    # --- submit -------------------------------------------------------------------------------------------------

    def submit(self, at: Instant, submit: Submit, known: Keyed) -> list[Ack]:
        """Queues a batch; what was submitted before is answered with its present state.

        Raises:
            QueueFull: the pack's `queue_max` leaves no room for the batch; nothing was queued.
            CallerError: an item says something that cannot be; nothing was queued.
        """
        _check(submit)
        pack = self._packs[submit.pack]
        queue = self.queues.setdefault(pack.name, Queue())
        counts = self.counts.setdefault(pack.name, Counter())
        if pack.spec.queue_max is not None and counts[TaskState.QUEUED] + len(submit.items) > pack.spec.queue_max:
            fresh = sum(1 for item in submit.items if self._is_new(submit, item, known))
            if fresh and counts[TaskState.QUEUED] + fresh > pack.spec.queue_max:
                raise QueueFull(
                    f"Pack {pack.name!r} has {counts[TaskState.QUEUED]} queued tasks and queue_max is "
                    f"{pack.spec.queue_max}; {fresh} more do not fit."
                )
        for fn, code in submit.functions:
            if fn not in self.functions:
                self.functions.add(fn)
                self._journal.functions.append((fn, code))
        highest = self.clients.get(submit.client, -1)
        needed: dict[str | None, tuple[Needs, str]] = {}
        acks: list[Ack] = []
        for item in submit.items:
            ack = None
            if item.key is not None or item.counter <= highest:
                ack = self._find_double(pack.name, submit.client, item, highest, known)
            if ack is None:
                if item.needs not in needed:
                    needs = pack.spec.needs if item.needs is None else needs_from_json(item.needs)
                    needed[item.needs] = (needs, self._unmet(at, pack, needs))
                ack = self._submit_new(at, pack, queue, submit.client, item, *needed[item.needs])
            acks.append(ack)
        if submit.items:
            self.clients[submit.client] = max(highest, max(item.counter for item in submit.items))
        return acks

    def _is_new(self, submit: Submit, item: SubmitItem, known: Keyed) -> bool:
        task_id = f"{submit.client}:{item.counter}"
        if self.find(task_id) or task_id in known.ids:
            return False
        return item.key is None or ((submit.pack, item.key) not in self._keys and item.key not in known.keys)

    def _find_double(self, pack: str, client: str, item: SubmitItem, highest: int, known: Keyed) -> Ack | None:
        """What became of a task that was submitted before, under its number or under its key."""
        if item.counter <= highest:
            task_id = f"{client}:{item.counter}"
            repeated = self.find(task_id)
            if repeated is not None:
                return _ack(repeated)
            if task_id in known.ids:
                return "final", task_id, final_of_row(known.ids[task_id])
        if item.key is None:
            return None
        double = self._keys.get((pack, item.key))
        if double is not None:
            if double.fixed.digest != item.digest:
                return _conflict(item.key, double.fixed.id)
            self.join(client, double.fixed.id)
            return _ack(double, joined=True)
        if item.key in known.keys:
            row = known.keys[item.key]
            if row.fixed.digest != item.digest:
                return _conflict(item.key, row.fixed.id)
            return "final", row.fixed.id, final_of_row(row)
        return None

    def _submit_new(
        self, at: Instant, pack: Pack, queue: Queue, client: str, item: SubmitItem, needs: Needs, unmet: str
    ) -> Ack:
        counter, fn, digest, args, blob, key, _, options, delay_s, deadline_s = item
        task_id = f"{client}:{counter}"
        if unmet and pack.spec.infeasible == "fail":
            return f"infeasible: {unmet}", task_id, None
        if deadline_s is not None:
            options = json.dumps(json.loads(options) | {"deadline_at": at.wall + deadline_s}, separators=(",", ":"))
        name = pack.spec.name
        fixed = TaskFixed._make((task_id, name, client, counter, key, fn, digest, args, blob, options, at.wall))
        task = Task(fixed, needs, at.wall + delay_s if delay_s > 0 else 0.0)
        self.live[task_id] = task
        if key is not None:
            self._keys[name, key] = task
        if task.options.deadline_at is not None:
            heappush(self._deadlines, (task.options.deadline_at, task_id))
        journal = self._journal
        journal.new_tasks.append(task)
        journal.tasks[task_id] = task
        self.counts[name][TaskState.QUEUED] += 1
        queue.push(task, at.wall)
        return f"unmet: {unmet}" if unmet else "queued", task_id, None

    def _unmet(self, at: Instant, pack: Pack, needs: Needs) -> str:
        """Why no card can ever serve these needs, with numbers; empty when one can. Said once a set of needs."""
        if needs in pack.unmet:
            return pack.unmet[needs]
        cards = [unit.card for unit in self._units.values() if unit.readiness is not Readiness.GONE]
        why = ""
        if not any(needs.fits(card.offer) for card in cards):
            lacking = [(needs.missing_from(card.offer), card.unit) for card in cards]
            best = min(lacking, key=lambda each: (len(each[0]), each[1]), default=((), ""))
            nearest = f" The nearest, {best[1]}, lacks {' and '.join(best[0])}." if best[1] else ""
            why = f"No unit can serve {needs}: none of the den's {len(cards)} cards offers it.{nearest}"
            self._journal.publish(at, NeedUnmet(pack=pack.name, needs=str(needs), reason=why))
        pack.unmet[needs] = why
        return why

    def join(self, client: str, task_id: str) -> Task | None:
        """Adds a live task to this client's watch."""
        task = self.find(task_id)
        if task is not None and task.fixed.client != client:
            self._joined.setdefault(task_id, set()).add(client)
        return task

    # --- granting -----------------------------------------------------------------------------------------------

    def grant(self, at: Instant, pack: Pack, turn: ParkedTurn) -> dict[str, list[Job]]:
        """Leases due tasks to the units that asked, the narrowest unit first and none above its share."""
        queue = self.queues.get(pack.name)
        if queue is None or (not queue.runnable and not queue.delayed):
            return {}
        queue.release_due(at.wall)
        budget = self._rate_budget(at, pack)
        granted: dict[str, list[Job]] = {}
        asking = [
            unit for (name, boot), ask in turn.asks.items() if ask > 0 and (unit := self._taker(pack, name, boot))
        ]
        asking.sort(key=lambda unit: (_width(unit), unit.card.unit))
        for position, unit in enumerate(asking):
            left = len(asking) - position
            share = min(turn.asks[unit.id, unit.boot], ceil(queue.runnable / left), budget)
            jobs = [self._lease(at, pack, unit, task, turn.seq) for task in self._next_for(pack, queue, unit, share)]
            if jobs:
                granted[unit.id] = jobs
                turn.asks[unit.id, unit.boot] -= len(jobs)
                budget -= len(jobs)
                if pack.spec.rate_per_s is not None:
                    pack.tokens -= len(jobs)
        if granted and not pack.first_lease:
            pack.first_lease = True
            self._journal.meta[led_meta(pack.name)] = str(pack.term)  # in one commit with the lease
            self._journal.publish(at, FirstLease(pack=pack.name, term=pack.term, unit=next(iter(granted))))
        return granted

    def _taker(self, pack: Pack, name: str, boot: int) -> Unit | None:
        """The unit, if it still is a member: it may have moved while the turn was parked."""
        unit = self._units.get(name)
        if unit is None or unit.boot != boot or unit.pack != pack.name or unit.readiness is not Readiness.AWAKE:
            return None
        return unit

    def _next_for(self, pack: Pack, queue: Queue, unit: Unit, share: int) -> Iterator[Task]:
        if share <= 0 or unit.holds_solo:
            return
        offer = pinned_offer(unit.card.offer, unit.card.nature, pack.spec.lendable)
        if queue.special:
            special = None if unit.held else queue.pop_special(lambda task: task.lane.fits(offer))
            if special is not None:
                if queue.solo_unit == unit.id:
                    queue.solo_unit = None
                yield special
                return
            if any(task.lane.fits(offer) for task in queue.special.values()):
                holder = self._units.get(queue.solo_unit or "")
                if holder is None or holder.pack != pack.name:
                    queue.solo_unit = unit.id
                if queue.solo_unit == unit.id:
                    return  # it runs dry, to take the solo task alone
        yield from queue.pop(offer, share)

    def _rate_budget(self, at: Instant, pack: Pack) -> int:
        """A token bucket of one second's starts."""
        rate = pack.spec.rate_per_s
        if rate is None:
            return 1 << 30
        pack.tokens = min(max(rate, 1.0), pack.tokens + rate * (at.mono - pack.tokens_mono))
        pack.tokens_mono = at.mono
        return int(pack.tokens)

    def _lease(self, at: Instant, pack: Pack, unit: Unit, task: Task, seq: int) -> Job:
        task.state = move(task.state, TaskEvent.GRANT)
        journal = self._journal
        journal.last_lease_no += 1
        task.lease_no = lease_no = journal.last_lease_no
        task.term, task.turn_seq = pack.term, seq
        task.unit, task.boot = unit.card.unit, unit.boot
        if task.cause or task.not_before:
            task.cause, task.text, task.not_before = "", "", 0.0
        unit.held[lease_no] = Held(task, at.mono)
        counts = self.counts[pack.name]
        counts[TaskState.QUEUED] -= 1
        counts[TaskState.LEASED] += 1
        task.lane_at.leased += 1
        journal.tasks[task.fixed.id] = task
        return job_of(task)

    # --- renewing and settling ----------------------------------------------------------------------------------

    def renew(self, at: Instant, unit: Unit, held: Iterable[int]) -> list[tuple[int, bool, str]]:
        """Renews the leases a unit listed; says which of them are to be cancelled, and was not told of late."""
        marked: list[Held] = []
        void: list[tuple[int, bool, str]] = []
        for lease_no in held:
            lease = unit.held.get(lease_no)
            if lease is None:  # void: it expired while its unit was frozen or cut off
                void.append((lease_no, True, Cause.EVICTED.value))
                continue
            lease.renewed_mono = at.mono
            lease.listed = True
            if lease.task.cancel:
                marked.append(lease)
        return void + self._tell(at, marked) if marked else void

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
            task.not_before = at.wall + verdict.not_before_delay_s if verdict.not_before_delay_s > 0 else 0.0
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

    def cancels_of(self, at: Instant, unit: Unit) -> list[tuple[int, bool, str]]:
        return self._tell(at, (held for held in unit.held.values() if held.task.cancel))

    def _tell(self, at: Instant, leases: Iterable[Held]) -> list[tuple[int, bool, str]]:
        orders = []
        for held in leases:
            if at.mono - held.told_mono >= CANCEL_AGAIN_S:
                held.told_mono = at.mono
                orders.append(_cancel_order(held.task))
        return orders


def _tell_story(task: Task, report: Report, cause: str) -> None:
    since, until = report.started_at, report.ended_at
    start = (task.attempts + 1, report.lease_no, task.unit, task.boot, cause, since, until, report.text)
    task.story = (*task.story, start)
    task.story_data = b""


def _check(submit: Submit) -> None:
    """All or nothing: what an item says is read before any of them is queued."""
    try:
        for text in {item.options for item in submit.items}:
            Options.read(text)
        for text in {item.needs for item in submit.items if item.needs is not None}:
            needs_from_json(text)
    except ValueError as exc:
        raise Malformed(f"A task of client {submit.client} cannot be read: {exc}") from exc


def led_meta(pack: str) -> str:
    """Under this name the ledger keeps the latest term of a pack that gave a lease."""
    return f"led:{pack}"


def job_of(task: Task) -> Job:
    fixed, options = task.fixed, task.options
    return Job._make((
        task.lease_no, fixed.id, fixed.fn, fixed.args, fixed.blob, fixed.key or "", task.attempts + 1,
        options.timeout_s, options.is_async, task.term,
    ))  # fmt: skip


def _cancel_order(task: Task) -> tuple[int, bool, str]:
    cause = Cause.EXPIRED if task.cause == Cause.EXPIRED else Cause.CANCELLED
    return (task.lease_no, task.kill or cause is Cause.EXPIRED, cause.value)


def _width(unit: Unit) -> int:
    return len(unit.card.offer.tags) + len(unit.card.offer.measures)


def _ack(task: Task, *, joined: bool = False) -> Ack:
    if task.state in FINAL_STATES:
        return "final", task.fixed.id, task.final()
    return "joined" if joined else "queued", task.fixed.id, None


def _conflict(key: str, task_id: str) -> Ack:
    return f"conflict: the key {key!r} was used by task {task_id} with other code or other arguments", task_id, None
