"""Keeps checked tasks in flight, from a thread of its own, and notes when and how each one ended."""

from __future__ import annotations

import threading
import time
from concurrent.futures import CancelledError
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from wolfpack.chaos.judge import Seen
from wolfpack.chaos.plan import task_seconds
from wolfpack.chaos.task import checked
from wolfpack.errors import TaskError, WolfPackError
from wolfpack.model import TaskState

if TYPE_CHECKING:
    from wolfpack.future import Future
    from wolfpack.pack import Pack

IN_FLIGHT = 500


@dataclass(slots=True)
class Gap:
    """The longest time without a result, from the first result on."""

    longest_s: float = 0.0
    ended_at: float = 0.0  # wall clock
    last_at: float | None = None

    def note(self, now: float, wall: float) -> None:
        if self.last_at is not None and now - self.last_at > self.longest_s:
            self.longest_s, self.ended_at = now - self.last_at, wall
        self.last_at = now


class Work:
    """The tasks of one run: `with Work(...) as work: ...`.

    Args:
        total: submit so many; `extend` raises it.
        record: the file in which the tasks note their starts.
    """

    def __init__(self, pack: Pack, *, total: int, seed: int, record: Path, in_flight: int = IN_FLIGHT) -> None:
        self._pack, self._seed, self._record = pack, seed, str(record)
        self._in_flight = in_flight
        self._lock = threading.Condition()
        self._total = total
        self._stopped = False
        self._settled = 0
        self._futures: list[tuple[str, Future]] = []
        self._gap = Gap()
        self._began_at = time.monotonic()
        self._thread = threading.Thread(target=self._feed, name="wolfpack-chaos-work", daemon=True)
        self.trouble: WolfPackError | None = None  # what ended the feeding

    def __enter__(self) -> Work:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        with self._lock:
            self._stopped = True
            self._lock.notify_all()
        self._thread.join(5.0)

    @property
    def submitted(self) -> int:
        return len(self._futures)

    @property
    def settled(self) -> int:
        return self._settled

    @property
    def is_over(self) -> bool:
        """Whether all tasks were submitted and have ended."""
        return self._settled >= self._total

    @property
    def gap(self) -> Gap:
        return self._gap

    def quiet_s(self) -> float:
        """How long nothing has ended."""
        return time.monotonic() - (self._gap.last_at or self._began_at)

    def extend(self) -> None:
        """More work, so that there is some for a while."""
        with self._lock:
            if self._total < self._settled + self._in_flight:
                self._total = self._settled + self._in_flight
                self._lock.notify_all()

    def _feed(self) -> None:
        while True:
            with self._lock:
                while not self._stopped and (
                    self.submitted >= self._total or self.submitted - self._settled >= self._in_flight
                ):
                    self._lock.wait(1.0)
                if self._stopped:
                    return
            number = self.submitted
            key = f"{self._seed}-{number}"
            try:
                future = self._pack.submit(checked, self._record, key, task_seconds(self._seed, number))
            except WolfPackError as exc:
                self.trouble = exc
                return
            self._futures.append((key, future))
            future.add_done_callback(self._on_done)

    def _on_done(self, _: object) -> None:
        with self._lock:
            self._settled += 1
            self._gap.note(time.monotonic(), time.time())
            self._lock.notify_all()

    def seen(self) -> list[Seen]:
        """How each task ended, as far as its client knows."""
        return [see(key, future) for key, future in self._futures]


def see(key: str, future: Future) -> Seen:
    """How a task ended for its client. Only an end that is the task's own counts: not that the den was gone."""
    if not future.done():
        return Seen(key=key, task_id=future.task_id, state=None, text="it has not ended")
    try:
        return Seen(key=key, task_id=future.task_id, state=TaskState.DONE, value=future.result())
    except CancelledError:
        return Seen(key=key, task_id=future.task_id, state=TaskState.CANCELLED)
    except TaskError as exc:
        return Seen(key=key, task_id=future.task_id, state=TaskState.DEAD, text=str(exc))
    except BaseException as exc:
        is_own = any("attempt" in note for note in getattr(exc, "__notes__", ()))  # what the task itself raised
        state = TaskState.DEAD if is_own else None
        return Seen(key=key, task_id=future.task_id, state=state, text=f"{type(exc).__name__}: {exc}")
