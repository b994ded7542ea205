"""The succession machine, rule by rule."""

from __future__ import annotations

import random
from pathlib import Path
from typing import get_args

import pytest

import wolfpack.core.succession_words as s_words
from wolfpack.core.howls import Howl, HowlKind, Peer
from wolfpack.core.rivals import council
from wolfpack.core.succession import (
    Alarm,
    Alone,
    Arbiter,
    AskedToLead,
    Claim,
    ClaimFailed,
    Crowned,
    DeposedBy,
    Event,
    Following,
    Granted,
    Heard,
    MemberHeard,
    Order,
    PeerLost,
    PeersChanged,
    Refused,
    ReleaseTerm,
    StepDown,
    StoppedLeading,
    Succession,
    Tell,
    TermSeen,
    Ticked,
    TurnAnswered,
    TurnFailed,
    retry_delay,
)
from wolfpack.model import PROFILES, Role, Timing

TIMING = Timing()  # heartbeat 0.25, silence 1.0, answer 0.3
A, B, C = (Peer(unit=name, boot=1) for name in "abc")  # c ranks highest


def machine(me: Peer = B, *, peers: tuple[Peer, ...] = (A, B, C), **options: object) -> Succession:
    unit = Succession(me=me, pack="p", timing=TIMING, rng=random.Random(1), now=0.0, **options)  # type: ignore[arg-type]
    unit.step(0.0, PeersChanged(peers))
    return unit


def follower(me: Peer = B, *, of: Peer = C, term: int = 3, **options: object) -> Succession:
    return machine(me, term=term, alpha=of.unit, alpha_boot=of.boot, **options)


def alpha(me: Peer = C, *, term: int = 3, **options: object) -> Succession:
    """Crowned at 0.1 by a claim sent at 0.0."""
    unit = machine(me, term=term - 1, **options)
    unit.step(0.0, AskedToLead())
    unit.step(0.1, Granted(term))
    assert Role.ALPHA is unit.role
    return unit


def howl(kind: HowlKind, by: Peer, term: int = 3, next_unit: str | None = None, pack: str = "p") -> Heard:
    return Heard(
        Howl(kind=kind, pack=pack, term=term, unit=by.unit, boot=by.boot, lead=by.lead, next_unit=next_unit)
    )  # fmt: skip


def tick(unit: Succession, until: float, start: float = 0.0) -> list[Order]:
    """Drives the machine as a driver does; returns all orders."""
    orders: list[Order] = []
    now = start
    while (now := max(now, unit.next_wake())) <= until:
        orders += unit.step(now, Ticked())
    return orders


def told(orders: list[Order], kind: HowlKind) -> list[str]:
    return [order.to for order in orders if isinstance(order, Tell) and order.howl.kind is kind]


def of_type(orders: list[Order], *types: type) -> list[Order]:
    return [order for order in orders if isinstance(order, types)]


# --- the five rules -------------------------------------------------------------------------------------------------


def test_rule_1_an_alpha_beats_to_every_peer_each_heartbeat():
    unit = alpha()
    orders = []
    for beat in (0.25, 0.5, 0.75, 1.0):
        orders += tick(unit, beat + 0.1)
        unit.step(beat + 0.1, MemberHeard())
    assert told(orders, HowlKind.HEARTBEAT) == ["a", "b"] * 4


def test_rule_2_a_member_pretends_after_silence_and_not_before():
    unit = follower()
    assert tick(unit, 0.999) == []
    assert told(tick(unit, 1.0), HowlKind.ELECTION) == ["c", "a"]
    assert Role.PRETENDER is unit.role


def test_rule_2_a_heartbeat_starts_the_silence_again():
    unit = follower()
    tick(unit, 0.9)
    unit.step(0.9, howl(HowlKind.HEARTBEAT, C))
    assert tick(unit, 1.85, 0.9) == []
    assert Alone("heard nothing of c for 1 s") in tick(unit, 1.95, 1.85)


