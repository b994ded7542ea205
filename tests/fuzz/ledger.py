"""Doors for ledger files: bytes that were spoiled, and rows that are whole but that no keeper wrote."""

from __future__ import annotations

import random
import shutil
import sqlite3
import tempfile
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any

import msgpack

from tests.fuzz.fuzzer import spoil_bytes, spoil_value
from tests.ledger_rows import change, done, event, fixed, ghost, mutable, pack, submit, unit
from wolfpack.core.book import Book, Instant
from wolfpack.core.rows import TaskRow, Writes
from wolfpack.den import ledger_format as form
from wolfpack.den.ledger_check import check, salvage
from wolfpack.den.ledger_events import read_events
from wolfpack.den.sqlite_ledger import SqliteLedger
from wolfpack.errors import LedgerDamaged, LedgerError
from wolfpack.model import Timing

TASKS = 30
FILES = ("", "-wal", "-shm", ".mark", ".lock")
_SHM = Path("/dev/shm")  # many small files, none of which must last


def truth() -> dict[str, TaskRow]:
    """What the ledger says of each task."""
    rows = {}
    for counter in range(1, TASKS + 1):
        part = fixed(counter, key=f"key-{counter}", args=bytes([counter]) * 200)
        moving = (done(counter, counter, lease_no=counter), mutable(counter, state="leased", lease_no=counter),
                  mutable(counter))[counter % 3]  # fmt: skip
        rows[part.id] = TaskRow(part, moving)
    return rows


def fill(ledger: SqliteLedger) -> None:
    rows = truth().values()
    ledger.commit(
        Writes(
            packs=[pack()], units=[unit("grey-1"), unit("grey-2")], functions=[("f" * 8, b"code")],
            meta={"described": "{}"}, events=[event(1), event(2)], ghosts=[ghost(5)],
        )
    )  # fmt: skip
    ledger.commit(Writes(new_tasks=[row.fixed for row in rows], changed_tasks=[_new(row) for row in rows]))
    ledger.commit(change(*(row.mutable for row in rows if row.mutable.state != "queued")))
    ledger.commit(submit(1, client="bob"))


def _new(row: TaskRow) -> Any:
    return mutable(row.fixed.counter)


