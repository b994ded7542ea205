"""Cases of membership from the field, each with a handful of machines on virtual time."""

from __future__ import annotations

import random

import pytest

from tests.core.herd_pump import RAY, Pump
from wolfpack.core.items import Record, Writer, read_items
from wolfpack.core.membership_words import (
    Incarnation,
    Leaving,
    MembershipOptions,
    PacketHeard,
    SendPacket,
    Status,
    Ticked,
)
from wolfpack.core.packets import Kind, Sender, den_mark, read_packet, write_head, write_sender
from wolfpack.core.suspicion import all_know_bound

ALIVE, SUSPECT, LEFT, DEAD = Status.ALIVE, Status.SUSPECT, Status.LEFT, Status.DEAD
FIVE = tuple(f"u-{i}" for i in range(5))
BOUND = all_know_bound(RAY, 5)


U_1 = Sender("u-1", 1, 0)


def gossip(*records: Record, sender: Sender = U_1, den: str = "timber") -> bytes:
    writer = Writer(write_head(den_mark(den), Kind.GOSSIP, 0, write_sender(sender)))
    assert all(map(writer.record, records))
    return writer.done()


def heard(pump: Pump, name: str, *records: Record, sender: Sender = U_1) -> None:
    pump.give(name, PacketHeard(sender.unit.upper(), gossip(*records, sender=sender)))


def den(seed: int = 1, names: tuple[str, ...] = FIVE, **kind) -> Pump:
    pump = Pump(seed, **kind)
    pump.births(*names)
    pump.run(2.0)
    assert pump.agree()
    return pump


def test_S01_after_a_mass_restart_notices_of_old_high_incarnations_hold_nobody_down():
    pump = den(names=tuple(f"u-{i}" for i in range(8)))
    reborn = [f"u-{i}" for i in range(4, 8)]
    for name in reborn:
        for other in list(pump.units):
            heard(pump, other, Record(name, 1, 900, DEAD), sender=Sender("u-0", 1, 0))
        pump.crash(name)
    for name in reborn:
        pump.birth(name, boot=2, knows=["u-0", "u-1"])
        heard(pump, name, Record(name, 1, 900, DEAD), sender=Sender("u-0", 1, 0))
    pump.run_until(pump.agree, BOUND)
    assert [pump.units["u-0"].view.get(name).incarnation for name in reborn] == [Incarnation(2, 0)] * 4


def test_S02_a_hundred_thousand_goodbyes_leave_bounded_tombstones_and_packets_within_budget():
    pump = Pump(options=MembershipOptions(tombstones_most=500))
    pump.births("u-0", "u-1")
    unit = pump.units["u-0"]
    for first in range(0, 100_000, 50):
        goodbyes = [Record(f"guest-{i}", 1, 0, LEFT) for i in range(first, first + 50)]
        unit.step(0.001, PacketHeard("U-1", gossip(*goodbyes)))
    assert len(unit.view) == 502
    assert unit.view.slots <= 504
    for tick in range(1, 50):
        for order in unit.step(0.2 * tick, Ticked()):
            if isinstance(order, SendPacket):
                assert len(order.data) <= 1400


def test_S03_a_unit_that_left_comes_back_under_its_name_within_the_tombstones_time():
    pump = den()
    pump.give("u-3", Leaving())
    pump.crash("u-3")
    pump.run_until(lambda: pump.all_see(LEFT, "u-3"), 3.0)
    pump.birth("u-3", boot=2, knows=["u-1"])
    pump.run_until(pump.agree, 3.0)


def test_S03_a_unit_that_was_killed_comes_back_under_its_name():
    pump = den()
    pump.crash("u-3")
    pump.run_until(lambda: pump.all_see(DEAD, "u-3"), BOUND)
    pump.birth("u-3", boot=2, knows=["u-1"])
    pump.run_until(pump.agree, 3.0)


def refutations(limited: bool) -> int:
    """How often two of ten units defend themselves, accused of many things for five seconds."""
    names = tuple(f"u-{i}" for i in range(10))
    pump = den(names=names, options=MembershipOptions(limit_refutations=limited))
    for i in range(100):
        for name in ("u-8", "u-9"):
            accused = pump.units[name]
            heard(pump, name, Record(name, 1, accused.counter, SUSPECT, f"u-{i % 8}"))
        pump.run(0.05)
    counters = [pump.units[name].counter for name in ("u-8", "u-9")]
    pump.run_until(pump.agree, 5.0)
    return max(counters)


def test_S04_refutations_are_gathered_with_the_limiter_and_one_for_each_accusation_without():
    assert refutations(limited=False) == 100
    assert 8 < refutations(limited=True) < 20