def test_rule_2_a_unit_that_boots_without_an_alpha_pretends_within_a_tenth_of_silence():
    assert [Claim(0)] == tick(machine(peers=()), 0.1)


def test_rule_3_a_pretender_waits_answer_s_for_a_higher_rank_and_then_claims():
    unit = follower()
    tick(unit, 1.0)
    assert tick(unit, 1.299, 1.0) == []
    assert [Claim(3)] == tick(unit, 1.3, 1.0)


def test_rule_3_the_highest_rank_claims_without_waiting():
    unit = follower(C, of=A)
    assert Claim(3) in tick(unit, 1.0)


def test_rule_3_the_crown_comes_with_a_coordinator_to_all_after_the_grant():
    unit = follower(C, of=A)
    claiming = tick(unit, 1.0)
    assert told(claiming, HowlKind.COORDINATOR) == []
    orders = unit.step(1.01, Granted(4))
    assert told(orders, HowlKind.COORDINATOR) == ["a", "b"]
    assert Crowned(4) == orders[-1]


def test_rule_4_an_alpha_stops_for_a_higher_term_and_follows_it():
    unit = alpha()
    orders = unit.step(0.2, howl(HowlKind.HEARTBEAT, A, term=4))
    assert [StoppedLeading(3, "a leads term 4"), Following(4, "a", 1)] == orders


def test_rule_4_an_alpha_answers_an_older_term_with_stale_and_goes_on():
    unit = alpha()
    assert told(unit.step(0.2, howl(HowlKind.HEARTBEAT, A, term=2)), HowlKind.STALE) == ["a"]
    assert Role.ALPHA is unit.role


def test_rule_4_an_alpha_that_is_told_stale_stops():
    unit = alpha()
    orders = unit.step(0.2, howl(HowlKind.STALE, A, term=4))
    assert StoppedLeading(3, "a knows term 4") == orders[0]
    assert told(tick(unit, 1.1, 0.2), HowlKind.HEARTBEAT) == []


def test_rule_5_a_pretender_that_hears_an_alpha_stops_pretending():
    unit = follower()
    tick(unit, 1.0)
    assert [Following(3, "c", 1)] == unit.step(1.1, howl(HowlKind.HEARTBEAT, C))
    assert Role.MEMBER is unit.role
    assert of_type(tick(unit, 2.0, 1.1), Claim) == []


# --- answers between pretenders -------------------------------------------------------------------------------------


def test_a_member_without_alpha_answers_a_lower_rank_ok_and_pretends_itself():
    unit = machine(C)
    orders = unit.step(0.0, howl(HowlKind.ELECTION, A, term=0))
    assert told(orders, HowlKind.OK) == ["a"]
    assert Claim(0) in orders


def test_a_pretender_answers_a_lower_rank_ok_and_does_not_start_again():
    unit = follower()
    tick(unit, 1.0)
    orders = unit.step(1.1, howl(HowlKind.ELECTION, A))
    assert told(orders, HowlKind.OK) == ["a"]
    assert told(orders, HowlKind.ELECTION) == []


def test_after_an_ok_without_coordinator_the_lower_rank_tries_again_later():
    unit = follower()
    tick(unit, 1.0)
    unit.step(1.1, howl(HowlKind.OK, C))
    assert tick(unit, 1.1 + TIMING.answer_s + TIMING.answer_s / 4, 1.1) == []
    assert told(tick(unit, 1.1 + TIMING.answer_s * 1.5, 1.1), HowlKind.ELECTION) == ["c", "a"]


def test_an_ok_that_comes_twice_moves_nothing():
    unit, other = follower(), follower()
    for one in (unit, other):
        tick(one, 1.0)
        one.step(1.1, howl(HowlKind.OK, C))
    unit.step(1.2, howl(HowlKind.OK, C))
    assert tick(other, 2.0, 1.2) == tick(unit, 2.0, 1.2)


