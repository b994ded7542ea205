"""What only the SQLite ledger promises: files, locks, processes that die, and disks that are full."""

from __future__ import annotations

import resource
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.ledger_rows import change, done, fixed, ids, mutable, submit, unit
from wolfpack.core.rows import Writes
from wolfpack.den import ledger_open
from wolfpack.den.ledger_files import read_mark
from wolfpack.den.ledger_format import SCHEMA_VERSION
from wolfpack.den.sqlite_ledger import SqliteLedger
from wolfpack.errors import (
    KeeperSuperseded,
    LedgerDamaged,
    LedgerError,
    LedgerHeld,
    LedgerMissing,
    LedgerTooNew,
)

ROOT = Path(__file__).parent.parent


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "timber.db"


@contextmanager
def opened(path: Path) -> Iterator[SqliteLedger]:
    ledger = SqliteLedger(path)
    ledger.open(create=True)
    try:
        yield ledger
    finally:
        ledger.close()


def edit(path: Path, sql: str, *values: object) -> None:
    """Changes a row behind the ledger's back."""
    with closing(sqlite3.connect(path, isolation_level=None)) as con:
        assert con.execute(sql, values).rowcount in (1, -1)


def start(code: str, path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


# --- files --------------------------------------------------------------------------------------------------------


def test_the_folder_of_a_new_ledger_is_made(tmp_path: Path) -> None:
    with opened(tmp_path / ".wolfpack" / "deep" / "timber.db") as ledger:
        assert ledger.commit(submit(1)) == 1


def test_without_create_nothing_at_all_is_made(tmp_path: Path) -> None:
    with pytest.raises(LedgerMissing, match=r"timber\.db"):
        SqliteLedger(tmp_path / "gone" / "timber.db").open(create=False)
    assert [] == list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(LedgerError, match="name another file under `ledger:`"):
        SqliteLedger(tmp_path / "file" / "timber.db").open(create=True)


def test_a_ledger_that_is_a_folder_is_told(path: Path) -> None:
    path.mkdir()
    with pytest.raises(LedgerError):
        SqliteLedger(path).open(create=True)


def test_an_empty_file_is_no_ledger_yet(path: Path) -> None:
    path.touch()
    with pytest.raises(LedgerMissing):
        SqliteLedger(path).open(create=False)
    with opened(path) as ledger:
        assert ledger.commit(submit(1)) == 1


def test_an_interrupted_creation_leaves_nothing_in_the_way(path: Path) -> None:
    path.with_name("timber.db.new").write_bytes(b"half a ledger")
    path.with_name("timber.db.new-wal").write_bytes(b"half a log")
    with opened(path) as ledger:
        assert ledger.commit(submit(1)) == 1


def test_a_ledger_that_was_removed_begins_anew(path: Path) -> None:
    with opened(path) as ledger:
        ledger.commit(submit(1))
    path.unlink()
    with opened(path) as ledger:
        assert ledger.commit(submit(1)) == 1


def test_a_database_of_another_program_is_refused_and_not_touched(path: Path) -> None:
    with closing(sqlite3.connect(path)) as con:
        con.execute("CREATE TABLE addresses (name)")
    before = path.read_bytes()
    with pytest.raises(LedgerDamaged, match="does not say that it is a ledger of Wolf Pack"):
        SqliteLedger(path).open(create=True)
    assert before == path.read_bytes()


def test_a_ledger_of_a_later_version_is_refused_and_not_touched(path: Path) -> None:
    with opened(path):
        pass
    edit(path, f"PRAGMA user_version={SCHEMA_VERSION + 1}")
    before = path.read_bytes()
    with pytest.raises(LedgerTooNew, match="Install that version"):
        SqliteLedger(path).open(create=True)
    assert before == path.read_bytes()


def test_a_table_that_somebody_changed_is_refused(path: Path) -> None:
    with opened(path):
        pass
    edit(path, "ALTER TABLE unit ADD COLUMN colour TEXT")
    with pytest.raises(LedgerDamaged, match=r"description of its tables is wrong \(unit\)"):
        SqliteLedger(path).open(create=False)


# --- rows ---------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["small", "large"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Ledgers are proved whole up to a size; beyond it a final task is proved when it is read."""
    if request.param == "large":
        monkeypatch.setattr(ledger_open, "ROWS_PROVED_BYTES", 0)
        monkeypatch.setattr(ledger_open, "PAGES_PROVED_BYTES", 0)
    return str(request.param)


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE live SET body = replace(body, 'grey', 'gray') WHERE state = 'leased'",
        "UPDATE live SET pack = 'web' WHERE state = 'leased'",
        "UPDATE live SET state = 'queued' WHERE state = 'leased'",
        "UPDATE task SET body = zeroblob(9) WHERE num IN (SELECT num FROM live WHERE state = 'leased')",
        "DELETE FROM live WHERE state = 'leased'",
        "DELETE FROM task WHERE num IN (SELECT num FROM live WHERE state = 'leased')",
        "DELETE FROM final WHERE state = 'done'",
        "UPDATE unit SET body = zeroblob(9)",
        "UPDATE meta SET name = 'other'",
        "UPDATE client SET crc = 1",
        "UPDATE book SET epoch = 9",
        "UPDATE book SET body = zeroblob(9)",
        "DELETE FROM book",
    ],
)
def test_a_row_that_is_not_what_was_written_is_refused(path: Path, size: str, sql: str) -> None:
    with opened(path) as ledger:
        ledger.commit(submit(1, 2, 3))
        ledger.commit(change(mutable(1, state="leased", unit="grey-1", lease_no=1), done(2, 1)))
        ledger.commit(Writes(units=[unit()], meta={"den": "timber"}))
    edit(path, sql)
    with pytest.raises(LedgerDamaged, match="wolfpack ledger salvage"):
        SqliteLedger(path).open(create=False)


