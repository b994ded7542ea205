"""The public face: what users write in their own tests."""

import re
from pathlib import Path
from typing import Any

import pytest

from wolfpack.core.book.tasks import TaskDesk
from wolfpack.errors import CallerError, UnknownName
from wolfpack.testing import (
    ALPHA,
    DenPlan,
    Draft,
    Fault,
    FaultKind,
    World,
    draw_plan,
    keep_promises,
    load,
    plan_for,
    save,
    task,
    wolves,
)  # fmt: skip

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


@pytest.mark.parametrize("tasks", [[-1], [float("nan")], [float("inf")], ["x"], [None]], ids=str)
def test_a_task_that_takes_no_time_one_can_think_of_is_refused(tasks: list[float]) -> None:
    with pytest.raises(CallerError, match="number of seconds"):
        plan_for(PACK_YAML, tasks=tasks)


def test_an_end_that_no_attempt_can_have_is_refused_with_those_that_exist() -> None:
    with pytest.raises(UnknownName, match=r"WAT.*CRASH.*DONE.*KILL"):
        Draft(ends=("WAT",))
    for nothing in ((), "DONE"):
        with pytest.raises(CallerError, match="tuple"):
            Draft(ends=nothing)  # type: ignore[arg-type]


@pytest.mark.parametrize("needs", [{"gpu"}, ["gpu"], {"gpu": True}, '["gpu"]'])
def test_needs_of_a_task_are_given_as_to_a_pack(needs: Any) -> None:
    assert '{"gpu": true}' == Draft(needs=needs).needs


@pytest.mark.parametrize("fields", [{"needs": 0}, {"needs": "gpu"}, {"needs": {"gpu": "no"}}, {"key": []}, {"key": ""}])
def test_a_key_or_needs_that_cannot_be_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(CallerError, match=f"The {next(iter(fields))} of a task must be"):
        Draft(**fields)


def test_a_kind_of_fault_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(UnknownName, match="pause"):
        Fault(at_us=0, kind="PAUSE")  # type: ignore[arg-type]
    assert FaultKind.PAUSE is Fault(at_us=0, kind="pause").kind  # type: ignore[arg-type]


def test_a_task_that_takes_longer_than_the_faults_is_no_broken_promise() -> None:
    result = keep_promises(plan_for(PACK_YAML, tasks=[300.0], menu="calm", seconds=20.0))
    assert 1 == result.done


@pytest.mark.parametrize(
    ("field", "value"),
    [("sync_s", 0.0), ("probe_s", 1e-9), ("answer_s", -1.0), ("helpers", None), ("fan_out", 2.5), ("lease_s", [None])],
)
def test_a_file_with_times_that_no_den_can_live_by_is_no_plan(tmp_path: Path, field: str, value: object) -> None:
    plain = plan_for(PACK_YAML, tasks=[0.1], seconds=20.0).to_plain()
    plain["timing"][field] = value
    with pytest.raises(ValueError, match=f"{field} of a timing must be"):
        DenPlan.from_plain(plain)


def test_a_file_that_lies_too_many_levels_deep_is_no_plan(tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match="no JSON"):
        load(tmp_path / "deep.json")


@pytest.mark.parametrize("seconds", [-3.0, 0.0, float("nan"), 1e9])
def test_a_plan_that_lasts_no_time_one_can_wait_for_is_refused(seconds: float) -> None:
    for make in (lambda: plan_for(PACK_YAML, seconds=seconds), lambda: draw_plan(1, seconds=seconds)):
        with pytest.raises(CallerError, match="more than 0 and at most"):
            make()


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Fault(at_us=0, kind=FaultKind.CRASH, targets=("unit-99",)), "unit named 'unit-99'"),
        (Fault(at_us=0, kind=FaultKind.CRASH), "nobody"),
        (Fault(at_us=0, kind=FaultKind.SPLIT, targets=(ALPHA,), others=("grey-1",)), "unit named 'the alpha'"),
        (Fault(at_us=0, kind=FaultKind.SPLIT, targets=("grey-1",), others=("unit-99",)), "unit named 'unit-99'"),
        (Fault(at_us=0, kind=FaultKind.SCALE, targets=("computin",), amount=1.0), "pack named 'computin'"),
        (Fault(at_us=0, kind=FaultKind.KEEPER_CRASH, targets=("grey-1",)), "no targets"),
        (Fault(at_us=0, kind=FaultKind.LOSS, for_us=1_000_000), "needs an amount above 0"),
        (Fault(at_us=0, kind=FaultKind.SLOW, targets=("grey-1",), for_us=1_000_000), "needs an amount above 0"),
        (Fault(at_us=0, kind=FaultKind.CLOCK_RATE, targets=("grey-1",)), "needs an amount above 0"),
        (Fault(at_us=0, kind=FaultKind.CLOCK_RATE, targets=("grey-1",), amount=1e-9), "times as fast"),
        (Fault(at_us=0, kind=FaultKind.CLOCK_JUMP, targets=("grey-1",)), "does nothing with amount 0"),
        (Fault(at_us=61_000_000, kind=FaultKind.KEEPER_CRASH), "within the 60 s"),
        (Fault(at_us=-1, kind=FaultKind.KEEPER_CRASH), "within the 60 s"),
        (Fault(at_us=0, kind=FaultKind.KEEPER_JUMP, amount=float("nan")), "finite"),
    ],
)
def test_a_fault_that_would_test_nothing_is_refused(fault: Fault, said: str) -> None:
    with pytest.raises(CallerError, match=said):
        plan_for(PACK_YAML, tasks=[0.1], faults=[fault])


def test_a_plan_is_kept_in_a_file_and_the_wrong_order_is_told(tmp_path: Path) -> None:
    plan = plan_for(PACK_YAML, tasks=[0.1], seconds=20.0)
    save(tmp_path / "plan.json", plan)
    assert plan == load(tmp_path / "plan.json")
    with pytest.raises(CallerError, match=r"save\(path, plan\)"):
        save(plan, tmp_path / "plan.json")  # type: ignore[arg-type]


def test_a_file_with_a_plan_that_tests_nothing_is_no_plan(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    save(file, plan_for(PACK_YAML, seconds=20.0, faults=[Fault(at_us=0, kind=FaultKind.WAKE, targets=("grey-0",))]))
    file.write_text(file.read_text().replace('"grey-0"\n', '"grey-x"\n'))
    with pytest.raises(ValueError, match="grey-x"):
        load(file)


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
