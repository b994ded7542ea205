"""The examples, and the main job of the repository, run for real on the shared Ray."""

from __future__ import annotations

import csv
from pathlib import Path

from examples import lost_alpha, scaling, variable_load
from packs.computing.job import measure_sources
from tests.ray.support import ROOT, cards
from wolfpack.model import PackSpec


def test_variable_load_lets_the_pack_follow_the_work(ray_cluster):
    moments = variable_load.main()

    assert max(moment.members for moment in moments) > 1
    assert 0 == moments[-1].queued


def test_scaling_by_hand_and_by_load_grows_and_shrinks(ray_cluster):
    seen = scaling.main(tasks=40)

    assert (2, True) == (seen["scaled up by hand"], seen["scaled down by hand"] <= 1)
    assert (True, 0) == (seen["scaled up by load"] >= 2, seen["asleep again"])


def test_a_lost_alpha_is_replaced_and_both_pictures_are_there(ray_cluster, tmp_path):
    seen = lost_alpha.main(str(tmp_path), tasks=120)

    assert 0 == seen["lost"]
    assert seen["killed"] != seen["alpha"]
    assert {"before.svg", "after.svg"} <= {path.name for path in tmp_path.iterdir()}


def measured(make_den, folder: Path, **options) -> tuple[dict, list[list[str]]]:
    den = make_den(
        units=cards(count=3), packs=(PackSpec(name="computing", fewest=3, most=3),), graphs=str(folder / "graphs")
    )
    out = folder / "out.csv"
    summary = measure_sources(
        den.pack(), input=str(ROOT / "wolfpack"), out=str(out), graphs=str(folder / "graphs"), **options
    )
    with open(out, newline="") as file:
        return summary, list(csv.reader(file))


def test_the_main_job_gives_the_same_table_with_and_without_a_killed_alpha(make_den, tmp_path):
    (tmp_path / "calm").mkdir()
    (tmp_path / "hunted").mkdir()
    calm, expected = measured(make_den, tmp_path / "calm")
    hunted, table = measured(make_den, tmp_path / "hunted", kill_alpha_at=0.3)

    assert expected == table
    assert len(expected) == calm["submitted"] + 1
    assert hunted["submitted"] == hunted["done"] + hunted["dead"]
    assert hunted["conservation"]
    assert len(hunted["killed"]) == 1
    assert len({alpha["term"] for alpha in hunted["alphas"]}) >= 2, hunted


def test_an_interrupted_job_is_resumed_by_its_run_and_does_nothing_twice(make_den, tmp_path):
    den = make_den(units=cards(count=2), packs=(PackSpec(name="computing", most=2),))
    source = str(ROOT / "wolfpack" / "core")
    first = measure_sources(den.pack(), input=source, out=str(tmp_path / "a.csv"), limit=5)
    again = measure_sources(den.pack(), input=source, out=str(tmp_path / "b.csv"), resume=first["run"])

    assert first["run"] == again["run"]
    assert den.pack().stats()["submitted"] == again["submitted"]  # the five of before were not submitted again
