"""What the machine does: joins, probes, suspicions, hints, loads, stalls, alphas and the choice of a unit."""

from __future__ import annotations

import random

import pytest

from tests.core.herd_pump import RAY, Pump
from wolfpack.core.items import Bitmap, Record, Writer, read_items
from wolfpack.core.membership import Membership
from wolfpack.core.membership_words import (
    LIFEGUARD,
    SWIM,
    AddressesGiven,
    AlphaSeen,
    DeathHinted,
    Leaving,
    Load,
    LoadChanged,
    MembershipOptions,
    Order,
    PacketHeard,
    SendPacket,
    Stalled,
    Status,
    Ticked,
)
from wolfpack.core.packets import Kind, Sender, den_mark, read_packet, write_head, write_sender
from wolfpack.core.suspicion import all_know_bound, time_to_dead_bound
from wolfpack.core.view import Base, Member, View

ALIVE, SUSPECT, LEFT, DEAD = Status.ALIVE, Status.SUSPECT, Status.LEFT, Status.DEAD
FIVE = tuple(f"u-{i}" for i in range(5))


def den(seed: int = 1, names: tuple[str, ...] = FIVE, **kind) -> Pump:
    pump = Pump(seed, **kind)
    pump.births(*names)
    pump.run(2.0)
    assert pump.agree()
    return pump


def kinds(pump: Pump, since: int = 0) -> list[Kind]:
    return [read_packet(data, 1 << 20).kind for _, _, data in pump.sent[since:]]


def test_units_that_are_given_one_address_find_all_others():
    pump = Pump()
    for name in FIVE:
        pump.birth(name, knows=["u-0"])
    pump.run_until(pump.agree, 5.0)
    assert pump.units["u-4"].view.get("u-2").address == "U-2"


@pytest.mark.parametrize("source", ["grey\ud800", "x" * 256, ""])
def test_who_speaks_from_an_address_that_no_packet_carries_is_not_believed_so_the_unit_can_go_on_talking(source):
    pump = den()
    ping = write_head(den_mark("timber"), Kind.PING, 1, write_sender(Sender("new-1", 1, 0)))
    pump.give("u-0", PacketHeard(source, ping))
    assert 1 == pump.units["u-0"].counters["malformed"]
    assert "new-1" not in pump.units["u-0"].view
    pump.birth("new-2", knows=["u-0"])
    pump.run_until(pump.agree, 5.0)


def test_a_process_that_pings_is_told_of_the_later_boot_that_took_its_place():
    pump = den()
    pump.units["u-0"].view.put(Member("u-1", "U-1", 2))
    pump.run(4.0)
    assert pump.units["u-1"].counters["newer_boot"] >= 1


def test_two_processes_that_take_each_other_for_old_do_not_answer_each_other_without_end():
    pump = den(names=("u-0", "u-1"))
    pump.units["u-0"].view.put(Member("u-1", "U-1", 2))
    pump.units["u-1"].view.put(Member("u-0", "U-0", 2))
    since = len(pump.sent)
    pump.run(5.0)
    assert 10 < len(pump.sent) - since < 100


def test_a_newcomer_is_known_to_a_den_of_a_hundred_soon():
    names = tuple(f"u-{i}" for i in range(100))
    pump = den(names=names)
    pump.birth("new-1", knows=["u-7"])
    assert pump.run_until(pump.agree, 5.0) < 2.0


def test_an_idle_den_says_pings_and_acks_and_now_and_then_a_sync():
    pump = den()
    since, start = len(pump.sent), pump.now
    pump.run(60.0)
    said = kinds(pump, since)
    assert set(said) == {Kind.PING, Kind.ACK, Kind.SYNC_ASK, Kind.SYNC_SAME}
    assert len(said) / 5 / (pump.now - start) < 4.3


