"""A herd: thousands of units in virtual time, each with the real membership and the real succession of one pack.

    plan = HerdPlan(units=1000, seconds=60, crash=0.2)
    result = run_herd(plan)
    result.all_know_s["p50"]

Everything is drawn from the plan's seed: the same plan gives the same trace hash, in any process. The parts:
`herd_plan` (records), `herd_world` (`Herd`), `herd_unit` (one unit), `herd_pack` and `herd_keeper` (leadership),
`herd_faults` (menus), `herd_watch` (the truth, figures and promises), `herd_picture`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from wolfpack.sim.herd_faults import Faults
from wolfpack.sim.herd_plan import HerdPlan, HerdResult
from wolfpack.sim.herd_watch import share_at
from wolfpack.sim.herd_world import Herd
from wolfpack.sim.kernel import US

__all__ = ["Herd", "HerdPlan", "HerdResult", "crash_share", "run_herd"]

CRASH_AT = 1 / 6  # of the run: then a share of all crashes at once


def run_herd(plan: HerdPlan, *, each_s: float = 0.0, look: Callable[[Herd], object] | None = None) -> HerdResult:
    """Runs the plan.

    Args:
        plan: what happens.
        each_s, look: `look(herd)` is called so often and at the end of the plan's time, for pictures.

    Raises:
        CallerError: the plan makes no sense.
    """
    began = time.perf_counter(), time.process_time()
    herd = Herd(plan)
    faults = Faults(herd)
    faults.begin()
    if look is not None and each_s:
        _look_on(herd, look, each_s)
    equal_s: float | None = None
    if plan.crash:
        herd.run(plan.seconds * CRASH_AT)
        crash_share(herd, plan.crash)
        equal_s = herd.run_until(herd.views_equal, plan.seconds * (1 - CRASH_AT))
    herd.kernel.run_to_us(round(plan.seconds * US))
    result = _result(herd, equal_s, began)
    faults.end()
    calm_s = herd.come_to_rest()
    herd.watch.at_the_end()
    herd.watch.ask_for_peace()
    violations = herd.watch.violations
    return replace(
        result, calm_s=_rounded(calm_s), violations=sum(violations.values()), violated=dict(violations),
        story=tuple(herd.watch.story), trace_hash=herd.trace_hash(),
    )  # fmt: skip


def crash_share(herd: Herd, share: float) -> list[str]:
    """Crashes this share of the living at once, at least one; returns who."""
    names = [unit.name for unit in herd.alive]
    count = min(len(names) - 1, max(1, round(share * len(names))))
    chosen = herd.kernel.stream("crash").sample(names, count)
    for name in chosen:
        herd.crash(name)
    return chosen


def _look_on(herd: Herd, look: Callable[[Herd], object], each_s: float) -> None:
    look(herd)
    left_s = herd.plan.seconds - herd.kernel.now
    if left_s > 0:  # the last look is at the end; each comes later than the one before
        herd.kernel.after_us(max(1, round(min(each_s, left_s) * US)), _look_on, herd, look, each_s)


def _result(herd: Herd, equal_s: float | None, began: tuple[float, float]) -> HerdResult:
    watch, plan, office = herd.watch, herd.plan, herd.office
    virtual_s = herd.kernel.now
    messages = herd.packets + herd.syncs
    firsts, alls = watch.firsts_s(), watch.alls_s()
    crashed = sum(1 for death in watch.deaths.values() if not death.left)
    full = len(alls) == crashed
    return HerdResult(
        units=plan.units, virtual_s=virtual_s, wall_s=round(time.perf_counter() - began[0], 3),
        cpu_s=round(time.process_time() - began[1], 3), messages=messages, bytes=herd.bytes,
        howls=office.howls if office is not None else 0,
        messages_per_unit_s=round(messages / virtual_s / plan.units, 3),
        violations=0, alpha_changes=max(0, len(office.keeper.grants) - 1) if office is not None else 0, crashed=crashed,
        first_dead_s=_spread(firsts), all_know_s=_spread(alls), views_equal_s=_rounded(equal_s),
        spread_9999_s=_rounded(watch.since_first_s(0.9999)),
        rounds=_rounded(max(alls) / herd.timing.probe_s) if alls and full else None,
        false_positives=watch.false_positives, healthy_false_positives=watch.healthy_false_positives,
        load_age_s=_spread(herd.load_ages_s() if plan.busy else []), seed=plan.seed, profile=plan.profile,
    )  # fmt: skip


def _spread(values: list[float]) -> dict[str, float | None]:
    return {"p50": _rounded(share_at(values, 0.5)), "p99": _rounded(share_at(values, 0.99))}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
