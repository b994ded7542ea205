"""Imports point down only. Read from the source with `ast`, so that lazy imports inside functions count too."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# The words everybody shares (L0), and the faces (L4) that only faces may use.
WORDS = {"errors", "config", "model", "events", "plain"}
FACES = {"pack", "executor", "aio", "cli", "web", "testing", "chaos"}
# What the core may use of our own.
CORE_MAY_USE = {"core", "errors", "model", "events", "plain"}
# What reads a clock, waits, draws global chance, or touches files, processes and sockets.
IMPURE = {
    "asyncio", "concurrent", "datetime", "fcntl", "glob", "importlib", "multiprocessing", "os", "pathlib", "sched",
    "secrets", "select", "selectors", "shutil", "signal", "socket", "sqlite3", "ssl", "subprocess", "tempfile",
    "threading", "time", "urllib", "uuid",
}  # fmt: skip
IMPURE_CALLS = {"open", "print", "input", "__import__"}
# Foreign code the core may use: it turns plain values into bytes and back, and does nothing else.
PURE = {"msgpack"}
# Parts of wolfpack that are no public names.
INNER = {"core", "den", "sim", "model", "plain", "config"}


def imports(source: str) -> Iterator[tuple[str, str | None]]:
    """Each import as (module, name): `import a.b` gives ("a.b", None), `from a import b` gives ("a", "b")."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative imports hide the layer they point to"
            yield from ((node.module or "", alias.name) for alias in node.names)


def part_of(module: str, name: str | None) -> str | None:
    """The part of wolfpack that an import points to; "" for the package itself, None for what is not ours."""
    top, _, rest = module.partition(".")
    if top != "wolfpack":
        return None
    if not rest and name is not None and ((ROOT / "wolfpack" / f"{name}.py").exists() or name in INNER):
        return name
    return rest.partition(".")[0]


def core_faults(source: str) -> list[str]:
    """What a file of the core must not do."""
    faults = []
    for module, name in imports(source):
        top = module.partition(".")[0]
        part = part_of(module, name)
        if part is not None:
            if part not in CORE_MAY_USE:
                faults.append(f"uses wolfpack.{part}")
        elif top not in sys.stdlib_module_names | PURE:
            faults.append(f"imports {top}, which is no part of Python")
        elif top in IMPURE:
            faults.append(f"imports {top}")
        elif top == "random" and name not in (None, "Random"):
            faults.append(f"takes random.{name}")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "random":
            if node.attr != "Random":
                faults.append(f"uses random.{node.attr}")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS:
            faults.append(f"calls {node.func.id}()")
    return faults


def ray_faults(source: str) -> list[str]:
    """Imports of Ray, which only the den may have."""
    return [f"imports {module}" for module, _ in imports(source) if module.partition(".")[0] == "ray"]


def upward_faults(source: str, above: set[str]) -> list[str]:
    """Imports of our own from a layer above."""
    parts = (part_of(module, name) for module, name in imports(source))
    return [f"uses wolfpack.{part}" for part in parts if part is not None and part in above]


def outsider_faults(source: str, also: tuple[str, ...] = ()) -> list[str]:
    """What a file outside the package must not do: use Ray, or more of ours than the public names."""
    faults = ray_faults(source)
    for module, name in imports(source):
        if module == "wolfpack":
            if name is not None and (name.startswith("_") or name in INNER):
                faults.append(f"uses wolfpack.{name}")
        elif module.startswith("wolfpack.") and module not in also:
            faults.append(f"uses {module}")
    return faults


def files(*folders: str) -> list[str]:
    return sorted(str(path.relative_to(ROOT)) for folder in folders for path in (ROOT / folder).rglob("*.py"))


def source_of(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def test_there_are_files_to_look_at() -> None:
    assert {"wolfpack/core/tasks.py", "wolfpack/core/retry.py"} <= set(files("wolfpack/core"))


@pytest.mark.parametrize("path", files("wolfpack/core"))
def test_the_core_is_pure(path: str) -> None:
    assert core_faults(source_of(path)) == []


@pytest.mark.parametrize("path", [p for p in files("wolfpack") if not p.startswith("wolfpack/den/")])
def test_only_the_den_imports_ray(path: str) -> None:
    assert ray_faults(source_of(path)) == []


@pytest.mark.parametrize("path", [p for p in files("wolfpack") if Path(p).with_suffix("").parts[1] in WORDS])
def test_the_shared_words_use_only_each_other(path: str) -> None:
    parts = {part_of(module, name) for module, name in imports(source_of(path))} - {None}
    assert parts <= WORDS


@pytest.mark.parametrize("path", ["wolfpack/aio_cluster.py", *files("wolfpack/den", "wolfpack/sim", "wolfpack/udp")])
def test_drivers_do_not_use_the_faces(path: str) -> None:
    assert upward_faults(source_of(path), FACES) == []


@pytest.mark.parametrize("path", ["wolfpack/aio_cluster.py", *files("wolfpack/udp")])
def test_drivers_in_real_time_use_the_core_and_no_other_driver(path: str) -> None:
    assert upward_faults(source_of(path), {"aio_cluster", "den", "sim"}) == []


@pytest.mark.parametrize("path", files("packs", "examples"))
def test_packs_and_examples_use_only_public_names(path: str) -> None:
    assert outsider_faults(source_of(path), also=("wolfpack.aio_cluster",)) == []


@pytest.mark.parametrize("path", files("viz"))
def test_viz_uses_only_public_names_and_events(path: str) -> None:
    assert outsider_faults(source_of(path), also=("wolfpack.events",)) == []


# --- the reader itself: each fault is seen ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "from asyncio import sleep",
        "import os.path",
        "def late():\n    import sqlite3",
        "import cloudpickle",
        "import ray",
        "import wolfpack",
        "from wolfpack import Den",
        "from wolfpack import den",
        "from wolfpack.den import keeper",
        "import wolfpack.config",
        "import random\nrandom.random()",
        "from random import choice",
        "open('x')",
    ],
)
def test_a_fault_in_the_core_is_seen(source: str) -> None:
    assert len(core_faults(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "import math, random\nrng: random.Random",
        "from random import Random",
        "from wolfpack.core.tasks import move",
        "from wolfpack.errors import Retry",
        "from wolfpack import errors, model, events, plain",
        "import heapq, msgpack",
    ],
)
def test_what_the_core_may_use_is_no_fault(source: str) -> None:
    assert core_faults(source) == []


@pytest.mark.parametrize("source", ["import ray", "from ray.util import state", "def late():\n    import ray.actor"])
def test_an_import_of_ray_is_seen(source: str) -> None:
    assert len(ray_faults(source)) == 1


@pytest.mark.parametrize(
    "source", ["from wolfpack.cli import main", "import wolfpack.web", "from wolfpack.pack import P"]
)
def test_an_import_from_above_is_seen(source: str) -> None:
    assert len(upward_faults(source, FACES)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "import ray",
        "from wolfpack import _hidden",
        "from wolfpack import core",
        "from wolfpack.core import tasks",
        "import wolfpack.den",
        "from wolfpack.events import AlphaCrowned",
    ],
)
def test_an_outsider_that_reaches_inside_is_seen(source: str) -> None:
    assert len(outsider_faults(source)) == 1


def test_public_names_are_no_fault() -> None:
    assert outsider_faults("import wolfpack\nfrom wolfpack import Den, AlphaCrowned") == []


def test_a_relative_import_is_refused() -> None:
    with pytest.raises(AssertionError, match="relative imports"):
        list(imports("from . import tasks"))
