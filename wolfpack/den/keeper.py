"""The keeper: the actor that alone writes the ledger and grants terms.

It drives the book (`core/book`): each call changes the book at once, waits for the commit that holds the change, and
only then answers. Commits run one after another on a thread of their own, each with everything that came meanwhile.
The keeper's `__init__` never raises, since Ray would give it up for good; the ledger opens in the background, and
calls get `LedgerUnavailable` until then. A commit that fails ends the process: Ray makes a new keeper, which reads
from the ledger what is true.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ray
from ray.exceptions import RayActorError

from wolfpack.core import shapes
from wolfpack.core.book import Book, Instant
from wolfpack.core.book.journal import AskToLead, CreateUnit, EndUnit, Instruct, Order, Summon
from wolfpack.core.book.state import final_of_row
from wolfpack.core.book.tasks import Keyed
from wolfpack.core.rows import Ledger, TaskRow
from wolfpack.core.wire import Claim, Where, pack, read_keeper_report, read_move, read_submit, read_turn, unpack
from wolfpack.den.handles import Handles, PeerGone
from wolfpack.den.ledgers import open_ledger
from wolfpack.den.names import MANY_CALLS, unit_options
from wolfpack.den.processes import collect_rarely
from wolfpack.errors import CallerError, Deposed, KeeperBehind, LedgerError, LedgerUnavailable, unknown_name
from wolfpack.events import DenEnded, DenOpened, KeeperBorn, PlanFailed
from wolfpack.model import DenSpec, Needs, PackSpec, Readiness, TaskState

log = logging.getLogger("wolfpack.keeper")

TICK_S = 0.05
PARK_S = 5.0  # a watch without news is answered after so long
TETHER_S = 5.0  # the den ends so long after its last tether
FIRST_TETHER_S = 120.0  # or so long after its birth, if no driver ever showed one
ORDERS = ("wake", "sleep", "release", "recall")
FORGET_S = 120.0  # a client that watches no more is forgotten after so long
FORGIVE_S = 0.5  # a tick later than this was a pause of our own


class Keeper:
    """See the head of this file. Every public coroutine is a call that clients and units make through Ray."""

    def __init__(self, spec: DenSpec, *, create: bool, detached: bool) -> None:
        self._spec = spec
        self._reborn = bool(ray.get_runtime_context().was_current_actor_reconstructed)
        self._create = create and not self._reborn
        self._detached = detached
        self._book = Book(spec.timing, random.Random())
        self._ledger: Ledger | None = None
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="ledger")
        self._why_closed = "the ledger is being opened"
        self._fatal: LedgerError | None = None
        self._is_open = asyncio.Event()
        self._dirty = asyncio.Event()
        self._next_commit: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._turns: dict[tuple[str, int, int], asyncio.Future[bytes | None]] = {}
        self._news = asyncio.Event()  # set, and replaced, after each commit
        self._handles = Handles(spec.den, threads=4)
        self._held: set[tuple[str, int]] = set()  # units with a call of ours parked
        self._tethers: set[str] = set()
        self._untethered_since = time.monotonic()
        self._was_tethered = False
        self._durable_settle_no = self._durable_event_no = 0
        self._forgiven_s = 0.0
        self._parked = 0
        self._watched: dict[str, float] = {}  # client -> when its last watch came
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closing = False
        self._ended = False  # the ledger is closed for good
        self._spawn(self._live())

    # --- life ---------------------------------------------------------------------------------------------------

    def _spawn(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _now(self) -> Instant:
        return Instant(time.monotonic() - self._forgiven_s, time.time())

    async def _live(self) -> None:
        try:
            if self._reborn and self._spec.ledger.startswith("memory:"):
                log.error("The ledger was in memory and died with the keeper: the den ends.")
                ray.kill(ray.get_runtime_context().current_actor, no_restart=True)
            sys.setswitchinterval(0.0005)  # the ledger's thread and the loop share one lock; neither waits long
            collect_rarely()
            await self._open()
            self._spawn(self._tick_for_ever())
            await self._commit_for_ever()
        except BaseException:
            log.exception("The keeper ends, to start again from its ledger.")
            os._exit(70)

    async def _open(self) -> None:
        """Opens the ledger, for as long as it takes; a reborn keeper waits for whatever is wrong to be mended."""
        loop = asyncio.get_running_loop()
        wait_s = 0.1
        while True:
            try:
                self._ledger = open_ledger(self._spec.ledger)
                loaded = await loop.run_in_executor(self._disk, lambda: self._ledger.open(create=self._create))  # type: ignore[union-attr]
                break
            except Exception as exc:
                self._fatal = exc if isinstance(exc, LedgerError) else LedgerError(f"{type(exc).__name__}: {exc}")
                self._why_closed = str(exc)
                log.warning("The ledger cannot be opened: %s Trying again in %.1f s.", exc, wait_s)
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, 2.0)
        self._fatal = None
        at = self._now()
        self._book.load(at, loaded)
        journal = self._book.journal
        self._durable_settle_no, self._durable_event_no = loaded.last_settle_no, loaded.last_event_no
        self._tethers = set(json.loads(loaded.meta.get("tethers", "[]"))) if self._reborn else set()
        if self._reborn:
            self._detached = loaded.meta.get("detached", "") == "1"
            journal.publish(at, KeeperBorn(epoch=loaded.epoch, reason="the keeper before it died"))
            for unit in self._book.units.values():
                if unit.readiness is Readiness.WAKING:
                    journal.orders.append(CreateUnit(unit=unit.id, boot=unit.boot))
                elif unit.readiness in (Readiness.AWAKE, Readiness.DRAINING):
                    self._hold(unit.id, unit.boot)
            self._was_tethered = True
            for tether in self._tethers:
                self._spawn(self._hold_tether(tether))
        else:
            journal.meta["closed"] = ""
            journal.meta["detached"] = "1" if self._detached else ""
            journal.publish(at, DenOpened(den=self._spec.den, epoch=loaded.epoch))
            self._book.fresh_start(at)
            self._book.describe(at, self._spec.cards, self._spec.packs)
        self._is_open.set()
        self._dirty.set()
        if self._reborn and loaded.meta.get("closed") == "1":
            self._spawn(self._end("the den was being closed when its keeper died"))

    async def _tick_for_ever(self) -> None:
        due = time.monotonic() + TICK_S
        while True:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            late_s = time.monotonic() - due
            if late_s > FORGIVE_S:  # we were frozen or stalled; what the others sent meanwhile is queued behind us
                self._forgiven_s += late_s
                await asyncio.sleep(0.05)
            due = time.monotonic() + TICK_S
            self._book.tick(self._now())
            self._book.sweep()
            self._forget_clients()
            self._dirty.set()
            if not self._detached and not self._tethers and not self._closing:
                patience_s = TETHER_S if self._was_tethered else FIRST_TETHER_S
                if time.monotonic() - self._untethered_since > patience_s:
                    self._spawn(self._end("no driver holds it any more"))
            elif self._tethers:
                self._untethered_since = time.monotonic()

    def _forget_clients(self) -> None:
        """What waits for clients that watch no more is dropped; they look it up if they come back."""
        gone = [client for client, at in self._watched.items() if time.monotonic() - at > FORGET_S]
        for client in gone:
            del self._watched[client]
            self._book.forget_client(client)

    async def _commit_for_ever(self) -> None:
        loop = asyncio.get_running_loop()
        ledger = self._ledger
        assert ledger is not None
        journal = self._book.journal
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            if self._ended:
                return
            waiting, self._next_commit = self._next_commit, loop.create_future()
            orders, journal.orders = journal.orders, []
            answers, journal.answers = journal.answers, []
            settle_no, event_no = journal.last_settle_no, journal.last_event_no
            writes = journal.take()
            if writes:
                self._book.tasks.taken()
                journal.commit_no = await loop.run_in_executor(self._disk, ledger.commit, writes)
                self._book.tasks.committed()
            self._durable_settle_no, self._durable_event_no = settle_no, event_no
            waiting.set_result(journal.commit_no)
            for answer in answers:
                future = self._turns.pop((answer.pack, answer.term, answer.seq), None)
                if future is not None and not future.done():
                    reply = answer.reply
                    future.set_result(pack(reply._replace(commit_no=journal.commit_no)) if reply is not None else None)
            for order in orders:
                self._carry_out(order)
            if writes:
                self._news.set()
                self._news = asyncio.Event()

    async def _durable(self) -> int:
        """Waits for the commit that holds everything done so far."""
        self._dirty.set()
        return await asyncio.shield(self._next_commit)

    async def _ready(self, seen_commit: int = 0) -> Book:
        """The book, once the ledger is open.

        Raises:
            LedgerUnavailable: not yet; the text says why.
            KeeperBehind: this ledger lacks commits that the caller has seen.
        """
        if not self._is_open.is_set():
            try:
                await asyncio.wait_for(self._is_open.wait(), 0.5)
            except TimeoutError:
                raise LedgerUnavailable(f"The keeper cannot use its ledger now: {self._why_closed}") from None
        if seen_commit > self._book.journal.commit_no:
            raise KeeperBehind(
                f"The keeper's ledger ends at commit {self._book.journal.commit_no}, but this caller has seen "
                f"{seen_commit}: {seen_commit - self._book.journal.commit_no} commits were lost."
            )
        return self._book

    # --- orders of the book -------------------------------------------------------------------------------------

    def _carry_out(self, order: Order) -> None:
        match order:
            case CreateUnit(unit=unit, boot=boot):
                self._spawn(self._create_unit(unit, boot))
            case EndUnit(unit=unit, boot=boot):
                self._spawn(self._kill(unit, boot))
            case AskToLead(unit=unit, boot=boot, pack=pack_name, term=term):
                self._spawn(self._tell(unit, boot, "ask_to_lead", pack_name, term))
            case Summon(unit=unit, boot=boot, pack=pack_name):
                self._spawn(self._tell(unit, boot, "summon", pack_name))
            case Instruct(unit=unit, boot=boot, order=what, grace_s=grace_s, reason=reason):
                self._spawn(self._tell(unit, boot, "instruct", what, grace_s, reason))

    async def _tell(self, unit: str, boot: int, method: str, *args: Any) -> None:
        try:
            await asyncio.wait_for(self._handles.call(unit, boot, method, *args), 15.0)
        except (PeerGone, RayActorError, TimeoutError) as exc:
            log.info("%s could not be told %s: %s", unit, method, exc)

    async def _create_unit(self, unit: str, boot: int) -> None:
        from wolfpack.den.unit import UnitActor  # the unit's module is heavy, and not needed to keep a ledger

        row = self._book.units[unit]
        if row.boot != boot or row.readiness is not Readiness.WAKING:
            return

        def create() -> Any:
            options = unit_options(self._spec.den, row.card, boot)
            return ray.remote(UnitActor).options(**options).remote(self._spec, row.card, boot)

        try:
            handle = await self._handles.run(create)
        except Exception as exc:
            if "already exists" in str(exc) or "already taken" in str(exc):
                self._hold(unit, boot)
                return
            self._book.desk.birth_failed(self._now(), unit, boot, f"{type(exc).__name__}: {exc}")
            self._dirty.set()
            return
        self._handles.remember(unit, boot, handle)
        self._hold(unit, boot)

    async def _kill(self, unit: str, boot: int) -> None:
        try:
            handle = await self._handles.unit(unit, boot)
            await self._handles.run(lambda: ray.kill(handle, no_restart=True))
        except (PeerGone, RayActorError, ValueError):
            pass
        self._handles.forget(unit, boot)

    def _hold(self, unit: str, boot: int) -> None:
        if (unit, boot) not in self._held:
            self._held.add((unit, boot))
            self._spawn(self._hold_unit(unit, boot))

    async def _hold_unit(self, unit: str, boot: int) -> None:
        """Keeps one call parked with a unit: its process's death answers it within some 20 ms."""
        try:
            while True:
                row = self._book.units.get(unit)
                if row is None or row.boot != boot or row.readiness in (Readiness.ASLEEP, Readiness.GONE):
                    return
                try:
                    await self._handles.call(unit, boot, "lifeline")
                    self._book.desk.heard(self._now(), unit, boot)
                except PeerGone as exc:
                    cause = str(exc.__cause__ or exc).splitlines()[0]
                    self._book.lose(self._now(), unit, boot, f"its process died ({cause[:200]})")
                    self._dirty.set()
                    return
                except RayActorError:
                    await asyncio.sleep(0.2)  # unreachable is no sign of death
                except Exception as exc:  # its constructor raised
                    text = str(exc).strip().splitlines()
                    self._book.lose(self._now(), unit, boot, text[-1] if text else type(exc).__name__)
                    self._dirty.set()
                    return
        finally:
            self._held.discard((unit, boot))

    # --- tethers and the end ------------------------------------------------------------------------------------

    async def hold_tether(self, name: str) -> None:
        """A driver shows its tether: the den lives while one does."""
        shapes.check_names("a tether", name)
        book = await self._ready()
        if name not in self._tethers:
            self._tethers.add(name)
            self._was_tethered = True
            book.journal.meta["tethers"] = json.dumps(sorted(self._tethers))
            self._spawn(self._hold_tether(name))
        await self._durable()

    async def let_go(self, name: str, reason: str) -> bool:
        """A driver leaves on purpose; says whether the den ends now, since it was the last."""
        shapes.check_names("a tether", name)
        await self._ready()
        self._drop_tether(name)
        ends = not self._tethers and not self._detached
        if ends and not self._closing:
            self._spawn(self._end(reason))
        else:
            await self._durable()
        return ends

    def _drop_tether(self, name: str) -> None:
        self._tethers.discard(name)
        self._watched.pop(name.removeprefix("tether-"), None)
        self._book.forget_client(name.removeprefix("tether-"))
        self._book.journal.meta["tethers"] = json.dumps(sorted(self._tethers))
        self._untethered_since = time.monotonic()
        self._dirty.set()

    async def _hold_tether(self, name: str) -> None:
        try:
            handle = await self._handles.run(lambda: ray.get_actor(name, namespace=self._spec.den))
            while True:
                await handle.lifeline.remote()
        except (RayActorError, ValueError):
            self._drop_tether(name)

    async def close(self, reason: str) -> None:
        """Ends the den: marks it closed, ends the units, then itself. The ledger keeps what is left."""
        await self._ready()
        if not self._closing:
            self._spawn(self._end(reason))

    async def _end(self, reason: str) -> None:
        self._closing = self._book.desk.closing = True
        at = self._now()
        self._book.journal.meta["closed"] = "1"
        self._book.journal.publish(at, DenEnded(reason=reason))
        for owner in self._book.packs.values():
            self._book.terms.vacate(at, owner, "the den ends")
        await self._durable()
        living = [
            (unit.id, unit.boot)
            for unit in self._book.units.values()
            if unit.readiness in (Readiness.AWAKE, Readiness.DRAINING, Readiness.WAKING)
        ]
        await asyncio.gather(*(self._kill(unit, boot) for unit, boot in living), return_exceptions=True)
        await self._durable()
        self._ended = True
        ledger = self._ledger
        if ledger is not None:
            await asyncio.get_running_loop().run_in_executor(self._disk, ledger.close)
        ray.kill(ray.get_runtime_context().current_actor, no_restart=True)
        await asyncio.sleep(3.0)
        os._exit(0)

    # --- calls of units -----------------------------------------------------------------------------------------

    async def hello(self, unit: str, boot: int, pid: int, node: str) -> bytes:
        shapes.check_names("a unit or node", unit, node)
        shapes.check_whole("a boot or pid", boot, pid)
        book = await self._ready()
        where = book.hello(self._now(), unit, boot, pid, node)
        if not where.end:
            self._hold(unit, boot)
        return await self._placed(where)

    async def _placed(self, where: Where) -> bytes:
        commit_no = await self._durable()
        return pack(where._replace(commit_no=commit_no))

    async def birth_failed(self, unit: str, boot: int, reason: str) -> None:
        shapes.check_names("a unit", unit)
        reason = str(reason)[:4000]
        book = await self._ready()
        book.desk.birth_failed(self._now(), unit, boot, reason)
        await self._durable()

    async def claim(self, data: bytes) -> bytes:
        claim = shapes.check_claim(Claim(*unpack(data)))
        book = await self._ready(claim.seen_commit)
        verdict = book.claim(self._now(), claim)
        commit_no = await self._durable()
        return pack(verdict._replace(commit_no=commit_no))

    async def release(self, pack_name: str, term: int, unit: str, boot: int) -> bool:
        shapes.check_names("a pack or unit", pack_name, unit)
        book = await self._ready()
        released = book.release(self._now(), pack_name, term, unit, boot)
        await self._durable()
        return released

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
        except Deposed:
            self._turns.pop(key, None)
            raise
        self._dirty.set()
        try:
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

    async def report(self, data: bytes) -> bytes:
        report = shapes.check_keeper_report(read_keeper_report(data))
        book = await self._ready(report.seen_commit)
        return await self._placed(book.report(self._now(), report))

    async def move(self, data: bytes) -> bytes:
        move = shapes.check_move(read_move(data))
        book = await self._ready(move.seen_commit)
        return await self._placed(book.move(self._now(), move))

    async def checkpoint(self, unit: str, boot: int, state: bytes) -> bool:
        if type(state) is not bytes:
            raise ValueError("a day job's state is bytes")
        book = await self._ready()
        kept = book.desk.checkpoint(self._now(), unit, boot, state)
        await self._durable()
        return kept

    async def function(self, fn: str) -> bytes:
        """The code of a function by its hash.

        Raises:
            UnknownName: nobody ever submitted it.
        """
        await self._ready()
        await self._durable()
        code = await self._ask_ledger(lambda ledger: ledger.function(fn))
        if code is None:
            raise unknown_name("function", fn, [])
        return bytes(code)

    async def plan_failed(self, pack_name: str, unit: str, reason: str) -> None:
        shapes.check_names("a pack or unit", pack_name, unit)
        reason = str(reason)[:4000]
        book = await self._ready()
        log.error("Planning of %s failed: %s", pack_name, reason)
        book.journal.publish(self._now(), PlanFailed(pack=pack_name, reason=reason), unit)
        self._dirty.set()

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
        return {"den": self._spec.den, "epoch": self._book.epoch, "packs": sorted(self._book.packs), "pid": os.getpid()}

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

    async def cancel(self, task_ids: list[str], kill: bool) -> list[str]:
        task_ids = shapes.check_list("tasks", task_ids)
        book = await self._ready()
        found = book.cancel(self._now(), task_ids, kill=kill)
        await self._durable()
        return found

    async def why(self, task_id: str) -> str:
        shapes.check_names("a task", task_id)
        book = await self._ready()
        return book.why(self._now(), task_id, await self._find_row(task_id))

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

    async def day_state(self, unit: str) -> bytes:
        """The last checkpoint of a werewolf's day job, pickled by its hands; empty when there is none."""
        return (await self._ready()).unit(unit).day_state

    async def packs(self) -> list[str]:
        return sorted((await self._ready()).packs)

    async def stats(self) -> dict[str, Any]:
        book = await self._ready()
        await self._durable()
        counts = await self._ask_ledger(lambda ledger: ledger.counts())
        return book.stats(counts)

    async def events_since(self, number: int, limit: int, park: bool) -> list[Any]:
        """Events after this number, in order; with `park`, waits for the next one."""
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

    async def create_pack(self, spec: PackSpec) -> None:
        if not isinstance(spec, PackSpec):
            raise TypeError(f"a pack is described by a PackSpec, not by {type(spec).__name__}")
        await self._act(lambda book: book.create_pack(self._now(), spec))

    async def scale(self, name: str, fewest: int, most: int, reason: str) -> None:
        await self._act(lambda book: book.scale(self._now(), name, fewest, most, reason))

    async def drain(self, name: str, reason: str) -> None:
        await self._act(lambda book: book.drain(self._now(), name, reason))

    async def drop_pack(self, name: str, reason: str) -> None:
        await self._act(lambda book: book.drop_pack(self._now(), name, reason))

    async def order_unit(self, unit: str, order: str, grace_s: float | None, reason: str) -> None:
        if order not in ORDERS:
            raise CallerError(str(unknown_name("order", str(order), ORDERS)))
        if grace_s is not None and not 0 <= grace_s < float("inf"):
            raise CallerError(f"grace_s must be seconds, at least 0, not {grace_s!r}")
        await self._act(lambda book: book.order_unit(self._now(), unit, order, grace_s, reason))

    async def _act(self, change: Callable[[Book], None]) -> None:
        change(await self._ready())
        await self._durable()

    async def dead(self, pack_name: str | None, limit: int) -> list[Any]:
        """The newest dead letters."""
        book = await self._ready()
        if pack_name is not None:
            book.pack(pack_name)
        await self._durable()
        rows = await self._ask_ledger(lambda ledger: ledger.find_states(pack_name, TaskState.DEAD.value, limit))
        return [_letter(row) for row in rows]

    async def replay(self, task_ids: list[str], needs: dict[str, Any] | None) -> list[str]:
        """Queues dead letters again. Raises `UnknownName` for what is none."""
        return await self._each_dead(
            task_ids, lambda book, row: book.replay(self._now(), row, Needs.parse(needs) if needs else None)
        )

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
    mutable = row.mutable
    return {
        "task_id": row.fixed.id,
        "pack": row.fixed.pack,
        "key": row.fixed.key,
        "function": json.loads(row.fixed.options).get("name", ""),
        "needs": json.loads(mutable.needs),
        "cause": mutable.cause,
        "text": mutable.text,
        "attempts": mutable.attempts,
        "ended_at": mutable.ended_at,
        "story": mutable.story,
    }
