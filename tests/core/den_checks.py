"""The promises that the world looks after by itself: DESIGN's invariants I1 to I5, I7, I8 and I13."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from wolfpack.core.book import Book
from wolfpack.core.rows import Writes
from wolfpack.core.wire import Final, Turn, TurnReply
from wolfpack.model import FINAL_STATES, Readiness, TaskState

if TYPE_CHECKING:
    from tests.core.den_harness import World

SMALL = 60  # a book of so few tasks is looked at often


class Checks:
    def __init__(self, world: World) -> None:
        self._world = world
        self._writers: dict[tuple[str, int], tuple[str, int]] = {}
        self._newest: dict[str, int] = {}
        self._granted: dict[tuple[str, int], tuple[str, int]] = {}
        self._leases: dict[int, str] = {}
        self._holders: dict[int, tuple[str, int]] = {}
        self._done: dict[str, int] = {}  # task -> settle number
        self._counts: dict[str, Counter[TaskState]] = {}
        self._commits = 0

    def on_accepted_turn(self, turn: Turn) -> None:
        who = (turn.unit, turn.boot)
        assert self._writers.setdefault((turn.pack, turn.term), who) == who, "I1: one accepted writer per term"
        assert turn.term >= self._newest.get(turn.pack, 0), "I2, I3: accepted terms never decrease"
        self._newest[turn.pack] = turn.term

    def on_take(self, book: Book) -> None:
        """A commit takes the book as it stands now."""
        self._counts = {pack: Counter(tally) for pack, tally in book.tasks.counts.items()}
        self._commits += 1
        if self._commits % (5 if len(book.tasks.live) < SMALL else 25) == 0:
            check_book(book)

    def on_commit(self, writes: Writes) -> None:
        disk = self._world.disk
        for pack in writes.packs:
            if pack.alpha is not None:
                who = (pack.alpha, pack.alpha_boot)
                known = self._granted.setdefault((pack.pack, pack.term), who)
                assert known == who, f"I4: term {pack.term} of {pack.pack} went to {known} and {who}"
        for row in writes.changed_tasks:
            if row.lease_no:
                task_id = self._leases.setdefault(row.lease_no, row.id)
                assert task_id == row.id, f"I7: lease {row.lease_no} was granted for {task_id} and {row.id}"
            if row.id in self._done:
                raise AssertionError(f"I5: {row.id} was done at {self._done[row.id]} and is {row.state} now")
            if row.state == TaskState.DONE:
                self._done[row.id] = row.settle_no
            assert (row.settle_no > 0) == (row.state in FINAL_STATES), f"{row.id} is {row.state} at {row.settle_no}"
        if self._commits % (5 if len(disk.tasks) < SMALL else 25) == 0:
            ledger: dict[str, Counter[TaskState]] = {}
            for count in self._world.ledger.counts():
                ledger.setdefault(count.pack, Counter())[TaskState(count.state)] = count.tasks
            for pack_name in {*ledger, *self._counts}:
                book = +self._counts.get(pack_name, Counter())
                assert +ledger.get(pack_name, Counter()) == book, f"I13: {pack_name}: {ledger.get(pack_name)} != {book}"

    def on_leases(self, pack: str, reply: TurnReply) -> None:
        for unit, boot, jobs in reply.leases:
            for job in jobs:
                known = self._holders.setdefault(job.lease_no, (unit, boot))
                assert known == (unit, boot), f"I7: lease {job.lease_no} left for {known} and {(unit, boot)}"
                assert self._world.disk.lease_no >= job.lease_no, "a lease left before it was durable"

    def on_final(self, client: str, final: Final) -> None:
        row = self._world.disk.tasks[final.task_id].mutable
        assert final.settle_no <= row.settle_no or row.state not in FINAL_STATES, "an end left before it was durable"
        if row.state == TaskState.DONE:
            assert row.settle_no == final.settle_no, f"{client} got another end of {final.task_id}"

    def at_rest(self, world: World) -> None:
        check_book(world.book)
        for (unit, boot), process in world.processes.items():
            if process.brain is not None and not process.dead:
                row = world.book.units[unit]
                assert boot == row.boot or row.readiness is not Readiness.AWAKE, f"I8: two boots of {unit} live"


def check_book(book: Book) -> None:
    """The book agrees with itself: places of tasks, leases of units, counts, members."""
    tallies: dict[str, Counter[Any]] = {}
    leased: dict[tuple[str, Any], int] = {}
    for task in [*book.tasks.live.values(), *book.tasks.settled.values()]:
        tallies.setdefault(task.fixed.pack, Counter())[task.state] += 1
        if task.state is TaskState.LEASED:
            unit = book.units[task.unit]
            assert unit.held[task.lease_no].task is task, f"{task.id} is leased to {task.unit}, which does not hold it"
            assert unit.boot == task.boot, f"{task.id} is leased to an old boot of {task.unit}"
            assert unit.readiness in (Readiness.AWAKE, Readiness.DRAINING), f"{task.unit} holds leases and sleeps"
            assert unit.pack == task.fixed.pack, f"{task.unit} holds {task.id} and is no member of its pack"
            leased[task.fixed.pack, task.lane] = leased.get((task.fixed.pack, task.lane), 0) + 1
            assert not task.place
        elif task.state is TaskState.QUEUED:
            assert task.place, f"{task.id} is queued nowhere"
    for unit in book.units.values():
        for lease_no, held in unit.held.items():
            assert held.task.lease_no == lease_no
            assert held.task.state is TaskState.LEASED, f"{unit.id} holds {held.task.id}, which is {held.task.state}"
        for pack, members in book.desk.members.items():
            assert (unit.id in members) == (unit.pack == pack), f"I8: {unit.id} is in {unit.pack} and listed in {pack}"
        if unit.readiness in (Readiness.ASLEEP, Readiness.GONE, Readiness.QUARANTINED):
            assert unit.pack is None, f"{unit.id} is {unit.readiness} and a member of {unit.pack}"
    for pack, queue in book.tasks.queues.items():
        tally = tallies.get(pack, Counter())
        for state in (TaskState.QUEUED, TaskState.LEASED):
            assert book.tasks.counts[pack][state] == tally[state], f"I13: counts of {pack}: {book.tasks.counts[pack]}"
        assert all(number >= 0 for number in book.tasks.counts[pack].values())
        assert sum(1 for _ in queue.tasks()) == queue.runnable + queue.delayed == tally[TaskState.QUEUED]
        for needs, lane in queue.lanes.items():
            assert lane.leased == leased.get((pack, needs), 0), f"{lane.leased} counted as leased for {needs} in {pack}"
            assert lane.queued == sum(1 for entry in lane.heap if entry[1] == entry[2].queued_no)
