"""What a running task can know and say: `wolfpack.current()`.

    def work(path):
        task = wolfpack.current()
        for n, row in enumerate(task.state.rows(path)):   # what `setup` of the hands returned
            if task.should_stop():                        # recalled or cancelled: leave at a good place
                return n
            task.progress(n)

In hands of their own process one plain function runs at a time, so a thread that it starts finds the task as well.
Where several run side by side (coroutines, `isolation: thread`) the task is found by the context it runs in.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from wolfpack.errors import CallerError

if TYPE_CHECKING:
    from wolfpack.model import Job  # hands start faster without


class Link(Protocol):
    """How the task's surroundings are reached: the hands it runs in."""

    unit: str
    state: Any

    def should_stop(self, lease_no: int) -> bool: ...

    def progress(self, lease_no: int) -> None: ...

    def publish(self, name: str, fields: str) -> None: ...


class Current:
    """The task that runs here."""

    __slots__ = ("_link", "attempts", "key", "lease_no", "task_id")

    def __init__(self, job: Job, link: Link) -> None:
        #: The key of the task, or its id where it has none: the same for every attempt, and of no other task in its
        #: pack. Outside systems fence by (key, lease_no): the highest lease_no wins.
        self.key: str = job.key or job.task_id
        self.lease_no: int = job.lease_no
        #: The number of this start, 1 for the first.
        self.attempts: int = job.attempt
        self.task_id: str = job.task_id
        self._link = link

    @property
    def unit(self) -> str:
        return self._link.unit

    @property
    def state(self) -> Any:
        """What `setup` of these hands returned; None without a setup."""
        return self._link.state

    def should_stop(self) -> bool:
        """Whether the task was cancelled, or its unit is called away: return, or save and raise, within its grace."""
        return self._link.should_stop(self.lease_no)

    def progress(self, value: object = None) -> None:  # noqa: ARG002
        """Says that the task got further and that a later start would go on from there.

        A task that said so is not charged for an eviction.

        Args:
            value: how far, for the reader of the code; only the call itself counts.
        """
        self._link.progress(self.lease_no)

    def publish(self, event: object) -> None:
        """Publishes an event: any frozen dataclass of plain fields. It is stored even if the task fails afterwards.

        Raises:
            CallerError: it is no such dataclass, or this is a forked copy of the task's process.
        """
        from wolfpack.events import encode  # few tasks publish: the others need not load it

        self._link.publish(*encode(event))


_in_context: ContextVar[tuple[Job, Link] | None] = ContextVar("wolfpack_task", default=None)
_in_process: tuple[Job, Link] | None = None


def current() -> Current:
    """The task that this code runs in.

    Raises:
        CallerError: this is not a task of a pack.
    """
    found = _in_context.get() or _in_process
    if found is None:
        raise CallerError(
            "wolfpack.current() was called outside a task. It answers in the function that was submitted to a pack and "
            "in what that calls; pass its values on to threads and processes that you start yourself."
        )
    return Current(*found)


def enter_context(job: Job, link: Link) -> None:
    """Names the task of this context (a coroutine's, or a thread's). Called by the hands."""
    _in_context.set((job, link))


def leave_context() -> None:
    _in_context.set(None)


def set_process_task(task: tuple[Job, Link] | None) -> None:
    """Names the one task of this process. Called by the hands."""
    global _in_process
    _in_process = task
