"""The record of a den that is up: believed only while the very process that wrote it lives."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from wolfpack.cli.record import (
    Record,
    birth_of,
    find_up,
    join,
    read_record,
    record_path,
    remove_record,
    show_token,
    token_facts,
    write_record,
)
from wolfpack.errors import DenUnreachable
from wolfpack.model import DenSpec


@pytest.fixture
def spec(tmp_path: Path) -> DenSpec:
    return DenSpec(den="timber", ledger="memory://", folder=str(tmp_path))


def own(**changes: object) -> Record:
    pid = os.getpid()
    record = Record(den="timber", address="127.0.0.1:1", started_at=1.0, pid=pid, born=birth_of(pid), log="timber.log")
    return dataclasses.replace(record, **changes)


def test_a_record_is_read_as_it_was_written(spec: DenSpec) -> None:
    write_record(spec, own(token={"RAY_AUTH_MODE": "token"}))
    assert own(token={"RAY_AUTH_MODE": "token"}) == read_record(spec)


def test_a_record_lies_beside_the_file_of_its_den(spec: DenSpec, tmp_path: Path) -> None:
    assert tmp_path / ".wolfpack" / "timber.json" == record_path(spec)


def test_a_removed_record_is_none(spec: DenSpec) -> None:
    write_record(spec, own())
    remove_record(spec)
    assert read_record(spec) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"den": "timber"}'])
def test_what_is_no_record_is_none(text: str, spec: DenSpec) -> None:
    write_record(spec, own())
    record_path(spec).write_text(text)
    assert read_record(spec) is None


def test_fields_of_a_later_version_are_passed_over(spec: DenSpec) -> None:
    write_record(spec, own())
    values = json.loads(record_path(spec).read_text()) | {"moon": "full"}
    record_path(spec).write_text(json.dumps(values))
    assert own() == read_record(spec)


def test_a_den_whose_owner_lives_is_up(spec: DenSpec) -> None:
    write_record(spec, own())
    assert own() == find_up(spec)


def test_a_process_that_got_the_number_of_the_owner_is_not_the_owner(spec: DenSpec) -> None:
    write_record(spec, own(born="another moment"))
    assert find_up(spec) is None


def test_a_process_that_is_gone_has_no_birth() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert "" == birth_of(child.pid)


def test_a_dead_child_that_nobody_waited_for_has_no_birth() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.read()  # its end is closed
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert "" == birth_of(child.pid)
    child.wait()


def test_an_owner_that_is_gone_is_told_with_its_log(spec: DenSpec) -> None:
    write_record(spec, own(born="another moment"))
    with pytest.raises(DenUnreachable, match=r"its process .* is gone .*timber\.log"):
        join(spec)


def test_the_token_itself_is_never_in_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "the secret")
    assert {"RAY_AUTH_MODE": "token"} == token_facts()


def test_the_file_with_the_token_is_in_the_record(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("the secret")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    assert {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(tmp_path / "token")} == token_facts()


def test_what_the_shell_says_of_the_token_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "mine")
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH", raising=False)
    show_token(own(token={"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": "theirs"}))
    assert ("disabled", None) == (os.environ["RAY_AUTH_MODE"], os.environ.get("RAY_AUTH_TOKEN_PATH"))
