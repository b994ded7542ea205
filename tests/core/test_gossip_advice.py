"""What gossip tells a brain: who leads a big pack, who lives, and that it stalls. Advice, never more."""

from __future__ import annotations

import random

import pytest

from tests.core.herd_pump import Pump
from wolfpack.core import errands as e
from wolfpack.core.howls import TERMS_AHEAD, HowlKind
from wolfpack.core.member import Brain
from wolfpack.core.membership_words import Load, LoadChanged, MembershipOptions
from wolfpack.core.rivals import COUNCIL_SIZE
from wolfpack.core.standstill import Standstill
from wolfpack.core.wire import HuntReply, Verdict, Where
from wolfpack.model import Card, Cause, HandsSpec, Job, Timing

TIMING = Timing()
TOP = "u-8"


def brain_in(size: int, me: str = "u-0", alpha: str | None = TOP, hands: HandsSpec | None = None) -> Brain:
    """A unit of a pack of u-0, u-1, ... in term 5; the highest number ranks highest."""
    peers = tuple((f"u-{no}", 1, 0, True) for no in range(size))
    where = Where(True, False, "", "p", 5, alpha, 1 if alpha else 0, peers, (), (), b"", 0, 0)
    card = Card(unit=me, kind="u", hands=hands or HandsSpec())
    brain = Brain(card=card, boot=1, where=where, timing=TIMING, rng=random.Random(1), now=0.0, gossip=True)
    brain.start(0.0)
    return brain


def run(brain: Brain, start: float, seconds: float) -> list[e.Order]:
    now, orders = start, []
    while now < start + seconds:
        orders += brain.step(now, e.Tick())
        now = max(now + 0.01, brain.next_wake())
    return orders


def hunted_at(orders: list[e.Order]) -> list[str]:
    return [order.to for order in orders if isinstance(order, e.SendHunt)]


# --- who leads a big pack -----------------------------------------------------------------------------------------


def test_outside_the_council_silence_is_no_sign_of_anything():
    orders = run(brain_in(9), 0.0, 60.0)
    assert [] == [order for order in orders if isinstance(order, (e.SendHowl, e.SendClaim))]


def test_in_the_council_of_a_big_pack_a_silent_alpha_is_missed():
    orders = run(brain_in(9, me="u-7"), 0.0, 3.0)
    assert HowlKind.ELECTION in {order.howl.kind for order in orders if isinstance(order, e.SendHowl)}


def test_outside_the_council_a_new_alpha_is_followed_when_gossip_tells_of_it():
    brain = brain_in(9)
    run(brain, 0.0, 1.0)
    orders = brain.step(1.0, e.AlphaTold(pack="p", term=6, alpha="u-7", boot=1))
    assert ["u-7"] == hunted_at(orders)
    assert ("p", 6, "u-7", 1) == brain.leadership


def test_outside_the_council_an_alpha_that_died_in_the_view_is_not_hunted_at_until_it_lives_there_again():
    brain = brain_in(9)
    run(brain, 0.0, 0.5)
    brain.step(1.0, e.ViewChanged(unit=TOP, boot=1, lives=False))
    assert None is brain.leadership
    orders = brain.step(1.5, e.ViewChanged(unit=TOP, boot=1, lives=True))
    assert ("p", 5, TOP, 1) == brain.leadership
    assert [TOP] == hunted_at(orders)


def test_where_even_the_council_finds_no_alpha_one_outside_claims():
    brain = brain_in(9)
    brain.step(1.0, e.ViewChanged(unit=TOP, boot=1, lives=False))
    orders = run(brain, 1.0, 5 * TIMING.silence_s)
    assert any(isinstance(order, (e.SendClaim, e.SendHowl)) for order in orders)


def test_the_alpha_of_a_big_pack_howls_to_its_council_alone():
    brain = brain_in(9, me=TOP, alpha=None)
    peers = tuple((f"u-{no}", 1, 0, True) for no in range(9))
    brain.step(0.1, e.AskedFor(pack="p", term=5))
    orders = brain.step(0.2, e.ClaimAnswered(pack="p", prev_term=5, verdict=Verdict(True, 6, TOP, 1, peers, "", 0)))
    told = {order.to for order in orders if isinstance(order, e.SendHowl)}
    assert COUNCIL_SIZE == len(told)
    assert {"u-0"} == {f"u-{no}" for no in range(8)} - told
    assert ("p", 6, TOP, 1) == brain.leadership  # which its driver gossips


@pytest.mark.parametrize(
    ("size", "told"),
    [
        (3, e.AlphaTold(pack="p", term=6, alpha="u-1", boot=1)),  # a small pack howls
        (9, e.AlphaTold(pack="other", term=6, alpha="u-7", boot=1)),
        (9, e.AlphaTold(pack="p", term=4, alpha="u-7", boot=1)),
        (9, e.AlphaTold(pack="p", term=6, alpha="u-0", boot=1)),  # about itself a unit knows better
        (9, e.AlphaTold(pack="p", term=6 + TERMS_AHEAD, alpha="u-7", boot=1)),
    ],
)
def test_gossip_that_has_no_say_changes_nothing(size, told):
    brain = brain_in(size, alpha="u-2")
    brain.step(1.0, told)
    assert ("p", 5, "u-2", 1) == brain.leadership


def test_in_a_small_pack_a_view_that_calls_the_alpha_dead_moves_nobody():
    brain = brain_in(3, me="u-1", alpha="u-2")
    orders = brain.step(0.1, e.ViewChanged(unit="u-2", boot=1, lives=False))
    assert ("p", 5, "u-2", 1) == brain.leadership
    assert not any(isinstance(order, e.SendHowl) for order in orders)


