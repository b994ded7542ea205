"""A pack of more than seven in a whole den: the alpha howls to its council, the others learn it from gossip."""

from __future__ import annotations

import pytest

from tests.sim.test_cases_den import SILENCE_S, alpha_of, den
from wolfpack.core import errands as e
from wolfpack.core.rivals import COUNCIL_SIZE
from wolfpack.sim.den import World
from wolfpack.sim.den_units import Process

UNITS = 11


def told_by_howls(world: World, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Fills with whom any howl is sent to from now on."""
    told: set[str] = set()
    send = Process._send_howl

    def noted(process: Process, order: e.SendHowl) -> None:
        told.add(order.to)
        send(process, order)

    monkeypatch.setattr(Process, "_send_howl", noted)
    return told


def outsiders(world: World, *others: str) -> list[Process]:
    """The lowest ranks, which are not in the council, whoever leads; without those named."""
    names = [f"grey-{no}" for no in range(UNITS - COUNCIL_SIZE - 1)]
    found = [world.find_process(name) for name in names if name not in (*others, world.alpha("p"))]
    return [process for process in found if process is not None]


def follows(process: Process, alpha: str) -> bool:
    brain = process.brain
    return brain is not None and brain.succession is not None and brain.succession.alpha == alpha


def test_the_alpha_of_eleven_howls_to_its_council_alone_and_all_work(monkeypatch):
    world = den(UNITS, gossips=True)
    told = told_by_howls(world, monkeypatch)
    world.run(5.0)
    assert COUNCIL_SIZE == len(told)
    assert outsiders(world)
    assert not told & {process.card.unit for process in outsiders(world)}
    assert all(follows(process, alpha_of(world)) for process in outsiders(world))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("how", ["dies", "is frozen"])
def test_those_outside_the_council_follow_the_next_alpha_though_nobody_howls_at_them(monkeypatch, seed, how):
    world = den(UNITS, seed=seed, gossips=True)
    first = alpha_of(world)
    told = told_by_howls(world, monkeypatch)
    if how == "dies":
        world.crash(first)
    else:
        world.freeze(first)
    assert world.run_until(lambda: world.alpha("p") not in (None, first), 6 * SILENCE_S)
    second = alpha_of(world)
    assert outsiders(world, first)
    assert world.run_until(lambda: all(follows(each, second) for each in outsiders(world, first)), 2 * SILENCE_S)
    assert not told & {each.card.unit for each in outsiders(world, first)}


def test_in_a_pack_of_eleven_without_gossip_the_alpha_howls_to_all(monkeypatch):
    world = den(UNITS)
    told = told_by_howls(world, monkeypatch)
    world.run(2.0)
    assert UNITS - 1 == len(told)