def test_a_higher_rank_that_answers_but_never_leads_is_passed_over():
    unit = follower()
    claims = []
    for quarter in range(4, 12):
        claims += of_type(tick(unit, now := quarter * 0.25, now - 0.25 if quarter > 4 else 0.0), Claim)
        unit.step(now, howl(HowlKind.OK, C))
    assert [Claim(3)] == claims


def test_after_an_alpha_was_heard_a_higher_rank_is_waited_for_again():
    unit = follower()
    for quarter in range(4, 8):  # two fruitless tries
        tick(unit, now := quarter * 0.25, now - 0.25 if quarter > 4 else 0.0)
        unit.step(now, howl(HowlKind.OK, C))
    unit.step(1.8, howl(HowlKind.HEARTBEAT, C))
    assert [] == of_type(tick(unit, 2.81, 1.8), Claim)


def test_a_member_that_follows_a_live_alpha_answers_no_election():
    assert follower(B).step(0.5, howl(HowlKind.ELECTION, A)) == []


def test_an_alpha_answers_an_election_with_a_heartbeat_also_to_a_higher_rank():
    unit = alpha(A)
    assert told(unit.step(0.2, howl(HowlKind.ELECTION, C, term=0)), HowlKind.HEARTBEAT) == ["c"]
    assert Role.ALPHA is unit.role


def test_a_pretender_tells_a_higher_rank_with_an_old_term_which_term_is_known():
    unit = follower()
    tick(unit, 1.0)
    assert told(unit.step(1.1, howl(HowlKind.ELECTION, C, term=1)), HowlKind.STALE) == ["c"]


def test_a_member_tells_an_alpha_of_an_older_term_that_it_is_over():
    assert told(follower(B).step(0.5, howl(HowlKind.HEARTBEAT, A, term=2)), HowlKind.STALE) == ["a"]


@pytest.mark.parametrize(
    "heard",
    [
        howl(HowlKind.HEARTBEAT, A, term=9, pack="other"),
        howl(HowlKind.HEARTBEAT, Peer(unit="b", boot=2), term=9),
        howl(HowlKind.HEARTBEAT, Peer(unit="a", boot=0), term=9),
    ],
    ids=["of another pack", "of oneself", "of an earlier boot"],
)
def test_a_howl_is_ignored_if_it_is(heard: Heard):
    unit = follower()
    assert unit.step(0.5, heard) == []
    assert (unit.term, unit.alpha) == (3, "c")


# --- the fast path --------------------------------------------------------------------------------------------------


def test_when_the_alpha_died_the_highest_living_rank_claims_at_once():
    assert Claim(3) in follower(B).step(0.5, PeerLost("c", 1))


def test_when_the_alpha_died_lower_ranks_pretend_and_wait():
    unit = follower(A)
    orders = unit.step(0.5, PeerLost("c", 1))
    assert [Alone("c died")] == of_type(orders, Alone)
    assert told(orders, HowlKind.ELECTION) == ["b"]
    assert [Claim(3)] == tick(unit, 0.8, 0.5)


def test_a_dead_peer_is_not_waited_for():
    unit = follower(A, of=C)
    unit.step(0.5, PeerLost("b", 1))
    assert Claim(3) in unit.step(0.6, PeerLost("c", 1))


def test_a_pretender_whose_last_higher_rank_dies_claims_at_once():
    unit = follower(A)
    unit.step(0.5, PeerLost("c", 1))
    assert [Claim(3)] == unit.step(0.6, PeerLost("b", 1))


def test_a_dead_peer_counts_again_when_the_roster_shows_a_newer_boot():
    unit = follower(A)
    unit.step(0.4, PeerLost("b", 1))
    unit.step(0.5, PeersChanged((A, Peer(unit="b", boot=2), C)))
    assert of_type(unit.step(0.6, PeerLost("c", 1)), Claim) == []


def test_a_hint_about_an_earlier_boot_is_ignored():
    unit = follower(B, of=Peer(unit="c", boot=2))
    assert unit.step(0.5, PeerLost("c", 1)) == []


