"""Damaged ledgers: refused with a clear text, checked, and salvaged. Never silently wrong."""

from __future__ import annotations

import os
import shutil
import sqlite3
import zlib
from collections.abc import Callable
from contextlib import closing
from itertools import islice
from pathlib import Path
from random import Random
from typing import cast

import msgpack
import pytest

from tests.ledger_rows import change, done, event, fixed, ghost, mutable, pack, submit, unit
from wolfpack.core.book import Book, Instant
from wolfpack.core.book.state import Task
from wolfpack.core.rows import TaskRow, Writes
from wolfpack.den.ledger_check import AHEAD, FEW_AHEAD, _Source, check, salvage
from wolfpack.den.ledger_events import read_events
from wolfpack.den.sqlite_ledger import SqliteLedger
from wolfpack.errors import LedgerDamaged, LedgerError, LedgerHeld, LedgerMissing
from wolfpack.model import Timing

TASKS = 120
PAGE = 4096
FILES = ("", "-wal", ".mark")


def truth(counter: int) -> TaskRow:
    """What the ledger says of each task: a third is done, a third leased, a third queued."""
    part = fixed(counter, key=f"key-{counter}", args=bytes([counter]) * 300)
    match counter % 3:
        case 0:
            return TaskRow(part, done(counter, counter, lease_no=counter))
        case 1:
            return TaskRow(part, mutable(counter, state="leased", lease_no=counter))
        case _:
            return TaskRow(part, mutable(counter))


def fill(ledger: SqliteLedger) -> None:
    ledger.commit(
        Writes(
            packs=[pack()],
            units=[unit("grey-1"), unit("grey-2")],
            functions=[("f" * 8, b"code")],
            meta={"den": "timber"},
            events=[event(1), event(2)],
            ghosts=[ghost(5)],
        )
    )
    for start in range(1, TASKS + 1, 40):
        rows = [truth(counter) for counter in range(start, start + 40)]
        ledger.commit(
            Writes(new_tasks=[row.fixed for row in rows], changed_tasks=[mutable(row.fixed.counter) for row in rows])
        )
        ledger.commit(change(*(row.mutable for row in rows if row.mutable.state != "queued")))


def copy(source: Path, target: Path) -> Path:
    for suffix in FILES:
        if source.with_name(source.name + suffix).exists():
            shutil.copy(source.with_name(source.name + suffix), target.with_name(target.name + suffix))
    return target


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger whose den ended in order."""
    path = tmp_path_factory.mktemp("closed") / "timber.db"
    ledger = SqliteLedger(path)
    ledger.open(create=True)
    fill(ledger)
    ledger.close()
    return path


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger whose keeper was killed: all of it is in the log still."""
    folder = tmp_path_factory.mktemp("killed")
    ledger = SqliteLedger(folder / "living.db")
    ledger.open(create=True)
    fill(ledger)
    path = copy(folder / "living.db", folder / "timber.db")
    ledger.close()
    return path


