"""What may stand in pack.yaml: one pydantic model a mapping, one described field a key.

The models check each field by itself: its type, strictly (no text for a number, no true for a one), its range, its
spelling. `schema()` shows them to editors as JSON Schema. What fields mean together is checked in `spec.py`, which also
turns the models into the plain records of `wolfpack.model`; nothing else in Wolf Pack sees a pydantic object.

Defaults are those of the records wherever both have the field, so that a den made in code and one read from a file
behave alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from wolfpack.model import PROFILES, Card, HandsSpec, PackSpec, RetryPolicy

_CARD = Card(unit="", kind="")
_HANDS = HandsSpec()
_PACK = PackSpec(name="")
_RETRY = RetryPolicy()

NAME = r"^[A-Za-z0-9_][A-Za-z0-9_-]{0,63}$"
WORD = r"^[^\s\x00-\x1f]{1,100}$"
OPTION = r"^[A-Za-z_][A-Za-z0-9_]*$"
DOTTED = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$"
REFERENCE = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$"
FOLDER = r"^[^\x00-\x1f]+$"

# What to tell a person whose text does not match.
PATTERN_TEXTS: Mapping[str, str] = {
    NAME: "must be a name of letters, digits, '-' and '_', at most 64, that does not begin with '-'",
    WORD: "must be one word without spaces, such as 'cpu'",
    OPTION: "must be the name of an argument: letters, digits and '_'",
    DOTTED: "must be the name of an exception type, such as 'ConnectionError'",
    REFERENCE: "must be written module:function, such as 'packs.computing.job:measure_sources'",
    FOLDER: "must be a path without control characters",
}

Name = Annotated[str, Field(pattern=NAME)]
Word = Annotated[str, Field(pattern=WORD)]
Reference = Annotated[str, Field(pattern=REFERENCE)]
Seconds = Annotated[float, Field(ge=0)]
SomeSeconds = Annotated[float, Field(gt=0)]
# Bounds that no den meets; they keep every number inside what ledger rows and messages carry.
Whole = Annotated[int, Field(ge=-(10**9), le=10**9)]
AtLeast0 = Annotated[int, Field(ge=0, le=10**9)]
AtLeast1 = Annotated[int, Field(ge=1, le=10**9)]


def _checked_amount(value: Any) -> Any:
    if isinstance(value, (bool, int, float)):
        return value
    raise PydanticCustomError("need", "must be true (a tag) or a least value (a number)")


def _form_of_needs(value: Any) -> str:
    return "as a mapping" if isinstance(value, dict) else "as a list"


NeedsFile = Annotated[
    Annotated[list[Word], Tag("as a list")]
    | Annotated[dict[Word, Annotated[bool | float, BeforeValidator(_checked_amount)]], Tag("as a mapping")],
    Discriminator(_form_of_needs),
]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class RayFile(_Part):
    """Options of the unit's Ray actor, named and meant as in Ray."""

    num_cpus: float | None = Field(
        default=None, ge=0, description="Logical CPUs the unit takes while awake; none: Ray's own."
    )
    num_gpus: float | None = Field(default=None, ge=0, description="Logical GPUs; a part of one is possible below 1.")
    memory: int | None = Field(
        default=None,
        gt=0,
        description="Bytes. Ray places by it; hands that grow beyond it are ended with cause OOM.",
    )
    resources: dict[Word, Annotated[float, Field(ge=0)]] = Field(default={}, description="Custom resources by name.")
    label_selector: dict[Word, str] = Field(default={}, description="Labels a node must have, such as {zone: a}.")
    runtime_env: dict[str, Any] = Field(default={}, description="Ray runtime environment of the unit.")


