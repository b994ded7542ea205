"""The driver around membership by itself: a silent unit, a slow Ray and a failing machine cost a bounded little.

Ray is played by futures of this test; no cluster is needed.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Future
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError

from wolfpack.core.membership_words import Load, SendPacket, StatusChanged, Ticked
from wolfpack.den import gossip as driver
from wolfpack.den.gossip import CALL_OLD_S, CALLS_MOST, CALLS_TO_ONE, Gossip, OpenCalls
from wolfpack.den.handles import PeerGone
from wolfpack.errors import Malformed
from wolfpack.model import Card, DenSpec, HandsSpec

CARDS = tuple(Card(unit=f"grey-{no}", kind="grey") for no in range(3))
SPEC = DenSpec(den="timber", ledger="memory://", cards=CARDS)


class Ref:
    """An object reference whose answer the test gives, or never gives."""

    def __init__(self) -> None:
        self.answer: Future[Any] = Future()

    def future(self) -> Future[Any]:
        return self.answer


class Peer:
    """The handle of one unit."""

    def __init__(self) -> None:
        self.calls: list[tuple[bytes, Ref]] = []
        self.gossip = self

    def remote(self, source: str, data: bytes) -> Ref:
        self.calls.append((data, Ref()))
        return self.calls[-1][1]


class Handles:
    """What `den.handles.Handles` is to the driver."""

    def __init__(self) -> None:
        self.peers = {"grey-1": Peer(), "grey-2": Peer()}
        self.known = True
        self.gone: set[str] = set()

    def find(self, unit: str, boot: int) -> Peer | None:
        return self.peers[unit] if self.known else None

    def forget(self, unit: str, boot: int) -> None:
        self.gone.add(unit)

    async def unit(self, unit: str, boot: int) -> Peer:
        if unit in self.gone:
            raise PeerGone(unit)
        await asyncio.sleep(3600.0)  # Ray is slow
        raise AssertionError

    async def call(self, *args: Any) -> bytes:
        await asyncio.sleep(3600.0)
        return b""

    async def ask_keeper(self, method: str, *, timeout_s: float) -> list[tuple[str, int]]:
        return [("grey-0", 1), ("grey-1", 1), ("grey-2", 1)]


class Bench:
    def __init__(self) -> None:
        self.handles = Handles()
        self.advice: list[Any] = []
        self.gossip = Gossip(SPEC, CARDS[0], 1, get_load=Load, on_advice=self.advice.append)
        self.gossip._handles = self.handles
        self.gossip._boots = {"grey-1": 1, "grey-2": 1}


@pytest.fixture
def run():
    """Runs a coroutine that gets a bench, with a deadline."""

    def run_it(what: Any) -> None:
        async def whole() -> None:
            bench = Bench()
            try:
                await asyncio.wait_for(what(bench), 20.0)
            finally:
                bench.gossip.stop()

        asyncio.run(whole())

    return run_it


async def until(condition: Any, timeout_s: float = 10.0) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.005)


def test_a_unit_that_does_not_answer_gets_a_few_calls_and_others_go_on(run):
    async def play(bench: Bench) -> None:
        for _ in range(100):
            bench.gossip._do(SendPacket("grey-1", b"x"))
        assert CALLS_TO_ONE == len(bench.handles.peers["grey-1"].calls)
        assert 100 - CALLS_TO_ONE == bench.gossip.counters["held_back"]
        bench.gossip._do(SendPacket("grey-2", b"x"))
        assert 1 == len(bench.handles.peers["grey-2"].calls)

    run(play)


@pytest.mark.parametrize("answer", [[], ActorUnavailableError("away", b"\0" * 16), RuntimeError("odd")])
def test_a_call_that_ended_makes_room_whatever_its_end_was(run, answer):
    async def play(bench: Bench) -> None:
        for _ in range(CALLS_TO_ONE):
            bench.gossip._do(SendPacket("grey-1", b"x"))
        (_, first), *_ = bench.handles.peers["grey-1"].calls
        if isinstance(answer, Exception):
            first.answer.set_exception(answer)
        else:
            first.answer.set_result(answer)
        await asyncio.sleep(0.02)
        bench.gossip._do(SendPacket("grey-1", b"y"))
        assert CALLS_TO_ONE + 1 == len(bench.handles.peers["grey-1"].calls)

    run(play)


def test_a_slow_look_up_holds_up_nobody(run):
    async def play(bench: Bench) -> None:
        bench.handles.known = False
        start = time.monotonic()
        for _ in range(100):
            bench.gossip._do(SendPacket("grey-1", b"x"))
        assert time.monotonic() - start < 0.5
        assert CALLS_TO_ONE == len(bench.gossip._waiting)

    run(play)


async def meet(bench: Bench) -> Any:
    """Starts the gossip and lets `grey-1` answer its first packet as a real one would; returns that peer."""
    other = Gossip(SPEC, CARDS[1], 1, get_load=Load, on_advice=lambda _: None)
    other._handles = Handles()
    bench.gossip.start()
    peer = bench.handles.peers["grey-1"]
    await until(lambda: peer.calls)
    data, ref = peer.calls[0]
    ref.answer.set_result(other.hear("grey-0", data))
    other.stop()
    return peer


def test_the_answer_of_a_call_is_heard_like_a_packet(run):
    async def play(bench: Bench) -> None:
        await meet(bench)
        await until(lambda: any(each.unit == "grey-1" for each in bench.gossip.seen()))
        assert ["alive"] == [each.status for each in bench.gossip.seen() if each.unit == "grey-1"]

    run(play)


def test_a_death_that_Ray_tells_makes_a_suspect_at_once(run):
    async def play(bench: Bench) -> None:
        peer = await meet(bench)
        await until(lambda: len(peer.calls) > 1)
        peer.calls[1][1].answer.set_exception(ActorDiedError())
        await until(lambda: any(type(each) is StatusChanged and each.status.name == "SUSPECT" for each in bench.advice))
        assert {"grey-1"} == bench.handles.gone

    run(play)


def test_a_machine_that_raises_is_counted_and_ticked_again(run, monkeypatch):
    async def play(bench: Bench) -> None:
        monkeypatch.setattr(type(bench.gossip._machine), "step", _raise)
        monkeypatch.setattr(type(bench.gossip._machine), "next_wake", lambda _: time.monotonic())
        bench.gossip._step(Ticked())
        await until(lambda: bench.gossip.counters["failed"] >= 4)
        assert bench.gossip.counters["failed"] < 20  # and not as fast as it can
        assert [] == bench.gossip.hear("grey-1", b"x")

    run(play)


def _raise(*_: Any) -> list[Any]:
    raise RuntimeError("a bug")


def test_goodbye_waits_a_moment_for_who_does_not_take_it_and_nothing_is_answered_afterwards(run):
    async def play(bench: Bench) -> None:
        bench.gossip.start()
        await until(lambda: bench.handles.peers["grey-1"].calls)
        start = time.monotonic()
        await bench.gossip.leave()
        assert time.monotonic() - start < driver.GOODBYE_S + 1.0
        assert [] == bench.gossip.hear("grey-1", b"x")
        assert b"" == bench.gossip.answer_sync("grey-1", b"x")

    run(play)


@pytest.mark.parametrize(("source", "data"), [("", b""), (7, b""), ("grey-1", "text"), ("grey-1", bytes(1401))])
def test_S38_what_can_be_no_packet_is_refused(run, source, data):
    async def play(bench: Bench) -> None:
        with pytest.raises(Malformed):
            bench.gossip.hear(source, data)

    run(play)


def test_calls_that_Ray_forgot_are_not_counted_for_ever():
    calls = OpenCalls()
    tickets = [calls.start(0.0, "a") for _ in range(CALLS_TO_ONE)]
    assert None is calls.start(CALL_OLD_S, "a")
    assert calls.start(CALL_OLD_S + 0.1, "a") is not None
    calls.end("a", tickets[0] or 0)  # late, and counted already
    assert [None] == [calls.start(CALL_OLD_S + 0.1, "a") for _ in range(CALLS_TO_ONE)][-1:]


def test_calls_to_all_have_a_bound():
    calls = OpenCalls()
    started = [calls.start(0.0, f"u-{no}") for no in range(CALLS_MOST + 10)]
    assert CALLS_MOST == sum(ticket is not None for ticket in started)


def test_only_cards_that_say_so_stall():
    cards = (*CARDS, Card(unit="w-0", kind="w", hands=HandsSpec(stall_s=4.0)))
    assert {"w-0": 4.0} == driver.stalls_of(DenSpec(den="d", ledger="memory://", cards=cards))
