"""Lifeguard's experiment: how often are healthy units called dead while some others are slow?

After Dadgar, Phillips and Currey, "Lifeguard: Local Health Awareness for More Accurate Failure Detection" (2018),
section V, the interval experiment. Of 128 members C are blocked for D seconds, all at once, then free for I seconds,
again and again for two minutes. A blocked member can neither send nor receive; its timers run. What it would have sent
leaves when it is free, what reached it is handled then, in order.

A false positive is a member (any) that comes to hold a healthy one DEAD, where healthy means: never blocked in this
run. It is healthy-to-healthy where the accusing member is, too. One healthy member really crashes, a quarter into the
run: how long it takes to find that is the price of patience. Every arm meets the same faults in the same seed.

The values of C are the paper's; those of D and I were taken down from memory of it and could not be compared with the
text: call them ours. `GRIDS` has the whole grid, two parts of it, and a quick one.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, NamedTuple

from wolfpack.core.membership_words import LIFEGUARD, SWIM, MembershipOptions
from wolfpack.model import Timing
from wolfpack.sim.herd import Herd, HerdPlan
from wolfpack.sim.kernel import US
from wolfpack.sim.workers import workers

MEMBERS = 128
TIMING = Timing(
    name="lifeguard", probe_s=1.0, ack_s=0.5, helpers=3, gossip_s=0.2, fan_out=3, suspicion_alpha=5.0,
    suspicion_beta=6.0, sync_s=30.0,
)  # fmt: skip
QUIET_S = 15.0  # before the first block
TEST_S = 120.0
CRASH_SHARE = 0.25  # of the test: then one healthy member crashes
SETTLE_S = 60.0  # after the test the crash may still be found; messages of this time do not count

ARMS: Mapping[str, MembershipOptions] = {
    "SWIM": SWIM,
    "LHA-Probe": replace(SWIM, local_health_probe=True),
    "LHA-Suspicion": replace(SWIM, local_health_suspicion=True),
    "Buddy System": replace(SWIM, buddy=True),
    "Lifeguard": LIFEGUARD,
    "ours": MembershipOptions(),
}


class Grid(NamedTuple):
    """Every combination of these, once a seed."""

    blocked: tuple[int, ...]  # C
    block_s: tuple[float, ...]  # D
    free_s: tuple[float, ...]  # I
    test_s: float = TEST_S
    seeds: int = 1

    def cells(self) -> list[Cell]:
        combined = itertools.product(range(self.seeds), self.blocked, self.block_s, self.free_s)
        return [Cell(c, d, i, self.test_s, seed) for seed, c, d, i in combined]


class Cell(NamedTuple):
    blocked: int
    block_s: float
    free_s: float
    test_s: float
    seed: int


GRIDS: Mapping[str, Grid] = {
    "full": Grid(
        (1, 4, 8, 12, 16, 20, 24, 28, 32),
        (0.128, 0.512, 2.048, 8.192, 16.384, 32.768),
        (0.001, 0.004, 0.016, 0.064, 0.256, 1.024, 4.096, 16.384),
    ),
    "standard": Grid((4, 16, 32), (0.128, 2.048, 8.192, 32.768), (0.001, 0.256, 16.384)),
    "sample": Grid((4, 16, 32), (2.048, 16.384), (0.256,)),
    "quick": Grid((16,), (16.384,), (1.024,), test_s=40.0),
}  # fmt: skip


class CellResult(NamedTuple):
    """What one arm did in one cell."""

    arm: str
    cell: Cell
    false_positives: int
    healthy_false_positives: int
    messages: int
    bytes: int
    first_s: float | None  # from the true crash to the first DEAD; None: nobody noticed
    all_s: float | None  # until all healthy members had it


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmResult:
    """One arm over the whole grid, and beside it the same as parts of the SWIM arm (None: that one has 0)."""

    cells: int
    false_positives: int
    healthy_false_positives: int
    messages: int
    bytes: int
    first_s: float | None  # medians over the cells
    all_s: float | None
    missed: int  # true crashes that nobody noticed in time
    relative: Mapping[str, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeguardResult:
    grid: str
    cells: int
    wall_s: float
    arms: Mapping[str, ArmResult]

    def to_plain(self) -> dict[str, Any]:
        arms = {
            name: {**{field: getattr(arm, field) for field in ArmResult.__slots__}, "relative": dict(arm.relative)}
            for name, arm in self.arms.items()
        }
        return {"grid": self.grid, "cells": self.cells, "wall_s": self.wall_s, "members": MEMBERS, "arms": arms}


def run_cell(arm: str, cell: Cell, *, members: int | None = None) -> CellResult:
    """One arm in one cell."""
    plan = HerdPlan(
        units=members or MEMBERS, seconds=QUIET_S + cell.test_s, seed=cell.seed, pack=False, options=ARMS[arm]
    )
    herd = Herd(plan, timing=TIMING)
    herd.settle_in()
    dice = herd.kernel.stream("lifeguard", *map(str, cell))
    *chosen, victim = dice.sample(herd.names, cell.blocked + 1)
    for name in chosen:
        herd.units[name].healthy = False
    herd.run(QUIET_S)
    sent, size = herd.packets + herd.syncs, herd.bytes
    end_us = herd.kernel.now_us + round(cell.test_s * US)
    herd.kernel.after(cell.test_s * CRASH_SHARE, herd.crash, victim)
    _block(herd, chosen, cell, end_us)
    herd.kernel.run_to_us(end_us)
    watch = herd.watch
    messages, sent_bytes = herd.packets + herd.syncs - sent, herd.bytes - size
    false_positives, healthy = watch.subject_healthy, watch.healthy_false_positives
    death = watch.deaths[victim, 1]
    herd.run_until(lambda: death.all_us is not None, SETTLE_S, look_s=1.0)
    return CellResult(
        arm, cell, false_positives, healthy, messages, sent_bytes,
        _since(death.first_us, death.at_us), _since(death.all_us, death.at_us),
    )  # fmt: skip


def _since(us: int | None, began_us: int) -> float | None:
    return None if us is None else (us - began_us) / US


def _block(herd: Herd, chosen: list[str], cell: Cell, end_us: int) -> None:
    if herd.kernel.now_us >= end_us:
        return
    for name in chosen:
        herd.units[name].block()
    left_s = (end_us - herd.kernel.now_us) / US
    herd.kernel.after(min(cell.block_s, left_s), _free, herd, chosen, cell, end_us)


def _free(herd: Herd, chosen: list[str], cell: Cell, end_us: int) -> None:
    for name in chosen:
        herd.units[name].go_on()
    herd.kernel.after(cell.free_s, _block, herd, chosen, cell, end_us)


def _run(task: tuple[str, Cell]) -> CellResult:
    return run_cell(*task)


def run_lifeguard(
    grid: str = "standard", *, jobs: int = 1, seed: int = 0, progress: Callable[[int, int], object] | None = None
) -> LifeguardResult:
    """Runs all arms over a grid of `GRIDS`, in so many processes.

    Args:
        grid: its name.
        jobs: processes; 1: this one.
        seed: the first seed.
        progress: called with (done, of) after each run.
    """
    began = time.perf_counter()
    cells = [cell._replace(seed=cell.seed + seed) for cell in GRIDS[grid].cells()]
    tasks = [(arm, cell) for cell in cells for arm in ARMS]
    results: list[CellResult] = []
    if jobs <= 1:
        runs: Iterable[CellResult] = map(_run, tasks)
        _gather(runs, results, len(tasks), progress)
    else:
        # Longest first, so that no process is left alone with the last ones.
        tasks.sort(key=lambda task: (task[1].blocked, task[1].block_s), reverse=True)
        with workers(jobs) as pool:
            _gather(pool.imap_unordered(_run, tasks), results, len(tasks), progress)
    return LifeguardResult(
        grid=grid, cells=len(cells), wall_s=round(time.perf_counter() - began, 1), arms=summed(results)
    )  # fmt: skip


def _gather(
    runs: Iterable[CellResult], into: list[CellResult], of: int, progress: Callable[[int, int], object] | None
) -> None:
    for result in runs:
        into.append(result)
        if progress is not None:
            progress(len(into), of)


def summed(results: Iterable[CellResult]) -> dict[str, ArmResult]:
    """Each arm over all its cells, and in parts of the SWIM arm."""
    by_arm: dict[str, list[CellResult]] = {arm: [] for arm in ARMS}
    for result in results:
        by_arm[result.arm].append(result)
    base = _totals(by_arm["SWIM"])
    return {arm: _arm(rows, base) for arm, rows in by_arm.items() if rows}


COUNTED = ("false_positives", "healthy_false_positives", "messages", "bytes")


def _totals(rows: list[CellResult]) -> dict[str, float | None]:
    counted: dict[str, float | None] = {name: sum(getattr(row, name) for row in rows) for name in COUNTED}
    for name in ("first_s", "all_s"):
        values = [value for row in rows if (value := getattr(row, name)) is not None]
        counted[name] = median(values) if values else None
    return counted


def _arm(rows: list[CellResult], base: Mapping[str, float | None]) -> ArmResult:
    totals = _totals(rows)
    relative: dict[str, float | None] = {}
    for name, value in totals.items():
        of = base[name]
        relative[name] = round(value / of, 4) if value is not None and of else None
    missed = sum(1 for row in rows if row.first_s is None)
    return ArmResult(cells=len(rows), missed=missed, relative=relative, **totals)  # type: ignore[arg-type]
