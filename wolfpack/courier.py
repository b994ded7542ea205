"""The courier of one client: the submit path to the keeper, and the watch path back.

Calls go into an outbox; one thread sends what has gathered as one batch and waits for its acknowledgement, so batches
form by themselves. A second thread watches for finished tasks from a cursor and settles their futures. After a gap (a
new keeper, a client that was away for long) everything that waits is looked up. A future is entered before its task is
sent, and a batch that is sent again has the same numbers: so nothing is lost, and nothing exists twice.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from wolfpack.core.wire import Submit, SubmitItem, pack, unpack
from wolfpack.errors import (
    CallerError,
    DenClosed,
    KeyConflict,
    NeedInfeasible,
    OperatorError,
    QueueFull,
    WolfPackError,
    unknown_task,
)
from wolfpack.future import Future

if TYPE_CHECKING:
    from wolfpack.den.gateway import Gateway  # brings Ray

log = logging.getLogger("wolfpack.den")

BATCH_MOST = 4000  # tasks in one submit
BATCH_BYTES = 8 << 20
OUTBOX_MOST = 50_000  # submit waits when so many are not acknowledged
LOOK_MOST = 1000
PATIENCE_S = 120.0


class Entry:
    """One call on its way out."""

    __slots__ = ("code", "future", "item", "pack")

    def __init__(self, pack: str, item: SubmitItem, code: bytes, future: Future) -> None:
        self.pack, self.item, self.code, self.future = pack, item, code, future


class Courier:
    """Sends tasks and settles their futures.

    Args:
        gateway: the way to the keeper.
        client: this client's id: its tasks are `client:counter`.
        submit_timeout_s: how long a pack's submit waits while its queue is full.
        on_new_keeper: called when the keeper was born again.
    """

    def __init__(
        self,
        gateway: Gateway,
        client: str,
        submit_timeout_s: Callable[[str], float],
        on_new_keeper: Callable[[], None],
    ) -> None:
        self._gateway = gateway
        self._client = client
        self._submit_timeout_s = submit_timeout_s
        self._on_new_keeper = on_new_keeper
        self._lock = threading.Condition()
        self._outbox: deque[Entry] = deque()
        self._unacknowledged = 0
        self._pending: dict[str, list[Future]] = {}
        self._counter = 0
        self._sent_functions: set[str] = set()
        self._unmet: set[str] = set()  # said once each
        self._seen_commit = 0
        self._cursor = 0
        self._epoch = gateway.status["epoch"]
        self._closing = False
        self._takes_tasks = True
        self._sender = threading.Thread(target=self._send_for_ever, name="wolfpack-submit", daemon=True)
        self._watcher = threading.Thread(target=self._watch_for_ever, name="wolfpack-watch", daemon=True)
        self._sender.start()
        self._watcher.start()

    # --- submitting ---------------------------------------------------------------------------------------------

    def next_counter(self) -> int:
        """The number of the next task. Waits while too many are not acknowledged.

        Raises:
            DenClosed: nothing can be submitted any more.
        """
        with self._lock:
            while self._unacknowledged >= OUTBOX_MOST and not self._closing and self._takes_tasks:
                self._lock.wait(1.0)
            if self._closing:
                raise DenClosed("The den was closed; open it again to submit.")
            if not self._takes_tasks:
                raise DenClosed("This process submits no more tasks: it was told to stop.")
            self._counter += 1
            return self._counter

    def send(self, pack_name: str, item: SubmitItem, code: bytes, future: Future) -> None:
        with self._lock:
            self._outbox.append(Entry(pack_name, item, code, future))
            self._unacknowledged += 1
            self._pending[future.task_id] = [future]
            if len(self._outbox) == 1:
                self._lock.notify_all()

    def take_out(self, future: Future) -> bool:
        """Takes a call out of the outbox that was not sent yet; its future is cancelled."""
        with self._lock:
            entry = next((each for each in self._outbox if each.future is future), None)
            if entry is None:
                return False
            self._outbox.remove(entry)
            self._unacknowledged -= 1
            self._pending.pop(future.task_id, None)
        future._settle("cancelled", "CANCELLED", "", b"", "", "", b"")
        return True

    def flush(self) -> None:
        """Waits until everything submitted so far is durable, or was refused."""
        with self._lock:
            while self._unacknowledged and not self._closing:
                self._lock.wait(1.0)

    def await_sent(self, future: Future) -> None:
        """Waits until this call has left the outbox."""
        with self._lock:
            while any(each.future is future for each in self._outbox) and not self._closing:
                self._lock.wait(0.05)

    def stop_submitting(self) -> int:
        with self._lock:
            self._takes_tasks = False
            self._lock.notify_all()
            return len(self._pending)

    def unsettled(self) -> list[str]:
        """Ids of the tasks that this process waits for."""
        return list(self._pending)

    def _send_for_ever(self) -> None:
        while batch := self._take_batch():
            self._send_or_refuse(batch)
            with self._lock:
                self._unacknowledged -= len(batch)
                self._lock.notify_all()

    def _send_or_refuse(self, batch: list[Entry]) -> None:
        """Sends a batch; where one call in it cannot be taken, the others are sent without it."""
        try:
            self._send(batch)
        except Exception as exc:
            if len(batch) > 1 and not isinstance(exc, OperatorError | DenClosed | QueueFull):
                self._send_or_refuse(batch[: len(batch) // 2])
                self._send_or_refuse(batch[len(batch) // 2 :])
                return
            error = exc if isinstance(exc, WolfPackError) else CallerError(f"The call cannot be sent: {exc!r}")
            for entry in batch:
                self._refuse(entry.future, error)

    def _take_batch(self) -> list[Entry]:
        """The calls at the head of the outbox that go to one pack; empty when the den is closed."""
        with self._lock:
            while not self._outbox and not self._closing:
                self._lock.wait(1.0)
            batch: list[Entry] = []
            size = 0
            while self._outbox and len(batch) < BATCH_MOST and size < BATCH_BYTES:
                if batch and self._outbox[0].pack != batch[0].pack:
                    break
                entry = self._outbox.popleft()
                size += len(entry.item.args)
                batch.append(entry)
            return batch

    def _send(self, batch: list[Entry]) -> None:
        items = tuple(entry.item for entry in batch)
        functions = {entry.item.fn: entry.code for entry in batch if entry.item.fn not in self._sent_functions}
        frame = pack(Submit(self._client, batch[0].pack, items, tuple(functions.items()), self._seen_commit))
        full_since: float | None = None
        while True:
            try:
                commit_no, _, acks = unpack(self._gateway.call("submit", frame, patience_s=PATIENCE_S))
                break
            except QueueFull:
                if len(batch) > 1:  # what fits goes in, the rest waits
                    self._send(batch[: len(batch) // 2])
                    self._send(batch[len(batch) // 2 :])
                    return
                full_since = full_since or time.monotonic()
                if self._closing or time.monotonic() - full_since > self._submit_timeout_s(batch[0].pack):
                    raise
                time.sleep(0.05)
        self._seen_commit = max(self._seen_commit, commit_no)
        self._sent_functions.update(functions)
        joined = [self._take_ack(ack, entry.future) for ack, entry in zip(acks or (), batch, strict=False)]
        if any(joined):  # such a task may have ended before we waited for it
            self.look([task_id for task_id in joined if task_id])

    def _take_ack(self, ack: tuple[str, str, Any], future: Future) -> str:
        """Takes what became of one call; the id of the task, if it was there before and is not final."""
        verdict, task_id, final = ack
        if verdict.startswith("conflict"):
            self._refuse(future, KeyConflict(f"Not submitted: {verdict}."))
            return ""
        if verdict.startswith("unmet") and verdict not in self._unmet:
            self._unmet.add(verdict)
            log.warning("%s Its tasks wait.", verdict.removeprefix("unmet: "))
        if verdict.startswith("infeasible"):
            self._refuse(future, NeedInfeasible(verdict.removeprefix("infeasible: ")))
            return ""
        if task_id != future.task_id:  # the task was there before, under the same key
            with self._lock:
                self._pending.pop(future.task_id, None)
                future.task_id = task_id
                self._pending.setdefault(task_id, []).append(future)
        if final is not None:
            self._settle(final)
            return ""
        return task_id if verdict == "joined" else ""

    def _refuse(self, future: Future, error: Exception) -> None:
        self._pending.pop(future.task_id, None)
        if not future.done():
            future.set_exception(error)

    # --- watching -----------------------------------------------------------------------------------------------

    def await_end_of(self, future: Future) -> Future:
        """Enters a future for a task that was submitted before, by anybody.

        Raises:
            UnknownName: nobody ever submitted such a task.
        """
        with self._lock:
            known = self._pending.setdefault(future.task_id, [])
            if known:
                return known[0]
            known.append(future)
        if not self.look([future.task_id]):
            error = unknown_task(future.task_id)
            self._refuse(future, error)  # another thread may have been given it meanwhile
            raise error
        return future

    def look(self, task_ids: list[str]) -> int:
        """Asks for the present state of tasks and settles those that ended; says how many exist."""
        answer = unpack(self._gateway.call("look", self._client, task_ids))
        for _, _, final in answer:
            if final is not None:
                self._settle(final)
        return len(answer)

    def _settle(self, final: tuple[Any, ...]) -> None:
        task_id, state, cause, text, payload, blob, unit, story, _ = final
        with self._lock:
            futures = self._pending.pop(task_id, ())
        for future in futures:
            try:
                future._settle(state, cause, text, payload, blob, unit, story)
            except BaseException:  # also a callback's SystemExit: the watch goes on for all others
                log.exception("A callback of the future of %s failed.", task_id)

    def _watch_for_ever(self) -> None:
        while True:
            try:
                answer = self._gateway.call("watch", self._client, self._cursor, patience_s=PATIENCE_S)
            except DenClosed as exc:
                if not self._closing:
                    self.abandon(str(exc))
                return
            except Exception:
                if self._closing:
                    return
                log.exception("The watch failed; it goes on.")
                time.sleep(0.2)
                continue
            finals, cursor, gap, epoch, closing = unpack(answer)
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
            if epoch != self._epoch:
                self._on_new_keeper()
            with self._lock:
                sending = {entry.future.task_id for entry in self._outbox}
            waiting = [task_id for task_id in list(self._pending) if task_id not in sending]
            for start in range(0, len(waiting), LOOK_MOST):
                self.look(waiting[start : start + LOOK_MOST])
            self._epoch = epoch
        except WolfPackError:
            log.warning("Pending tasks could not be looked up; the next watch tries again.", exc_info=True)

    # --- the end ------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Takes nothing more, and gives what is in the outbox a moment to become durable."""
        with self._lock:
            self._closing = True
            self._lock.notify_all()
        _join(self._sender, 5.0)

    def join(self) -> None:
        """Waits for the watch; the gateway is closed by now."""
        _join(self._watcher, 6.0)

    def abandon(self, text: str) -> None:
        """Settles what is left with `DenClosed`."""
        for futures in list(self._pending.values()):
            for future in futures:
                if not future.done():
                    with contextlib.suppress(Exception):
                        future.set_exception(DenClosed(text))
        self._pending.clear()


def _join(thread: threading.Thread, timeout_s: float) -> None:
    if thread is not threading.current_thread():  # the den may be closed from a callback of a future
        thread.join(timeout_s)
