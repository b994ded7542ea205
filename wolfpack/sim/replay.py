"""Runs in files: a plan as JSON, to be played again, sent to somebody, or looked at."""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path

from wolfpack.errors import CallerError
from wolfpack.sim.den_run import DenResult, play
from wolfpack.sim.plan import DenPlan


def save(path: str | PathLike[str], plan: DenPlan) -> None:
    """Writes a plan to a file.

    Raises:
        CallerError: the arguments are in the wrong order, or there is no plan among them.
        OSError: the file cannot be written.
    """
    if type(plan) is not DenPlan:
        given = f"{type(path).__name__}, {type(plan).__name__}"
        raise CallerError(f"Call save(path, plan): the file first, then the plan. It was given ({given}).")
    Path(path).write_text(json.dumps(plan.to_plain(), indent=1) + "\n", encoding="utf-8")


def load(path: str | PathLike[str]) -> DenPlan:
    """Reads a plan that `save` wrote.

    Raises:
        OSError: the file cannot be read.
        ValueError: it holds no plan.
    """
    try:
        plain = json.loads(Path(path).read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as exc:
        raise ValueError(f"{path} is no JSON: {exc}") from exc
    return DenPlan.from_plain(plain)


def replay(path: str | PathLike[str]) -> DenResult:
    """Plays the plan in a file; it goes as it went before."""
    return play(load(path))
