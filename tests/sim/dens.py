"""Small plans for tests of the simulated den."""

from __future__ import annotations

from typing import Any

from wolfpack.model import PackSpec, Timing
from wolfpack.sim.den import wolves
from wolfpack.sim.den_run import Run
from wolfpack.sim.faults import Fault, FaultKind
from wolfpack.sim.kernel import to_us
from wolfpack.sim.plan import NEVER_DEAD, Batch, DenPlan, Draft

# Quick, but with the proportions of the profile `ray`.
QUICK = Timing(
    name="quick", heartbeat_s=0.1, silence_s=0.4, answer_s=0.12, lease_s=2.0, probe_s=0.2, ack_s=0.08, gossip_s=0.08,
    sync_s=4.0,
)  # fmt: skip


def fault(at_s: float, kind: FaultKind, *targets: str, for_s: float = 0.0, amount: float = 0.0) -> Fault:
    return Fault(at_us=to_us(at_s), kind=kind, targets=targets, for_us=to_us(for_s), amount=amount)


def batch(at_s: float, *seconds: float, pack: str = "a", client: str = "c") -> Batch:
    tasks = tuple(Draft(seconds=each) for each in seconds)
    return Batch(at_us=to_us(at_s), client=client, pack=pack, tasks=tasks)


def plan(*items: Fault | Batch, units: int = 3, seconds: float = 20.0, **fields: Any) -> DenPlan:
    """Wolves that all stay in pack `a`, and what happens to them."""
    fields = {"seed": 1, "timing": QUICK, "birth_s": 0.05, **fields}
    packs = (PackSpec(name="a", fewest=units, most=units, retry=NEVER_DEAD),)
    return DenPlan(
        seconds=seconds, cards=tuple(wolves(units, awake_min=units)), packs=packs,
        faults=tuple(item for item in items if isinstance(item, Fault)),
        batches=tuple(item for item in items if isinstance(item, Batch)), **fields,
    )  # fmt: skip


def start(*items: Fault | Batch, until_s: float = 2.0, **fields: Any) -> Run:
    """A run of such a plan, two seconds in: by then all lead or follow."""
    run = Run(plan(*items, **fields))
    run.world.run(until_s - run.world.now)
    return run
