"""The words everybody shares: frozen records of plain fields, and the states they can be in.

Nothing here imports anything heavy, so that the hands of a unit and `import wolfpack` stay light. Times are seconds;
names ending in `_at` are wall-clock seconds since the epoch, since they are stored and shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple


class Nature(StrEnum):
    """What a unit is for."""

    WOLF = "wolf"  # a unit whose purpose is pack work
    WEREWOLF = "werewolf"  # a unit with a day job, lent to packs on a signal


class Readiness(StrEnum):
    """Whether a unit can be asked to work now."""

    ASLEEP = "asleep"  # only the card exists: no process, no Ray resources
    WAKING = "waking"  # the keeper allotted a boot and the actor is being created
    AWAKE = "awake"  # said hello; free, at home or in a pack
    DRAINING = "draining"  # finishes what it holds and takes nothing new
    QUARANTINED = "quarantined"  # its births or its tasks fail at once; probed, else left alone
    GONE = "gone"  # its card was removed


class Role(StrEnum):
    """What a unit is in its pack."""

    FREE = "free"
    MEMBER = "member"
    PRETENDER = "pretender"
    ALPHA = "alpha"


class TaskState(StrEnum):
    """Where a task is between submit and its end; the moves stand in `core/tasks.py`."""

    QUEUED = "queued"
    LEASED = "leased"
    DONE = "done"
    DEAD = "dead"
    CANCELLED = "cancelled"


FINAL_STATES = frozenset({TaskState.DONE, TaskState.DEAD, TaskState.CANCELLED})


class Cause(StrEnum):
    """Why an attempt ended, and who is to blame."""

    DONE = "DONE"
    FAULT = "FAULT"  # user code raised
    CRASH = "CRASH"  # the hands died under it
    OOM = "OOM"  # the hands outgrew the card's memory and were killed by their own unit
    TIMEOUT = "TIMEOUT"  # ran beyond timeout_s
    LOST = "LOST"  # the unit vanished
    EVICTED = "EVICTED"  # recalled, released or put to sleep while it ran
    RETURNED = "RETURNED"  # never started
    CANCELLED = "CANCELLED"
    EXPIRED = "EXPIRED"  # its deadline passed


_DIGITS = re.compile(r"(\d+)")


def natural_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """Sorts names as people do: `grey-2` before `grey-10`."""
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in _DIGITS.split(name) if part)


# --- capability ---------------------------------------------------------------------------------------------------


AMOUNT_MOST = 1e300  # of a measure, either way: a float can hold it


@dataclass(frozen=True, slots=True)
class Offer:
    """What a unit can serve: tags, and measures that tasks may ask a minimum of (not used up by a task)."""

    tags: frozenset[str] = frozenset()
    measures: tuple[tuple[str, float], ...] = ()

    def __str__(self) -> str:
        return ", ".join([*sorted(self.tags), *(f"{name}={value:g}" for name, value in self.measures)]) or "nothing"


@dataclass(frozen=True, slots=True)
class Needs:
    """What a task asks of its unit: tags it must offer, and least values of measures. Hashable: it names a sub-pack."""

    tags: frozenset[str] = frozenset()
    minimums: tuple[tuple[str, float], ...] = ()

    @classmethod
    def parse(cls, value: Needs | str | Iterable[str] | Mapping[str, Any] | None) -> Needs:
        """Reads the forms users write: a tag, a set of tags, or a mapping `{tag: True, measure: minimum}`.

        Raises:
            TypeError: for any other form.
            ValueError: for an empty tag or a minimum that is not a finite number.
        """
        if value is None:
            return cls()
        if isinstance(value, Needs):
            return value
        if isinstance(value, str):
            value = {value: True}
        elif not isinstance(value, Mapping):
            value = dict.fromkeys(value, True)
        tags: set[str] = set()
        minimums: dict[str, float] = {}
        for name, amount in value.items():
            if not isinstance(name, str) or not name.strip():
                raise ValueError(f"a need must be a tag such as 'cpu', not {name!r}")
            if amount is True:
                tags.add(name)
            elif amount is False or amount is None:
                continue
            elif isinstance(amount, (int, float)) and -AMOUNT_MOST <= amount <= AMOUNT_MOST:
                minimums[name] = float(amount)
            else:
                raise ValueError(f"the need {name!r} must be true or a least value (a number), not {amount!r}")
        return cls(frozenset(tags), tuple(sorted(minimums.items())))

    def fits(self, offer: Offer) -> bool:
        """Whether a unit with this offer can serve these needs."""
        if not self.tags <= offer.tags:
            return False
        if not self.minimums:
            return True
        have = dict(offer.measures)
        return all(have.get(name, float("-inf")) >= least for name, least in self.minimums)

    def missing_from(self, offer: Offer) -> tuple[str, ...]:
        """What the offer lacks, each as a short phrase; empty when it fits."""
        have = dict(offer.measures)
        lacking = [f"tag {tag!r}" for tag in sorted(self.tags - offer.tags)]
        for name, least in self.minimums:
            if have.get(name, float("-inf")) < least:
                got = f"{have[name]:g}" if name in have else "none"
                lacking.append(f"{name} of at least {least:g} (has {got})")
        return tuple(lacking)

    def merged(self, other: Needs) -> Needs:
        """Both needs together; of two minimums the larger."""
        minimums = dict(self.minimums)
        for name, least in other.minimums:
            minimums[name] = max(least, minimums.get(name, least))
        return Needs(self.tags | other.tags, tuple(sorted(minimums.items())))

    def to_plain(self) -> dict[str, Any]:
        return {**dict.fromkeys(sorted(self.tags), True), **dict(self.minimums)}

    def __str__(self) -> str:
        return ", ".join([*sorted(self.tags), *(f"{name}>={least:g}" for name, least in self.minimums)]) or "nothing"


# --- cards and packs ----------------------------------------------------------------------------------------------


class Rank(NamedTuple):
    """Who tries first to lead: `lead` of the card, then the unit's id in natural order; the highest wins."""

    lead: int
    key: tuple[tuple[int, int, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HandsSpec:
    # process: a child process runs user code. thread: a thread of the unit does (tasks may use Ray's API).
    isolation: str = "process"
    # That many children, or that many coroutines for `async def` tasks.
    concurrency: int = 1
    # `module:function`, run once per hands in their own process; its value is `wolfpack.current().state`.
    setup: str | None = None
    # A child is replaced after this many tasks; None: never.
    recycle_after: int | None = None
    # What runs without progress for so long, as three other units see it, ends as TIMEOUT; None: never, since a long
    # task that says nothing has no fault (`core/standstill`).
    stall_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """What stays of a unit while it sleeps: enough to create it again."""

    unit: str
    kind: str
    nature: Nature = Nature.WOLF
    offer: Offer = Offer()
    lead: int = 0
    can_lead: bool = True
    cost_per_h: float = 0.0
    # Free for this long: goes to sleep.
    sleep_after_s: float = 10.0
    # Never fewer awake of this kind.
    awake_min: int = 0
    # `module:Class` with step, checkpoint and restore; only of werewolves.
    day_job: str | None = None
    # A howl waits this long for the step, or the running task, to end.
    grace_s: float = 5.0
    # Not lent again, not sent home, sooner.
    min_tenure_s: float = 10.0
    # Sent home after this long; None: no limit.
    max_loan_s: float | None = None
    # Options of the Ray actor: num_cpus, num_gpus, memory, resources, label_selector, runtime_env.
    ray: Mapping[str, Any] = field(default_factory=dict)
    hands: HandsSpec = HandsSpec()

    @property
    def rank(self) -> Rank:
        return Rank(self.lead, natural_key(self.unit))

    @property
    def memory_bytes(self) -> int | None:
        """The resident memory its hands may use (the card's Ray `memory`); None: only the node's own limit."""
        memory = self.ray.get("memory")
        return int(memory) if memory else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    # Starts of user code that end in FAULT, CRASH, OOM, TIMEOUT, or LOST while alone.
    max_attempts: int = 3
    # Ends as EVICTED without progress; then the task is pinned to a unit that is not lendable.
    max_evictions: int = 5
    # Exponential back-off with full jitter: uniform(0, min(backoff_max_s, backoff_s * 2 ** failures)).
    backoff_s: float = 0.2
    backoff_max_s: float = 30.0
    # Names of exception types; empty: every fault may be retried.
    retry_on: tuple[str, ...] = ()
    never_on: tuple[str, ...] = ()
    # Needs that an attempt after OOM asks in addition.
    on_oom: Needs = Needs()


@dataclass(frozen=True, slots=True, kw_only=True)
class PackSpec:
    name: str
    # Fewest and most members.
    fewest: int = 0
    most: int = 1
    # Needs of tasks that name none, and of members.
    needs: Needs = Needs()
    # The queue should be empty in this time.
    drain_target_s: float = 2.0
    # Beyond it submit waits, or raises QueueFull after submit_timeout_s; None: no limit.
    queue_max: int | None = None
    submit_timeout_s: float = 60.0
    # Starts of tasks a second; None: no limit.
    rate_per_s: float | None = None
    priority: int = 0
    # Members count as werewolves for packs of higher priority.
    lendable: bool = False
    # A need nobody offers: `wait` (and say so), or `fail`.
    infeasible: str = "wait"
    retry: RetryPolicy = RetryPolicy()


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The timing profile of a den. The rows of DESIGN's table; all in seconds but the counts and factors.

    heartbeat_s: how often an alpha beats. silence_s: a member that heard no alpha for so long pretends, and an alpha
    unanswered for so long hands out nothing; raising it finds frozen alphas later. answer_s: how long a pretender waits
    for a higher rank. lease_s: a lease nobody renewed for so long returns; raising it finds frozen units later.

    Membership: probe_s: each unit probes one other so often. ack_s: no answer for so long, and `helpers` others are
    asked to probe it too. gossip_s, fan_out: news goes to so many units so often. suspicion_alpha, suspicion_beta: how
    long a suspect may defend itself, at least and at most (`core/suspicion.py` has the formulas). sync_s: how often two
    units compare their whole views.
    """

    name: str = "ray"
    heartbeat_s: float = 0.25
    silence_s: float = 1.0
    answer_s: float = 0.3
    lease_s: float = 5.0
    probe_s: float = 0.5
    ack_s: float = 0.2
    helpers: int = 3
    gossip_s: float = 0.2
    fan_out: int = 3
    suspicion_alpha: float = 2.0
    suspicion_beta: float = 6.0
    sync_s: float = 10.0


PROFILES: Mapping[str, Timing] = {
    "ray": Timing(),
    "classic": Timing(
        name="classic", heartbeat_s=1.0, silence_s=2.0, answer_s=2.0, lease_s=10.0, probe_s=1.0, ack_s=0.5,
        suspicion_alpha=5.0, sync_s=30.0,
    ),
    "fast": Timing(
        name="fast", heartbeat_s=0.05, silence_s=0.15, answer_s=0.06, lease_s=0.5, probe_s=0.1, ack_s=0.05,
        gossip_s=0.05, sync_s=2.0,
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    task: str  # module:function, called as job(pack, **options) -> summary
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DenSpec:
    """One den, as pack.yaml describes it, with every default filled in and every path made absolute."""

    den: str
    ledger: str  # sqlite:////absolute/path or memory://
    graphs: str | None = None
    payload_max_bytes: int = 1 << 30
    cards: tuple[Card, ...] = ()
    packs: tuple[PackSpec, ...] = ()
    timing: Timing = Timing()
    job: JobSpec | None = None
    # The folder of pack.yaml: importable in CLI, units and hands.
    folder: str | None = None


PRIORITY_MOST = 1_000_000  # either way

# --- tasks --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """What a submit may say beside the function and its arguments. None: the pack's default."""

    needs: Needs | None = None
    key: str | None = None
    priority: int = 0
    deadline_s: float | None = None
    delay_s: float = 0.0
    timeout_s: float | None = None
    retry: RetryPolicy | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One start of user code, as `Future.attempts` shows it."""

    number: int
    lease_no: int
    unit: str
    boot: int
    cause: Cause
    started_at: float
    ended_at: float
    text: str = ""


class Job(NamedTuple):
    """What a unit needs to run one task: a lease with its payload. Travels alpha -> unit -> hands."""

    lease_no: int
    task_id: str
    fn: str  # hash of the function's code
    args: bytes  # cloudpickle of (args, kwargs); empty when blob is set
    blob: str  # path of a large payload, or ""
    key: str  # "" where the task has none
    attempt: int  # 1 for the first start
    timeout_s: float | None
    is_async: bool
    term: int


class Report(NamedTuple):
    """How one lease ended. A unit keeps it until it is acknowledged."""

    lease_no: int
    task_id: str
    cause: str  # of Cause
    started: bool  # whether user code was started under this lease
    started_at: float
    ended_at: float
    # DONE: the pickled value. FAULT: msgpack of [pickled exception or b"", traceback text]. Else empty.
    payload: bytes = b""
    blob: str = ""  # path of a large payload, or ""
    text: str = ""  # one sentence for a person
    kinds: tuple[str, ...] = ()  # FAULT: names of the exception's classes, most derived first
    retry_after_s: float | None = None  # from wolfpack.Retry
    progressed: bool = False  # EVICTED: the task had called progress()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitSeen:
    """What one unit thinks of another, as `den.view_of()` shows it. It advises: `den.units()` tells what is true."""

    unit: str
    boot: int
    # alive, suspect (did not answer, may still defend itself), left (said goodbye), dead.
    status: str
    # What the unit said of itself, up to some seconds ago; None: nothing yet, or it does not live.
    leases: int | None = None  # in hand
    queued: int | None = None  # of these, not started
    capacity: int | None = None  # how many it runs at once
    progress: int | None = None  # rises whenever a task ends or calls `progress()`
    # Three others saw it busy without progress for its `stall_s`.
    stalled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitRecord:
    """One unit, as `den.units()` shows it."""

    id: str
    kind: str
    pid: int | None
    node: str | None
    nature: Nature
    readiness: Readiness
    pack: str | None
    role: Role
    boot: int
    leases: int
    offers: str = ""
    reason: str = ""
