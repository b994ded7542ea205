"""A den and its ledger: held, missing, broken or full ledgers are refused or waited for, and drivers come and go."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import wolfpack
from tests.ray import work
from tests.ray.support import ROOT, cards, is_gone, wait_until


def test_a_ledger_that_another_den_holds_is_refused_and_that_den_goes_on(make_den):
    first = make_den(wolves=1)
    with pytest.raises(wolfpack.LedgerHeld):
        make_den(make_den.spec(wolves=1, ledger=first.spec.ledger))

    assert 4 == first.pack().submit(work.square, 2).result(60)


def test_a_folder_that_cannot_be_made_is_refused_with_its_name(make_den, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(wolfpack.LedgerError, match="file"):
        make_den(make_den.spec(wolves=1, ledger=f"sqlite:///{tmp_path}/file/ledger.db"))


def test_a_ledger_of_a_later_version_is_refused_and_not_touched(make_den, tmp_path):
    spec = make_den.spec(wolves=1)
    make_den(spec).close()
    path = Path(spec.ledger.removeprefix("sqlite:///"))
    with sqlite3.connect(path) as con:
        con.execute("PRAGMA user_version = 99")
    con.close()
    before = path.read_bytes()
    with pytest.raises(wolfpack.LedgerTooNew):
        make_den(spec)

    assert before == path.read_bytes()


def test_P44_a_flipped_ledger_is_refused_and_points_to_salvage(make_den):
    spec = make_den.spec(wolves=1)
    den = make_den(spec)
    den.pack().submit(work.square, 2).result(60)
    den.close()
    path = Path(spec.ledger.removeprefix("sqlite:///"))
    data = bytearray(path.read_bytes())
    for end in range(2 * 4096, len(data) + 1, 4096):  # rows fill a page from its end
        data[end - 8] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(wolfpack.LedgerError, match="salvage"):
        make_den(spec)


def test_P62_a_keeper_reborn_without_its_folder_waits_with_a_reason_and_goes_on_when_it_is_back(make_den):
    den = make_den(wolves=1)
    assert 4 == den.pack().submit(work.square, 2).result(60)
    folder = Path(den.spec.ledger.removeprefix("sqlite:///")).parent
    keeper = den._ask("status")["pid"]
    folder.rename(folder.with_name("away"))
    os.kill(keeper, signal.SIGKILL)
    try:

        def refused():
            import ray

            try:
                ray.get(den._gateway._keeper.units.remote(), timeout=5)
            except wolfpack.LedgerUnavailable as exc:
                return str(exc)
            except Exception:
                return ""
            return ""

        reason = wait_until(refused, 40, what="it says why it cannot serve")
    finally:
        folder.with_name("away").rename(folder)

    assert "ledger" in reason
    assert 9 == den.pack().submit(work.square, 3).result(60)


def test_tasks_left_over_go_on_when_the_ledger_is_opened_again(make_den):
    spec = make_den.spec(wolves=1)
    den = make_den(spec)
    future = den.pack().options(delay_s=2.0).submit(work.square, 12)
    wait_until(lambda: "not before" in future.why(), 20)
    den.close()
    with pytest.raises(wolfpack.DenClosed):
        future.result(10)

    assert 144 == make_den(spec).future(future.task_id).result(60)


DRIVER = """
    import sys
    import time

    import ray

    ray.init(address=sys.argv[1], namespace=sys.argv[2], log_to_driver=False)
    from tests.ray.support import cards
    from wolfpack import Den
    from wolfpack.model import DenSpec, PackSpec

    spec = DenSpec(den=sys.argv[2], ledger=sys.argv[3], cards=cards(count=1), packs=(PackSpec(name="work", most=1),))
    den = Den(spec)
    print(den.pack().submit(pow, 2, 3).result(60), flush=True)
    time.sleep(600)
"""


def test_a_den_whose_driver_was_killed_ends_by_itself_and_leaves_no_process(make_den, tmp_path):
    import ray

    name = f"orphan-{os.getpid()}"
    address = ray.get_runtime_context().gcs_address
    command = [sys.executable, "-c", textwrap.dedent(DRIVER), address, name, f"sqlite:///{tmp_path}/orphan.db"]
    driver = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, text=True)
    try:
        assert any(line == "8\n" for line in driver.stdout)  # Ray may print of other processes before it
        keeper = ray.get_actor("keeper", namespace=name)
        pids = [unit.pid for unit in ray.get(keeper.units.remote()) if unit.pid]
        assert pids
    finally:
        driver.kill()
        driver.wait()

    wait_until(lambda: all(map(is_gone, pids)), 40, what="its units ended")
    with pytest.raises(ValueError, match="keeper"):
        wait_until(lambda: ray.get_actor("keeper", namespace=name) is None, 20)


def test_a_process_that_a_task_hid_by_forking_twice_ends_with_its_den(make_den):
    den = make_den(wolves=1)
    pid = den.pack().submit(work.hide_a_process).result(60)
    os.kill(pid, 0)
    den.close()

    wait_until(lambda: is_gone(pid), 10)


def test_P28_a_den_closes_in_bounded_time_with_work_running(make_den):
    import time

    den = make_den(units=cards(count=2))
    futures = [den.pack().submit(work.nap, 300) for _ in range(4)]
    wait_until(lambda: "leased" in futures[0].why(), 60)
    began = time.monotonic()
    den.close()

    assert time.monotonic() - began < 20
    assert all(isinstance(future.exception(1), wolfpack.DenClosed) for future in futures)


def test_a_size_set_by_hand_outlives_the_den_until_the_file_says_otherwise(make_den):
    from dataclasses import replace

    spec = make_den.spec(wolves=3)
    den = make_den(spec)
    den.pack().scale(0, 2)
    den.close()
    again = make_den(spec)
    assert [0, 2] == again.pack().stats()["size"]
    again.close()
    changed = replace(spec, packs=(replace(spec.packs[0], most=1),))

    assert [0, 1] == make_den(changed).pack().stats()["size"]


def test_a_den_that_two_drivers_hold_lives_until_the_second_leaves(make_den):
    from wolfpack import Den

    first = make_den(wolves=1)
    second = Den(first.spec)
    first_future = first.pack().submit(work.square, 3)
    assert 4 == second.pack().submit(work.square, 2).result(60)
    second.close()

    assert 9 == first_future.result(60)
    assert 25 == first.pack().submit(work.square, 5).result(60)


def test_a_den_that_ends_while_its_units_wake_blames_nobody(make_den):
    spec = make_den.spec(wolves=2)
    for _ in range(4):
        den = make_den(spec)
        future = den.pack().submit(work.nap, 60)
        wait_until(lambda den=den: any(unit.boot for unit in den.units()), 30)
        den.close()
        assert isinstance(future.exception(1), wolfpack.DenClosed)
    den = make_den(spec)

    blamed = [e.event for e in den.events() if isinstance(e.event, (wolfpack.UnitLost, wolfpack.UnitQuarantined))]
    assert [] == blamed
    assert "failed" not in " ".join(unit.reason for unit in den.units())
    assert 4 == den.pack().options(priority=9).submit(work.square, 2).result(60)