class HandsFile(_Part):
    """How user code runs in the unit."""

    isolation: Literal["process", "thread"] = Field(
        default="process",
        description="process: in a child process. thread: in the unit, for tasks that use Ray's API.",
    )
    concurrency: AtLeast1 = Field(
        default=_HANDS.concurrency,
        description="So many child processes, or coroutines for `async def` tasks.",
    )
    setup: Reference | None = Field(
        default=_HANDS.setup,
        description="module:function run once per hands; its value is wolfpack.current().state.",
    )
    recycle_after: AtLeast1 | None = Field(
        default=_HANDS.recycle_after,
        description="A child process is replaced after so many tasks; null: never.",
    )
    stall_s: SomeSeconds | None = Field(
        default=_HANDS.stall_s,
        description="Busy without a task that ends or calls progress() for so long, as three other units see it: "
        "what runs ends as TIMEOUT. null: never.",
    )


class UnitFile(_Part):
    """One kind of unit: `count` cards of it lie in the common pool, named kind-0, kind-1 and so on."""

    nature: Literal["wolf", "werewolf"] = Field(
        default="wolf", description="wolf: for pack work alone. werewolf: has a day job and is lent to packs."
    )
    count: Annotated[int, Field(ge=0, le=10_000)] = Field(default=1, description="Units of this kind.")
    offers: list[Word] = Field(default=[], description="Tags that tasks and packs may need, such as [cpu, browser].")
    measures: dict[Word, float] = Field(
        default={},
        description="Numbers of which tasks may ask a minimum, such as {memory_gb: 4}; not used up by a task.",
    )
    awake_min: AtLeast0 = Field(default=_CARD.awake_min, description="Never fewer units of this kind awake.")
    sleep_after_s: Seconds = Field(default=_CARD.sleep_after_s, description="A unit free for so long goes to sleep.")
    lead: Whole = Field(default=_CARD.lead, description="Who leads: the highest lead, then the highest id.")
    can_lead: bool = Field(default=_CARD.can_lead, description="false: never leads a pack.")
    cost_per_h: Annotated[float, Field(ge=0)] = Field(
        default=_CARD.cost_per_h,
        description="Cost of an hour awake, in any currency; the cheaper unit is taken first.",
    )
    ray: RayFile = Field(default=RayFile(), description="Options of the unit's Ray actor.")
    hands: HandsFile = Field(default=HandsFile(), description="Where user code runs, and how much of it at once.")
    day_job: Reference | None = Field(
        default=_CARD.day_job, description="Of a werewolf: module:Class with step, checkpoint and restore."
    )
    grace_s: Seconds = Field(
        default=_CARD.grace_s, description="A howl waits so long for the running step or task to end."
    )
    min_tenure_s: Seconds = Field(default=_CARD.min_tenure_s, description="Neither lent again nor sent home sooner.")
    max_loan_s: SomeSeconds | None = Field(
        default=_CARD.max_loan_s, description="Sent home after so long; null: no limit."
    )


class RateFile(_Part):
    """A limit on how fast tasks start."""

    per_s: Annotated[float, Field(gt=0)] = Field(description="Starts of tasks a second, in the whole pack.")


class RetryFile(_Part):
    """What happens to a task whose attempt failed; `submit(retry=...)` overrides it for one task."""

    max_attempts: AtLeast1 = Field(
        default=_RETRY.max_attempts,
        description="Starts that may end in FAULT, CRASH, OOM, TIMEOUT, or LOST while alone.",
    )
    max_evictions: AtLeast0 = Field(
        default=_RETRY.max_evictions,
        description="Ends as EVICTED without progress; then only a unit that stays may run it.",
    )
    backoff_s: Seconds = Field(
        default=_RETRY.backoff_s,
        description="Pause before the next attempt: random up to backoff_s * 2 ** failures.",
    )
    backoff_max_s: Seconds = Field(default=_RETRY.backoff_max_s, description="No pause is longer.")
    retry_on: list[Annotated[str, Field(pattern=DOTTED)]] = Field(
        default=[], description="Exception types that may be retried; empty: all."
    )
    never_on: list[Annotated[str, Field(pattern=DOTTED)]] = Field(
        default=[], description="Exception types that are never retried."
    )
    on_oom: NeedsFile = Field(
        default={}, description="Needs in addition after an attempt ended in OOM: {memory_gb: 16}."
    )


