"""Calls of keeper and units with arguments of any kind: refused and counted, and the den goes on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from tests.core.book_desk import den
from tests.fuzz.calls import CALLS, UNIT_CALLS, KeeperCalls, UnitCalls
from tests.fuzz.fuzzer import campaign, deep
from tests.fuzz.keeper import Den
from tests.fuzz.packets import ITEM, REPORT, SUBMIT
from tests.fuzz.unit import BareUnit
from tests.ray.support import DenMaker
from wolfpack.core.howls import TERMS_AHEAD
from wolfpack.core.wire import Claim, Hunt, pack
from wolfpack.den import doors
from wolfpack.errors import CallerError, Malformed, WolfPackError
from wolfpack.model import Needs, PackSpec


@pytest.fixture
def bare() -> Iterator[Den]:
    one = Den(in_files=False)
    one.fresh()
    yield one
    one.end()


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


@pytest.mark.parametrize(("kind", "inputs"), [(KeeperCalls, 120), (UnitCalls, 150)], ids=lambda each: str(each))
def test_spoiled_calls_are_refused_or_carried_out_and_counted(kind: Any, inputs: int) -> None:
    door = kind()
    try:
        tally = campaign(door, 1, inputs=inputs)
    finally:
        door.close()
    print(tally)
    assert not tally.failures, tally.told()
    assert tally.refused + tally.accepted == inputs
    assert min(tally.refused, tally.accepted) > inputs // 20


WEIRD = [
    None,
    -1,
    2**70,
    1.5,
    float("nan"),
    "",
    "\ud800",
    "x" * 5000,
    b"",
    [],
    [[]],
    {},
    {"a": []},
    object(),
    deep(900),
]


@pytest.mark.parametrize("method", [name for name, args in CALLS.items() if args])
def test_no_argument_of_any_kind_is_more_than_refused(bare: Den, method: str) -> None:
    keeper = bare.keeper
    assert keeper is not None
    good = CALLS[method]

    async def call_all() -> None:
        for place in range(len(good)):
            for weird in WEIRD:
                args = [*good[:place], weird, *good[place + 1 :]]
                with contextlib.suppress(WolfPackError):
                    await getattr(keeper, method)(*args)
        await keeper.is_well()

    bare.run(call_all())


def submit_of(**fields: Any) -> bytes:
    return pack(SUBMIT._replace(items=(ITEM._replace(counter=1, key=None, **fields),)))


@pytest.mark.parametrize(
    "fields",
    [
        {"options": '{"deadline_at": "soon"}'},
        {"options": '{"deadline_at": NaN}'},
        {"options": '{"timeout_s": []}'},
        {"options": '{"priority": 1e999}'},
        {"options": "[]"},
        {"options": "[" * 50_000},
        {"options": '{"retry": {"max_attempts": NaN}}'},
        {"options": '{"retry": {"backoff_s": -1}}'},
        {"options": '{"retry": {"on_oom": {"tags": [5, "a"], "minimums": []}}}'},
        {"needs": "[[1]]"},
        {"needs": "[" * 50_000},
        {"needs": '{"memory_gb": ' + "9" * 400 + "}"},
        {"needs": '{"memory_gb": NaN}'},
    ],
    ids=lambda fields: str(fields)[:60],
)
def test_a_task_that_would_break_a_clock_or_a_heap_is_refused_whole(bare: Den, fields: dict[str, str]) -> None:
    keeper = bare.keeper
    assert keeper is not None
    with pytest.raises(Malformed, match="cannot be read"):
        bare.run(keeper.submit(submit_of(**fields)))
    bare.run(keeper.is_well())
    assert {} == keeper._book.tasks.live


@pytest.mark.parametrize("options", ["{ }", '{"name": "f" }', ' {"name":"f"} ', '{"deadline_at": 5}'])
def test_a_deadline_is_kept_however_its_options_are_written(bare: Den, options: str) -> None:
    keeper = bare.keeper
    assert keeper is not None
    bare.run(keeper.submit(submit_of(options=options, deadline_s=50.0)))
    (task,) = keeper._book.tasks.live.values()
    assert task.options.deadline_at == task.fixed.submitted_at + 50.0


@pytest.mark.parametrize("fields", [{"cause": "XYZ"}, {"kinds": (5,)}, {"retry_after_s": float("nan")}])
def test_a_report_that_no_unit_makes_loses_no_lease(fields: dict[str, Any]) -> None:
    from wolfpack.core.shapes import check_hunt
    from wolfpack.core.wire import read_hunt

    hunt = Hunt("p", "grey-1", 1, 1, 1, (), (REPORT._replace(**fields),), 0)
    with pytest.raises(Malformed):
        check_hunt(read_hunt(pack(hunt)))


@pytest.mark.parametrize("name", ["", "\ud800", "a\0b", 5, "x" * 600])
def test_a_pack_that_no_row_could_hold_is_refused(bare: Den, name: Any) -> None:
    keeper = bare.keeper
    assert keeper is not None
    with pytest.raises(Malformed):
        bare.run(keeper.create_pack(PackSpec(name=name, most=1)))
    bare.run(keeper.is_well())


def test_a_pack_that_would_come_back_as_another_one_is_refused(bare: Den) -> None:
    keeper = bare.keeper
    assert keeper is not None
    odd = PackSpec(name="x", needs=Needs(frozenset({"cpu"}), (("memory_gb", float("nan")),)))
    with pytest.raises(Malformed):
        bare.run(keeper.create_pack(odd))


def test_a_reason_that_is_no_utf8_reaches_every_alpha_and_ends_nobody(bare: Den) -> None:
    keeper = bare.keeper
    assert keeper is not None
    keeper._book.desk.wake(keeper._now(), keeper._book.unit("grey-1"), "p", "a test")
    boot = keeper._book.unit("grey-1").boot
    bare.run(keeper.birth_failed("grey-1", boot, "No such file: caf\udce9"))
    bare.run(keeper.is_well())


def test_a_claim_beyond_every_term_is_refused_and_the_next_good_one_granted() -> None:
    desk = den(2)
    desk.wait(10.0)
    boot = desk.book.units["grey-1"].boot
    wild = desk.book.claim(desk.at, Claim("p", 1 + TERMS_AHEAD + 1, "grey-1", boot, 0))
    assert (False, 1) == (wild.granted, wild.term)
    good = desk.book.claim(desk.at, Claim("p", 1, "grey-1", boot, 0))
    assert (True, 2) == (good.granted, good.term)


def test_refused_calls_are_counted_and_only_now_and_then_told(bare: Den, caplog: pytest.LogCaptureFixture) -> None:
    keeper = bare.keeper
    assert keeper is not None

    async def send(times: int) -> int:
        for _ in range(times):
            with pytest.raises(Malformed):
                await keeper.turn(b"\xc1")
        return int((await keeper.stats())["refused_calls"])

    with caplog.at_level(logging.WARNING, logger=doors.log.name):
        assert 1200 == bare.run(send(1200))
    assert 2 == sum(record.name == doors.log.name for record in caplog.records)


@pytest.mark.parametrize("method", list(UNIT_CALLS))
def test_a_unit_refuses_arguments_of_another_kind_and_counts_them(method: str) -> None:
    good = UNIT_CALLS[method]

    async def call_all() -> None:
        unit = BareUnit(leads=True)
        for place in range(len(good)):
            for weird in (None, -1, 1.5, "", "\ud800" * 600, b"\xc1", [[]], {}, object()):
                args = [*good[:place], weird, *good[place + 1 :]]
                before = unit.refused_calls
                try:
                    await asyncio.wait_for(getattr(unit, method)(*args), 0.01)
                except Malformed:
                    assert unit.refused_calls == before + 1
                except TimeoutError:
                    pass
                else:  # some are good: a text for a reason, seconds that are none too many, any bytes for a packet
                    taken: tuple[type, ...] = (str, float, bytes) if method.startswith("gossip") else (str, float)
                    assert isinstance(weird, taken), (args, weird)
        unit.live_on(1.0)
        unit.is_well()

    asyncio.run(call_all())


def test_on_ray_too_spoiled_calls_are_refused_and_the_den_goes_on(make_den: DenMaker) -> None:
    import ray

    made = make_den()
    first = made.pack().submit(abs, -1)
    assert 1 == first.result(60)
    keeper = made._gateway._keeper
    refused = 0
    for method in ("turn", "submit", "claim", "move", "report"):
        for data in (b"", b"\xc1", pack(("p",)), pack(deep(400)), "text", None):
            with pytest.raises(CallerError):
                ray.get(getattr(keeper, method).remote(data), timeout=30)
            refused += 1
    unit = next(each for each in made.units() if each.readiness == "awake")
    handle = ray.get_actor(f"{unit.id}#{unit.boot}", namespace=made.name)
    for method in ("howl", "hunt", "summon"):
        with pytest.raises(CallerError):
            ray.get(getattr(handle, method).remote(b"\xc1"), timeout=30)
    with pytest.raises(CallerError):
        ray.get(handle.instruct.remote("fly", -1.0, 5), timeout=30)
    assert refused == made.stats()["refused_calls"]
    assert 2 == made.pack().submit(abs, -2).result(60)