@pytest.mark.parametrize("options", [MembershipOptions(), LIFEGUARD, SWIM], ids=["ours", "lifeguard", "swim"])
@pytest.mark.parametrize("n", [2, 3, 5, 40])
def test_a_crash_is_known_to_all_within_the_bound(options, n):
    pump = den(names=tuple(f"u-{i}" for i in range(n)), options=options)
    pump.crash("u-1")
    first = pump.run_until(lambda: any(of.status is DEAD for _, _, of in pump.changes), 60.0)
    rest = pump.run_until(pump.agree, 60.0)
    if options == MembershipOptions():
        assert first < time_to_dead_bound(RAY, n)
        assert first + rest < all_know_bound(RAY, n)


def test_nobody_is_suspected_where_nobody_fails_even_with_some_loss():
    pump = den(names=tuple(f"u-{i}" for i in range(10)))
    pump.loss = 0.03
    pump.run(60.0)
    assert [of for _, _, of in pump.changes if of.status is DEAD] == []


def test_helpers_reach_a_unit_that_the_prober_cannot():
    pump = den()
    pump.cut = lambda source, to: {source, to} == {"u-0", "u-3"}
    pump.run(30.0)
    assert [of for _, _, of in pump.changes if of.status is not ALIVE] == []
    assert Kind.PING_REQ in kinds(pump)


def test_another_unit_at_the_address_of_a_dead_one_does_not_keep_it_alive():
    pump = den()
    pump.crash("u-1")
    pump.at_address["U-1"] = "u-2"
    pump.run_until(lambda: all(u.view.get("u-1").status is DEAD for u in pump.units.values()), all_know_bound(RAY, 5))


def test_two_units_with_wrong_addresses_of_each_other_are_helped_by_others_who_know_better():
    pump = den()
    for who, other, wrong in (("u-0", "u-1", "U-2"), ("u-1", "u-0", "nowhere")):
        view = pump.units[who].view
        view.put(view.get(other)._replace(address=wrong))
    pump.run(30.0)
    assert [of for _, _, of in pump.changes if of.status is not ALIVE] == []


def test_an_accuser_whose_helpers_heard_nothing_needs_no_news_for_a_short_suspicion():
    pump = den(names=tuple(f"u-{i}" for i in range(10)))
    pump.crash("u-1")
    pump.run_until(lambda: any(u._suspicions for u in pump.units.values()), 5.0)
    accuser = next(u for u in pump.units.values() if u._suspicions)
    assert accuser._suspicions["u-1"].settled
    assert accuser._suspicions["u-1"].deadline - pump.now == pytest.approx(1.0, abs=0.02)


def test_a_hint_is_no_proof_but_makes_a_suspect_at_once():
    pump = den()
    pump.hint("u-0", "u-3")
    assert pump.status("u-0", "u-3") is SUSPECT
    pump.run_until(pump.agree, 2.0)
    assert pump.units["u-3"].counter == 1
    pump.crash("u-3")
    assert pump.run_until(lambda: pump.all_see(DEAD, "u-3"), 10.0) < 4.0


def test_a_hint_about_a_former_boot_is_ignored():
    pump = den()
    pump.crash("u-3")
    pump.birth("u-3", boot=2, knows=["u-0"])
    pump.run_until(pump.agree, 5.0)
    unit = pump.units["u-0"]
    assert [o for o in unit.step(pump.now, DeathHinted("u-3", 1)) if not isinstance(o, SendPacket)] == []


def test_who_leaves_is_known_to_have_left_and_says_nothing_more():
    pump = den()
    pump.give("u-2", Leaving())
    since = len(pump.sent)
    pump.run(2.0)
    assert [who for who, _, _ in pump.sent[since:] if who == "u-2"] == []
    assert [pump.status(name, "u-2") for name in ("u-0", "u-1", "u-3", "u-4")] == [LEFT] * 4
    assert pump.units["u-2"].step(pump.now, Ticked()) == []


def alone() -> Membership:
    """One machine that thinks it lives among five."""
    base = Base(Member(name, name.upper(), 1) for name in FIVE)
    return Membership(
        me="u-0", boot=1, address="U-0", den="timber", timing=RAY, rng=random.Random(1), now=0.0, view=View(base)
    )


def packets(orders: list[Order]) -> list[SendPacket]:
    return [order for order in orders if isinstance(order, SendPacket)]


