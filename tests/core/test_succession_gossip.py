"""Big packs that gossip: the alpha howls to its council, and the others learn of it from their view."""

from __future__ import annotations

import math
import random

import pytest

from wolfpack.core.howls import HowlKind, Peer
from wolfpack.core.rivals import COUNCIL_SIZE, council
from wolfpack.core.succession import (
    Arbiter,
    Claim,
    Event,
    Following,
    Granted,
    Order,
    PeerLives,
    PeerLost,
    PeersChanged,
    Succession,
    Tell,
    TermSeen,
    Ticked,
)
from wolfpack.model import Role, Timing

TIMING = Timing()
PEERS = tuple(Peer(unit=f"u-{no}", boot=1) for no in range(20))


def unit(no: int, *, gossip: bool = True, peers: tuple[Peer, ...] = PEERS, **options: object) -> Succession:
    machine = Succession(
        me=PEERS[no], pack="p", timing=TIMING, rng=random.Random(no), now=0.0, gossip=gossip, **options
    )  # type: ignore[arg-type]  # fmt: skip
    machine.step(0.0, PeersChanged(peers))
    return machine


def told(orders: list[Order], kind: HowlKind) -> list[str]:
    return [order.to for order in orders if isinstance(order, Tell) and order.howl.kind is kind]


def crown(machine: Succession) -> list[Order]:
    machine.step(0.05, Ticked())
    machine.step(0.2, Ticked())
    machine.step(0.6, Ticked())
    return machine.step(0.7, Granted(1))


def outsider(term: int = 3, alpha: int = 19) -> Succession:
    machine = unit(2)
    machine.step(0.01, TermSeen(term, f"u-{alpha}", 1))
    machine.step(1.0, Ticked())
    return machine


def test_the_alpha_of_a_big_pack_howls_to_its_council_only() -> None:
    highest = [peer.unit for peer in council(PEERS[:-1])]
    assert highest == told(crown(unit(19)), HowlKind.COORDINATOR)
    assert COUNCIL_SIZE == len(highest)


def test_without_gossip_it_howls_to_all() -> None:
    assert 19 == len(told(crown(unit(19, gossip=False)), HowlKind.COORDINATOR))


def test_a_small_pack_is_the_literal_algorithm_with_gossip_too() -> None:
    assert 6 == len(told(crown(unit(6, peers=PEERS[:7])), HowlKind.COORDINATOR))


def test_a_unit_outside_the_council_follows_what_gossip_says() -> None:
    assert [Following(3, "u-19", 1)] == unit(2).step(0.01, TermSeen(3, "u-19", 1))


def test_it_has_no_alarm_while_its_alpha_lives_in_the_view() -> None:
    machine = outsider()
    assert math.inf == machine.next_wake()
    assert [] == machine.step(1000.0, Ticked())
    assert "u-19" == machine.alpha


def test_the_council_misses_an_alpha_that_no_longer_beats() -> None:
    machine = unit(18)
    machine.step(0.01, TermSeen(3, "u-19", 1))
    orders = []
    while Role.MEMBER is machine.role and machine.next_wake() < 5.0:
        orders += machine.step(machine.next_wake(), Ticked())
    assert Role.PRETENDER is machine.role
    assert 0 < len(told(orders, HowlKind.ELECTION)) <= COUNCIL_SIZE


def test_who_loses_its_alpha_outside_the_council_does_not_pretend_before_its_patience_ends() -> None:
    machine = outsider()
    machine.step(2.0, PeerLost("u-19", 1))
    assert machine.alpha is None
    now = 2.0
    while (now := machine.next_wake()) < 5.9:
        assert [] == told(machine.step(now, Ticked()), HowlKind.ELECTION)
    while Role.MEMBER is machine.role:
        machine.step(machine.next_wake(), Ticked())
    assert Role.PRETENDER is machine.role


def test_news_of_the_next_term_ends_the_wait() -> None:
    machine = outsider()
    machine.step(2.0, PeerLost("u-19", 1))
    assert [Following(4, "u-18", 1)] == machine.step(3.0, TermSeen(4, "u-18", 1))
    assert math.inf == machine.next_wake()


def test_an_alpha_that_refuted_its_death_is_followed_again() -> None:
    machine = outsider()
    machine.step(2.0, PeerLost("u-19", 1))
    assert [Following(3, "u-19", 1)] == machine.step(3.0, PeerLives("u-19", 1))


@pytest.mark.parametrize("event", [PeerLives("u-17", 1), PeerLives("u-19", 0)])
def test_the_life_of_another_process_does_not_bring_the_alpha_back(event: Event) -> None:
    machine = outsider()
    machine.step(2.0, PeerLost("u-19", 1))
    assert [] == machine.step(3.0, event)
    assert machine.alpha is None


def test_who_comes_into_the_council_watches_for_silence() -> None:
    machine = outsider()
    machine.step(2.0, PeersChanged((*PEERS[:6], PEERS[19])))
    assert 3.0 >= machine.next_wake()
    orders: list[Order] = []
    while Role.MEMBER is machine.role:
        orders += machine.step(machine.next_wake(), Ticked())
    assert "u-19" in told(orders, HowlKind.ELECTION)


def test_who_falls_out_of_the_council_stops_watching_and_keeps_its_alpha() -> None:
    machine = unit(5, peers=(*PEERS[:6], PEERS[19]))
    machine.step(0.01, TermSeen(3, "u-19", 1))
    machine.step(0.2, PeersChanged(PEERS))
    now = 0.2
    while (now := machine.next_wake()) < 100.0:
        assert [] == machine.step(now, Ticked())
    assert "u-19" == machine.alpha


def test_a_pretender_outside_the_council_still_claims_from_its_arbiter() -> None:
    machine = unit(2, arbiter=Arbiter.KEEPER)
    orders: list[Order] = []
    while machine.next_wake() < 20.0 and not any(isinstance(order, Claim) for order in orders):
        orders += machine.step(machine.next_wake(), Ticked())
    assert any(isinstance(order, Claim) for order in orders)
