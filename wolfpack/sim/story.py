"""What a broken promise looks like to a person: the promise, the seed, what led to it, and the last lines."""

from __future__ import annotations

from wolfpack.sim.den_run import DenResult
from wolfpack.sim.kernel import US
from wolfpack.sim.plan import Batch, DenPlan


def tell(plan: DenPlan, result: DenResult) -> str:
    """The story of a run that broke a promise, as text of many lines; of any other, one line."""
    violation = result.violation
    if violation is None:
        return f"Seed {plan.seed}: all promises held for {result.virtual_s:.0f} virtual seconds."
    happenings = [(fault.at_us, f"fault   {fault}") for fault in plan.faults]
    happenings += [(batch.at_us, f"submit  {_tell_batch(batch)}") for batch in plan.batches]
    units = ", ".join(card.unit for card in plan.cards)
    return "\n".join([
        f"Seed {plan.seed} broke a promise after {violation.at_s:.3f} virtual seconds.",
        f"  {violation.text}",
        f"Units: {units}. Packs: {', '.join(pack.name for pack in plan.packs)}. Profile: {plan.timing.name}.",
        f"What led to it ({len(plan.faults)} faults, {sum(len(batch.tasks) for batch in plan.batches)} tasks):",
        *(f"  {text}" for _, text in sorted(happenings)),
        "The last that happened:",
        *(f"  {line}" for line in violation.story),
    ])  # fmt: skip


def _tell_batch(batch: Batch) -> str:
    tasks = ", ".join(f"{draft.seconds:g} s {'/'.join(draft.ends)}" for draft in batch.tasks[:4])
    more = f" and {len(batch.tasks) - 4} more" if len(batch.tasks) > 4 else ""
    return f"{batch.at_us / US:.3f} s: {batch.client} to {batch.pack}: {tasks}{more}"
