"""Random faults over a whole den: whatever happens, no promise is broken and every acknowledged task settles.

`WOLFPACK_SEEDS=500` runs more worlds, `WOLFPACK_SEED=7` the one of that seed.
"""

from __future__ import annotations

import os
import random

import pytest

from viz.state import fold
from wolfpack.events import Recorded, decode
from wolfpack.model import Card, Nature, Offer, PackSpec, RetryPolicy, Timing
from wolfpack.sim.den import Weather, World, task, wolves

SEEDS = (
    [int(os.environ["WOLFPACK_SEED"])]
    if "WOLFPACK_SEED" in os.environ
    else range(int(os.environ.get("WOLFPACK_SEEDS", "8")))
)
# Quick, but with the proportions of the profile `ray`.
TIMING = Timing(name="test", heartbeat_s=0.1, silence_s=0.4, answer_s=0.12, lease_s=2.0)
NEVER_DEAD = RetryPolicy(max_attempts=100, max_evictions=5, backoff_s=0.01, backoff_max_s=0.1)


def make_world(rng: random.Random, seed: int) -> World:
    cards = wolves(rng.randint(2, 4), sleep_after_s=rng.choice([0.5, 5.0]), awake_min=rng.choice([0, 0, 1]))
    if rng.random() < 0.5:
        offer = Offer(frozenset({"cpu", "browser"}))
        cards += [
            Card(
                unit=f"silver-{no}", kind="silver", nature=Nature.WEREWOLF, day_job="m:J", offer=offer,
                min_tenure_s=0.5, max_loan_s=rng.choice([None, 3.0]), grace_s=0.3,
            )
            for no in range(rng.randint(1, 2))
        ]  # fmt: skip
    packs = [PackSpec(name="a", most=4, fewest=rng.choice([0, 1]), retry=NEVER_DEAD, lendable=rng.random() < 0.5)]
    if rng.random() < 0.5:
        packs.append(PackSpec(name="b", most=2, priority=1, retry=NEVER_DEAD, drain_target_s=0.5))
    weather = Weather(
        lost=rng.choice([0.0, 0.1]), doubled=rng.choice([0.0, 0.1]), late=rng.choice([0.0, 0.05]),
        late_s=rng.choice([0.1, 0.6]), unreachable=rng.choice([0.0, 0.02]),
    )  # fmt: skip
    return World(cards=cards, packs=packs, seed=seed, timing=TIMING, weather=weather, birth_s=rng.choice([0.02, 0.3]))


def make_trouble(world: World, rng: random.Random) -> None:
    living = sorted({unit for unit, _ in world.alive()})
    match rng.choice([*["crash", "freeze", "keeper", "order"] * 2, "pause", "scale", "submit", "cancel", "commit"]):
        case "crash" if living:
            world.crash(rng.choice(living), tell=rng.random() < 0.7)
        case "freeze" if living:
            process = world.process(rng.choice(living))
            if not process.frozen:
                process.freeze(hands=rng.random() < 0.5)
                world.after(rng.uniform(0.05, 4.0), lambda: process.dead or process.thaw())
        case "keeper":
            world.crash_keeper(rng.uniform(0.1, 2.0))
        case "pause" if world.keeper_up:
            world.pause_keeper(rng.uniform(0.1, 5.0))
        case "order" if world.keeper_up:
            unit, order = rng.choice(sorted(world.book.units)), rng.choice(["wake", "sleep", "release", "recall"])
            world.act(lambda book, at: book.order_unit(at, unit, order, rng.choice([None, 0.1]), "a whim"))
        case "scale" if world.keeper_up:
            most = rng.randint(1, 4)
            world.act(lambda book, at: book.scale(at, rng.choice(sorted(book.packs)), rng.randint(0, min(2, most)), most, ""))
        case "submit":
            pack = rng.choice(sorted(world.book.packs))
            world.submit(pack, [a_task(rng) for _ in range(rng.randint(1, 20))], rng.choice(["c", "d"]))
        case "cancel" if world.keeper_up and world.pending():
            ids = rng.sample(sorted(world.pending()), 1)
            world.act(lambda book, at: book.cancel(at, ids, kill=rng.random() < 0.5))
        case "commit" if world.keeper_up:
            world.replies_lost_at.add(world.book.journal.commit_no + rng.randint(1, 5))
        case _:
            pass


def a_task(rng: random.Random) -> dict[str, object]:
    fields: dict[str, object] = {}
    if rng.random() < 0.1:
        fields["key"] = f"key {rng.randint(0, 5)}"
        return task(0.1, **fields)
    if rng.random() < 0.1:
        fields["deadline_s"] = rng.uniform(0.1, 5.0)
    if rng.random() < 0.1:
        fields["delay_s"] = rng.uniform(0.0, 3.0)
    if rng.random() < 0.1:
        fields["needs"] = '{"cpu": true}'
    ends = rng.choice(
        [("DONE",)] * 8 + [("FAULT", "DONE"), ("CRASH", "DONE"), ("OOM", "TIMEOUT", "DONE"), ("KILL", "DONE")]
    )
    return task(rng.choice([0.0, 0.0, 0.01, 0.01, 0.1, 0.1, 0.4, 1.5]), *ends, **fields)


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_fails_every_acknowledged_task_settles_once(seed: int) -> None:
    rng = random.Random(seed)
    world = make_world(rng, seed)
    for pack in world.book.packs:
        world.submit(pack, [a_task(rng) for _ in range(rng.randint(5, 40))], rng.choice(["c", "d"]))
    for _ in range(rng.randint(3, 12)):
        world.run(rng.uniform(0.05, 1.5))
        make_trouble(world, rng)
    world.run(6.0)
    world.weather = Weather()
    world.settle(120.0)
    world.run(12.0)  # longer than any process lives whose boot is void
    for (unit, boot), process in world.processes.items():
        if not process.dead and process.brain is not None:
            row = world.book.units[unit]
            assert (row.boot, row.pack) == (boot, process.brain.pack)
    check_events(world)


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
