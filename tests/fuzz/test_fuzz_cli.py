"""Words of any kind: one message, and a code that says who must act."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.support import call, write_pack
from tests.cli.test_offline import ledger_with_events
from tests.fuzz.cli import CommandLine
from tests.fuzz.fuzzer import campaign
from wolfpack.cli.record import read_record, record_path
from wolfpack.cli.render import clock, event_text, printable
from wolfpack.core.shapes import check_events
from wolfpack.errors import Malformed
from wolfpack.events import Recorded, UnknownEvent, decode
from wolfpack.model import DenSpec

INPUTS = 60


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    write_pack(tmp_path)
    return tmp_path


def test_any_words_are_carried_out_or_refused_with_one_message() -> None:
    door = CommandLine()
    try:
        tally = campaign(door, 1, inputs=INPUTS)
    finally:
        door.close()
    print(tally)
    assert not tally.failures, tally.told()
    assert tally.refused + tally.accepted == INPUTS


@pytest.mark.parametrize("name", ["x" * 300, "\udcff", "folder", "pipe", "link"])
@pytest.mark.parametrize("words", [("ledger", "check"), ("check",)])
def test_a_path_that_is_no_file_is_told(home: Path, words: tuple[str, ...], name: str) -> None:
    (home / "folder").mkdir()
    os.mkfifo(home / "pipe")
    (home / "link").symlink_to("link")
    result = call(*words, name)
    assert result.exit_code in (2, 3)
    assert result.stderr.startswith("Error: ")


def test_a_folder_that_cannot_be_made_is_trouble_and_no_traceback(home: Path) -> None:
    (home / ".wolfpack").write_text("")
    result = call("up")
    assert (3, True) == (result.exit_code, os.strerror(errno.EEXIST) in result.stderr)


RECORD = {"den": "clitest", "address": "127.0.0.1:1", "started_at": 1.0}


@pytest.mark.parametrize(
    "changes",
    [
        {"address": 5},
        {"address": "a\0b"},
        {"pid": "1"},
        {"pid": 10**30},
        {"pid": -1},
        {"started_at": "noon"},
        {"token": {"LD_PRELOAD": "x"}},
        {"token": {"RAY_AUTH_MODE": 5}},
        {"token": ["RAY_AUTH_MODE"]},
        {"born": None},
    ],
    ids=str,
)
def test_a_record_with_a_field_of_another_kind_is_none(tmp_path: Path, changes: dict[str, object]) -> None:
    spec = DenSpec(den="clitest", ledger="memory://", folder=str(tmp_path))
    path = record_path(spec)
    path.parent.mkdir()
    path.write_text(json.dumps(RECORD))
    assert read_record(spec) is not None
    path.write_text(json.dumps(RECORD | changes))
    assert read_record(spec) is None


def test_nobody_waits_for_a_pipe_in_place_of_a_record(tmp_path: Path) -> None:
    spec = DenSpec(den="clitest", ledger="memory://", folder=str(tmp_path))
    record_path(spec).parent.mkdir()
    os.mkfifo(record_path(spec))
    assert read_record(spec) is None


# --- events that anybody can publish ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["os:system", "builtins:exec", "os:mkdir", "subprocess:run", "pathlib:Path"])
def test_a_name_in_a_ledger_calls_nothing(tmp_path: Path, name: str) -> None:
    made = tmp_path / "made"
    fields = {"command": f"touch {made}", "path": str(made)}
    assert UnknownEvent(name, fields) == decode(name, json.dumps(fields))
    assert not made.exists()


@pytest.mark.parametrize("fields", ["", "[]", "5", "{", "[" * 50_000, '{"a": ' * 5000])
def test_an_event_that_cannot_be_read_stops_no_reader(fields: str) -> None:
    assert UnknownEvent("UnitWoke", {"unreadable": fields}) == decode("UnitWoke", fields)


@pytest.mark.parametrize("fields", ['{"a": NaN}', '{"a": 1e999}', "[]", "{", '{"a": ' * 50_000])
def test_an_event_that_no_reader_could_show_is_not_published(fields: str) -> None:
    with pytest.raises(Malformed):
        check_events([("mine:Event", fields)])


def test_what_is_shown_moves_no_cursor(home: Path) -> None:
    event = UnknownEvent("x:\x1b[2JEvent", {"reason": "a\x1b]0;b\x07\u202ec\ud800"})
    text = event_text(Recorded(number=1, at=1e300, producer="p", event=event), None)
    assert text.isprintable()
    assert "1e+300" in clock(1e300)
    assert "a\nb\tc é ²" == printable("a\nb\tc é ²")


def test_events_of_a_spoiled_ledger_are_trouble(home: Path) -> None:
    path = home / ".wolfpack" / "clitest.db"
    ledger_with_events(path)
    path.write_bytes(b"x")
    result = call("events")
    assert (3, True) == (result.exit_code, "damaged" in result.stderr)
