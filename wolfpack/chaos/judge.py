"""Three witnesses against each other: what the client saw, what the ledger holds, and what really ran.

- Lost: a task that was acknowledged and has no end that both client and ledger know, or whose committed result is not
  its own, or comes from a run that never was.
- Committed twice: the story of a task has two attempts that count as done; or the ledger holds the result of another
  lease than the one the client was given; or the ledger has given more settle numbers than tasks have ended.
- Started twice under one lease: a lease lets user code start once.

The witnesses are independent: the client noted the first answer it got, the ledger's file is read after the den ended,
and the record of starts was written by the tasks themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wolfpack.chaos.task import BEGAN, ENDED, Line, Result, answer_to
from wolfpack.model import TaskState


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """How a task ended for the client that submitted it."""

    key: str
    task_id: str
    # None: it never ended.
    state: TaskState | None
    # DONE: what it returned, whatever that is.
    value: Any = None
    # Why there is no end, or what it died of.
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What the ledger holds of a task."""

    state: TaskState
    value: Any = None
    # The leases under which an attempt counts as done.
    done_leases: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    lost: tuple[str, ...] = ()
    double_committed: tuple[str, ...] = ()
    double_started: tuple[str, ...] = ()
    # Starts of user code, and tasks that were started more than once (which is allowed).
    starts: int = 0
    restarted: int = 0


def judge(
    seen: Sequence[Seen], kept: Mapping[str, Kept], lines: Sequence[Line], last_settle_no: int, host: str
) -> Verdict:
    """What is proven to be wrong, each with a sentence.

    Args:
        kept: by task id.
        lines: the record of starts of the tasks that ran on `host`.
        last_settle_no: the highest number that the ledger gave to an end.
    """
    began = Counter((line.key, line.lease_no) for line in lines if line.what == BEGAN)
    ended = {(line.key, line.lease_no) for line in lines if line.what == ENDED}
    lost, double = [], []
    for each in seen:
        entry = kept.get(each.task_id)
        if reason := why_lost(each, entry, ended, host):
            lost.append(f"{each.key} ({each.task_id}): {reason}")
        if entry is not None and (reason := why_double(each, entry)):
            double.append(f"{each.key} ({each.task_id}): {reason}")
    finals = sum(entry.state not in (TaskState.QUEUED, TaskState.LEASED) for entry in kept.values())
    double += [f"the ledger gave settle number {number}, but {finals} tasks ended" for number in
               range(finals + 1, last_settle_no + 1)]  # fmt: skip
    starts = Counter(key for key, _ in began.elements())
    return Verdict(
        lost=tuple(lost),
        double_committed=tuple(double),
        double_started=tuple(f"{key} began {n} times under lease {no}" for (key, no), n in began.items() if n > 1),
        starts=sum(starts.values()),
        restarted=sum(number > 1 for number in starts.values()),
    )


def why_lost(seen: Seen, kept: Kept | None, ended: set[tuple[str, int]], host: str) -> str:
    """Why the work of this task is lost; "" if it is not."""
    if seen.state is None:
        return f"it never ended for its client: {seen.text}"
    if kept is None:
        return f"it ended as {seen.state}, but is not in the ledger"
    if kept.state is not seen.state:
        return f"it ended as {seen.state} for its client, but is {kept.state} in the ledger"
    if seen.state is not TaskState.DONE:
        return ""
    result = as_result(kept.value)
    if result is None or as_result(seen.value) is None:
        return f"its result is none of ours: {seen.value!r:.80}, in the ledger {kept.value!r:.80}"
    if {result.answer, seen.value[0]} != {answer_to(seen.key)}:
        return "its result belongs to another task"
    if result.host == host and (seen.key, result.lease_no) not in ended:
        return f"its result of lease {result.lease_no} comes from a run that left no trace"
    return ""


def why_double(seen: Seen, kept: Kept) -> str:
    """Why this task was committed more than once; "" if it was not."""
    if len(kept.done_leases) > 1:
        return f"it was done under the leases {', '.join(map(str, kept.done_leases))}"
    first, last = as_result(seen.value), as_result(kept.value)
    if first is not None and last is not None and first.lease_no != last.lease_no:
        return f"its client was given the result of lease {first.lease_no}, the ledger holds that of {last.lease_no}"
    if last is not None and kept.done_leases not in ((), (last.lease_no,)):
        return f"the result is of lease {last.lease_no}, but lease {kept.done_leases[0]} counts as done"
    return ""


def as_result(value: Any) -> Result | None:
    """What a checked task returned; None if it is anything else."""
    match value:
        case (str(answer), int(lease_no), str(host)):
            return Result(answer, lease_no, host)
        case _:
            return None
