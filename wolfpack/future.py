"""`Future`: what a submit returns. It settles once: with a value, the original exception, or a named cause."""

from __future__ import annotations

import concurrent.futures
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgpack

from wolfpack.errors import (
    RemoteTraceback,
    TaskCrashed,
    TaskError,
    TaskExpired,
    TaskFault,
    TaskLost,
    TaskTimeout,
)
from wolfpack.model import Attempt, Cause, TaskState

if TYPE_CHECKING:
    from wolfpack.pack import Den


class Future(concurrent.futures.Future[Any]):
    """The result of one task, when there is one.

    Beside what `concurrent.futures.Future` has: `task_id`, `attempts`, `unit`, `why()`, and `cancel(kill=True)`.
    """

    def __init__(self, den: Den, task_id: str) -> None:
        super().__init__()
        self._den = den
        self.task_id = task_id
        self.unit: str | None = None  # the unit that ended it
        self._story: bytes | None = None

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """Every start of the task's code so far, each with its unit, its times and its cause."""
        if self._story is None:
            return read_story(self._den._ask("attempts", self.task_id))
        return read_story(msgpack.unpackb(self._story, unicode_errors="surrogatepass")) if self._story else ()

    def why(self) -> str:
        """Why the task is where it is: its place in the queue, its unit, its cause of death."""
        return self._den.why(self)

    def cancel(self, *, kill: bool = False) -> bool:
        """Cancels the task if it has not started; with `kill`, ends it also while it runs.

        Returns:
            Whether the task is, or will be, cancelled. Without `kill` a running task goes on, as with
            `concurrent.futures`; with it, the future settles as cancelled once its process was ended.
        """
        if self.done():
            return self.cancelled()
        return self._den._cancel(self, kill=kill)

    def __repr__(self) -> str:
        return f"<wolfpack.Future {self.task_id} {'done' if self.done() else 'pending'}>"

    # --- settled by the watch ---

    def _settle(self, state: str, cause: str, text: str, payload: bytes, blob: str, unit: str, story: bytes) -> None:
        if self.done():
            return
        self.unit, self._story = unit or None, story
        if state == TaskState.CANCELLED:
            super().cancel()
            self.set_running_or_notify_cancel()
            return
        try:
            data = payload or (Path(blob).read_bytes() if blob else b"")
            if state == TaskState.DONE:
                self.set_result(pickle.loads(data) if data else None)
            else:
                self.set_exception(self._error(cause, text, data))
        except BaseException as exc:  # whatever loading the value raises must not leave the future hanging
            error = TaskFault(f"The result of {self.task_id} cannot be loaded here: {exc!r}", "FAULT", self.task_id)
            error.__cause__ = exc
            self.set_exception(error)

    def _error(self, cause: str, text: str, data: bytes) -> BaseException:
        story = self.attempts
        note = f"task {self.task_id}, attempt {len(story)}, on unit {self.unit}"
        error: BaseException
        if cause == Cause.FAULT and data:
            pickled, trace = msgpack.unpackb(data)
            try:
                error = pickle.loads(pickled) if pickled else TaskFault(text, cause, self.task_id)
            except BaseException as exc:  # its class is not importable here, or will not be rebuilt
                error = TaskFault(f"{text} (and it cannot be loaded here: {exc!r})", cause, self.task_id)
            if not isinstance(error, BaseException):
                error = TaskFault(text, cause, self.task_id)
            error.__cause__ = RemoteTraceback(trace)
        else:
            kinds: dict[str, Callable[[str, str, str], TaskError]] = {
                Cause.CRASH: TaskCrashed,
                Cause.OOM: TaskCrashed,
                Cause.TIMEOUT: TaskTimeout,
                Cause.EXPIRED: TaskExpired,
                Cause.LOST: TaskLost,
                Cause.FAULT: TaskFault,
            }
            error = kinds.get(Cause(cause), TaskError)(f"{cause}: {text}", cause, self.task_id)
        error.add_note(note)
        return error


def read_story(rows: Any) -> tuple[Attempt, ...]:
    return tuple(
        Attempt(
            number=number, lease_no=lease_no, unit=unit, boot=boot, cause=Cause(cause), started_at=started,
            ended_at=ended, text=text,
        )
        for number, lease_no, unit, boot, cause, started, ended, text in rows
    )  # fmt: skip
