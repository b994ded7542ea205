"""Where tasks come in: the tables of those that are live, and submit. The task desk's first layer.

A task is live while queued or leased and is found here; a final one stays until its end is durable, then only the
ledger knows it. What was submitted before, under its number or under its key, is answered with what became of it.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from heapq import heappush

from wolfpack.core.book.clock import still_due
from wolfpack.core.book.journal import Journal
from wolfpack.core.book.queue import Queue
from wolfpack.core.book.state import Held, Instant, Options, Pack, Task, Unit, final_of_row, needs_from_json
from wolfpack.core.rows import TaskFixed, TaskRow
from wolfpack.core.wire import Final, Submit, SubmitItem
from wolfpack.errors import Malformed, QueueFull
from wolfpack.events import NeedUnmet
from wolfpack.model import FINAL_STATES, Needs, Readiness, TaskState

Ack = tuple[str, str, Final | None]  # what became of one item; its task; its end


@dataclass(slots=True)
class Keyed:
    """What a batch needs to know of tasks that only the ledger knows."""

    ids: dict[str, TaskRow] = field(default_factory=dict)
    keys: dict[str, TaskRow] = field(default_factory=dict)


class Intake:
    """What the desk knows of every live task. See `TaskDesk`."""

    def __init__(self, journal: Journal, packs: dict[str, Pack], units: dict[str, Unit]) -> None:
        self._journal = journal
        self._packs = packs
        self._units = units
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


def _check(submit: Submit) -> None:
    """All or nothing: what an item says is read before any of them is queued."""
    try:
        for text in {item.options for item in submit.items}:
            Options.read(text)
        for text in {item.needs for item in submit.items if item.needs is not None}:
            needs_from_json(text)
    except ValueError as exc:
        raise Malformed(f"A task of client {submit.client} cannot be read: {exc}") from exc


def _ack(task: Task, *, joined: bool = False) -> Ack:
    if task.state in FINAL_STATES:
        return "final", task.fixed.id, task.final()
    return "joined" if joined else "queued", task.fixed.id, None


def _conflict(key: str, task_id: str) -> Ack:
    return f"conflict: the key {key!r} was used by task {task_id} with other code or other arguments", task_id, None