def ack_of(ping: SendPacket) -> PacketHeard:
    sender = write_sender(Sender(ping.to.lower(), 1, 0))
    return PacketHeard(ping.to, write_head(den_mark("timber"), Kind.ACK, read_packet(ping.data).number, sender))


def test_a_late_tick_moves_deadlines_and_queued_packets_come_first():
    unit = alone()
    ping = packets(unit.step(unit.next_wake(), Ticked()))[0]
    late = unit.next_wake() + 30.0
    unit.step(late, Ticked())
    assert not unit.view.suspects
    assert unit.health == 1
    assert unit.next_wake() == pytest.approx(late + RAY.ack_s)
    unit.step(late + 0.001, ack_of(ping))
    assert unit.health == 0
    unit.step(late + 10.0, Ticked())
    assert not unit.view.suspects


def test_an_ack_that_is_no_defence_yet_gives_a_suspect_its_time_again():
    unit = alone()
    ping = packets(unit.step(0.001, DeathHinted("u-3", 1)))[0]
    assert ping.to == "U-3"
    assert unit._suspicions["u-3"].deadline == pytest.approx(6.001)
    unit.step(0.1, ack_of(ping))
    assert unit.view.get("u-3").status is SUSPECT
    assert unit._suspicions["u-3"].deadline == pytest.approx(6.1)


def test_who_defended_itself_during_a_probe_is_not_accused_for_it():
    unit = alone()
    ping = packets(unit.step(unit.next_wake(), Ticked()))[0]
    writer = Writer(write_head(den_mark("timber"), Kind.GOSSIP, 0, write_sender(Sender("u-9", 1, 0))))
    assert writer.record(Record(ping.to.lower(), 1, 1, ALIVE))
    now = unit.next_wake()
    unit.step(now, PacketHeard("U-9", writer.done()))
    for _ in range(40):
        now = unit.next_wake()
        if now > 1.2:
            break
        for order in packets(unit.step(now, Ticked())):
            if order.to != ping.to and read_packet(order.data).kind is Kind.PING:
                unit.step(now + 0.001, ack_of(order))
    assert unit.view.get(ping.to.lower()) == Member(ping.to.lower(), ping.to, 1, 1)


# --- load ----------------------------------------------------------------------------------------------------------


def test_load_is_told_when_it_changed_and_at_most_once_a_second():
    pump = den()
    for i in range(50):
        pump.give("u-1", LoadChanged(Load(leases=i, capacity=4, budgets=(("gpu", 0.5),))))
        pump.run(0.1)
    pump.run(2.0)
    heard = pump.units["u-4"].load_of("u-1")
    assert heard.leases == 49
    assert heard.budgets == (("gpu", 0.5),)
    assert heard.seq <= 7
    since = len(pump.sent)
    pump.give("u-1", LoadChanged(Load(leases=49, capacity=4, budgets=(("gpu", 0.5),))))
    pump.run(3.0)
    assert Kind.GOSSIP not in kinds(pump, since)


def test_a_load_that_no_packet_carries_is_refused():
    unit = den().units["u-0"]
    for load in (Load(leases=-1), Load(progress=2**63), Load(budgets=(("x", float("nan")),) * 2),
                 Load(budgets=tuple((f"{i}" * 200, 1.0) for i in range(9)))):  # fmt: skip
        with pytest.raises(ValueError, match="load"):
            unit.step(2.0, LoadChanged(load))


def test_the_loads_of_others_reach_a_newcomer():
    pump = den()
    for name in FIVE:
        pump.give(name, LoadChanged(Load(leases=3)))
    pump.run(5.0)
    pump.birth("new-1", knows=["u-0"])
    pump.run_until(pump.agree, 5.0)
    assert [pump.units["new-1"].load_of(name).leases for name in FIVE] == [3] * 5


