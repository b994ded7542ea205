"""Commands that need no den: help, check, schema, ledger, and what every command does with errors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.support import call, write_pack
from tests.ledger_rows import fixed, mutable
from wolfpack.cli import cli
from wolfpack.cli.common import exit_code
from wolfpack.core.rows import EventRow, Writes
from wolfpack.den.sqlite_ledger import SqliteLedger
from wolfpack.errors import (
    CallerError,
    ConfigError,
    DenClosed,
    DenUnreachable,
    LedgerHeld,
    QueueFull,
    TaskCrashed,
    UnknownName,
    WolfPackBug,
)
from wolfpack.events import AlphaCrowned, encode


@pytest.fixture
def pack_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    sys.modules.pop("job_of_tests", None)
    return write_pack(tmp_path)


def ledger_with_events(path: Path) -> None:
    crowned = AlphaCrowned(pack="computing", term=1, unit="grey-1", boot=1, previous=None, reason="the pack had none")
    name, fields = encode(crowned)
    path.parent.mkdir(exist_ok=True)
    ledger = SqliteLedger(path)
    ledger.open(create=True)
    ledger.commit(
        Writes(
            new_tasks=[fixed(1)],
            changed_tasks=[mutable(1)],
            events=[EventRow(number, 1000.0 + number, "keeper", name, fields) for number in (1, 2)],
        )
    )
    ledger.close()


# --- help ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*cli.commands, "dead list", "dead show", "dead retry", "dead drop", "ledger check"])
def test_each_command_has_help_with_an_example(name: str, pack_yaml: Path) -> None:
    result = call(*name.split(), "--help")
    assert 0 == result.exit_code
    assert "Example" in result.output or "Commands:" in result.output


def test_help_imports_nothing_heavy() -> None:
    heavy = "{'ray', 'pydantic', 'yaml', 'matplotlib', 'networkx'}"
    code = f"import sys, wolfpack.cli; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "[]\n" == done.stdout


def test_a_wrong_command_is_wrong_usage() -> None:
    assert 2 == call("howl").exit_code


# --- errors -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (2, CallerError("x")),
        (2, ConfigError("x")),
        (2, UnknownName("x")),
        (3, QueueFull("x")),
        (3, DenClosed("x")),
        (3, DenUnreachable("x")),
        (3, LedgerHeld("x")),
        (3, WolfPackBug("x")),
        (1, TaskCrashed("x")),
        (130, KeyboardInterrupt()),
    ],
)
def test_the_exit_code_says_who_must_act(code: int, error: BaseException) -> None:
    assert code == exit_code(error)


def test_an_error_is_one_message_without_a_traceback(tmp_path: Path) -> None:
    result = call("check", tmp_path / "none.yaml")
    assert (2, "") == (result.exit_code, result.stdout)
    assert result.stderr.startswith("Error: ")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("words", [("--debug", "check"), ("check", "--debug")])
def test_debug_shows_the_traceback(words: tuple[str, ...], tmp_path: Path) -> None:
    result = call(*words, tmp_path / "none.yaml")
    assert 2 == result.exit_code
    assert "Traceback" in result.stderr


# --- check and schema ---------------------------------------------------------------------------------------------


def test_check_counts_what_is_in_a_good_file(pack_yaml: Path) -> None:
    result = call("check", "pack.yaml")
    assert (0, "pack.yaml is fine: 2 units, 1 pack\n") == (result.exit_code, result.stdout)


def test_check_as_json(pack_yaml: Path) -> None:
    expected = {"file": "pack.yaml", "den": "clitest", "units": 2, "packs": 1}
    assert expected == json.loads(call("check", "--json").stdout)


def test_check_lists_every_fault(pack_yaml: Path) -> None:
    pack_yaml.write_text(pack_yaml.read_text().replace("awake_min: 1", "awake_min: x").replace("[0, 2]", "[2, 0]"))
    result = call("check")
    assert 2 == result.exit_code
    assert "awake_min" in result.stderr
    assert "size" in result.stderr


def test_schema_is_json_schema() -> None:
    assert {"units", "packs"} <= json.loads(call("schema").stdout)["properties"].keys()


# --- ledger -------------------------------------------------------------------------------------------------------


def test_a_whole_ledger_is_named_so_by_its_pack_yaml(pack_yaml: Path, tmp_path: Path) -> None:
    ledger_with_events(tmp_path / ".wolfpack" / "clitest.db")
    result = call("ledger", "check", "pack.yaml")
    assert (0, True) == (result.exit_code, "is whole" in result.stdout)


def test_a_missing_ledger_is_trouble(tmp_path: Path) -> None:
    assert 3 == call("ledger", "check", tmp_path / "none.db").exit_code


def test_faults_of_a_ledger_are_trouble_and_listed(tmp_path: Path) -> None:
    path = tmp_path / "bad.db"
    ledger_with_events(path)
    path.write_bytes(b"x" * 4096 + path.read_bytes()[4096:])
    result = call("ledger", "check", path, "--json")
    assert 3 == result.exit_code
    assert json.loads(result.stdout)["faults"]


def test_salvage_without_loss_is_fine(tmp_path: Path) -> None:
    ledger_with_events(tmp_path / "old.db")
    result = call("ledger", "salvage", tmp_path / "old.db", tmp_path / "new.db", "--json")
    told = json.loads(result.stdout)
    assert (0, [], 2, 1) == (result.exit_code, told["lost"], told["kept"]["events"], told["kept"]["tasks"])


def test_salvage_with_a_loss_is_trouble(tmp_path: Path) -> None:
    ledger_with_events(tmp_path / "old.db")
    (tmp_path / "old.db").write_bytes(b"x" * 4096 + (tmp_path / "old.db").read_bytes()[4096:])
    result = call("ledger", "salvage", tmp_path / "old.db", tmp_path / "new.db")
    assert 3 == result.exit_code
    assert "lost: " in result.stdout


# --- a den that is not up -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("down",),
        ("why", "a:1"),
        ("submit", "computing", "math:sqrt", "4"),
        ("scale", "computing", "--max", "3"),
        ("dead", "list"),
        ("events", "--follow"),
        ("graph",),
    ],
)
def test_without_a_den_the_text_says_that_nothing_is_up(words: tuple[str, ...], pack_yaml: Path) -> None:
    result = call(*words)
    assert 3 == result.exit_code
    assert "'clitest' is not up" in result.stderr


def test_events_come_from_the_ledger_when_the_den_is_not_up(pack_yaml: Path, tmp_path: Path) -> None:
    ledger_with_events(tmp_path / ".wolfpack" / "clitest.db")
    lines = [json.loads(line) for line in call("events", "--since", "1", "--json").stdout.splitlines()]
    assert [(2, "AlphaCrowned", "grey-1")] == [(each["number"], each["name"], each["fields"]["unit"]) for each in lines]


def test_graph_makes_up_missing_pictures_from_the_ledger(pack_yaml: Path, tmp_path: Path) -> None:
    ledger_with_events(tmp_path / ".wolfpack" / "clitest.db")
    result = call("graph", "--since", "1", "--out", "pictures")
    assert 0 == result.exit_code
    assert ["00000002-computing-term1.png", "00000002-computing-term1.svg"] == sorted(
        path.name for path in (tmp_path / "pictures").iterdir()
    )


def test_a_picture_of_an_unknown_kind_is_wrong_input(pack_yaml: Path, tmp_path: Path) -> None:
    ledger_with_events(tmp_path / ".wolfpack" / "clitest.db")
    assert 2 == call("graph", "--out", "now.bmp").exit_code


def test_scale_wants_to_know_what_to_change(pack_yaml: Path) -> None:
    assert 2 == call("scale", "computing").exit_code
