"""Membership with real packets between real processes on loopback: killed, frozen, started again, leaving."""

from __future__ import annotations

import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from tests.udp.processes import ALIVE, DEAD, LEFT, SUSPECT, Cluster, UnitProcess, wait_until
from wolfpack.core.anti_entropy import read_message, write_message
from wolfpack.core.packets import Kind, Sender, den_mark, write_sender
from wolfpack.core.suspicion import all_know_bound, time_to_dead_bound
from wolfpack.core.view import View
from wolfpack.model import PROFILES
from wolfpack.udp.__main__ import main
from wolfpack.udp.addresses import split_address

RAY = PROFILES["ray"]
SLACK_S = 3.0  # two slow cores with other work
LOAD_S = 5.0  # how old a load may be
DEN = "demo"


@pytest.fixture(scope="module")
def processes() -> Iterator[Cluster]:
    cluster = Cluster(DEN)
    yield cluster
    cluster.end()


@pytest.fixture
def cluster(processes: Cluster) -> Cluster:
    """All five live and know each other."""
    processes.whole()
    return processes


def test_five_processes_find_each_other_from_one_seed(cluster: Cluster):
    for process in cluster.units.values():
        assert set(cluster.units) == set(process.members())
        assert {ALIVE} == {member["status"] for member in process.members().values()}


def test_a_load_set_at_one_is_seen_at_all_others_in_time(cluster: Cluster):
    cluster.units["u-2"].order("load", leases=3, queued=1, capacity=4, budgets={"gpu": 0.5})

    def seen() -> bool:
        loads = [process.members()["u-2"]["load"] for process in cluster.others("u-2")]
        return all(load is not None and (load["leases"], load["budgets"]) == (3, [["gpu", 0.5]]) for load in loads)

    wait_until(seen, LOAD_S, what="the load of u-2 at all others")


def test_a_late_joiner_has_the_full_view_from_one_sync_over_tcp(cluster: Cluster):
    """The joiner has no UDP socket at all: what it learns came over TCP."""
    with socket.create_connection(split_address(cluster.seed), timeout=5.0) as caller:
        ask = write_message(
            den_mark(DEN), write_sender(Sender("late", 1, 0)), "127.0.0.1:9", View(), Kind.SYNC_ASK
        )  # fmt: skip
        caller.sendall(len(ask).to_bytes(4, "big") + ask)
        data = b"".join(iter(lambda: caller.recv(1 << 16), b""))
    assert len(data) - 4 == int.from_bytes(data[:4], "big")
    answer = read_message(data[4:])
    told = {record.unit: (record.boot, record.address) for record in answer.items.records}
    expected = {unit: (process.boot, process.address) for unit, process in cluster.units.items()}
    assert expected == {unit: told.get(unit) for unit in expected}


def test_S38_garbage_at_a_member_is_counted_and_the_rest_goes_on(cluster: Cluster):
    target = cluster.units["u-3"]
    place = split_address(target.address)
    before = {process.unit: len(process.said("change")) for process in cluster.units.values()}
    counted = target.counters()
    chance = random.Random(7)
    mark = den_mark(DEN)
    packets = [chance.randbytes(chance.randrange(0, 1400)) for _ in range(150)]  # of no den at all
    packets += [mark + bytes([chance.randrange(12)]) + chance.randbytes(chance.randrange(60)) for _ in range(150)]
    packets += [mark + b"\x01" + bytes(1500), bytes(9000)]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gun:
        for packet in packets:
            gun.sendto(packet, place)
            time.sleep(0.001)  # so that the kernel's queue drops none

    def refused() -> int:
        now = target.counters()
        names = ("foreign", "malformed", "packets_too_large")
        return sum(now.get(name, 0) - counted.get(name, 0) for name in names)

    wait_until(lambda: refused() >= 300, 5.0, what="at least 300 of 302 packets refused")
    cluster.units["u-1"].order("load", leases=7)
    wait_until(
        lambda: (target.members()["u-1"]["load"] or {}).get("leases") == 7, LOAD_S, what="u-3 still hears the others"
    )
    assert target.lives
    assert "bugs" not in target.counters()
    assert {ALIVE} == {process.thinks("u-3") for process in cluster.others("u-3")}
    told = [line for process in cluster.units.values() for line in process.said("change")[before[process.unit] :]]
    assert not [line for line in told if line["unit"] in cluster.units and line.get("status") == DEAD]


