"""`as_completed` and `wait`: those of `concurrent.futures`, which take our futures as they are."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterable, Iterator
from typing import Any

from wolfpack.future import Future


def as_completed(futures: Iterable[Future], timeout: float | None = None) -> Iterator[Future]:
    """Yields futures as they settle, cancelled ones too.

    Raises:
        TimeoutError: not all settled within `timeout` seconds.
    """
    found: Iterator[Any] = concurrent.futures.as_completed(futures, timeout)
    return found


def wait(
    futures: Iterable[Future], timeout: float | None = None, return_when: str = concurrent.futures.ALL_COMPLETED
) -> tuple[set[Future], set[Future]]:
    """Waits for futures; returns those that settled and those that did not within `timeout` seconds."""
    done, pending = concurrent.futures.wait(futures, timeout, return_when)
    return set(done), set(pending)  # type: ignore[arg-type]