@pytest.fixture(params=["closed", "killed"])
def ledger_file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The path of a whole ledger, to be damaged."""
    return copy(request.getfixturevalue(request.param), tmp_path / "timber.db")


def bytes_of(path: Path) -> dict[str, bytes]:
    files = {suffix: path.with_name(path.name + suffix) for suffix in FILES}
    return {suffix: file.read_bytes() for suffix, file in files.items() if file.exists()}


def where_the_rows_are(path: Path) -> Path:
    log = path.with_name(path.name + "-wal")
    return log if log.exists() else path


def read_all(path: Path) -> list[TaskRow]:
    ledger = SqliteLedger(path)
    ledger.open(create=False)
    try:
        return ledger.find_tasks([f"ada:{counter}" for counter in range(1, TASKS + 1)])
    finally:
        ledger.close()


def cut_tail(data: bytearray) -> None:
    del data[-PAGE:]


def cut_odd_tail(data: bytearray) -> None:
    del data[-1001:]


def cut_to_nothing(data: bytearray) -> None:
    data.clear()


def zero_tail(data: bytearray) -> None:
    data[-2 * PAGE :] = bytes(2 * PAGE)


def zero_head(data: bytearray) -> None:
    data[:PAGE] = bytes(PAGE)


def zero_all(data: bytearray) -> None:
    data[:] = bytes(len(data))


def flip_middle(data: bytearray) -> None:
    """Inside the arguments of some task."""
    data[data.find(bytes([60]) * 100) + 50] ^= 0x10


def no_ledger(data: bytearray) -> None:
    data[:] = b"den: timber\n" * 1000


DAMAGES = [cut_tail, cut_odd_tail, cut_to_nothing, zero_tail, zero_head, zero_all, flip_middle, no_ledger]


def damage(path: Path, how: Callable[[bytearray], None]) -> None:
    file = where_the_rows_are(path)
    data = bytearray(file.read_bytes())
    how(data)
    file.write_bytes(data)


@pytest.mark.parametrize("how", DAMAGES)
def test_P44_a_damaged_ledger_is_refused_with_a_clear_text_and_left_as_it_was(
    ledger_file: Path, how: Callable[[bytearray], None]
) -> None:
    damage(ledger_file, how)
    before = bytes_of(ledger_file)
    with pytest.raises(LedgerDamaged, match="wolfpack ledger salvage"):
        SqliteLedger(ledger_file).open(create=True)
    assert before == bytes_of(ledger_file)


@pytest.mark.parametrize("how", DAMAGES)
def test_P44_check_finds_every_damage_and_touches_nothing(ledger_file: Path, how: Callable[[bytearray], None]) -> None:
    damage(ledger_file, how)
    before = bytes_of(ledger_file)
    assert [] != check(ledger_file)
    assert before == bytes_of(ledger_file)


@pytest.mark.parametrize("seed", range(40))
def test_P44_a_flipped_bit_is_refused_or_harms_no_row(ledger_file: Path, seed: int) -> None:
    chance = Random(seed)
    file = where_the_rows_are(ledger_file)
    data = bytearray(file.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    file.write_bytes(data)
    try:
        rows = read_all(ledger_file)
    except LedgerError:
        return
    assert [truth(counter) for counter in range(1, TASKS + 1)] == rows


def test_P44_a_lost_tail_of_the_log_is_told_in_commits(killed: Path, tmp_path: Path) -> None:
    path = copy(killed, tmp_path / "timber.db")
    damage(path, cut_odd_tail)
    with pytest.raises(LedgerDamaged, match=r"its last 1 commits are lost \(the mark beside it says 7"):
        SqliteLedger(path).open(create=False)


def test_P44_a_lost_log_is_found(killed: Path, tmp_path: Path) -> None:
    path = copy(killed, tmp_path / "timber.db")
    where_the_rows_are(path).unlink()
    with pytest.raises(LedgerDamaged, match="its last 7 commits are lost"):
        SqliteLedger(path).open(create=False)


def test_P44_a_lost_file_is_not_replaced_while_its_log_is_there(killed: Path, tmp_path: Path) -> None:
    path = copy(killed, tmp_path / "timber.db")
    path.unlink()
    with pytest.raises(LedgerDamaged, match="its log is there"):
        SqliteLedger(path).open(create=True)


def test_P44_a_damaged_mark_is_refused(ledger_file: Path) -> None:
    mark = ledger_file.with_name("timber.db.mark")
    mark.write_bytes(b"\0" * 32)
    with pytest.raises(LedgerDamaged, match="remove the mark"):
        SqliteLedger(ledger_file).open(create=True)
    assert "mark" in check(ledger_file)[0]


def test_a_ledger_that_came_without_its_mark_opens(ledger_file: Path) -> None:
    ledger_file.with_name("timber.db.mark").unlink()
    assert [truth(counter) for counter in range(1, TASKS + 1)] == read_all(ledger_file)


def test_a_whole_ledger_has_no_faults(ledger_file: Path) -> None:
    before = bytes_of(ledger_file)
    assert [] == check(ledger_file)
    assert before == bytes_of(ledger_file)


def test_check_looks_into_a_ledger_that_is_held(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "timber.db")
    ledger.open(create=True)
    fill(ledger)
    assert [] == check(tmp_path / "timber.db")
    assert ledger.commit(submit(TASKS + 1)) == 8
    ledger.close()
    assert [] == check(tmp_path / "timber.db")


def test_check_of_nothing_says_so(tmp_path: Path) -> None:
    with pytest.raises(LedgerMissing):
        check(tmp_path / "timber.db")


# --- salvage ------------------------------------------------------------------------------------------------------


def test_P44_salvage_of_a_whole_ledger_keeps_all_of_it(ledger_file: Path, tmp_path: Path) -> None:
    before = bytes_of(ledger_file)
    report = salvage(ledger_file, tmp_path / "new" / "saved.db")
    assert [] == report.lost
    kept = {"tasks": TASKS, "packs": 1, "units": 2, "functions": 1, "events": 2, "ghosts": 1, "meta": 1}
    assert kept == report.kept
    assert before == bytes_of(ledger_file)
    ours, theirs = SqliteLedger(ledger_file), SqliteLedger(tmp_path / "new" / "saved.db")
    old, new = ours.open(create=False), theirs.open(create=False)
    old.live.sort()
    new.live.sort()
    new.epoch = old.epoch
    assert old == new
    assert ours.events_since(0, 9) == theirs.events_since(0, 9)
    assert ours.settled_since("ada", 0, 99) == theirs.settled_since("ada", 0, 99)
    ours.close()
    theirs.close()


@pytest.mark.parametrize("how", [cut_tail, cut_odd_tail, zero_tail, zero_head, flip_middle])
def test_P44_salvage_keeps_what_is_whole_and_reports_the_rest(
    closed: Path, tmp_path: Path, how: Callable[[bytearray], None]
) -> None:
    path = copy(closed, tmp_path / "timber.db")
    damage(path, how)
    before = bytes_of(path)
    report = salvage(path, tmp_path / "saved.db")
    rows = read_all(tmp_path / "saved.db")
    assert [truth(row.fixed.counter) for row in rows] == rows
    assert len(rows) == report.kept["tasks"] >= TASKS // 2
    assert [] != report.lost
    assert [] == check(tmp_path / "saved.db")
    assert before == bytes_of(path)


def test_P44_salvage_of_a_cut_log_keeps_all_commits_before_the_cut(killed: Path, tmp_path: Path) -> None:
    path = copy(killed, tmp_path / "timber.db")
    damage(path, cut_odd_tail)
    report = salvage(path, tmp_path / "saved.db")
    assert "its last 1 commits are lost" in report.lost[0]
    states = [row.mutable.state for row in read_all(tmp_path / "saved.db")]
    assert [truth(counter).mutable.state for counter in range(1, 81)] == states[:80]
    assert ["queued"] * 40 == states[80:]


def test_P44_a_flipped_bit_in_the_log_does_not_cost_the_commits_behind_it(killed: Path, tmp_path: Path) -> None:
    path = copy(killed, tmp_path / "timber.db")
    log = where_the_rows_are(path)
    data = bytearray(log.read_bytes())
    data[data.find(bytes([7]) * 100) + 50] ^= 0x10
    log.write_bytes(data)
    report = salvage(path, tmp_path / "saved.db")
    rows = read_all(tmp_path / "saved.db")
    assert [truth(row.fixed.counter) for row in rows] == rows
    assert TASKS - 20 < len(rows)
    assert "of the log is damaged" in report.lost[0]


def test_P44_one_flipped_bit_costs_one_task(closed: Path, tmp_path: Path) -> None:
    path = copy(closed, tmp_path / "timber.db")
    damage(path, flip_middle)
    report = salvage(path, tmp_path / "saved.db")
    assert report.kept["tasks"] == TASKS - 1
    assert "task ada:60: its arguments are lost; it was done" in report.lost


def test_P44_an_unreadable_page_costs_only_the_rows_on_it(closed: Path, tmp_path: Path) -> None:
    path = copy(closed, tmp_path / "timber.db")
    data = bytearray(path.read_bytes())
    start = data.find(bytes([60]) * 100) // PAGE * PAGE
    data[start : start + PAGE] = bytes(PAGE)
    path.write_bytes(data)
    report = salvage(path, tmp_path / "saved.db")
    kept = [row.fixed.counter for row in read_all(tmp_path / "saved.db")]
    assert TASKS - 12 <= len(kept) < TASKS
    assert {1, 2, 45, 75, 119, 120} <= set(kept)
    assert any(line.startswith("table task: nothing can be read from row") for line in report.lost)


def test_P44_a_task_whose_state_is_lost_is_reported_and_not_guessed(closed: Path, tmp_path: Path) -> None:
    path = copy(closed, tmp_path / "timber.db")
    with closing(sqlite3.connect(path, isolation_level=None)) as con:
        con.execute("UPDATE live SET crc = 1 WHERE num % 1000 = (SELECT max(num) % 1000 FROM live)")
    report = salvage(path, tmp_path / "saved.db")
    assert "task ada:119 of pack computing: its state is lost, so it cannot go on" in report.lost
    assert report.kept["tasks"] == TASKS - 1


def test_after_a_loss_no_number_is_ever_given_twice(closed: Path, tmp_path: Path) -> None:
    path = copy(closed, tmp_path / "timber.db")
    damage(path, flip_middle)
    salvage(path, tmp_path / "saved.db")
    ledger = SqliteLedger(tmp_path / "saved.db")
    loaded = ledger.open(create=False)
    ledger.close()
    numbers = (loaded.last_lease_no, loaded.last_settle_no, loaded.last_event_no)
    assert (TASKS + AHEAD, TASKS + AHEAD, 2 + AHEAD) == numbers
    assert [pack(term=3 + FEW_AHEAD, alpha=None, alpha_boot=0, turn_seq=0)] == loaded.packs
    assert [1 + FEW_AHEAD] * 2 == [row.boot for row in loaded.units]
    assert {"ada": TASKS} == loaded.clients
    assert loaded.commit_no == 8


class HalfReadable:
    """A ledger with one row a table, at a high number; all of it but its body is damaged, or its number comes again."""

    def __init__(self, damage: str) -> None:
        self.damage, self.queries = damage, 0

    def execute(self, query: str, given: tuple[int, ...]) -> sqlite3.Cursor:
        self.queries += 1
        found = sqlite3.connect(":memory:").execute("SELECT 2, x'00', 0 UNION ALL SELECT 1, x'00', 0")
        if self.damage == "crc" and given[0] < 1 << 40:
            found = sqlite3.connect(":memory:").execute("SELECT 1 << 40, x'00'")
            if "crc" in query:
                raise sqlite3.DatabaseError("malformed")
        return found


@pytest.mark.parametrize("damage", ["crc", "number"])
def test_P44_salvage_ends_though_a_row_can_be_read_in_part_only(damage: str) -> None:
    damaged = HalfReadable(damage)
    lost: list[str] = []
    source = _Source(cast(sqlite3.Connection, damaged), lost)
    list(islice(source.rows("event"), 100))
    assert damaged.queries < 10_000
    assert any("nothing can be read from row" in line for line in lost)


class OneByOne:
    """A ledger with three rows a table that is read one row at a time, or not at all."""

    def execute(self, query: str, given: tuple[int, ...]) -> sqlite3.Cursor:
        if "LIMIT 1" not in query:
            raise sqlite3.DatabaseError("malformed")
        rows = " UNION ALL ".join(f"SELECT {number} AS number, x'00', 0" for number in (1, 2, 3))
        found = f"SELECT * FROM ({rows}) WHERE number > ? ORDER BY number LIMIT 1"
        return sqlite3.connect(":memory:").execute(found, given)


def test_P44_salvage_gets_on_where_only_single_rows_can_be_read() -> None:
    lost: list[str] = []
    source = _Source(cast(sqlite3.Connection, OneByOne()), lost)
    lost.clear()
    assert [] == list(source.rows("event"))  # their checksums are wrong, too
    assert [f"row {number} of table event has a wrong checksum" for number in (1, 2, 3)] == [
        line for line in lost if line.startswith("row")
    ]


def test_salvage_leaves_a_held_ledger_alone(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "timber.db")
    ledger.open(create=True)
    with pytest.raises(LedgerHeld):
        salvage(tmp_path / "timber.db", tmp_path / "saved.db")
    ledger.close()


def test_salvage_writes_over_nothing(ledger_file: Path, tmp_path: Path) -> None:
    (tmp_path / "saved.db").write_text("mine")
    with pytest.raises(LedgerError, match="exists"):
        salvage(ledger_file, tmp_path / "saved.db")
    assert (tmp_path / "saved.db").read_text() == "mine"


def test_salvage_of_nothing_says_so(tmp_path: Path) -> None:
    with pytest.raises(LedgerMissing):
        salvage(tmp_path / "timber.db", tmp_path / "saved.db")


# --- what lies in its place, and what others wrote into it --------------------------------------------------------


@pytest.mark.parametrize("left", [b"", b"x"])
def test_P44_looking_at_an_emptied_file_does_not_cost_its_log(killed: Path, tmp_path: Path, left: bytes) -> None:
    path = copy(killed, tmp_path / "timber.db")
    path.write_bytes(left)
    before = bytes_of(path)
    assert "its log is there" in check(path)[0]
    with pytest.raises(LedgerDamaged):
        read_events(path)
    with pytest.raises(LedgerDamaged):
        SqliteLedger(path).open(create=True)
    assert before == bytes_of(path)


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", ".mark", ".lock", "-journal"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
def test_what_is_no_file_is_told_and_nobody_waits_for_it(
    closed: Path, tmp_path: Path, suffix: str, make: Callable[[Path], None]
) -> None:
    path = copy(closed, tmp_path / "timber.db")
    other = path.with_name(path.name + suffix)
    other.unlink(missing_ok=True)
    make(other)
    for look in (check, read_events, lambda each: salvage(each, tmp_path / "saved.db")):
        with pytest.raises(LedgerError, match=r"a folder|no regular file"):
            look(path)
    with pytest.raises(LedgerError, match=r"a folder|no regular file"):
        SqliteLedger(path).open(create=True)


@pytest.mark.parametrize("name", ["x" * 300, "a\0b", "timber.db/in/a/file", "\udcff" * 200])
def test_a_name_that_no_ledger_can_have_is_told(closed: Path, tmp_path: Path, name: str) -> None:
    copy(closed, tmp_path / "timber.db")
    for look in (check, read_events, lambda each: salvage(each, tmp_path / "saved.db")):
        with pytest.raises(LedgerError):
            look(tmp_path / name)
    with pytest.raises(LedgerError):
        SqliteLedger(tmp_path / name).open(create=False)


def test_a_link_that_leads_to_itself_is_told(tmp_path: Path) -> None:
    (tmp_path / "timber.db").symlink_to("timber.db")
    with pytest.raises(LedgerError):
        check(tmp_path / "timber.db")


def test_a_mark_is_never_written_through_a_link(closed: Path, tmp_path: Path) -> None:
    path = copy(closed, tmp_path / "timber.db")
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "timber.db.mark.new").symlink_to(victim)
    read_all(path)
    assert "mine" == victim.read_text()


def rewrite(path: Path, table: str, change: Callable[[list[object]], object]) -> None:
    """Puts another body, with a right checksum, into the first row of a table."""
    with closing(sqlite3.connect(path)) as con, con:
        rowid, body = con.execute(f"SELECT rowid, body FROM {table}").fetchone()
        fields = msgpack.unpackb(body)
        changed = change(fields)
        body = msgpack.packb(fields if changed is None else changed)
        crc = zlib.crc32(body, zlib.crc32(table.encode()))
        con.execute(f"UPDATE {table} SET body = ?, crc = ? WHERE rowid = ?", (body, crc, rowid))


def go_on(path: Path) -> None:
    """As a keeper does, that is asked about the oldest tasks."""
    ledger = SqliteLedger(path)
    try:
        Book(Timing(), Random(1)).load(Instant(0.0, 0.0), ledger.open(create=False))
        for row in ledger.find_tasks(["ada:1", "ada:3"]):
            Task.from_row(row)
    finally:
        ledger.close()


def set_field(place: int, value: object) -> Callable[[list[object]], None]:
    return lambda fields: fields.__setitem__(place, value)


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("book", lambda fields: 5),
        ("book", set_field(2, "many")),
        ("book", set_field(2, 2**64 - 1)),
        ("client", lambda fields: fields[:1]),
        ("pack", set_field(2, None)),
        ("pack", set_field(2, -1)),
        ("unit", set_field(2, 2**63)),
        ("unit", set_field(9, "text")),
        ("task", lambda fields: {}),
        ("live", set_field(19, "story")),
        ("event", set_field(1, "noon")),
        ("ghost", lambda fields: []),
    ],
)
def test_a_whole_row_of_another_shape_refuses_the_ledger(
    closed: Path, tmp_path: Path, table: str, change: Callable[[list[object]], object]
) -> None:
    path = copy(closed, tmp_path / "timber.db")
    rewrite(path, table, change)
    assert [] != check(path)
    with pytest.raises(LedgerDamaged):
        SqliteLedger(path).open(create=False)
    salvage(path, tmp_path / "saved.db")


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("pack", set_field(1, "no JSON")),
        ("unit", set_field(1, '{"unit": 5}')),
        ("unit", set_field(3, "flying")),
        ("meta", set_field(1, "[" * 5000)),
        ("live", set_field(2, '{"cpu": "much"}')),
        ("live", set_field(19, b"\x91\x01")),
        ("task", set_field(9, '{"deadline_at": "soon"}')),
    ],
)
def test_what_no_keeper_wrote_is_told_by_check_and_refused_by_the_keeper(
    closed: Path, tmp_path: Path, table: str, change: Callable[[list[object]], object]
) -> None:
    path = copy(closed, tmp_path / "timber.db")
    with closing(sqlite3.connect(path)) as con, con:
        con.execute("UPDATE meta SET name = 'described'")
    rewrite(path, "meta", lambda fields: ["described", "{}"])
    assert [] == check(path)
    rewrite(path, table, change)
    assert [] != check(path)
    with pytest.raises(LedgerDamaged):
        go_on(path)
