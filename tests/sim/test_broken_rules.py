"""Rules broken on purpose are found by the checks, and the schedule that shows it is made small and told."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.sim.dens import batch, fault, plan, start
from wolfpack.core.book.book import Book
from wolfpack.core.book.tasks import TaskDesk
from wolfpack.core.book.terms import TermDesk
from wolfpack.core.book.units import UnitDesk
from wolfpack.core.member import Brain
from wolfpack.core.membership import Membership
from wolfpack.core.rows import Writes
from wolfpack.core.succession import Succession
from wolfpack.core.view import View
from wolfpack.core.wire import Turn
from wolfpack.errors import Deposed
from wolfpack.sim.checks import BrokenPromise
from wolfpack.sim.den_run import play
from wolfpack.sim.faults import ALPHA, FaultKind, draw_faults
from wolfpack.sim.plan import DenPlan
from wolfpack.sim.shrink import shrink, smallest
from wolfpack.sim.story import tell

K = FaultKind
Patch = pytest.MonkeyPatch


def accept_deposed_alphas(patch: Patch) -> None:
    """The keeper takes turns of any term."""
    turn_of = TermDesk.turn

    def careless(self: Any, at: Any, turn: Any) -> None:
        try:
            turn_of(self, at, turn)
        except Deposed:
            self._take_members(at, turn.members)
            self._note(self._packs[turn.pack])

    patch.setattr(TermDesk, "turn", careless)


def grant_lease_numbers_twice(patch: Patch) -> None:
    lease_of = TaskDesk._lease

    def careless(self: Any, at: Any, pack: Any, unit: Any, task: Any, seq: int) -> Any:
        job = lease_of(self, at, pack, unit, task, seq)
        if self._journal.last_lease_no % 7 == 0:
            self._journal.last_lease_no -= 1
        return job

    patch.setattr(TaskDesk, "_lease", careless)


def settle_any_report(patch: Patch) -> None:
    """Late results overwrite what is final."""
    finish = TaskDesk._finish

    def careless(self: Any, task: Any) -> None:
        finish(self, task)
        if self._journal.last_settle_no % 9 == 0:
            self._journal.note_final(task)
            self._journal.tasks[task.id] = task

    patch.setattr(TaskDesk, "_finish", careless)


def forget_a_queued_task(patch: Patch) -> None:
    submit_of = Book.submit

    def careless(self: Any, at: Any, submit: Any, known: Any) -> Any:
        acks = submit_of(self, at, submit, known)
        self.tasks.counts[submit.pack]["queued"] -= 1
        return acks

    patch.setattr(Book, "submit", careless)


def crown_without_a_grant(patch: Patch) -> None:
    step_of = Succession._on_tick

    def careless(self: Any, now: float) -> None:
        step_of(self, now)
        if self.role == "pretender":
            self._claimed = True
            self._on_granted(now, self.term + 1)

    patch.setattr(Succession, "_on_tick", careless)


def never_lose_a_unit(patch: Patch) -> None:
    """The keeper takes the dead for awake."""
    patch.setattr(UnitDesk, "lose", lambda *args: False)


def raise_something(patch: Patch) -> None:
    patch.setattr(Brain, "_on_running", lambda self, seconds: 1 // 0)


def raise_the_counters_of_others(patch: Patch) -> None:
    put = View.put
    patch.setattr(View, "put", lambda self, member: put(self, member._replace(counter=member.counter + 7)))


def let_views_go_back(patch: Patch) -> None:
    put = View.put
    patch.setattr(View, "put", lambda self, member: put(self, member._replace(counter=max(0, member.counter - 1))))


def grant_more_than_asked(patch: Patch) -> None:
    grant_of = TaskDesk.grant

    def careless(self: Any, at: Any, pack: Any, parked: Any) -> Any:
        asks = parked.asks
        parked.asks = {unit: ask + 5 for unit, ask in asks.items()}
        try:
            return grant_of(self, at, pack, parked)
        finally:
            parked.asks = asks

    patch.setattr(TaskDesk, "grant", careless)


def take_a_term_back(patch: Patch) -> None:
    vacate = TermDesk.vacate

    def careless(self: Any, at: Any, pack: Any, reason: str) -> None:
        vacate(self, at, pack, reason)
        pack.term -= 1

    patch.setattr(TermDesk, "vacate", careless)


def grant_a_term_twice(patch: Patch) -> None:
    claim_of = TermDesk.claim

    def careless(self: Any, at: Any, claim: Any) -> Any:
        verdict = claim_of(self, at, claim)
        pack = self._packs[claim.pack]
        if verdict.granted and pack.term > 1:
            pack.term -= 1
            return self._grant(pack)
        return verdict

    patch.setattr(TermDesk, "claim", careless)


def wake_an_older_boot(patch: Patch) -> None:
    wake = UnitDesk.wake

    def careless(self: Any, at: Any, unit: Any, pack: Any, reason: str) -> None:
        unit.boot -= 2 if unit.boot > 0 else 0
        wake(self, at, unit, pack, reason)

    patch.setattr(UnitDesk, "wake", careless)


def refuse_all_claims_but_the_first(patch: Patch) -> None:
    claim_of = TermDesk.claim

    def careless(self: Any, at: Any, claim: Any) -> Any:
        pack = self._packs[claim.pack]
        return claim_of(self, at, claim) if pack.term == 0 else self._refuse(pack, "no")

    patch.setattr(TermDesk, "claim", careless)


def lease_nothing_after_a_while(patch: Patch) -> None:
    grant_of = TaskDesk.grant
    patch.setattr(
        TaskDesk, "grant", lambda self, at, pack, parked: grant_of(self, at, pack, parked) if at.mono < 7.0 else {}
    )


def send_long_packets(patch: Patch) -> None:
    message = Membership._send
    patch.setattr(Membership, "_send", lambda self, to, head, unit=None: message(self, to, head + bytes(1500), unit))


TROUBLE = (
    fault(3.0, K.PAUSE, ALPHA, for_s=2.5),
    fault(8.0, K.FALSE_DEATH, "grey-0"),
    batch(2.0, *[0.2] * 20),
    batch(8.0, *[0.2] * 20),
)


@pytest.mark.parametrize(
    ("rule", "promise"),
    [
        (accept_deposed_alphas, "I3"),
        (grant_lease_numbers_twice, "I7"),
        (settle_any_report, "I5"),
        (forget_a_queued_task, "I13"),
        (crown_without_a_grant, "I6"),
        (never_lose_a_unit, "L2"),
        (raise_something, "bug"),
        (raise_the_counters_of_others, "I9"),
        (let_views_go_back, "I10"),
        (send_long_packets, "I11"),
        (grant_more_than_asked, "I12"),
        (take_a_term_back, "I2"),
        (grant_a_term_twice, "I4"),
        (wake_an_older_boot, "I8"),
        (refuse_all_claims_but_the_first, "L1"),
        (lease_nothing_after_a_while, "L6"),
    ],
)
def test_a_broken_rule_is_found(monkeypatch: Patch, rule: Callable[[Patch], None], promise: str) -> None:
    trouble = (*TROUBLE, fault(9.0, K.SILENT_CRASH, "grey-1"), fault(12.0, K.CRASH, ALPHA))
    whole = plan(*trouble, units=4)
    assert None is play(whole).violation
    rule(monkeypatch)
    violation = play(whole).violation
    assert violation is not None
    assert promise == violation.promise, violation.text


def noise(seed: int) -> DenPlan:
    """A dozen faults and five batches, among them one that shows what is broken."""
    rng = random.Random(seed)
    faults = draw_faults(rng, "crashes", units=["grey-0", "grey-1"], packs=["a"], seconds=12.0, every_s=2.0)
    batches = [batch(2.0 * no, *[0.2] * 20) for no in range(1, 5)]
    return plan(*faults, fault(3.0, K.PAUSE, ALPHA, for_s=2.5), *batches, units=4, seconds=14.0)


def test_a_deposed_alphas_turn_is_found_among_other_faults_shrunk_and_told(monkeypatch: Patch) -> None:
    accept_deposed_alphas(monkeypatch)
    whole = noise(11)
    assert len(whole.faults) >= 6
    small, result = shrink(whole, play(whole), within_s=100.0)
    assert [K.PAUSE] == [each.kind for each in small.faults]
    assert 2 >= sum(len(each.tasks) for each in small.batches)
    assert small.seconds < whole.seconds
    text = tell(small, result)
    assert "Seed 1 broke a promise" in text
    assert "I3: " in text
    assert "3.000 s: pause the alpha for 2.5 s" in text
    assert "AlphaCrowned" in text
    assert result == replace(play(small), wall_s=result.wall_s)


def test_a_lease_number_granted_twice_is_shrunk_to_tasks_alone(monkeypatch: Patch) -> None:
    grant_lease_numbers_twice(monkeypatch)
    whole = noise(2)
    small, result = shrink(whole, play(whole), within_s=100.0)
    assert () == small.faults
    assert 8 >= sum(len(each.tasks) for each in small.batches)
    assert "I7: lease" in tell(small, result)


def test_a_run_that_kept_its_promises_cannot_be_shrunk() -> None:
    whole = plan(batch(1.0, 0.1), seconds=2.0)
    result = play(whole)
    assert "all promises held" in tell(whole, result)
    with pytest.raises(ValueError, match="nothing to shrink"):
        shrink(whole, result)


@pytest.mark.parametrize(
    ("needed", "trials"), [({3}, 20), ({3, 17}, 40), (set(range(20)), 60), ({0, 1, 2}, 60), ({19}, 20)]
)
def test_delta_debugging_leaves_what_is_needed_and_nothing_else(needed: set[int], trials: int) -> None:
    tried = []

    def fails(items: list[int]) -> bool:
        tried.append(items)
        return needed <= set(items)

    assert sorted(needed) == smallest(list(range(20)), fails)
    assert len(tried) <= trials


def test_two_writers_of_one_term_are_found() -> None:
    world = start().world
    turns = [Turn("a", 1, unit, 1, 99, (), (), (), 0, (), None, 0) for unit in ("grey-0", "grey-1")]
    with pytest.raises(BrokenPromise, match="I1: term 1 of a was written by"):
        world.checks.on_commit(world.keeper, Writes(), turns, {})


def test_two_boots_that_both_live_when_all_is_quiet_are_found(monkeypatch: Patch) -> None:
    run = start(fault(2.5, K.FALSE_DEATH, "grey-0"))
    monkeypatch.setattr(type(run.world), "end_process", lambda *args, **kwargs: None)
    monkeypatch.setattr(Brain, "_end", lambda self, reason: [])
    run.world.run(1.0)
    with pytest.raises(AssertionError, match="I8: a process lives whose boot is void"):
        run.come_to_rest()
