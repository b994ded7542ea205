"""Wolf Pack: elastic worker pools on Ray that elect their own leader, wake when there is work, and lose nothing.

    import wolfpack

    with wolfpack.open() as den:
        future = den.pack().submit(pow, 2, 10)
        print(future.result())

Importing this module is light: Ray, matplotlib, networkx and pydantic are imported when they are first needed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from os import PathLike

    from wolfpack.context import current as current
    from wolfpack.errors import *  # noqa: F403
    from wolfpack.events import *  # noqa: F403
    from wolfpack.executor import PackExecutor as PackExecutor
    from wolfpack.future import Future as Future
    from wolfpack.model import *  # noqa: F403
    from wolfpack.model import DenSpec
    from wolfpack.pack import Den, Pack
    from wolfpack.waiting import as_completed as as_completed
    from wolfpack.waiting import wait as wait

__version__ = "0.1.0"

_ERRORS = (
    "CallerError", "ConfigError", "DenClosed", "DenUnreachable", "Deposed", "IllegalTransition",
    "KeeperBehind", "KeyConflict", "LedgerDamaged", "LedgerError", "LedgerHeld", "LedgerMissing", "LedgerTooNew",
    "LedgerUnavailable", "NeedInfeasible", "OperatorError", "PayloadNotPicklable", "PayloadTooLarge", "QueueFull",
    "RayTrouble", "RemoteTraceback", "Retry", "SetupFailed", "TaskCrashed", "TaskError", "TaskExpired", "TaskFault",
    "TaskLost", "TaskTimeout", "UnknownName", "WolfPackBug", "WolfPackError",
)  # fmt: skip
_EVENTS = (
    "AlphaCrowned", "AlphaDeposed", "DenEnded", "DenOpened", "Event", "FirstLease", "KeeperBorn", "NeedUnmet",
    "OperatorActed", "PackCreated", "PackDropped", "PackScaled", "PlanFailed", "Recorded", "TaskDied", "TaskPinned",
    "UnitJoined", "UnitLeft", "UnitLent", "UnitLost", "UnitQuarantined", "UnitRegistered", "UnitReturned",
    "UnitSlept", "UnitWaking", "UnitWoke", "UnknownEvent",
)  # fmt: skip
_MODEL = (
    "Attempt", "Cause", "Nature", "Needs", "Readiness", "Role", "TaskState", "UnitRecord", "UnitSeen", "natural_key",
)  # fmt: skip
_HOMES = {
    **dict.fromkeys(_ERRORS, "errors"),
    **dict.fromkeys(_EVENTS, "events"),
    **dict.fromkeys(_MODEL, "model"),
    "Den": "pack",
    "Pack": "pack",
    "Future": "future",
    "PackExecutor": "executor",
    "as_completed": "waiting",
    "wait": "waiting",
    "current": "context",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(f"wolfpack.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'wolfpack' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


def open(  # noqa: A001
    path: str | PathLike[str] | DenSpec | None = None,
    *,
    address: str | None = None,
    detached: bool = False,
    **changes: Any,
) -> Den:
    """Opens a den: starts it, or joins it if it is awake.

    Args:
        path: a pack.yaml, or a den made up before; None: a den for this laptop, one wolf a core, one pack named `pack`.
        address: of a Ray cluster; None: RAY_ADDRESS, else a Ray of our own.
        detached: the den stays awake when this process ends.
        changes: other values for `den`, `ledger` or `graphs`.

    Raises:
        ConfigError: the file says something that cannot be; every fault is listed.
        LedgerError: the ledger cannot be used; nothing in it was touched.
        RayTrouble, DenUnreachable: Ray, or the den's keeper, cannot be reached.
    """
    from wolfpack import config
    from wolfpack.model import DenSpec
    from wolfpack.pack import Den

    spec = path if isinstance(path, DenSpec) else config.laptop_spec() if path is None else config.load(path)
    return Den(config.changed(spec, changes), address=address, detached=detached)


def task(**options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Options of a function's tasks, as `Pack.options` takes them; those of the call win.

    @wolfpack.task(needs={"gpu"}, timeout_s=60)
    def train(path): ...
    """
    from wolfpack.call import plain_options

    found = plain_options(None, options)

    def mark(fn: Callable[..., Any]) -> Callable[..., Any]:
        fn._wolfpack_options = found  # type: ignore[attr-defined]
        return fn

    return mark


__all__ = ["Den", "Pack", "open", "task", *_HOMES]
