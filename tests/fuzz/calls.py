"""Doors of keeper and units: every public call, with arguments that were spoiled."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from tests.fuzz import membership
from tests.fuzz.fuzzer import spoil_bytes, spoil_value
from tests.fuzz.keeper import Den
from tests.fuzz.packets import HUNT, ITEM, REPORT, spoil_message
from tests.fuzz.unit import BareUnit
from wolfpack.core.packets import Kind, Sender, den_mark, write_head, write_sender
from wolfpack.core.wire import Claim, KeeperReport, MemberTurn, Move, Submit, Turn, pack
from wolfpack.errors import CallerError, Deposed, LedgerError, Malformed
from wolfpack.model import Cause, PackSpec

REFUSALS = (CallerError, Deposed, LedgerError)
_PACK = PackSpec(name="extra", most=3)
_TASKS = ("c:1", "c:2", "nobody:7")
_EVENTS = (("UnitWoke", '{"unit": "grey-0"}'), ("mine:Event", '{"a": [1, 2]}'))

# The calls of a keeper, each with good arguments; those that are bytes are messages.
CALLS: dict[str, tuple[Any, ...]] = {
    "hello": ("grey-1", 1, 42, "node"),
    "birth_failed": ("grey-1", 1, "its set-up raised"),
    "claim": (Claim("p", 1, "grey-1", 1, 0),),
    "release": ("p", 1, "grey-0", 1),
    "turn": (
        Turn(
            "p", 1, "grey-0", 1, 5, (MemberTurn("grey-1", 1, (1, 2), (REPORT,), 3), MemberTurn("grey-0", 1, (), (), 2)),
            (("grey", 1),), ("grey-2",), 0, ("why",), (1, 2, "more"), 0,
        ),
    ),
    "report": (KeeperReport("grey-1", 1, 2, (1, 2), (REPORT,), 0),),
    "move": (Move("grey-2", 1, 9, "free", (REPORT,), (), "why", b"state", 1.0, 0),),
    "checkpoint": ("silver-0", 1, b"state"),
    "function": ("f" * 32,),
    "plan_failed": ("p", "grey-0", "why"),
    "publish": ("somebody", _EVENTS),
    "status": (),
    "submit": (Submit("c", "p", (ITEM, ITEM._replace(counter=2, key=None)), (("f" * 32, b"code"),), 0),),
    "watch": ("c", 0),
    "look": ("c", _TASKS),
    "cancel": (_TASKS, True),
    "why": ("c:1",),
    "attempts": ("c:1",),
    "units": (),
    "day_state": ("silver-0",),
    "packs": (),
    "stats": (),
    "events_since": (0, 100, False),
    "last_event": (),
    "create_pack": (_PACK,),
    "scale": ("p", 1, 3, "why"),
    "drain": ("q", "why"),
    "drop_pack": ("extra", "why"),
    "order_unit": ("grey-1", "recall", 2.0, "why"),
    "dead": ("p", 10),
    "replay": (_TASKS, None),
    "drop_dead": (_TASKS,),
    "hold_tether": ("tether-c",),
    "let_go": ("tether-c", "why"),
    "close": ("why",),
}  # fmt: skip
_MESSAGES = {"claim", "turn", "report", "move", "submit"}


def spoil_spec(rng: random.Random, spec: PackSpec) -> Any:
    """Something like a PackSpec: a record takes any fields."""
    names = list(PackSpec.__dataclass_fields__)
    fields = {name: getattr(spec, name) for name in names}
    for name in rng.sample(names, rng.choice((1, 1, 3))):
        fields[name] = spoil_value(rng, fields[name])
    return PackSpec(**fields)


def _at_a_time(rng: random.Random, given: Any) -> Any:
    """The argument as another moment would have it: other numbers, of leases and tasks that may be there."""
    number, lease_no = rng.randrange(1, 60), rng.randrange(1, 12)
    report = REPORT._replace(
        lease_no=lease_no, task_id=f"c:{rng.randrange(1, 12)}", cause=rng.choice(list(Cause)).value
    )
    match given:
        case Turn():
            members = tuple(each._replace(settled=(report,), ask=number, held=(lease_no,)) for each in given.members)
            return given._replace(seq=number, members=members)
        case Move():
            return given._replace(n=number, to=rng.choice(("free", "pack:p", "pack:q", "asleep")), settled=(report,))
        case KeeperReport():
            return given._replace(settled=(report,), held=(lease_no,))
        case Claim():
            return given._replace(prev_term=rng.choice((0, 1, 2)), unit=rng.choice(("grey-0", "grey-1")))
        case Submit():
            return given._replace(items=tuple(each._replace(counter=number + each.counter) for each in given.items))
        case _:
            return given


class KeeperCalls:
    """Calls of a keeper without Ray. Afterwards it must be well, and every row must be one it could go on from."""

    name = "keeper"
    refusals = REFUSALS

    def __init__(self) -> None:
        self._den = Den()
        self._left = 0

    def make(self, rng: random.Random) -> tuple[tuple[str, tuple[Any, ...]], ...]:
        return tuple(self._make_one(rng) for _ in range(rng.choice((1, 2, 5))))

    def _make_one(self, rng: random.Random) -> tuple[str, tuple[Any, ...]]:
        method = rng.choice([*CALLS, "submit", "turn", "turn", "report", "move"])
        good = tuple(_at_a_time(rng, each) for each in CALLS[method])
        if rng.random() < 0.25 or not good:  # so that there is something to spoil
            return method, tuple(pack(each) if method in _MESSAGES else each for each in good)
        if method in _MESSAGES:
            return method, (spoil_message(rng, good[0]),)
        if method == "create_pack" and rng.random() < 0.8:
            return method, (spoil_spec(rng, _PACK),)
        at = rng.randrange(len(good))
        return method, (*good[:at], spoil_value(rng, good[at]), *good[at + 1 :])

    def attempt(self, given: tuple[tuple[str, tuple[Any, ...]], ...]) -> None:
        keeper = self._den.keeper
        if keeper is None or self._left == 0:
            keeper, self._left = self._den.fresh(), 40
        self._left -= 1
        try:
            self._den.run(self._call(keeper, given))
        except REFUSALS:
            raise
        except BaseException:
            self._left = 0
            raise

    async def _call(self, keeper: Any, given: tuple[tuple[str, tuple[Any, ...]], ...]) -> None:
        refused: Exception | None = None
        for method, args in given:
            before, wrong = keeper.refused_calls, False
            try:
                await asyncio.wait_for(getattr(keeper, method)(*args), 0.02)
            except TimeoutError:
                pass  # parked
            except REFUSALS as exc:
                refused, wrong = exc, isinstance(exc, Malformed)
            assert keeper.refused_calls == before + wrong
        await keeper.is_well()
        if refused is not None:
            raise refused

    def close(self) -> None:
        self._den.end()


# --- units --------------------------------------------------------------------------------------------------------

MARK = den_mark("fuzz")
PING = write_head(MARK, Kind.PING, 1, write_sender(Sender("grey-1", 1, 0)))

UNIT_CALLS: dict[str, tuple[Any, ...]] = {
    "howl": (("heartbeat", "p", 2, "grey-2", 1, 0, None),),
    "hunt": (HUNT,),
    "summon": ("q",),
    "ask_to_lead": ("p", 1),
    "instruct": ("recall", 2.0, "why"),
    "gossip": ("grey-1", PING),
    "gossip_sync": ("grey-1", PING),
}


class UnitCalls:
    """Calls of a unit without Ray, as a member or as the alpha of its pack. Its brain must go on, and whatever it says
    afterwards must be what a keeper takes: what one unit swallowed must not stop its pack."""

    name = "unit"
    refusals = REFUSALS

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(lambda _loop, context: self._failures.append(context))
        self._failures: list[dict[str, Any]] = []  # of callbacks
        self._corpus = [MARK + data[6:] for data in membership.corpus()]

    def make(self, rng: random.Random) -> tuple[bool, tuple[tuple[str, tuple[Any, ...]], ...]]:
        return rng.random() < 0.7, tuple(self._make_one(rng) for _ in range(rng.choice((1, 3, 6))))

    def _make_one(self, rng: random.Random) -> tuple[str, tuple[Any, ...]]:
        method = rng.choice([*UNIT_CALLS, "hunt", "hunt", "howl", "gossip", "gossip"])
        good = UNIT_CALLS[method]
        if method in ("gossip", "gossip_sync"):
            source, data = rng.choice(membership.UNITS), rng.choice(self._corpus)
            if rng.random() < 0.7:
                data = MARK + spoil_bytes(rng, data, rng.choice(self._corpus))[6:]
            good = (source, data)
            if rng.random() < 0.8:
                return method, good
        if method == "hunt":
            unit = rng.choice(("grey-0", "grey-1", "grey-2", "nobody"))
            good = (
                HUNT._replace(unit=unit, n=rng.randrange(1, 9), settled=(REPORT._replace(lease_no=rng.randrange(9)),)),
            )
        if method in ("howl", "hunt"):
            return method, (pack(good[0]) if rng.random() < 0.3 else spoil_message(rng, good[0]),)
        at = rng.randrange(len(good))
        return method, (*good[:at], spoil_value(rng, good[at]), *good[at + 1 :])

    def attempt(self, given: tuple[bool, tuple[tuple[str, tuple[Any, ...]], ...]]) -> None:
        self._loop.run_until_complete(self._call(*given))

    async def _call(self, leads: bool, calls: tuple[tuple[str, tuple[Any, ...]], ...]) -> None:
        unit = BareUnit(leads=leads)
        self._failures.clear()
        refused: Exception | None = None
        for method, args in calls:
            task = asyncio.ensure_future(getattr(unit, method)(*args))
            await asyncio.sleep(0)
            if not task.done():
                await asyncio.sleep(0)
            if not task.done():
                task.cancel()  # parked
            elif task.exception() is not None:
                failed = task.exception()
                if not isinstance(failed, REFUSALS):
                    assert failed is not None
                    raise failed
                refused = failed
            unit.live_on(0.05)
        unit.live_on(2.0)
        unit.is_well()
        assert not self._failures, self._failures[0]
        if refused is not None:
            raise refused

    def close(self) -> None:
        self._loop.close()
