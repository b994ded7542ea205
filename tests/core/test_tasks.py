"""The table of task states: every pair of state and event, and the diagram in the docs."""

from __future__ import annotations

from pathlib import Path

import pytest

from wolfpack.core.tasks import TRANSITIONS, TaskEvent, diagram, move
from wolfpack.errors import IllegalTransition
from wolfpack.model import FINAL_STATES, TaskState

DOCS = Path(__file__).parents[2] / "docs" / "task-states.md"

LEGAL = [
    ("leased", "queued", "grant"),
    ("done", "leased", "settle_done"),
    ("done", "queued", "settle_done"),
    ("queued", "leased", "retry"),
    ("queued", "leased", "give_back"),
    ("dead", "leased", "bury"),
    ("dead", "queued", "bury"),
    ("cancelled", "queued", "cancel"),
    ("cancelled", "leased", "cancel"),
    ("queued", "dead", "replay"),
]
ILLEGAL = [(s, e) for s in TaskState for e in TaskEvent if (s.value, e.value) not in {(s, e) for _, s, e in LEGAL}]


@pytest.mark.parametrize(("after", "before", "event"), LEGAL)
def test_each_legal_move_leads_where_the_design_says(after: str, before: str, event: str) -> None:
    assert after == move(TaskState(before), TaskEvent(event))


@pytest.mark.parametrize(("state", "event"), ILLEGAL)
def test_each_other_move_raises(state: TaskState, event: TaskEvent) -> None:
    with pytest.raises(IllegalTransition, match=f"{state} cannot {event}"):
        move(state, event)


def test_an_illegal_move_says_what_is_possible() -> None:
    with pytest.raises(IllegalTransition, match="possible from there: replay"):
        move(TaskState.DEAD, TaskEvent.GRANT)


def test_the_table_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        TRANSITIONS[TaskState.DONE, TaskEvent.GRANT] = TaskState.LEASED  # type: ignore[index]


def test_only_a_person_leads_out_of_a_final_state() -> None:
    assert {TaskEvent.REPLAY} == {event for state, event in TRANSITIONS if state in FINAL_STATES}


def test_P67_a_late_value_settles_a_queued_task_and_no_final_one() -> None:
    late = {state for state, event in TRANSITIONS if event is TaskEvent.SETTLE_DONE}
    assert {TaskState.QUEUED, TaskState.LEASED} == late


def test_the_diagram_shows_every_move() -> None:
    drawn = set()
    for line in diagram().splitlines():
        arrow, _, labels = line.strip().partition(": ")
        before, _, after = arrow.partition(" --> ")
        drawn |= {(before, label, after) for label in labels.split(", ") if label}
    drawn.remove(("[*]", "submit", "queued"))
    assert {(s.value, e.value, after.value) for (s, e), after in TRANSITIONS.items()} == drawn


def test_the_diagram_ends_in_each_final_state() -> None:
    assert sorted(FINAL_STATES) == sorted(
        line.split()[0] for line in diagram().splitlines() if line.endswith(" --> [*]")
    )


def test_the_docs_show_the_diagram_of_the_table() -> None:
    fenced = DOCS.read_text(encoding="utf-8").split("```mermaid\n")[1].split("```")[0]
    assert diagram() == fenced


@pytest.mark.parametrize("event", TaskEvent)
def test_the_docs_explain_each_move(event: TaskEvent) -> None:
    assert f"| {event} | " in DOCS.read_text(encoding="utf-8")
