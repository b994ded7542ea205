"""What Ctrl-C does to a job: first stop submitting and drain, then cancel, then kill.

The terminal sends Ctrl-C to its whole foreground process group. Ray blocks the signal in what it starts, and units lead
process groups of their own, hands with them; so this process alone acts on it. The job runs in the main thread and is
not torn out of what it does: the handler only counts, and a thread acts on the count, since asking the keeper from
inside a handler could meet the very lock that the job holds. Only the third signal raises `Killed` in the job.
"""

from __future__ import annotations

import os
import queue
import signal
import threading
from collections.abc import Callable
from typing import Any, Protocol

from wolfpack.cli.common import INTERRUPTED
from wolfpack.cli.render import counted
from wolfpack.errors import WolfPackError

KILL = 3


class Killed(KeyboardInterrupt):
    """The third Ctrl-C: the job ends where it stands."""


class Stoppable(Protocol):
    """What of a den is needed here."""

    def stop_submitting(self) -> int: ...

    def cancel_all(self, *, kill: bool = False) -> int: ...

    def unsettled(self) -> int: ...


class Interrupts:
    """Takes Ctrl-C while a job runs: `with Interrupts(den, say) as interrupts: ...`.

    Args:
        say: shows one sentence to a person; called from another thread.
        last_words: what a person must know when this process ends at once.
    """

    def __init__(self, den: Stoppable, say: Callable[[str], None], last_words: str = "") -> None:
        self.count = 0
        self._den = den
        self._say = say
        self._last_words = last_words
        self._queue: queue.SimpleQueue[int] = queue.SimpleQueue()  # may be filled from a signal handler
        self._thread = threading.Thread(target=self._act_for_ever, name="wolfpack-interrupts", daemon=True)
        self._former: Any = None

    def __enter__(self) -> Interrupts:
        self._thread.start()
        self._former = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *exc: object) -> None:
        signal.signal(signal.SIGINT, self._former if self.count == 0 else self._end_at_once)
        self._queue.put(0)

    def _on_signal(self, *_: Any) -> None:
        self.count += 1
        if self.count < KILL:
            self._queue.put(self.count)
        elif self.count == KILL:
            raise Killed
        else:
            self._end_at_once()

    def _end_at_once(self, *_: Any) -> None:
        """One Ctrl-C more, while the den is being closed: the kernel ends our Ray with us."""
        os.write(2, f"\n{self._last_words}\n".encode())
        os._exit(INTERRUPTED)

    def _act_for_ever(self) -> None:
        while (number := self._queue.get()) != 0:
            try:
                self._act(number)
            except WolfPackError as exc:
                self._say(f"That did not work: {exc}")

    def _act(self, number: int) -> None:
        if number == 1:
            left = self._den.stop_submitting()
            self._say(
                f"Interrupted: nothing more is submitted; {counted(left, 'submitted task')} will be finished. "
                "Ctrl-C again cancels them, a third one ends everything at once."
            )
        else:
            self._say("Cancelling what is queued and running. Ctrl-C again ends everything at once.")
            cancelled = self._den.cancel_all(kill=True)
            self._say(f"{counted(cancelled, 'task')} cancelled.")
