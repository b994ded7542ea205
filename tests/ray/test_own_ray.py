"""A Ray of our own, started by `wolfpack.open`, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.ray.support import ROOT

PROGRAM = """
import wolfpack

with wolfpack.open() as den:
    print(den.pack().submit(pow, 2, 5).result(90))
"""


def test_a_stale_record_of_another_cluster_does_not_keep_our_own_ray_from_starting(ray_cluster):
    with tempfile.TemporaryDirectory(prefix="wp", ignore_cleanup_errors=True) as folder:  # short: it holds sockets
        Path(folder, "ray").mkdir()
        Path(folder, "ray", "ray_current_cluster").write_text("127.0.0.1:1")
        environment = {**os.environ, "RAY_TMPDIR": folder}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], capture_output=True, text=True, cwd=ROOT, env=environment, timeout=150
        )

    assert ("32\n", 0) == (done.stdout, done.returncode), done.stderr
    assert "RAY_ADDRESS=127.0.0.1:1" in done.stderr
    assert 1 == len(done.stderr.strip().splitlines()), done.stderr
