"""Scaling by hand and by load.

    python examples/scaling.py

First a person says how large the pack must be: `pack.scale(fewest, most)` wakes units at once and keeps them. Then the
limits are opened and the load decides: the pack grows for a burst of tasks and goes to sleep when it is done. At the
end the den's own words tell why each change was made.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import wolfpack

PACK_YAML = """
den: scaling
ledger: sqlite:///scaling.db
units:
  grey: {count: 5, offers: [cpu], sleep_after_s: 1, ray: {num_cpus: 0.2}}
packs:
  work: {size: [0, 5], needs: [cpu], drain_target_s: 1}
"""
PATIENCE_S = 30.0


def main(tasks: int = 80) -> dict[str, int]:
    """Scales a den of its own up and down and returns the number of members after each step."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "pack.yaml")
        file.write_text(PACK_YAML)
        with wolfpack.open(str(file)) as den:
            pack = den.pack("work")
            seen = {"at first": len(members(pack)), **by_hand(pack), **by_load(pack, tasks)}
            tell_why(den)
            return seen


def by_hand(pack: wolfpack.Pack) -> dict[str, int]:
    """Two members at least, then one at most."""
    print("by hand: at least 2 members", flush=True)
    pack.scale(2, 5)
    wait_until(pack, "2 members are there", lambda: len(members(pack)) >= 2)
    up = len(members(pack))
    print("by hand: none needed, 1 at most", flush=True)
    pack.scale(0, 1)
    wait_until(pack, "1 member at most", lambda: len(members(pack)) <= 1)
    return {"scaled up by hand": up, "scaled down by hand": len(members(pack))}


def by_load(pack: wolfpack.Pack, tasks: int) -> dict[str, int]:
    """A burst of tasks between the limits 0 and 5, and the sleep after it."""
    print(f"by load: 0 to 5 members, {tasks} tasks of 0.1 s at once", flush=True)
    pack.scale(0, 5)
    futures = [pack.submit(time.sleep, 0.1) for _ in range(tasks)]
    most, left = 0, set(futures)
    while left:
        most = max(most, len(members(pack)))
        _, left = wolfpack.wait(left, timeout=0.1)
    for future in futures:
        future.result()
    print(f"all {tasks} tasks are done; the pack had up to {most} members", flush=True)
    wait_until(pack, "nobody is left: all sleep", lambda: not members(pack))
    return {"scaled up by load": most, "asleep again": len(members(pack))}


def members(pack: wolfpack.Pack) -> list[str]:
    """The units of this pack now."""
    return [unit.id for unit in pack.den.units() if unit.pack == pack.name]


def wait_until(pack: wolfpack.Pack, what: str, holds: Callable[[], bool]) -> None:
    """Waits for a condition and says how long it took.

    Raises:
        TimeoutError: it did not come true within `PATIENCE_S`.
    """
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > PATIENCE_S:
            raise TimeoutError(f"not within {PATIENCE_S:g} s: {what}; members: {members(pack)}")
        time.sleep(0.05)
    print(f"  {what}, after {time.monotonic() - began:.1f} s: {', '.join(members(pack)) or 'nobody'}", flush=True)


def tell_why(den: wolfpack.Den) -> None:
    """Prints every decision on the pack's size with its reason."""
    print("why:")
    for recorded in den.events():
        if isinstance(recorded.event, wolfpack.PackScaled):
            event = recorded.event
            print(f"  {event.before} -> {event.after}: {event.reason} ({recorded.producer})")


if __name__ == "__main__":
    main()