def test_S10_two_dens_on_one_network_never_merge(cluster: Cluster):
    first = UnitProcess("o-1", "other", seeds=[cluster.seed])
    second = UnitProcess("o-2", "other", seeds=[first.address, *(p.address for p in cluster.units.values())])
    try:
        wait_until(lambda: (first.thinks("o-2"), second.thinks("o-1")) == (ALIVE, ALIVE), 10.0, what="they meet")
        foreign = [process for process in cluster.units.values() if process.counters().get("foreign")]
        wait_until(lambda: cluster.units["u-1"].counters().get("foreign", 0) >= 3, 10.0, what="u-1 was called")
        assert foreign
        assert {"o-1", "o-2"} == set(first.members()) == set(second.members())
        for process in cluster.units.values():
            assert not {"o-1", "o-2"} & set(process.members())
    finally:
        first.end()
        second.end()


def test_S03_who_says_goodbye_is_left_and_never_dead_and_may_come_back(cluster: Cluster):
    leaver = cluster.units["u-4"]
    leaver.order("leave")
    assert 0 == leaver.wait()
    others = cluster.others("u-4")
    wait_until(lambda: {LEFT} == {process.thinks("u-4") for process in others}, 5.0, what="LEFT at all others")
    for process in others:
        assert DEAD not in [status for status, _ in process.changes("u-4")]
    cluster.start("u-4")
    wait_until(cluster.agreed, 10.0, what="its next boot is alive at all")


def test_a_killed_unit_is_dead_at_all_in_time_and_its_next_boot_replaces_it(cluster: Cluster):
    victim = cluster.units["u-5"]
    bound_s = all_know_bound(RAY, Cluster.SIZE) + SLACK_S
    killed_at = victim.signal(signal.SIGKILL)
    others = cluster.others("u-5")
    wait_until(lambda: {DEAD} == {p.thinks("u-5", victim.boot) for p in others}, bound_s, what="DEAD at all others")
    took_s = [process.changes("u-5", victim.boot)[-1][1] - killed_at for process in others]
    assert min(took_s) <= time_to_dead_bound(RAY, Cluster.SIZE) + SLACK_S
    print(f"killed: first DEAD after {min(took_s):.2f} s, the last after {max(took_s):.2f} s, bound {bound_s:.1f} s")
    assert max(took_s) <= bound_s

    again = cluster.start("u-5")
    assert again.boot > victim.boot
    assert again.address != victim.address
    wait_until(cluster.agreed, 10.0, what="the new boot is alive at all")
    for process in others:
        assert (again.boot, again.address) == (process.members()["u-5"]["boot"], process.members()["u-5"]["address"])


def test_a_frozen_unit_is_suspected_and_dead_and_defends_itself_when_it_goes_on(cluster: Cluster):
    frozen = cluster.units["u-3"]
    before = frozen.members()["u-3"]["counter"]
    others = cluster.others("u-3")
    heard = {process.unit: len(process.changes("u-3")) for process in others}
    frozen.signal(signal.SIGSTOP)
    try:
        bound_s = all_know_bound(RAY, Cluster.SIZE) + SLACK_S
        wait_until(lambda: {DEAD} == {process.thinks("u-3") for process in others}, bound_s, what="DEAD at all others")
        assert any(SUSPECT == process.changes("u-3")[heard[process.unit]][0] for process in others)
    finally:
        went_on_at = frozen.signal(signal.SIGCONT)
    wait_until(lambda: {ALIVE} == {process.thinks("u-3") for process in others}, 10.0, what="alive again at all")
    back_s = [process.changes("u-3")[-1][1] - went_on_at for process in others]
    print(f"went on: alive at the first after {min(back_s):.2f} s, at the last after {max(back_s):.2f} s")
    for process in others:
        assert process.members()["u-3"]["counter"] > before
    living = {process.unit for process in others}  # what it missed of others that ended meanwhile is no accusation
    assert not [
        line
        for line in frozen.said("change")
        if line.get("status") in (SUSPECT, DEAD) and line["at"] >= went_on_at and line["unit"] in living
    ]


