"""Cases from the field, played in a small world with a keeper, a network and virtual time."""

from __future__ import annotations

import pytest

from tests.core.succession_world import World, pack
from wolfpack.core.succession import (
    Arbiter,
    Claim,
    Crowned,
    DeposedBy,
    Granted,
    PeerLost,
    ReleaseTerm,
    StepDown,
    TurnFailed,
)
from wolfpack.model import Role


@pytest.mark.parametrize("seed", range(20))
def test_P42_a_clean_exit_has_its_next_alpha_within_200_ms(seed: int):
    world = pack("a", "b", "c", seed=seed)
    world.delay_s = (0.001, 0.01)
    world.inject(world.units["c"], StepDown("goes to sleep"))
    world.run_until(lambda: world.leader() == "b", 0.2)


@pytest.mark.parametrize("seed", range(20))
def test_P42_also_if_the_claim_overtakes_the_release(seed: int):
    world = pack("a", "b", "c", seed=seed)
    unit = world.units["c"]
    for order in unit.machine.step(world.now, StepDown("goes to sleep")):
        if isinstance(order, ReleaseTerm):
            world.at(world.now + 0.03, lambda: world.keeper.release(1, unit.who))
        else:
            world._carry_out(unit, order)
    world.run_until(lambda: world.leader() == "b", 0.2)


@pytest.mark.parametrize(
    ("units", "first"),
    [
        (("u-2:0", "u-10:0", "u-9:0"), "u-10"),
        (("u-2:1", "u-10:0", "u-9:0"), "u-2"),
        (("u-2:1", "u-10:1", "u-9:2"), "u-9"),
    ],
)
def test_P43_rank_then_natural_order_of_the_id_decides(units: tuple[str, ...], first: str):
    assert first == pack(*units).leader()


def test_P43_a_unit_that_cannot_lead_never_pretends_nor_is_it_waited_for():
    world = pack("a", "b")
    world.birth("z", lead=9, can_lead=False)
    world.run(0.1)
    world.crash("b")
    world.run_until(lambda: world.leader() == "a", 0.1)
    world.crash("a")
    world.run(10.0)
    assert [order for order in world.units["z"].story if isinstance(order, (Claim, Crowned))] == []


def test_S12_flapping_links_without_loss_change_no_term():
    world = pack("a", "b", "c")
    for _ in range(100):
        world.run(0.35)
        for name in "ab":
            world.inject(world.units[name], PeerLost("c", 1))
        world.inject(world.units["c"], PeerLost("a", 1))
        world.run(0.35)
        world.tell_roster()
    world.run(1.0)
    assert (world.leader(), world.keeper.term) == ("c", 1)


def test_S13_two_units_with_a_slow_link_keep_their_alpha():
    world = pack("a", "b")
    world.delay_s = (0.2, 0.7)
    world.run(600.0)
    assert [(unit, term) for _, unit, term in world.crowned] == [("b", 1)]


def test_S14_the_highest_rank_returns_a_thousand_times_and_nothing_changes():
    world = pack("a", "b")
    for _ in range(1000):
        world.birth("z", lead=9)
        world.run(0.3)
        world.crash("z")
        world.run(0.1)
    assert (world.leader(), world.keeper.term) == ("b", 1)


def test_S14_also_without_a_keeper():
    world = pack("a", "b", arbiter=Arbiter.ITSELF)
    for _ in range(200):
        world.birth("z", lead=9)
        world.run(0.6)
        world.crash("z")
        world.run(0.1)
    assert (world.leader(), len(world.crowned)) == ("b", 1)


@pytest.mark.parametrize("hinted", [True, False])
def test_S16_a_quick_rejoin_with_a_lost_election_has_one_alpha(hinted: bool):
    world = pack("a", "b", "c")
    world.crash("c", hinted=hinted)
    world.run(0.005)
    world.cut |= {("c", "b")}
    world.birth("c")
    world.run(0.3)
    world.cut.clear()
    world.run_until(lambda: world.leader() is not None, 3.0)
    world.run(5.0)
    assert len(world.crowned) == 2


def test_S17_a_frozen_alpha_that_wakes_leases_nothing_and_learns_of_its_successor():
    world = pack("a", "b", "c")
    world.run(1.0)
    world.freeze("c")
    world.run(5.0)
    assert world.keeper.alpha == ("b", 1)
    assert not world.units["c"].machine.may_lease(world.now)
    world.resume("c")
    world.run_until(lambda: world.leader() == "b", 0.5)


def test_S19_an_isolated_member_deposes_nobody_on_its_return():
    world = pack("a", "b", "c")
    world.isolate("a", keeper=True)
    world.run(30.0)
    world.cut.clear()
    world.run(2.0)
    assert (world.leader(), world.keeper.term) == ("c", 1)


def test_S20_a_unit_that_knows_an_old_term_only_catches_up_from_a_refusal():
    world = pack("a", "b")
    world.keeper.term, world.keeper.alpha = 7, None  # terms passed while a heard nobody
    world.crash("b")
    world.run_until(lambda: world.leader() == "a", 0.5)
    assert world.units["a"].machine.term == 8


def test_S21_an_old_alpha_heard_through_one_bridge_does_not_block_the_rest():
    world = pack("a", "b", "c", "d")
    world.isolate("d", keeper=True)
    world.cut -= {("d", "a"), ("a", "d")}  # a is the bridge
    world.run_until(lambda: world.keeper.alpha == ("c", 1), 4.0)
    world.run(0.5)
    assert {name: world.units[name].machine.alpha for name in "abc"} == {"a": "c", "b": "c", "c": "c"}
    assert Role.ALPHA is not world.units["d"].machine.role


