"""The default ledger: one SQLite file, nothing to install, durable at every commit.

One connection, used from one thread at a time, write-ahead log, `synchronous=FULL`. Opening takes the lock beside the
file, reads everything through a connection that cannot write, proves it whole, and only then raises the epoch: a
ledger that is refused is left as it was found, its log included (`ledger_open`).

A commit first raises the commit number `WHERE epoch = mine`: if that hits no row, a later keeper is there. What the
ledger keeps in memory beside the file (which tasks are live, the numbers of clients, the book) changes after COMMIT.

Where bytes stand is told by `ledger_format`, how rows are sent by `ledger_statements`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

from wolfpack.core.memory_ledger import GHOSTS_KEPT, newest_first
from wolfpack.core.rows import Count, EventRow, GhostRow, Loaded, TaskFixed, TaskMutable, TaskRow, Writes
from wolfpack.den import ledger_format as form
from wolfpack.den import ledger_statements as send
from wolfpack.den.ledger_files import Lock, Mark, MarkNumbers
from wolfpack.den.ledger_format import Book
from wolfpack.den.ledger_open import count_tasks, create_file, is_there, load
from wolfpack.errors import KeeperSuperseded, LedgerError, LedgerMissing
from wolfpack.model import FINAL_STATES

log = logging.getLogger("wolfpack.ledger")

# How long a statement waits for a program that looks into the file, such as the sqlite3 shell.
BUSY_TIMEOUT_S = 2.0
# The log is folded into the file when it has this many pages (16 MiB).
CHECKPOINT_PAGES = 4000


class SqliteLedger:
    """Implements `wolfpack.core.rows.Ledger` on the file at `path`.

    Args:
        path: the file. `.lock`, `.mark` and SQLite's own `-wal` and `-shm` lie beside it and belong to it: move or
            copy them together, while no den is open.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path).absolute()
        self._pack = form.packer()
        self._identity: tuple[int, int] | None = None  # of the file that was opened
        self._lock: Lock | None = None
        self._mark: Mark | None = None
        self._con: sqlite3.Connection | None = None
        self._book = Book(b"", 0, 0, 0, 0, 0, 0, 0, 0)
        self._live: dict[str, tuple[int, str]] = {}  # id of a live task -> its number, its pack
        self._clients: dict[str, tuple[int, int]] = {}  # client -> (its number, its highest counter)

    # --- opening and closing --------------------------------------------------------------------------------------

    def open(self, *, create: bool) -> Loaded:
        path = self._path
        if self._con is not None:
            raise LedgerError(f"The ledger {path} is open already.")
        with self._explained("opened"):
            if not is_there(path):
                if not create:
                    raise LedgerMissing(
                        f"There is no ledger at {path}. If its disk is not mounted, mount it; "
                        "to begin a new ledger, open the den."
                    )
                path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = Lock(path)
            try:
                if not is_there(path):
                    create_file(path)
                self._book, loaded, self._live, self._clients = load(path)
                self._con = self._connect()
                self._identity = _identity(self._path)
                loaded.epoch = self._take_epoch()
                self._mark = Mark(path, MarkNumbers(self._book.ident, self._book.epoch, self._book.commit_no))
            except BaseException:
                self.close()
                raise
        return loaded

    def close(self) -> None:
        con, self._con = self._con, None
        mark, self._mark = self._mark, None
        lock, self._lock = self._lock, None
        try:
            if con is not None:
                con.close()
        except sqlite3.Error as exc:
            log.warning("The ledger %s did not close cleanly (%s); all commits are safe.", self._path, exc)
        finally:
            if mark is not None:
                mark.close()
            if lock is not None:
                lock.release()

    def _connect(self) -> sqlite3.Connection:
        con = sqlite3.connect(
            self._path,
            timeout=BUSY_TIMEOUT_S,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        con.execute("PRAGMA journal_mode=WAL")
        con.execute("PRAGMA synchronous=FULL")
        con.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
        con.execute("PRAGMA journal_size_limit=67108864")
        con.execute("PRAGMA cache_size=-32000")
        return con

    def _take_epoch(self) -> int:
        book = self._book._replace(epoch=self._book.epoch + 1)
        with self._transaction() as con:
            self._write_book(con, book)
        self._book = book
        return book.epoch

    @property
    def book(self) -> Book:
        """The highest numbers given so far."""
        return self._book

    def adopt(self, book: Book, clients: dict[str, int]) -> None:
        """Takes over the highest numbers of another ledger, whose rows this one holds now (salvage)."""
        known = dict(self._clients)
        for client, counter in clients.items():
            no, highest = known.get(client, (len(known) + 1, -1))
            known[client] = (no, max(highest, counter))
        ours = self._book
        book = ours._replace(
            epoch=max(ours.epoch, book.epoch),
            commit_no=max(ours.commit_no, book.commit_no),
            lease_no=max(ours.lease_no, book.lease_no),
            settle_no=max(ours.settle_no, book.settle_no),
            event_no=max(ours.event_no, book.event_no),
            ghosts=max(ours.ghosts, book.ghosts),
        )
        with self._explained("written"), self._transaction() as con:
            self._write_book(con, book)
            self._write_clients(con, known)
        self._book, self._clients = book, known
        if self._mark is not None:
            self._mark.write(book.epoch, book.commit_no)

    # --- writing --------------------------------------------------------------------------------------------------

    def commit(self, writes: Writes) -> int:
        with self._explained("written"):
            if _identity(self._path) != self._identity:
                raise LedgerMissing(
                    f"The ledger {self._path} was removed, or another file was put in its place, while it was in use. "
                    "Nothing was written; put it back."
                )
            with self._transaction() as con:
                book, born, gone, clients = self._write(con, writes)
            self._book = book
            self._live.update(born)
            for task_id in gone:
                self._live.pop(task_id, None)
            self._clients.update(clients)
            if self._mark is not None:
                self._mark.write(book.epoch, book.commit_no)
        return self._book.commit_no

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        con = self._opened()
        con.execute("BEGIN IMMEDIATE")
        try:
            yield con
            con.execute("COMMIT")
        except BaseException:
            # SQLite has rolled back by itself after some errors; what cannot be rolled back was never committed.
            if con.in_transaction:
                with contextlib.suppress(sqlite3.Error):
                    con.execute("ROLLBACK")
            raise

    def _write_book(self, con: sqlite3.Connection, book: Book) -> None:
        body = self._pack(book)
        hit = con.execute(
            "UPDATE book SET epoch = ?, body = ?, crc = ? WHERE one = 1 AND epoch = ?",
            (book.epoch, body, zlib.crc32(body, form.SEED["book"]), self._book.epoch),
        ).rowcount
        if not hit:
            (epoch,) = con.execute("SELECT epoch FROM book").fetchone()
            raise KeeperSuperseded(
                f"Another keeper opened the ledger {self._path}: its epoch is {epoch}, ours was {self._book.epoch}. "
                "This keeper must end; nothing was written."
            )

    def _write(
        self, con: sqlite3.Connection, writes: Writes
    ) -> tuple[Book, dict[str, tuple[int, str]], list[str], dict[str, tuple[int, int]]]:
        """Sends all rows. Returns what memory must hold once they are committed: the book, tasks that became live,
        tasks that are no longer live, and clients."""
        book = self._next_book(writes)
        self._write_book(con, book)
        fresh, clients = self._write_new(con, writes.new_tasks)
        born, ended = self._write_changed(con, writes.changed_tasks, fresh)
        self._remove(con, writes.removed_tasks)
        send.PUT_UNITS.run(con, self._sealed("unit", writes.units))
        send.PUT_PACKS.run(con, self._sealed("pack", writes.packs))
        for name in writes.removed_packs:
            con.execute("DELETE FROM pack WHERE pack = ?", (name,))
        send.PUT_META.run(con, self._sealed("meta", list(writes.meta.items())))
        send.PUT_EVENTS.run(con, self._sealed("event", writes.events))
        functions: list[Any] = []
        for fn, code in writes.functions:
            functions += (fn, code, form.seal_function(fn, code))
        send.PUT_FUNCTIONS.run(con, functions)
        if writes.ghosts:
            numbered = [(number, *ghost) for number, ghost in enumerate(writes.ghosts, self._book.ghosts + 1)]
            send.PUT_GHOSTS.run(con, self._sealed("ghost", numbered))
            con.execute("DELETE FROM ghost WHERE number <= ?", (book.ghosts - GHOSTS_KEPT,))
        return book, born, [*ended, *writes.removed_tasks], clients

    def _next_book(self, writes: Writes) -> Book:
        book = self._book
        last = book.event_no
        for event in writes.events:
            if event.number <= last:
                raise self._contradiction(f"the event number {event.number} was given before")
            last = event.number
        changed = writes.changed_tasks
        return book._replace(
            commit_no=book.commit_no + 1,
            submitted=book.submitted + len(writes.new_tasks),
            removed=book.removed + len(writes.removed_tasks),
            lease_no=max(book.lease_no, max(map(attrgetter("lease_no"), changed), default=0)),
            settle_no=max(book.settle_no, max(map(attrgetter("settle_no"), changed), default=0)),
            event_no=last,
            ghosts=book.ghosts + len(writes.ghosts),
        )

    def _write_new(
        self, con: sqlite3.Connection, tasks: Sequence[TaskFixed]
    ) -> tuple[dict[str, tuple[int, str]], dict[str, tuple[int, int]]]:
        """Inserts the fixed parts. Returns the new tasks as `_live` keeps them, and the clients that changed."""
        pack, seed, crc32 = self._pack, form.SEED["task"], zlib.crc32
        clients: dict[str, tuple[int, int]] = {}
        fresh: dict[str, tuple[int, str]] = {}
        rows: list[Any] = []
        for task in tasks:
            no, highest = clients.get(task.client) or self._clients.get(task.client) or (0, -1)
            if not no:
                no = len(self._clients) + len(clients.keys() - self._clients.keys()) + 1
            if task.counter > highest or task.client not in clients:
                clients[task.client] = (no, max(highest, task.counter))
            number = form.number_of(no, task.counter)
            key = None if task.key is None else form.key_column(task.pack, task.key)
            body = pack(task)
            rows += (number, key, body, crc32(body, seed))
            fresh[task.id] = (number, task.pack)
        send.PUT_TASKS.run(con, rows)
        self._write_clients(con, clients)
        return fresh, clients

    def _write_clients(self, con: sqlite3.Connection, clients: dict[str, tuple[int, int]]) -> None:
        rows: list[Any] = []
        for client, (no, counter) in clients.items():
            body = self._pack((client, counter))
            rows += (no, body, zlib.crc32(body, form.SEED["client"]))
        send.PUT_CLIENTS.run(con, rows)

    def _write_changed(
        self, con: sqlite3.Connection, tasks: Sequence[TaskMutable], fresh: dict[str, tuple[int, str]]
    ) -> tuple[dict[str, tuple[int, str]], list[str]]:
        """Puts each moving part where its state belongs. Returns the tasks that became live, and the ids of those that
        were live and are final now. Takes out of `fresh` what it has seen."""
        pack, live_seed, final_seed, crc32 = self._pack, form.SEED["live"], form.SEED["final"], zlib.crc32
        born: dict[str, tuple[int, str]] = {}
        ended: list[str] = []
        reopened: list[int] = []
        live_rows: list[Any] = []
        final_rows: list[Any] = []
        for task in tasks:
            is_final = task.state in FINAL_STATES
            place = self._live.get(task.id)
            if place is None:
                place = fresh.pop(task.id, None)
                if place is None:
                    place = self._get_final(con, task.id)
                    reopened.append(place[0])
                if not is_final:
                    born[task.id] = place
            elif is_final:
                ended.append(task.id)
            number, name = place
            body = pack(task)
            if is_final:
                crc = crc32(body, final_seed)
                final_rows += (number, number >> form.COUNTER_BITS, task.settle_no, name, str(task.state), body, crc)
            else:
                live_rows += (number, name, str(task.state), body, crc32(body, live_seed))
        if fresh:
            raise self._contradiction(f"the new task {next(iter(fresh))} comes without its state")
        send.DROP_FINAL.run(con, reopened)
        if send.DROP_LIVE.run(con, [self._live[task_id][0] for task_id in ended]) != len(ended):
            raise self._contradiction("a task that is live in memory is not in the ledger")
        send.PUT_LIVE.run(con, live_rows)
        send.PUT_FINAL.run(con, final_rows)
        return born, ended

    def _remove(self, con: sqlite3.Connection, ids: Sequence[str]) -> None:
        numbers = [number for number in map(self._find_number, ids) if number is not None]
        hit = send.DROP_LIVE.run(con, numbers) + send.DROP_FINAL.run(con, numbers)
        if not len(ids) == hit == send.DROP_TASKS.run(con, numbers):
            raise self._contradiction("a task to be removed is not in the ledger")

    def _sealed(self, table: str, rows: Sequence[tuple[Any, ...]]) -> list[Any]:
        """(first field, body, checksum) of each row, one after the other."""
        pack, seed = self._pack, form.SEED[table]
        params: list[Any] = []
        for row in rows:
            body = pack(row)
            params += (row[0], body, zlib.crc32(body, seed))
        return params

    # --- finding --------------------------------------------------------------------------------------------------

    def find_tasks(self, ids: Sequence[str]) -> list[TaskRow]:
        numbers = [number for number in map(self._find_number, ids) if number is not None]
        wanted = set(ids)
        found = [row for number in numbers for row in self._tasks(f"{form.JOIN_TASK} WHERE task.num = ?", (number,))]
        return [row for row in found if row.fixed.id in wanted]

    def find_keys(self, pack: str, keys: Sequence[str]) -> list[TaskRow]:
        query = f"{form.JOIN_TASK} WHERE task.key = ?"
        return [row for key in keys for row in self._tasks(query, (form.key_column(pack, key),))]

    def find_states(self, pack: str | None, state: str, limit: int) -> list[TaskRow]:
        """Live tasks are sorted after reading all of this state: the keeper has them in memory, tools may wait."""
        if state not in FINAL_STATES:
            where = "WHERE live.state = ?" if pack is None else "WHERE live.state = ? AND live.pack = ?"
            values = (state,) if pack is None else (state, pack)
            return newest_first(self._tasks(f"{form.JOIN_LIVE} {where}", values), limit)
        names = [pack] if pack is not None else sorted({c.pack for c in self.counts() if c.state == state})
        query = f"{form.JOIN_FINAL} WHERE final.pack = ? AND final.state = ? ORDER BY final.settle_no DESC LIMIT ?"
        rows = [row for name in names for row in self._tasks(query, (name, state, max(limit, 0)))]
        return newest_first(rows, limit)

    def settled_since(self, client: str, settle_no: int, limit: int) -> list[TaskRow]:
        self._opened()
        known = self._clients.get(client)
        if known is None:
            return []
        query = f"{form.JOIN_FINAL} WHERE final.client = ? AND final.settle_no > ? ORDER BY final.settle_no LIMIT ?"
        return self._tasks(query, (known[0], settle_no, max(limit, 0)))

    def events_since(self, number: int, limit: int) -> list[EventRow]:
        query = "SELECT number, body, crc FROM event WHERE number > ? ORDER BY number LIMIT ?"
        with self._explained("read"):
            rows = self._opened().execute(query, (number, max(limit, 0))).fetchall()
            return [EventRow(*form.unseal_keyed("event", *row)) for row in rows]

    def ghosts(self, limit: int) -> list[GhostRow]:
        """The newest first."""
        query = "SELECT number, body, crc FROM ghost ORDER BY number DESC LIMIT ?"
        with self._explained("read"):
            rows = self._opened().execute(query, (max(limit, 0),)).fetchall()
            return [GhostRow(*form.unseal_keyed("ghost", *row)[1:]) for row in rows]

    def function(self, fn: str) -> bytes | None:
        with self._explained("read"):
            row = self._opened().execute("SELECT fn, body, crc FROM function WHERE fn = ?", (fn,)).fetchone()
            return None if row is None else form.unseal_function(*row)

    def counts(self) -> list[Count]:
        with self._explained("read"):
            return count_tasks(self._opened())

    def _tasks(self, query: str, values: tuple[Any, ...]) -> list[TaskRow]:
        with self._explained("read"):
            rows = self._opened().execute(form.SELECT_TASK + query, values).fetchall()
            return [form.read_task(row) for row in rows]

    def _find_number(self, task_id: str) -> int | None:
        client, _, counter = task_id.rpartition(":")
        known = self._clients.get(client)
        # A task has one id: "ada:01" is none, though it reads as the same number.
        if known is None or not counter.isdecimal() or len(counter) > 20 or f"{client}:{int(counter)}" != task_id:
            return None
        try:
            return form.number_of(known[0], int(counter))
        except ValueError:
            return None

    def _get_final(self, con: sqlite3.Connection, task_id: str) -> tuple[int, str]:
        """The number and the pack of a final task."""
        row = con.execute("SELECT num, pack FROM final WHERE num = ?", (self._find_number(task_id),)).fetchone()
        if row is None:
            raise self._contradiction(f"the task {task_id} is not in the ledger")
        return row[0], row[1]

    # --- errors ---------------------------------------------------------------------------------------------------

    def _opened(self) -> sqlite3.Connection:
        if self._con is None:
            raise LedgerError(f"The ledger {self._path} is not open.")
        return self._con

    @contextlib.contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, form.RowFault, OSError, ValueError, OverflowError) as exc:
            raise form.explain(self._path, exc, doing) from exc

    def _contradiction(self, what: str) -> LedgerError:
        return LedgerError(
            f"Nothing was written to {self._path}: {what}. This is a bug of Wolf Pack; please report it."
        )


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file this is: a commit into one that has no name any more would be lost with the process."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
