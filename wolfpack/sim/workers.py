"""Processes that run simulations side by side. Ctrl-C, which reaches them too, is for the one that waits for them."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.pool import Pool


@contextmanager
def workers(jobs: int) -> Iterator[Pool]:
    """A pool of new processes that do not hear SIGINT; they end with the block, whatever ends it."""
    resource_tracker.ensure_running()  # its start would let SIGINT through again
    # New processes inherit what is blocked, so that they are deaf from their first moment on.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        pool = multiprocessing.get_context("spawn").Pool(jobs)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    with pool:
        yield pool
