"""Whatever comes to a member: garbage, liars, the slow and the silent. It is refused and counted; the rest goes on.

Real sockets, in one process: these tests look inside.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from wolfpack.core.packets import Kind, Sender, den_mark, write_head, write_sender
from wolfpack.errors import CallerError, OperatorError, UnknownName
from wolfpack.model import PROFILES
from wolfpack.udp import Status, StatusChanged, UdpMember, transport
from wolfpack.udp import member as udp_member
from wolfpack.udp.addresses import find_place, format_place, split_address
from wolfpack.udp.seal import Seal, Use
from wolfpack.udp.transport import CALLERS_MOST, FRAME_MOST, Transport, open_ports

DEN = "demo"
WITHIN_S = 10.0


def play(story: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60.0):
            await story

    asyncio.run(bounded())


async def until(test: Callable[[], Any], *, what: str, within_s: float = WITHIN_S) -> None:
    deadline = time.monotonic() + within_s
    while not test():
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}"
        await asyncio.sleep(0.01)


def a_member(unit: str = "a", **options: Any) -> UdpMember:
    return UdpMember(**{"unit": unit, "den": DEN, "timing": "ray", **options})


def lives(member: UdpMember, *units: str) -> bool:
    """Whether a member thinks these units, itself among them, alive."""
    known = member.members()
    return all(unit in known and known[unit].status is Status.ALIVE for unit in units)


async def still_well(member: UdpMember, secret: str | None = None) -> None:
    """Somebody honest joins by way of this member, and both learn of each other."""
    async with a_member("honest", seeds=[member.address], secret=secret) as honest:
        await until(lambda: lives(honest, member.unit) and lives(member, "honest"), what="an honest unit joined")
    assert member.counters["bugs"] == 0


@contextlib.contextmanager
def gun() -> Any:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        yield sock


def counted(member: UdpMember, name: str, least: int = 1) -> Callable[[], bool]:
    return lambda: member.counters[name] >= least


# --- packets ------------------------------------------------------------------------------------------------------


def test_a_packet_larger_than_any_is_refused_by_its_size():
    async def story() -> None:
        async with a_member() as member:
            with gun() as sock:
                sock.sendto(den_mark(DEN) + bytes(1395), split_address(member.address))
                sock.sendto(bytes(60_000), split_address(member.address))
            await until(counted(member, "packets_too_large", 2), what="both are refused")
            await still_well(member)

    play(story())


@pytest.mark.parametrize(
    "target",
    ["name.invalid:53", "224.0.0.1:9", "0.0.0.0:9", "127.0.0.1:99999", "127.0.0.1:0", "", "x", "::1:5", "[::1]:5"],
)
def test_a_request_to_ping_an_address_that_is_no_machine_of_ours_sends_and_looks_up_nothing(target, monkeypatch):
    async def story() -> None:
        async with a_member() as member:
            loop = asyncio.get_running_loop()
            monkeypatch.setattr(loop, "getaddrinfo", lambda *args, **names: pytest.fail("a name was looked up"))
            monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **names: pytest.fail("a name was looked up"))
            head = write_head(den_mark(DEN), Kind.PING_REQ, 1, write_sender(Sender("liar", 1, 0)), target)
            with gun() as sock:
                sock.sendto(head, split_address(member.address))
                await until(counted(member, "addresses_refused"), what="the address is refused")

    play(story())


def test_a_send_that_the_kernel_refuses_is_a_lost_packet():
    """To the broadcast address, which the system forbids without asking for it."""

    async def story() -> None:
        async with a_member() as member:
            head = write_head(den_mark(DEN), Kind.PING_REQ, 1, write_sender(Sender("liar", 1, 0)), "255.255.255.255:9")
            with gun() as sock:
                sock.sendto(head, split_address(member.address))
            await until(counted(member, "send_errors"), what="the send failed")
            await still_well(member)

    play(story())


class Wall:
    """A socket that fails as the kernel's do when a buffer is full, a route is gone, or ICMP said no."""

    def __init__(self, inner: socket.socket, error: OSError) -> None:
        self._inner, self.error, self.shut = inner, error, True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def sendto(self, data: bytes, place: tuple[str, int]) -> int:
        if self.shut:
            raise self.error
        return self._inner.sendto(data, place)


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (BlockingIOError(errno.EAGAIN, "full"), "send_buffer_full"),
        (OSError(errno.ENOBUFS, "no buffers"), "send_errors"),
        (PermissionError(errno.EPERM, "a firewall"), "send_errors"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "ICMP"), "send_errors"),
        (OSError(errno.ENETUNREACH, "no route"), "send_errors"),
    ],
)
def test_a_network_that_takes_no_packets_for_a_while_costs_only_them(error: OSError, name: str):
    async def story() -> None:
        async with a_member("a") as first, a_member("b", seeds=[first.address]) as second:
            await until(lambda: lives(first, "b") and lives(second, "a"), what="they know each other")
            wall = second._transport._udp = Wall(second._transport._udp, error)
            await until(counted(second, name, 2), what="packets are refused")
            wall.shut = False
            sent = second.counters["packets_out"]
            await until(lambda: second.counters["packets_out"] > sent, what="packets leave again")
            await until(lambda: lives(first, "b") and lives(second, "a"), what="they know each other still")

    play(story())


