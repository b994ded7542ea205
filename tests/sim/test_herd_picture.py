"""Pictures of herds: what they say agrees with itself, and can be read."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import pytest
from matplotlib.figure import Figure

from wolfpack.sim.herd import HerdPlan, HerdResult, run_herd
from wolfpack.sim.herd_picture import Recorder, compose, looks

CRASH = HerdPlan(units=5, seconds=24.0, crash=0.4)
TROUBLE = HerdPlan(units=3, seconds=120.0, seed=7, faults=("network", "pauses", "crashes", "churn"))


@cache
def drawn(plan: HerdPlan) -> tuple[Recorder, HerdResult, Figure]:
    seen = Recorder()
    result = run_herd(plan, each_s=plan.seconds / looks(plan), look=seen.look)
    return seen, result, compose(seen, result)


@pytest.mark.parametrize("plan", [CRASH, TROUBLE], ids=["crash", "trouble"])
def test_title_axis_and_figures_count_the_same(plan: HerdPlan) -> None:
    seen, result, figure = drawn(plan)
    goodbyes = len(seen.ends) - result.crashed
    assert f" {result.crashed} crashes" in figure.get_suptitle()
    assert (f"{goodbyes} goodbye" in figure.get_suptitle()) == (goodbyes > 0) == (plan is TROUBLE)
    assert figure.axes[0].get_ylabel().startswith(f"{len(seen.ends)} crashes")
    assert len(seen.ends) == len(figure.axes[0].images[0].get_array())


@pytest.mark.parametrize("size", [(9.0, 7.0), (7.0, 6.0)], ids=str)
def test_no_name_of_an_alpha_lies_upon_another_or_stands_out(size: tuple[float, float]) -> None:
    seen, result, _ = drawn(TROUBLE)
    figure = compose(seen, result, size=size)
    figure.draw_without_rendering()
    labels = [text for text in figure.axes[0].texts if text.get_text().endswith("leads")]
    boxes = [label.get_window_extent() for label in labels if label.get_visible()]
    assert len(labels) > len(boxes) >= 3
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))
    assert boxes[-1].x1 <= figure.axes[0].bbox.x1


def test_a_crash_is_marked_and_shown_from_just_before_it_until_all_views_are_equal() -> None:
    _, result, figure = drawn(CRASH)
    start, end = figure.axes[0].get_xlim()
    assert "the crash" in [text.get_text() for text in figure.axes[0].texts]
    assert 4.0 in [line.get_xdata()[0] for line in figure.axes[0].lines]
    assert result.views_equal_s is not None
    assert 3.0 < start < 4.0 < 4.0 + result.views_equal_s < end < 12.0


def test_with_other_faults_all_of_the_time_is_shown() -> None:
    assert (0.0, 120.0) == drawn(TROUBLE)[2].axes[0].get_xlim()


def test_the_colours_are_explained() -> None:
    told = [text.get_text() for text in drawn(CRASH)[2].axes[0].get_legend().get_texts()]
    assert ["it lives, or lives again", "it is dead and nobody knows", "all know"] == told