# --- stalled ------------------------------------------------------------------------------------------------------

STALLS = HandsSpec(concurrency=2, stall_s=30.0)


def busy_brain(hands: HandsSpec) -> Brain:
    """Leases 1 to 3 in hand: 1 runs for 31 s, 2 for 4 s, 3 waits."""
    brain = brain_in(3, alpha="u-2", hands=hands)
    run(brain, 0.0, 0.1)
    jobs = tuple(Job(no, f"t:{no}", "f", b"", "", "", 1, None, False, 5) for no in (1, 2, 3))
    brain.step(0.2, e.HuntAnswered(n=1, reply=HuntReply(5, "u-2", 1, 1, jobs)))
    brain.step(31.2, e.Running(seconds={1: 31.0, 2: 4.0}))
    return brain


def spare(orders: list[e.Order]) -> list[int]:
    return [order.hunt.spare for order in orders if isinstance(order, e.SendHunt)]


def cancelled(orders: list[e.Order]) -> list[tuple[int, str, bool]]:
    return [(order.lease_no, order.cause, order.kill) for order in orders if isinstance(order, e.CancelJob)]


def test_a_stalled_unit_ends_what_is_stuck_and_hands_back_what_waits():
    orders = busy_brain(STALLS).step(31.3, e.StallJudged(stalled=True))
    assert [(1, Cause.TIMEOUT, True)] == cancelled(orders)
    assert [(3,)] == [order.lease_nos for order in orders if isinstance(order, e.TakeBack)]
    assert "no progress for 30 s" in next(order.text for order in orders if isinstance(order, e.CancelJob))


def test_what_is_stuck_is_ended_once_and_what_gets_stuck_later_too():
    brain = busy_brain(STALLS)
    brain.step(31.3, e.StallJudged(stalled=True))
    assert [] == cancelled(brain.step(31.4, e.Running(seconds={1: 31.2, 2: 4.2})))
    assert [(2, Cause.TIMEOUT, True)] == cancelled(brain.step(57.3, e.Running(seconds={1: 57.0, 2: 30.1})))


def test_a_stalled_unit_asks_for_no_work_until_it_goes_on():
    brain = brain_in(3, alpha="u-2", hands=STALLS)
    assert [0] == spare(brain.step(0.1, e.StallJudged(stalled=True)))
    assert [] == spare(run(brain, 0.2, 0.3))
    assert spare(brain.step(0.6, e.StallJudged(stalled=False)))[0] > 0


def test_P12_P16_without_stall_s_a_long_task_that_says_nothing_has_no_fault():
    brain = busy_brain(HandsSpec(concurrency=2))
    orders = brain.step(86_400.0, e.StallJudged(stalled=True))
    orders += brain.step(86_400.1, e.Running(seconds={1: 86_400.0}))
    assert [] == cancelled(orders)


@pytest.mark.parametrize(
    ("stalled", "running", "expected"),
    [
        (False, {1: 99.0}, ()),
        (True, {1: 9.9}, ()),
        (True, {1: 10.0, 2: 3.0}, (1,)),
        (True, {2: 11.0, 1: 10.5}, (1, 2)),
        (True, {7: 99.0}, ()),  # ended meanwhile
    ],
)
def test_a_standstill_names_what_has_run_for_stall_s(stalled, running, expected):
    standstill = Standstill(10.0)
    standstill.judge(stalled)
    assert expected == standstill.give_up((1, 2, 3), running)
    assert () == standstill.give_up((1, 2, 3), running)


def stalls_told(
    units: int, options: MembershipOptions, *, goes_on: bool = False, seed: int = 1, loss: float = 0.0
) -> set[str]:
    """Who hears that u0 stalls (or that it goes on again), busy without progress for a minute."""
    pump = Pump(seed, options=options)
    pump.births(*(f"u{no}" for no in range(units)))
    pump.give("u0", LoadChanged(Load(leases=1, progress=4)))
    pump.run(5.0)
    pump.loss = loss
    pump.run(60.0)
    if goes_on:
        pump.stalls.clear()
        pump.give("u0", LoadChanged(Load(leases=1, progress=5)))
        pump.run(10.0)
    return {who for who, order in pump.stalls if order.unit == "u0" and order.stalled is not goes_on}


@pytest.mark.parametrize("seed", range(10))
def test_a_stalled_unit_hears_of_it_like_everybody_else(seed):
    assert {f"u{no}" for no in range(5)} == stalls_told(5, MembershipOptions(stall_s=20.0), seed=seed)


@pytest.mark.parametrize("seed", range(12))
def test_a_stalled_unit_hears_of_it_where_a_fifth_of_all_packets_is_lost(seed):
    assert {f"u{no}" for no in range(8)} == stalls_told(8, MembershipOptions(stall_s=20.0), seed=seed, loss=0.2)


def test_a_unit_that_goes_on_is_known_to_go_on_to_itself_too():
    assert {f"u{no}" for no in range(5)} == stalls_told(5, MembershipOptions(stall_s=20.0), goes_on=True)


def test_two_witnesses_are_not_enough():
    assert set() == stalls_told(3, MembershipOptions(stall_s=20.0))


@pytest.mark.parametrize(("stalls", "expected"), [({}, 0), ({"u1": 20.0}, 0), ({"u0": 90.0}, 0), ({"u0": 20.0}, 5)])
def test_each_unit_stalls_after_its_own_time_or_never(stalls, expected):
    assert expected == len(stalls_told(5, MembershipOptions(stall_s=1.0, stalls=stalls)))
