"""`wolfpack sim`: what it prints, what it refuses, and its exit codes."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

import wolfpack.cli.sim_reports as sim_reports
import wolfpack.sim.lifeguard as lifeguard
from tests.cli.support import call
from wolfpack.cli.sim import BOTH_MENUS, DENS_MENUS, HERDS_MENUS
from wolfpack.cli.sim_reports import report_herd
from wolfpack.sim.faults import MENUS as DEN_MENUS
from wolfpack.sim.herd import HerdResult
from wolfpack.sim.herd_faults import MENUS as HERD_MENUS
from wolfpack.sim.lifeguard import Grid
from wolfpack.sim.plan import draw_plan
from wolfpack.sim.replay import save

PROMISED = {
    "units", "virtual_s", "wall_s", "messages", "bytes", "violations", "alpha_changes", "first_dead_s", "all_know_s",
    "rounds", "false_positives", "trace_hash",
}  # fmt: skip


def facts(*args: str) -> dict[str, object]:
    result = call("sim", *args, "--json")
    assert 0 == result.exit_code, result.output
    return json.loads(result.output)


# --- a herd ---------------------------------------------------------------------------------------------------------


def test_a_run_of_a_microsecond_ends() -> None:
    assert 1e-6 == facts("--units", "3", "--seconds", "1e-6")["virtual_s"]


def test_a_picture_that_cannot_be_written_at_the_end_costs_no_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = FigureCanvasAgg.print_png

    def fail(canvas: FigureCanvasAgg, target: object, **options: object) -> None:
        if isinstance(target, str):
            raise OSError(errno.ENOSPC, "No space left on device")
        write(canvas, target, **options)  # labels are measured by a picture that goes nowhere

    monkeypatch.setattr(FigureCanvasAgg, "print_png", fail)
    target = tmp_path / "herd.png"
    result = call("sim", "--units", "5", "--seconds", "5", "--picture", str(target))
    assert 2 == result.exit_code
    assert "all kept" in result.output
    assert "herd.png' could not be written: No space left" in result.output
    assert not target.exists()


def test_json_has_every_figure_that_was_promised() -> None:
    found = facts("--units", "10", "--seconds", "15", "--crash", "0.2")
    assert set(found) >= PROMISED
    assert (10, 15.0, 0, 2) == (found["units"], found["virtual_s"], found["violations"], found["crashed"])
    assert {"p50", "p99"} == set(found["first_dead_s"]) == set(found["all_know_s"])
    assert found["all_know_s"]["p99"] >= found["first_dead_s"]["p99"] > 0
    assert found["den"] is None


def test_the_same_seed_prints_the_same_trace() -> None:
    args = ("--units", "8", "--seconds", "5", "--seed", "3")
    assert facts(*args)["trace_hash"] == facts(*args)["trace_hash"] != facts(*args[:-1], "4")["trace_hash"]


def test_people_get_a_short_report() -> None:
    result = call("sim", "--units", "10", "--seconds", "15", "--crash", "0.2")
    assert 0 == result.exit_code
    for part in ("10 units", "crashes      2\n", "first DEAD", "all kept", "s after the end of all faults"):
        assert part in result.output
    assert len(result.output.splitlines()) <= 12


def test_a_small_herd_with_faults_is_run_as_a_den_too() -> None:
    found = facts("--units", "4", "--seconds", "20", "--faults", "keeper")
    assert found["den"]["faults"] > 0
    assert 0 == found["violations"]


def test_a_broken_promise_is_told_and_exits_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    import wolfpack.sim.herd_watch as herd_watch

    monkeypatch.setattr(herd_watch.Watch, "_ask_alpha", lambda self, units: self.fault("L1", "nobody leads"))
    result = call("sim", "--units", "3", "--seconds", "2")
    assert 1 == result.exit_code
    assert "1 violation" in result.output
    assert "L1: nobody leads" in result.output


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--units", "4", "--seconds", "4", "--faults", "slow"], "not run: only herds have the menu 'slow'"),
        (["--units", "25", "--seconds", "4", "--faults", "all"], "it has at most 24 units here"),
    ],
)
def test_a_den_that_is_not_run_is_told(args: list[str], said: str) -> None:
    assert said in call("sim", *args).output


def test_the_help_names_the_menus_that_each_command_takes() -> None:
    assert {"all", *BOTH_MENUS.split(", "), *HERDS_MENUS.split(", ")} == {"all", *HERD_MENUS}
    assert {"all", *BOTH_MENUS.split(", "), *DENS_MENUS.split(", ")} == set(DEN_MENUS)
    for words, menus in ((["sim"], {*HERD_MENUS, *DEN_MENUS}), (["sim", "sweep"], set(DEN_MENUS))):
        told = call(*words, "--help").output
        assert set() == {menu for menu in menus if menu not in told}


def test_options_before_a_command_are_refused_for_it_would_never_see_them() -> None:
    result = call("sim", "--units", "5", "--crash", "0.2", "sweep", "--seeds", "1")
    assert 2 == result.exit_code
    assert "--units, --crash before 'sweep' would be of no effect" in result.output


@pytest.mark.parametrize("command", [["sim"], ["sim", "sweep", "--jobs", "1"]], ids=" ".join)
@pytest.mark.parametrize("seconds", ["nan", "0", "-1", "1e9"])
def test_seconds_that_nobody_can_wait_for_are_refused_in_one_sentence(command: list[str], seconds: str) -> None:
    result = call(*command, "--seconds", seconds)
    assert 2 == result.exit_code
    told = f"Error: A run takes more than 0 and at most 100,000,000 seconds, not {float(seconds):g}."
    assert told == result.output.strip().splitlines()[-1]


def test_figures_are_told_as_people_write_them(capsys: pytest.CaptureFixture[str]) -> None:
    known = {"p50": 1.0, "p99": 2.0}
    report_herd(
        HerdResult(
            units=7, virtual_s=1300.0, wall_s=1.0, cpu_s=1.0, messages=1, bytes=1, howls=1, messages_per_unit_s=1.0,
            violations=0, alpha_changes=1, crashed=53, first_dead_s=known, all_know_s=known, calm_s=3.25,
            load_age_s={"p50": None},
        )
    )  # fmt: skip
    told = capsys.readouterr().out
    for part in ("(1,300 x real time)", "1 change\n", "crashes      53\n", "3.2 s after the end of all faults"):
        assert part in told


def test_a_terminal_is_told_how_far_the_time_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda self: True, raising=False)
    monkeypatch.setattr(sim_reports, "TOLD_S", 0.0)
    result = call("sim", "--units", "3", "--seconds", "2")
    assert "\r1.0 of 2 virtual seconds" in result.stderr
    assert result.stderr.endswith(f"{'':50}\r")
    monkeypatch.undo()
    assert "" == call("sim", "--units", "3", "--seconds", "2").stderr


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_a_picture_is_drawn(ending: str, tmp_path: Path) -> None:
    target = tmp_path / f"herd.{ending}"
    result = call("sim", "--units", "10", "--seconds", "12", "--crash", "0.2", "--picture", str(target))
    assert 0 == result.exit_code, result.output
    head = target.read_bytes()[:200]
    assert head.startswith(b"\x89PNG") if ending == "png" else b"<svg" in head or b"<?xml" in head
    assert target.stat().st_size > 5000


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--units", "1"], "--units"),
        (["--crash", "1.5"], "share"),
        (["--seconds", "0"], "seconds"),
        (["--profile", "rey"], "ray"),
        (["--faults", "kepper"], "keeper"),
        (["--units", "100", "--faults", "keeper"], "at most 24 units"),
        (["--picture", "herd.gif"], ".png"),
        (["--picture", "no-such-folder/herd.png"], "no-such-folder"),
        (["--picture", "/"], "png or .svg"),
    ],
)
def test_what_makes_no_sense_is_wrong_usage_with_a_hint(args: list[str], said: str) -> None:
    result = call("sim", *args)
    assert 2 == result.exit_code
    assert said in result.output


# --- failover, lifeguard --------------------------------------------------------------------------------------------


def test_failover_prints_its_three_figures() -> None:
    found = facts("failover", "--crashes", "10")
    assert 0 < found["median_s"] <= found["p99_s"] <= found["max_s"] < 1.0
    assert "median" in call("sim", "failover", "--crashes", "5").output


def test_failover_knows_its_profiles() -> None:
    assert 2 == call("sim", "failover", "--profile", "slow").exit_code


def test_lifeguard_prints_an_object_with_arms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifeguard, "GRIDS", {"quick": Grid((2,), (0.512,), (0.256,), test_s=3.0)})
    monkeypatch.setattr(lifeguard, "MEMBERS", 8)
    found = facts("lifeguard", "--quick", "--jobs", "1")
    assert ["SWIM", "LHA-Probe", "LHA-Suspicion", "Buddy System", "Lifeguard", "ours"] == list(found["arms"])
    assert {"false_positives", "healthy_false_positives", "messages", "bytes", "relative"} <= set(found["arms"]["ours"])
    report = call("sim", "lifeguard", "--quick", "--jobs", "1").output
    assert "ours" in report


# --- dens -----------------------------------------------------------------------------------------------------------


def test_a_sweep_tells_how_many_dens_kept_their_promises() -> None:
    found = facts("sweep", "--seeds", "2", "--seconds", "10", "--units", "3", "--jobs", "1")
    assert (2, 0, []) == (found["runs"], found["violations"], found["files"])


def test_a_run_in_a_file_is_played_again(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    save(file, draw_plan(5, units=3, seconds=10.0))
    first, again = facts("replay", str(file)), facts("replay", str(file))
    assert first["trace_hash"] == again["trace_hash"]
    assert "Seed 5" in call("sim", "replay", str(file)).output


def test_a_file_that_holds_no_run_is_wrong_input(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_text('{"seed": 1}')
    assert 2 == call("sim", "replay", str(file)).exit_code