def test_a_heartbeat_sent_before_its_sender_died_does_not_revive_it():
    unit = follower(B)
    unit.step(0.5, PeerLost("c", 1))
    assert unit.step(0.51, howl(HowlKind.HEARTBEAT, C)) == []


def test_a_heartbeat_long_after_the_hint_shows_that_the_hint_was_wrong():
    unit = follower(B)
    unit.step(0.5, PeerLost("c", 1))
    assert [Following(3, "c", 1)] == unit.step(0.9, howl(HowlKind.HEARTBEAT, C))


def test_an_alpha_that_was_born_again_leads_no_longer():
    unit = follower(A, peers=(A, C))
    orders = unit.step(0.5, PeersChanged((A, Peer(unit="c", boot=2))))
    assert [Alone("c was born again")] == of_type(orders, Alone)


def test_an_alpha_whose_next_boot_pretends_leads_no_longer():
    orders = follower(B).step(0.5, howl(HowlKind.ELECTION, Peer(unit="c", boot=2), term=0))
    assert [Alone("c was born again")] == of_type(orders, Alone)


def test_a_row_that_names_an_alpha_known_to_be_dead_is_not_followed():
    unit = follower(B)
    unit.step(0.5, PeerLost("a", 1))
    assert [] == of_type(unit.step(0.6, TermSeen(4, "a", 1)), Following)
    assert ["c"] == told(tick(unit, 0.7, 0.6), HowlKind.ELECTION)


# --- the arbiter's answers ------------------------------------------------------------------------------------------


def claiming(me: Peer = C, term: int = 3) -> Succession:
    unit = follower(me, of=A, term=term)
    assert Claim(term) in tick(unit, 1.0)
    return unit


def test_a_refusal_that_names_another_alpha_is_followed():
    unit = claiming()
    assert [Following(5, "a", 1)] == unit.step(1.1, Refused(5, "a", 1))


def test_a_refusal_by_a_vacant_higher_term_is_claimed_again_with_that_term():
    unit = claiming()
    assert of_type(unit.step(1.1, Refused(5, None)), Claim) == []
    assert [Claim(5)] == of_type(tick(unit, 1.3, 1.1), Claim)


def test_a_refusal_that_names_an_alpha_just_lost_is_tried_again_soon():
    unit = follower(B)
    unit.step(0.5, PeerLost("c", 1))
    assert unit.step(0.51, Refused(3, "c", 1)) == []
    assert [Claim(3)] == of_type(tick(unit, 0.7, 0.51), Claim)


def test_a_claim_without_answer_is_repeated_as_the_same_claim():
    unit = claiming()
    assert of_type(tick(unit, 2.99, 1.0), Claim) == []
    assert [Claim(3)] == of_type(tick(unit, 3.0, 2.99), Claim)


def test_only_one_claim_is_under_way():
    unit = claiming()
    assert of_type([*unit.step(1.1, AskedToLead()), *unit.step(1.2, PeerLost("b", 1))], Claim) == []


def test_a_failed_claim_is_tried_again_after_back_off():
    unit = claiming()
    assert unit.step(1.1, ClaimFailed("away")) == []
    assert [Claim(3)] == of_type(tick(unit, 1.3, 1.1), Claim)


def test_a_grant_is_taken_during_back_off():
    unit = claiming()
    unit.step(1.1, ClaimFailed("timeout"))
    assert Crowned(4) in unit.step(1.12, Granted(4))


def test_a_grant_that_comes_twice_is_taken_once():
    unit = claiming()
    unit.step(1.1, Granted(4))
    assert unit.step(1.2, Granted(4)) == []
    assert Role.ALPHA is unit.role


def test_S27_a_grant_after_the_claimant_gave_up_is_given_back():
    unit = claiming()
    unit.step(1.1, howl(HowlKind.HEARTBEAT, A, term=3))
    orders = unit.step(1.2, Granted(4))
    assert [ReleaseTerm(4), Alone("term 4 was granted too late and is given back")] == orders
    assert Role.MEMBER is unit.role