class Watched:
    """A machine whose events are noted, and which can be broken."""

    def __init__(self, member: UdpMember) -> None:
        self.inner, self.events, self.broken = member._machine, [], False
        member._machine = self  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def step(self, now: float, event: object) -> list[Any]:
        self.events.append(type(event).__name__)
        if self.broken:
            raise ZeroDivisionError
        return self.inner.step(now, event)


def test_a_bug_in_the_machine_costs_one_event_and_is_told(caplog, monkeypatch):
    monkeypatch.setattr(udp_member, "AFTER_A_BUG_S", 0.05)

    async def story() -> None:
        async with a_member("a") as member:
            machine = Watched(member)
            machine.broken = True
            await until(lambda: machine.events.count("Ticked") >= 3, what="it is ticked again after each failure")
            with gun() as sock:
                sock.sendto(b"anything", split_address(member.address))
            await until(lambda: "PacketHeard" in machine.events, what="a packet is heard")
            assert 4 <= member.counters["bugs"]
            machine.broken = False
            async with a_member("honest", seeds=[member.address]) as honest:
                await until(lambda: lives(honest, "a") and lives(member, "honest"), what="it goes on")

    play(story())
    assert "membership failed at PacketHeard" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_packets_that_wait_are_heard_before_a_tick_that_is_due():
    """In whatever order the loop runs timers and readers: this one runs the timer first."""

    async def story() -> None:
        async with a_member("a", timing="fast") as member:
            machine = Watched(member)
            with gun() as sock:
                for number in range(100):
                    sock.sendto(bytes([number]), split_address(member.address))
            time.sleep(0.5)
            machine.events.clear()
            member._on_timer()
            assert ["PacketHeard"] * 100 == machine.events[:100]

    play(story())


# --- callers over TCP ---------------------------------------------------------------------------------------------


async def say(member: UdpMember, data: bytes) -> bytes:
    """Says something over TCP; returns what comes back until the connection ends."""
    reader, writer = await asyncio.open_connection(*split_address(member.address))
    writer.write(data)
    try:
        async with asyncio.timeout(WITHIN_S):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.transport.abort()


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "frames_too_large"),
        (b"\xff\xff\xff\xff", "frames_too_large"),
        (bytes(4), "frames_too_large"),
        ((FRAME_MOST + 1).to_bytes(4, "big"), "frames_too_large"),
        ((5).to_bytes(4, "big") + b"hello", "callers_refused"),
        ((6).to_bytes(4, "big") + den_mark(DEN), "callers_refused"),
        ((7).to_bytes(4, "big") + den_mark(DEN) + b"\x06", "callers_refused"),
    ],
)
def test_a_caller_that_says_nonsense_gets_no_answer_and_is_counted(data: bytes, name: str):
    async def story() -> None:
        async with a_member() as member:
            assert b"" == await say(member, data)
            assert 1 == member.counters[name]
            await still_well(member)

    play(story())


