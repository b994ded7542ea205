"""How a keeper lives: it opens its ledger, ticks, commits, carries out the orders of its book, and ends.

The calls that clients and units make stand in `keeper.py`. Each changes the book at once and waits here, in `durable`,
for the commit that holds the change. Commits run one after another on a thread of their own, each with everything that
came meanwhile. A commit that fails ends the process: Ray makes a new keeper, which reads from the ledger what is true.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import random
import sys
import time
from collections.abc import Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, RayActorError, RayTaskError

from wolfpack.core import shapes
from wolfpack.core.book import Book, Instant
from wolfpack.core.book.clock import KeeperClock
from wolfpack.core.book.journal import AskToLead, CreateUnit, EndUnit, Instruct, Order, Summon
from wolfpack.core.rows import Ledger
from wolfpack.core.wire import pack
from wolfpack.den.doors import door
from wolfpack.den.handles import Handles, PeerGone
from wolfpack.den.ledgers import open_ledger
from wolfpack.den.names import unit_options
from wolfpack.den.processes import collect_rarely
from wolfpack.errors import KeeperBehind, LedgerDamaged, LedgerError, LedgerUnavailable
from wolfpack.events import DenEnded, DenOpened, KeeperBorn
from wolfpack.model import DenSpec, Readiness

log = logging.getLogger("wolfpack.keeper")

TICK_S = 0.05
TETHER_S = 5.0  # the den ends so long after its last tether
FIRST_TETHER_S = 120.0  # or so long after its birth, if no driver ever showed one
CLEAN_UP_S = 3.0  # a unit of a den that ends has so long to end its hands
FORGET_S = 120.0  # a client that watches no more is forgotten after so long
FORGIVE_S = 0.5  # longer than this between two looks at the clock was a pause of our own


def _steady() -> float:
    """Seconds of a clock that nobody sets; where there is one that goes on while the machine sleeps, that."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Keeping:
    """See the head of this file. Its `__init__` never raises, since Ray would give the actor up for good."""

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
        self._clock = KeeperClock(time.monotonic(), _steady(), time.time(), FORGIVE_S)
        self._parked = 0
        self.refused_calls = 0  # of others, that had not the shape they must have
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
        return self._clock.read(time.monotonic(), _steady())

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
                ledger = open_ledger(self._spec.ledger)
                loaded = await loop.run_in_executor(self._disk, partial(ledger.open, create=self._create))
                try:
                    at = self._now()
                    book = Book(self._spec.timing, random.Random())
                    book.load(at, loaded)
                    tethers = _tethers_in(loaded.meta)
                    break
                except Exception:
                    await loop.run_in_executor(self._disk, ledger.close)
                    raise
            except Exception as exc:
                self._fatal = exc if isinstance(exc, LedgerError) else LedgerError(f"{type(exc).__name__}: {exc}")
                self._why_closed = str(exc)
                log.warning("The ledger cannot be opened: %s Trying again in %.1f s.", exc, wait_s)
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, 2.0)
        self._fatal = None
        self._ledger, self._book = ledger, book
        journal = self._book.journal
        self._durable_settle_no, self._durable_event_no = loaded.last_settle_no, loaded.last_event_no
        self._tethers = tethers if self._reborn else set()
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
                await asyncio.sleep(0.05)
            due = time.monotonic() + TICK_S
            try:
                self._book.tick(self._now())
                self._book.sweep()
                self._forget_clients()
            except Exception:  # whatever one rule raises, the others must go on being judged
                log.exception("A tick of the keeper failed; it goes on with the next.")
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

    async def _end_unit(self, unit: str, boot: int) -> None:
        """Lets a unit end its hands with all they started, then ends its process, whatever it does."""
        with contextlib.suppress(PeerGone, RayActorError, TimeoutError):
            await asyncio.wait_for(self._handles.call(unit, boot, "clean_up"), CLEAN_UP_S)
        await self._kill(unit, boot)

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

    @door
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

    @door
    async def let_go(self, name: str, reason: str) -> bool:
        """A driver leaves on purpose; says whether the den ends now, since it was the last."""
        shapes.check_names("a tether", name)
        shapes.check_text("a reason", reason)
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
            while name in self._tethers:
                try:
                    await handle.lifeline.remote()
                except ActorUnavailableError:  # unreachable is no sign of death
                    await asyncio.sleep(0.2)
        except (RayActorError, RayTaskError, ValueError, AttributeError):  # gone, or never was a tether
            self._drop_tether(name)

    @door
    async def close(self, reason: str) -> None:
        """Ends the den: marks it closed, ends the units, then itself. The ledger keeps what is left."""
        shapes.check_text("a reason", reason)
        await self._ready()
        if not self._closing:
            self._spawn(self._end(reason))

    async def _end(self, reason: str) -> None:
        self._closing = True
        at = self._now()
        self._book.journal.meta["closed"] = "1"
        for owner in self._book.packs.values():
            self._book.terms.vacate(at, owner, "the den ends")
        living = self._book.desk.end_all(at, "the den ends")
        self._book.journal.publish(at, DenEnded(reason=reason))
        await self._durable()
        await asyncio.gather(*(self._end_unit(unit, boot) for unit, boot in living), return_exceptions=True)
        await self._durable()
        self._ended = True
        ledger = self._ledger
        if ledger is not None:
            await asyncio.get_running_loop().run_in_executor(self._disk, ledger.close)
        ray.kill(ray.get_runtime_context().current_actor, no_restart=True)
        await asyncio.sleep(3.0)
        os._exit(0)


def _tethers_in(meta: Mapping[str, str]) -> set[str]:
    try:
        names = json.loads(meta.get("tethers", "[]"))
    except (ValueError, RecursionError):
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise LedgerDamaged("The ledger's note of tethers is no list of names: something else than Wolf Pack wrote it.")
    return set(names)
