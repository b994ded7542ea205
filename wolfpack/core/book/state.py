"""The book's memory: tasks, units and packs as mutable records, each able to write its own ledger row."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import msgpack

from wolfpack.core.retry import pinned_needs
from wolfpack.core.rows import PackRow, TaskFixed, TaskMutable, TaskRow, UnitRow
from wolfpack.core.wire import Final
from wolfpack.errors import LedgerDamaged
from wolfpack.model import PRIORITY_MOST, Card, Needs, PackSpec, Readiness, RetryPolicy, TaskState
from wolfpack.plain import card_from_json, card_to_json, pack_from_json, pack_to_json, retry_from_plain

# What reading a row raises that is whole, but that no keeper wrote.
UNREADABLE = (ValueError, TypeError, AttributeError, LookupError, RecursionError)


class Instant(NamedTuple):
    mono: float  # for judging silence; forgives the keeper's own pauses; never stored
    wall: float  # for what is stored and shown


class Options(NamedTuple):
    priority: int
    timeout_s: float | None
    retry: RetryPolicy | None
    is_async: bool
    name: str
    deadline_at: float | None

    @classmethod
    def read(cls, text: str) -> Options:
        """Reads the options of a task.

        Raises:
            ValueError: they are none; heaps and clocks could not bear them.
        """
        return _read_options(text)


@lru_cache(maxsize=4096)
def _read_options(text: str) -> Options:
    plain = _json_of(text)
    if type(plain) is not dict:
        raise ValueError(f"options are a JSON object, not {text!r:.40}")
    retry = plain.get("retry")
    priority = plain.get("priority", 0)
    if type(priority) is not int or abs(priority) > PRIORITY_MOST:
        raise ValueError(f"a priority must be a whole number within {PRIORITY_MOST}, not {priority!r:.40}")
    for name in ("timeout_s", "deadline_at"):
        seconds = plain.get(name)
        if seconds is not None and not (type(seconds) in (int, float) and 0 <= seconds < float("inf")):
            raise ValueError(f"{name} must be seconds, not {seconds!r:.40}")
    policy = retry_from_plain(retry) if retry else None
    if policy is not None and not all(
        0 <= number < float("inf")
        for number in (policy.max_attempts, policy.max_evictions, policy.backoff_s, policy.backoff_max_s)
    ):
        raise ValueError(f"budgets and pauses of a retry must be numbers, at least 0, not {retry!r:.80}")
    return Options(
        priority,
        plain.get("timeout_s"),
        policy,
        bool(plain.get("is_async", False)),
        str(plain.get("name", "")),
        plain.get("deadline_at"),
    )


@lru_cache(maxsize=4096)
def needs_from_json(text: str) -> Needs:
    """Reads needs.

    Raises:
        ValueError: they are none.
    """
    try:
        return Needs.parse(_json_of(text))
    except TypeError as exc:
        raise ValueError(f"needs are tags, or tags and least values, not {text!r:.40}") from exc


def _json_of(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError as exc:
        raise ValueError("it lies too many levels deep") from exc


@lru_cache(maxsize=4096)
def needs_to_json(needs: Needs) -> str:
    return json.dumps(needs.to_plain(), sort_keys=True)


_START: tuple[Any, ...] = (int, int, str, int, str, (int, float), (int, float), str)  # fields of Attempt


def encode_story(story: tuple[tuple[Any, ...], ...]) -> bytes:
    data: bytes = msgpack.packb(story, unicode_errors="surrogatepass")
    return data


def decode_story(data: bytes) -> tuple[tuple[Any, ...], ...]:
    """Attempts as tuples of Attempt's fields, in order: number, lease_no, unit, boot, cause, start, end, text.

    Raises:
        ValueError: this is no story.
    """
    if not data:
        return ()
    try:
        story = tuple(map(tuple, msgpack.unpackb(data, unicode_errors="surrogatepass")))
    except TypeError as exc:
        raise ValueError(f"this is not the story of a task: {exc}") from exc
    for start in story:
        if len(start) != len(_START) or not all(isinstance(*pair) for pair in zip(start, _START, strict=True)):
            raise ValueError(f"this is no start in the story of a task: {start!r:.80}")
    return story


@dataclass(slots=True)
class Lane:
    """The tasks of a pack that share one set of needs: a heap of the runnable ones, and how many are leased."""

    needs: Needs
    heap: list[tuple[tuple[float, float, float], int, Task]] = field(default_factory=list)
    queued: int = 0  # living entries
    leased: int = 0
    service_s: float | None = None  # mean time of a task, as reports tell

    def note_service(self, seconds: float) -> None:
        """Moves the mean a twentieth of the way: one long task does not swing the size of a pack."""
        self.service_s = seconds if self.service_s is None else self.service_s + 0.05 * (seconds - self.service_s)


AGEING_S = 60.0  # one step of priority is worth this much waiting


def order_key(priority: int, deadline_at: float | None, submitted_at: float) -> tuple[float, float, float]:
    """Priority with ageing, then deadline, then age; smaller goes first.

    Each priority step moves a task `AGEING_S` back in time, and times are compared in slots of that length: so a low
    priority is overtaken only by what came at most so many slots later, and never starves. Within a slot the earlier
    deadline goes first, then the older task. The key never changes, so a heap can keep it.
    """
    slot = (submitted_at - priority * AGEING_S) // AGEING_S
    return (slot, deadline_at if deadline_at is not None else float("inf"), submitted_at)


class Task:
    """A live task: its fixed row, and the mutable part."""

    __slots__ = (
        "attempts", "boot", "cancel", "cause", "ended_at", "evictions", "failures", "fixed", "kill", "lane_at",
        "lease_no", "needs", "needs_text", "not_before", "options", "order", "payload", "payload_blob", "pinned",
        "place", "queued_no", "settle_no", "solo", "started_at", "state", "story", "story_data", "term", "text",
        "turn_seq", "unit",
    )  # fmt: skip

    def __init__(self, fixed: TaskFixed, needs: Needs, not_before: float = 0.0) -> None:
        self.fixed = fixed
        self.needs = needs
        self.options = options = Options.read(fixed.options)
        self.order = order_key(options.priority, options.deadline_at, fixed.submitted_at)
        self.state = TaskState.QUEUED
        self.lease_no = 0
        self.term = 0
        self.turn_seq = 0
        self.unit = ""
        self.boot = 0
        self.attempts = 0
        self.failures = 0
        self.evictions = 0
        self.solo = False
        self.pinned = False
        self.cancel = False
        self.kill = False  # memory only: a cancel mark that may kill
        self.not_before = not_before
        self.started_at = 0.0
        self.ended_at = 0.0
        self.cause = ""
        self.text = ""
        self.story: tuple[tuple[Any, ...], ...] = ()  # of each start what `Attempt` has, in the order of its fields
        self.story_data = b""  # the story encoded; empty: not yet, or none
        self.needs_text = ""  # the needs as JSON; empty: not yet
        self.lane_at: Lane  # where it was last queued; set by the queue
        self.payload = b""
        self.payload_blob = ""
        self.settle_no = 0
        self.queued_no = 0  # which heap entry is valid
        self.place = ""  # where in the queue: lane, delayed, special, or nowhere

    @property
    def id(self) -> str:
        return self.fixed.id

    @property
    def lane(self) -> Needs:
        """The needs by which it is queued and counted: a pin is one of them."""
        return pinned_needs(self.needs, True) if self.pinned else self.needs

    def ask_for(self, needs: Needs) -> None:
        self.needs, self.needs_text = needs, ""

    def told(self) -> bytes:
        """The story, encoded once."""
        if self.story and not self.story_data:
            self.story_data = encode_story(self.story)
        return self.story_data

    def row(self) -> TaskMutable:
        if not self.needs_text:
            self.needs_text = needs_to_json(self.needs)
        return TaskMutable._make((
            self.fixed.id, self.state._value_, self.needs_text, self.lease_no, self.term, self.turn_seq, self.unit,
            self.boot, self.attempts, self.failures, self.evictions, self.solo, self.pinned, self.cancel,
            self.not_before, self.started_at, self.ended_at, self.cause, self.text, self.told(), self.payload,
            self.payload_blob, self.settle_no,
        ))  # fmt: skip

    @classmethod
    def from_row(cls, row: TaskRow) -> Task:
        """The task that a row tells of.

        Raises:
            LedgerDamaged: no keeper wrote this row, whole as it is.
        """
        try:
            return cls._from_row(row)
        except UNREADABLE as exc:
            raise LedgerDamaged(
                f"The row of task {row.fixed.id} is whole and says what no task can say ({exc}): something else than "
                "Wolf Pack wrote it. `wolfpack ledger check` tells more."
            ) from exc

    @classmethod
    def _from_row(cls, row: TaskRow) -> Task:
        fixed, mutable = row
        task = cls(fixed, needs_from_json(mutable.needs))
        task.state = TaskState(mutable.state)
        for name in (
            "lease_no", "term", "turn_seq", "unit", "boot", "attempts", "failures", "evictions", "not_before",
            "started_at", "ended_at", "cause", "text", "payload", "payload_blob", "settle_no",
        ):  # fmt: skip
            setattr(task, name, getattr(mutable, name))
        task.solo, task.pinned, task.cancel = bool(mutable.solo), bool(mutable.pinned), bool(mutable.cancel)
        task.story = decode_story(mutable.story)
        return task

    def final(self) -> Final:
        return Final(
            self.fixed.id, self.state._value_, self.cause, self.text, self.payload, self.payload_blob, self.unit,
            self.told(), self.settle_no,
        )  # fmt: skip


def final_of_row(row: TaskRow) -> Final:
    fixed, mutable = row
    return Final(
        fixed.id, mutable.state, mutable.cause, mutable.text, mutable.payload, mutable.payload_blob, mutable.unit,
        mutable.story, mutable.settle_no,
    )  # fmt: skip


@dataclass(slots=True)
class Held:
    """A lease as the keeper watches it."""

    task: Task
    renewed_mono: float  # its grant, or the last message that listed it
    listed: bool = False  # whether its unit ever listed it
    told_mono: float = float("-inf")  # when its unit was last told of a cancel


@dataclass(slots=True)
class Unit:
    card: Card
    boot: int = 0
    readiness: Readiness = Readiness.ASLEEP
    pack: str | None = None
    n: int = 0
    lent_at: float = 0.0
    failed_births: int = 0
    reason: str = ""
    day_state: bytes = b""
    wake_at: float = 0.0
    pid: int = 0
    node: str = ""
    # Memory only:
    held: dict[int, Held] = field(default_factory=dict)
    heard_mono: float = 0.0
    waking_until_mono: float = 0.0
    home_since_mono: float = float("-inf")
    version: int = 0  # of the roster, when this row last changed
    card_version: int = 0
    expires_mono: float = float("-inf")  # none of its leases can expire before

    @property
    def id(self) -> str:
        return self.card.unit

    def row(self) -> UnitRow:
        return UnitRow(
            self.card.unit, card_to_json(self.card), self.boot, self.readiness.value, self.pack, self.n, self.lent_at,
            self.failed_births, self.reason, self.day_state, self.wake_at, self.pid, self.node,
        )  # fmt: skip

    @classmethod
    def from_row(cls, row: UnitRow) -> Unit:
        return cls(
            card_from_json(row.card), row.boot, Readiness(row.readiness), row.pack, row.n, row.lent_at,
            row.failed_births, row.reason, row.day_state, row.wake_at, row.pid, row.node,
        )  # fmt: skip

    @property
    def holds_solo(self) -> bool:
        return any(held.task.solo for held in self.held.values())


@dataclass(slots=True)
class ParkedTurn:
    """A turn that waits for work, for a cancellation, or for its time."""

    seq: int
    since_mono: float
    asks: dict[tuple[str, int], int]  # unit and boot -> leases it can still take
    roster_version: int
    acked: dict[str, list[int]]
    cancels: dict[str, list[tuple[int, bool, str]]]


@dataclass(slots=True)
class Pack:
    spec: PackSpec
    term: int = 0
    alpha: str | None = None
    alpha_boot: int = 0
    turn_seq: int = 0
    draining: bool = False  # dropped: its members leave, nothing new is leased
    dropped_dead: int = 0
    # Memory only:
    closed: bool = False  # drained by hand: no new tasks
    renewed_mono: float = float("-inf")
    crowned_mono: float = float("-inf")
    vacant_of: str | None = None  # who held the term before
    vacant_reason: str = ""
    first_lease: bool = False  # whether the present term handed out its first lease
    parked: ParkedTurn | None = None
    plan: tuple[str, ...] = ()
    asked_mono: float = float("-inf")  # when the keeper last asked somebody to lead
    asked_units: dict[str, float] = field(default_factory=dict)  # whom, and when
    tokens: float = 0.0
    tokens_mono: float = float("-inf")
    unmet: dict[Needs, str] = field(default_factory=dict)

    _told: tuple[PackSpec, str] | None = None  # the spec that was written last, and its text

    @property
    def spec_text(self) -> str:
        """The spec as JSON: it goes out with every turn's answer, and seldom changes."""
        if self._told is None or self._told[0] is not self.spec:
            self._told = (self.spec, pack_to_json(self.spec))
        return self._told[1]

    @property
    def name(self) -> str:
        return self.spec.name

    def row(self) -> PackRow:
        return PackRow(
            self.spec.name, self.spec_text, self.term, self.alpha, self.alpha_boot, self.turn_seq,
            self.draining, self.dropped_dead,
        )  # fmt: skip

    @classmethod
    def from_row(cls, row: PackRow) -> Pack:
        return cls(
            pack_from_json(row.spec), row.term, row.alpha, row.alpha_boot, row.turn_seq, bool(row.draining),
            row.dropped_dead,
        )  # fmt: skip
