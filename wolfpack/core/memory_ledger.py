"""A ledger in memory: the same promises as the durable ones, for tests and for the simulator.

`MemoryDisk` is what survives: it outlives `close()`, and a keeper that was killed. A `MemoryLedger` is one keeper's
hold on it. `kill()` is what the death of a process does to the hold: the lock is gone and nothing else is tidied up;
the killed one may still try to commit, and is refused as soon as a later one has opened. `fail_next_commit` is a full
disk. A commit builds its changes on the side and shows them in one step, so a failed one leaves no trace.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from wolfpack.core.rows import (
    Count,
    EventRow,
    GhostRow,
    Loaded,
    PackRow,
    TaskFixed,
    TaskRow,
    UnitRow,
    Writes,
)
from wolfpack.errors import KeeperSuperseded, LedgerError, LedgerHeld, LedgerMissing
from wolfpack.model import FINAL_STATES

# How many ghosts a ledger keeps; all of them are counted.
GHOSTS_KEPT = 1000


def newest_first(rows: Iterable[TaskRow], limit: int) -> list[TaskRow]:
    """The order of `Ledger.find_states`: final tasks by their settle number, live ones by the time of their submit."""
    key = [(row.mutable.settle_no, row.fixed.submitted_at, row.fixed.client, row.fixed.counter, row) for row in rows]
    key.sort(key=itemgetter(0, 1, 2, 3), reverse=True)
    return [entry[4] for entry in key[: max(limit, 0)]]


@dataclass(slots=True)
class MemoryDisk:
    """Rows that outlive their keeper. One disk may be opened by many ledgers, one after the other."""

    exists: bool = False
    holder: MemoryLedger | None = None
    epoch: int = 0
    commit_no: int = 0
    lease_no: int = 0
    settle_no: int = 0
    event_no: int = 0
    ghosts_counted: int = 0
    tasks: dict[str, TaskRow] = field(default_factory=dict)
    keys: dict[tuple[str, str], str] = field(default_factory=dict)
    settled: dict[str, list[tuple[int, str]]] = field(default_factory=dict)  # client -> (settle_no, id), rising
    clients: dict[str, int] = field(default_factory=dict)
    functions: dict[str, bytes] = field(default_factory=dict)
    units: dict[str, UnitRow] = field(default_factory=dict)
    packs: dict[str, PackRow] = field(default_factory=dict)
    events: list[EventRow] = field(default_factory=list)
    ghosts: list[GhostRow] = field(default_factory=list)
    meta: dict[str, str] = field(default_factory=dict)


class MemoryLedger:
    """One keeper's hold on a `MemoryDisk`; implements `Ledger`.

    Args:
        disk: the rows to open; without one a new, empty disk that nobody else knows.
    """

    def __init__(self, disk: MemoryDisk | None = None) -> None:
        self.disk = disk if disk is not None else MemoryDisk()
        self._epoch = 0  # 0: not open
        self._failure: LedgerError | None = None

    def fail_next_commit(self, error: LedgerError | None = None) -> None:
        """The next commit raises this and changes nothing; the one after it is made."""
        self._failure = error or LedgerError("The disk of the ledger is full. Make room; nothing was written.")

    def kill(self) -> None:
        """What the death of its process does: the lock is free, nothing else happened."""
        if self.disk.holder is self:
            self.disk.holder = None

    def open(self, *, create: bool) -> Loaded:
        disk = self.disk
        if disk.holder is not None:
            raise LedgerHeld("The ledger in memory is held by another keeper. Close that one first.")
        if not disk.exists and not create:
            raise LedgerMissing("There is no ledger in memory, and only opening a den may create one.")
        disk.exists, disk.holder = True, self
        disk.epoch += 1
        self._epoch = disk.epoch
        return Loaded(
            epoch=disk.epoch,
            commit_no=disk.commit_no,
            meta=dict(disk.meta),
            packs=list(disk.packs.values()),
            units=list(disk.units.values()),
            live=[row for row in disk.tasks.values() if row.mutable.state not in FINAL_STATES],
            counts=self.counts(),
            clients=dict(disk.clients),
            last_lease_no=disk.lease_no,
            last_settle_no=disk.settle_no,
            last_event_no=disk.event_no,
            ghosts=disk.ghosts_counted,
        )

    def commit(self, writes: Writes) -> int:
        disk = self._opened()
        if self._epoch != disk.epoch:
            raise KeeperSuperseded(f"This keeper has epoch {self._epoch}, the ledger {disk.epoch}: it must end.")
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        changed = self._checked(writes)
        for fixed in writes.new_tasks:
            disk.clients[fixed.client] = max(fixed.counter, disk.clients.get(fixed.client, -1))
            if fixed.key is not None:
                disk.keys[fixed.pack, fixed.key] = fixed.id
        for row in changed:
            self._put(row)
        for task_id in writes.removed_tasks:
            row = disk.tasks.pop(task_id)
            self._forget_settle(row)
            if row.fixed.key is not None:
                del disk.keys[row.fixed.pack, row.fixed.key]
        for fn, code in writes.functions:
            disk.functions.setdefault(fn, code)
        disk.units.update((unit.unit, unit) for unit in writes.units)
        disk.packs.update((pack.pack, pack) for pack in writes.packs)
        for name in writes.removed_packs:
            disk.packs.pop(name, None)
        disk.events += writes.events
        disk.event_no = max([disk.event_no, *(event.number for event in writes.events)])
        disk.ghosts_counted += len(writes.ghosts)
        disk.ghosts = [*disk.ghosts, *writes.ghosts][-GHOSTS_KEPT:]
        disk.meta.update(writes.meta)
        disk.commit_no += 1
        return disk.commit_no

    def find_tasks(self, ids: Sequence[str]) -> list[TaskRow]:
        tasks = self._opened().tasks
        return [tasks[task_id] for task_id in ids if task_id in tasks]

    def find_keys(self, pack: str, keys: Sequence[str]) -> list[TaskRow]:
        disk = self._opened()
        return [disk.tasks[disk.keys[pack, key]] for key in keys if (pack, key) in disk.keys]

    def find_states(self, pack: str | None, state: str, limit: int) -> list[TaskRow]:
        rows = self._opened().tasks.values()
        fitting = (row for row in rows if row.mutable.state == state and pack in (None, row.fixed.pack))
        return newest_first(fitting, limit)

    def settled_since(self, client: str, settle_no: int, limit: int) -> list[TaskRow]:
        disk = self._opened()
        settled = disk.settled.get(client, [])
        start = bisect_right(settled, settle_no, key=itemgetter(0))
        return [disk.tasks[task_id] for _, task_id in settled[start : start + max(limit, 0)]]

    def events_since(self, number: int, limit: int) -> list[EventRow]:
        events = self._opened().events
        start = bisect_right(events, number, key=itemgetter(0))
        return events[start : start + max(limit, 0)]

    def ghosts(self, limit: int) -> list[GhostRow]:
        """The newest first."""
        return self._opened().ghosts[::-1][: max(limit, 0)]

    def function(self, fn: str) -> bytes | None:
        return self._opened().functions.get(fn)

    def counts(self) -> list[Count]:
        tally = Counter((row.fixed.pack, str(row.mutable.state)) for row in self._opened().tasks.values())
        return [Count(pack, state, tasks) for (pack, state), tasks in sorted(tally.items())]

    def close(self) -> None:
        self.kill()
        self._epoch = 0

    def _opened(self) -> MemoryDisk:
        if not self._epoch:
            raise LedgerError("The ledger in memory is not open.")
        return self.disk

    def _checked(self, writes: Writes) -> list[TaskRow]:
        """The rows that the commit leaves behind.

        Raises:
            LedgerError: the writes contradict the rows; nothing was changed.
        """
        disk = self.disk
        fresh: dict[str, TaskFixed] = {}
        keys: set[tuple[str, str]] = set()
        for fixed in writes.new_tasks:
            if fixed.id in disk.tasks or fixed.id in fresh:
                raise _contradiction(f"the task {fixed.id} is in the ledger already")
            fresh[fixed.id] = fixed
            if fixed.key is not None:
                if (fixed.pack, fixed.key) in disk.keys or (fixed.pack, fixed.key) in keys:
                    raise _contradiction(f"the key {fixed.key!r} of pack {fixed.pack} is taken")
                keys.add((fixed.pack, fixed.key))
        rows = []
        for mutable in writes.changed_tasks:
            known = disk.tasks.get(mutable.id)
            fixed_part = fresh.pop(mutable.id, None) or (known.fixed if known else None)
            if fixed_part is None:
                raise _contradiction(f"the task {mutable.id} is not in the ledger")
            rows.append(TaskRow(fixed_part, mutable))
        if fresh:
            raise _contradiction(f"the new task {next(iter(fresh))} comes without its state")
        for task_id in writes.removed_tasks:
            if task_id not in disk.tasks:
                raise _contradiction(f"the task {task_id} is not in the ledger")
        last = disk.event_no
        for event in writes.events:
            if event.number <= last:
                raise _contradiction(f"the event number {event.number} was given before")
            last = event.number
        return rows

    def _put(self, row: TaskRow) -> None:
        disk, mutable = self.disk, row.mutable
        before = disk.tasks.get(mutable.id)
        if before is not None:
            self._forget_settle(before)
        disk.tasks[mutable.id] = row
        disk.lease_no = max(disk.lease_no, mutable.lease_no)
        disk.settle_no = max(disk.settle_no, mutable.settle_no)
        if mutable.settle_no:
            insort(disk.settled.setdefault(row.fixed.client, []), (mutable.settle_no, mutable.id))

    def _forget_settle(self, row: TaskRow) -> None:
        if row.mutable.settle_no:
            self.disk.settled[row.fixed.client].remove((row.mutable.settle_no, row.mutable.id))


def _contradiction(what: str) -> LedgerError:
    return LedgerError(f"Nothing was written: {what}. This is a bug of Wolf Pack; please report it.")