class LedgerFiles:
    """A ledger that was closed, and one whose keeper was killed, in a folder of their own."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(
            prefix="wolfpack-fuzz-", dir=_SHM if _SHM.is_dir() else None, ignore_cleanup_errors=True
        )
        home = Path(self._folder.name)
        ledger = SqliteLedger(home / "closed.db")
        ledger.open(create=True)
        fill(ledger)
        ledger.close()
        ledger = SqliteLedger(home / "living.db")
        ledger.open(create=True)
        fill(ledger)
        self.files = {}
        for name, source in (("closed", "closed.db"), ("killed", "living.db")):
            files = {suffix: home / f"{source}{suffix}" for suffix in FILES}
            self.files[name] = {suffix: path.read_bytes() for suffix, path in files.items() if path.exists()}
        ledger.close()
        self.home = home / "tried"

    def lay_out(self, files: dict[str, bytes]) -> Path:
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.mkdir()
        for suffix, data in files.items():
            (self.home / f"timber.db{suffix}").write_bytes(data)
        return self.home / "timber.db"

    def close(self) -> None:
        self._folder.cleanup()


class LedgerBytes(LedgerFiles):
    """Files cut, zeroed, spliced and flipped: opened only if no row is other than it was written."""

    name = "ledger bytes"
    refusals = (LedgerError,)

    def make(self, rng: random.Random) -> tuple[dict[str, bytes], bool]:
        files = dict(self.files[rng.choice(("closed", "killed"))])
        for suffix in rng.sample(sorted(files), rng.choice((1, 1, 1, 2))):
            data, other = files[suffix], rng.choice(list(self.files["killed"].values()))
            match rng.randrange(8):
                case 0:
                    del files[suffix]
                case 1:
                    files[suffix] = rng.randbytes(rng.choice((1, 100, 4096, 20_000)))
                case 2:
                    files[suffix] = bytes(len(data))
                case 3:
                    page = rng.randrange(max(1, len(data) // form.PAGE_BYTES)) * form.PAGE_BYTES
                    files[suffix] = data[:page] + spoil_bytes(rng, data[page : page + 4096]) + data[page + 4096 :]
                case _:
                    files[suffix] = spoil_bytes(rng, data, other)
        if rng.random() < 0.1:
            files["-journal"] = rng.choice(
                (rng.randbytes(600), b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + rng.randbytes(1000))
            )
        return files, rng.random() < 0.15

    def attempt(self, given: tuple[dict[str, bytes], bool]) -> None:
        files, to_salvage = given
        path = self.lay_out(files)
        before = {each.name: each.read_bytes() for each in self.home.iterdir()}
        refused: LedgerError | None = None
        faults: list[str] = []
        try:
            faults = check(path)
        except LedgerError as exc:
            refused = exc
        if to_salvage:
            self._salvage(path)
        scratch = {"timber.db.lock", "timber.db-shm"}
        after = {each.name: each.read_bytes() for each in self.home.iterdir()}
        assert {n: d for n, d in before.items() if n not in scratch} == {
            n: d for n, d in after.items() if n not in scratch and not n.startswith("saved")
        }, "looking changed it"
        ledger = SqliteLedger(path)
        try:
            loaded = ledger.open(create=False)
        except LedgerError as exc:
            refused = exc
        else:
            refused = None
            self._must_be_true(ledger)
            Book(Timing(), random.Random(1)).load(Instant(0.0, 0.0), loaded)
        finally:
            ledger.close()
        if refused is not None:
            raise refused
        assert not faults, faults

    def _must_be_true(self, ledger: SqliteLedger) -> None:
        rows = truth()
        found = {row.fixed.id: row for row in ledger.find_tasks(list(rows))}
        if not found and ledger.book.commit_no == 0:
            return  # an empty file, without log or mark: a ledger that never was
        if ledger.book.commit_no >= 3:
            assert rows == found
        else:  # commits that nothing proves lost: what is there is as it was at some moment
            assert all(row.fixed == rows[task_id].fixed for task_id, row in found.items())

    def _salvage(self, path: Path) -> None:
        out = path.with_name("saved.db")
        try:
            salvage(path, out)
        except LedgerError:
            return
        assert check(out) == []
        rows = truth()
        ledger = SqliteLedger(out)
        try:
            ledger.open(create=False)
            for row in ledger.find_tasks(list(rows)):
                assert row.fixed == rows[row.fixed.id].fixed
        finally:
            ledger.close()


class LedgerRows(LedgerFiles):
    """Rows with right checksums that say anything: a keeper goes on from them, or the ledger is refused."""

    name = "ledger rows"
    refusals = (LedgerError,)

    def make(self, rng: random.Random) -> tuple[tuple[str, int, bytes, bool], ...]:
        return tuple(self._make_one(rng) for _ in range(rng.choice((1, 1, 2))))

    def _make_one(self, rng: random.Random) -> tuple[str, int, bytes, bool]:
        """Table, which row, its new body, and whether what SQL sees is set to fit the body."""
        table = rng.choice(("book", "meta", "client", "pack", "unit", "task", "live", "final", "event", "ghost"))
        number = rng.randrange(40)
        body = self._bodies(table)
        good = body[number % len(body)]
        fields = msgpack.unpackb(good, use_list=False, unicode_errors="surrogatepass")
        if rng.random() < 0.85:
            try:
                data = form.packer()(spoil_value(rng, fields))
            except (ValueError, OverflowError, TypeError):
                data = spoil_bytes(rng, good)
        else:
            data = spoil_bytes(rng, good)
        return table, number % len(body), data, rng.random() < 0.7

    def _bodies(self, table: str) -> list[bytes]:
        with closing(sqlite3.connect(self.home.with_name("closed.db"))) as con:
            return [row[0] for row in con.execute(f"SELECT body FROM {table} ORDER BY rowid")]

    def attempt(self, given: tuple[tuple[str, int, bytes, bool], ...]) -> None:
        path = self.lay_out({suffix: data for suffix, data in self.files["closed"].items() if suffix != ".mark"})
        with closing(sqlite3.connect(path)) as con, con:
            for table, number, body, fits in given:
                con.text_factory = bytes
                (rowid,) = con.execute(f"SELECT rowid FROM {table} LIMIT 1 OFFSET ?", (number,)).fetchone()
                crc = zlib.crc32(body, form.SEED[table])
                con.execute(f"UPDATE {table} SET body = ?, crc = ? WHERE rowid = ?", (body, crc, rowid))
                if fits:
                    _fit_columns(con, table, rowid, body)
        faults = check(path)
        ledger = SqliteLedger(path)
        try:
            loaded = ledger.open(create=False)
            book = Book(Timing(), random.Random(1))
            book.load(Instant(0.0, 2000.0), loaded)
            for seconds in (1.0, 100.0):  # its clocks and heaps bear it
                book.tick(Instant(seconds, 2000.0 + seconds))
            book.journal.commit_no = ledger.commit(book.journal.take())
            for row in ledger.find_states(None, "done", 100):
                book.why(Instant(200.0, 3000.0), row.fixed.id, row)
            read_events(path)
        except LedgerError:
            assert faults or _is_held_twice(given)
            raise
        finally:
            ledger.close()
        salvage(path, path.with_name("saved.db"))
        if faults:
            raise LedgerDamaged("; ".join(faults))


def _is_held_twice(given: tuple[tuple[str, int, bytes, bool], ...]) -> bool:
    return len(given) > 1


def _fit_columns(con: sqlite3.Connection, table: str, rowid: int, body: bytes) -> None:
    """Sets the columns that repeat a field, as whoever wrote the body would have."""
    try:
        fields = msgpack.unpackb(body, use_list=False, unicode_errors="surrogatepass")
        match table:
            case "book":
                con.execute("UPDATE book SET epoch = ?", (fields[1],))
            case "meta" | "pack" | "unit":
                column = {"meta": "name"}.get(table, table)
                con.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (fields[0], rowid))
            case "event" | "ghost":
                con.execute(f"UPDATE {table} SET number = ? WHERE rowid = ?", (fields[0], rowid))
            case "live":
                con.execute("UPDATE live SET state = ? WHERE rowid = ?", (fields[1], rowid))
            case "final":
                con.execute("UPDATE final SET state = ?, settle_no = ? WHERE rowid = ?", (fields[1], fields[-1], rowid))
    except Exception:  # what no column takes
        pass
