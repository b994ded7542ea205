"""A den that is up: every command that joins it, each as a process of its own, as in another shell."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import command, environment, start, write_pack
from wolfpack.cli.record import birth_of

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]

WAIT_S = 60.0


@pytest.fixture(scope="module")
def den(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a den that is up."""
    folder = tmp_path_factory.mktemp("up")
    write_pack(folder, den="clitest-up")
    done = start(folder, "up")
    assert 0 == done.returncode, done.stderr
    yield folder
    start(folder, "down")


def record(folder: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((folder / ".wolfpack" / "clitest-up.json").read_text())
    return values


def ask(folder: Path, *words: str | Path) -> Any:
    """What a command prints as JSON."""
    done = start(folder, *words, "--json")
    assert 0 == done.returncode, done.stderr
    return json.loads(done.stdout)


def wait_until(condition: Callable[[], Any]) -> Any:
    end = time.monotonic() + WAIT_S
    while not (value := condition()):
        assert time.monotonic() < end
        time.sleep(0.1)
    return value


def test_the_owner_stays_in_a_session_of_its_own(den: Path) -> None:
    pid = record(den)["pid"]
    assert (pid, record(den)["born"]) == (os.getsid(pid), birth_of(pid))


def test_a_second_up_says_that_it_is_up_already(den: Path) -> None:
    pid = record(den)["pid"]
    done = start(den, "up")
    assert (0, "The den 'clitest-up' is up already.") == (done.returncode, done.stdout.splitlines()[0])
    assert pid == record(den)["pid"]


def test_status_tells_packs_and_units(den: Path) -> None:
    facts = ask(den, "status")
    assert ("clitest-up", True, ["computing"]) == (facts["den"], facts["conservation"], list(facts["packs"]))
    assert ["grey-0", "grey-1"] == [unit["id"] for unit in facts["units"]]


def test_status_tells_what_awake_units_think_of_each_other(den: Path) -> None:
    start(den, "submit", "computing", "job_of_tests:add", "1", "--wait")  # somebody is awake
    health = ask(den, "status", "--health")["health"]
    for unit, seen in health.items():
        assert "alive" == next(each["status"] for each in seen if each["unit"] == unit)
    assert health
    assert "alive (" in start(den, "status", "--health").stdout


def test_a_result_is_printed_as_json(den: Path) -> None:
    done = start(den, "submit", "computing", "job_of_tests:add", "40", "--wait")
    assert (0, "42\n") == (done.returncode, done.stdout)


def test_a_task_that_was_not_waited_for_goes_on_and_can_be_asked_for(den: Path) -> None:
    gate = den / "gate"
    done = start(den, "submit", "computing", "job_of_tests:wait_for", str(gate), "7")
    task = done.stdout.strip()
    assert f"{task} of pack computing: " in start(den, "why", task).stdout
    gate.touch()
    wait_until((den / "gate.ended-7").exists)


def test_the_same_key_is_the_same_task(den: Path) -> None:
    words = ("submit", "computing", "job_of_tests:add", "1", "--key", "same")
    assert ask(den, *words)["task"] == ask(den, *words)["task"]


def test_a_key_with_other_arguments_is_refused(den: Path) -> None:
    ask(den, "submit", "computing", "job_of_tests:add", "1", "--key", "other")
    done = start(den, "submit", "computing", "job_of_tests:add", "2", "--key", "other")
    assert (2, "") == (done.returncode, done.stdout)
    assert "conflict" in done.stderr


def test_a_pack_that_is_not_there_is_wrong_input(den: Path) -> None:
    done = start(den, "submit", "computin", "job_of_tests:add", "1")
    assert 2 == done.returncode
    assert "Did you mean 'computing'?" in done.stderr


def test_a_dead_task_is_listed_shown_tried_again_and_dropped(den: Path) -> None:
    done = start(den, "submit", "computing", "job_of_tests:fail", "boo", "--wait")
    assert 1 == done.returncode
    assert "ValueError: boo" in done.stderr
    (letter,) = ask(den, "dead", "list")
    task = letter["task_id"]
    assert ("FAULT", [1]) == (letter["cause"], [each["number"] for each in letter["story"]])
    assert "ValueError: boo" in start(den, "dead", "show", task).stdout
    assert [task] == ask(den, "dead", "retry", task)
    wait_until(lambda: [2] == [each["attempts"] for each in ask(den, "dead", "list")])
    assert [task] == ask(den, "dead", "drop", "--all")
    assert [] == ask(den, "dead", "list")


def test_scale_changes_what_is_named_and_keeps_the_rest(den: Path) -> None:
    assert {"pack": "computing", "before": [0, 2], "size": [0, 1]} == ask(den, "scale", "computing", "--max", "1")
    assert [0, 1] == ask(den, "status")["packs"]["computing"]["size"]
    ask(den, "scale", "computing", "--max", "2")


def test_events_are_followed_until_ctrl_c(den: Path) -> None:
    follower = subprocess.Popen(
        command("events", "--follow", "--json"), cwd=den, env=environment(), stdout=subprocess.PIPE, text=True
    )
    assert follower.stdout is not None
    assert "DenOpened" == json.loads(follower.stdout.readline())["name"]
    ask(den, "scale", "computing", "--min", "1")
    while json.loads(follower.stdout.readline())["fields"].get("reason") != "bounds set to [1, 2] by hand":
        pass
    follower.send_signal(signal.SIGINT)
    assert 130 == follower.wait(WAIT_S)
    follower.stdout.close()
    ask(den, "scale", "computing", "--min", "0")


def test_graph_draws_the_den(den: Path) -> None:
    assert ["now.svg"] == ask(den, "graph", "--out", "now.svg")
    assert "<svg" in (den / "now.svg").read_text()


def test_run_joins_the_den_and_leaves_it_up(den: Path) -> None:
    before = ask(den, "status")
    done = start(den, "run", "pack.yaml", "--count", "2", "--json")
    assert (0, {"submitted": 2, "done": 2, "dead": 0, "loud": False}) == (done.returncode, json.loads(done.stdout))
    after = ask(den, "status")
    assert (before["pid"], before["submitted"] + 2) == (after["pid"], after["submitted"])


def test_what_is_left_goes_on_after_everything_was_killed_and_down_ends_it(tmp_path: Path) -> None:
    write_pack(tmp_path, den="clitest-up")
    assert 0 == start(tmp_path, "up").returncode
    gate = tmp_path / "gate"
    ask(tmp_path, "submit", "computing", "job_of_tests:wait_for", str(gate), "1")
    wait_until((tmp_path / "gate.started-1").exists)
    owner = record(tmp_path)
    os.kill(owner["pid"], signal.SIGKILL)
    wait_until(lambda: birth_of(owner["pid"]) != owner["born"])
    done = start(tmp_path, "status")
    assert (3, True) == (done.returncode, "is gone" in done.stderr)

    gate.touch()
    assert 0 == start(tmp_path, "up").returncode
    wait_until(lambda: 1 == ask(tmp_path, "status")["done"])
    owner = record(tmp_path)
    done = start(tmp_path, "down")
    assert (0, "The den 'clitest-up' is down.\n") == (done.returncode, done.stdout)
    assert "" == birth_of(owner["pid"])
    assert not (tmp_path / ".wolfpack" / "clitest-up.json").exists()
    assert 3 == start(tmp_path, "down").returncode


def test_an_owner_that_cannot_make_its_den_says_why(tmp_path: Path) -> None:
    write_pack(tmp_path, den="clitest-up")
    (tmp_path / ".wolfpack").mkdir()
    (tmp_path / ".wolfpack" / "clitest-up.db").write_bytes(b"no ledger at all" * 1000)
    done = start(tmp_path, "up")
    assert (3, "") == (done.returncode, done.stdout)
    assert "salvage" in done.stderr
