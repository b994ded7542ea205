"""The alpha is killed, frozen, put to sleep; the keeper is killed; all are killed: nothing is lost or done twice."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator

import pytest

import wolfpack
from tests.ray import work
from tests.ray.support import cards, wait_until
from wolfpack.model import Cause, PackSpec, Readiness, Role

STEADY = {"sleep_after_s": 600.0}


def alpha_of(den: wolfpack.Den, pack: str = "work") -> wolfpack.UnitRecord | None:
    return next((unit for unit in den.units() if unit.role is Role.ALPHA and unit.pack == pack), None)


def get_alpha(den: wolfpack.Den, other_than: str = "") -> wolfpack.UnitRecord:
    return wait_until(lambda: (a := alpha_of(den)) and a.id != other_than and a, 40, what="there is an alpha")


def members(den: wolfpack.Den) -> int:
    return sum(unit.pack == "work" and unit.readiness is Readiness.AWAKE for unit in den.units())


def crowned(den: wolfpack.Den) -> list[wolfpack.AlphaCrowned]:
    return [each.event for each in den.events() if isinstance(each.event, wolfpack.AlphaCrowned)]


def busy_den(make_den, wolves: int = 3, **parts) -> wolfpack.Den:
    """A den whose pack is full, so that its members stand ready."""
    pack = PackSpec(name="work", fewest=wolves, most=wolves)
    den = make_den(units=cards(count=wolves, **STEADY), packs=(pack,), **parts)
    wait_until(lambda: members(den) == wolves, 60, what="all are members")
    return den


@contextlib.contextmanager
def frozen(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_P40_a_killed_alpha_is_followed_by_another_and_nothing_is_lost_or_done_twice(make_den, tmp_path):
    den = busy_den(make_den)
    pack = den.pack()
    chance = random.Random(7)
    futures = [pack.submit(work.mark, str(tmp_path), f"t{n}", 0.002) for n in range(1500)]
    killed = []
    for share in sorted(chance.uniform(0.05, 0.9) for _ in range(3)):
        wait_until(lambda share=share: sum(f.done() for f in futures) >= share * len(futures), 60)
        first = get_alpha(den)
        os.kill(first.pid, signal.SIGKILL)
        killed.append(first)
        get_alpha(den, other_than=first.id)

    assert [f"t{n}" for n in range(1500)] == [future.result(90) for future in futures]
    stats = den.stats()
    assert (1500, 1500, True) == (stats["submitted"], stats["done"], stats["conservation"])
    assert len(crowned(den)) >= 4
    restarted = [n for n in range(1500) if work.starts(tmp_path, f"t{n}") > 1]
    assert len(restarted) <= 3 * 110  # what the killed units had in hand: at most 0.2 s of work each


def test_P41_S17_S24_a_frozen_alpha_is_found_by_silence_and_refused_when_it_wakes(make_den):
    den = busy_den(make_den)
    pack = den.pack()
    first = get_alpha(den)
    refused = den.stats()["refused_writes"]
    with frozen(first.pid):
        second = get_alpha(den, other_than=first.id)
        assert 49 == pack.submit(work.square, 7).result(30)
    wait_until(lambda: den.stats()["refused_writes"] > refused, 20, what="its writes are refused")

    assert second.id == get_alpha(den).id
    assert [term.term for term in crowned(den)] == sorted({term.term for term in crowned(den)})
    assert 64 == pack.submit(work.square, 8).result(30)
    wait_until(lambda: members(den) == 3, 30, what="the old alpha is a member again, or was born again")


def test_members_keep_their_leases_while_the_alpha_is_gone(make_den, tmp_path):
    den = busy_den(make_den)
    first = get_alpha(den)
    futures = [den.pack().submit(work.mark, str(tmp_path), f"long{n}", 3.0) for n in range(3)]
    wait_until(lambda: sum(work.starts(tmp_path, f"long{n}") for n in range(3)) == 3, 20)
    os.kill(first.pid, signal.SIGKILL)

    assert ["long0", "long1", "long2"] == [future.result(60) for future in futures]
    again = [n for n in range(3) if work.starts(tmp_path, f"long{n}") > 1]
    assert len(again) <= 1  # the alpha's own


def test_P42_a_clean_exit_of_the_alpha_hands_over_at_once(make_den):
    pack = PackSpec(name="work", fewest=2, most=3)
    den = make_den(units=cards(count=3, **STEADY), packs=(pack,))
    futures = [den.pack().submit(work.nap, 0.3) for _ in range(12)]
    wait_until(lambda: members(den) == 3, 60)
    for future in futures:
        future.result(60)
    first = get_alpha(den)
    den.sleep(first.id)
    get_alpha(den, other_than=first.id)
    times = {type(each.event): each.at for each in den.events() if isinstance(each.event, (wolfpack.AlphaDeposed,))}
    crown = [each.at for each in den.events() if isinstance(each.event, wolfpack.AlphaCrowned)][-1]

    assert crown - times[wolfpack.AlphaDeposed] < 0.9  # far below silence_s; no silence is waited for


def test_P43_can_lead_false_is_honoured(make_den):
    units = (*cards("grey", 1, lead=0, **STEADY), *cards("zebra", 2, lead=9, can_lead=False, **STEADY))
    den = make_den(units=units, packs=(PackSpec(name="work", fewest=3, most=3),))
    wait_until(lambda: members(den) == 3, 60)

    assert "grey-0" == get_alpha(den).id


def test_S14_a_returning_higher_rank_changes_nothing(make_den):
    den = busy_den(make_den)
    first = get_alpha(den)
    highest = max(u.id for u in den.units() if u.id != first.id)
    for _ in range(2):
        os.kill(next(u.pid for u in den.units() if u.id == highest), signal.SIGKILL)
        wait_until(lambda: members(den) == 2, 20)
        wait_until(lambda: members(den) == 3, 60)

    assert [first.id] == [term.unit for term in crowned(den)]


def test_P14_P20_a_killed_units_task_is_leased_again_within_one_lease(make_den, tmp_path):
    den = busy_den(make_den)
    future = den.pack().submit(work.mark, str(tmp_path), "task", 2.0)
    wait_until(lambda: work.starts(tmp_path, "task") == 1, 20)
    holder = next(unit for unit in den.units() if unit.leases)
    os.kill(holder.pid, signal.SIGKILL)
    began = time.monotonic()
    wait_until(lambda: work.starts(tmp_path, "task") == 2, 20)

    assert time.monotonic() - began < 5.0  # lease_s of the profile
    assert "task" == future.result(30)
    assert [Cause.LOST, Cause.DONE] == [attempt.cause for attempt in future.attempts]


def test_P21_P61_S36_the_keeper_is_killed_and_everything_goes_on(make_den, tmp_path):
    den = busy_den(make_den)
    pack = den.pack()
    futures = []
    for round_ in range(3):
        futures += [pack.submit(work.mark, str(tmp_path), f"r{round_}-{n}", 0.01) for n in range(150)]
        os.kill(den._ask("status")["pid"], signal.SIGKILL)
    names = [f"r{round_}-{n}" for round_ in range(3) for n in range(150)]

    assert names == [future.result(90) for future in futures]
    stats = den.stats()
    assert (450, 450, True) == (stats["submitted"], stats["done"], stats["conservation"])
    assert stats["epoch"] == 4
    assert all(work.starts(tmp_path, name) == 1 for name in names)  # no unit died, so nothing ran twice


def test_P60_a_keeper_that_was_stopped_for_three_leases_ends_nothing(make_den, tmp_path):
    from dataclasses import replace

    from wolfpack.model import PROFILES

    den = busy_den(make_den, timing=replace(PROFILES["ray"], lease_s=1.0))
    future = den.pack().submit(work.mark, str(tmp_path), "slow", 5.0)
    wait_until(lambda: work.starts(tmp_path, "slow") == 1, 20)
    with frozen(den._ask("status")["pid"]):
        time.sleep(3.0)  # three leases: what is tested is this very pause

    assert "slow" == future.result(60)
    assert 1 == work.starts(tmp_path, "slow")


def test_P64_the_only_member_is_killed_with_work_queued(make_den, tmp_path):
    den = make_den(units=cards(count=1, **STEADY))
    pack = den.pack()
    futures = [pack.submit(work.nap, 0.01, n) for n in range(200)]
    wait_until(lambda: any(future.done() for future in futures), 60)
    os.kill(next(unit.pid for unit in den.units() if unit.pid), signal.SIGKILL)

    assert list(range(200)) == [future.result(90) for future in futures]


def test_S18_everything_is_killed_in_mid_job_and_the_next_den_on_the_ledger_finishes_it(make_den, tmp_path):
    spec = make_den.spec(units=cards(count=2, **STEADY))
    den = make_den(spec, detached=True)
    pack = den.pack()
    futures = [pack.submit(work.mark, str(tmp_path), f"t{n}", 0.02) for n in range(200)]
    wait_until(lambda: sum(future.done() for future in futures) > 30, 60)
    ids = [future.task_id for future in futures]
    keeper = den._ask("status")["pid"]
    for pid in [unit.pid for unit in den.units() if unit.pid]:
        os.kill(pid, signal.SIGKILL)
    os.kill(keeper, signal.SIGKILL)
    import ray

    ray.kill(den._gateway._keeper, no_restart=True)
    with pytest.raises(wolfpack.DenClosed):
        futures[-1].result(30)
    den.close()
    again = make_den(spec)

    assert [f"t{n}" for n in range(200)] == [again.future(task_id).result(90) for task_id in ids]
    stats = again.stats()
    assert (200, 200, True) == (stats["submitted"], stats["done"], stats["conservation"])


def test_P25_a_frozen_units_task_is_leased_elsewhere_and_its_late_report_is_a_ghost(make_den, tmp_path):
    from dataclasses import replace

    from wolfpack.model import PROFILES

    den = busy_den(make_den, timing=replace(PROFILES["ray"], lease_s=1.5))
    first = get_alpha(den)
    futures = [den.pack().submit(work.mark, str(tmp_path), f"f{n}", 1.0) for n in range(3)]
    wait_until(lambda: sum(work.starts(tmp_path, f"f{n}") for n in range(3)) == 3, 20)
    victim = next(unit for unit in den.units() if unit.leases and unit.id != first.id)
    with frozen(victim.pid):
        assert ["f0", "f1", "f2"] == [future.result(60) for future in futures]
    wait_until(lambda: den.stats()["ghosts"] >= 1, 20, what="its report is counted as a ghost")

    assert (3, True) == (den.stats()["done"], den.stats()["conservation"])