def test_a_unit_without_progress_is_stalled_for_all_when_three_saw_it_and_goes_on_when_it_moves():
    pump = den(options=MembershipOptions(stall_s=5.0))
    pump.give("u-2", LoadChanged(Load(leases=1, progress=7)))
    pump.run(4.9)
    assert pump.stalls == []
    pump.run_until(lambda: len(pump.stalls) == 4, 10.0)
    assert {(who, s) for who, s in pump.stalls} == {(who, Stalled("u-2", 1, True)) for who in set(FIVE) - {"u-2"}}
    assert not any(pump.units["u-0"].best_unit({"u-2"}) for _ in range(9))
    pump.stalls.clear()
    pump.give("u-2", LoadChanged(Load(leases=1, progress=8)))
    pump.run_until(lambda: len(pump.stalls) == 4, 3.0)
    assert {s for _, s in pump.stalls} == {Stalled("u-2", 1, False)}


def test_two_witnesses_are_not_enough():
    pump = den(names=FIVE[:3], options=MembershipOptions(stall_s=2.0))
    pump.give("u-2", LoadChanged(Load(leases=1)))
    pump.run(30.0)
    assert pump.stalls == []


def test_an_idle_unit_is_never_stalled():
    pump = den(options=MembershipOptions(stall_s=2.0))
    pump.give("u-2", LoadChanged(Load(leases=0, progress=7)))
    pump.run(20.0)
    assert pump.stalls == []


def test_the_better_of_two_gets_the_work_oneself_included():
    pump = den(names=("u-0", "u-1"))
    unit = pump.units["u-0"]
    pump.give("u-0", LoadChanged(Load(leases=5, capacity=1)))
    pump.give("u-1", LoadChanged(Load(leases=4, capacity=1)))
    pump.run(3.0)
    assert {unit.best_unit(lambda name: True) for _ in range(20)} == {"u-1"}
    unit.sent("u-1", 3)
    assert {unit.best_unit(lambda name: True) for _ in range(20)} == {"u-0"}
    unit.confirmed("u-1", 3)
    assert {unit.best_unit({"u-0", "u-1"}) for _ in range(20)} == {"u-1"}


def test_only_those_that_fit_and_live_get_work():
    pump = den()
    unit = pump.units["u-0"]
    assert unit.best_unit(lambda name: name == "u-3") == "u-3"
    assert unit.best_unit({"u-3", "stranger"}) == "u-3"
    assert unit.best_unit(lambda name: False) is None
    pump.crash("u-3")
    pump.run_until(pump.agree, 10.0)
    assert unit.best_unit({"u-3"}) is None


def test_stale_load_does_not_make_everybody_choose_the_same_unit():
    pump = den(names=tuple(f"u-{i}" for i in range(10)))
    for i, name in enumerate(pump.units):
        pump.give(name, LoadChanged(Load(leases=i)))
    pump.run(5.0)
    chosen = [unit.best_unit(lambda name: True) for unit in pump.units.values() for _ in range(20)]
    assert 15 < chosen.count("u-0") < 70
    assert len(set(chosen)) > 5


# --- alphas --------------------------------------------------------------------------------------------------------


def test_the_latest_term_reaches_all_once_and_an_older_one_nobody():
    pump = den()
    pump.give("u-0", AlphaSeen("pack", 4, "u-0", 1))
    pump.run(2.0)
    assert sorted(who for who, heard in pump.alphas if heard.term == 4) == sorted(FIVE)
    pump.give("u-1", AlphaSeen("pack", 3, "u-1", 1))
    pump.run(2.0)
    assert len(pump.alphas) == 5
    assert pump.units["u-3"].alpha_of("pack").alpha == "u-0"


# --- what a pause, a newcomer and an unknown address cost ------------------------------------------------------------


def test_news_is_told_after_a_forgiven_pause_as_before_it():
    pump = den()
    pump.freeze("u-0")
    pump.run(0.9)
    pump.resume("u-0")
    pump.run(1.0)
    pump.give("u-0", AlphaSeen("pack", 1, "u-0", 1))
    pump.run(0.5)
    assert len(pump.alphas) == 5