# --- the command --------------------------------------------------------------------------------------------------


def test_a_signal_to_end_is_a_goodbye():
    first = UnitProcess("a", "signals")
    ended = {
        UnitProcess(unit, "signals", seeds=[first.address]): number
        for unit, number in {"b": signal.SIGTERM, "c": signal.SIGINT}.items()
    }
    try:
        for process, number in ended.items():
            wait_until(lambda unit=process.unit: ALIVE == first.thinks(unit), 10.0, what="they meet")
            process.signal(number)
            assert 0 == process.wait()
            wait_until(lambda unit=process.unit: LEFT == first.thinks(unit), 5.0, what="LEFT at the other")
            wait_until(lambda lines=process: lines.said("left"), 5.0, what="it says so itself")
    finally:
        for process in (first, *ended):
            process.end()


def test_orders_that_are_none_are_told_and_the_end_of_orders_is_a_goodbye():
    process = UnitProcess("a", "orders")
    try:
        process.started()
        words = [
            "garbage",
            "[]",
            "{}",
            '"load"',
            '{"do": "dance"}',
            '{"do": "load", "leases": -1}',
            '{"do": 7}',
            "[" * 9999,
        ]
        for line in words:
            process.write(line)
        wait_until(lambda: len(process.said("error")) == len(words), 5.0, what="each is told")
        process.order("load", leases=1, capacity=2)
        assert 1 == process.members()["a"]["load"]["leases"]
        process.order("best")
        wait_until(lambda: process.said("best"), 5.0, what="an answer")
        assert "a" == process.said("best")[0]["unit"]
        process.close_orders()
        assert 0 == process.wait()
        wait_until(lambda: process.said("left"), 5.0, what="goodbye")
    finally:
        process.end()


def test_a_reader_that_stops_reading_costs_lines_and_not_the_unit():
    """A pipe holds 64 KiB, and the answers are more than that and than wait for a reader."""
    watcher = UnitProcess("watcher", "pipe")
    command = [sys.executable, "-m", "wolfpack.udp", "--unit", "mute", "--den", "pipe", "--seeds", watcher.address]
    mute = subprocess.Popen([*command, "--orders"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert mute.stdin is not None
        mute.stdin.write(b'{"do": "best"}\n' * 5_000 + b'{"do": "load", "leases": 7}\n')
        mute.stdin.flush()

        def told() -> bool:
            return ((watcher.members().get("mute") or {}).get("load") or {}).get("leases") == 7

        wait_until(told, 15.0, what="the load of mute")
        assert ALIVE == watcher.thinks("mute")
    finally:
        mute.kill()
        mute.communicate()
        watcher.end()


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        (["--bind", "nowhere"], 2, "'nowhere' is no address: write host:port"),
        (["--seeds", "127.0.0.1:1,::1:2"], 2, "write an IPv6 address in brackets"),
        (["--bind", "0.0.0.0:0"], 2, "say with advertise="),
        (["--timing", "slow"], 2, "'slow' is not one of"),
        (["--secret-file", "no-such-file"], 1, "Cannot read the secret"),
    ],
)
def test_what_cannot_be_started_is_told_in_a_sentence(options: list[str], code: int, text: str):
    done = CliRunner().invoke(main, ["--unit", "a", *options])
    assert code == done.exit_code
    assert text in done.output
    assert isinstance(done.exception, SystemExit)