class PackFile(_Part):
    """One pack: members recruited from the common pool, and the queue they work on."""

    size: Annotated[list[AtLeast0], Field(min_length=2, max_length=2)] = Field(
        description="Fewest and most members, such as [0, 6]."
    )
    needs: NeedsFile = Field(
        default=[],
        description="Needs of members, and of tasks that name none: [cpu] or {cpu: true, memory_gb: 16}.",
    )
    drain_target_s: SomeSeconds = Field(
        default=_PACK.drain_target_s,
        description="The pack grows so that its queue would be empty in this time.",
    )
    queue_max: AtLeast1 | None = Field(
        default=_PACK.queue_max, description="Beyond so many queued tasks submit waits; null: no limit."
    )
    submit_timeout_s: Seconds = Field(
        default=_PACK.submit_timeout_s, description="A submit that waited so long for room raises QueueFull."
    )
    rate: RateFile | None = Field(default=None, description="Limit on starts of tasks, such as {per_s: 5}; null: none.")
    priority: Whole = Field(default=_PACK.priority, description="Of two packs that want a unit the higher one gets it.")
    lendable: bool = Field(default=_PACK.lendable, description="Members may be lent to packs of higher priority.")
    infeasible: Literal["wait", "fail"] = Field(
        default="wait", description="A task with needs that no unit offers waits and says so, or fails."
    )
    retry: RetryFile = Field(default=RetryFile(), description="What happens after a failed attempt.")


class ElectionFile(_Part):
    """How fast leadership moves; the profile sets all times, each of which can be set by itself."""

    profile: Literal["ray", "classic", "fast"] = Field(default="ray", description="Times that fit together.")
    heartbeat_s: SomeSeconds | None = Field(default=None, description="An alpha beats so often.")
    silence_s: SomeSeconds | None = Field(
        default=None,
        description="A member that heard no alpha for so long wants to lead; longer: dead alphas are found later.",
    )
    answer_s: SomeSeconds | None = Field(default=None, description="A pretender waits so long for a higher rank.")
    lease_s: SomeSeconds | None = Field(
        default=None,
        description="A lease nobody renewed for so long returns; longer: frozen units are found later.",
    )


class JobFile(_Part):
    """What `wolfpack run` runs."""

    task: Reference = Field(description="module:function, called as job(pack, **options); it returns a summary.")
    options: dict[Annotated[str, Field(pattern=OPTION)], Any] = Field(
        default={}, description="Keyword arguments of the job."
    )


class DenFile(_Part):
    """A den: its common pool of units, its packs, and where it keeps what must last."""

    model_config = ConfigDict(title="pack.yaml of Wolf Pack")

    den: Name = Field(description="Name of the den: Ray namespace, and name of the ledger's file where none is given.")
    ledger: Annotated[str, Field(pattern=FOLDER)] | None = Field(
        default=None,
        description="sqlite:///file beside this one, sqlite:////absolute/file, or memory:// (gone with the keeper). "
        "null: sqlite:///.wolfpack/<den>.db",
    )
    graphs: Annotated[str, Field(pattern=FOLDER)] | None = Field(
        default=None,
        description="Folder for a picture at each change of leadership, relative to this file; null: none.",
    )
    payload_max_bytes: Annotated[int, Field(gt=0, le=2**40)] = Field(
        default=1 << 30, description="Larger arguments and results are refused by name."
    )
    units: dict[Name, UnitFile] = Field(min_length=1, description="The common pool: one entry a kind of unit.")
    packs: dict[Name, PackFile] = Field(default={}, description="The packs of the den, by name.")
    election: ElectionFile = Field(default=ElectionFile(), description="How fast leadership moves.")
    job: JobFile | None = Field(default=None, description="What `wolfpack run` runs.")


assert set(PROFILES) == {"ray", "classic", "fast"}, "ElectionFile.profile must name every profile"
