"""The promises of the `Ledger` protocol, kept by every ledger."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ledger_rows import change, done, event, fixed, ghost, ids, mutable, pack, submit, unit
from wolfpack.core.memory_ledger import MemoryDisk, MemoryLedger
from wolfpack.core.rows import Count, Ledger, Loaded, TaskRow, Writes
from wolfpack.den.sqlite_ledger import SqliteLedger
from wolfpack.errors import KeeperSuperseded, LedgerError, LedgerHeld, LedgerMissing


class Store(ABC):
    """Where ledgers of one kind keep their rows: what survives a keeper."""

    def __init__(self) -> None:
        self.opened: list[Ledger] = []

    @abstractmethod
    def ledger(self) -> Ledger: ...

    @abstractmethod
    def lose_lock(self, ledger: Ledger) -> None:
        """The lock is gone while the ledger still believes in it."""

    @abstractmethod
    def break_next_commit(self, ledger: Ledger) -> None: ...

    def open(self) -> tuple[Ledger, Loaded]:
        ledger = self.ledger()
        self.opened.append(ledger)
        return ledger, ledger.open(create=True)

    def reopen(self) -> tuple[Ledger, Loaded]:
        for ledger in self.opened:
            ledger.close()
        return self.open()


class MemoryStore(Store):
    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryDisk()

    def ledger(self) -> MemoryLedger:
        return MemoryLedger(self.disk)

    def lose_lock(self, ledger: Ledger) -> None:
        assert isinstance(ledger, MemoryLedger)
        ledger.kill()

    def break_next_commit(self, ledger: Ledger) -> None:
        assert isinstance(ledger, MemoryLedger)
        ledger.fail_next_commit()


class SqliteStore(Store):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.path = folder / "timber.db"

    def ledger(self) -> SqliteLedger:
        return SqliteLedger(self.path)

    def lose_lock(self, ledger: Ledger) -> None:
        assert isinstance(ledger, SqliteLedger)
        assert ledger._lock is not None
        ledger._lock.release()

    def break_next_commit(self, ledger: Ledger) -> None:
        """The file may not grow any more: what a full disk is to SQLite."""
        assert isinstance(ledger, SqliteLedger)
        assert ledger._con is not None
        ledger._con.execute("PRAGMA max_page_count=1")
        ledger._con.execute("BEGIN")
        ledger._con.execute("ROLLBACK")


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    store: Store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path)
    yield store
    for ledger in store.opened:
        ledger.close()


@pytest.fixture
def ledger(store: Store) -> Ledger:
    return store.open()[0]


# --- opening ------------------------------------------------------------------------------------------------------


def test_a_new_ledger_is_empty_and_at_its_first_epoch(store: Store) -> None:
    assert store.open()[1] == Loaded(
        epoch=1, commit_no=0, meta={}, packs=[], units=[], live=[], counts=[], clients={},
        last_lease_no=0, last_settle_no=0, last_event_no=0, ghosts=0,
    )  # fmt: skip


def test_without_create_a_missing_ledger_is_not_made(store: Store) -> None:
    for _ in range(2):
        with pytest.raises(LedgerMissing):
            store.ledger().open(create=False)


def test_without_create_an_existing_ledger_opens(store: Store) -> None:
    store.open()[0].close()
    ledger = store.ledger()
    assert ledger.open(create=False).epoch == 2
    ledger.close()


def test_every_opening_raises_the_epoch_by_one(store: Store) -> None:
    store.open()
    store.reopen()
    assert store.reopen()[1].epoch == 3


def test_a_held_ledger_is_refused(store: Store) -> None:
    store.open()
    with pytest.raises(LedgerHeld):
        store.ledger().open(create=True)


def test_a_refused_opening_does_not_disturb_the_holder(store: Store, ledger: Ledger) -> None:
    with pytest.raises(LedgerHeld):
        store.ledger().open(create=True)
    assert ledger.commit(submit(1)) == 1


def test_a_second_close_does_nothing(store: Store, ledger: Ledger) -> None:
    ledger.close()
    ledger.close()
    assert store.open()[1].epoch == 2


def test_a_closed_ledger_takes_no_commit(ledger: Ledger) -> None:
    ledger.close()
    with pytest.raises(LedgerError):
        ledger.commit(submit(1))


def test_a_keeper_that_was_superseded_can_write_nothing(store: Store, ledger: Ledger) -> None:
    ledger.commit(submit(1))
    store.lose_lock(ledger)
    later, loaded = store.open()
    with pytest.raises(KeeperSuperseded):
        ledger.commit(submit(2))
    assert loaded.epoch == 2
    assert ["ada:1"] == ids(later.find_tasks(["ada:1", "ada:2"]))


# --- what survives ------------------------------------------------------------------------------------------------


def test_commits_are_numbered_from_one_across_openings(store: Store, ledger: Ledger) -> None:
    assert [ledger.commit(submit(1)), ledger.commit(Writes())] == [1, 2]
    again, loaded = store.reopen()
    assert loaded.commit_no == 2
    assert again.commit(submit(2)) == 3


def test_live_tasks_come_back_as_they_were_written(store: Store, ledger: Ledger) -> None:
    ledger.commit(submit(1, 2))
    leased = mutable(2, state="leased", lease_no=7, term=3, unit="grey-1", solo=True, story=b"\x91\x01", started_at=0.1)
    ledger.commit(change(leased))
    live = sorted(store.reopen()[1].live)
    assert [TaskRow(fixed(1), mutable(1)), TaskRow(fixed(2), leased)] == live


def test_texts_and_bytes_of_users_come_back_unchanged(store: Store, ledger: Ledger) -> None:
    odd = "nul \0, lone surrogate \udc80, \N{WOLF FACE}"
    row = TaskRow(fixed(args=bytes(range(256)), key=odd), mutable(text=odd, payload=b"", not_before=float("inf")))
    ledger.commit(Writes(new_tasks=[row.fixed], changed_tasks=[row.mutable]))
    again, loaded = store.reopen()
    assert [row] == loaded.live
    assert [row] == again.find_keys("computing", [odd])


def test_final_tasks_are_not_loaded_but_found(store: Store, ledger: Ledger) -> None:
    ledger.commit(submit(1, 2))
    ledger.commit(change(done(1, 1)))
    again, loaded = store.reopen()
    assert ["ada:2"] == ids(loaded.live)
    assert [TaskRow(fixed(1), done(1, 1))] == again.find_tasks(["ada:1"])


def test_a_task_may_be_final_at_once(store: Store, ledger: Ledger) -> None:
    ledger.commit(Writes(new_tasks=[fixed(1)], changed_tasks=[mutable(1, state="dead", settle_no=1)]))
    assert [] == store.reopen()[1].live
    assert ["ada:1"] == ids(store.opened[-1].find_tasks(["ada:1"]))


def test_a_replayed_task_is_live_again(store: Store, ledger: Ledger) -> None:
    ledger.commit(submit(1))
    ledger.commit(change(mutable(1, state="dead", settle_no=1)))
    ledger.commit(change(mutable(1, needs="{}")))
    assert [] == ledger.settled_since("ada", 0, 10)
    assert [TaskRow(fixed(1), mutable(1, needs="{}"))] == store.reopen()[1].live


def test_a_replayed_task_settles_under_its_new_number(ledger: Ledger) -> None:
    ledger.commit(submit(1))
    ledger.commit(change(mutable(1, state="dead", settle_no=1)))
    ledger.commit(change(mutable(1)))
    ledger.commit(change(done(1, 2)))
    assert [done(1, 2)] == [row.mutable for row in ledger.settled_since("ada", 0, 10)]


def test_units_packs_and_meta_come_back_as_last_written(store: Store, ledger: Ledger) -> None:
    ledger.commit(Writes(units=[unit(), unit("grey-2")], packs=[pack(), pack("web")], meta={"den": "timber", "a": "b"}))
    ledger.commit(Writes(units=[unit(pack="web", boot=2)], packs=[pack(term=4, alpha=None)], meta={"a": ""}))
    loaded = store.reopen()[1]
    assert [unit(pack="web", boot=2), unit("grey-2")] == sorted(loaded.units)
    assert [pack(term=4, alpha=None), pack("web")] == sorted(loaded.packs)
    assert loaded.meta == {"den": "timber", "a": ""}


def test_a_removed_pack_is_gone(store: Store, ledger: Ledger) -> None:
    ledger.commit(Writes(packs=[pack(), pack("web")]))
    ledger.commit(Writes(removed_packs=["web", "never-there"]))
    assert [pack()] == store.reopen()[1].packs


def test_functions_are_kept_by_hash_and_once(store: Store, ledger: Ledger) -> None:
    ledger.commit(Writes(functions=[("f1", b"code"), ("f1", b"code")]))
    ledger.commit(Writes(functions=[("f1", b"code"), ("f2", b"")]))
    again = store.reopen()[0]
    assert [b"code", b"", None] == [again.function(fn) for fn in ("f1", "f2", "f3")]


def test_highest_numbers_survive_the_removal_of_their_task(store: Store, ledger: Ledger) -> None:
    ledger.commit(submit(4, 9))
    ledger.commit(change(mutable(9, state="dead", lease_no=30, settle_no=5)))
    ledger.commit(Writes(removed_tasks=["ada:9"]))
    loaded = store.reopen()[1]
    assert (30, 5, {"ada": 9}) == (loaded.last_lease_no, loaded.last_settle_no, loaded.clients)


def test_each_client_keeps_its_highest_counter(store: Store, ledger: Ledger) -> None:
    ledger.commit(submit(5, 2))
    ledger.commit(submit(1, client="bob:x"))
    ledger.commit(submit(3))
    assert store.reopen()[1].clients == {"ada": 5, "bob:x": 1}


# --- finding ------------------------------------------------------------------------------------------------------


def test_tasks_are_found_in_the_order_asked_and_unknown_ids_left_out(ledger: Ledger) -> None:
    ledger.commit(submit(1, 2, 3))
    asked = [
        "ada:3",
        "ada:4",
        "nobody:1",
        "ada:01",
        "ada",
        "ada:-1",
        "",
        f"ada:{1 << 70}",
        "ada:" + "9" * 5000,
        "ada:1",
    ]
    assert ["ada:3", "ada:1"] == ids(ledger.find_tasks(asked))


def test_equal_counters_of_two_clients_are_two_tasks(ledger: Ledger) -> None:
    ledger.commit(submit(1))
    ledger.commit(submit(1, client="bob"))
    assert ["bob:1", "ada:1"] == ids(ledger.find_tasks(["bob:1", "ada:1"]))


def test_a_key_is_found_in_its_own_pack_only(ledger: Ledger) -> None:
    ledger.commit(submit(1, key="k"))
    ledger.commit(submit(2, key="k", pack="web"))
    assert ["ada:2"] == ids(ledger.find_keys("web", ["k", "other"]))


def test_the_newest_settled_tasks_of_a_state_come_first(ledger: Ledger) -> None:
    ledger.commit(submit(1, 2, 3, 4))
    ledger.commit(submit(5, pack="web"))
    ledger.commit(change(done(2, 1), done(5, 2), done(1, 3), mutable(3, state="dead", settle_no=4)))
    assert ["ada:1", "ada:5"] == ids(ledger.find_states(None, "done", 2))
    assert ["ada:1", "ada:2"] == ids(ledger.find_states("computing", "done", 10))
    assert ["ada:3"] == ids(ledger.find_states(None, "dead", 10))
    assert [] == ledger.find_states("web", "dead", 10)


def test_the_newest_live_tasks_of_a_state_come_first(ledger: Ledger) -> None:
    ledger.commit(submit(1, 2, 3))
    ledger.commit(submit(1, client="bob", pack="web", submitted_at=1.0))
    ledger.commit(change(mutable(3, state="leased", lease_no=1)))
    assert ["ada:2", "ada:1", "bob:1"] == ids(ledger.find_states(None, "queued", 10))
    assert ["ada:2"] == ids(ledger.find_states("computing", "queued", 1))
    assert ["ada:3"] == ids(ledger.find_states(None, "leased", 10))


def test_settled_tasks_are_read_from_a_cursor_in_their_order(ledger: Ledger) -> None:
    ledger.commit(submit(1, 2, 3, 4))
    ledger.commit(submit(1, client="bob"))
    ledger.commit(change(done(3, 10), done(1, 11), done(1, 12, "bob"), mutable(2, state="cancelled", settle_no=13)))
    assert ["ada:3", "ada:1", "ada:2"] == ids(ledger.settled_since("ada", 0, 10))
    assert ["ada:1"] == ids(ledger.settled_since("ada", 10, 1))
    assert [] == ledger.settled_since("ada", 13, 10)
    assert [] == ledger.settled_since("nobody", 0, 10)


def test_events_are_read_from_a_number_in_their_order(store: Store, ledger: Ledger) -> None:
    ledger.commit(Writes(events=[event(1), event(2)]))
    ledger.commit(Writes(events=[event(3), event(4)]))
    again, loaded = store.reopen()
    assert [event(2), event(3)] == again.events_since(1, 2)
    assert [] == again.events_since(4, 9)
    assert loaded.last_event_no == 4


def test_ghosts_are_all_counted_and_the_last_thousand_kept(store: Store, ledger: Ledger) -> None:
    ledger.commit(Writes(ghosts=[ghost(number) for number in range(600)]))
    ledger.commit(Writes(ghosts=[ghost(number) for number in range(600, 1200)]))
    again, loaded = store.reopen()
    assert loaded.ghosts == 1200
    kept = [row.lease_no for row in again.ghosts(5000)]
    assert list(range(1199, 199, -1)) == kept
    assert [ghost(1199)] == again.ghosts(1)


# --- counting -----------------------------------------------------------------------------------------------------


def test_counts_follow_the_tasks_by_pack_and_state(store: Store, ledger: Ledger) -> None:
    ledger.commit(submit(1, 2, 3))
    ledger.commit(submit(4, 5, pack="web"))
    ledger.commit(change(done(1, 1), mutable(2, state="leased", lease_no=1), mutable(4, state="dead", settle_no=2)))
    ledger.commit(Writes(removed_tasks=["ada:4"]))
    expected = [
        Count("computing", "done", 1),
        Count("computing", "leased", 1),
        Count("computing", "queued", 1),
        Count("web", "queued", 1),
    ]
    assert expected == sorted(ledger.counts())
    assert expected == sorted(store.reopen()[1].counts)


def test_a_removed_task_frees_its_key(ledger: Ledger) -> None:
    ledger.commit(submit(1, key="k"))
    ledger.commit(change(mutable(1, state="dead", settle_no=1)))
    ledger.commit(Writes(removed_tasks=["ada:1"]))
    ledger.commit(submit(2, key="k"))
    assert ["ada:2"] == ids(ledger.find_keys("computing", ["k"]))


# --- all or nothing -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "writes",
    [
        pytest.param(submit(1), id="a task that exists"),
        pytest.param(submit(2, 2), id="a task twice"),
        pytest.param(submit(2, key="k"), id="a key that is taken"),
        pytest.param(change(mutable(7, state="leased")), id="a change of an unknown task"),
        pytest.param(change(mutable(1, "nobody")), id="a change for an unknown client"),
        pytest.param(Writes(new_tasks=[fixed(2)]), id="a task without a state"),
        pytest.param(Writes(removed_tasks=["ada:7"]), id="the removal of an unknown task"),
        pytest.param(Writes(events=[event(3)]), id="an event number that was given"),
    ],
)
def test_a_contradiction_is_refused_and_changes_nothing(store: Store, ledger: Ledger, writes: Writes) -> None:
    ledger.commit(submit(1, key="k"))
    ledger.commit(Writes(events=[event(3)]))
    writes.meta["trace"] = "left"
    with pytest.raises(LedgerError, match="bug of Wolf Pack"):
        ledger.commit(writes)
    assert ledger.commit(submit(3)) == 3
    loaded = store.reopen()[1]
    assert {} == loaded.meta
    assert ["ada:1", "ada:3"] == sorted(ids(loaded.live))
    assert {"ada": 3} == loaded.clients


def test_a_failed_commit_leaves_the_ledger_as_it_was(store: Store, ledger: Ledger) -> None:
    ledger.commit(submit(1))
    store.break_next_commit(ledger)
    large = submit(2, args=bytes(1 << 20))
    large.changed_tasks.append(mutable(1, state="leased", lease_no=5))
    with pytest.raises(LedgerError, match="full"):
        ledger.commit(large)
    again, loaded = store.reopen()
    assert [TaskRow(fixed(1), mutable(1))] == loaded.live
    assert (1, 0, {"ada": 1}) == (loaded.commit_no, loaded.last_lease_no, loaded.clients)
    assert again.commit(large) == 2