def test_callers_that_are_slow_silent_or_hang_up_end_at_the_deadline(monkeypatch):
    monkeypatch.setattr(transport, "EXCHANGE_S", 0.3)

    async def story() -> None:
        async with a_member() as member:
            place = split_address(member.address)
            silent = await asyncio.open_connection(*place)
            slow = await asyncio.open_connection(*place)
            gone = await asyncio.open_connection(*place)
            gone[1].write(bytes([0, 0, 0, 9, 1]))
            gone[1].close()

            async def drip() -> None:
                with contextlib.suppress(OSError):
                    for byte in (100).to_bytes(4, "big") + bytes(96):
                        slow[1].write(bytes([byte]))
                        await slow[1].drain()
                        await asyncio.sleep(0.05)

            dripping = asyncio.create_task(drip())
            await until(counted(member, "callers_too_slow", 2), what="silent and slow callers are sent away")
            assert 1 == member.counters["callers_broken"]
            await until(lambda: not member._transport._callers, what="nobody is left")
            dripping.cancel()
            await asyncio.gather(dripping, return_exceptions=True)
            await still_well(member)
            for _, writer in (silent, slow):
                writer.transport.abort()

    play(story())


def test_a_crowd_that_connects_and_says_nothing_does_not_keep_out_who_has_something_to_ask(monkeypatch):
    monkeypatch.setattr(transport, "EXCHANGE_S", 2 * WITHIN_S)

    async def story() -> None:
        async with a_member() as member:
            place = split_address(member.address)
            crowd = [await asyncio.open_connection(*place) for _ in range(CALLERS_MOST + 10)]
            await until(counted(member, "callers_sent_away", 10), what="the oldest are sent away")
            assert CALLERS_MOST == len(member._transport._callers)
            async with asyncio.timeout(WITHIN_S):
                with contextlib.suppress(ConnectionResetError):
                    assert b"" == await crowd[0][0].read()
            await still_well(member)
            assert 1 <= member.counters["callers_answered"]
            for _, writer in crowd:
                writer.transport.abort()
            await until(lambda: not member._transport._callers, what="nobody is left")

    play(story())


@contextlib.asynccontextmanager
async def a_transport(on_ask: Callable[[str, bytes], bytes | None], counters: Counter[str]) -> AsyncIterator[Transport]:
    ports = await open_ports("127.0.0.1", 0)
    made = Transport(ports, Seal(None, DEN), counters, on_packet=lambda source, data: None, on_ask=on_ask)
    await made.start()
    try:
        yield made
    finally:
        await made.close()


def test_a_caller_that_never_reads_its_answer_ends_at_the_deadline(monkeypatch):
    monkeypatch.setattr(transport, "EXCHANGE_S", 0.3)

    async def story() -> None:
        counters: Counter[str] = Counter()
        async with a_transport(lambda source, data: bytes(FRAME_MOST), counters) as made:
            made._ports.tcp.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 12)  # or the kernel takes it all
            with socket.socket() as caller:
                caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 12)
                caller.setblocking(False)
                await asyncio.get_running_loop().sock_connect(caller, made._ports.tcp.getsockname())
                caller.send(bytes([0, 0, 0, 1, 7]))
                await until(lambda: counters["callers_too_slow"] == 1, what="it is sent away")
                await until(lambda: not made._callers, what="nobody is left")

    play(story())


def test_a_frame_as_large_as_allowed_goes_both_ways_and_one_byte_more_does_not():
    async def story() -> None:
        counters: Counter[str] = Counter()
        answers: list[bytes] = []
        async with a_transport(lambda source, data: data[::-1], counters) as made:
            to = format_place(*made._ports.tcp.getsockname())
            data = b"first" + bytes(FRAME_MOST - 5)
            made.ask(to, data, answers.append)
            await until(lambda: answers, what="the answer came")
            assert data[::-1] == answers[0]
            made.ask(to, data + b"x", answers.append)
            await until(lambda: counters["asks_failed"] == 1, what="it was not sent")
            assert 0 == counters["frames_too_large"]
        assert 1 == len(answers)

    play(story())


