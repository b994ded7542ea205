"""The day job of a werewolf, seen from its unit: a child process of its own, with the same main module as hands.

The class of the user has `step()` (returns the seconds until the next), `checkpoint()` and `restore(state)`. The child
sends a checkpoint after each step, so a day job that crashed, was killed or left goes on after its last whole step. A
day job that fails is started again from there, with growing pauses, until it is stopped or leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from wolfpack.den.child import Child
from wolfpack.den.processes import describe_end
from wolfpack.errors import SetupFailed

RESTART_S = 1.0
RESTART_MAX_S = 60.0


class DayJob:
    """See the head of this file.

    Args:
        path: `module:Class`.
        folder: put first on the module search path of the child.
        state: the last checkpoint, as `on_step` or `leave` gave it; b"" starts afresh.
        on_step: called after each step with the number of steps since `start`, the seconds until the next, and the
            checkpoint to be kept.
        on_failed: called with one text when a step raised or the process died; it is started again by itself.
    """

    def __init__(
        self,
        path: str,
        *,
        unit: str,
        boot: int,
        folder: str | None,
        state: bytes,
        on_step: Callable[[int, float, bytes], None],
        on_failed: Callable[[str], None],
    ) -> None:
        self._path = path
        self._unit = unit
        self._boot = boot
        self._folder = folder
        self._state = state
        self._on_step = on_step
        self._on_failed = on_failed
        self._child: Child | None = None
        self._steps = 0
        self._failures = 0
        self._failed = ""
        self._ready: asyncio.Future[None] | None = None
        self._left: asyncio.Future[bytes] | None = None
        self._howl_no = 0
        self._gone = asyncio.Event()
        self._gone.set()
        self._is_ending = False
        self._restart: asyncio.TimerHandle | None = None

    @property
    def is_running(self) -> bool:
        return self._child is not None

    async def start(self) -> None:
        """Starts the process, or starts it again after `leave`; returns when the object is made and restored.

        Raises:
            SetupFailed: with the traceback of the class, or how the process ended.
        """
        self._is_ending = False
        ready = self._ready = asyncio.get_running_loop().create_future()
        self._spawn()
        try:
            await ready
        except BaseException:
            await self.stop()
            raise
        finally:
            self._ready = None

    async def leave(self, grace_s: float) -> bytes | None:
        """Lets the step that runs end within `grace_s`, ends the process and returns the checkpoint to go on from.

        None: the step did not end in time; the day job goes on as if it had not been asked.
        """
        self._cancel_restart()
        if self._child is None:  # between a failure and the next start: nothing runs that must end
            return self._state
        self._howl_no += 1
        left = self._left = asyncio.get_running_loop().create_future()
        self._child.send(["leave", self._howl_no])
        try:
            async with asyncio.timeout(grace_s):
                await asyncio.shield(left)
        except TimeoutError:
            if self._child is not None:
                self._child.send(["stay", self._howl_no])
            return None
        finally:
            self._left = None
        await self.stop()
        return self._state

    async def stop(self) -> None:
        """Kills the process with everything it started, and waits until it is gone; the last checkpoint stands."""
        self._is_ending = True
        self._cancel_restart()
        if self._child is not None:
            self._child.kill()
        await self._gone.wait()

    def _cancel_restart(self) -> None:
        if self._restart is not None:
            self._restart.cancel()
            self._restart = None

    def _spawn(self) -> None:
        self._restart = None
        self._failed = ""
        self._gone.clear()
        config: dict[str, Any] = {
            "mode": "day", "unit": self._unit, "boot": self._boot, "path": self._path, "state": self._state,
        }  # fmt: skip
        self._child = Child(
            config,
            unit=self._unit,
            folder=self._folder,
            on_messages=self._on_messages,
            on_gone=self._on_gone,
            on_log=self._on_failed,
        )

    def _on_messages(self, messages: list[list[Any]]) -> None:
        for kind, *rest in messages:
            match kind:
                case "ready":
                    if self._ready is not None and not self._ready.done():
                        self._ready.set_result(None)
                case "step":
                    next_s, self._state = rest
                    self._steps += 1
                    self._failures = 0
                    self._on_step(self._steps, next_s, self._state)
                case "left":
                    number, self._state = rest
                    if self._left is not None and not self._left.done() and number == self._howl_no:
                        self._left.set_result(self._state)
                case "failed":
                    what, traceback = rest
                    verb = "could not be made" if what == "birth" else "failed in a step"
                    self._failed = f"The day job {self._path} of {self._unit} {verb}:\n{traceback}"

    def _on_gone(self, status: int | None) -> None:
        self._child = None
        self._gone.set()
        how = "the end of its guard process" if status is None else describe_end(status)
        text = self._failed or f"The day job {self._path} of {self._unit} ended by {how}."
        if self._ready is not None:
            if not self._ready.done():
                self._ready.set_exception(SetupFailed(text))
            return
        if self._is_ending:
            return
        if self._left is not None and not self._left.done():
            self._left.set_result(self._state)  # its step ended, if in an unwished way: the last checkpoint counts
        self._on_failed(text)
        pause_s = restart_pause_s(self._failures)
        self._failures += 1
        self._restart = asyncio.get_running_loop().call_later(pause_s, self._spawn)


def restart_pause_s(failures: int) -> float:
    """Seconds to wait after a failure that followed `failures` others with no whole step between."""
    return min(RESTART_MAX_S, RESTART_S * 2.0 ** min(failures, 16))