def test_a_newcomer_tells_nobody_what_all_others_know():
    names = tuple(f"u-{i}" for i in range(60))
    pump = den(names=names)
    pump.birth("new-1", knows=["u-7"])
    since = len(pump.sent)
    pump.run_until(pump.agree, 5.0)
    said = [read_items(read_packet(d, 1 << 20).body) for who, _, d in pump.sent[since:] if who == "new-1" and d[6] < 6]
    assert {record.unit for items in said for record in items.records} <= {"new-1", "u-7"}  # itself, and whom it asked


def test_an_address_where_nobody_answers_is_called_ever_more_rarely():
    pump = den()
    pump.give("u-0", AddressesGiven((("NOBODY", "ghost", 3),)))
    calls = []
    for _ in range(3):
        since = len(pump.sent)
        pump.run(60.0)
        calls.append(len([to for _, to, _ in pump.sent[since:] if to == "NOBODY"]))
    assert calls[0] > 20
    assert calls[2] < 9


def test_a_machine_that_left_wants_no_tick_for_ages():
    pump = den()
    pump.give("u-0", Leaving())
    assert 1e8 < pump.units["u-0"].next_wake() < 1e10


# --- many at once ----------------------------------------------------------------------------------------------------


def test_many_deaths_travel_as_bits_and_all_agree_soon():
    names = tuple(f"u-{i}" for i in range(160))
    pump = den(names=names)
    for name in names[:48]:
        pump.crash(name)
    since = len(pump.sent)
    assert pump.run_until(pump.agree, 30.0) < 7.0
    said = [read_items(read_packet(data).body) for _, _, data in pump.sent[since:] if data[6] < Kind.SYNC_ASK]
    assert sum(len(items.bitmaps) for items in said) > 100


@pytest.mark.parametrize(("units", "passed_on"), [(100, 6), (2_000, 33), (10_000, 33)])
def test_suspicions_of_others_are_passed_on_until_many_fall(units: int, passed_on: int):
    """More than 5% of all units, or than 32: told twenty times by thousands, further ones would fill all packets."""
    base = Base(Member(f"u-{number}", str(number), 1) for number in range(units))
    unit = Membership(
        me="u-0", boot=1, address="0", den="timber", timing=RAY, rng=random.Random(1), now=0.0, view=View(base)
    )
    writer = Writer(write_head(den_mark("timber"), Kind.GOSSIP, 0, write_sender(Sender("u-1", 1, 0))))
    for number in range(10, 70):
        assert writer.record(Record(f"u-{number}", 1, 0, SUSPECT, "u-1"))
    unit.step(0.001, PacketHeard("1", writer.done()))
    assert 60 == len(unit.view.suspects)
    told: set[str] = set()
    while unit.next_wake() < 0.5:
        for order in packets(unit.step(unit.next_wake(), Ticked())):
            packet = read_packet(order.data)
            if packet.kind is Kind.GOSSIP:
                told |= {record.unit for record in read_items(packet.body).records if record.accuser == "u-1"}
    assert passed_on == len(told)


def test_bits_of_another_base_kill_nobody_and_are_answered_with_a_sync():
    pump = den()
    strange = Base(Member(name, name.upper(), 1) for name in ("u-1", "u-2", "x-1", "x-2", "x-3"))
    writer = Writer(write_head(den_mark("timber"), Kind.GOSSIP, 0, write_sender(Sender("u-1", 1, 0))))
    assert writer.bitmap(Bitmap(strange.digest, 0, b"\x1e"))
    since = len(pump.sent)
    pump.give("u-0", PacketHeard("U-1", writer.done()))
    assert pump.agree()
    assert pump.units["u-0"].counters["other_base"] == 1
    assert kinds(pump, since) == [Kind.SYNC_ASK]


def test_views_settle_on_one_base_when_nothing_happens():
    names = tuple(f"u-{i}" for i in range(70))
    pump = den(names=names, options=MembershipOptions(settle_s=3.0))
    pump.crash("u-69")
    pump.birth("new-1", knows=["u-0"])
    pump.run_until(pump.agree, 20.0)
    pump.run(8.0)
    assert len({id(unit.view.base) for unit in pump.units.values()}) == 1
    assert not any(unit.view.differs for unit in pump.units.values())
    pump.crash("u-5")
    pump.run_until(pump.agree, 20.0)