def test_an_ask_waits_for_a_port_that_opens_in_time():
    async def story() -> None:
        late = await open_ports("127.0.0.1", 0)
        late.close()
        counters: Counter[str] = Counter()
        answers: list[bytes] = []
        async with a_transport(lambda source, data: None, counters) as made:
            made.ask(format_place(late.host, late.port), b"are you there?", answers.append)
            await asyncio.sleep(0.05)
            assert 1 == len(made._asks)
            server = Transport(
                await open_ports(late.host, late.port), Seal(None, DEN), counters, on_packet=lambda source, data: None,
                on_ask=lambda source, data: b"yes",
            )  # fmt: skip
            await server.start()
            await until(lambda: answers == [b"yes"], what="it is answered")
            await server.close()

    play(story())


@pytest.mark.parametrize("words", [b"", b"\xff\xff\xff\xff", bytes([0, 0, 0, 3, 1, 2, 3]), bytes([0, 0, 0, 9])])
def test_who_answers_an_ask_with_nonsense_or_not_at_all_is_given_up(words: bytes, monkeypatch):
    monkeypatch.setattr(transport, "EXCHANGE_S", 0.3)

    async def liar(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(words)
        await reader.read()
        writer.transport.abort()

    async def story() -> None:
        server = await asyncio.start_server(liar, "127.0.0.1", 0)
        seed = format_place(*server.sockets[0].getsockname())
        async with a_member(seeds=[seed]) as member:
            await until(
                lambda: member.counters["asks_failed"] or member.counters["malformed"]
                or member.counters["foreign"], what="it is given up",
            )  # fmt: skip
            await until(lambda: not member._transport._asks, what="nothing of it is left")
            await still_well(member)
        server.close()

    play(story())


# --- meeting ------------------------------------------------------------------------------------------------------


def test_a_seed_may_be_a_name_come_later_and_stand_beside_ones_that_never_answer():
    async def story() -> None:
        ports = await open_ports("127.0.0.1", 0)
        port = ports.port
        ports.close()
        seeds = [f"localhost:{port}", "127.0.0.1:1", "no-such-host.invalid:7000"]
        async with a_member("early", seeds=seeds) as early:
            await until(lambda: early.counters["packets_out"] >= 2, what="the seed is called")
            async with a_member("late", bind=("127.0.0.1", port)) as late:
                assert f"127.0.0.1:{port}" == late.address
                await until(lambda: lives(early, "late") and lives(late, "early"), what="they meet")

    play(story())


def test_S33_a_later_boot_of_the_same_name_replaces_an_older_address_while_the_older_still_runs():
    async def story() -> None:
        async with a_member("a") as first, a_member("twin", seeds=[first.address]) as older:
            await until(lambda: lives(first, "twin") and lives(older, "a"), what="they know each other")
            async with a_member("twin", seeds=[first.address]) as newer:
                assert newer.boot > older.boot
                await until(lambda: first.members()["twin"].boot == newer.boot, what="the later boot counts")
                await until(counted(first, "old_boot", 3), what="the older one is not heard any more")
                await until(counted(older, "newer_boot", 1), what="and it is told why")
                assert newer.address == first.members()["twin"].address
                assert lives(first, "twin")

    play(story())


def test_a_member_without_the_secret_is_not_heard_over_either_port():
    async def story() -> None:
        async with (
            a_member("a", secret="old moon") as inside,
            a_member("b", secret=b"old moon", seeds=[inside.address]) as friend,
            a_member("c", secret="new moon", seeds=[inside.address]) as stranger,
            a_member("d", seeds=[inside.address]) as open_one,
        ):
            await until(lambda: lives(inside, "b") and lives(friend, "a"), what="who has the secret joins")
            await until(counted(inside, "packets_unsealed", 4), what="packets without it are refused")
            await until(counted(inside, "frames_unsealed", 2), what="asks without it are refused")
            assert {"a", "b"} == set(inside.members()) == set(friend.members())
            assert {"c"} == set(stranger.members())
            assert {"d"} == set(open_one.members())

    play(story())


def test_packets_are_heard_before_a_deadline_is_judged_after_the_loop_stood_still():
    """Both members stand still for longer than the least suspicion: nobody accuses anybody."""

    async def story() -> None:
        changes: list[object] = []
        async with a_member("a", timing="fast") as first, a_member("b", timing="fast", seeds=[first.address]) as second:
            await until(lambda: lives(first, "b") and lives(second, "a"), what="they know each other")
            first.on_change(changes.append)
            second.on_change(changes.append)
            for _ in range(3):
                time.sleep(0.5)
                await asyncio.sleep(0.05)
            await asyncio.sleep(PROFILES["fast"].probe_s)
            assert not [change for change in changes if isinstance(change, StatusChanged)]

    play(story())


# --- the face -----------------------------------------------------------------------------------------------------


def test_udp_and_tcp_share_one_port_and_a_taken_port_is_told(monkeypatch):
    monkeypatch.setattr(transport, "BIND_S", 0.1)

    async def story() -> None:
        async with a_member() as member:
            place = split_address(member.address)
            assert place == member._transport._ports.tcp.getsockname() == member._transport._udp.getsockname()
            with pytest.raises(OperatorError, match=r"Cannot listen on 127\.0\.0\.1:\d+, by UDP and TCP"):
                await a_member("b", bind=place).__aenter__()
        async with a_member("b", bind=place):
            pass

    play(story())


def test_changes_come_in_order_and_a_callback_that_raises_or_asks_back_harms_nobody(caplog):
    async def story() -> None:
        seen: list[tuple[str, Status]] = []
        async with a_member("a") as member:

            def bad(change: object) -> None:
                raise RuntimeError("a bad callback")

            def good(change: object) -> None:
                assert isinstance(change, StatusChanged)
                seen.append((change.unit, change.status))
                member.set_load(leases=len(seen))

            member.on_change(bad)
            end = member.on_change(good)
            async with a_member("b", seeds=[member.address]):
                await until(lambda: seen, what="b came")
            await until(lambda: len(seen) == 2, what="b left")
            assert [("b", Status.ALIVE), ("b", Status.LEFT)] == seen
            end()
            end()
            async with a_member("c", seeds=[member.address]):
                await until(lambda: lives(member, "c"), what="c came")
            assert 2 == len(seen)

    play(story())
    assert "a callback failed at StatusChanged" in caplog.text
    assert "a bad callback" in caplog.text


def test_work_goes_to_the_less_busy_and_to_those_who_fit():
    async def story() -> None:
        async with a_member("a") as first, a_member("b", seeds=[first.address]) as second:
            await until(lambda: lives(first, "b") and lives(second, "a"), what="they know each other")
            second.set_load(leases=4, capacity=2, budgets={"gpu": 1})
            await until(lambda: first.members()["b"].load is not None, what="its load came")
            assert {"a"} == {first.best_unit() for _ in range(20)}
            assert "b" == first.best_unit(["b"]) == first.best_unit(lambda unit: unit == "b")
            assert first.best_unit([]) is None
            first.sent("a", 5)
            assert {"b"} == {first.best_unit() for _ in range(20)}
            first.confirmed("a", 5)
            assert {"a"} == {first.best_unit() for _ in range(20)}

    play(story())


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"unit": ""}, CallerError),
        ({"unit": "x" * 201}, CallerError),
        ({"den": ""}, CallerError),
        ({"timing": "slow"}, UnknownName),
        ({"seeds": "127.0.0.1:7000"}, CallerError),
        ({"seeds": ["127.0.0.1"]}, CallerError),
        ({"seeds": ["::1:7000"]}, CallerError),
        ({"seeds": ["127.0.0.1:70000"]}, CallerError),
        ({"secret": ""}, CallerError),
        ({"boot": 0}, CallerError),
        ({"boot": 1 << 63}, CallerError),
        ({"bind": ("0.0.0.0", 0)}, CallerError),
        ({"advertise": "224.0.0.1"}, CallerError),
        ({"bind": ("no-such-host.invalid", 0)}, OperatorError),
    ],
)
def test_what_cannot_be_is_told_to_the_caller(options: dict[str, Any], error: type[Exception]):
    async def story() -> None:
        with pytest.raises(error):
            async with a_member(**options):
                pytest.fail("it was entered")

    play(story())