def test_S23_an_alpha_whose_turns_fail_for_good_steps_down_and_does_not_claim_for_five_silences():
    world = pack("a", "b", "c")
    world.inject(world.units["c"], TurnFailed("bad disk", permanent=True))
    world.run_until(lambda: world.leader() == "b", 0.3)
    world.crash("b")
    world.run_until(lambda: world.leader() == "a", 1.0)
    stopped = world.now
    world.crash("a")  # nobody else is left: better a sick alpha than none
    world.run_until(lambda: world.leader() == "c", 1.5)
    assert world.now - stopped < 5


def test_S34_a_lost_reply_to_a_claim_is_granted_once():
    world = pack("b", "c")
    world.crash("c")
    world.cut |= {("keeper", "b")}
    world.run(0.1)
    assert world.keeper.alpha == ("b", 1)
    assert Role.PRETENDER is world.units["b"].machine.role
    world.cut.clear()
    world.run_until(lambda: world.leader() == "b", 2.5)
    assert [(unit, term) for _, unit, term in world.crowned] == [("c", 1), ("b", 2)]


def test_S15_two_sides_of_equal_rank_heal_and_every_client_finds_the_one_alpha():
    """Each side crowned one of the same lead in the same term; the id decides, and nobody goes on with the other."""
    world = World(1, arbiter=Arbiter.ITSELF)
    for name in ("a", "b", "y", "z"):
        world.birth(name, lead=5)
    world.cut |= {(one, other) for one in "ab" for other in "yz"} | {(other, one) for one in "ab" for other in "yz"}
    world.run(3.0)
    assert {"a": "b", "b": "b", "y": "z", "z": "z"} == {name: u.machine.alpha for name, u in world.units.items()}
    assert 1 == len({unit.machine.term for unit in world.units.values()})
    world.cut.clear()
    world.run_until(lambda: world.leader() == "z", 2.0)


def test_S18_without_a_keeper_terms_start_again_and_still_one_leads():
    """Nothing is kept, so nothing can be overwritten; with a keeper the ledger keeps the term."""
    world = pack("a", "b", "c", arbiter=Arbiter.ITSELF)
    for name in "abc":
        world.birth(name)
    world.run_until(lambda: world.leader() == "c", 2.0)
    assert {2} == {unit.peer.boot for unit in world.units.values()}


def test_S18_all_units_restart_at_once_and_the_term_goes_on():
    world = pack("a", "b", "c")
    for name in "abc":
        world.birth(name)
    world.run_until(lambda: world.leader() == "c", 3.0)
    assert (2, ("c", 2)) == (world.keeper.term, world.keeper.grants[2])


@pytest.mark.parametrize("seed", range(10))
def test_S22_rivals_whose_claims_are_lost_do_not_hold_each_other_up_for_ever(seed: int):
    """The keeper is deaf to all for ten silences; then one leads within the bound of L1."""
    world = pack("a", "b", "c", "d", seed=seed)
    world.crash("d")
    world.cut |= {("keeper", name) for name in "abc"} | {(name, "keeper") for name in "abc"}
    world.run(10.0)
    world.cut.clear()
    world.run_until(lambda: world.leader() is not None, 6.0)


def test_S25_of_ten_thousand_claims_on_one_term_one_is_granted():
    keeper = World(1).keeper
    answers = [keeper.claim(0.0, 0, (f"u-{number}", 1)) for number in range(10_000)]
    assert 1 == sum(isinstance(answer, Granted) for answer in answers)
    assert {1: ("u-0", 1)} == keeper.grants


def test_S27_a_grant_that_arrives_at_the_next_boot_of_its_claimant_crowns_nobody():
    world = pack("a", "b")
    world.crash("b")
    world.cut |= {("keeper", "a")}
    world.run_until(lambda: world.keeper.alpha == ("a", 1), 1.0)
    reborn = world.birth("a")
    world.inject(reborn, Granted(world.keeper.term))
    assert Role.ALPHA is not reborn.machine.role
    world.cut.clear()
    world.run_until(lambda: world.leader() == "a", 3.0)
    assert (3, ("a", 2)) == (world.keeper.term, world.keeper.alpha)


def test_S35_two_units_split_and_healed_have_one_alpha():
    world = pack("a", "b")
    world.isolate("b", keeper=True)
    world.run_until(lambda: world.keeper.alpha == ("a", 1), 3.0)
    world.run(5.0)
    assert Role.ALPHA is not world.units["b"].machine.role
    world.cut.clear()
    world.run_until(lambda: world.leader() == "a", 2.0)


def test_S35_without_a_keeper_each_half_leads_itself_and_one_leads_after_the_heal():
    world = pack("a", "b", arbiter=Arbiter.ITSELF)
    world.isolate("b")
    world.run(5.0)
    assert {"a": "a", "b": "b"} == {name: unit.machine.alpha for name, unit in world.units.items()}
    world.cut.clear()
    world.run_until(lambda: world.leader() is not None, 2.0)


def test_S36_a_keeper_that_is_away_between_grant_and_turn_still_refuses_the_old_term():
    world = pack("a", "b")
    world.isolate("b", keeper=True)
    world.run_until(lambda: world.keeper.alpha == ("a", 1), 3.0)
    world.keeper_up = False
    world.run(0.5)
    world.keeper_up = True
    assert isinstance(world.keeper.turn(world.now, 1, ("b", 1), world.now), DeposedBy)
    world.cut.clear()
    world.run_until(lambda: world.leader() == "a", 3.0)


def test_without_a_keeper_a_usurper_that_returns_leads_a_healthy_pack():
    world = World(1, arbiter=Arbiter.ITSELF)
    for name in "ab":
        world.birth(name, usurp=True)
    world.run_until(lambda: world.leader() == "b", 2.0)
    world.birth("c", usurp=True)
    world.run_until(lambda: world.leader() == "c", 2.0)