def test_S27_a_unit_that_never_claimed_is_not_crowned_by_a_grant():
    unit = follower(B)
    assert [ReleaseTerm(4)] == of_type(unit.step(0.5, Granted(4)), ReleaseTerm, Crowned)


def test_S27_a_late_grant_under_a_higher_term_changes_nothing():
    unit = claiming()
    unit.step(1.1, howl(HowlKind.COORDINATOR, B, term=5))
    assert [ReleaseTerm(4)] == unit.step(1.2, Granted(4))
    assert (unit.term, unit.alpha) == (5, "b")


def test_S34_a_refusal_that_names_the_caller_and_its_boot_is_a_grant():
    assert Crowned(4) in claiming().step(1.1, Refused(4, "c", 1))


def test_S34_a_term_won_by_an_earlier_claim_lets_nothing_lease_before_a_turn_is_answered():
    unit = claiming()
    unit.step(1.5, howl(HowlKind.STALE, A, term=4))  # the term that this unit was granted, as others tell it
    tick(unit, 3.0, 1.5)
    assert Crowned(4) in unit.step(3.1, Refused(4, "c", 1))
    assert not unit.may_lease(3.1)
    unit.step(3.2, TurnAnswered(3.15))
    assert unit.may_lease(3.2)


def test_a_grant_of_an_older_term_than_the_known_one_crowns_nobody():
    unit = claiming()
    unit.step(1.1, howl(HowlKind.STALE, A, term=6))
    assert [ReleaseTerm(4)] == of_type(unit.step(1.2, Granted(4)), ReleaseTerm, Crowned)


def test_a_refusal_that_comes_too_late_does_not_restart_the_silence():
    unit = claiming()
    unit.step(1.1, howl(HowlKind.HEARTBEAT, A))
    tick(unit, 2.0, 1.1)
    unit.step(2.0, Refused(3, "a", 1))
    assert Alone("heard nothing of a for 1 s") in tick(unit, 2.1, 2.0)


def test_a_refusal_outweighs_an_old_hint_of_death():
    unit = follower(B)
    unit.step(0.5, PeerLost("c", 1))
    unit.step(0.51, ClaimFailed("away"))
    tick(unit, 1.0, 0.51)
    assert [Following(3, "c", 1)] == unit.step(1.0, Refused(3, "c", 1))


def test_S34_a_refusal_that_names_an_earlier_boot_of_the_caller_is_none():
    unit = claiming(Peer(unit="c", boot=2))
    assert of_type(unit.step(1.1, Refused(4, "c", 1)), Crowned) == []


def test_a_term_that_ended_is_never_led_again():
    unit = alpha()
    tick(unit, 6.5, 0.1)  # nobody says a word
    assert Role.PRETENDER is unit.role
    assert [ReleaseTerm(3)] == of_type(unit.step(6.5, Refused(3, "c", 1)), ReleaseTerm, Crowned)


# --- terms seen -----------------------------------------------------------------------------------------------------


def test_a_higher_term_seen_is_followed():
    assert [Following(5, "a", 1)] == follower(B).step(0.5, TermSeen(5, "a", 1))


def test_a_term_that_was_released_is_claimed_without_waiting_for_silence():
    unit = follower(C, of=A)
    unit.step(0.5, TermSeen(3, None))
    assert [Claim(3)] == of_type(tick(unit, 0.6, 0.5), Claim)


def test_late_news_of_a_released_term_do_not_bring_its_alpha_back():
    unit = follower(B)
    unit.step(0.5, howl(HowlKind.HANDOVER, C, next_unit="a"))
    assert unit.step(0.6, TermSeen(3, "c", 1)) == []
    assert unit.step(0.6, howl(HowlKind.HEARTBEAT, C)) == []


