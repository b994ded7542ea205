"""The keeper: the actor that alone writes the ledger and grants terms. Here are the calls that others make.

A call changes the book (`core/book`) at once, waits for the commit that holds the change, and only then answers; how
that works, and how a keeper is born and ends, stands in `keeping.py`. Whatever comes in is checked for its shape first
(`core/shapes`): what is no message is refused, and nothing dies of it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

import ray

from wolfpack.core import shapes
from wolfpack.core.book import Book
from wolfpack.core.book.intake import Keyed
from wolfpack.core.book.state import Task, final_of_row
from wolfpack.core.book.units import LIVING
from wolfpack.core.rows import Ledger, TaskRow
from wolfpack.core.wire import Where, pack, read_claim, read_keeper_report, read_move, read_submit, read_turn
from wolfpack.den.doors import door
from wolfpack.den.keeping import Keeping
from wolfpack.den.names import MANY_CALLS
from wolfpack.errors import CallerError, Deposed, LedgerUnavailable, Malformed, unknown_name
from wolfpack.events import PlanFailed
from wolfpack.model import Needs, PackSpec, TaskState

log = logging.getLogger("wolfpack.keeper")

PARK_S = 5.0  # a watch without news is answered after so long
ROSTER_MOST = 64
ORDERS = ("wake", "sleep", "release", "recall")


class Keeper(Keeping):
    """Every public coroutine is a call that clients and units make through Ray."""

    # --- calls of units -----------------------------------------------------------------------------------------

    @door
    async def hello(self, unit: str, boot: int, pid: int, node: str) -> bytes:
        shapes.check_names("a unit or node", unit, node)
        shapes.check_whole("a boot or pid", boot, pid)
        book = await self._ready()
        where = book.hello(self._now(), unit, boot, pid, node)
        if not where.end:
            self._hold(unit, boot)
        return await self._placed(where)

    async def roster(self) -> list[tuple[str, int]]:
        """Awake units with their boots, to begin to gossip with; of many so many as are enough for it, at random."""
        book = await self._ready()
        awake = [(unit.id, unit.boot) for unit in book.units.values() if unit.readiness in LIVING]
        return random.sample(awake, min(ROSTER_MOST, len(awake)))

    async def _placed(self, where: Where) -> bytes:
        commit_no = await self._durable()
        return pack(where._replace(commit_no=commit_no))

    @door
    async def birth_failed(self, unit: str, boot: int, reason: str) -> None:
        shapes.check_names("a unit", unit)
        shapes.check_whole("a boot", boot)
        reason = str(reason)[:4000]
        book = await self._ready()
        book.desk.birth_failed(self._now(), unit, boot, reason)
        await self._durable()

    @door
    async def claim(self, data: bytes) -> bytes:
        claim = shapes.check_claim(read_claim(data))
        book = await self._ready(claim.seen_commit)
        verdict = book.claim(self._now(), claim)
        commit_no = await self._durable()
        return pack(verdict._replace(commit_no=commit_no))

    @door
    async def release(self, pack_name: str, term: int, unit: str, boot: int) -> bool:
        shapes.check_names("a pack or unit", pack_name, unit)
        shapes.check_whole("a term or boot", term, boot)
        book = await self._ready()
        released = book.release(self._now(), pack_name, term, unit, boot)
        await self._durable()
        return released

    @door
    async def turn(self, data: bytes) -> bytes:
        """An alpha's turn. Raises `Deposed` when its term is over."""
        turn = shapes.check_turn(read_turn(data))
        book = await self._ready(turn.seen_commit)
        key = (turn.pack, turn.term, turn.seq)
        future = self._turns.get(key)
        if future is None:
            future = self._turns[key] = asyncio.get_running_loop().create_future()
        try:
            book.turn(self._now(), turn)
            self._dirty.set()
            reply = await asyncio.wait_for(asyncio.shield(future), 10.0)
        finally:
            self._turns.pop(key, None)
        if reply is None:
            owner = book.packs.get(turn.pack)
            raise Deposed(
                f"Term {turn.term} of {turn.pack} is over.",
                owner.term if owner else 0,
                (owner.alpha if owner else None) or "",
            )
        return reply

    @door
    async def report(self, data: bytes) -> bytes:
        report = shapes.check_keeper_report(read_keeper_report(data))
        book = await self._ready(report.seen_commit)
        return await self._placed(book.report(self._now(), report))

    @door
    async def move(self, data: bytes) -> bytes:
        move = shapes.check_move(read_move(data))
        book = await self._ready(move.seen_commit)
        return await self._placed(book.move(self._now(), move))

    @door
    async def checkpoint(self, unit: str, boot: int, state: bytes) -> bool:
        shapes.check_names("a unit", unit)
        shapes.check_whole("a boot", boot)
        if type(state) is not bytes:
            raise Malformed("a day job's state is bytes")
        book = await self._ready()
        kept = book.desk.checkpoint(self._now(), unit, boot, state)
        await self._durable()
        return kept

    @door
    async def function(self, fn: str) -> bytes:
        """The code of a function by its hash.

        Raises:
            UnknownName: nobody ever submitted it.
        """
        shapes.check_hash(fn)
        await self._ready()
        await self._durable()
        code = await self._ask_ledger(lambda ledger: ledger.function(fn))
        if code is None:
            raise unknown_name("function", fn, [])
        return bytes(code)

    @door
    async def plan_failed(self, pack_name: str, unit: str, reason: str) -> None:
        shapes.check_names("a pack or unit", pack_name, unit)
        reason = str(reason)[:4000]
        book = await self._ready()
        log.error("Planning of %s failed: %s", pack_name, reason)
        book.journal.publish(self._now(), PlanFailed(pack=pack_name, reason=reason), unit)
        self._dirty.set()

    @door
    async def publish(self, producer: str, events: list[tuple[str, str]]) -> int:
        """Stores events of users; returns the number of the last."""
        shapes.check_names("a producer", producer)
        checked = shapes.check_events(events)
        book = await self._ready()
        for name, fields in checked:
            book.journal.publish_encoded(self._now(), name, fields, producer)
        number = book.journal.last_event_no
        await self._durable()
        return number

    # --- calls of clients ---------------------------------------------------------------------------------------

    async def status(self) -> dict[str, Any]:
        """Whether the ledger is open, for `open`; raises what keeps it closed."""
        try:
            await self._ready()
        except LedgerUnavailable:
            if self._fatal is not None:
                raise self._fatal from None
            raise
        return {
            "den": self._spec.den,
            "epoch": self._book.epoch,
            "packs": sorted(self._book.packs),
            "pid": os.getpid(),
            "node": ray.get_runtime_context().get_node_id(),
        }

    @door
    async def submit(self, data: bytes) -> bytes:
        """Queues a batch; answered when it is durable."""
        submit = shapes.check_submit(read_submit(data))
        book = await self._ready(submit.seen_commit)
        if self._closing:
            raise CallerError(f"The den {self._spec.den!r} is closing and takes no new tasks.")
        known = Keyed()
        asked: set[tuple[str, str]] = set()
        while True:  # a task may end while the ledger is asked for others: then it is asked again
            ids, keys = book.tasks.unknown(submit)
            ids = [each for each in ids if ("id", each) not in asked]
            keys = [each for each in keys if ("key", each) not in asked]
            if not ids and not keys:
                break
            asked |= {*(("id", each) for each in ids), *(("key", each) for each in keys)}
            await self._look_up(submit.pack, ids, keys, known)
        acks = book.submit(self._now(), submit, known)
        commit_no = await self._durable()
        plain = all(ack[0] == "queued" for ack in acks)
        return pack((commit_no, book.epoch, None if plain else acks))

    async def _look_up(self, pack_name: str, ids: list[str], keys: list[str], known: Keyed) -> None:
        for row in await self._ask_ledger(lambda ledger: ledger.find_tasks(ids)):
            known.ids[row.fixed.id] = row
        for row in await self._ask_ledger(lambda ledger: ledger.find_keys(pack_name, keys)):
            known.keys[row.fixed.key or ""] = row

    @door
    async def watch(self, client: str, cursor: int) -> bytes:
        """Finished tasks of one client after its cursor, as soon as there are any."""
        shapes.check_client(client)
        shapes.check_whole("a cursor", cursor)
        book = await self._ready()
        if self._parked > MANY_CALLS // 2:
            raise LedgerUnavailable("The keeper has too many parked calls; ask again.")
        self._watched[client] = time.monotonic()
        self._parked += 1
        try:
            end = time.monotonic() + PARK_S
            while True:
                news = self._news
                finals, gap = book.finals_since(client, cursor, self._durable_settle_no)
                if finals or gap or time.monotonic() >= end or self._closing:
                    last = max(finals[-1].settle_no if finals else cursor, self._durable_settle_no if gap else cursor)
                    return pack((finals, last, gap, book.epoch, self._closing))
                try:
                    await asyncio.wait_for(news.wait(), max(0.01, end - time.monotonic()))
                except TimeoutError:
                    continue
        finally:
            self._parked -= 1

    @door
    async def look(self, client: str, task_ids: list[str]) -> bytes:
        """The present state of tasks, and their ends; living ones join this client's watch."""
        shapes.check_client(client)
        task_ids = shapes.check_list("tasks", task_ids)
        book = await self._ready()
        await self._durable()
        answer: list[Any] = []
        missing = []
        for task_id in task_ids:
            task = book.tasks.join(client, task_id)
            if task is None:
                missing.append(task_id)
            else:
                final = task.final() if task.settle_no else None
                answer.append((task_id, task.state.value, final))
        if missing:
            rows = await self._ask_ledger(lambda ledger: ledger.find_tasks(missing))
            for row in rows:
                final = final_of_row(row) if row.mutable.settle_no else None
                answer.append((row.fixed.id, row.mutable.state, final))
        await self._durable()
        return pack(answer)

    @door
    async def cancel(self, task_ids: list[str], kill: bool) -> list[str]:
        task_ids = shapes.check_list("tasks", task_ids)
        book = await self._ready()
        found = book.cancel(self._now(), task_ids, kill=kill)
        await self._durable()
        return found

    @door
    async def why(self, task_id: str) -> str:
        shapes.check_names("a task", task_id)
        book = await self._ready()
        return book.why(self._now(), task_id, await self._find_row(task_id))

    @door
    async def attempts(self, task_id: str) -> list[Any]:
        shapes.check_names("a task", task_id)
        book = await self._ready()
        return book.attempts(task_id, await self._find_row(task_id))

    async def _find_row(self, task_id: str) -> TaskRow | None:
        if self._book.tasks.find(task_id) is not None:
            return None
        rows = await self._ask_ledger(lambda ledger: ledger.find_tasks([task_id]))
        return rows[0] if rows else None

    async def units(self) -> list[Any]:
        book = await self._ready()
        return book.unit_records()

    @door
    async def day_state(self, unit: str) -> bytes:
        """The last checkpoint of a werewolf's day job, pickled by its hands; empty when there is none."""
        shapes.check_names("a unit", unit)
        return (await self._ready()).unit(unit).day_state

    async def packs(self) -> list[str]:
        return sorted((await self._ready()).packs)

    async def stats(self) -> dict[str, Any]:
        book = await self._ready()
        await self._durable()
        counts = await self._ask_ledger(lambda ledger: ledger.counts())
        return book.stats(counts) | {"refused_calls": self.refused_calls}

    @door
    async def events_since(self, number: int, limit: int, park: bool) -> list[Any]:
        """Events after this number, in order; with `park`, waits for the next one."""
        shapes.check_whole("the number of an event", number)
        shapes.check_limit("a limit", limit)
        await self._ready()
        end = time.monotonic() + PARK_S
        while True:
            news = self._news
            fresh = self._durable_event_no > number
            rows = await self._ask_ledger(lambda ledger: ledger.events_since(number, limit)) if fresh else []
            if rows or not park or time.monotonic() >= end or self._closing:
                return [tuple(row) for row in rows]
            try:
                await asyncio.wait_for(news.wait(), max(0.01, end - time.monotonic()))
            except TimeoutError:
                continue

    async def last_event(self) -> int:
        """The number of the newest durable event."""
        await self._ready()
        await self._durable()
        return self._durable_event_no

    @door
    async def create_pack(self, spec: PackSpec) -> None:
        shapes.check_pack(spec)
        await self._act(lambda book: book.create_pack(self._now(), spec))

    @door
    async def scale(self, name: str, fewest: int, most: int, reason: str) -> None:
        shapes.check_names("a pack", name)
        shapes.check_text("a reason", reason)
        await self._act(lambda book: book.scale(self._now(), name, fewest, most, reason))

    @door
    async def drain(self, name: str, reason: str) -> None:
        shapes.check_names("a pack", name)
        shapes.check_text("a reason", reason)
        await self._act(lambda book: book.drain(self._now(), name, reason))

    @door
    async def drop_pack(self, name: str, reason: str) -> None:
        shapes.check_names("a pack", name)
        shapes.check_text("a reason", reason)
        await self._act(lambda book: book.drop_pack(self._now(), name, reason))

    @door
    async def order_unit(self, unit: str, order: str, grace_s: float | None, reason: str) -> None:
        shapes.check_names("a unit or order", unit, order)
        shapes.check_seconds("grace_s", grace_s)
        shapes.check_text("a reason", reason)
        if order not in ORDERS:
            raise CallerError(str(unknown_name("order", order, ORDERS)))
        await self._act(lambda book: book.order_unit(self._now(), unit, order, grace_s, reason))

    async def _act(self, change: Callable[[Book], None]) -> None:
        change(await self._ready())
        await self._durable()

    @door
    async def dead(self, pack_name: str | None, limit: int) -> list[Any]:
        """The newest dead letters."""
        shapes.check_limit("a limit", limit)
        if pack_name is not None:
            shapes.check_names("a pack", pack_name)
        book = await self._ready()
        if pack_name is not None:
            book.pack(pack_name)
        await self._durable()
        rows = await self._ask_ledger(lambda ledger: ledger.find_states(pack_name, TaskState.DEAD.value, limit))
        return [_letter(row) for row in rows]

    @door
    async def replay(self, task_ids: list[str], needs: dict[str, Any] | None) -> list[str]:
        """Queues dead letters again. Raises `UnknownName` for what is none."""
        try:
            other = Needs.parse(needs) if needs else None
        except (TypeError, ValueError) as exc:
            raise Malformed(f"these are no needs: {exc}") from exc
        return await self._each_dead(task_ids, lambda book, row: book.replay(self._now(), row, other))

    @door
    async def drop_dead(self, task_ids: list[str]) -> list[str]:
        return await self._each_dead(task_ids, lambda book, row: book.drop_dead(row))

    async def _each_dead(self, task_ids: list[str], change: Callable[[Book, TaskRow], None]) -> list[str]:
        task_ids = shapes.check_list("tasks", task_ids)
        book = await self._ready()
        await self._durable()
        rows = await self._ask_ledger(lambda ledger: ledger.find_tasks(task_ids))
        dead = {row.fixed.id: row for row in rows if row.mutable.state == TaskState.DEAD.value}
        for task_id in task_ids:
            if task_id not in dead or book.tasks.find(task_id) is not None:
                raise unknown_name("dead letter", task_id, dead)
        for row in dead.values():
            change(book, row)
        await self._durable()
        return list(dead)

    def _ask_ledger(self, question: Callable[[Ledger], Any]) -> Awaitable[Any]:
        ledger = self._ledger
        assert ledger is not None
        return asyncio.get_running_loop().run_in_executor(self._disk, question, ledger)


class Tether:
    """A driver's life line: it has no resources and dies with its driver."""

    async def lifeline(self, seconds: float = PARK_S) -> None:
        await asyncio.sleep(seconds)


def _letter(row: TaskRow) -> dict[str, Any]:
    mutable, task = row.mutable, Task.from_row(row)
    return {
        "task_id": row.fixed.id,
        "pack": row.fixed.pack,
        "key": row.fixed.key,
        "function": task.options.name,
        "needs": task.needs.to_plain(),
        "cause": mutable.cause,
        "text": mutable.text,
        "attempts": mutable.attempts,
        "ended_at": mutable.ended_at,
        "story": task.story,
    }
