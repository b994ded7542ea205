"""Doors for packets: howls, and the messages between keeper, alpha and members."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.fuzz.fuzzer import spoil_bytes, spoil_value
from wolfpack.core import shapes, wire
from wolfpack.core.howls import Howl, HowlKind, Peer
from wolfpack.core.succession import Succession
from wolfpack.core.succession_words import Heard, PeersChanged, Ticked
from wolfpack.core.wire import Claim, Hunt, KeeperReport, Leases, MemberTurn, Move, Submit, SubmitItem, Turn
from wolfpack.errors import Malformed
from wolfpack.model import Job, Report, Timing

ITEM = SubmitItem(1, "f" * 32, "", b"\x80args", "", "a key", '{"cpu": true}', '{"name":"f","timeout_s":2.5}', 0.5, 9.0)
REPORT = Report(1, "c:1", "FAULT", True, 1.0, 2.0, b"\x80", "", "a text", ("builtins.ValueError",), 0.5, True)
SUBMIT = Submit("c", "p", (ITEM, ITEM._replace(counter=2, key=None, deadline_s=None)), (("f" * 32, b"code"),), 0)
TURN = Turn(
    "p", 1, "grey-0", 1, 1, (MemberTurn("grey-0", 1, (1, 2), (REPORT,), 3), MemberTurn("grey-1", 1, (), (), 0)),
    (("grey", 1),), ("grey-2",), 0, ("grey-0 stays",), (1, 2, "more work"), 0,
)  # fmt: skip
HUNT = Hunt("p", "grey-1", 1, 1, 1, (1, 2), (REPORT,), 3)
JOB = Job(7, "c:1", "f", b"\x00", "", "key", 2, None, False, 3)
# Each message with its way in: what is read is looked at by the same functions as at the doors of keeper and units.
MESSAGES: dict[str, tuple[Any, Callable[[bytes], Any]]] = {
    "submit": (SUBMIT, lambda data: shapes.check_submit(wire.read_submit(data))),
    "turn": (TURN, lambda data: shapes.check_turn(wire.read_turn(data))),
    "hunt": (HUNT, lambda data: shapes.check_hunt(wire.read_hunt(data))),
    "report": (
        KeeperReport("grey-1", 1, 1, (1,), (REPORT,), 0),
        lambda data: shapes.check_keeper_report(wire.read_keeper_report(data)),
    ),
    "move": (
        Move("grey-1", 1, 1, "free", (REPORT,), (2,), "why", b"state", 1.0, 0),
        lambda data: shapes.check_move(wire.read_move(data)),
    ),
    "claim": (Claim("p", 0, "grey-1", 1, 0), lambda data: shapes.check_claim(wire.read_claim(data))),
    "turn reply": (
        wire.TurnReply(
            3, (Leases("u", 2, (JOB,)),), (("u", (7,)),), (("u", ((7, True, "CANCELLED"),)),),
            (wire.DemandRow("{}", 1, 2, None, 0.5),),
            (wire.RosterEntry("grey-0", "{}", 1, "awake", None, 2, 0.5, True, 1, ""),), 9 << 32, "{}", False, 1,
        ),
        wire.read_turn_reply,
    ),
    "hunt reply": (
        wire.HuntReply(1, "a", 2, 3, (JOB,), (7,), ((7, False, "CANCELLED"),), 2, (("u", 1, 0, True),), "go"),
        wire.read_hunt_reply,
    ),
}  # fmt: skip
PACKED = {name: wire.pack(message) for name, (message, _) in MESSAGES.items()}


def spoil_message(rng: random.Random, message: Any, other: bytes = b"") -> bytes:
    """The bytes of a message that was spoiled as a value, as bytes, or as both."""
    how = rng.randrange(3)
    data = pack_any(spoil_value(rng, message) if how else message)
    return data if how == 1 else spoil_bytes(rng, data, other)


def pack_any(value: Any) -> bytes:
    """The value as msgpack, as far as it can be packed at all."""
    try:
        return wire.pack(value)
    except (ValueError, OverflowError, TypeError, RecursionError):  # a number, or a depth, beyond msgpack
        return wire.pack(repr(value)[:1000])


class Messages:
    """Bytes to every reader, and what was read to the shapes."""

    name = "messages"
    refusals = (Malformed,)

    def make(self, rng: random.Random) -> tuple[str, bytes]:
        kind = rng.choice(list(MESSAGES))
        return rng.choice((kind, kind, rng.choice(list(MESSAGES)))), spoil_message(
            rng, MESSAGES[kind][0], PACKED[rng.choice(list(PACKED))]
        )

    def attempt(self, given: tuple[str, bytes]) -> None:
        kind, data = given
        read = MESSAGES[kind][1](data)
        again = MESSAGES[kind][1](wire.pack(read))  # what was taken can be passed on
        assert repr(read) == repr(again)


ME = Peer(unit="grey-1", boot=1)
OTHERS = (Peer(unit="grey-0", boot=1), Peer(unit="grey-2", boot=1))
HOWL = Howl(kind=HowlKind.HEARTBEAT, pack="p", term=3, unit="grey-2", boot=1, lead=0, next_unit="grey-1")


class Howls:
    """Howls to a member, a pretender or an alpha: what is no howl is refused, and what is one stops nobody."""

    name = "howls"
    refusals = (Malformed,)

    def make(self, rng: random.Random) -> tuple[int, tuple[bytes, ...]]:
        howls = []
        for _ in range(rng.choice((1, 1, 4))):
            howl = HOWL.to_wire()
            howl[0] = rng.choice(list(HowlKind)).value
            howl[2], howl[3] = rng.choice((0, 2, 3, 4)), rng.choice(("grey-0", "grey-2", "grey-9"))
            howls.append(wire.pack(howl) if rng.random() < 0.2 else spoil_message(rng, tuple(howl)))
        return rng.randrange(1 << 30), tuple(howls)

    def attempt(self, given: tuple[int, tuple[bytes, ...]]) -> None:
        chance, packets = given
        timing = Timing()
        member = Succession(
            me=ME, pack="p", timing=timing, rng=random.Random(chance), now=0.0, term=3, alpha="grey-2", alpha_boot=1
        )
        member.step(0.0, PeersChanged(peers=OTHERS))
        refused: Malformed | None = None
        now = 0.0
        for data in packets:
            now += timing.heartbeat_s
            try:
                howl = Howl.from_wire(wire.unpack(data))
            except Malformed as exc:
                refused = exc
                continue
            assert howl == Howl.from_wire(wire.unpack(wire.pack(howl.to_wire())))
            member.step(now, Heard(howl=howl))
        for _ in range(12):  # and time goes on
            now = max(now, min(member.next_wake(), now + timing.silence_s))
            member.step(now, Ticked())
        shapes.check_claim(Claim("p", member.term, "grey-1", 1, 0))  # it can still ask for the next term
        if refused is not None:
            raise refused