def test_an_alpha_heard_outweighs_a_row_that_called_its_term_vacant():
    unit = follower(B)
    unit.step(0.5, TermSeen(3, None))
    assert [] == unit.step(0.51, TermSeen(3, "c", 1))
    assert [Following(3, "c", 1)] == unit.step(0.52, howl(HowlKind.HEARTBEAT, C))
    assert [] == unit.step(0.53, TermSeen(3, None))


def test_a_row_that_still_names_a_silent_alpha_does_not_bring_it_back():
    unit = follower(B)
    tick(unit, 1.0)
    assert unit.step(1.1, TermSeen(3, "c", 1)) == []
    assert Role.PRETENDER is unit.role


@pytest.mark.parametrize(
    "event",
    [DeposedBy(4, "a"), DeposedBy(3, None), TermSeen(4, "a", 1), TermSeen(3, None), TermSeen(3, "a", 1)],
    ids=str,
)
def test_S24_an_alpha_that_is_told_of_another_holder_stops_at_once(event: Event):
    unit = alpha()
    assert [order.term for order in unit.step(0.2, event)[:1] if isinstance(order, StoppedLeading)] == [3]
    assert not unit.may_lease(0.2)


def test_S24_a_late_refusal_of_an_older_write_does_not_stop_the_present_term():
    unit = alpha()
    assert unit.step(0.2, DeposedBy(3, "c")) == []
    assert unit.step(0.2, DeposedBy(2, "a")) == []


# --- what an alpha owes ---------------------------------------------------------------------------------------------


def test_S17_a_cut_off_alpha_leases_nothing_after_silence_s():
    unit = alpha()
    unit.step(0.75, TurnAnswered(0.5))
    assert unit.may_lease(1.499)
    assert not unit.may_lease(1.5)


def test_a_grant_lets_lease_from_the_moment_its_claim_was_sent():
    unit = alpha()  # claimed at 0.0
    assert unit.may_lease(0.999)
    assert not unit.may_lease(1.0)


def test_an_answer_to_a_turn_of_an_earlier_term_counts_nothing():
    unit = alpha()
    unit.step(0.2, TurnAnswered(0.05))
    assert not unit.may_lease(1.0)


def test_an_alpha_unanswered_for_four_silences_stops_beating():
    unit = alpha()
    orders = []
    for step in range(1, 17):
        orders += tick(unit, now := 0.1 + step * 0.25)
        unit.step(now, MemberHeard())
    assert [StoppedLeading(3, "the keeper did not answer for 4 s")] == of_type(orders, StoppedLeading)
    assert told(tick(unit, 4.5, 4.1), HowlKind.HEARTBEAT) == []


def test_an_alpha_that_hears_no_member_for_two_silences_gives_its_term_back():
    unit = alpha()
    for step in range(1, 8):
        tick(unit, now := 0.1 + step * 0.25)
        unit.step(now, TurnAnswered(now))
    assert Role.ALPHA is unit.role
    orders = tick(unit, 2.1, 1.85)
    assert [StoppedLeading(3, "no member was heard for 2 s"), ReleaseTerm(3)] == of_type(
        orders, StoppedLeading, ReleaseTerm
    )


def test_an_alpha_without_members_is_not_lonely():
    unit = alpha(peers=(C,))
    for step in range(1, 20):
        tick(unit, now := 0.1 + step * 0.25)
        unit.step(now, TurnAnswered(now))
    assert Role.ALPHA is unit.role


def test_S23_the_keeper_asks_in_vain_while_the_unit_is_on_the_bench():
    unit = alpha()
    unit.step(0.2, TurnFailed("bad disk", permanent=True))
    assert of_type([*unit.step(0.3, AskedToLead()), *tick(unit, 5.1, 0.3), *unit.step(5.1, AskedToLead())], Claim) == []
    assert [Claim(3)] == of_type(tick(unit, 6.3, 5.1), Claim)


