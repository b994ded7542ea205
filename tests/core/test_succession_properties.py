"""Whatever the network does: safety at every step, and one alpha that everybody follows soon after it calms down."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.succession_world import World
from wolfpack.core.succession import Arbiter, AskedToLead, PeerLost, StepDown, TurnFailed

NAMES = ("u-1", "u-2", "u-3", "u-4", "u-5")
FAULTS = (
    "crash", "crash-unseen", "rebirth", "freeze", "resume", "false-hint", "step-down", "turn-fails", "asked", "isolate",
    "isolate-all", "keeper-away", "keeper-back", "keeper-deaf",
)  # fmt: skip

faults = st.lists(
    st.tuples(st.floats(0.0, 1.5), st.sampled_from(FAULTS), st.sampled_from(NAMES), st.sampled_from(NAMES)), max_size=12
)
networks = st.tuples(st.sampled_from((0.0, 0.1, 0.4)), st.sampled_from((0.0, 0.3)), st.sampled_from((0.002, 0.3, 1.5)))


def inflict(world: World, fault: str, name: str, other: str) -> None:
    unit = world.units.get(name)
    if unit is None:
        if fault in ("rebirth", "resume"):
            world.birth(name)
        return
    match fault:
        case "crash" | "crash-unseen":
            world.crash(name, hinted=fault == "crash")
        case "rebirth":
            world.birth(name)
        case "freeze":
            world.freeze(name)
        case "resume":
            world.resume(name)
        case "false-hint":
            if other in world.units:
                world.inject(world.units[other], PeerLost(*unit.who))
        case "step-down":
            world.inject(unit, StepDown("drain"))
            world.at(world.now + 0.3, lambda: world.units.get(name) is unit and world.birth(name) and None)
        case "turn-fails":
            world.inject(unit, TurnFailed("bad disk", permanent=True))
        case "asked":
            world.inject(unit, AskedToLead())
        case "isolate" | "isolate-all":
            world.isolate(name, keeper=fault == "isolate-all")
        case "keeper-away" | "keeper-back":
            world.keeper_up = fault == "keeper-back"
        case "keeper-deaf":
            world.cut |= {("keeper", name)}


def keeps_L1(world: World, size: int, network: tuple[float, float, float], script: list[tuple[float, str, str, str]]):
    world.loss, world.doubling, slowest = network
    world.delay_s = (0.001, slowest)
    for name in NAMES[:size]:
        world.birth(name)
    for wait, fault, name, other in script:
        world.run(wait)
        inflict(world, fault, name, other)
    if not world.units:
        world.birth(NAMES[0])
    world.calm()
    world.run_until(lambda: world.leader() is not None, 6 * world.timing.silence_s)
    world.run(4.0)  # what was still on its way may cost one more silence
    crowned = len(world.crowned)
    world.run(10.0)
    assert crowned == len(world.crowned)
    assert world.leader() is not None


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), size=st.integers(1, 5), network=networks, script=faults)
def test_L1_one_alpha_that_all_follow_within_six_silences_after_any_faults(seed, size, network, script):
    keeps_L1(World(seed), size, network, script)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), size=st.integers(2, 5), network=networks, script=faults)
def test_L1_without_a_keeper_one_alpha_that_all_follow_within_six_silences(seed, size, network, script):
    keeps_L1(World(seed, arbiter=Arbiter.ITSELF), size, network, script)
