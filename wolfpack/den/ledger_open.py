"""From a path to a proved ledger: is it there, make it, read it without touching it.

A ledger is made under another name and renamed when it is complete, so that whatever lies under its own name is either
a whole ledger or a damaged one. Reading for proof goes through a connection that cannot write: an ordinary one would
fold the log into the file when it closes, and a damaged ledger would no longer be as it was found.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from wolfpack.core.rows import Count, Loaded, PackRow, TaskRow, UnitRow
from wolfpack.den import ledger_format as form
from wolfpack.den.ledger_files import beside, read_mark, sync_folder
from wolfpack.den.ledger_format import Book, RowFault
from wolfpack.errors import LedgerError
from wolfpack.model import FINAL_STATES

# Up to the first size every row is proved at opening, up to the second every page and index; either takes well under a
# second. Of a larger ledger the live tasks, the counts and the small tables are, and a final task when it is read.
ROWS_PROVED_BYTES = 32 << 20
PAGES_PROVED_BYTES = 192 << 20
# SQLite takes a file of one byte for an empty one, and removes the log beside an empty file as soon as anybody looks.
EMPTY_BYTES = 1
LEAST_ROW_BYTES = 8  # a row takes more


def size_of(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return None


def refuse_others(path: Path) -> None:
    """Looks whether the ledger and what lies beside it are files: of a pipe the reader would wait for ever.

    Raises:
        LedgerError: one is a folder, a pipe or a device; nothing was opened.
    """
    for suffix in ("", "-wal", "-shm", "-journal", ".lock", ".mark", ".mark.new"):
        file = beside(path, suffix) if suffix else path
        try:
            mode = file.stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            continue
        if not stat.S_ISREG(mode):
            what = "a folder" if stat.S_ISDIR(mode) else "no regular file"
            raise LedgerError(
                f"The ledger {path} cannot be used: {file} is {what}. Name another file under `ledger:`, or move "
                "that out of the way."
            )


def is_there(path: Path) -> bool:
    """Whether a ledger is at this path, whole or not. An empty file that nothing lies beside is none.

    Raises:
        LedgerDamaged: the file is gone or empty, but its log or its mark shows that there was one.
        LedgerError: it, or what lies beside it, is no file.
    """
    refuse_others(path)
    size = size_of(path)
    if size is not None and size > EMPTY_BYTES:
        return True
    if size_of(beside(path, "-wal")):
        raise form.damaged(path, "the file is empty or gone, but its log is there")
    if size is not None and size_of(beside(path, ".mark")):
        raise form.damaged(path, "the file is empty, but the mark beside it tells of commits")
    return False


def create_file(path: Path) -> None:
    """Makes an empty ledger; the caller holds the lock."""
    fresh = beside(path, ".new")
    for suffix in ("", "-wal", "-shm"):
        beside(fresh, suffix).unlink(missing_ok=True)
    con = sqlite3.connect(fresh, isolation_level=None)
    try:
        con.execute(f"PRAGMA page_size={form.PAGE_BYTES}")
        con.execute("PRAGMA auto_vacuum=NONE")
        con.execute("PRAGMA journal_mode=WAL")
        con.execute("BEGIN")
        for sql in form.SCHEMA.values():
            con.execute(sql)
        con.execute(f"PRAGMA application_id={form.APPLICATION_ID}")
        con.execute(f"PRAGMA user_version={form.SCHEMA_VERSION}")
        book = form.packer()(Book(os.urandom(8), 0, 0, 0, 0, 0, 0, 0, 0))
        con.execute("INSERT INTO book VALUES (1, 0, ?, ?)", (book, zlib.crc32(book, form.SEED["book"])))
        con.execute("COMMIT")
    finally:
        con.close()
    beside(path, ".mark").unlink(missing_ok=True)
    fresh.replace(path)
    sync_folder(path.parent)


@contextlib.contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that reads file and log and changes neither; what SQLite put beside them is taken away again."""
    is_there(path)
    made = [beside(path, suffix) for suffix in ("-wal", "-shm") if size_of(beside(path, suffix)) is None]
    con = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None)
    try:
        con.execute("BEGIN")
        yield con
    finally:
        con.close()
        for scratch in made:
            # Whatever opened the file meanwhile keeps its log; an empty one is ours.
            if not size_of(scratch) or scratch.name.endswith("-shm"):
                scratch.unlink(missing_ok=True)


def load(path: Path) -> tuple[Book, Loaded, dict[str, tuple[int, str]], dict[str, tuple[int, int]]]:
    """Proves a ledger and reads what is alive: its book, the rows for the keeper, number and pack of each
    live task, and the clients with their numbers and highest counters.

    Raises:
        RowFault, LedgerDamaged, LedgerTooNew, sqlite3.Error: it is not whole or cannot be read.
    """
    mark = read_mark(path)
    with reading(path) as con:
        form.check_schema(con, path)
        book = form.read_book(con)
        refuse(form.mark_fault(book, mark))
        size = size_of(path) or 0
        for fault in faults(con) if size <= ROWS_PROVED_BYTES else ():
            raise RowFault(fault)
        for fault in form.structure_faults(con) if ROWS_PROVED_BYTES < size <= PAGES_PROVED_BYTES else ():
            raise RowFault(fault)
        clients = {client: (no, counter) for no, client, counter in read_clients(con)}
        live: list[TaskRow] = []
        places: dict[str, tuple[int, str]] = {}
        for row in con.execute(form.SELECT_TASK + form.JOIN_LIVE):
            task = form.read_task(row)
            live.append(task)
            places[task.fixed.id] = (row[0], task.fixed.pack)
        counts = count_tasks(con)
        final = sum(count.tasks for count in counts if count.state in FINAL_STATES)
        refuse(form.conservation_fault(book, len(live), final))
        loaded = Loaded(
            epoch=book.epoch,
            commit_no=book.commit_no,
            meta=dict(read_keyed(con, "meta", "name")),
            packs=[PackRow(*fields) for fields in read_keyed(con, "pack", "pack")],
            units=[UnitRow(*fields) for fields in read_keyed(con, "unit", "unit")],
            live=live,
            counts=counts,
            clients={client: counter for client, (_, counter) in clients.items()},
            last_lease_no=book.lease_no,
            last_settle_no=book.settle_no,
            last_event_no=book.event_no,
            ghosts=book.ghosts,
        )
    return book, loaded, places, clients


