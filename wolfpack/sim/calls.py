"""Calls between the processes of a simulated world: each ends exactly once, answered or lost."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from wolfpack.sim.kernel import Kernel, to_us


class Caller(Protocol):
    """The process that a call comes from, where it is one that can go deaf."""

    deaf: bool


class Call:
    """One call on its way: exactly one of `done(value)` and `lost(why)` follows, whatever arrives later.

    Args:
        source: the caller's end of the network.
        caller: while it is deaf its connections break: an answer that arrives then is lost.
    """

    __slots__ = ("_caller", "_done", "_lost", "over", "source")

    def __init__(
        self,
        source: str,
        done: Callable[[Any], object],
        lost: Callable[[Any], object],
        caller: Caller | None = None,
    ) -> None:
        self.source = source
        self._done, self._lost, self._caller = done, lost, caller
        self.over = False

    def finish(self, value: Any) -> None:
        if self.over:
            return
        self.over = True
        if self._caller is not None and self._caller.deaf:
            self._lost("the connection broke")
        else:
            self._done(value)

    def fail(self, why: Any) -> None:
        if not self.over:
            self.over = True
            self._lost(why)


class Deadlines:
    """Fails the calls that got no answer in time. One time for all of them, so they come due in their order."""

    def __init__(self, kernel: Kernel, timeout_s: float, why: str) -> None:
        self._kernel, self._timeout_us, self._why = kernel, to_us(timeout_s), why
        self._open: deque[tuple[int, Call]] = deque()
        self._armed = False

    def watch(self, call: Call) -> None:
        due_us = self._kernel.now_us + self._timeout_us
        self._open.append((due_us, call))
        if not self._armed:
            self._armed = True
            self._kernel.at_us(due_us, self._judge)

    def _judge(self) -> None:
        self._armed = False
        calls, now_us = self._open, self._kernel.now_us
        while calls and (calls[0][1].over or calls[0][0] <= now_us):
            calls.popleft()[1].fail(self._why)
        if calls:
            self._armed = True
            self._kernel.at_us(calls[0][0], self._judge)