@pytest.mark.parametrize(
    "load",
    [
        {"leases": -1}, {"queued": 1.5}, {"capacity": True}, {"progress": 1 << 63}, {"budgets": {"x" * 500: 1}},
        {"budgets": {"x" * 300: 1}}, {"budgets": {"gpu": float("nan")}}, {"budgets": {str(n): n for n in range(17)}},
        {"budgets": {"gpu": "many"}}, {"budgets": {7: 1}}, {"budgets": {"gpu": 1 << 2000}},
    ],
)  # fmt: skip
def test_a_load_that_no_packet_could_carry_is_refused(load: dict[str, Any]):
    async def story() -> None:
        async with a_member() as member:
            with pytest.raises(CallerError):
                member.set_load(**load)

    play(story())


def test_the_largest_load_that_is_taken_arrives():
    async def story() -> None:
        async with a_member("a") as first, a_member("b", seeds=[first.address]) as second:
            most = (1 << 63) - 2
            budgets = {f"{number:017}": float(number) for number in range(16)}
            second.set_load(leases=most, queued=most, capacity=most, progress=most, budgets=budgets)
            await until(lambda: "b" in first.members() and first.members()["b"].load is not None, what="it arrives")
            load = first.members()["b"].load
            assert load is not None
            assert (most, budgets) == (load.progress, dict(load.budgets))
            assert 0 == first.counters["malformed"] + second.counters["bugs"]

    play(story())