def test_a_damaged_final_task_of_a_large_ledger_is_refused_when_it_is_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_open, "ROWS_PROVED_BYTES", 0)
    with opened(path) as ledger:
        ledger.commit(submit(1, 2))
        ledger.commit(change(done(1, 1), done(2, 2)))
    edit(path, "UPDATE final SET body = zeroblob(9) WHERE settle_no = 1")
    with opened(path) as ledger:
        assert ["ada:2"] == ids(ledger.find_tasks(["ada:2"]))
        with pytest.raises(LedgerDamaged, match="table final has a wrong checksum"):
            ledger.find_tasks(["ada:1"])
        with pytest.raises(LedgerDamaged):
            ledger.settled_since("ada", 0, 10)
        with pytest.raises(LedgerDamaged):
            ledger.find_states(None, "done", 10)


@pytest.mark.parametrize("tasks", [1, 63, 64, 65, 1000])
def test_every_row_of_a_batch_arrives_whatever_its_size(path: Path, tasks: int) -> None:
    counters = range(1, tasks + 1)
    with opened(path) as ledger:
        ledger.commit(submit(*counters))
        ledger.commit(change(*(mutable(n, state="leased", lease_no=n) for n in counters)))
        ledger.commit(change(*(done(n, n) for n in counters)))
        found = ledger.settled_since("ada", 0, 2000)
    assert [(fixed(n), done(n, n)) for n in counters] == found


# --- the mark -----------------------------------------------------------------------------------------------------


def test_the_mark_follows_every_commit(path: Path) -> None:
    with opened(path) as ledger:
        for number in (1, 2):
            ledger.commit(submit(number))
            mark = read_mark(path)
            assert mark is not None
            assert (1, number) == (mark.epoch, mark.commit_no)


def test_the_mark_never_runs_ahead_of_a_failed_commit(path: Path) -> None:
    with opened(path) as ledger:
        ledger.commit(submit(1))
        before = read_mark(path)
        with pytest.raises(LedgerError):
            ledger.commit(submit(1))
        assert before == read_mark(path)


def test_an_older_mark_accuses_nobody(path: Path) -> None:
    mark = path.with_name("timber.db.mark")
    with opened(path) as ledger:
        ledger.commit(submit(1))
        older = mark.read_bytes()
        ledger.commit(submit(2))
    mark.write_bytes(older)
    with opened(path) as ledger:
        assert ledger.commit(submit(3)) == 3


def test_the_mark_of_another_ledger_proves_nothing(path: Path, tmp_path: Path) -> None:
    with opened(tmp_path / "other.db") as other:
        for number in range(1, 6):
            other.commit(submit(number))
    with opened(path):
        pass
    (tmp_path / "other.db.mark").replace(tmp_path / "timber.db.mark")
    with opened(path) as ledger:
        assert ledger.commit(submit(1)) == 1


def test_an_older_copy_put_in_the_ledgers_place_is_refused(path: Path) -> None:
    with opened(path) as ledger:
        ledger.commit(submit(1))
    older = path.read_bytes()
    with opened(path) as ledger:
        ledger.commit(submit(2))
        ledger.commit(submit(3))
    path.write_bytes(older)
    with pytest.raises(LedgerDamaged, match="its last 2 commits are lost"):
        SqliteLedger(path).open(create=False)


# --- processes ----------------------------------------------------------------------------------------------------

HOLDER = """
import sys
from wolfpack.den.sqlite_ledger import SqliteLedger
ledger = SqliteLedger(sys.argv[1])
print(ledger.open(create=True).epoch, flush=True)
sys.stdin.read()
"""

