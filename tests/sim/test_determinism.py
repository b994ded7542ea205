"""The same seed is the same run: in any process, under any PYTHONHASHSEED, on any Python that is supported."""

import os
import shutil
import subprocess
import sys

import pytest

from wolfpack.sim.den_run import play, run_den
from wolfpack.sim.plan import draw_plan

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SEEDS = (3, 11)
PROGRAM = f"""
from wolfpack.sim.den_run import run_den
print(*(run_den(seed=seed, seconds=30.0).trace_hash for seed in {SEEDS}))
"""


def hashes(python: str, hash_seed: str) -> list[str]:
    """What another process finds."""
    env = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": ROOT}
    done = subprocess.run([python, "-c", PROGRAM], env=env, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.fixture(scope="module")
def ours() -> list[str]:
    return [run_den(seed=seed, seconds=30.0).trace_hash for seed in SEEDS]


@pytest.mark.parametrize("hash_seed", ["0", "4711"])
def test_another_process_with_another_hash_seed_sees_the_same_run(ours: list[str], hash_seed: str) -> None:
    assert ours == hashes(sys.executable, hash_seed)


def other_pythons() -> list[str]:
    """Those on the PATH that have all the core needs, which is msgpack alone."""
    found = []
    for version in ("3.11", "3.12", "3.13"):
        python = shutil.which(f"python{version}")
        if python is None or version == f"3.{sys.version_info.minor}":
            continue
        look = subprocess.run([python, "-c", "import msgpack"], capture_output=True, timeout=30, check=False)
        if look.returncode == 0:
            found.append(python)
    return found


def test_every_other_python_at_hand_sees_the_same_run(ours: list[str]) -> None:
    """On a machine with one Python there is nothing to compare; then this says nothing."""
    pythons = other_pythons()
    assert [ours] * len(pythons) == [hashes(python, "1") for python in pythons]


def test_two_seeds_are_two_runs(ours: list[str]) -> None:
    assert 2 == len(set(ours))


def test_a_run_does_not_depend_on_what_ran_before_it_in_the_process() -> None:
    plan = draw_plan(5, seconds=20.0)
    first = play(plan)
    play(draw_plan(6, seconds=20.0))
    again = play(plan)
    assert (first.trace_hash, first.steps) == (again.trace_hash, again.steps)
