"""Every error a user can meet, sorted by who must act.

The caller made the mistake (`CallerError`), the task's author did (`TaskError`), the operator must look after the
den (`OperatorError`), or it is a bug of ours (`WolfPackBug`). Each message says what was tried and what to do next.
All of them survive pickling: their arguments are plain strings and numbers, kept in `args`.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class WolfPackError(Exception):
    """The root of every error that Wolf Pack raises on purpose."""


# --- the caller must act ------------------------------------------------------------------------------------------


class CallerError(WolfPackError):
    """The call cannot be carried out as it was made."""


class UnknownName(CallerError, LookupError):
    """A pack, unit, task or job that does not exist; the message lists what does."""


class ConfigError(CallerError, ValueError):
    """pack.yaml says something that cannot be; every fault is listed, each with file, line, column and field."""


class Malformed(CallerError, ValueError):
    """A message, or an argument of a call, has not the shape it must have; nothing of it was used."""


class PayloadNotPicklable(CallerError, TypeError):
    """An argument or function cannot be sent to another process; the message names the object and its origin."""


class PayloadTooLarge(CallerError, ValueError):
    """An argument or a result is larger than `payload_max_bytes` of pack.yaml."""


class QueueFull(CallerError):
    """The pack's `queue_max` was reached and no room came within `submit_timeout_s`."""


class KeyConflict(CallerError, ValueError):
    """A key was used again with other code or other arguments."""


class NeedInfeasible(CallerError):
    """No card of the den offers what the task needs (`infeasible: fail`)."""


class DenClosed(CallerError):
    """The den was closed; open it again to go on with what is in its ledger."""


# --- the task's author must act -----------------------------------------------------------------------------------


class TaskError(WolfPackError):
    """A task ended without a value; `cause` is one of `wolfpack.Cause`, and the text tells the whole story."""

    def __init__(self, text: str, cause: str = "FAULT", task_id: str = "") -> None:
        super().__init__(text, cause, task_id)
        self.cause = cause
        self.task_id = task_id

    def __str__(self) -> str:
        return str(self.args[0])


class TaskFault(TaskError):
    """User code raised something that could not be pickled; its text and traceback are kept here."""


class TaskCrashed(TaskError):
    """The process that ran the task died (CRASH), or ate more memory than its card allows (OOM)."""


class TaskTimeout(TaskError, TimeoutError):
    """The task ran longer than its `timeout_s`."""


class TaskExpired(TaskError):
    """The task's `deadline_s` passed before it was done."""


class TaskLost(TaskError):
    """The unit vanished while the task ran, more often than the task's budget allows."""


class RemoteTraceback(Exception):
    """The traceback of the process that ran the task, as text; it is the `__cause__` of the original exception."""

    def __str__(self) -> str:
        return "\n" + str(self.args[0]) if self.args else ""


class Retry(WolfPackError):
    """Raise this inside a task to ask for one more attempt; it counts against `max_attempts` like any fault.

    Args:
        after_s: seconds to wait before the next attempt; without it the pack's back-off decides.
    """

    def __init__(self, text: str = "the task asked to be tried again", *, after_s: float | None = None) -> None:
        super().__init__(text, after_s)
        self.after_s = after_s

    def __reduce__(self) -> tuple[object, ...]:
        return (_make_retry, (self.args[0], self.after_s))


def _make_retry(text: str, after_s: float | None) -> Retry:
    return Retry(text, after_s=after_s)


# --- the operator must act ----------------------------------------------------------------------------------------


class OperatorError(WolfPackError):
    """The den, its ledger or the machine under it needs a person."""


class LedgerError(OperatorError):
    """The ledger cannot be used; nothing in it was touched."""


class LedgerHeld(LedgerError):
    """Another living den holds this ledger."""


class LedgerDamaged(LedgerError):
    """Bytes of the ledger were cut, zeroed or flipped; `wolfpack ledger salvage` saves what is whole."""


class LedgerTooNew(LedgerError):
    """A later version of Wolf Pack wrote this ledger."""


class LedgerMissing(LedgerError):
    """There is no ledger where one must be (a reborn keeper never creates one)."""


class LedgerUnavailable(LedgerError):
    """The keeper cannot open its ledger now and tries again; the text gives the reason."""


class KeeperBehind(LedgerError):
    """The keeper's ledger lacks commits that this caller has seen; the text says what was lost."""


class KeeperSuperseded(LedgerError):
    """A later keeper took over this ledger (a higher epoch); this one must end."""


class DenUnreachable(OperatorError):
    """The keeper did not answer within the time allowed."""


class RayTrouble(OperatorError):
    """Ray could not be started or joined; the text says what was tried."""


class SetupFailed(OperatorError):
    """The `setup` of a unit's hands raised, or its day job could not be made."""


# --- protocol refusals: replies, not accidents --------------------------------------------------------------------


class Deposed(WolfPackError):
    """A write carried a term that is no longer current; the sender stops being alpha."""

    def __init__(self, text: str, term: int = 0, alpha: str = "") -> None:
        super().__init__(text, term, alpha)
        self.term = term
        self.alpha = alpha

    def __str__(self) -> str:
        return str(self.args[0])


# --- us -----------------------------------------------------------------------------------------------------------


class WolfPackBug(WolfPackError):
    """An invariant of ours is broken; please report it with the text."""


class IllegalTransition(WolfPackBug):
    """A task was asked to make a move that is not in the table of `core/tasks.py`; nothing was changed."""


def unknown_name(what: str, name: str, existing: Iterable[str]) -> UnknownName:
    """Builds the error for a name that does not exist: it lists what exists and offers the nearest match."""
    names = sorted(existing)
    near = get_close_matches(name, names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    listed = ", ".join(names[:30]) + (f" and {len(names) - 30} more" if len(names) > 30 else "") if names else "none"
    return UnknownName(f"There is no {what} named {name!r}.{hint} Existing: {listed}.")


def unknown_task(task_id: str) -> UnknownName:
    """Builds the error for a task that nobody submitted. It lists none: a den has thousands."""
    return UnknownName(
        f"There is no task named {task_id!r} in this den. Ids of tasks look like 3f0c9a7d21e4:17; "
        "whoever submits a task is told its id."
    )