WRITER = """
import sys
sys.path.insert(0, ".")
from tests.ledger_rows import submit
from wolfpack.den.sqlite_ledger import SqliteLedger
ledger = SqliteLedger(sys.argv[1])
ledger.open(create=True)
counter = 0
while True:
    counter += 1
    print(ledger.commit(submit(counter)), flush=True)
"""


def test_a_ledger_held_by_another_process_names_it_and_is_free_when_it_dies(path: Path) -> None:
    with start(HOLDER, path) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "1\n"
            with pytest.raises(LedgerHeld, match=f"process {holder.pid} on {socket.gethostname()}"):
                SqliteLedger(path).open(create=True)
        finally:
            holder.kill()
    with opened(path) as ledger:
        assert ledger.commit(submit(1)) == 1


def test_P61_commits_that_were_acknowledged_survive_the_kill_of_the_writer(path: Path) -> None:
    with start(WRITER, path) as writer:
        assert writer.stdout is not None
        try:
            acknowledged = [int(writer.stdout.readline()) for _ in range(30)]
        finally:
            writer.send_signal(signal.SIGKILL)
        acknowledged += map(int, writer.stdout.read().split())
    ledger = SqliteLedger(path)
    loaded = ledger.open(create=False)
    ledger.close()
    assert list(range(1, acknowledged[-1] + 1)) == acknowledged
    assert [f"ada:{n}" for n in range(1, loaded.commit_no + 1)] == ids(
        sorted(loaded.live, key=lambda r: r.fixed.counter)
    )
    assert acknowledged[-1] <= loaded.commit_no


def test_a_ledger_may_be_opened_on_one_thread_and_closed_on_another(path: Path) -> None:
    ledger = SqliteLedger(path)
    worker = threading.Thread(target=lambda: ledger.open(create=True))
    worker.start()
    worker.join()
    assert ledger.commit(submit(1)) == 1
    ledger.close()


def test_a_superseded_keeper_writes_nothing_even_where_locks_do_not_work(path: Path) -> None:
    first = SqliteLedger(path)
    first.open(create=True)
    assert first._lock is not None
    first._lock.release()
    with opened(path) as second:
        with pytest.raises(KeeperSuperseded, match="its epoch is 2, ours was 1"):
            first.commit(submit(1))
        assert second.commit(submit(2)) == 1
        assert [] == second.find_tasks(["ada:1"])
    first.close()


# --- disks --------------------------------------------------------------------------------------------------------


@contextmanager
def files_no_larger_than(size_bytes: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_P62_a_disk_without_room_fails_the_commit_and_only_it(path: Path) -> None:
    with opened(path) as ledger:
        ledger.commit(submit(1))
        with files_no_larger_than(200_000), pytest.raises(LedgerError, match="Look after the disk"):
            ledger.commit(submit(2, args=bytes(1 << 20)))
        assert ledger.commit(submit(2, args=bytes(1 << 20))) == 2
    with opened(path) as ledger:
        assert ["ada:1", "ada:2"] == ids(ledger.find_tasks(["ada:1", "ada:2"]))


def test_P62_a_ledger_opens_once_there_is_room(path: Path) -> None:
    ledger = SqliteLedger(path)
    with files_no_larger_than(10_000), pytest.raises(LedgerError, match="Look after"):
        ledger.open(create=True)
    assert ledger.open(create=True).epoch == 1
    ledger.close()


def test_a_program_that_keeps_the_file_locked_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wolfpack.den.sqlite_ledger.BUSY_TIMEOUT_S", 0.01)
    with opened(path) as ledger, closing(sqlite3.connect(path, isolation_level=None)) as shell:
        shell.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match="End the program that has the file open"):
            ledger.commit(submit(1))
        shell.execute("ROLLBACK")
        assert ledger.commit(submit(1)) == 1


@pytest.mark.parametrize("done", ["deleted", "replaced"])
def test_a_ledger_that_was_removed_while_in_use_takes_no_more_commits(tmp_path: Path, done: str) -> None:
    path = tmp_path / "den.db"
    ledger = SqliteLedger(path)
    ledger.open(create=True)
    ledger.commit(Writes(meta={"a": "1"}))
    path.rename(tmp_path / "away.db")
    if done == "replaced":
        path.write_bytes(b"")
    with pytest.raises(LedgerMissing, match="put it back"):
        ledger.commit(Writes(meta={"a": "2"}))
    if done == "replaced":
        path.unlink()
    (tmp_path / "away.db").rename(path)

    assert ledger.commit(Writes(meta={"a": "3"})) > 0
    ledger.close()
