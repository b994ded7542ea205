"""What the tests of the command line share: the command in this process, and as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner, Result

from wolfpack.cli import cli

ROOT = Path(__file__).parents[2]

PACK = """\
den: {den}
ledger: sqlite:///.wolfpack/{den}.db
graphs: {graphs}
units:
  grey: {{count: 2, awake_min: 1, offers: [cpu], ray: {{num_cpus: 0.1}}}}
packs:
  computing: {{size: [0, 2], needs: [cpu], retry: {{max_attempts: 1}}}}
job: {{task: job_of_tests:job, options: {{count: 3}}}}
"""

JOB = '''\
import pathlib
import time


def wait_for(path, n):
    """Says that it started, and ends when there is a file `path`."""
    pathlib.Path(f"{path}.started-{n}").touch()
    while not pathlib.Path(path).exists():
        time.sleep(0.02)
    pathlib.Path(f"{path}.ended-{n}").touch()
    return n


def fail(text):
    raise ValueError(text)


def add(first, second=2):
    return first + second


def job(pack, *, count: int = 1, gate: str | None = None, loud: bool = False, every_s: float = 0.0,
        resume: str | None = None, json: bool = False, _run=None):
    """Adds numbers.

    Args:
        count: how many tasks
            there are.
        gate: tasks wait for this file.
    """
    print("the job is running", flush=True)
    futures = []
    for n in range(count):
        task = (wait_for, gate, n) if gate else (add, n)
        futures.append(pack.options(key=f"{resume or _run}:{n}").submit(*task))
        print(f"submitted {n}", flush=True)
        time.sleep(every_s)
    return {"submitted": count, "done": len([each.result() for each in futures]), "dead": 0, "loud": loud}
'''


def write_pack(folder: Path, den: str = "clitest", graphs: str = "null") -> Path:
    """A pack.yaml and the modules it names."""
    (folder / "job_of_tests.py").write_text(JOB)
    path = folder / "pack.yaml"
    path.write_text(PACK.format(den=den, graphs=graphs))
    return path


def call(*words: str | Path) -> Result:
    """The command in this process."""
    return CliRunner().invoke(cli, [str(word) for word in words])


def environment() -> dict[str, str]:
    """Never somebody else's cluster."""
    return {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"} | {"PYTHONPATH": str(ROOT)}


def command(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "wolfpack.cli", *map(str, words)]


def start(folder: Path, *words: str | Path, patience_s: float = 100.0) -> subprocess.CompletedProcess[str]:
    """The command as a process, to its end."""
    return subprocess.run(
        command(*words), cwd=folder, env=environment(), capture_output=True, text=True, timeout=patience_s, check=False
    )
