"""What a SQLite ledger looks like inside, and how one knows that a row of it is whole.

Every row is a msgpack *body* with a checksum; the other columns only repeat what SQL must see to find the row, and are
compared with the body when it is read. A task has two rows: what never changes in `task`, and what moves in `live`
while it is queued or leased, in `final` afterwards. So a lease touches one small row and no index, the live tasks are
read without a search, and a large argument is written once. The number of a task is (client, counter) in one integer.
`book` is one row with the highest numbers ever given and how many tasks there must be.

A checksum starts from the name of its table, so a row is never taken for one of another table. SQLite has no checksums
of its own: its `integrity_check` proves structure and indexes, ours prove contents, both together the ledger.
"""

from __future__ import annotations

import sqlite3
import types
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints

import msgpack

from wolfpack.core.rows import EventRow, GhostRow, PackRow, TaskFixed, TaskMutable, TaskRow, UnitRow
from wolfpack.core.shapes import NUMBER_MOST
from wolfpack.den.ledger_files import MarkNumbers
from wolfpack.errors import LedgerDamaged, LedgerError, LedgerTooNew
from wolfpack.model import FINAL_STATES, TaskState

APPLICATION_ID = 0x57506B31  # "WPk1", in the head of the file
SCHEMA_VERSION = 1
# Fixed, so that the first page of every ledger is alike: `salvage` can replace a damaged one.
PAGE_BYTES = 4096
LIVE_STATES = frozenset(TaskState) - FINAL_STATES
COUNTER_BITS = 40

_BODY = "body BLOB NOT NULL, crc INTEGER NOT NULL"
SCHEMA: dict[str, str] = {
    "book": f"CREATE TABLE book (one INTEGER PRIMARY KEY CHECK (one = 1), epoch INTEGER NOT NULL, {_BODY})",
    "meta": f"CREATE TABLE meta (name TEXT PRIMARY KEY, {_BODY})",
    "client": f"CREATE TABLE client (no INTEGER PRIMARY KEY, {_BODY})",
    "pack": f"CREATE TABLE pack (pack TEXT PRIMARY KEY, {_BODY})",
    "unit": f"CREATE TABLE unit (unit TEXT PRIMARY KEY, {_BODY})",
    "function": f"CREATE TABLE function (fn TEXT PRIMARY KEY, {_BODY})",
    "task": f"CREATE TABLE task (num INTEGER PRIMARY KEY, key BLOB, {_BODY})",
    "live": f"CREATE TABLE live (num INTEGER PRIMARY KEY, pack TEXT NOT NULL, state TEXT NOT NULL, {_BODY})",
    "final": (
        "CREATE TABLE final (num INTEGER PRIMARY KEY, client INTEGER NOT NULL, settle_no INTEGER NOT NULL, "
        f"pack TEXT NOT NULL, state TEXT NOT NULL, {_BODY})"
    ),
    "event": f"CREATE TABLE event (number INTEGER PRIMARY KEY, {_BODY})",
    "ghost": f"CREATE TABLE ghost (number INTEGER PRIMARY KEY, {_BODY})",
    "task_key": "CREATE UNIQUE INDEX task_key ON task (key) WHERE key IS NOT NULL",
    "final_client": "CREATE UNIQUE INDEX final_client ON final (client, settle_no)",
    "final_state": "CREATE INDEX final_state ON final (pack, state, settle_no)",
}

# Where a table's checksums start.
SEED = {name: zlib.crc32(name.encode()) for name, sql in SCHEMA.items() if sql.startswith("CREATE TABLE")}


class Book(NamedTuple):
    """The one row that every commit writes."""

    ident: bytes  # 8 random bytes, given at creation: which ledger the mark beside it belongs to
    epoch: int
    commit_no: int
    submitted: int  # tasks ever
    removed: int  # of them, dropped by a person
    lease_no: int
    settle_no: int
    event_no: int
    ghosts: int  # ever


def _shape(*hints: Any) -> tuple[frozenset[type], ...]:
    """Which types each field of a row may have: a whole number may stand for seconds, and 0 or 1 for no and yes."""
    wider = {float: {float, int}, bool: {bool, int}}
    allowed = [get_args(hint) if isinstance(hint, types.UnionType) else (hint,) for hint in hints]
    return tuple(frozenset().union(*(wider.get(kind, {kind}) for kind in kinds)) for kinds in allowed)


def _shape_of(row: type, *before: Any) -> tuple[frozenset[type], ...]:
    return _shape(*before, *get_type_hints(row).values())


# What the fields of each table's rows are.
SHAPES: dict[str, tuple[frozenset[type], ...]] = {
    "book": _shape_of(Book),
    "meta": _shape(str, str),
    "client": _shape(str, int),
    "pack": _shape_of(PackRow),
    "unit": _shape_of(UnitRow),
    "task": _shape_of(TaskFixed),
    "live": _shape_of(TaskMutable),
    "final": _shape_of(TaskMutable),
    "event": _shape_of(EventRow),
    "ghost": _shape_of(GhostRow, int),
}
_COUNTED = frozenset({"book", "client", "pack", "unit"})
_sound: set[tuple[str, tuple[type, ...]]] = set()  # kinds of rows that were found good


