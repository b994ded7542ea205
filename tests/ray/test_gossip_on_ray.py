"""Units of a den tell each other who lives, on real Ray: killed, frozen, asleep, hostile, stalled, and in a big pack.

One den for most of it: three wolves `grey`, one `slow` that alone offers that, and one `watched` whose hands must not
stand still. None is in a pack until there is work: gossip is between all awake units.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace

import pytest
import ray

import wolfpack
from tests.ray import work
from tests.ray.support import cards, wait_until
from tests.ray.test_succession_on_ray import frozen, get_alpha, members
from wolfpack.core.items import PACKET_MOST
from wolfpack.core.packets import den_mark
from wolfpack.errors import CallerError, DenUnreachable, Malformed, TaskTimeout, UnknownName
from wolfpack.model import PROFILES, Cause, HandsSpec, PackSpec, Readiness
from wolfpack.pack import Den, UnitSeen

STEADY = {"sleep_after_s": 600.0}
UNITS = (
    *cards("grey", 3, **STEADY),
    *cards("slow", 1, offers=("cpu", "slow"), **STEADY),
    *cards("watched", 1, offers=("cpu", "watched"), hands=HandsSpec(stall_s=3.0), **STEADY),
)


@pytest.fixture(scope="module")
def shared(make_shared_den) -> Den:
    timing = replace(PROFILES["ray"], lease_s=20.0)  # a unit that is frozen for some seconds keeps its leases
    return make_shared_den(units=UNITS, packs=(PackSpec(name="work", most=5),), timing=timing)


@pytest.fixture
def den(shared) -> Den:
    """All units awake, and each thinks that all live."""
    for unit in shared.units():
        if unit.readiness is Readiness.ASLEEP:
            shared.wake(unit.id)
    wait_until(lambda: all(unit.readiness is Readiness.AWAKE for unit in shared.units()), 60, what="all are awake")
    wait_until(lambda: all_alive(shared), 60, every_s=0.2, what="each sees all alive")
    return shared


def all_alive(den: Den) -> bool:
    boots = {unit.id: unit.boot for unit in den.units()}
    return all(
        seen is not None and {each.unit: each.boot for each in seen if each.status == "alive"} == boots
        for seen in den.views().values()
    )


def sees(den: Den, who: str, unit: str) -> UnitSeen:
    return next(each for each in den.view_of(who) if each.unit == unit)


def record(den: Den, unit: str) -> wolfpack.UnitRecord:
    return next(each for each in den.units() if each.id == unit)


def counts(den: Den, unit: str) -> dict[str, int]:
    return ray.get(actor(den, unit).view.remote())[1]


def actor(den: Den, unit: str):
    return ray.get_actor(f"{unit}#{record(den, unit).boot}", namespace=den.name)


def test_all_awake_units_of_a_den_know_each_other_and_how_busy_they_are(den):
    future = den.pack().options(needs={"slow"}).submit(work.nap, 8.0)
    wait_until(lambda: sees(den, "grey-0", "slow-0").leases == 1, 20, every_s=0.1, what="its load is known")

    idle = sees(den, "grey-1", "grey-0")
    assert ("alive", 0, 1, False) == (idle.status, idle.leases, idle.capacity, idle.stalled)
    future.result(30)
    wait_until(lambda: (seen := sees(den, "grey-2", "slow-0")).leases == 0 and seen.progress, 20, every_s=0.1)


def test_an_idle_unit_sends_less_than_five_calls_a_second(den):
    wait_until(lambda: den.pack().stats()["leased"] == 0, 20)
    before, start = counts(den, "grey-0")["sent"], time.monotonic()
    time.sleep(5.0)
    calls = counts(den, "grey-0")["sent"] - before
    assert calls / (time.monotonic() - start) < 5.0


def test_a_killed_unit_is_dead_to_the_others(den):
    first = record(den, "grey-2")
    os.kill(first.pid, signal.SIGKILL)
    for other in ("grey-0", "slow-0"):
        wait_until(
            lambda other=other: (seen := sees(den, other, "grey-2")).status == "dead" or seen.boot > first.boot,
            20, every_s=0.1, what=f"{other} knows",
        )  # fmt: skip


def test_P25_a_frozen_unit_is_suspected_and_alive_again_when_it_goes_on_and_nothing_is_done_twice(den, tmp_path):
    future = den.pack().options(needs={"slow"}).submit(work.mark, str(tmp_path), "once", 0.5)
    wait_until(lambda: work.starts(tmp_path, "once") == 1, 30)
    slow = record(den, "slow-0")
    with frozen(slow.pid):
        wait_until(lambda: sees(den, "grey-0", "slow-0").status in ("suspect", "dead"), 15, every_s=0.1)
        with pytest.raises(DenUnreachable, match="slow-0"):
            den.view_of("slow-0")
        assert None is den.views()["slow-0"]

    assert "once" == future.result(40)
    wait_until(lambda: sees(den, "grey-0", "slow-0").status == "alive", 20, every_s=0.1)
    assert slow.boot == sees(den, "grey-0", "slow-0").boot == record(den, "slow-0").boot
    assert 1 == work.starts(tmp_path, "once") == len(future.attempts)


def test_a_unit_that_goes_to_sleep_has_left_and_cannot_be_asked(den):
    boot = record(den, "grey-1").boot
    den.sleep("grey-1")
    wait_until(lambda: record(den, "grey-1").readiness is Readiness.ASLEEP, 20)
    for other in ("grey-0", "slow-0"):
        wait_until(lambda other=other: sees(den, other, "grey-1").status == "left", 10, every_s=0.1)

    assert boot == sees(den, "grey-0", "grey-1").boot
    with pytest.raises(CallerError, match="grey-1 is asleep"):
        den.view_of("grey-1")
    with pytest.raises(UnknownName, match="grey-0"):
        den.view_of("grey-7")


def test_S38_hostile_bytes_are_refused_and_counted_and_the_unit_goes_on(den):
    before, target = counts(den, "grey-0"), actor(den, "grey-0")
    mark = den_mark(den.name)
    for data in (b"", b"\xff" * 200, mark, mark + b"\x01" * 40, mark + b"\x05" + bytes(900)):
        assert [] == ray.get(target.gossip.remote("evil", data))
        assert b"" == ray.get(target.gossip_sync.remote("evil", data))
    for source, data in (("evil", bytes(PACKET_MOST + 1)), ("evil", "text"), ("", b""), (None, b""), (7, None)):
        with pytest.raises(Malformed):
            ray.get(target.gossip.remote(source, data))
    after = counts(den, "grey-0")

    assert 10 == sum(after.get(kind, 0) - before.get(kind, 0) for kind in ("foreign", "malformed"))
    assert 5 == after["refused_calls"] - before["refused_calls"]
    assert "alive" == sees(den, "grey-0", "grey-1").status
    assert 49 == den.pack().submit(work.square, 7).result(30)


def test_a_task_that_stands_still_for_stall_s_ends_as_TIMEOUT_and_one_that_goes_on_does_not(den):
    pack = den.pack().options(needs={"watched"}, retry={"max_attempts": 1})
    assert "got there" == pack.submit(work.go_on_for, 9.0, 0.3).result(60)

    stuck = pack.submit(work.nap, 300.0)
    with pytest.raises(TaskTimeout, match="no progress for 3 s"):
        stuck.result(60)
    assert [Cause.TIMEOUT] == [attempt.cause for attempt in stuck.attempts]
    assert 3.0 <= stuck.attempts[0].ended_at - stuck.attempts[0].started_at
    assert 64 == pack.submit(work.square, 8).result(30)  # it takes work again


def test_nine_units_of_which_seven_are_the_council_all_follow_the_next_alpha(make_den, tmp_path):
    pack = PackSpec(name="work", fewest=9, most=9)
    den = make_den(units=cards(count=9, **STEADY), packs=(pack,))
    wait_until(lambda: members(den) == 9, 90, what="all are members")
    first = get_alpha(den)
    os.kill(first.pid, signal.SIGKILL)
    get_alpha(den, other_than=first.id)
    futures = [den.pack().submit(work.meet, str(tmp_path), f"m{no}", 8) for no in range(8)]

    assert [True] * 8 == [future.result(60) for future in futures]  # eight work at once: those outside are there too
