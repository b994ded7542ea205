"""Try a den without Ray: the real core on virtual time, with faults, from one seed. For your own tests.

    from wolfpack.testing import keep_promises, plan_for

    def test_our_den_survives_whatever_fails():
        for seed in range(20):
            keep_promises(plan_for("pack.yaml", tasks=[0.5] * 100, menu="all", seed=seed))

A minute of such a den takes some tenths of a second, and the same seed is the same run on every machine. User code does
not run: a task is how long it takes and how its attempts end (`Draft`). What is tried is the rest: your units, packs,
minimums and budgets, under the faults of a menu (`MENUS`) or a schedule of your own (`Fault`).

All invariants are looked after at each step, and once the faults stop every pack must have one alpha whom its members
follow, and every task must settle. `keep_promises` raises an AssertionError that names the seed, the few faults that
are needed to see it, and what happened last. `play` returns figures instead; `save(path, plan)` and `load(path)` keep a
plan in a file.

`World` is the den itself, for tests that steer it by hand: submit, crash a unit, look at rows, go on.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from os import PathLike

from wolfpack.config import load as load_spec
from wolfpack.errors import unknown_name
from wolfpack.model import DenSpec
from wolfpack.sim.checks import BrokenPromise
from wolfpack.sim.den import World, task, wolves
from wolfpack.sim.den_run import DenResult, Violation, play
from wolfpack.sim.faults import ALPHA, MENUS, Fault, FaultKind, draw_faults
from wolfpack.sim.kernel import check_seconds, seed_of, to_us
from wolfpack.sim.network import Weather
from wolfpack.sim.plan import Batch, DenPlan, Draft, draw_plan
from wolfpack.sim.replay import load, save
from wolfpack.sim.shrink import shrink
from wolfpack.sim.story import tell
from wolfpack.sim.sweep import SweepResult, sweep

__all__ = [
    "ALPHA", "MENUS", "Batch", "BrokenPromise", "DenPlan", "DenResult", "Draft", "Fault", "FaultKind", "SweepResult",
    "Violation", "Weather", "World", "draw_plan", "keep_promises", "load", "plan_for", "play", "save", "shrink",
    "sweep", "task", "tell", "wolves",
]  # fmt: skip


def plan_for(
    den: DenSpec | str | PathLike[str],
    *,
    tasks: Sequence[float | Draft] = (),
    pack: str | None = None,
    seconds: float = 60.0,
    menu: str = "all",
    seed: int = 0,
    faults: Sequence[Fault] | None = None,
) -> DenPlan:
    """A plan for the units and packs of a pack.yaml.

    Args:
        den: the file, or what was read from one.
        tasks: seconds that each takes, or a `Draft` of one; all are submitted at once.
        pack: to this pack; None: the first.
        seconds: how long faults may happen.
        menu: where faults are drawn from; a name of `MENUS`.
        seed: what all chance is derived from.
        faults: a schedule of your own instead.

    Raises:
        ConfigError: the file describes no den.
        UnknownName: there is no such menu, pack, unit of a fault, or end of a task.
        CallerError: a time or an amount makes no sense, or a fault would do nothing.
    """
    check_seconds(seconds)
    spec = den if isinstance(den, DenSpec) else load_spec(den)
    names = [each.name for each in spec.packs]
    units = [card.unit for card in spec.cards]
    if pack is not None and pack not in names:
        raise unknown_name("pack", pack, names)
    if faults is None:
        faults = draw_faults(random.Random(seed_of(seed, "faults")), menu, units=units, packs=names, seconds=seconds)
    drafts = tuple(one if isinstance(one, Draft) else Draft(seconds=one) for one in tasks)
    batch = Batch(at_us=to_us(0.0), client="test", pack=pack or names[0], tasks=drafts)
    return DenPlan(
        seed=seed, seconds=seconds, cards=spec.cards, packs=spec.packs, timing=spec.timing,
        batches=(batch,) if drafts else (), faults=tuple(faults),
    )  # fmt: skip


def keep_promises(plan: DenPlan, *, shrink_s: float = 20.0) -> DenResult:
    """Plays a plan and returns its figures.

    Args:
        shrink_s: real seconds to spend on making the plan small when it broke a promise.

    Raises:
        AssertionError: a promise was broken; the text tells how to see it again, and the story.
    """
    result = play(plan)
    if result.violation is None:
        return result
    small, shown = shrink(plan, result, within_s=shrink_s) if shrink_s > 0 else (plan, result)
    raise AssertionError(tell(small, replace(shown, wall_s=0.0)))