def test_a_member_is_entered_once_and_leaves_once():
    async def story() -> None:
        member = a_member()
        with pytest.raises(CallerError, match="The member is new"):
            member.members()
        async with member:
            await member.leave()
            await member.leave()
            with pytest.raises(CallerError, match="The member is closed"):
                member.set_load(leases=1)
            assert Status.LEFT is member.members()["a"].status
        with pytest.raises(CallerError, match="entered once"):
            await member.__aenter__()

    play(story())


# --- addresses and seals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "family", "place"),
    [
        ("127.0.0.1:7000", socket.AF_INET, ("127.0.0.1", 7000)),
        ("[::1]:7000", socket.AF_INET6, ("::1", 7000)),
        ("[0:0::1]:7000", socket.AF_INET6, ("::1", 7000)),
        ("127.0.0.1:7000", socket.AF_INET6, None),
        ("[::1]:7000", socket.AF_INET, None),
        ("[fe80::1%eth0]:7000", socket.AF_INET6, None),
        ("localhost:7000", socket.AF_INET, None),
        ("127.1:7000", socket.AF_INET, None),
        ("127.0.0.1:0", socket.AF_INET, None),
        ("127.0.0.1:65536", socket.AF_INET, None),
        ("127.0.0.1:+80", socket.AF_INET, None),
        ("127.0.0.1: 80", socket.AF_INET, None),
        ("127.0.0.1:٨٠", socket.AF_INET, None),
        ("127.0.0.1", socket.AF_INET, None),
        (":7000", socket.AF_INET, None),
    ],
)
def test_an_address_is_a_number_of_one_machine_or_nothing(address, family, place):
    assert place == find_place(address, family)


@given(st.text(max_size=60) | st.from_regex(r"[\[\]:%.0-9a-f]{0,40}:[0-9]{0,7}", fullmatch=True))
def test_any_text_is_an_address_or_none(text: str):
    for family in (socket.AF_INET, socket.AF_INET6):
        place = find_place(text, family)
        assert place is None or place == find_place(format_place(*place), family)


@given(st.binary(max_size=200), st.integers(min_value=0), st.integers(min_value=1, max_value=255))
def test_a_seal_holds_for_its_data_use_den_and_secret_alone(data: bytes, at: int, flip: int):
    seal = Seal("moon", DEN)
    sealed = seal.put(data, Use.PACKET)
    assert len(data) + 16 == len(data) + seal.size_bytes == len(sealed)
    assert data == seal.take(sealed, Use.PACKET)
    assert seal.take(sealed, Use.ASK) is None
    assert Seal("moon", "other").take(sealed, Use.PACKET) is None
    assert Seal("sun", DEN).take(sealed, Use.PACKET) is None
    at %= len(sealed)
    assert seal.take(sealed[:at] + bytes([sealed[at] ^ flip]) + sealed[at + 1 :], Use.PACKET) is None
    assert seal.take(sealed[:-1], Use.PACKET) is None
    assert data == Seal(None, DEN).take(Seal(None, DEN).put(data, Use.PACKET), Use.PACKET)
