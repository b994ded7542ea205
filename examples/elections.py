"""Five members in one process elect a leader; it is killed, and comes back: once as a usurper, once as a good loser.

    python examples/elections.py

No Ray, no keeper: the succession of a pack between asyncio tasks. The log of each election is shown as it happens.
"""

from __future__ import annotations

import asyncio
import logging
import time

from wolfpack.aio_cluster import AsyncioCluster

SIZE = 5


def main(profile: str = "classic") -> dict[str, list[int]]:
    """Plays both ways; returns who led at first, after the kill, and after the return."""
    logging.basicConfig(level=logging.INFO, format="%(relativeCreated)6.0f ms  %(message)s")
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    return {
        "with usurp": asyncio.run(lose_and_return(profile, usurp=True)),
        "without": asyncio.run(lose_and_return(profile, usurp=False)),
    }


async def lose_and_return(profile: str, *, usurp: bool) -> list[int]:
    """Kills the leader, waits for its successor, brings it back; returns who led after each of these."""
    async with AsyncioCluster(SIZE, profile, usurp=usurp) as cluster:
        first = await cluster.wait_for_leader(5.0)
        killed_at = time.monotonic()
        cluster.kill(first)
        second = await cluster.wait_for_leader(10.0)
        print(f"{second} leads {time.monotonic() - killed_at:.2f} s after {first} was killed", flush=True)
        cluster.restart(first)
        third = await cluster.wait_for_leader(5.0)
        print(f"{first} is back, usurp={usurp}: {third} leads", flush=True)
        return [first, second, third]


if __name__ == "__main__":
    main()