def refuse(fault: str | None) -> None:
    if fault:
        raise RowFault(fault)


def read_keyed(con: sqlite3.Connection, table: str, key: str) -> Iterator[tuple[Any, ...]]:
    for row in con.execute(f"SELECT {key}, body, crc FROM {table}"):
        yield form.unseal_keyed(table, *row)


def read_clients(con: sqlite3.Connection) -> Iterator[tuple[int, str, int]]:
    """(number, client, highest counter) of each."""
    for no, body, crc in con.execute("SELECT no, body, crc FROM client"):
        yield (no, *form.unseal("client", no, body, crc))


def count_tasks(con: sqlite3.Connection) -> list[Count]:
    query = (
        "SELECT pack, state, count(*) FROM live GROUP BY pack, state "
        "UNION ALL SELECT pack, state, count(*) FROM final GROUP BY pack, state ORDER BY 1, 2"
    )
    return [Count(*row) for row in con.execute(query)]


# --- proof --------------------------------------------------------------------------------------------------------


def faults(con: sqlite3.Connection) -> Iterator[str]:
    """Everything that is wrong in a ledger, one line a fault; reads all of it. None: every row is what was written."""
    yield from _guarded("pages and indexes", lambda: form.structure_faults(con))
    book = Book(b"", 0, 0, 0, 0, 0, 0, 0, 0)
    try:
        book = form.read_book(con)
    except (RowFault, *form.READ_ERRORS) as exc:
        yield str(exc)
    for table, key in (("meta", "name"), ("pack", "pack"), ("unit", "unit"), ("event", "number"), ("ghost", "number")):
        query = f"SELECT {key}, body, crc FROM {table}"
        yield from _guarded(table, partial(_row_faults, con, query, partial(_unseal_row, table)))
    query = "SELECT fn, body, crc FROM function"
    yield from _guarded("function", lambda: _row_faults(con, query, lambda row: form.unseal_function(*row)))
    yield from _guarded("task", lambda: _task_faults(con, book))


def _unseal_row(table: str, row: tuple[Any, ...]) -> object:
    return form.unseal_keyed(table, *row)


def _guarded(what: str, look: Callable[[], Iterator[str]]) -> Iterator[str]:
    try:
        yield from look()
    except form.READ_ERRORS as exc:
        yield f"{what}: cannot be read to the end ({exc})"


def _row_faults(con: sqlite3.Connection, query: str, read: Callable[[tuple[Any, ...]], object]) -> Iterator[str]:
    for row in _rows(con, query):
        try:
            read(row)
        except RowFault as exc:
            yield str(exc)


def _rows(con: sqlite3.Connection, query: str) -> Iterator[tuple[Any, ...]]:
    """The rows of a table, or an error when there are more than its pages can hold: pages that name each other as
    their children show the same rows for ever."""
    (pages,) = con.execute("PRAGMA page_count").fetchone()
    most = int(pages) * form.PAGE_BYTES // LEAST_ROW_BYTES
    for count, row in enumerate(con.execute(query)):
        if count > most:
            raise sqlite3.DatabaseError("there are more rows than its pages can hold")
        yield row


def _task_faults(con: sqlite3.Connection, book: Book) -> Iterator[str]:
    """Every task, each with its client, and all of them with the highest numbers that the book knows."""
    clients: dict[int, tuple[str, int]] = {}
    for no, body, crc in _rows(con, "SELECT no, body, crc FROM client"):
        try:
            client, counter = form.unseal("client", no, body, crc)
            clients[no] = (client, counter)
        except RowFault as exc:
            yield str(exc)
    tasks = {"live": 0, "final": 0}
    lease_no = settle_no = 0
    for table, joined in (("live", form.JOIN_LIVE), ("final", form.JOIN_FINAL)):
        for row in _rows(con, form.SELECT_TASK + joined):
            tasks[table] += 1
            try:
                fixed, mutable = form.read_task(row)
            except RowFault as exc:
                yield str(exc)
                continue
            client, counter = clients.get(row[0] >> form.COUNTER_BITS, ("", -1))
            if client != fixed.client or counter < fixed.counter:
                yield f"the task {fixed.id} has a client that table client does not know, or knows with lower counters"
            lease_no, settle_no = max(lease_no, mutable.lease_no), max(settle_no, mutable.settle_no)
    query = form.SELECT_TASK + f"{form.JOIN_TASK} WHERE live.num IS NULL AND final.num IS NULL"
    yield from _row_faults(con, query, form.read_task)
    (event_no,) = con.execute("SELECT coalesce(max(number), 0) FROM event").fetchone()
    for what, highest, known in (
        ("lease", lease_no, book.lease_no),
        ("settle", settle_no, book.settle_no),
        ("event", event_no, book.event_no),
    ):
        if highest > known:
            yield f"the highest {what} number is {highest}, but the book knows only {known}"
    fault = form.conservation_fault(book, tasks["live"], tasks["final"])
    if fault:
        yield fault
