"""Leases: which due task goes to which unit, and for how long it stays there. The task desk's second layer.

A lease is given to a member that asked, is renewed by being listed, and carries a number that is never used again. What
a unit must be told of its leases, above all that one is to be cancelled, is said when it lists them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import ceil

from wolfpack.core.book.intake import Intake
from wolfpack.core.book.queue import Queue
from wolfpack.core.book.state import Held, Instant, Pack, ParkedTurn, Task, Unit
from wolfpack.core.retry import pinned_offer
from wolfpack.core.tasks import TaskEvent, move
from wolfpack.events import FirstLease
from wolfpack.model import Cause, Job, Readiness, TaskState

CANCEL_AGAIN_S = 1.0  # a cancel that had no effect yet is told again after so long


class Granting(Intake):
    """Gives and renews leases. See `TaskDesk`."""

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
            task.cause, task.text, task.not_before, task.started_at = "", "", 0.0, 0.0
        unit.held[lease_no] = Held(task, at.mono)
        counts = self.counts[pack.name]
        counts[TaskState.QUEUED] -= 1
        counts[TaskState.LEASED] += 1
        task.lane_at.leased += 1
        journal.tasks[task.fixed.id] = task
        return job_of(task)

    # --- renewing ----------------------------------------------------------------------------------------------------

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

    def cancels_of(self, at: Instant, unit: Unit) -> list[tuple[int, bool, str]]:
        return self._tell(at, (held for held in unit.held.values() if held.task.cancel))

    def _tell(self, at: Instant, leases: Iterable[Held]) -> list[tuple[int, bool, str]]:
        orders = []
        for held in leases:
            if at.mono - held.told_mono >= CANCEL_AGAIN_S:
                held.told_mono = at.mono
                orders.append(_cancel_order(held.task))
        return orders


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
