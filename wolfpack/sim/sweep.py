"""Many runs, side by side in as many processes as there are cores; those that break a promise are shrunk and told."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from wolfpack.sim.den_run import DenResult, play
from wolfpack.sim.kernel import check_seconds
from wolfpack.sim.plan import DenPlan, draw_plan
from wolfpack.sim.shrink import shrink
from wolfpack.sim.story import tell
from wolfpack.sim.workers import workers

SHRUNK_MOST = 3  # violations that are made small; the others are named by their seeds


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A seed that broke a promise: its plan, made small where there was time, and the story."""

    seed: int
    promise: str
    text: str
    plan: DenPlan
    story: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult:
    """What came of many runs. `findings` empty: all promises held in all of them."""

    runs: int
    virtual_s: float
    wall_s: float
    faults: int
    submitted: int
    done: int
    dead: int
    cancelled: int
    alpha_changes: int
    findings: tuple[Finding, ...]

    def to_plain(self) -> dict[str, Any]:
        """For JSON: figures, and each finding with its plan."""
        findings = [
            {"seed": each.seed, "promise": each.promise, "text": each.text, "plan": each.plan.to_plain()}
            for each in self.findings
        ]
        names = [name for name in self.__slots__ if name != "findings"]
        return {**{name: getattr(self, name) for name in names}, "violations": len(findings), "findings": findings}


def sweep(
    *,
    seeds: int = 500,
    first: int = 0,
    seconds: float = 120.0,
    menu: str = "all",
    units: int | None = None,
    profile: str = "ray",
    jobs: int | None = None,
    shrink_s: float = 60.0,
    on_result: Callable[[DenResult], None] = lambda _: None,
) -> SweepResult:
    """Plays the plans of many seeds.

    Args:
        seeds: how many; `first` is the first one.
        seconds, menu, units, profile: see `plan.draw_plan`.
        jobs: processes; None: one a core, 1: all in this one.
        shrink_s: real seconds spent on making each of the first three violations small.
        on_result: called after each run, in the order of the seeds.

    Raises:
        UnknownName, CallerError: as of `plan.draw_plan`.
    """
    check_seconds(seconds)
    draw_plan(first, seconds=1.0, menu=menu, units=units, profile=profile)  # refuses before any process is born
    began = time.perf_counter()
    draw = partial(draw_plan, seconds=seconds, menu=menu, units=units, profile=profile)
    jobs = jobs or len(os.sched_getaffinity(0))
    results = []
    for result in _play_all(draw, range(first, first + seeds), min(jobs, seeds)):
        on_result(result)
        results.append(result)
    broken = [result for result in results if result.violation is not None]
    findings = [
        _find(draw(result.seed), result, shrink_s if no < SHRUNK_MOST else 0.0) for no, result in enumerate(broken)
    ]
    return SweepResult(
        runs=len(results), virtual_s=sum(each.virtual_s for each in results),
        wall_s=round(time.perf_counter() - began, 3),
        faults=sum(each.faults for each in results), submitted=sum(each.submitted for each in results),
        done=sum(each.done for each in results), dead=sum(each.dead for each in results),
        cancelled=sum(each.cancelled for each in results), alpha_changes=sum(each.alpha_changes for each in results),
        findings=tuple(findings),
    )  # fmt: skip


def _play_all(draw: Callable[[int], DenPlan], seeds: range, jobs: int) -> Iterator[DenResult]:
    if jobs <= 1:
        yield from map(partial(_draw_and_play, draw), seeds)
        return
    with workers(jobs) as pool:
        yield from pool.imap(partial(_draw_and_play, draw), seeds, chunksize=4)


def _draw_and_play(draw: Callable[[int], DenPlan], seed: int) -> DenResult:
    return play(draw(seed))


def _find(plan: DenPlan, result: DenResult, shrink_s: float) -> Finding:
    if shrink_s > 0:
        plan, result = shrink(plan, result, within_s=shrink_s)
    violation = result.violation
    assert violation is not None
    return Finding(
        seed=plan.seed, promise=violation.promise, text=violation.text, plan=plan, story=tell(plan, result)
    )  # fmt: skip
