"""The job's function as a command: options from its signature and docstring, values from text."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from tests.cli.support import call, write_pack
from wolfpack import config
from wolfpack.cli import job as cli_job
from wolfpack.cli import run as _run_command
from wolfpack.cli.common import get_function
from wolfpack.cli.job import argument_texts, guess, kind_of, load_job
from wolfpack.cli.run import find_file, given_options, is_complete, resume_text
from wolfpack.errors import CallerError, UnknownName


@pytest.fixture
def pack_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    sys.modules.pop("job_of_tests", None)
    return write_pack(tmp_path)


def given(*words: str) -> dict[str, Any]:
    """What the job would get from this command line."""
    with _run_command.make_context("run", list(words)) as ctx:
        return given_options(ctx)


# --- from text to values ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "text"), [(7, "7"), (0.5, "0.5"), (True, "true"), (False, "False"), (None, "null"), ("a-7", "a-7")]
)
def test_a_value_without_annotation_is_guessed(expected: Any, text: str) -> None:
    assert (expected, type(expected)) == (guess(text), type(guess(text)))


@pytest.mark.parametrize(
    ("kind", "note", "default"),
    [
        ("int", "int | None", None),
        ("float", "float", 0.5),
        ("float", "int | float", 1),
        ("text", "str | os.PathLike[str] | None", None),
        ("text", str, ""),
        ("text", str | None, None),
        ("int", int | None, None),
        ("flag", "bool", False),
        ("flag", inspect.Parameter.empty, False),
        ("any", inspect.Parameter.empty, None),
        ("any", "int | str", None),
        ("any", "object", None),
    ],
)
def test_the_annotation_says_what_an_option_takes(kind: str, note: Any, default: Any) -> None:
    parameter = inspect.Parameter("x", inspect.Parameter.KEYWORD_ONLY, annotation=note, default=default)
    assert kind == kind_of(parameter)


def test_the_paragraphs_under_args_are_help() -> None:
    doc = (
        "Does it.\n\nArgs:\n    one: the `first`\n        of them.\n    two (int): more.\n\nReturns:\n    three: no.\n"
    )
    assert {"one": "the first of them.", "two": "more."} == argument_texts(doc)


# --- the command line ---------------------------------------------------------------------------------------------


def test_options_of_the_job_are_in_the_help_of_its_file(pack_yaml: Path) -> None:
    output = call("run", "pack.yaml", "--help").output
    assert "--count INTEGER" in output
    assert "how many tasks there are.  [default: 3]" in " ".join(output.split()).replace(" [", "  [")
    assert "--loud / --no-loud" in output
    assert "_run" not in output


def test_help_without_a_file_is_help(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert 0 == call("run", "--help").exit_code


def test_options_get_the_type_of_their_parameter(pack_yaml: Path) -> None:
    assert {"count": 5, "gate": "7", "loud": True} == given("pack.yaml", "--count", "5", "--gate", "7", "--loud")


def test_options_may_stand_before_the_file(pack_yaml: Path) -> None:
    assert {"count": 5} == given("--count", "5", "pack.yaml")


def test_a_file_that_was_taken_for_another_is_told(pack_yaml: Path, tmp_path: Path) -> None:
    (tmp_path / "first.yaml").write_text(pack_yaml.read_text())
    with pytest.raises(click.UsageError, match="Write the file first"):
        given("--pack", "first.yaml", "pack.yaml")


def test_what_is_not_said_is_not_given(pack_yaml: Path) -> None:
    assert {} == given("pack.yaml")


def test_an_unknown_option_is_refused_with_the_nearest(pack_yaml: Path) -> None:
    result = call("run", "pack.yaml", "--cuont", "3")
    assert 2 == result.exit_code
    assert "--count" in result.stderr


def test_a_value_of_the_wrong_kind_is_refused(pack_yaml: Path) -> None:
    result = call("run", "pack.yaml", "--count", "many")
    assert 2 == result.exit_code
    assert "'many' is not a valid integer" in result.stderr


@pytest.mark.parametrize(
    ("expected", "words"),
    [
        ("a.yaml", ["a.yaml", "--limit", "5"]),
        ("a.yaml", ["--limit", "5", "a.yaml"]),
        ("den", ["den"]),
        ("pack.yaml", ["--limit", "5"]),
        ("pack.yaml", []),
    ],
)
def test_the_file_is_found_before_the_options_are_known(expected: str, words: list[str]) -> None:
    assert expected == find_file(words)


# --- the job of a file --------------------------------------------------------------------------------------------


def test_an_option_of_the_file_that_the_job_lacks_is_refused(pack_yaml: Path) -> None:
    pack_yaml.write_text(pack_yaml.read_text().replace("count: 3", "cuont: 3"))
    with pytest.raises(CallerError, match="Did you mean 'count'"):
        load_job(config.load(pack_yaml))


def test_a_file_without_a_job_says_how_to_name_one(pack_yaml: Path) -> None:
    pack_yaml.write_text("".join(line for line in pack_yaml.open() if not line.startswith("job:")))
    with pytest.raises(CallerError, match="has no job"):
        load_job(config.load(pack_yaml))


@pytest.mark.parametrize(
    ("expected", "task", "packs"),
    [
        ("computing", "packs.computing.job:measure", ["computing", "packs"]),
        (None, "my.job:run", ["computing", "monitoring"]),
    ],
)
def test_the_pack_is_the_one_that_the_package_is_named_after(expected: str | None, task: str, packs: list[str]) -> None:
    job = cli_job.Job(task=task, function=len, parameters={}, options={})
    assert expected == job.find_pack(packs)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("no function", "math.sqrt"),
        ("no module named 'nowhere'", "nowhere.at.all:f"),
        ("Did you mean 'sqrt'", "math:sqr"),
        ("is no function", "math:pi"),
    ],
)
def test_what_names_no_function_is_refused(text: str, target: str) -> None:
    with pytest.raises((CallerError, UnknownName), match=text):
        get_function(target)


# --- its summary --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "summary"),
    [
        (True, {"submitted": 3, "done": 2, "dead": 1, "conservation": True}),
        (False, {"submitted": 3, "done": 2, "dead": 0, "cancelled": 1, "conservation": True}),
        (False, {"submitted": 3, "done": 3, "dead": 0, "conservation": False}),
        (True, {"anything": 1}),
        (True, None),
    ],
)
def test_a_run_is_complete_when_every_task_is_done_or_dead(expected: bool, summary: Any) -> None:
    assert expected == is_complete(summary)


def test_P56_the_text_says_how_to_resume() -> None:
    parameter = inspect.Parameter("resume", inspect.Parameter.KEYWORD_ONLY)
    job = cli_job.Job(task="a:b", function=len, parameters={"resume": parameter}, options={})
    assert "wolfpack run p.yaml --limit 5 --resume R1" in resume_text(["run", "p.yaml", "--limit", "5"], job, "R1")
    assert "wolfpack run --resume R1" in resume_text(["run", "--resume", "R1"], job, "R1")
