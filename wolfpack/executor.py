"""`PackExecutor`: a pack where a library asks for a `concurrent.futures.Executor`."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from typing import Any

from wolfpack.errors import DenClosed
from wolfpack.future import Future
from wolfpack.pack import Pack


class PackExecutor(concurrent.futures.Executor):
    """Submits to one pack. `shutdown` waits for what was submitted here; the den stays open."""

    def __init__(self, pack: Pack) -> None:
        self._pack = pack
        self._futures: set[Future] = set()
        self._is_shut = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        """Queues `fn(*args, **kwargs)`.

        Raises:
            DenClosed: after `shutdown`.
        """
        if self._is_shut:
            raise DenClosed("cannot submit after shutdown of this executor")
        future = self._pack.submit(fn, *args, **kwargs)
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Takes nothing more; waits for what is there, or cancels what has not started."""
        self._is_shut = True
        if cancel_futures:
            for future in list(self._futures):
                future.cancel()
        if wait:
            concurrent.futures.wait(list(self._futures))
