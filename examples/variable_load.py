"""A load that nobody can predict, and a pack that follows it: calm, storm, calm.

    python examples/variable_load.py

All units sleep at first. The calm needs one of them, the storm wakes the rest, and when it is over they go back to
sleep. A line every half second shows what waits, what runs, and who is there.
"""

from __future__ import annotations

import tempfile
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

import wolfpack

PACK_YAML = """
den: variable-load
ledger: sqlite:///variable-load.db
units:
  grey: {count: 5, offers: [cpu], sleep_after_s: 1.5, ray: {num_cpus: 0.2}}
packs:
  work: {size: [0, 5], needs: [cpu], drain_target_s: 1}
"""
TASK_S = 0.1
LINE_EVERY_S = 0.5


class Phase(NamedTuple):
    name: str
    seconds: float
    tasks_per_s: float


PHASES = (Phase("calm", 2, 3), Phase("storm", 4, 45), Phase("calm", 3, 3))


class Moment(NamedTuple):
    """What one line shows."""

    at_s: float
    phase: str
    queued: int
    leased: int
    members: int


def main(phases: tuple[Phase, ...] = PHASES) -> list[Moment]:
    """Runs the phases on a den of its own and returns what was seen on the way."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "pack.yaml")
        file.write_text(PACK_YAML)
        with wolfpack.open(str(file)) as den:
            return follow(den.pack("work"), phases)


def follow(pack: wolfpack.Pack, phases: tuple[Phase, ...]) -> list[Moment]:
    """Submits tasks at the rate of each phase, prints a line now and then, and waits for all results."""
    futures: list[Future[Any]] = []
    moments: list[Moment] = []
    began = time.monotonic()
    next_line = 0.0
    for phase in phases:
        print(f"-- {phase.name}: {phase.tasks_per_s:g} tasks a second, {TASK_S:g} s each", flush=True)
        phase_began = time.monotonic()
        due = 0
        while (in_phase := time.monotonic() - phase_began) < phase.seconds:
            while due < in_phase * phase.tasks_per_s:
                futures.append(pack.submit(time.sleep, TASK_S))
                due += 1
            if (now := time.monotonic() - began) >= next_line:
                next_line = now + LINE_EVERY_S
                moments.append(look(pack, now, phase.name))
            time.sleep(0.01)
    for future in wolfpack.as_completed(futures, timeout=60):
        future.result()
    moments.append(look(pack, time.monotonic() - began, "over"))
    print(f"{len(futures)} tasks done; most members at a time: {max(moment.members for moment in moments)}", flush=True)
    return moments


def look(pack: wolfpack.Pack, at_s: float, phase: str) -> Moment:
    """One line of the picture."""
    stats = pack.stats()
    members = [unit.id for unit in pack.den.units() if unit.pack == pack.name]
    moment = Moment(round(at_s, 2), phase, stats["queued"], stats["leased"], len(members))
    print(
        f"{at_s:5.1f} s  {moment.queued:4} wait  {moment.leased:3} run  {'w' * len(members):5} {len(members)} members"
    )
    return moment


if __name__ == "__main__":
    main()
