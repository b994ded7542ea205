"""Events: every decision and change of leadership, as typed, frozen records of plain fields.

The ledger stores them with a number, an id and a producer; observers read them in order from a number and miss
nothing. Users publish their own: any frozen dataclass of plain fields.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
from dataclasses import dataclass
from typing import Any

from wolfpack.errors import CallerError


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """The root of Wolf Pack's own events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DenOpened(Event):
    """A keeper opened the ledger for a den that begins, or begins again."""

    den: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DenEnded(Event):
    """The den was closed, or nobody held it any more."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperBorn(Event):
    """The keeper died and a new one goes on from the ledger."""

    epoch: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitRegistered(Event):
    """A card entered the pool, or changed."""

    unit: str
    kind: str
    nature: str
    offers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitWaking(Event):
    """The keeper allotted a boot, and the unit's process is being created."""

    unit: str
    boot: int
    pack: str | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitWoke(Event):
    """A new process said hello: the unit is ready."""

    unit: str
    boot: int
    pack: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitSlept(Event):
    """A unit went to sleep: its card stays, its process and its Ray resources are gone."""

    unit: str
    boot: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitJoined(Event):
    """A unit became a member of a pack."""

    unit: str
    boot: int
    pack: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitLeft(Event):
    """A member left its pack."""

    unit: str
    boot: int
    pack: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitLent(Event):
    """A werewolf left its day job for a pack."""

    unit: str
    boot: int
    pack: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitReturned(Event):
    """A werewolf went back to its day job."""

    unit: str
    boot: int
    pack: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitLost(Event):
    """A unit's process died, or was silent for too long; its leases and its term ended with it."""

    unit: str
    boot: int
    pack: str | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitQuarantined(Event):
    """A unit failed its births in a row and is not woken until a person says so."""

    unit: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AlphaCrowned(Event):
    """A unit was granted the next term of a pack; `previous` led before it."""

    pack: str
    term: int
    unit: str
    boot: int
    previous: str | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AlphaDeposed(Event):
    """A term ended: released, its alpha lost or silent."""

    pack: str
    term: int
    unit: str
    boot: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstLease(Event):
    """The first lease that a term handed out: with AlphaDeposed it gives the length of a failover."""

    pack: str
    term: int
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PackCreated(Event):
    """A pack was made, by pack.yaml or by call."""

    pack: str
    fewest: int
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PackScaled(Event):
    """A decision on the size of a pack, by its alpha or by an operator, with the reason."""

    pack: str
    before: int
    after: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PackDropped(Event):
    """A pack was ended: its queued tasks are cancelled, its members leave."""

    pack: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDied(Event):
    """A task became a dead letter."""

    pack: str
    task_id: str
    cause: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPinned(Event):
    """A task was evicted too often and is now leased only to a unit that nobody can call away."""

    pack: str
    task_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedUnmet(Event):
    """Work waits for something no card offers, or that nobody can serve now."""

    pack: str
    needs: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorActed(Event):
    """A person gave an order to a unit, or to a pack to drain."""

    order: str
    target: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFailed(Event):
    """The alpha's planning raised; it goes on with the next tick."""

    pack: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """An event as the ledger keeps it: its number, when, who published it, and the event itself."""

    number: int
    at: float
    producer: str
    event: Any


@dataclass(frozen=True, slots=True)
class UnknownEvent:
    """An event whose class cannot be imported here; its name and fields are kept."""

    name: str
    fields: dict[str, Any]


OWN_EVENTS: dict[str, type[Event]] = {cls.__name__: cls for cls in Event.__subclasses__()}


def encode(event: Any) -> tuple[str, str]:
    """The event's name and its fields as JSON. Own events go by their class name, users' by `module:qualname`.

    Raises:
        CallerError: it is no frozen dataclass of plain fields.
    """
    params = getattr(type(event), "__dataclass_params__", None)
    if params is None or not params.frozen:
        raise CallerError(
            f"Only instances of frozen dataclasses can be published, not {type(event).__name__}. "
            "Write @dataclass(frozen=True) above the class."
        )
    name = type(event).__name__
    if OWN_EVENTS.get(name) is not type(event):
        name = f"{type(event).__module__}:{type(event).__qualname__}"
    fields = {item.name: getattr(event, item.name) for item in dataclasses.fields(event)}
    try:
        return name, json.dumps(fields, allow_nan=False)
    except (TypeError, ValueError) as exc:
        raise CallerError(f"The event {type(event).__name__} has a field that is not plain data: {exc}.") from exc


def decode(name: str, fields_json: str) -> Any:
    """The event again; JSON lists come back as tuples. What cannot be imported comes back as `UnknownEvent`.

    Whatever stands there, it must not stop its reader: of fields that are no JSON object the text is kept. And only a
    frozen dataclass is ever called: a name in a ledger must not make its reader call anything else.
    """
    try:
        fields = {key: _frozen(value) for key, value in json.loads(fields_json).items()}
    except (ValueError, AttributeError, RecursionError):
        return UnknownEvent(name, {"unreadable": fields_json})
    cls: Any = OWN_EVENTS.get(name)
    try:
        if cls is None:
            module, _, qualname = name.partition(":")
            cls = importlib.import_module(module)
            for part in qualname.split("."):
                cls = getattr(cls, part)
        if not (isinstance(cls, type) and cls.__dataclass_params__.frozen):  # type: ignore[attr-defined]
            return UnknownEvent(name, fields)
        return cls(**fields)
    except (Exception, SystemExit):  # an old or foreign event, or its module, must not stop its reader
        return UnknownEvent(name, fields)


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value
