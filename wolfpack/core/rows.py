"""What the ledger keeps: one record a row, and the set of writes that one commit makes durable.

The keeper's book (`core/book`) holds live rows in memory and changes them there; each commit mirrors the rows that
changed. A ledger knows nothing of the rules: it stores rows, finds them again, and checks that they are whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol


class TaskFixed(NamedTuple):
    """The part of a task that never changes after submit."""

    id: str  # "client:counter"
    pack: str
    client: str
    counter: int
    key: str | None  # unique within the pack
    fn: str  # hash of the function's code
    digest: str  # hash of code and arguments: tells a repeated key from a conflicting one
    args: bytes
    blob: str  # path of large arguments, or ""
    options: str  # JSON: priority, deadline_at, timeout_s, retry policy, is_async, name of the function
    submitted_at: float


class TaskMutable(NamedTuple):
    """The part of a task that moves with its state; written whole at each change."""

    id: str
    state: str
    needs: str  # JSON: needs may grow after OOM or a replay
    lease_no: int  # the latest lease, 0 for none yet: the fence
    term: int  # term and turn that granted it
    turn_seq: int
    unit: str
    boot: int
    attempts: int  # starts of user code
    failures: int  # counted against max_attempts
    evictions: int  # counted against max_evictions
    solo: bool
    pinned: bool
    cancel: bool
    not_before: float  # wall clock; 0: at once
    started_at: float  # of the last attempt; while it waits for `not_before`: since when
    ended_at: float
    cause: str
    text: str
    story: bytes  # msgpack: list of attempts, each a list of Attempt's fields
    payload: bytes  # value, or exception, of a final task
    payload_blob: str
    settle_no: int  # 0 while not final


class TaskRow(NamedTuple):
    fixed: TaskFixed
    mutable: TaskMutable


class UnitRow(NamedTuple):
    unit: str
    card: str  # JSON of the card
    boot: int
    readiness: str
    pack: str | None  # member of this pack; None: free, at home, or asleep
    n: int  # number of the last accepted call of this boot
    lent_at: float  # wall clock, 0 when not on loan
    failed_births: int
    reason: str
    day_state: bytes  # the day job's last checkpoint, pickled by the hands
    wake_at: float  # wall clock; 0: nothing due
    pid: int
    node: str


class PackRow(NamedTuple):
    pack: str
    spec: str  # JSON of the PackSpec
    term: int
    alpha: str | None  # None: the term was released or never granted
    alpha_boot: int
    turn_seq: int  # last accepted seq of this term
    draining: bool
    dropped_dead: int  # dead letters removed by a person; they stay counted as dead


class EventRow(NamedTuple):
    number: int
    at: float
    producer: str
    name: str
    fields: str  # JSON


class GhostRow(NamedTuple):
    """A report that came too late to settle anything."""

    at: float
    lease_no: int
    task_id: str
    unit: str
    boot: int
    cause: str
    reason: str


@dataclass(slots=True)
class Writes:
    """Everything one commit makes durable, all or nothing."""

    new_tasks: list[TaskFixed] = field(default_factory=list)
    changed_tasks: list[TaskMutable] = field(default_factory=list)  # each id at most once
    removed_tasks: list[str] = field(default_factory=list)  # dead letters dropped by a person
    functions: list[tuple[str, bytes]] = field(default_factory=list)
    units: list[UnitRow] = field(default_factory=list)
    packs: list[PackRow] = field(default_factory=list)
    removed_packs: list[str] = field(default_factory=list)
    events: list[EventRow] = field(default_factory=list)
    ghosts: list[GhostRow] = field(default_factory=list)
    meta: dict[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return any(
            (
                self.new_tasks, self.changed_tasks, self.removed_tasks, self.functions, self.units, self.packs,
                self.removed_packs, self.events, self.ghosts, self.meta,
            )
        )  # fmt: skip


class Count(NamedTuple):
    pack: str
    state: str
    tasks: int


@dataclass(slots=True, kw_only=True)
class Loaded:
    """What a keeper needs to go on: all that is alive, and the highest numbers ever given."""

    epoch: int  # already raised by this opening
    commit_no: int
    meta: dict[str, str]
    packs: list[PackRow]
    units: list[UnitRow]
    live: list[TaskRow]  # queued and leased
    counts: list[Count]  # of all tasks by pack and state
    clients: dict[str, int]  # client -> highest counter it ever used
    last_lease_no: int
    last_settle_no: int
    last_event_no: int
    ghosts: int  # how many were ever counted


class Ledger(Protocol):
    """Durable rows. One writer at a time, by epoch; calls come from one thread.

    Every method may raise `LedgerError`; a failed `commit` leaves the ledger as it was before.
    """

    def open(self, *, create: bool) -> Loaded:
        """Takes the lock, checks the rows, raises the epoch by one and loads what is alive.

        Raises:
            LedgerMissing: nothing there and `create` is false.
            LedgerHeld: another living process holds it.
            LedgerDamaged, LedgerTooNew, LedgerError: see their texts; nothing was touched.
        """
        ...

    def commit(self, writes: Writes) -> int:
        """Makes all of it durable in one transaction and returns the number of this commit.

        Raises:
            KeeperSuperseded: a later epoch opened this ledger.
        """
        ...

    def find_tasks(self, ids: Sequence[str]) -> list[TaskRow]: ...

    def find_keys(self, pack: str, keys: Sequence[str]) -> list[TaskRow]: ...

    def find_states(self, pack: str | None, state: str, limit: int) -> list[TaskRow]:
        """The newest tasks in this state, of one pack or of all."""
        ...

    def settled_since(self, client: str, settle_no: int, limit: int) -> list[TaskRow]:
        """Final tasks of one client with a higher settle number, in the order of those numbers."""
        ...

    def events_since(self, number: int, limit: int) -> list[EventRow]: ...

    def ghosts(self, limit: int) -> list[GhostRow]: ...

    def function(self, fn: str) -> bytes | None: ...

    def counts(self) -> list[Count]: ...

    def close(self) -> None:
        """Lets go of the lock; a second call does nothing."""
        ...
