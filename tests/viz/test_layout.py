"""Where everything stands: nothing overlaps, and few move."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.viz.story import Story
from viz import Layout, lay_out, leadership_graph
from viz.layout import ALPHA_PT, FONT_PT, Box, text_width_pt
from wolfpack import events as ev


@st.composite
def dens(draw: st.DrawFn) -> Story:
    """Dens of one to three packs, with members of several sub-packs, sleepers, lost units and seats left empty."""
    chance = random.Random(draw(st.integers(0, 10_000)))
    story = Story()
    kinds = draw(st.lists(st.sampled_from(["grey", "silver", "k", "a-kind-with-a-long-name"]), min_size=1, unique=True))
    units: list[str] = []
    for index, kind in enumerate(kinds):
        size = draw(st.sampled_from([1, 3, 7, 20, 60]))
        units += story.cards(kind, size, offers=("cpu", f"tag{index}") if index else ("cpu",))
    packs = [f"pack{index}" for index in range(draw(st.integers(1, 3)))]
    crews: dict[str, list[str]] = {pack: [] for pack in packs}
    for unit in units:
        pack = chance.choice([*packs, None])
        if pack is not None:
            story.join(pack, unit)
            crews[pack].append(unit)
    for pack, crew in crews.items():
        if crew and chance.random() < 0.8:
            story.crown(pack, 1, chance.choice(crew))
        for unit in crew:
            if chance.random() < 0.1:
                story.lose(unit, pack)
            elif chance.random() < 0.2:
                story.tell(ev.UnitLeft(unit=unit, boot=1, pack=pack, reason="released"))
    return story


def cells(story: Story) -> tuple[Layout, dict[str, Box]]:
    graph = leadership_graph(story.events)
    layout = lay_out(graph)
    found = {unit: layout.cell(unit) for unit in graph}
    for about in graph.graph["packs"].values():
        if about["alpha"]:
            at, label = layout.places[about["alpha"]], graph.nodes[about["alpha"]]["label"].split("\n")
            half = max(max(text_width_pt(line, FONT_PT * 1.1, bold=True) for line in label), ALPHA_PT) / 2
            found[about["alpha"]] = Box(
                at.x - half, at.y - ALPHA_PT / 2 - len(label) * FONT_PT * 1.3, at.x + half, at.y + ALPHA_PT / 2
            )
    return layout, found


def overlap(one: Box, other: Box) -> bool:
    """Whether they share more than an edge."""
    width = min(one.right, other.right) - max(one.left, other.left)
    height = min(one.top, other.top) - max(one.bottom, other.bottom)
    return min(width, height) > 1e-6


@settings(max_examples=30, deadline=None)
@given(dens())
def test_no_marker_or_label_covers_another(story):
    _, found = cells(story)
    assert [] == [
        (one, other)
        for (one, box), (other, other_box) in itertools.combinations(found.items(), 2)
        if overlap(box, other_box)
    ]


@settings(max_examples=30, deadline=None)
@given(dens())
def test_everything_lies_on_the_sheet(story):
    layout, found = cells(story)
    assert all(
        0 <= box.left + 0.01 and 0 <= box.bottom + 0.01
        and box.right <= layout.width_pt + 0.01 and box.top <= layout.height_pt + 0.01
        for box in found.values()
    )  # fmt: skip


@settings(max_examples=30, deadline=None)
@given(dens())
def test_every_unit_has_a_place(story):
    graph = leadership_graph(story.events)
    assert set(graph) == set(lay_out(graph).places)


def test_names_of_many_small_sub_packs_keep_a_line_apart():
    story = Story()
    story.pack("computing", *(story.cards(f"kind{index}", 1, offers=(f"tag{index}",))[0] for index in range(40)))
    sectors = lay_out(leadership_graph(story.events)).packs["computing"].sectors
    for side in ("left", "right"):
        heights = sorted(sector.name.y for sector in sectors if sector.name.align == side)
        assert all(above - below > 10 for below, above in itertools.pairwise(heights))


@settings(max_examples=15, deadline=None)
@given(dens())
def test_discs_do_not_touch_each_other(story):
    discs = lay_out(leadership_graph(story.events)).packs.values()
    for one, other in itertools.combinations(discs, 2):
        assert math.dist(one.middle, other.middle) > one.radius + other.radius


@pytest.mark.parametrize("count", [3, 5, 25, 100, 150])
def test_a_disc_is_no_larger_than_its_members_need(count):
    story = Story()
    story.pack("computing", *story.cards("grey", count)).crown("computing", 1, "grey-0")
    layout = lay_out(leadership_graph(story.events))
    pitch = math.hypot(layout.cell_w_pt, layout.cell_h_pt)
    # A disc of that many circles of one pitch at the density of a square grid, and the room of the alpha.
    fair = pitch * (math.sqrt(count / math.pi) + 1.5)
    assert layout.packs["computing"].radius <= fair


def succession(count: int) -> Story:
    story = Story()
    units = [*story.cards("grey", count), *story.cards("silver", count // 2, offers=("browser",))]
    return story.pack("computing", *units).crown("computing", 1, "grey-1")


@pytest.mark.parametrize("count", [3, 25, 100])
def test_at_a_change_of_alpha_only_the_two_alphas_move(count):
    story = succession(count)
    before = lay_out(leadership_graph(story.events)).places
    story.depose("computing", 1, "grey-1").crown("computing", 2, "grey-2", "grey-1")
    after = lay_out(leadership_graph(story.events)).places
    assert {"grey-1", "grey-2"} == {unit for unit in before if before[unit] != after[unit]}


def test_when_the_alpha_is_lost_only_the_alpha_moves_and_to_its_own_seat():
    story = succession(25)
    before = lay_out(leadership_graph(story.events))
    after = lay_out(leadership_graph(story.lose("grey-1", "computing").depose("computing", 1, "grey-1").events))
    assert {"grey-1"} == {unit for unit in before.places if before.places[unit] != after.places[unit]}
    assert before.empty_seats["computing", "grey-1"] == after.places["grey-1"]


def test_the_alpha_stands_in_the_middle():
    layout = lay_out(leadership_graph(succession(5).events))
    assert layout.packs["computing"].middle == layout.places["grey-1"]


def test_members_of_a_sub_pack_stand_side_by_side():
    layout = lay_out(leadership_graph(succession(8).events))
    middle = layout.packs["computing"].middle
    clockwise = sorted(
        (unit for unit in layout.places if unit != "grey-1"),
        key=lambda unit: -math.atan2(layout.places[unit].y - middle.y, layout.places[unit].x - middle.x) % math.tau,
    )
    kinds = [unit.split("-")[0] for unit in clockwise]
    changes = sum(kinds[index] != kinds[index - 1] for index in range(len(kinds)))
    assert 2 == changes


def test_sleepers_and_free_units_are_in_the_pool_below_the_packs():
    story = Story()
    units = story.cards("grey", 6)
    layout = lay_out(leadership_graph(story.pack("computing", *units[:3]).wake(units[3]).events))
    assert layout.pool is not None
    box, caption = layout.pool
    assert "the common pool: 1 free, 2 asleep" == caption.text
    assert {"grey-3", "grey-4", "grey-5"} == {
        unit for unit, at in layout.places.items() if box.bottom <= at.y <= box.top
    }


def test_a_pack_stands_over_the_middle_of_a_wide_pool():
    story = Story()
    layout = lay_out(leadership_graph(story.pack("computing", *story.cards("grey", 40)[:1]).events))
    assert layout.width_pt / 2 == pytest.approx(layout.packs["computing"].middle.x, rel=0.05)


def test_a_sub_pack_is_named_with_the_number_of_its_living_members():
    story = succession(4).lose("grey-0", "computing")
    sectors = lay_out(leadership_graph(story.events)).packs["computing"].sectors
    assert ["browser (2)", "cpu (3)"] == [sector.name.text for sector in sectors]


def test_a_tall_sheet_puts_packs_one_below_the_other():
    story = Story()
    units = story.cards("grey", 12)
    story.pack("computing", *units[:6]).pack("monitoring", *units[6:])
    graph = leadership_graph(story.events)
    wide, tall = lay_out(graph, aspect=2.0).packs, lay_out(graph, aspect=0.5).packs
    assert wide["computing"].middle.y == wide["monitoring"].middle.y
    assert tall["computing"].middle.x == pytest.approx(tall["monitoring"].middle.x)


def test_an_empty_den_has_a_layout():
    assert {} == lay_out(leadership_graph([])).places
