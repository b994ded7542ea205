"""Plays one plan: faults while it lasts, then calm, and then everything that must come true once faults stop.

All promises are looked after at every step (`checks`); what is judged here, after the calm, is liveness: one alpha
that everybody follows (L1), every death known (L2), every acknowledged task settled (L6), no process left whose boot is
void. The words of L3 and L4 stand in `den_gossip`.
"""

from __future__ import annotations

import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from wolfpack.core.member import CHECK_IN
from wolfpack.model import Readiness, TaskState, Timing
from wolfpack.sim.checks import BrokenPromise
from wolfpack.sim.den import CALL_S, World
from wolfpack.sim.den_gossip import views_bound_s, views_true, wrong_views
from wolfpack.sim.den_trouble import REBORN_S, Trouble
from wolfpack.sim.kernel import US, to_us
from wolfpack.sim.plan import Batch, DenPlan, draw_plan

SETTLE_S = 240.0  # clocks may have jumped back by three minutes: what is delayed waits for them
LOOK_S = 0.05  # what must come true is looked at so often
LAST_LINES = 40  # of the story


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A promise that did not hold.

    Attributes:
        promise: its name in DESIGN, such as "I4" or "L1"; "bug" where the core raised something.
        text: what was found.
        at_s: virtual seconds since the start.
        story: the last lines of what happened, one a line.
    """

    promise: str
    text: str
    at_s: float
    story: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DenResult:
    """What came of one run. `violation` None: all promises held."""

    seed: int
    units: int
    virtual_s: float
    wall_s: float
    steps: int  # events of the kernel
    messages: int  # one-way messages between units
    packets: int  # of these: membership's
    bytes: int  # of these packets
    commits: int
    faults: int  # that happened
    submitted: int
    done: int
    dead: int
    cancelled: int
    alpha_changes: int
    trace_hash: str
    violation: Violation | None = None

    def to_plain(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def run_den(
    *,
    units: int | None = None,
    seconds: float = 120.0,
    seed: int = 0,
    menu: str = "all",
    profile: str = "ray",
    crash: float = 0.0,
    loss: float = 0.0,
) -> DenResult:
    """Draws a plan from the seed and plays it; see `plan.draw_plan` for the arguments."""
    return play(draw_plan(seed, units=units, seconds=seconds, menu=menu, profile=profile, crash=crash, loss=loss))


def play(plan: DenPlan) -> DenResult:
    """Plays a plan to its end, or to the first broken promise. Whatever the core raises is a broken promise too."""
    began = time.perf_counter()
    violation = None
    run = Run(plan)
    try:
        run.play()
    except BrokenPromise as exc:
        violation = run.violation(exc.promise, str(exc))
    except Exception as exc:
        where = traceback.extract_tb(exc.__traceback__)[-1]
        text = f"{type(exc).__name__}: {exc} ({where.filename.rpartition('/')[2]}:{where.lineno})"
        violation = run.violation("bug", text)
    return run.result(time.perf_counter() - began, violation)


class Run:
    """One play of a plan; `world` can be looked at afterwards."""

    def __init__(self, plan: DenPlan) -> None:
        self.plan = plan
        self.world = World(
            cards=plan.cards, packs=plan.packs, seed=plan.seed, timing=plan.timing, birth_s=plan.birth_s,
            gossips=plan.gossips,
        )  # fmt: skip
        for batch in plan.batches:
            self.world.kernel.at_us(batch.at_us, self._submit, batch)
        self.trouble = Trouble(self.world, plan.faults)

    def _submit(self, batch: Batch) -> None:
        # Without what is not said: the client fills that in.
        tasks = [{name: value for name, value in asdict(draft).items() if value is not None} for draft in batch.tasks]
        self.world.submit(batch.pack, tasks, batch.client)

    def play(self) -> None:
        """Raises BrokenPromise at the first promise that does not hold."""
        self.world.run(self.plan.seconds)
        self.come_to_rest()

    def come_to_rest(self) -> None:
        world, timing = self.world, self.plan.timing
        self.trouble.end()
        if not world.run_until(lambda: world.keeper.up, 2 * REBORN_S + 3.0):
            raise BrokenPromise("L1", "no keeper came back")
        self._must("L1", "a pack has no alpha that all its members follow", self._led, leader_bound_s(timing))
        self._must("L6", "an acknowledged task did not settle", world.settled, settle_bound_s(self.plan))
        self._must("L2", "a dead unit is still taken for awake", self._deaths_known, loss_bound_s(timing))
        self._must("I8", "a process lives whose boot is void", self._voids_ended, void_bound_s(timing))
        if self.plan.gossips:
            self._must("L4", "views of who lives are wrong", lambda: views_true(world), views_bound_s(timing))
        world.checks.at_rest(world)

    def _must(self, promise: str, text: str, condition: Callable[[], bool], within_s: float) -> None:
        world = self.world
        end_us = world.kernel.now_us + to_us(within_s)
        while not condition():
            if world.kernel.now_us >= end_us:
                state = wrong_views(world) if promise == "L4" else self._state()
                raise BrokenPromise(promise, f"{text} {within_s:g} s after the faults stopped: {state}")
            world.run(LOOK_S)

    def _led(self) -> bool:
        """Whether all members of each pack follow the alpha whom the ledger names; who is about to leave need not."""
        world = self.world
        for name, pack in world.book.packs.items():
            for unit in world.book.desk.members.get(name, {}).values():
                process = world.processes.get((unit.id, unit.boot))
                if process is None or process.dead or process.brain is None or process.brain.pack != name:
                    continue
                if process.brain.is_leaving:
                    continue
                succession = process.brain.succession
                if succession is None or (succession.term, pack.alpha) != (pack.term, succession.alpha or pack.alpha):
                    return False
                alpha = world.processes.get((pack.alpha or "", pack.alpha_boot))
                if alpha is None or alpha.dead or alpha.brain is None or alpha.brain.alpha is None:
                    return False
        return True

    def _deaths_known(self) -> bool:
        world = self.world
        for unit in world.book.units.values():
            if unit.readiness in (Readiness.AWAKE, Readiness.DRAINING):
                process = world.processes.get((unit.id, unit.boot))
                if process is None or process.dead:
                    return False
        return True

    def _voids_ended(self) -> bool:
        world = self.world
        for (unit, boot), process in world.processes.items():
            if not process.dead and process.brain is not None:
                row = world.book.units[unit]
                if (row.boot, row.pack) != (boot, process.brain.pack):
                    return False
        return True

    def _state(self) -> str:
        world = self.world
        units = ", ".join(
            f"{unit.id}#{unit.boot} {unit.readiness} in {unit.pack or 'no pack'}" for unit in world.book.units.values()
        )
        packs = ", ".join(f"{pack.name}: term {pack.term} {pack.alpha}" for pack in world.book.packs.values())
        open_tasks = ", ".join(
            f"{row.mutable.id} {row.mutable.state} {row.mutable.unit}"
            for row in world.disk_rows(sorted(world.pending())[:5])
        )
        return f"{units}; {packs}; open tasks: {open_tasks or 'none'}"

    # --- what came of it ----------------------------------------------------------------------------------------

    def violation(self, promise: str, text: str) -> Violation:
        return Violation(promise=promise, text=text, at_s=self.world.now, story=self.story(LAST_LINES))

    def story(self, most: int) -> tuple[str, ...]:
        """The last lines of what happened: when, who, what."""
        lines = list(self.world.story)[-most:]
        return tuple(f"{us / US:10.3f}  {who:12}  {what}" for us, who, what in lines)

    def result(self, wall_s: float, violation: Violation | None) -> DenResult:
        world = self.world
        states = Counter(row.mutable.state for row in world.disk.tasks.values())
        return DenResult(
            seed=self.plan.seed, units=len(self.plan.cards), virtual_s=world.now, wall_s=round(wall_s, 3),
            steps=world.kernel.steps, messages=world.network.sent, packets=world.packets,
            bytes=world.packet_bytes, commits=world.disk.commit_no,
            faults=self.trouble.happened, submitted=len(world.disk.tasks), done=states[TaskState.DONE],
            dead=states[TaskState.DEAD], cancelled=states[TaskState.CANCELLED],
            alpha_changes=world.checks.alpha_changes, trace_hash=world.kernel.trace_hash, violation=violation,
        )  # fmt: skip


# --- bounds -------------------------------------------------------------------------------------------------------


def settle_bound_s(plan: DenPlan) -> float:
    """L6: as if all tasks ran one after the other from then on, and what waiting for clocks may add."""
    attempts = {pack.name: pack.retry.max_attempts for pack in plan.packs}
    return SETTLE_S + sum(draft.longest_s(attempts[batch.pack]) for batch in plan.batches for draft in batch.tasks)


def leader_bound_s(timing: Timing) -> float:
    """L1: one alpha that everybody follows, so long after faults stopped."""
    return 6 * timing.silence_s


def loss_bound_s(timing: Timing) -> float:
    """L2 for the keeper, of a unit whose death nobody tells: its silence (three leases, at least 15 s) and a second."""
    return max(3 * timing.lease_s, 15.0) + 1.0


def void_bound_s(timing: Timing) -> float:
    """How long a process can live that nobody wants and nobody told: till it checks in, and a call or two more."""
    return CHECK_IN * timing.lease_s + 2 * CALL_S
