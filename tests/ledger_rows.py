"""Rows for tests of the ledgers."""

from __future__ import annotations

from typing import Any

from wolfpack.core.rows import EventRow, GhostRow, PackRow, TaskFixed, TaskMutable, TaskRow, UnitRow, Writes
from wolfpack.model import Card, PackSpec
from wolfpack.plain import card_to_json, pack_to_json


def fixed(counter: int = 1, client: str = "ada", **changes: Any) -> TaskFixed:
    row = TaskFixed(
        id=f"{client}:{counter}",
        pack="computing",
        client=client,
        counter=counter,
        key=None,
        fn="f" * 8,
        digest="d" * 8,
        args=b"\x00args\xff",
        blob="",
        options='{"priority":0}',
        submitted_at=1000.0 + counter,
    )
    return row._replace(**changes)


def mutable(counter: int = 1, client: str = "ada", **changes: Any) -> TaskMutable:
    row = TaskMutable(
        id=f"{client}:{counter}",
        state="queued",
        needs='{"cpu":true}',
        lease_no=0,
        term=0,
        turn_seq=0,
        unit="",
        boot=0,
        attempts=0,
        failures=0,
        evictions=0,
        solo=False,
        pinned=False,
        cancel=False,
        not_before=0.0,
        started_at=0.0,
        ended_at=0.0,
        cause="",
        text="",
        story=b"",
        payload=b"",
        payload_blob="",
        settle_no=0,
    )
    return row._replace(**changes)


def done(counter: int, settle_no: int, client: str = "ada", **changes: Any) -> TaskMutable:
    return mutable(counter, client, **{"state": "done", "settle_no": settle_no, "payload": b"\x80value", **changes})


def submit(*counters: int, client: str = "ada", **changes: Any) -> Writes:
    """New tasks, each with its first state."""
    return Writes(
        new_tasks=[fixed(counter, client, **changes) for counter in counters],
        changed_tasks=[mutable(counter, client) for counter in counters],
    )


def change(*rows: TaskMutable) -> Writes:
    return Writes(changed_tasks=list(rows))


def ids(rows: list[TaskRow]) -> list[str]:
    return [row.fixed.id for row in rows]


def unit(name: str = "grey-1", **changes: Any) -> UnitRow:
    row = UnitRow(
        name,
        card_to_json(Card(unit=name, kind="grey")),
        1,
        "awake",
        None,
        0,
        0.0,
        0,
        "hello",
        b"\x00day",
        0.0,
        42,
        "node",
    )
    return row._replace(**changes)


def pack(name: str = "computing", **changes: Any) -> PackRow:
    return PackRow(name, pack_to_json(PackSpec(name=name)), 3, "grey-1", 1, 9, False, 0)._replace(**changes)


def event(number: int) -> EventRow:
    return EventRow(number, 1000.0 + number, "keeper", "UnitWoke", '{"unit":"grey-1"}')


def ghost(lease_no: int) -> GhostRow:
    return GhostRow(1000.0, lease_no, "ada:1", "grey-1", 1, "DONE", "came too late")
