"""`wolfpack ledger check` and `wolfpack ledger salvage`: what is wrong with a ledger, and saving what is whole.

`check` reads everything and lists every fault. It may look into the ledger of a living den.

`salvage` works on a copy, into which it folds the log page by page (`ledger_log`). A first page that is damaged is
replaced by that of a fresh ledger, whose tables stand on the same pages; a file that was cut is filled up with empty
pages. Then each table is walked row by row, around pages that cannot be read, and every row whose checksum holds is
written into a new ledger. A task is kept only with both its parts: what it was and how far it came. Guessing the second
could run it again after its result was delivered.

What was lost may have been seen by others: leases, terms and boots granted, results delivered, events shown. So after
any loss all numbers jump ahead (`AHEAD`), and nothing that was ever given is given again.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from wolfpack.core.book import Book, Instant
from wolfpack.core.book.state import Task
from wolfpack.core.rows import EventRow, GhostRow, PackRow, TaskFixed, TaskMutable, UnitRow, Writes
from wolfpack.den import ledger_format as form
from wolfpack.den.ledger_files import Lock, MarkNumbers, beside, read_mark
from wolfpack.den.ledger_format import RowFault
from wolfpack.den.ledger_log import apply_log
from wolfpack.den.ledger_open import create_file, faults, is_there, load, reading, refuse_others, size_of
from wolfpack.den.sqlite_ledger import SqliteLedger
from wolfpack.errors import LedgerDamaged, LedgerError, LedgerHeld, LedgerMissing, LedgerTooNew
from wolfpack.model import Timing

# How far numbers jump after a loss: leases, settles and events, of which a den gives many; terms and boots.
AHEAD = 1 << 32
FEW_AHEAD = 1 << 20
# Rows a commit while writing the new ledger.
_BATCH = 500
# Row numbers tried one by one behind an unreadable page, before the steps double.
_NEAR = 1024


# --- check --------------------------------------------------------------------------------------------------------


def check(path: str | os.PathLike[str]) -> list[str]:
    """Every fault of the ledger at `path`, one line each; an empty list says that all of it is whole.

    Raises:
        LedgerMissing: there is none.
        LedgerTooNew: a later version wrote it.
    """
    path = Path(path).absolute()
    found: list[str] = []
    try:
        if not is_there(path):
            raise LedgerMissing(f"There is no ledger at {path}.")
    except LedgerDamaged as exc:
        return [str(exc)]
    except (OSError, ValueError) as exc:
        raise form.explain(path, exc, "read") from exc
    lock: Lock | None = None
    # Only keeps a den from opening meanwhile; one that has it open does not mind a reader.
    with contextlib.suppress(LedgerError):
        lock = Lock(path)
    try:
        mark: MarkNumbers | None = None
        try:
            # Before the ledger: a living den may commit in between, and the mark must not be the younger one.
            mark = read_mark(path)
        except LedgerError as exc:
            found.append(str(exc))
        with reading(path) as con:
            form.check_schema(con, path)
            found += faults(con)
            with contextlib.suppress(RowFault):
                fault = form.mark_fault(form.read_book(con), mark)
                found += [fault] if fault else []
            if not found:
                found += _content_faults(con, path)
    except LedgerTooNew:
        raise
    except (LedgerError, *form.READ_ERRORS, OSError) as exc:
        found.append(str(exc if isinstance(exc, LedgerError) else form.explain(path, exc, "read")))
    finally:
        if lock is not None:
            lock.release()
    return found


def _content_faults(con: sqlite3.Connection, path: Path) -> list[str]:
    """What no keeper would have written: every row is read as a keeper does that goes on from it."""
    found = []
    for row in con.execute(form.SELECT_TASK + form.JOIN_FINAL):
        task = form.read_task(row)
        try:
            Task.from_row(task)
        except LedgerDamaged as exc:
            found.append(str(exc))
    try:
        Book(Timing(), Random(0)).load(Instant(0.0, 0.0), load(path)[1])
    except LedgerDamaged as exc:
        found.append(str(exc))
    return found


# --- salvage ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SalvageReport:
    # Rows in the new ledger, by what they are: tasks, packs, units, functions, events, ghosts, meta.
    kept: dict[str, int]
    # One line each for what is not in it.
    lost: list[str]


def salvage(path: str | os.PathLike[str], out: str | os.PathLike[str]) -> SalvageReport:
    """Writes a new ledger at `out` with everything that is whole in the one at `path`, which stays as it is.

    To go on with the new ledger name it under `ledger:` of pack.yaml; or move the old one *with all files beside it*
    out of the way first: the old log must never lie beside the new file.

    Raises:
        LedgerMissing: there is no ledger at `path`.
        LedgerHeld: a den has it open.
        LedgerTooNew: a later version wrote it.
        LedgerError: there is something at `out`, or it cannot be written.
    """
    path, out = Path(path).absolute(), Path(out).absolute()
    try:
        refuse_others(path)
        if all(size_of(beside(path, suffix)) in (None, 0) for suffix in ("", "-wal")):
            raise LedgerMissing(f"There is nothing to salvage at {path}: the file is missing or empty.")
        for suffix in ("", "-wal"):
            if size_of(beside(out, suffix)) is not None:
                raise LedgerError(f"Salvage writes a new file, but {beside(out, suffix)} exists. Name another one.")
    except (OSError, ValueError) as exc:
        raise form.explain(path, exc, "salvaged") from exc
    lock: Lock | None = None
    try:
        lock = Lock(path)
    except LedgerHeld:
        raise
    except LedgerError:
        lock = None  # a disk that can only be read is a good reason to salvage
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as folder:
            return _salvage(path, out, Path(folder))
    except (*form.READ_ERRORS, OSError, ValueError) as exc:
        raise form.explain(out, exc, "salvaged") from exc
    finally:
        if lock is not None:
            lock.release()


def _salvage(path: Path, out: Path, folder: Path) -> SalvageReport:
    lost: list[str] = []
    mark: MarkNumbers | None = None
    try:
        mark = read_mark(path)
    except LedgerError as exc:
        lost.append(str(exc))
    copy = folder / "copy.db"
    for suffix in ("", "-wal"):
        lost += _copy_readable(beside(path, suffix), beside(copy, suffix))
    if beside(copy, "-wal").exists():
        lost += apply_log(beside(copy, "-wal"), copy)
    lost += _mend_head(copy, folder / "fresh.db")
    with contextlib.closing(sqlite3.connect(copy, isolation_level=None)) as con:
        # A damaged text must not stop the walk; what the texts say is in the bodies too.
        con.text_factory = bytes
        source = _Source(con, lost)
        book = source.book()
        if mark is not None and (book is None or mark.ident == book.ident):
            fault = form.mark_fault(book, mark) if book is not None else None
            lost += [fault] if fault else []
            at_least = form.Book(mark.ident, mark.epoch, mark.commit_no, 0, 0, 0, 0, 0, 0)
            book = book or at_least
            book = book._replace(
                epoch=max(book.epoch, at_least.epoch), commit_no=max(book.commit_no, at_least.commit_no)
            )
        ledger = SqliteLedger(out)
        ledger.open(create=True)
        try:
            kept = _write_all(source, ledger)
            if book is not None and book.submitted - book.removed > kept["tasks"]:
                lost.append(f"{kept['tasks']} of {book.submitted - book.removed} tasks are whole")
            ledger.adopt(_ahead(book or ledger.book, ledger.book) if lost or book is None else book, source.clients)
        finally:
            ledger.close()
    return SalvageReport(kept=kept, lost=lost)


def _ahead(old: form.Book, new: form.Book) -> form.Book:
    """Numbers that nobody has seen yet."""
    return old._replace(
        commit_no=old.commit_no + 1,
        lease_no=max(old.lease_no, new.lease_no) + AHEAD,
        settle_no=max(old.settle_no, new.settle_no) + AHEAD,
        event_no=max(old.event_no, new.event_no) + AHEAD,
    )


def _write_all(source: _Source, ledger: SqliteLedger) -> dict[str, int]:
    """Packs and units come last: after any loss their terms and boots jump ahead."""
    kept = {"meta": 0, "functions": 0, "events": 0, "ghosts": 0, "tasks": 0}
    writes = Writes()
    waiting = 0

    def flush() -> None:
        nonlocal writes, waiting
        if writes:
            ledger.commit(writes)
        writes, waiting = Writes(), 0

    def count(what: str) -> None:
        nonlocal waiting
        kept[what] += 1
        waiting += 1
        if waiting >= _BATCH:
            flush()

    for name, value in source.rows("meta"):
        writes.meta[name] = value
        count("meta")
    for fn, code in source.functions():
        writes.functions.append((fn, code))
        count("functions")
    for fields in source.rows("event"):
        writes.events.append(EventRow(*fields))
        count("events")
    for fields in source.rows("ghost"):
        writes.ghosts.append(GhostRow(*fields[1:]))
        count("ghosts")
    for fixed, mutable in source.tasks():
        writes.new_tasks.append(fixed)
        writes.changed_tasks.append(mutable)
        count("tasks")
    packs = [PackRow(*fields) for fields in source.rows("pack")]
    units = [UnitRow(*fields) for fields in source.rows("unit")]
    if source.lost:
        packs = [pack._replace(term=pack.term + FEW_AHEAD, alpha=None, alpha_boot=0, turn_seq=0) for pack in packs]
        units = [unit._replace(boot=unit.boot + FEW_AHEAD) for unit in units]
    writes.packs, writes.units = packs, units
    flush()
    return {**kept, "packs": len(packs), "units": len(units)}


def _unseal(table: str, number: int, row: tuple[Any, ...]) -> tuple[Any, ...]:
    return form.unseal(table, number, *row)


class _Source:
    """Rows of a damaged ledger, as far as they are whole; what is not goes to `lost`."""

    def __init__(self, con: sqlite3.Connection, lost: list[str]) -> None:
        self._con = con
        self.lost = lost
        self.clients: dict[str, int] = dict(self.rows("client"))

    def book(self) -> form.Book | None:
        for fields in self.rows("book"):
            return form.Book(*fields)
        return None

    def rows(self, table: str) -> Iterator[tuple[Any, ...]]:
        return (fields for _, fields in self._numbered(table, partial(_unseal, table)))

    def functions(self) -> Iterator[tuple[str, bytes]]:
        def read(_: int, row: tuple[Any, ...]) -> tuple[Any, ...]:
            fn = bytes(row[0] or b"").decode("utf-8", "replace")
            return fn, form.unseal_function(fn, *row[1:])

        return ((fn, code) for _, (fn, code) in self._numbered("function", read, "fn, body, crc"))

    def tasks(self) -> Iterator[tuple[TaskFixed, TaskMutable]]:
        """Tasks with both parts whole."""
        seen: set[int] = set()
        for table in ("final", "live"):
            for number, fields in self._numbered(table, partial(_unseal, table)):
                mutable = TaskMutable(*fields)
                if number in seen:
                    self.lost.append(f"task {mutable.id}: its row in table {table} contradicts the one in table final")
                    continue
                seen.add(number)
                fixed = self._fixed(number)
                if fixed is None or fixed.id != mutable.id:
                    self.lost.append(f"task {mutable.id}: its arguments are lost; it was {mutable.state}")
                else:
                    yield fixed, mutable
        for number, fields in self._numbered("task", partial(_unseal, "task")):
            if number not in seen:
                fixed = TaskFixed(*fields)
                self.lost.append(f"task {fixed.id} of pack {fixed.pack}: its state is lost, so it cannot go on")

    def _fixed(self, number: int) -> TaskFixed | None:
        try:
            row = self._con.execute("SELECT body, crc FROM task WHERE num = ?", (number,)).fetchone()
            return None if row is None else TaskFixed(*form.unseal("task", number, *row))
        except (*form.READ_ERRORS, RowFault):
            return None

    def _numbered(
        self, table: str, read: Callable[[int, tuple[Any, ...]], tuple[Any, ...]], columns: str = "body, crc"
    ) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """(row number, fields) of all whole rows, around what cannot be read."""
        last = -1
        while True:
            try:
                for number, *row in self._con.execute(
                    f"SELECT rowid, {columns} FROM {table} WHERE rowid > ? ORDER BY rowid", (last,)
                ):
                    if number <= last:
                        raise sqlite3.DatabaseError("rows are out of order")
                    last = number
                    yield from self._whole(number, tuple(row), read)
                return
            except form.READ_ERRORS as exc:
                found = self._find_readable(table, columns, last)
                if found is None or found[0] > last + 1:
                    until = "the end" if found is None else str(found[0] - 1)
                    self.lost.append(f"table {table}: nothing can be read from row {last + 1} to {until} ({exc})")
                if found is None:
                    return
                last = found[0]
                yield from self._whole(last, found[1:], read)

    def _whole(
        self, number: int, row: tuple[Any, ...], read: Callable[[int, tuple[Any, ...]], tuple[Any, ...]]
    ) -> Iterator[tuple[int, tuple[Any, ...]]]:
        try:
            fields = read(number, row)
        except RowFault as exc:
            self.lost.append(str(exc))
        else:
            yield number, fields

    def _find_readable(self, table: str, columns: str, last: int) -> tuple[Any, ...] | None:
        """The next row after `last` that can be read, its number first; None: there is none.

        Alone, since a query for more loses a row when the one behind it cannot be read. So each call gets on by a row.
        """
        step = 0
        while last + step < 1 << 62:
            try:
                query = f"SELECT rowid, {columns} FROM {table} WHERE rowid > ? ORDER BY rowid LIMIT 1"
                row: tuple[Any, ...] | None = self._con.execute(query, (last + step,)).fetchone()
                if row is None or row[0] > last + step:
                    return row
            except form.READ_ERRORS:
                pass
            step = step + 1 if step < _NEAR else step * 2
        return None


# --- the copy -----------------------------------------------------------------------------------------------------


def _copy_readable(source: Path, target: Path) -> list[str]:
    """Copies a file; blocks that the disk cannot read become zeros and are reported."""
    lost: list[str] = []
    size = size_of(source)
    if size is None:
        return lost
    with source.open("rb", buffering=0) as old, target.open("wb") as new:
        for start in range(0, size, 1 << 20):
            try:
                new.write(os.pread(old.fileno(), 1 << 20, start))
                continue
            except OSError:
                new.seek(start)
            for at in range(start, min(start + (1 << 20), size), form.PAGE_BYTES):
                try:
                    new.write(os.pread(old.fileno(), form.PAGE_BYTES, at))
                except OSError as exc:
                    lost.append(f"{source}: the disk cannot read bytes {at} to {at + form.PAGE_BYTES} ({exc.strerror})")
                    new.write(bytes(form.PAGE_BYTES))
    return lost


def _mend_head(copy: Path, fresh: Path) -> list[str]:
    """Makes the copy a file that SQLite opens: as long as its head says, and with a head."""
    with copy.open("ab") as file:
        size = file.tell()
    with copy.open("r+b") as file:
        pages = int.from_bytes(file.read(32)[28:32], "big")
        if 0 < pages < 1 << 24 and size < pages * form.PAGE_BYTES:
            file.truncate(pages * form.PAGE_BYTES)
    try:
        with reading(copy) as con:
            form.check_schema(con, copy)
            return []
    except LedgerTooNew:
        raise
    except (LedgerDamaged, *form.READ_ERRORS):
        create_file(fresh)
        head = bytearray(fresh.read_bytes()[: form.PAGE_BYTES])
        pages = max(-(-size // form.PAGE_BYTES), 1)
        head[28:32] = pages.to_bytes(4, "big")
        with copy.open("r+b") as file:
            file.write(head)
            file.truncate(pages * form.PAGE_BYTES)
    return ["the first page of the file is damaged; that of a fresh ledger was put in its place"]
