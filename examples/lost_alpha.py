"""The alpha of a busy pack is killed; the pack elects another and loses nothing.

    python examples/lost_alpha.py [FOLDER]

Pictures of the leadership before and after are put into FOLDER (`out/lost_alpha`). The kill is a real one: SIGKILL to
the process of the unit that leads.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import wolfpack

PACK_YAML = """
den: lost-alpha
ledger: sqlite:///lost-alpha.db
units:
  grey: {count: 4, offers: [cpu], ray: {num_cpus: 0.2}}
packs:
  work: {size: [3, 4], needs: [cpu]}
"""
PATIENCE_S = 30.0


def main(folder: str = "out/lost_alpha", tasks: int = 200) -> dict[str, Any]:
    """Kills the alpha of a den of its own under load; returns who led, who leads, and what became of the tasks."""
    pictures = Path(folder)
    pictures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        file = Path(place, "pack.yaml")
        file.write_text(PACK_YAML)
        # A Ray of our own: only then the units' processes are surely on this machine.
        os.environ.pop("RAY_ADDRESS", None)
        with wolfpack.open(str(file)) as den:
            return lose_alpha(den.pack("work"), pictures, tasks)


def lose_alpha(pack: wolfpack.Pack, pictures: Path, tasks: int) -> dict[str, Any]:
    """Submits tasks, kills the alpha after a quarter of them, and waits for the rest."""
    den = pack.den
    wait_for_members(pack, 3)
    futures = [pack.submit(pow, number, 2) for number in range(tasks // 4)]
    futures += [pack.submit(time.sleep, 0.05) for _ in range(tasks - len(futures))]
    results = wolfpack.as_completed(futures, timeout=60)
    for _ in range(tasks // 4):
        next(results).result()

    alpha = get_alpha(pack)
    term = pack.stats()["term"]
    den.graph(str(pictures / "before.svg"))
    print(f"{alpha.id} leads with term {term} from process {alpha.pid}: killed", flush=True)
    killed_at = time.time()
    os.kill(alpha.pid, signal.SIGKILL)

    lost = sum(future.exception() is not None for future in results)
    first = wait_for_first_lease(pack, term)
    den.graph(str(pictures / "after.svg"))
    failover_s = first.at - killed_at
    print(f"{get_alpha(pack).id} leads with term {first.event.term}; its first lease came {failover_s:.2f} s later")
    print(f"{tasks} tasks submitted, {lost} lost; pictures: {pictures}/before.svg, {pictures}/after.svg", flush=True)
    return {
        "killed": alpha.id,
        "alpha": get_alpha(pack).id,
        "terms": (term, first.event.term),
        "failover_s": failover_s,
        "lost": lost,
    }


def wait_for_members(pack: wolfpack.Pack, count: int) -> None:
    """Waits until so many units have joined the pack."""
    deadline = time.monotonic() + PATIENCE_S
    while sum(unit.pack == pack.name for unit in pack.den.units()) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{pack.name} did not get {count} members within {PATIENCE_S:g} s")
        time.sleep(0.05)


def get_alpha(pack: wolfpack.Pack) -> wolfpack.UnitRecord:
    """The unit that leads the pack; waits for one where an election is under way."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        for unit in pack.den.units():
            if unit.pack == pack.name and unit.role == "alpha" and unit.pid:
                return unit
        time.sleep(0.05)
    raise TimeoutError(f"{pack.name} had no alpha within {PATIENCE_S:g} s")


def wait_for_first_lease(pack: wolfpack.Pack, term: int) -> wolfpack.Recorded:
    """The event of the first lease of any later term; a task is submitted so that there is something to lease."""
    pack.submit(time.sleep, 0)
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        for recorded in pack.den.events():
            event = recorded.event
            if isinstance(event, wolfpack.FirstLease) and event.pack == pack.name and event.term > term:
                return recorded
        time.sleep(0.05)
    raise TimeoutError(f"no alpha after term {term} handed out a lease within {PATIENCE_S:g} s")


if __name__ == "__main__":
    main(*sys.argv[1:])