def test_S04_the_newest_refutation_is_always_sent():
    pump = den(options=MembershipOptions())
    for counter in (0, 1, 5, 3, 40):
        heard(pump, "u-4", Record("u-4", 1, counter, SUSPECT, "u-2"))
    pump.run(0.5)
    assert pump.units["u-4"].counter == 41
    pump.run_until(pump.agree, 1.0)


def test_S05_a_starved_unit_that_handles_its_messages_late_kills_nobody():
    pump = den(seed=3, names=tuple(f"u-{i}" for i in range(10)))
    for _ in range(20):  # 0.9 of each second away
        pump.freeze("u-9")
        pump.run(0.9)
        pump.resume("u-9")
        pump.run(0.1)
    assert [(of.unit, of.status) for _, who, of in pump.changes if of.status is DEAD] == []
    pump.run_until(pump.agree, BOUND)


def test_S05_a_pause_of_ones_own_is_forgiven():
    pump = den()
    pump.freeze("u-0")
    pump.run(0.9)
    pump.resume("u-0")
    pump.run(1.0)
    assert [of.unit for _, who, of in pump.changes if who == "u-0" and of.status is not ALIVE] == []


def test_S06_a_partition_of_25_hours_merges_after_it():
    pump = den(names=("u-0", "u-1"))
    pump.cut = lambda source, to: True
    pump.run(25 * 3600.0)
    assert (pump.status("u-0", "u-1"), pump.status("u-1", "u-0")) == (DEAD, DEAD)
    pump.cut = lambda source, to: False
    pump.run_until(pump.agree, 20.0)


def test_S06_even_a_death_that_is_forgotten_is_healed():
    pump = Pump(options=MembershipOptions(tombstones_most=2))
    for name in FIVE:
        pump.birth(name, knows=FIVE)
    pump.run_until(pump.agree, 10.0)
    pump.run(10.0)
    assert not any(unit._seeds for unit in pump.units.values())  # they would find each other by these
    side = {"u-0", "u-1"}
    pump.cut = lambda source, to: (source in side) != (to in side)
    pump.run_until(lambda: pump.units["u-0"].view.living == 2 and pump.units["u-4"].view.living == 3, 60.0)
    for guest in ("guest-1", "guest-2"):
        heard(pump, "u-0", Record(guest, 1, 0, LEFT))
        heard(pump, "u-4", Record(guest, 1, 0, LEFT), sender=Sender("u-3", 1, 0))
    pump.run(3.0)
    assert {m.unit for m in pump.units["u-0"].view} == {"u-0", "u-1", "guest-1", "guest-2"}
    pump.cut = lambda source, to: False
    pump.run_until(pump.agree, 40.0)


def test_S07_a_unit_that_lost_everybody_is_found_again():
    pump = den()
    pump.cut = lambda source, to: "u-0" in (source, to)
    pump.run_until(lambda: all(pump.status("u-0", name) is DEAD for name in FIVE[1:]), 90.0)
    pump.cut = lambda source, to: False
    pump.run_until(pump.agree, 30.0)


@pytest.mark.parametrize("limited", [True, False])
def test_S08_two_refutations_in_one_tick_never_share_a_number(limited):
    pump = den(options=MembershipOptions(limit_refutations=limited))
    unit = pump.units["u-4"]
    told = []
    for _ in range(3):
        counter = unit.counter
        heard(pump, "u-4", Record("u-4", 1, counter, SUSPECT, "u-2"), Record("u-4", 1, counter, DEAD))
        heard(pump, "u-4", Record("u-4", 1, counter, LEFT))
        told.append((counter, unit.counter))
    assert all(after in (before, before + 1) for before, after in told)
    pump.run(1.0)
    assert unit.counter == (2 if limited else 3)  # the first at once, the next two as one
    assert pump.agree()


def test_S09_a_late_word_of_before_a_removal_does_not_bring_it_back():
    pump = den()
    late = gossip(Record("u-4", 1, 0, ALIVE, None, "U-4"))
    for _ in range(2):
        heard(pump, "u-4", Record("u-4", 1, pump.units["u-4"].counter, SUSPECT, "u-2"))
        pump.run(1.0)
    pump.crash("u-4")
    pump.run_until(lambda: pump.all_see(DEAD, "u-4"), BOUND)
    changes = len(pump.changes)
    for name in FIVE[:4]:
        pump.give(name, PacketHeard("U-1", late))
        pump.give(name, PacketHeard("U-4", gossip(sender=Sender("u-4", 1, 0))))
    pump.run(30.0)
    assert pump.changes[changes:] == []


