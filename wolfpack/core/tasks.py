"""The states of a task and the moves between them: one literal table, and the diagram drawn from it.

A move is a pair (state, event); the table names the state after it, and what the table does not name is illegal.
`move` looks a pair up and changes nothing: whoever keeps the task writes the new state down. Why a lease ended, what it
costs and which event follows is decided in `core/retry.py`; this file knows only what is possible.

Three rules that the table alone does not tell:

- Cancelling a leased task is a mark, not a move. Its unit is told, and when the lease ends the task moves by CANCEL,
  unless the report says DONE: then it was faster than the cancel and moves by SETTLE_DONE. It is never queued again.
- A report counts only if it carries the task's latest lease number. `queued -> done` is such a report that came late:
  the lease was given up, nobody else was granted the task since, so its result is as good as any.
- done, dead and cancelled are final for reports: later ones are ghosts, counted and not obeyed. Only a person's REPLAY
  leads out of dead.

Delay and back-off are no states: they are the `not_before` of a queued task.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from wolfpack.errors import IllegalTransition
from wolfpack.model import FINAL_STATES, TaskState


class TaskEvent(StrEnum):
    GRANT = "grant"  # a unit was given a lease
    SETTLE_DONE = "settle_done"  # a current report brought the value
    RETRY = "retry"  # a counted failure with budget left; not before its back-off
    GIVE_BACK = "give_back"  # evicted, lost or returned: not the task's fault
    BURY = "bury"  # budget spent, deadline passed, or a need nobody can serve
    CANCEL = "cancel"  # before the start, or at the end of a lease that was marked
    REPLAY = "replay"  # a person gave a dead letter a new budget


TRANSITIONS: Mapping[tuple[TaskState, TaskEvent], TaskState] = MappingProxyType(
    {
        (TaskState.QUEUED, TaskEvent.GRANT): TaskState.LEASED,
        (TaskState.QUEUED, TaskEvent.SETTLE_DONE): TaskState.DONE,
        (TaskState.QUEUED, TaskEvent.BURY): TaskState.DEAD,
        (TaskState.QUEUED, TaskEvent.CANCEL): TaskState.CANCELLED,
        (TaskState.LEASED, TaskEvent.SETTLE_DONE): TaskState.DONE,
        (TaskState.LEASED, TaskEvent.RETRY): TaskState.QUEUED,
        (TaskState.LEASED, TaskEvent.GIVE_BACK): TaskState.QUEUED,
        (TaskState.LEASED, TaskEvent.BURY): TaskState.DEAD,
        (TaskState.LEASED, TaskEvent.CANCEL): TaskState.CANCELLED,
        (TaskState.DEAD, TaskEvent.REPLAY): TaskState.QUEUED,
    }
)


def move(state: TaskState, event: TaskEvent) -> TaskState:
    """The state after `event`.

    Raises:
        IllegalTransition: the table has no such move; nothing was changed.
    """
    after = TRANSITIONS.get((state, event))
    if after is None:
        possible = ", ".join(sorted(e for s, e in TRANSITIONS if s == state)) or "none"
        raise IllegalTransition(f"A task that is {state} cannot {event}; possible from there: {possible}.")
    return after


def diagram() -> str:
    """The table as a mermaid state diagram; moves between the same two states share an arrow."""
    arrows: dict[tuple[TaskState, TaskState], list[str]] = {}
    for (before, event), after in TRANSITIONS.items():
        arrows.setdefault((before, after), []).append(event)
    lines = ["stateDiagram-v2", f"    [*] --> {TaskState.QUEUED}: submit"]
    lines += [f"    {before} --> {after}: {', '.join(events)}" for (before, after), events in arrows.items()]
    lines += [f"    {state} --> [*]" for state in TaskState if state in FINAL_STATES]
    return "\n".join(lines) + "\n"
