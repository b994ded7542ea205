"""What the README and the other documents promise: commands and code that run, links that lead somewhere, names that
exist and say what they are, and an import that costs next to nothing."""

from __future__ import annotations

import inspect
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import wolfpack
from tests.ray.support import ROOT
from wolfpack import config

README = (ROOT / "README.md").read_text(encoding="utf-8")
CI = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
OWN_VENV = "python3 -m venv .venv && .venv/bin/pip install -q -e "
IMPORT_S = 0.1
HEAVY = {"ray", "matplotlib", "networkx", "pydantic", "numpy", "yaml", "asyncio"}


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def names(path: Path) -> str:
    return str(path.relative_to(ROOT))


# --- the first screen ---------------------------------------------------------------------------------------------


def test_the_first_two_commands_each_make_their_own_virtual_environment_in_one_line():
    job, tests, *_ = blocks(README, "sh")
    assert f"{OWN_VENV}. && .venv/bin/wolfpack run pack.yaml\n" == job
    assert f'{OWN_VENV}".[test]" && .venv/bin/pytest\n' == tests


def test_ci_runs_the_very_command_that_the_readme_shows_for_the_tests():
    pattern = re.search(r"grep -E '(.+)' README\.md", CI)
    assert pattern
    _, tests, *_ = blocks(README, "sh")
    assert [tests.strip()] == re.findall(pattern[1], README, re.MULTILINE)


def test_the_promise_and_the_first_code_come_before_the_first_picture():
    places = [
        README.index(each) for each in ("at least once execution, exactly one committed result", "```python", "![")
    ]
    assert sorted(places) == places


@pytest.mark.parametrize("document", DOCUMENTS, ids=names)
def test_python_in_a_document_compiles(document):
    for code in blocks(document.read_text(encoding="utf-8"), "python"):
        compile(textwrap.dedent(code), names(document), "exec")


def test_the_example_of_the_readme_runs_as_printed(ray_cluster, tmp_path, monkeypatch, capsys):
    shutil.copy(ROOT / "pack.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    (code,) = blocks(README, "python")
    exec(compile(code, "README.md", "exec"), {"__name__": "__main__"})
    total, page, *_ = capsys.readouterr().out.splitlines()
    assert str(sum(side * side for side in range(100))) == total
    assert page.startswith("49 silver-")
    assert (tmp_path / "den.svg").stat().st_size > 1000


# --- links --------------------------------------------------------------------------------------------------------


def anchors(path: Path) -> set[str]:
    """What `#...` can name in a document, as GitHub makes them from headings."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=names)
def test_every_link_of_a_document_leads_to_something_that_is_there(document):
    found = re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", document.read_text(encoding="utf-8"))
    targets = [((document.parent / path) if path else document, anchor) for path, anchor in found]
    assert [] == [
        f"{path}#{anchor}" for path, anchor in targets if not path.exists() or (anchor and anchor not in anchors(path))
    ]


@pytest.mark.parametrize("document", DOCUMENTS, ids=names)
def test_every_file_of_ours_that_a_document_names_is_there(document):
    named = re.findall(
        r"`((?:wolfpack|packs|viz|tests|docs|examples|benchmarks|\.ci)/[\w./-]+)`", document.read_text(encoding="utf-8")
    )
    assert [] == [each for each in named if not (ROOT / each).exists()]


def test_the_readme_explains_the_words_of_the_pack():
    words = re.findall(r"^\| (\w+) \|", README, re.MULTILINE)
    assert {"wolf", "werewolf", "sleeper", "pack", "den", "alpha", "ladder", "keeper"} <= set(words)


def test_the_changelog_has_the_version_of_the_package():
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{wolfpack.__version__}]" in changes


def test_the_license_is_apache_2():
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License\n                           Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text


# --- public names -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(wolfpack.__all__))
def test_a_public_name_exists_and_says_what_it_is(name):
    thing = getattr(wolfpack, name)
    # A dataclass that says nothing gets its signature for a docstring, an enum that of its base.
    said = vars(thing).get("__doc__") if inspect.isclass(thing) else thing.__doc__
    assert said
    assert not said.startswith(f"{name}(")


@pytest.mark.parametrize("face", [wolfpack.Den, wolfpack.Pack, wolfpack.Future, wolfpack.PackExecutor, config])
def test_every_public_method_says_what_it_does(face):
    public = {name: each for name, each in vars(face).items() if not name.startswith("_") and inspect.isfunction(each)}
    assert [] == [name for name, each in public.items() if not each.__doc__]


# --- the import ---------------------------------------------------------------------------------------------------

MEASURE = """
import sys, time
before = set(sys.modules)
began = time.perf_counter()
import wolfpack
print(time.perf_counter() - began)
print(*{name.partition(".")[0] for name in set(sys.modules) - before})
"""


def import_once() -> tuple[float, set[str]]:
    done = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True, cwd=ROOT)
    seconds, modules = done.stdout.splitlines()
    return float(seconds), set(modules.split())


def test_importing_wolfpack_takes_less_than_100_ms_and_brings_nothing_heavy():
    runs = [import_once() for _ in range(5)]
    assert set() == HEAVY & runs[0][1]
    assert min(seconds for seconds, _ in runs) < IMPORT_S
