"""Random faults over a whole den: whatever happens, no promise is broken, and the events alone tell how the den stands.

`WOLFPACK_SEEDS=500` runs more worlds, `WOLFPACK_SEED=7` the one of that seed.
"""

from __future__ import annotations

import os

import pytest

from viz.state import fold
from wolfpack.events import Recorded, decode
from wolfpack.model import Timing
from wolfpack.sim.den import World
from wolfpack.sim.den_run import Run
from wolfpack.sim.plan import draw_plan

SEEDS = (
    [int(os.environ["WOLFPACK_SEED"])]
    if "WOLFPACK_SEED" in os.environ
    else range(int(os.environ.get("WOLFPACK_SEEDS", "2")))
)
# Quick, but with the proportions of the profile `ray`.
TIMING = Timing(name="test", heartbeat_s=0.1, silence_s=0.4, answer_s=0.12, lease_s=2.0)


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_fails_every_promise_is_kept_and_the_events_tell_the_same_as_the_rows(seed: int) -> None:
    run = Run(draw_plan(seed, seconds=15.0, profile=TIMING, every_s=1.5, busy=2.0))
    run.play()
    assert run.trouble.happened >= 2
    assert run.world.settled()
    check_events(run.world)


def check_events(world: World) -> None:
    """The events alone tell how the den stands."""
    view = fold(
        Recorded(number=row.number, at=row.at, producer=row.producer, event=decode(row.name, row.fields))
        for row in world.disk.events
    )
    for name, unit in world.disk.units.items():
        if unit.readiness in ("awake", "asleep") and not view.units[name].lost:
            assert (unit.readiness, unit.pack, unit.boot) == (
                view.units[name].readiness, view.units[name].pack, view.units[name].boot,
            )  # fmt: skip
    for name, pack in world.disk.packs.items():
        assert (pack.alpha, pack.term) == (view.packs[name].alpha, view.packs[name].term)
