"""Processes beside this one."""

from __future__ import annotations

import os
import signal

import pytest

from wolfpack.sim.workers import workers


def test_workers_do_not_hear_ctrl_c_and_this_process_still_does() -> None:
    with workers(1) as pool:
        pid = pool.apply_async(os.getpid).get(20)
        for _ in range(3):
            os.kill(pid, signal.SIGINT)
            assert pid == pool.apply_async(os.getpid).get(20)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
