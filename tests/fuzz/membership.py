"""The door of membership: packets and syncs of a real den, spoiled, among five units that go on talking."""

from __future__ import annotations

import contextlib
import random

from tests.core.herd_pump import Pump
from tests.fuzz.fuzzer import spoil_bytes
from wolfpack.core.anti_entropy import read_message
from wolfpack.core.items import PACKET_MOST, read_items
from wolfpack.core.membership_words import (
    AlphaSeen,
    Event,
    Load,
    LoadChanged,
    PacketHeard,
    Status,
    SyncAnswered,
    SyncAsked,
)
from wolfpack.core.packets import SYNC_MOST, den_mark, read_packet
from wolfpack.core.view import Member

UNITS = tuple(f"grey-{number}" for number in range(5))
MARK = den_mark("timber")
NO_TICKET = 1 << 40


def den(seed: int) -> Pump:
    """Five units with loads and an alpha."""
    pump = Pump(seed)
    pump.births(*UNITS)
    for number, name in enumerate(UNITS):
        pump.give(name, LoadChanged(Load(leases=number, queued=1, capacity=2, progress=5, budgets=(("gpu", 0.5),))))
    pump.give("grey-0", AlphaSeen("computing", 3, "grey-0", 1))
    return pump


def corpus() -> list[bytes]:
    """What units say to each other while one of them dies, one is born again and one is slow."""
    pump = den(1)
    pump.run(2.0)
    pump.crash("grey-4")
    pump.freeze("grey-3")
    pump.run(4.0)
    pump.resume("grey-3")
    pump.birth("grey-4", boot=2, knows=("grey-0",))
    pump.run(4.0)
    return sorted({data for _, _, data in pump.sent}, key=lambda data: (len(data), data))


class Packets:
    """Bytes to the decoders, and every packet among living units: refused and counted, or believed for a while."""

    name = "membership"
    refusals = (ValueError,)

    def __init__(self) -> None:
        self._corpus = corpus()

    def make(self, rng: random.Random) -> tuple[int, tuple[tuple[str, str, str, bytes], ...]]:
        return rng.randrange(1 << 30), tuple(self._make_one(rng) for _ in range(rng.choice((1, 3, 10, 30))))

    def _make_one(self, rng: random.Random) -> tuple[str, str, str, bytes]:
        """Whom, how, from where, what."""
        data = spoil_bytes(rng, rng.choice(self._corpus), rng.choice(self._corpus))
        if rng.random() < 0.7:  # past the first six bytes, which say whose packet it is
            data = MARK + data[6:]
        if rng.random() < 0.02:
            data = data[:200] * rng.choice((100, 5000))
        source = rng.choice((*(name.upper() for name in UNITS), "nowhere", "", "x" * 300))
        return rng.choice(UNITS), rng.choice(("packet", "packet", "packet", "ask", "answer")), source, data

    def attempt(self, given: tuple[int, tuple[tuple[str, str, str, bytes], ...]]) -> None:
        seed, spoiled = given
        pump = den(seed)
        pump.run(0.5)
        before = sum(sum(unit.counters.values()) for unit in pump.units.values())
        for name, how, source, data in spoiled:
            for read in (read_packet, read_items, read_message):
                with contextlib.suppress(ValueError):
                    read(data)
            event: Event
            match how:
                case "packet":
                    event = PacketHeard(source, data)
                case "ask":
                    pump._asked[NO_TICKET] = name
                    event = SyncAsked(source, data, NO_TICKET)
                case _:
                    event = SyncAnswered(source, data)
            pump.give(name, event)
            pump.run(0.05)
        refused = sum(sum(unit.counters.values()) for unit in pump.units.values()) - before
        pump.run(30.0)
        self._must_be_well(pump)
        if refused:
            raise ValueError(f"{refused} of {len(spoiled)} packets were refused")

    def _must_be_well(self, pump: Pump) -> None:
        """What they say is what others can read, and nobody who lives is given up, unless its place was taken."""
        for _, _, data in pump.sent:
            packet = read_packet(data, SYNC_MOST)
            if packet.kind < 6:
                assert len(data) <= PACKET_MOST
                read_items(packet.body)
        known = {who: {other: unit.view.get(other) for other in UNITS} for who, unit in pump.units.items()}
        for who, members in known.items():
            for other, member in members.items():
                assert member is not None, (who, other)
                if who not in _replaced(known) and other not in _replaced(known):
                    assert member.status is Status.ALIVE, (who, other, member)


def _replaced(known: dict[str, dict[str, Member | None]]) -> set[str]:
    """Units of which somebody heard that a later boot lives: who says so of another one takes its place."""
    return {other for members in known.values() for other, member in members.items() if member and member.boot > 1}
