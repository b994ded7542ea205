"""An asyncio loop whose clock jumps: what waits for time gets it at once, in order, so hours cost milliseconds."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any


class _Jump(selectors.DefaultSelector):
    """Never waits: moves the clock by as long as the loop would have slept."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError("everybody waits, and nothing will ever happen")
        if not ready and timeout:
            self.now += timeout
        return ready


def run(main: Coroutine[Any, Any, Any]) -> Any:
    """`asyncio.run` in virtual time, which starts at 0."""
    jump = _Jump()
    loop = asyncio.SelectorEventLoop(jump)
    loop.time = lambda: jump.now  # type: ignore[method-assign]
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main)
