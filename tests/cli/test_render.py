"""What people see, as text."""

from __future__ import annotations

from typing import Any

import pytest

from wolfpack.cli.render import (
    Progress,
    cut,
    event_fields,
    event_text,
    health_text,
    seconds_text,
    status_text,
    summary_text,
    table,
)
from wolfpack.cli.tasks import parse_argument, parse_needs
from wolfpack.events import PackScaled, Recorded, UnknownEvent
from wolfpack.model import UnitSeen


def test_a_table_has_numbers_right_and_texts_left() -> None:
    assert "name  tasks\na         7\nbcd      12" == table(("name", "tasks"), [("a", 7), ("bcd", 12)], None)


def test_a_column_without_values_is_left_out() -> None:
    assert "a  c\n1  x" == table(("a", "b", "c"), [(1, None, "x")], None)


def test_a_table_without_rows_is_only_empty() -> None:
    assert "" == table(("a",), [], None)


@pytest.mark.parametrize(("expected", "width"), [("abcdef", None), ("abcdef", 6), ("abc…", 4)])
def test_text_is_cut_to_the_width_of_a_terminal(expected: str, width: int | None) -> None:
    assert expected == cut("abcdef", width)


@pytest.mark.parametrize(("expected", "seconds"), [("4.2 s", 4.2), ("90 s", 90), ("3 min", 180), ("3 h", 3 * 3600)])
def test_seconds_are_told_in_the_unit_that_fits(expected: str, seconds: float) -> None:
    assert expected == seconds_text(seconds)


def test_an_event_tells_its_reason_last() -> None:
    scaled = Recorded(
        number=7, at=0.25, producer="keeper", event=PackScaled(pack="p", before=1, after=3, reason="work")
    )
    text = event_text(scaled, None)
    assert text.startswith("    7 ")
    assert text.endswith(".250 PackScaled      pack=p before=1 after=3  work")


def test_an_event_of_an_unknown_class_keeps_name_and_fields() -> None:
    event = Recorded(number=7, at=0.0, producer="me", event=UnknownEvent("a.b:C", {"x": 1}))
    assert ("a.b:C", {"x": 1}) == (event_fields(event)["name"], event_fields(event)["fields"])


def test_the_status_adds_up_in_words() -> None:
    pack: dict[str, Any] = dict.fromkeys(("queued", "leased", "done", "dead", "cancelled"), 0)
    pack |= {"size": [0, 2], "members": 1, "alpha": "grey-1", "term": 3, "plan": ["nothing to do"]}
    unit = dict.fromkeys(("nature", "role", "pack", "leases", "pid", "offers", "reason"), "x")
    facts = {
        "den": "timber", "address": "h:1", "pid": 7, "started_at": 40.0, "epoch": 2, "submitted": 5, "done": 3,
        "dead": 1, "cancelled": 0, "queued": 1, "leased": 0, "conservation": True, "packs": {"computing": pack},
        "units": [{**unit, "id": "grey-1", "readiness": "awake"}, {**unit, "id": "grey-2", "readiness": "asleep"}],
    }  # fmt: skip
    lines = status_text(facts, 100.0, 80).splitlines()
    assert "den timber, up for 60 s, Ray at h:1, owner process 7, keeper epoch 2" == lines[0]
    assert "tasks: 5 submitted = 3 done + 1 dead + 0 cancelled + 1 queued + 0 leased" == lines[1]
    assert "units: 1 of 2 awake" == lines[2]
    assert "  computing: nothing to do" in lines
    assert "NOT ADD UP" in status_text({**facts, "conservation": False}, 100.0, None)


def test_health_tells_what_how_many_think_of_each_unit_and_who_does_not_answer() -> None:
    def seen(unit: str, status: str, boot: int = 1, **load: int) -> UnitSeen:
        return UnitSeen(unit=unit, boot=boot, status=status, **load)

    views = {
        "grey-2": [seen("grey-2", "alive", leases=1, queued=0, capacity=1, progress=7), seen("grey-10", "suspect")],
        "grey-1": [seen("grey-2", "alive", leases=3, queued=2, capacity=1, progress=5), seen("grey-10", "dead")],
        "grey-3": [seen("grey-2", "dead", boot=0), seen("grey-10", "dead")],
        "grey-10": None,
    }
    lines = [line.split("  ") for line in health_text(views, None).splitlines()]
    assert ["health: 3 views; grey-10 does not answer"] == lines[0]
    assert ["grey-2", "1", "alive (2)", "1", "0", "1", "7"] == [part.strip() for part in lines[2] if part]
    assert "dead (2), suspect (1)" in lines[3]
    assert ["thought", "leases", "progress"] == [line[0].partition(":")[0] for line in lines[4:]]


def test_a_summary_is_told_in_words() -> None:
    summary = {
        "run": "R1", "files": 3, "submitted": 3, "done": 2, "dead": 1, "cancelled": 0, "seconds": 1.5,
        "tasks_per_s": 2.0, "alphas": [{"pack": "p", "term": 1, "unit": "grey-1", "at_s": 0.0}], "failovers_s": [0.5],
        "killed": [{"unit": "grey-1", "pid": 9, "at_s": 1.0}], "units": {"peak": 2, "unit_seconds": 3.0},
        "worst": [{"complexity": 9, "path": "a.py"}], "out": "o.csv", "graphs": ["g/1.svg"], "conservation": True,
        "notes": ["be careful"],
    }  # fmt: skip
    expected = """\
3 files, 3 submitted, 2 done, 1 dead, 0 cancelled in 1.5 s (2 tasks a second)
run: R1
led by: grey-1 in term 1 at 0.0 s
failover: 0.50 s to the next lease
killed: grey-1 (process 9) at 1.0 s
units: 2 at most, 3.0 unit seconds

complexity  path
         9  a.py

out: o.csv
graphs: 1 picture, the last is g/1.svg
every task is accounted for
note: be careful"""
    assert expected == summary_text(summary, None)


@pytest.mark.parametrize(("expected", "summary"), [("", None), ("7", 7), ("a: [1]", {"a": [1]})])
def test_any_summary_can_be_shown(expected: str, summary: Any) -> None:
    assert expected == summary_text(summary, None)


def test_progress_outside_a_terminal_is_a_line_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress()
    for settled in (1, 2, 3, 3):
        progress(settled, 3, "tasks")
    progress.close()
    assert "3/3 100% tasks\n" == capsys.readouterr().err


def test_progress_in_a_terminal_is_one_line_and_notes_stay_above(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    progress = Progress()
    progress(1, 2, "tasks")
    progress.note("Interrupted")
    progress.close()
    line = "██████████░░░░░░░░░░ 1/2  50% tasks"
    assert f"\r{line}\x1b[K\r\x1b[KInterrupted\n{line}\n" == capsys.readouterr().err


@pytest.mark.parametrize(
    ("expected", "text"), [(7, "7"), ({"a": 1}, '{"a": 1}'), ("word", "word"), ("7", '"7"'), (True, "true"), ("", "")]
)
def test_an_argument_is_json_or_else_text(expected: Any, text: str) -> None:
    assert expected == parse_argument(text)


@pytest.mark.parametrize(
    ("expected", "text"),
    [(None, None), (["cpu", "gpu"], "cpu, gpu"), ({"memory_gb": 16}, '{"memory_gb": 16}'), (["cpu"], '["cpu"]')],
)
def test_needs_are_tags_or_json(expected: Any, text: str | None) -> None:
    assert expected == parse_needs(text)