def test_a_turn_that_failed_once_changes_nothing():
    assert alpha().step(0.2, TurnFailed("the keeper is away")) == []


# --- leaving on purpose ---------------------------------------------------------------------------------------------


def test_an_alpha_that_leaves_stops_gives_back_and_names_the_next():
    orders = alpha().step(0.2, StepDown("goes to sleep"))
    assert [StoppedLeading(3, "goes to sleep"), ReleaseTerm(3)] == orders[:2]
    assert [(o.to, o.howl.next_unit) for o in orders if isinstance(o, Tell)] == [("a", "b"), ("b", "b")]


def test_the_one_named_claims_at_once_the_others_wait_for_silence():
    named, other = follower(B), follower(A)
    handover = howl(HowlKind.HANDOVER, C, next_unit="b")
    assert [Claim(3)] == of_type(named.step(0.5, handover), Claim)
    assert [Alone("c handed term 3 over")] == other.step(0.5, handover)
    assert tick(other, 1.45, 0.5) == []


def test_a_handover_does_not_disturb_a_claim_that_is_under_way():
    unit = claiming()
    assert [] == unit.step(1.1, howl(HowlKind.HANDOVER, A, next_unit="c"))
    assert Crowned(4) in unit.step(1.2, Granted(4))


def test_a_handover_by_another_than_the_alpha_of_that_term_is_ignored():
    unit = follower(B)
    assert [] == unit.step(0.5, howl(HowlKind.HANDOVER, A, next_unit="b"))
    assert "c" == unit.alpha


def test_a_unit_that_left_does_not_pretend_until_it_is_asked():
    unit = alpha()
    unit.step(0.2, StepDown("drain"))
    assert of_type(tick(unit, 9.0, 0.2), Claim) == []
    assert [Claim(3)] == of_type(unit.step(9.1, AskedToLead()), Claim)


# --- who tries ------------------------------------------------------------------------------------------------------


def test_P43_a_unit_that_cannot_lead_declines_what_it_is_asked():
    unit = follower(Peer(unit="b", boot=1, can_lead=False))
    unit.step(0.5, AskedToLead())
    unit.step(0.6, howl(HowlKind.HANDOVER, C, next_unit="b"))
    unit.step(0.7, howl(HowlKind.ELECTION, A))
    assert of_type(tick(unit, 9.0, 0.7), Claim, Tell) == []


TWELVE = tuple(Peer(unit=f"u-{n}", boot=1) for n in range(1, 13))


def test_the_council_is_the_seven_highest_that_can_lead():
    peers = (*TWELVE[:-1], Peer(unit="u-12", boot=1, can_lead=False))
    assert [f"u-{n}" for n in range(11, 4, -1)] == [peer.unit for peer in council(peers)]


def test_outside_the_council_a_unit_waits_four_silences():
    unit = follower(TWELVE[0], of=TWELVE[-1], peers=TWELVE)
    assert [Alone("heard nothing of u-12 for 1 s")] == tick(unit, 3.99)
    assert [f"u-{n}" for n in range(12, 5, -1)] == told(tick(unit, 4.0, 3.99), HowlKind.ELECTION)


def test_who_moves_up_into_the_council_pretends():
    unit = follower(TWELVE[4], of=TWELVE[-1], peers=TWELVE)
    unit.step(0.1, PeerLost("u-11", 1))
    assert told(tick(unit, 1.2, 0.1), HowlKind.ELECTION)[:6] == ["u-12", "u-10", "u-9", "u-8", "u-7", "u-6"]


# --- time -----------------------------------------------------------------------------------------------------------


def test_a_pause_of_the_judge_is_forgiven():
    unit = follower()
    tick(unit, 0.5)
    assert unit.step(10.5, Ticked()) == []
    assert tick(unit, 10.74, 10.5) == []
    assert Alone("heard nothing of c for 1 s") in tick(unit, 11.0, 10.74)


