"""`Den` and `Pack`: what users hold. Thin faces over one submit path and one watch path.

`submit` packs the call, makes a `Future` and puts both into an outbox; one thread sends what has gathered as one batch
and waits for its acknowledgement, so batches form by themselves. A second thread watches for finished tasks from a
cursor and settles their futures. A third, started at the first need, reads events in order.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import threading
import time
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from wolfpack.call import Calls, plain_options
from wolfpack.errors import (
    CallerError,
    DenClosed,
    KeyConflict,
    NeedInfeasible,
    QueueFull,
    WolfPackError,
    unknown_name,
)
from wolfpack.events import Recorded, decode, encode
from wolfpack.future import Future
from wolfpack.model import DenSpec, Needs, PackSpec, RetryPolicy, TaskOptions, UnitRecord

log = logging.getLogger("wolfpack.den")

BATCH_MOST = 4000  # tasks in one submit
BATCH_BYTES = 8 << 20
OUTBOX_MOST = 50_000  # submit waits when so many are not acknowledged
SLOW_HANDLER_S = 0.05

_open_dens: weakref.WeakSet[Den] = weakref.WeakSet()


class Pack:
    """One pack of a den. `submit` hands every argument to the function; options go through `options`."""

    def __init__(self, den: Den, name: str, options: TaskOptions | None = None) -> None:
        self.den = den
        self.name = name
        self._options = options or TaskOptions()

    def options(self, **options: Any) -> Pack:
        """The same pack with options for the tasks submitted through it.

        Args:
            needs: tags, or a mapping `{tag: True, measure: minimum}`; default: the pack's own.
            key: makes the task unique in its pack; the same key with the same code and arguments is the same task.
            priority: higher goes first; each step is worth a minute of waiting.
            deadline_s: seconds from now after which the task is dead.
            delay_s: seconds from now before which it does not start.
            timeout_s: longest run of one attempt in seconds.
            retry: a mapping as in pack.yaml.

        Raises:
            CallerError: an unknown option, or a value of the wrong kind.
        """
        return Pack(self.den, self.name, plain_options(self._options, options))

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        """Queues `fn(*args, **kwargs)` and returns its future at once.

        Raises:
            PayloadNotPicklable, PayloadTooLarge: the call cannot be sent; nothing was queued.
            DenClosed: the den was closed.
        """
        return self.den._submit(self.name, self._options, fn, args, kwargs)

    def map(self, fn: Callable[[Any], Any], iterable: Iterable[Any], /, *, prefetch: int = 1000) -> Iterator[Any]:
        """Yields `fn(item)` for each item, in the order of the items.

        At most `prefetch` tasks are ahead of the one that is yielded, so an endless generator is welcome. When the
        iteration is given up, what has not started is cancelled.
        """
        if prefetch < 1:
            raise CallerError(f"prefetch must be at least 1, not {prefetch}")
        return self._map(fn, iterable, prefetch)

    def _map(self, fn: Callable[[Any], Any], iterable: Iterable[Any], prefetch: int) -> Iterator[Any]:
        items = iter(iterable)
        ahead: deque[Future] = deque()
        try:
            for item in items:
                ahead.append(self.submit(fn, item))
                if len(ahead) >= prefetch:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()

    def scale(self, fewest: int, most: int) -> None:
        """Sets the fewest and the most members. Durable; the alpha follows at its next plan.

        Raises:
            CallerError: not 0 <= fewest <= most.
        """
        self.den._ask("scale", self.name, fewest, most, "by hand")

    def drain(self, timeout_s: float | None = None) -> None:
        """Takes no new tasks and waits until those that are there have ended.

        Raises:
            TimeoutError: they have not within `timeout_s` seconds; the pack goes on draining.
        """
        self.den._ask("drain", self.name, "by hand")
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            stats = self.stats()
            if not stats["queued"] and not stats["leased"]:
                return
            if end is not None and time.monotonic() > end:
                raise TimeoutError(f"{stats['queued']} queued and {stats['leased']} running tasks are left")
            time.sleep(0.05)

    def stats(self) -> dict[str, Any]:
        """Numbers of tasks by state, members, term, alpha, and the latest plan with its reasons."""
        packs: dict[str, dict[str, Any]] = self.den.stats()["packs"]
        if self.name not in packs:
            raise unknown_name("pack", self.name, packs)
        return packs[self.name]

    def why(self, task: Future | str) -> str:
        """Why a task is where it is."""
        return self.den.why(task)

    def __repr__(self) -> str:
        return f"<wolfpack.Pack {self.name!r} of den {self.den.name!r}>"


class Den:
    """A den that this process holds open. Made by `wolfpack.open`."""

    def __init__(
        self, spec: DenSpec, *, address: str | None = None, detached: bool = False, join_only: bool = False
    ) -> None:
        from wolfpack.den.gateway import Gateway  # brings Ray

        self.spec = spec
        self.name = spec.den
        self._client = uuid.uuid4().hex[:12]
        self._gateway = Gateway(spec, client=self._client, address=address, detached=detached, join_only=join_only)
        self._calls = Calls(spec.payload_max_bytes, self._gateway.blobs, self._client)
        self._detached = detached
        self._join_only = join_only
        self._lock = threading.Condition()
        self._outbox: deque[tuple[str, Any, Future]] = deque()
        self._unacknowledged = 0
        self._pending: dict[str, list[Future]] = {}
        self._counter = 0
        self._sent_functions: set[str] = set()
        self._cursor = 0
        self._epoch = self._gateway.status["epoch"]
        self._seen_commit = 0
        self._closing = False
        self._takes_tasks = True
        self._handlers: list[_Handler] = []
        self._threads = [
            threading.Thread(target=self._send_for_ever, name="wolfpack-submit", daemon=True),
            threading.Thread(target=self._watch_for_ever, name="wolfpack-watch", daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        self._events_thread: threading.Thread | None = None
        _open_dens.add(self)
        if spec.graphs is not None:
            self._draw_graphs(spec.graphs)

    # --- packs --------------------------------------------------------------------------------------------------

    def packs(self) -> list[str]:
        """Names of the packs."""
        names: list[str] = self._ask("packs")
        return names

    def pack(self, name: str | None = None) -> Pack:
        """A pack by its name; none is needed where there is only one.

        Raises:
            UnknownName: there is no such pack; the error lists those there are.
        """
        names = self.packs()
        if name is None:
            if len(names) != 1:
                raise CallerError(f"This den has {len(names)} packs, so name one: {', '.join(names) or 'none yet'}.")
            return Pack(self, names[0])
        if name not in names:
            raise unknown_name("pack", name, names)
        return Pack(self, name)

    def create_pack(
        self,
        name: str,
        *,
        size: tuple[int, int] = (0, 1),
        needs: Any = None,
        retry: Mapping[str, Any] | RetryPolicy | None = None,
        **settings: Any,
    ) -> Pack:
        """Makes a pack while the den runs; durable. Settings are those of pack.yaml.

        Raises:
            CallerError: a setting that cannot be, or needs that no unit offers.
        """
        from wolfpack.config import pack_from_settings

        spec: PackSpec = pack_from_settings(name, size=size, needs=needs, retry=retry, settings=settings)
        self._ask("create_pack", spec)
        return Pack(self, name)

    def drop_pack(self, name: str) -> None:
        """Ends a pack: its queued tasks are cancelled, its running ones killed, its members leave."""
        self._ask("drop_pack", name, "by hand")

    # --- tasks --------------------------------------------------------------------------------------------------

    def _submit(
        self, pack: str, options: TaskOptions, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Future:
        options = plain_options(getattr(fn, "_wolfpack_options", None), None, over=options)
        with self._lock:
            while self._unacknowledged >= OUTBOX_MOST and not self._closing and self._takes_tasks:
                self._lock.wait(1.0)
            if self._closing:
                raise DenClosed(f"The den {self.name!r} was closed; open it again to submit.")
            if not self._takes_tasks:
                raise DenClosed(f"This process takes no more tasks for the den {self.name!r}: it was told to stop.")
            self._counter += 1
            counter = self._counter
        item, code = self._calls.pack(counter, fn, args, kwargs, options)
        future = Future(self, f"{self._client}:{counter}")
        with self._lock:
            self._outbox.append((pack, (item, code), future))
            self._unacknowledged += 1
            self._pending[future.task_id] = [future]
            if len(self._outbox) == 1:
                self._lock.notify_all()
        return future

    def future(self, task_id: str) -> Future:
        """The future of a task that was submitted before, by anybody.

        Raises:
            UnknownName: nobody ever submitted a task with this id.
        """
        known = self._pending.get(task_id)
        if known:
            return known[0]
        future = Future(self, task_id)
        self._pending.setdefault(task_id, []).append(future)
        if not self._look([task_id]):
            self._pending.pop(task_id, None)
            raise unknown_name("task", task_id, [])
        return future

    def why(self, task: Future | str) -> str:
        """Why a task is where it is: its place in the queue, its unit, what it waits for, or how it ended."""
        text: str = self._ask("why", task if isinstance(task, str) else self._acknowledged(task))
        return text

    def flush(self) -> None:
        """Waits until everything submitted so far by this process is durable, or was refused."""
        with self._lock:
            while self._unacknowledged and not self._closing:
                self._lock.wait(1.0)

    def stop_submitting(self) -> int:
        """From now on every submit of this process raises `DenClosed`; what was submitted goes on.

        Returns:
            How many tasks of this process have not ended.
        """
        with self._lock:
            self._takes_tasks = False
            self._lock.notify_all()
            return len(self._pending)

    def unsettled(self) -> int:
        """How many tasks of this process have not ended."""
        with self._lock:
            return len(self._pending)

    def cancel_all(self, *, kill: bool = False) -> int:
        """Cancels what this process submitted and has not ended; with `kill`, also what runs.

        Returns:
            How many tasks were cancelled or are marked to be.
        """
        self.flush()
        with self._lock:
            task_ids = list(self._pending)
        return sum(
            len(self._ask("cancel", task_ids[start : start + 1000], kill)) for start in range(0, len(task_ids), 1000)
        )

    def _acknowledged(self, future: Future) -> str:
        with self._lock:
            while any(each is future for _, _, each in self._outbox) and not self._closing:
                self._lock.wait(0.05)
        return future.task_id

    def _cancel(self, future: Future, *, kill: bool) -> bool:
        with self._lock:
            for entry in self._outbox:
                if entry[2] is future:
                    self._outbox.remove(entry)
                    self._unacknowledged -= 1
                    self._pending.pop(future.task_id, None)
                    future._settle("cancelled", "CANCELLED", "", b"", "", "", b"")
                    return True
        found: list[str] = self._ask("cancel", [future.task_id], kill)
        if not found:
            return future.cancelled()
        end = time.monotonic() + 1.0
        while not future.done() and not kill and time.monotonic() < end:
            if "leased" in self.why(future):
                return False
            time.sleep(0.01)
        return True

    # --- units and facts ----------------------------------------------------------------------------------------

    def units(self) -> list[UnitRecord]:
        """Every unit of the pool as a frozen record: where it stands, and what it holds."""
        records: list[UnitRecord] = self._ask("units")
        return records

    def stats(self) -> dict[str, Any]:
        """Sums over the den, read from the ledger, and each pack's; `conservation` says that they add up."""
        stats: dict[str, Any] = self._ask("stats")
        return stats

    def wake(self, unit: str) -> None:
        """Wakes a sleeping unit; it goes back to sleep when nobody needs it. A quarantined one gets a new chance."""
        self._ask("order_unit", unit, "wake", None, "woken by hand")

    def sleep(self, unit: str, grace_s: float | None = None) -> None:
        """Puts a unit to sleep; what it runs is evicted after `grace_s` (default: its card's)."""
        self._ask("order_unit", unit, "sleep", grace_s, "put to sleep by hand")

    def release(self, unit: str) -> None:
        """Takes a unit out of its pack when it has finished what it runs."""
        self._ask("order_unit", unit, "release", None, "released by hand")

    def recall(self, unit: str, grace_s: float | None = None) -> None:
        """Calls a unit home; what it runs is evicted after `grace_s` (default: its card's)."""
        self._ask("order_unit", unit, "recall", grace_s, "recalled by hand")

    def dead(self, pack: str | None = None, limit: int = 1000) -> list[dict[str, Any]]:
        """The newest dead letters, each with its whole story."""
        letters: list[dict[str, Any]] = self._ask("dead", pack, limit)
        return letters

    def replay(self, task_ids: Iterable[str], needs: Any = None) -> list[str]:
        """Queues dead letters again, with other needs if given."""
        wanted = Needs.parse(needs).to_plain() if needs is not None else None
        replayed: list[str] = self._ask("replay", list(task_ids), wanted)
        return replayed

    def drop_dead(self, task_ids: Iterable[str]) -> list[str]:
        """Removes dead letters; they stay counted as dead."""
        dropped: list[str] = self._ask("drop_dead", list(task_ids))
        return dropped

    # --- events -------------------------------------------------------------------------------------------------

    def events(self, since: int = 0) -> list[Recorded]:
        """Every event after this number, in order."""
        found: list[Recorded] = []
        while rows := self._ask("events_since", since, 2000, False):
            found += [_recorded(row) for row in rows]
            since = found[-1].number
        return found

    def publish(self, event: Any) -> int:
        """Stores an event of your own (an instance of a frozen dataclass of plain fields); returns its number."""
        number: int = self._ask("publish", f"client {self._client}", [encode(event)])
        return number

    def follow(self, since: int = 0) -> Iterator[Recorded]:
        """Every event after this number, in order, and then each new one when it comes, until the den ends."""
        while True:
            try:
                rows = self._gateway.call("events_since", since, 1000, True, patience_s=120.0)
            except DenClosed:
                return
            for row in rows:
                since = row[0]
                yield _recorded(row)

    def on(self, kind: type[Any], handler: Callable[[Any], None], since: int | None = None) -> Callable[[], None]:
        """Calls `handler(event)` for each event of this class, in the order of their numbers.

        Handlers run on one thread of this process and must be light. What one raises is logged and goes no further.

        Args:
            since: start after this number; None: with what comes from now on.

        Returns:
            A function that ends the subscription.
        """
        if since is None:
            since = self._latest_event()
        entry = _Handler(kind, handler, since)
        self._subscribe(entry)
        return lambda: self._handlers.remove(entry) if entry in self._handlers else None

    def _latest_event(self) -> int:
        number: int = self._ask("last_event")
        return number

    def _subscribe(self, entry: _Handler) -> None:
        with self._lock:
            self._handlers.append(entry)
            if self._events_thread is None:
                self._events_thread = threading.Thread(
                    target=self._observe_for_ever, name="wolfpack-events", daemon=True
                )
                self._events_thread.start()

    def graph(self, path: str | Path) -> Path:
        """Draws the den as it stands (who leads whom, and who led before) into an SVG or PNG file."""
        import viz

        target = Path(path)
        viz.render_now(self.events(), target)
        return target

    def _draw_graphs(self, folder: str) -> None:
        import viz

        recorder = viz.GraphRecorder(folder, self.name)
        self._subscribe(_Handler(None, recorder, 0, draws_since=self._latest_event()))

    # --- the end ------------------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """Where the Ray of this den can be joined: for `wolfpack.open(..., address=)` in another process."""
        return self._gateway.address

    @property
    def is_closed(self) -> bool:
        """Whether this process left the den, or the den ended."""
        return self._gateway.is_closed

    def end(self, reason: str) -> None:
        """Ends the den for everybody, also a detached or a joined one, and leaves it."""
        self._gateway.end_den(reason)
        self.close()

    def close(self) -> None:
        """Ends the den, or, if it is detached, only leaves it. Futures that are not settled get `DenClosed`.

        What is left in the ledger goes on when the den is opened again.
        """
        with self._lock:
            if self._closing:
                return
            self._closing = True
            self._lock.notify_all()
        for thread in self._threads[:1]:
            thread.join(5.0)
        if not self._detached and not self._join_only:
            self._gateway.end_den("closed by its driver")
        self._gateway.is_closed = True
        for thread in (*self._threads[1:], *filter(None, [self._events_thread])):
            thread.join(6.0)
        self._gateway.leave()
        self._abandon(f"The den {self.name!r} was closed; its ledger keeps the task.")
        _open_dens.discard(self)

    def _abandon(self, text: str) -> None:
        for futures in list(self._pending.values()):
            for future in futures:
                if not future.done():
                    with contextlib.suppress(Exception):
                        future.set_exception(DenClosed(text))
        self._pending.clear()

    def __enter__(self) -> Den:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<wolfpack.Den {self.name!r}>"

    # --- the threads --------------------------------------------------------------------------------------------

    def _ask(self, method: str, *args: Any) -> Any:
        return self._gateway.call(method, *args)

    def _take_batch(self) -> tuple[str, list[tuple[Any, Future]]] | None:
        with self._lock:
            while not self._outbox:
                if self._closing:
                    return None
                self._lock.wait(1.0)
            pack = self._outbox[0][0]
            batch: list[tuple[Any, Future]] = []
            size = 0
            while self._outbox and self._outbox[0][0] == pack and len(batch) < BATCH_MOST and size < BATCH_BYTES:
                _, packed, future = self._outbox.popleft()
                size += len(packed[0].args)
                batch.append((packed, future))
            return pack, batch

    def _send_for_ever(self) -> None:
        while (taken := self._take_batch()) is not None:
            pack, batch = taken
            try:
                self._send(pack, batch)
            except Exception as exc:
                error = exc if isinstance(exc, WolfPackError) else DenClosed(f"The den cannot be reached: {exc!r}")
                for _, future in batch:
                    self._pending.pop(future.task_id, None)
                    if not future.done():
                        future.set_exception(error)
            with self._lock:
                self._unacknowledged -= len(batch)
                self._lock.notify_all()

    def _send(self, pack: str, batch: list[tuple[Any, Future]]) -> None:
        from wolfpack.core.wire import Submit, unpack
        from wolfpack.core.wire import pack as to_bytes

        items = tuple(item for (item, _), _ in batch)
        functions = {item.fn: code for (item, code), _ in batch if item.fn not in self._sent_functions}
        frame = to_bytes(Submit(self._client, pack, items, tuple(functions.items()), self._seen_commit))
        full_since: float | None = None
        while True:
            try:
                commit_no, _, acks = unpack(self._gateway.call("submit", frame, patience_s=120.0))
                break
            except QueueFull:
                full_since = full_since or time.monotonic()
                if time.monotonic() - full_since > self._submit_timeout_s(pack):
                    raise
                if len(batch) > 1:
                    self._send(pack, batch[: len(batch) // 2])
                    self._send(pack, batch[len(batch) // 2 :])
                    return
                time.sleep(0.05)
        self._seen_commit = max(self._seen_commit, commit_no)
        self._sent_functions.update(functions)
        for ack, (_, future) in zip(acks or (), batch, strict=False):
            self._take_ack(ack, future)

    def _submit_timeout_s(self, pack: str) -> float:
        spec = next((each for each in self.spec.packs if each.name == pack), None)
        return spec.submit_timeout_s if spec is not None else 60.0

    def _take_ack(self, ack: tuple[str, str, Any], future: Future) -> None:
        verdict, task_id, final = ack
        if task_id != future.task_id:  # the task was there before, under the same key
            with self._lock:
                self._pending.pop(future.task_id, None)
                future.task_id = task_id
                self._pending.setdefault(task_id, []).append(future)
        if final is not None:
            self._settle(final)
        elif verdict.startswith("conflict"):
            self._refuse(future, KeyConflict(f"Not submitted: {verdict}."))
        elif verdict.startswith("infeasible"):
            self._refuse(future, NeedInfeasible(verdict.removeprefix("infeasible: ")))

    def _refuse(self, future: Future, error: Exception) -> None:
        self._pending.pop(future.task_id, None)
        if not future.done():
            future.set_exception(error)

    def _settle(self, final: tuple[Any, ...]) -> None:
        task_id, state, cause, text, payload, blob, unit, story, _ = final
        for future in self._pending.pop(task_id, ()):
            try:
                future._settle(state, cause, text, payload, blob, unit, story)
            except Exception:
                log.exception("A callback of the future of %s failed.", task_id)

    def _watch_for_ever(self) -> None:
        from wolfpack.core.wire import unpack

        while True:
            try:
                finals, cursor, gap, epoch, closing = unpack(
                    self._gateway.call("watch", self._client, self._cursor, patience_s=120.0)
                )
            except DenClosed as exc:
                if not self._closing:
                    self._abandon(str(exc))
                return
            except Exception:
                if self._closing:
                    return
                log.exception("The watch failed; it goes on.")
                time.sleep(0.2)
                continue
            for final in finals:
                self._settle(final)
            self._cursor = cursor
            if epoch != self._epoch or gap:
                self._catch_up(epoch)
            if closing or self._closing:
                time.sleep(0.01)

    def _catch_up(self, epoch: int) -> None:
        """A new keeper, or a hole in the watch: everything that is pending is looked up."""
        try:
            if epoch != self._epoch and not self._detached:
                self._gateway.hold_tether()
            with self._lock:
                sending = {future.task_id for _, _, future in self._outbox}
                waiting = [task_id for task_id in self._pending if task_id not in sending]
            for start in range(0, len(waiting), 1000):
                self._look(waiting[start : start + 1000])
            self._epoch = epoch
        except WolfPackError:
            log.warning("Pending tasks could not be looked up; the next watch tries again.", exc_info=True)

    def _look(self, task_ids: list[str]) -> int:
        from wolfpack.core.wire import unpack

        answer = unpack(self._ask("look", self._client, task_ids))
        for _, _, final in answer:
            if final is not None:
                self._settle(final)
        return len(answer)

    def _observe_for_ever(self) -> None:
        number = min((entry.cursor for entry in self._handlers), default=0)
        while not self._closing:
            number = min([number, *(entry.cursor for entry in self._handlers if entry.fresh)])
            try:
                rows = self._gateway.call("events_since", number, 1000, True, patience_s=120.0)
            except DenClosed:
                return
            except Exception:
                log.exception("Reading events failed; it goes on.")
                time.sleep(0.2)
                continue
            for row in rows:
                recorded = _recorded(row)
                for entry in list(self._handlers):
                    entry.offer(recorded)
                number = recorded.number


class _Handler:
    """One subscriber, with its own cursor."""

    def __init__(
        self, kind: type[Any] | None, handler: Callable[[Any], None], cursor: int, draws_since: int | None = None
    ) -> None:
        self.kind, self.handler, self.cursor = kind, handler, cursor
        self.fresh = True
        self._draws_since = draws_since

    def offer(self, recorded: Recorded) -> None:
        self.fresh = False
        if recorded.number <= self.cursor:
            return
        self.cursor = recorded.number
        if self.kind is not None and not isinstance(recorded.event, self.kind):
            return
        began = time.monotonic()
        try:
            self.handler(recorded if self.kind is None else recorded.event)
        except Exception:
            log.exception("A handler of %s failed.", type(recorded.event).__name__)
        took_s = time.monotonic() - began
        if self.kind is not None and took_s > SLOW_HANDLER_S:
            log.warning("A handler of %s took %.0f ms.", type(recorded.event).__name__, took_s * 1000)


def _recorded(row: tuple[Any, ...]) -> Recorded:
    number, at, producer, name, fields = row
    return Recorded(number=number, at=at, producer=producer, event=decode(name, fields))


@atexit.register
def _close_all() -> None:
    for den in list(_open_dens):
        with contextlib.suppress(Exception):
            den.close()
