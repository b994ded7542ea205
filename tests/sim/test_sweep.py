import json
from pathlib import Path
from typing import Any

import pytest

from tests.sim.dens import QUICK, batch, fault, plan
from wolfpack.core.book.tasks import TaskDesk
from wolfpack.errors import CallerError
from wolfpack.sim.den_run import play, run_den
from wolfpack.sim.faults import FaultKind
from wolfpack.sim.plan import DenPlan, draw_plan
from wolfpack.sim.replay import load, replay, save
from wolfpack.sim.sweep import sweep

K = FaultKind


def test_seeds_of_two_virtual_minutes_keep_all_promises_whatever_fails() -> None:
    result = sweep(seeds=2, seconds=120.0, jobs=1)
    assert (2, ()) == (result.runs, result.findings)
    assert result.faults >= 30
    assert result.submitted == result.done + result.dead + result.cancelled >= 100


def test_a_sweep_side_by_side_finds_what_one_by_one_finds() -> None:
    seen: dict[int, list[tuple[int, str]]] = {1: [], 2: []}
    results = []
    for jobs, runs in seen.items():
        results.append(
            sweep(
                seeds=3, first=7, seconds=5.0, units=2, jobs=jobs,
                on_result=lambda each, runs=runs: runs.append((each.seed, each.trace_hash)),
            )
        )  # fmt: skip
    assert [7, 8, 9] == [seed for seed, _ in seen[1]]
    assert seen[1] == seen[2]
    assert results[0].virtual_s == results[1].virtual_s > 15.0


def test_a_sweep_names_the_seeds_that_broke_a_promise_with_plans_that_break_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lease_of = TaskDesk._lease

    def careless(self, at, pack, unit, task, seq):
        job = lease_of(self, at, pack, unit, task, seq)
        self._journal.last_lease_no -= self._journal.last_lease_no % 5 == 0
        return job

    monkeypatch.setattr(TaskDesk, "_lease", careless)
    result = sweep(seeds=3, seconds=4.0, units=2, menu="calm", jobs=1, shrink_s=5.0)
    assert [0, 1, 2] == [each.seed for each in result.findings]
    assert {"I7"} == {each.promise for each in result.findings}
    again = play(result.findings[0].plan).violation
    assert again is not None
    assert "I7" == again.promise
    plain = json.loads(json.dumps(result.to_plain()))
    assert (3, 3) == (plain["runs"], plain["violations"])
    assert result.findings[1].plan == DenPlan.from_plain(plain["findings"][1]["plan"])


def test_a_run_saved_to_a_file_goes_as_it_went(tmp_path: Path) -> None:
    drawn = draw_plan(5, seconds=15.0)
    save(tmp_path / "run.json", drawn)
    assert drawn == load(tmp_path / "run.json")
    assert play(drawn).trace_hash == replay(tmp_path / "run.json").trace_hash


def test_a_plan_written_by_hand_survives_its_file(tmp_path: Path) -> None:
    mine = plan(fault(1.0, K.LOSS, for_s=1.0, amount=0.5), batch(1.0, 0.1, 0.2), gossips=False, seed=12)
    save(tmp_path / "mine.json", mine)
    assert mine == load(tmp_path / "mine.json")


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "3", "{}", '{"version": 99}', '{"version": 1}', '{"version": 1, "seed": "x"}',
        '{"version": 1, "seed": 1, "seconds": 1, "timing": {"nose": 1}}',
    ],
)  # fmt: skip
def test_what_is_no_plan_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"bad\.json|no plan|version"):
        load(path)


@pytest.mark.parametrize("part", ["faults", "batches", "cards", "packs"])
def test_a_plan_with_one_broken_part_is_refused(part: str) -> None:
    plain = plan(fault(1.0, K.CRASH, "grey-0"), batch(1.0, 0.1)).to_plain()
    with pytest.raises(ValueError, match=r"no plan|not a"):
        DenPlan.from_plain({**plain, part: [{"nose": 1}]})


def test_a_drawn_plan_is_the_same_again_and_differs_by_seed_and_menu() -> None:
    assert draw_plan(3) == draw_plan(3)
    assert draw_plan(3) != draw_plan(4)
    assert {K.KEEPER_CRASH} < {each.kind for each in draw_plan(3, menu="keeper", seconds=300.0).faults}
    assert () == draw_plan(3, menu="calm").faults


@pytest.mark.parametrize("wrong", [{"seconds": float("nan")}, {"menu": "crashs"}, {"units": 0}], ids=str)
def test_a_sweep_that_makes_no_sense_is_refused_before_any_process_is_born(
    wrong: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wolfpack.sim.sweep.workers", lambda jobs: pytest.fail(f"{jobs} were born"))
    with pytest.raises(CallerError):
        sweep(seeds=4, jobs=2, **wrong)


def test_what_is_asked_of_a_drawn_plan_is_in_it() -> None:
    drawn = draw_plan(1, units=10, seconds=60.0, menu="calm", profile=QUICK, crash=0.2, loss=0.05)
    assert (10, QUICK) == (len(drawn.cards), drawn.timing)
    loss, crash = drawn.faults
    assert (K.LOSS, 0.05, 60_000_000) == (loss.kind, loss.amount, loss.for_us)
    assert (K.CRASH, 20_000_000, 2) == (crash.kind, crash.at_us, len(crash.targets))


@pytest.mark.parametrize("wrong", [{"units": 0}, {"every_s": 0.0}, {"crash": 1.5}, {"loss": 1.0}, {"loss": -0.1}])
def test_numbers_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(CallerError, match="A den needs"):
        draw_plan(1, **wrong)


def test_the_work_of_a_plan_does_not_depend_on_its_faults() -> None:
    assert draw_plan(3, menu="calm").batches == draw_plan(3, menu="all").batches


def test_a_calm_den_changes_its_alpha_only_with_the_work() -> None:
    result = run_den(units=3, seconds=60.0, seed=2, menu="calm")
    assert (None, 0) == (result.violation, result.faults)
    assert result.to_plain()["submitted"] == result.submitted > 0