def test_S10_two_dens_born_in_a_partition_merge_when_they_are_one_den():
    pump = Pump()
    for name in FIVE[:2]:
        pump.birth(name, knows=FIVE)
    for name in FIVE[2:]:
        pump.birth(name, knows=FIVE)
    side = set(FIVE[:2])
    pump.cut = lambda source, to: (source in side) != (to in side)
    pump.run(20.0)
    assert pump.units["u-0"].view.living == 2
    assert pump.units["u-4"].view.living == 3
    pump.cut = lambda source, to: False
    pump.run_until(pump.agree, 20.0)


def test_S10_dens_of_different_names_never_merge():
    pump = Pump()
    for name in FIVE[:2]:
        pump.birth(name, den="timber", knows=FIVE)
    for name in FIVE[2:]:
        pump.birth(name, den="tundra", knows=FIVE)
    pump.run(60.0)
    assert {m.unit for m in pump.units["u-0"].view} == {"u-0", "u-1"}
    assert {m.unit for m in pump.units["u-4"].view} == {"u-2", "u-3", "u-4"}
    assert pump.units["u-0"].counters["foreign"] > 0


def test_S12_links_that_flap_for_less_than_a_probe_change_nothing():
    pump = den(seed=5)
    changes = len(pump.changes)
    for i in range(60):
        bad = FIVE[i % 5]
        pump.cut = lambda source, to, bad=bad: bad in (source, to)
        pump.run(0.15)
        pump.cut = lambda source, to: False
        pump.run(0.85)
    assert [c for c in pump.changes[changes:] if c[2].status is DEAD] == []
    pump.run_until(pump.agree, 5.0)


def test_S28_accusations_alone_stop_nobody():
    pump = den(names=tuple(f"u-{i}" for i in range(10)))
    sick = Sender("u-9", 1, 0)
    for _ in range(40):  # one sick unit says of all others, to all, that they are dead
        for name in list(pump.units)[:9]:
            about = [Record(o, 1, pump.units[o].counter, DEAD) for o in list(pump.units)[:9]]
            heard(pump, name, *about, sender=sick)
        pump.run(0.25)
    assert len(pump.units) == 10
    assert all(unit.next_wake() < 1e6 for unit in pump.units.values())
    pump.run_until(pump.agree, 20.0)


@pytest.mark.parametrize(
    "poison",
    [
        Record("u-2", 2**62, 0, ALIVE),
        Record("u-2", 1, 2**62, DEAD),
        Record("u-2", 5000, 2**63 - 1, DEAD),
        Record("x" * 190, 2**63 - 1, 2**63 - 1, LEFT),
        Record("u-2", 1, 2**63 - 1, SUSPECT, "u-2", "nowhere"),
    ],
)
def test_S38_a_poisoned_record_is_refused_counted_and_the_rest_goes_on(poison):
    pump = den()
    for name in FIVE:
        heard(pump, name, poison, Record("u-1", 1, 0, ALIVE))
    pump.run(10.0)
    pump.run_until(lambda: {m.unit for m in pump.units["u-0"].view if m.lives} == set(FIVE), 10.0)
    if poison.unit == "u-2":
        assert pump.units["u-0"].counters["far_ahead"] == 1
    assert pump.agree()


def test_S38_hostile_bytes_are_counted_and_stop_nobody():
    pump = den()
    rng = random.Random(3)
    unit = pump.units["u-0"]
    before = sum(unit.counters.values())
    for i in range(3000):
        data = rng.randbytes(rng.randrange(0, 60))
        pump.give("u-0", PacketHeard("U-9", den_mark("timber") + data if i % 2 else data))
    pump.give("u-0", PacketHeard("U-9", den_mark("timber") + bytes(5000)))
    assert sum(unit.counters.values()) - before > 2900
    pump.run_until(pump.agree, 30.0)


def test_a_record_far_ahead_is_answered_with_a_sync():
    pump = den()
    sent = len(pump.sent)
    heard(pump, "u-0", Record("u-2", 5000, 0, ALIVE))
    packets = [data for who, to, data in pump.sent[sent:] if (who, to) == ("u-0", "U-1")]
    assert [read_packet(data, 1 << 20).kind for data in packets] == [Kind.SYNC_ASK]


def test_a_suspect_is_told_first_in_a_ping():
    pump = den()
    heard(pump, "u-0", Record("u-2", 1, 0, SUSPECT, "u-3"))
    sent = len(pump.sent)
    pump.run_until(lambda: any(p[:2] == ("u-0", "U-2") for p in pump.sent[sent:]), 5.0)
    data = next(data for who, to, data in pump.sent[sent:] if (who, to) == ("u-0", "U-2"))
    first = read_items(read_packet(data).body).records[0]
    assert (first.unit, first.status) == ("u-2", SUSPECT)
