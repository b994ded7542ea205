"""Leadership and size of a run, folded from events."""

import pytest

import wolfpack
from packs.computing.story import Kill, Size, alphas, failovers, read_events, size
from tests.packs.fake import FakeDen

PACK = "computing"


def told(*events):
    return [
        wolfpack.Recorded(number=number, at=at, producer="keeper", event=event)
        for number, (at, event) in enumerate(events, start=1)
    ]


def crowned(term, unit, pack=PACK):
    return wolfpack.AlphaCrowned(pack=pack, term=term, unit=unit, boot=1, previous=None, reason="")


def deposed(term, unit, reason="a vanished: its process died", pack=PACK):
    return wolfpack.AlphaDeposed(pack=pack, term=term, unit=unit, boot=1, reason=reason)


def first_lease(term, unit, pack=PACK):
    return wolfpack.FirstLease(pack=pack, term=term, unit=unit)


def joined(unit, pack=PACK):
    return wolfpack.UnitJoined(unit=unit, boot=1, pack=pack, reason="")


def left(unit, pack=PACK):
    return wolfpack.UnitLeft(unit=unit, boot=1, pack=pack, reason="")


def test_alphas_are_those_of_this_pack_with_seconds_since_the_start():
    events = told((11.0, crowned(1, "grey-1")), (11.5, crowned(1, "grey-9", "other")), (12.5, crowned(2, "grey-2")))
    assert [
        {"pack": PACK, "term": 1, "unit": "grey-1", "at_s": 1.0},
        {"pack": PACK, "term": 2, "unit": "grey-2", "at_s": 2.5},
    ] == alphas(events, PACK, 10.0)


def test_the_first_alpha_is_no_failover():
    assert [] == failovers(told((1.0, crowned(1, "a")), (1.2, first_lease(1, "a"))), PACK)


def test_a_failover_runs_from_the_end_of_a_term_to_the_first_lease_of_the_next():
    events = told((5.0, deposed(1, "a")), (5.1, crowned(2, "b")), (5.25, first_lease(2, "b")))
    assert [0.25] == failovers(events, PACK)


def test_a_failover_after_a_kill_runs_from_the_kill():
    events = told((5.0, deposed(1, "a")), (5.1, crowned(2, "b")), (5.25, first_lease(2, "b")))
    assert [0.75] == failovers(events, PACK, [Kill("a", 1, 99, 4.5)])


def test_a_kill_is_a_failover_also_where_nobody_wrote_down_the_end_of_the_term():
    events = told(
        (1.0, crowned(1, "a")), (1.1, first_lease(1, "a")), (5.1, crowned(2, "b")), (5.5, first_lease(2, "b"))
    )
    assert [1.0] == failovers(events, PACK, [Kill("a", 1, 99, 4.5)])


def test_a_silent_alpha_is_a_failover_too():
    events = told((5.0, deposed(1, "a", "a was silent for 1.02 s")), (5.5, first_lease(2, "b")))
    assert [0.5] == failovers(events, PACK)


@pytest.mark.parametrize("reason", ["a released its term", "a left (free for 10 s)"])
def test_a_term_that_its_alpha_let_go_is_no_failover(reason):
    events = told((5.0, deposed(1, "a", reason)), (90.0, first_lease(2, "b")))
    assert [] == failovers(events, PACK)


def test_a_second_alpha_lost_before_its_first_lease_prolongs_the_same_failover():
    events = told(
        (5.0, deposed(1, "a")), (5.1, crowned(2, "b")), (5.2, deposed(2, "b")), (6.0, first_lease(3, "c"))
    )  # fmt: skip
    assert [1.0] == failovers(events, PACK)


def test_a_late_first_lease_of_the_lost_term_ends_no_failover():
    events = told((5.0, deposed(2, "a")), (5.1, first_lease(2, "a")), (5.5, first_lease(3, "b")))
    assert [0.5] == failovers(events, PACK)


def test_failovers_of_other_packs_are_theirs():
    events = told((5.0, deposed(1, "a", pack="other")), (5.5, first_lease(2, "b", pack="other")))
    assert [] == failovers(events, PACK)


def test_unit_seconds_are_members_times_seconds():
    events = told((11.0, joined("a")), (12.0, joined("b")), (14.0, left("a")))
    assert Size(peak=2, unit_seconds=3.0 + 4.0) == size(events, PACK, [], began_at=10.0, ended_at=16.0)


def test_members_at_the_start_count_from_the_start():
    assert Size(peak=2, unit_seconds=20.0) == size([], PACK, ["a", "b"], began_at=0.0, ended_at=10.0)


def test_a_unit_that_is_lost_or_sleeps_or_joins_another_pack_is_a_member_no_more():
    events = told(
        (1.0, wolfpack.UnitLost(unit="a", boot=1, pack=PACK, reason="")),
        (2.0, wolfpack.UnitSlept(unit="b", boot=1, reason="")),
        (3.0, joined("c", "other")),
    )
    assert Size(peak=3, unit_seconds=6.0) == size(events, PACK, ["a", "b", "c"], began_at=0.0, ended_at=10.0)


def test_a_repeated_join_counts_once():
    events = told((1.0, joined("a")), (2.0, joined("a")))
    assert Size(peak=1, unit_seconds=9.0) == size(events, PACK, [], began_at=0.0, ended_at=10.0)


def test_events_outside_the_run_do_not_bend_its_cost():
    events = told((-5.0, joined("a")), (20.0, joined("b")))
    assert 10.0 == size(events, PACK, [], began_at=0.0, ended_at=10.0).unit_seconds


def test_events_are_read_to_the_end_also_in_portions():
    den = FakeDen()
    for number in range(120):
        den.publish(crowned(number, "a"))
    assert list(range(11, 121)) == [item.number for item in read_events(den, 10)]
