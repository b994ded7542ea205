"""The queued tasks of one pack: a heap for each set of needs (a sub-pack), and one for what is not due yet.

Heap entries are never searched: an entry whose number is no longer its task's is dead and dropped when it surfaces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush

from wolfpack.core.book.state import Lane, Task
from wolfpack.model import Needs, Offer


class Queue:
    def __init__(self) -> None:
        self.lanes: dict[Needs, Lane] = {}
        self._delayed: list[tuple[float, int, Task]] = []
        self.delayed = 0
        # Tasks to be leased alone: few, looked at before the lanes.
        self.special: dict[str, Task] = {}
        self.solo_unit: str | None = None  # takes nothing new until it is empty, to serve a solo task
        self._no = 0
        self._last: Lane | None = None  # the lane of the task queued last: the next one is often its like

    @property
    def runnable(self) -> int:
        return sum(lane.queued for lane in self.lanes.values()) + len(self.special)

    def lane(self, needs: Needs) -> Lane:
        lane = self.lanes.get(needs)
        if lane is None:
            lane = self.lanes[needs] = Lane(needs)
        return lane

    def push(self, task: Task, wall: float) -> None:
        """Queues a task, for now or for its `not_before`."""
        self._no += 1
        task.queued_no = self._no
        needs = task.lane
        lane = self._last if self._last is not None and self._last.needs is needs else self.lane(needs)
        self._last = task.lane_at = lane
        if task.not_before > wall:
            task.place = "delayed"
            heappush(self._delayed, (task.not_before, self._no, task))
            self.delayed += 1
        elif task.solo:
            task.place = "special"
            self.special[task.fixed.id] = task
        else:
            task.place = "lane"
            lane.queued += 1
            heappush(lane.heap, (task.order, self._no, task))

    def discard(self, task: Task) -> None:
        """Takes a queued task out; its entry dies where it lies."""
        match task.place:
            case "special":
                del self.special[task.fixed.id]
            case "delayed":
                self.delayed -= 1
            case "lane":
                task.lane_at.queued -= 1
        _unplace(task)

    def release_due(self, wall: float) -> int:
        """Makes delayed tasks runnable whose time has come, and says how many."""
        due = 0
        while self._delayed and self._delayed[0][0] <= wall:
            _, number, task = heappop(self._delayed)
            if number == task.queued_no:
                self.delayed -= 1
                task.not_before = 0.0
                self.push(task, wall)
                due += 1
        return due

    def pop(self, offer: Offer, most: int) -> Iterator[Task]:
        """Takes up to `most` tasks this offer can serve, in order over all lanes that fit."""
        lanes = [lane for lane in self.lanes.values() if lane.queued and lane.needs.fits(offer)]
        while most > 0 and lanes:
            for lane in lanes:
                _drop_dead(lane)
            lanes = [lane for lane in lanes if lane.heap]
            if not lanes:
                return
            lane = lanes[0] if len(lanes) == 1 else min(lanes, key=lambda each: each.heap[0][:2])
            _, number, task = heappop(lane.heap)
            if number != task.queued_no:
                continue
            lane.queued -= 1
            _unplace(task)
            most -= 1
            yield task

    def pop_special(self, fits: Callable[[Task], bool]) -> Task | None:
        for task in sorted(self.special.values(), key=lambda each: each.order):
            if fits(task):
                del self.special[task.fixed.id]
                _unplace(task)
                return task
        return None

    def heads(self) -> Iterator[Task]:
        """The first runnable task of each lane, and the special ones."""
        for lane in self.lanes.values():
            _drop_dead(lane)
            if lane.heap:
                yield lane.heap[0][2]
        yield from self.special.values()

    def oldest_wait_s(self, needs: Needs, wall: float) -> float:
        lane = self.lane(needs)
        _drop_dead(lane)
        return max(0.0, wall - lane.heap[0][2].fixed.submitted_at) if lane.heap else 0.0

    def place_of(self, task: Task) -> int:
        """How many runnable tasks with the same needs go before this one."""
        ahead = (entry for entry in task.lane_at.heap if entry[1] == entry[2].queued_no)
        return sum(1 for entry in ahead if entry[:2] < (task.order, task.queued_no))

    def tasks(self) -> Iterator[Task]:
        """Every queued task, in no order."""
        for lane in self.lanes.values():
            yield from (task for _, number, task in lane.heap if number == task.queued_no)
        yield from (task for _, number, task in self._delayed if number == task.queued_no)
        yield from self.special.values()


def _unplace(task: Task) -> None:
    task.place = ""
    task.queued_no = 0


def _drop_dead(lane: Lane) -> None:
    heap = lane.heap
    while heap and heap[0][1] != heap[0][2].queued_no:
        heappop(heap)