class RowFault(Exception):
    """A row that is not what was written."""


# What reading a damaged file can raise; the second when SQLite quotes damaged bytes in its message.
READ_ERRORS = (sqlite3.Error, UnicodeDecodeError)


def packer() -> Callable[[object], bytes]:
    """A function that packs a row; each thread needs its own. Texts of users may hold lone surrogates."""
    pack: Callable[[object], bytes] = msgpack.Packer(unicode_errors="surrogatepass").pack
    return pack


def number_of(client_no: int, counter: int) -> int:
    """The number of a task.

    Raises:
        ValueError: the counter is negative or above 2 ** 40.
    """
    if counter < 0 or counter >> COUNTER_BITS:
        raise ValueError(f"the counter {counter} of a task is out of range")
    return client_no << COUNTER_BITS | counter


def key_column(pack: str, key: str | None) -> bytes | None:
    """A key is unique within its pack. As bytes, since a key may hold what SQL texts may not."""
    return None if key is None else f"{pack}\0{key}".encode("utf-8", "surrogatepass")


def seal_function(fn: str, code: bytes) -> int:
    """The checksum of a function's row: its body is the code itself."""
    return zlib.crc32(code, zlib.crc32(fn.encode(), SEED["function"]))


def unseal(table: str, key: object, body: Any, crc: Any) -> tuple[Any, ...]:
    """The fields of a row, proved whole.

    Raises:
        RowFault: they are not.
    """
    if not isinstance(body, bytes) or zlib.crc32(body, SEED[table]) != crc:
        raise RowFault(f"row {key} of table {table} has a wrong checksum")
    try:
        fields: Any = msgpack.unpackb(body, use_list=False, unicode_errors="surrogatepass")
    except Exception as exc:  # msgpack raises a dozen kinds
        raise RowFault(f"row {key} of table {table} cannot be read ({exc})") from exc
    if type(fields) is not tuple or (table, (*map(type, fields),)) not in _sound:
        _check_shape(table, key, fields)
    if table in _COUNTED:
        _check_numbers(table, key, fields)
    whole: tuple[Any, ...] = fields
    return whole


def _check_numbers(table: str, key: object, fields: tuple[Any, ...]) -> None:
    """Of the small tables: numbers from which the keeper counts on must leave room for more."""
    for number in fields:
        if type(number) is int and not 0 <= number < NUMBER_MOST:
            raise RowFault(f"row {key} of table {table} holds the number {number}, which nobody can count on from")


def _check_shape(table: str, key: object, fields: object) -> None:
    """A checksum proves that a row is as it was written, and nothing of who wrote it."""
    shape = SHAPES[table]
    if type(fields) is not tuple or len(fields) != len(shape):
        raise RowFault(f"row {key} of table {table} does not hold the {len(shape)} fields it must have")
    kinds = tuple(map(type, fields))
    for place, (kind, allowed) in enumerate(zip(kinds, shape, strict=True)):
        if kind not in allowed:
            raise RowFault(f"field {place} of row {key} of table {table} cannot be {kind.__name__}")
    if len(_sound) < 1000:
        _sound.add((table, kinds))


def unseal_function(fn: str, body: Any, crc: Any) -> bytes:
    if type(fn) is not str or not isinstance(body, bytes) or seal_function(fn, body) != crc:
        raise RowFault(f"row {fn!r:.80} of table function has a wrong checksum")
    return body


def unseal_keyed(table: str, key: object, body: Any, crc: Any) -> tuple[Any, ...]:
    """A row whose first field is the key it is found by."""
    fields = unseal(table, key, body, crc)
    if fields[0] != key:
        raise RowFault(f"row {key} of table {table} holds {fields[0]!r}")
    return fields


# A task with both its parts, wherever the moving one is, and what SQL sees of it.
SELECT_TASK = (
    "SELECT coalesce(task.num, live.num, final.num), task.key, task.body, task.crc, "
    "live.body, live.crc, live.pack, live.state, final.body, final.crc, final.pack, final.state, final.settle_no FROM "
)
JOIN_TASK = "task LEFT JOIN live ON live.num = task.num LEFT JOIN final ON final.num = task.num"
JOIN_LIVE = "live LEFT JOIN task ON task.num = live.num LEFT JOIN final ON final.num = live.num"
JOIN_FINAL = "final LEFT JOIN task ON task.num = final.num LEFT JOIN live ON live.num = final.num"


