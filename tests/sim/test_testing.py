"""The public face: what users write in their own tests."""

import re
from pathlib import Path

import pytest

from wolfpack.core.book.tasks import TaskDesk
from wolfpack.errors import UnknownName
from wolfpack.testing import ALPHA, Draft, Fault, FaultKind, World, keep_promises, plan_for, task, wolves

ROOT = Path(__file__).parents[2]
PACK_YAML = ROOT / "pack.yaml"


def test_a_den_described_by_a_file_keeps_its_promises_whatever_fails() -> None:
    plan = plan_for(PACK_YAML, tasks=[0.2] * 30, seconds=20.0, seed=3)
    assert len(plan.faults) >= 2
    result = keep_promises(plan)
    assert (30, None) == (result.submitted, result.violation)


def test_a_schedule_of_ones_own_is_played() -> None:
    crash = Fault(at_us=1_000_000, kind=FaultKind.CRASH, targets=(ALPHA,))
    plan = plan_for(PACK_YAML, tasks=[Draft(seconds=0.5, ends=("FAULT", "DONE"))] * 3, seconds=5.0, faults=[crash])
    result = keep_promises(plan)
    assert (1, 3) == (result.faults, result.done)


def test_a_broken_promise_is_told_with_its_seed_and_its_story(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskDesk, "_ghost", lambda *args: None)
    monkeypatch.setattr(TaskDesk, "_end_done", lambda *args: None)  # results vanish
    with pytest.raises(AssertionError, match=r"(?s)Seed 5 broke a promise.*1 tasks.*The last that happened") as broken:
        keep_promises(plan_for(PACK_YAML, tasks=[0.1] * 3, seconds=3.0, seed=5, menu="calm"))
    assert "wall" not in str(broken.value)


def test_unknown_menus_and_packs_are_refused_by_name() -> None:
    with pytest.raises(UnknownName, match="crashs"):
        plan_for(PACK_YAML, menu="crashs")
    with pytest.raises(UnknownName, match="computin"):
        plan_for(PACK_YAML, pack="computin")


def test_a_world_can_be_steered_by_hand() -> None:
    from wolfpack.model import PackSpec

    world = World(cards=wolves(2), packs=[PackSpec(name="p", most=2)])
    ids = world.submit("p", [task(0.5)] * 4)
    assert world.run_until(lambda: world.alpha("p"), 5.0)
    world.crash(world.alpha("p") or "")
    world.settle()
    assert world.done(ids)


def test_the_tests_that_the_manual_shows_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    manual = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(from wolfpack\.testing .*?)```", manual, re.DOTALL)
    monkeypatch.chdir(ROOT)
    names: dict[str, object] = {}
    exec(code, names)
    shown = [each for name, each in names.items() if name.startswith("test_") and callable(each)]
    assert len(shown) == 2
    for one in shown:
        one()
