"""Makes the plan of a run that broke a promise small: fewer faults, fewer tasks, less time, the same promise broken.

Delta debugging (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002) over the list of
faults and batches together: parts of it are left out, first large ones, then single items. Then batches lose tasks.
Each trial is a run of its own; chance is drawn by name, so what is left out moves nobody else's dice.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

from wolfpack.sim.den_run import DenResult, play
from wolfpack.sim.faults import Fault
from wolfpack.sim.kernel import US
from wolfpack.sim.plan import Batch, DenPlan, Draft

Item = TypeVar("Item")
BREATH_S = 1.0  # the faults stop so long after the last of them


def shrink(plan: DenPlan, result: DenResult, *, within_s: float = 60.0, trials: int = 200) -> tuple[DenPlan, DenResult]:
    """The smallest plan found, and what came of it.

    Args:
        plan: one that broke a promise.
        result: what came of it; its `violation` says which promise.
        within_s: real seconds after which the smallest plan so far will do.
        trials: so many runs will do.

    Raises:
        ValueError: no promise was broken.
    """
    if result.violation is None:
        raise ValueError("There is nothing to shrink: this run kept all promises.")
    return _Shrinking(plan, result, result.violation.promise, within_s, trials).run()


class _Shrinking:
    def __init__(self, plan: DenPlan, result: DenResult, promise: str, within_s: float, trials: int) -> None:
        self.plan, self.result = plan, result
        self._promise = promise
        self._end = time.monotonic() + within_s
        self._trials = trials  # left

    def run(self) -> tuple[DenPlan, DenResult]:
        self._end_early()
        self._leave_out_items()
        self._leave_out_tasks()
        self._end_early()
        return self.plan, self.result

    def _try(self, plan: DenPlan) -> bool:
        """Whether this plan breaks the same promise; if so it is the one to go on with."""
        if self._trials <= 0 or time.monotonic() > self._end:
            return False
        self._trials -= 1
        result = play(plan)
        if result.violation is None or result.violation.promise != self._promise:
            return False
        self.plan, self.result = plan, result
        return True

    def _end_early(self) -> None:
        """What comes after the violation is not needed, nor is the time after the last item."""
        assert self.result.violation is not None
        at_us = round(self.result.violation.at_s * US)
        faults = tuple(fault for fault in self.plan.faults if fault.at_us <= at_us)
        batches = tuple(batch for batch in self.plan.batches if batch.at_us <= at_us)
        last_us = max([*(fault.at_us + fault.for_us for fault in faults), *(batch.at_us for batch in batches), 0])
        seconds = min(self.plan.seconds, last_us / US + BREATH_S)
        plan = replace(self.plan, faults=faults, batches=batches, seconds=seconds)
        if plan != self.plan:
            self._try(plan)

    def _leave_out_items(self) -> None:
        items: list[Fault | Batch] = [*self.plan.faults, *self.plan.batches]
        smallest(items, self._fails_with_items)

    def _fails_with_items(self, items: list[Fault | Batch]) -> bool:
        faults = tuple(item for item in items if isinstance(item, Fault))
        batches = tuple(item for item in items if isinstance(item, Batch))
        return self._try(replace(self.plan, faults=faults, batches=batches))

    def _leave_out_tasks(self) -> None:
        for no in range(len(self.plan.batches)):
            smallest(list(self.plan.batches[no].tasks), partial(self._fails_with_tasks, no))

    def _fails_with_tasks(self, no: int, tasks: list[Draft]) -> bool:
        batches = list(self.plan.batches)
        batches[no] = replace(batches[no], tasks=tuple(tasks))
        return bool(tasks) and self._try(replace(self.plan, batches=tuple(batches)))


def smallest(items: list[Item], fails: Callable[[list[Item]], bool]) -> list[Item]:
    """A part of these items that still `fails`, of which no single one (found in time) can be left out: ddmin."""
    parts = 2
    while items:
        size = max(1, len(items) // parts)
        for start in range(0, len(items), size):
            rest = items[:start] + items[start + size :]
            if fails(rest):
                items, parts = rest, max(2, parts - 1)
                break
        else:
            if size == 1:
                break
            parts = min(len(items), 2 * parts)
    return items