def test_a_pause_does_not_stretch_the_right_to_lease():
    unit = alpha()
    tick(unit, 0.5, 0.1)
    unit.step(10.5, Ticked())
    assert not unit.may_lease(10.5)


def test_lateness_within_a_heartbeat_is_ordinary():
    unit = follower()
    assert [order for at in (0.4, 0.8) for order in unit.step(at, Ticked())] == []
    assert Alone("heard nothing of c for 1 s") in unit.step(1.0, Ticked())


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES.keys())
def test_retry_delay_doubles_up_to_silence(profile: Timing):
    class Highest(random.Random):
        def uniform(self, a: float, b: float) -> float:
            return b

    first = profile.answer_s / 2
    delays = [retry_delay(tries, profile, Highest()) for tries in range(50)]
    assert [min(profile.silence_s, first * 2**n) for n in range(50)] == delays


def test_retry_delay_stays_in_the_upper_half_of_its_window():
    rng = random.Random(1)
    assert all(0.15 <= retry_delay(1, TIMING, rng) <= 0.3 for _ in range(1000))


def test_S22_lost_claims_back_off_unequally():
    one, two = (Succession(me=B, pack="p", timing=TIMING, rng=random.Random(seed), now=0.0) for seed in (1, 2))
    waits: list[list[float]] = []
    for unit in (one, two):
        unit.step(0.0, AskedToLead())
        now, mine = 0.0, []
        for _ in range(6):
            unit.step(now, ClaimFailed("away"))
            again = unit.next_wake()
            while not of_type(unit.step(again, Ticked()), Claim):
                again = unit.next_wake()
            mine.append(again - now)
            now = again
        waits.append(mine)
    assert all(abs(x - y) > 0.001 for x, y in zip(*waits, strict=True))
    assert all(mine[-1] > 3 * mine[0] for mine in waits)


# --- without a keeper -----------------------------------------------------------------------------------------------


def test_without_a_keeper_the_unit_crowns_itself():
    unit = follower(C, of=A, arbiter=Arbiter.ITSELF)
    assert Crowned(4) in tick(unit, 1.0)
    assert unit.may_lease(1000.0)


def test_without_a_keeper_a_newcomer_listens_before_it_crowns_itself():
    unit = machine(C, arbiter=Arbiter.ITSELF)
    assert of_type(tick(unit, 0.3), Crowned) == []
    assert [Crowned(1)] == of_type(tick(unit, 0.45, 0.3), Crowned)


@pytest.mark.parametrize(("other", "stays"), [(A, True), (C, False)], ids=["lower", "higher"])
def test_without_a_keeper_equal_terms_are_ordered_by_rank(other: Peer, stays: bool):
    unit = follower(B, of=A, arbiter=Arbiter.ITSELF, peers=(A, B))
    tick(unit, 1.0)
    assert Role.ALPHA is unit.role
    orders = unit.step(1.1, howl(HowlKind.HEARTBEAT, other, term=4))
    assert stays == (Role.ALPHA is unit.role)
    assert (["a"] if stays else []) == told(orders, HowlKind.HEARTBEAT)


def test_a_higher_rank_usurps_only_where_that_is_wanted():
    heard = howl(HowlKind.HEARTBEAT, A, term=3)
    loyal = machine(C, arbiter=Arbiter.ITSELF)
    usurper = machine(C, arbiter=Arbiter.ITSELF, usurp=True)
    assert [Following(3, "a", 1)] == loyal.step(0.0, heard)
    assert Crowned(4) in usurper.step(0.0, heard)


def test_usurping_is_refused_where_a_keeper_is():
    with pytest.raises(ValueError, match="keeper"):
        machine(usurp=True)


# --- the manual -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [t.__name__ for t in (*get_args(s_words.Event), *get_args(s_words.Order))] + [*Alarm])
def test_the_manual_tells_every_event_order_and_alarm(name: str):
    manual = (Path(__file__).parents[2] / "docs" / "succession.md").read_text()
    assert f"`{name}" in manual or f"| {name} |" in manual