def read_task(row: tuple[Any, ...]) -> TaskRow:
    """One row of `SELECT_TASK`.

    Raises:
        RowFault: a part is missing, doubled or not whole, or its columns say other than its body.
    """
    num, key, fixed_body, fixed_crc, body, crc, pack, state, final_body, final_crc, final_pack, final_state, no = row
    if fixed_body is None:
        raise RowFault(f"row {num} of table task is missing")
    if (body is None) == (final_body is None):
        what = "is neither live nor final" if body is None else "is both live and final"
        raise RowFault(f"row {num} of table task {what}")
    fixed = TaskFixed(*unseal("task", num, fixed_body, fixed_crc))
    if body is not None:
        mutable = TaskMutable(*unseal("live", num, body, crc))
        shown, told = (pack, state, 0), (fixed.pack, mutable.state, mutable.settle_no)
        fits = mutable.state in LIVE_STATES
    else:
        mutable = TaskMutable(*unseal("final", num, final_body, final_crc))
        shown, told = (final_pack, final_state, no), (fixed.pack, mutable.state, mutable.settle_no)
        fits = mutable.state in FINAL_STATES
    if (
        not fits
        or shown != told
        or fixed.id != mutable.id
        or fixed.counter != num & (1 << COUNTER_BITS) - 1
        or key != key_column(fixed.pack, fixed.key)
    ):
        raise RowFault(f"row {num} of table task (task {fixed.id}) is found under other values than its own")
    return TaskRow(fixed, mutable)


def read_book(con: sqlite3.Connection) -> Book:
    row = con.execute("SELECT epoch, body, crc FROM book").fetchone()
    if row is None:
        raise RowFault("the row of table book is missing")
    book = Book(*unseal("book", 1, row[1], row[2]))
    if book.epoch != row[0]:
        raise RowFault("the row of table book shows another epoch than its own")
    return book


def check_schema(con: sqlite3.Connection, path: Path) -> None:
    """Refuses what is no ledger of ours, or one of a later version.

    Raises:
        LedgerTooNew, LedgerDamaged: as their texts say.
    """
    (application,) = con.execute("PRAGMA application_id").fetchone()
    if application != APPLICATION_ID:
        raise damaged(path, "its head does not say that it is a ledger of Wolf Pack")
    (version,) = con.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA_VERSION:
        raise LedgerTooNew(
            f"The ledger {path} was written by a later version of Wolf Pack (schema {version}; this one knows "
            f"{SCHEMA_VERSION}). Install that version, or name another file under `ledger:`. Nothing was touched."
        )
    found = dict(con.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"))
    if version < 1 or found != SCHEMA:
        wrong = sorted(str(name) for name in {*found, *SCHEMA} if found.get(name) != SCHEMA.get(name))
        raise damaged(path, f"the description of its tables is wrong ({', '.join(wrong) or 'version'})")


def structure_faults(con: sqlite3.Connection) -> Iterator[str]:
    """What SQLite's own check of pages and indexes finds, one line each; it reads the whole file."""
    for (text,) in con.execute("PRAGMA integrity_check(100)"):
        for line in str(text).splitlines():
            if line != "ok" and not line.startswith("***"):
                yield line


def mark_fault(book: Book, mark: MarkNumbers | None) -> str | None:
    """A mark above the ledger: its tail is lost. The mark of another ledger proves nothing."""
    if mark is None or mark.ident != book.ident or (mark.epoch, mark.commit_no) <= (book.epoch, book.commit_no):
        return None
    lost = mark.commit_no - book.commit_no
    return (
        f"its last {lost} commits are lost (the mark beside it says {mark.commit_no}, the ledger ends with "
        f"{book.commit_no})"
        if lost > 0
        else f"its last opening is lost (the mark says epoch {mark.epoch}, the ledger {book.epoch})"
    )


def conservation_fault(book: Book, live: int, final: int) -> str | None:
    """submitted = live + final + removed, at every moment."""
    if book.submitted == live + final + book.removed:
        return None
    return (
        f"{book.submitted} tasks were submitted and {book.removed} removed by hand, "
        f"but there are {live} live and {final} final ones"
    )


def damaged(path: Path, what: str) -> LedgerDamaged:
    return LedgerDamaged(
        f"The ledger {path} is damaged: {what}. Nothing was touched. See all faults with `wolfpack ledger check`; "
        "`wolfpack ledger salvage` writes a new ledger with everything that is whole."
    )


def explain(path: Path, exc: Exception, doing: str) -> LedgerError:
    """The error a person can act on, for one that SQLite, the disk or a row raised."""
    if isinstance(exc, RowFault):
        return damaged(path, str(exc))
    name = getattr(exc, "sqlite_errorname", None) or type(exc).__name__
    detail = f"{exc} [{name}]"
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB", "UnicodeDecodeError")) or "Could not decode" in str(exc):
        return damaged(path, detail)
    if name.startswith("SQLITE_FULL"):
        advice = f"the disk (or a quota) is full. Make room in {path.parent}"
    elif name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "PermissionError")):
        advice = f"it may not be written. Make {path.parent} and the files in it writable"
    elif name.startswith("SQLITE_IOERR"):
        advice = f"its disk failed, is full or has a limit on the size of files. Look after the disk of {path.parent}"
    elif name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        advice = "another program keeps it locked. End the program that has the file open"
    elif "null byte" in str(exc) or "null character" in str(exc):
        advice = "no file can have such a name. Name another one under `ledger:`"
    elif isinstance(exc, OSError):
        advice = f"{exc.strerror or exc}. Look after {path.parent}, or name another file under `ledger:`"
    else:
        advice = "this is a bug of Wolf Pack; please report it"
    return LedgerError(f"The ledger {path} could not be {doing}: {advice}. ({detail})")
