"""From events to the leadership graph."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.viz.story import Story
from viz import Category, leadership_graph
from viz.graph import short_label
from wolfpack import events as ev
from wolfpack.model import Role


def led_pack() -> Story:
    story = Story()
    units = [*story.cards("grey", 3), *story.cards("silver", 2, nature="werewolf", offers=("cpu", "browser"))]
    return story.pack("computing", *units[:4]).crown("computing", 1, "grey-2")


def categories(story: Story) -> dict[str, Category]:
    return dict(leadership_graph(story.events).nodes(data="category"))


def test_each_unit_is_a_node_of_its_category():
    assert {
        "grey-0": Category.WOLF,
        "grey-1": Category.WOLF,
        "grey-2": Category.ALPHA,
        "silver-0": Category.WEREWOLF,
        "silver-1": Category.SLEEPER,
    } == categories(led_pack())


def test_the_alpha_leads_every_other_member_and_nobody_else():
    graph = leadership_graph(led_pack().events)
    assert [("grey-2", "grey-0"), ("grey-2", "grey-1"), ("grey-2", "silver-0")] == [
        (source, target) for source, target, kind in graph.edges(data="kind") if kind == "leads"
    ]


def test_members_that_offer_the_same_are_one_sub_pack():
    graph = leadership_graph(led_pack().events)
    assert {
        "grey-0": "cpu",
        "grey-1": "cpu",
        "grey-2": "cpu",
        "silver-0": "browser, cpu",
        "silver-1": "browser, cpu",
    } == (dict(graph.nodes(data="sub_pack")))


def test_members_of_a_pack_without_an_alpha_are_pretenders():
    story = led_pack().lose("grey-2", "computing").depose("computing", 1, "grey-2")
    assert {
        "grey-0": Category.PRETENDER,
        "grey-1": Category.PRETENDER,
        "grey-2": Category.LOST,
        "silver-0": Category.PRETENDER,
        "silver-1": Category.SLEEPER,
    } == categories(story)
    assert Role.PRETENDER == leadership_graph(story.events).nodes["grey-0"]["role"]


def test_a_living_alpha_that_was_just_deposed_is_no_pretender():
    assert Category.WOLF == categories(led_pack().depose("computing", 1, "grey-2"))["grey-2"]


def test_only_the_seven_highest_ranks_pretend():
    story = Story()
    story.pack("computing", *story.cards("grey", 12))
    assert [f"grey-{index}" for index in range(5, 12)] == [
        unit for unit, category in categories(story).items() if category is Category.PRETENDER
    ]


def test_a_new_alpha_ends_pretending():
    story = led_pack().lose("grey-2", "computing").depose("computing", 1, "grey-2")
    story.crown("computing", 2, "silver-0", "grey-2")
    assert Category.PRETENDER not in categories(story).values()


def test_the_predecessor_points_to_its_successor_with_the_term():
    story = led_pack().lose("grey-2", "computing").depose("computing", 1, "grey-2")
    edge = leadership_graph(story.crown("computing", 2, "silver-0", "grey-2").events).edges["grey-2", "silver-0"]
    assert {"kind": "succeeds", "leads": False, "terms": (2,)} == edge


def test_a_pair_that_led_each_other_in_turn_carries_both_relations():
    story = led_pack().crown("computing", 2, "grey-1", "grey-2").crown("computing", 3, "grey-2", "grey-1")
    graph = leadership_graph(story.crown("computing", 4, "grey-1", "grey-2").events)
    assert {"kind": "leads", "leads": True, "terms": (3,)} == graph.edges["grey-1", "grey-2"]
    assert {"kind": "succeeds", "leads": False, "terms": (2, 4)} == graph.edges["grey-2", "grey-1"]


def test_an_alpha_that_follows_itself_does_not_lead_itself():
    story = led_pack().crown("computing", 2, "grey-2", "grey-2")
    assert {"kind": "succeeds", "leads": False, "terms": (2,)} == leadership_graph(story.events).edges[
        "grey-2", "grey-2"
    ]


def test_a_quarantined_and_a_waking_unit_are_shown_as_such():
    story = led_pack().tell(ev.UnitQuarantined(unit="grey-0", reason="fails fast"))
    story.tell(ev.UnitWaking(unit="silver-1", boot=1, pack="computing", reason="work"))
    found = categories(story)
    assert (Category.QUARANTINED, Category.WAKING) == (found["grey-0"], found["silver-1"])


def test_the_graph_names_den_time_number_and_each_packs_term():
    story = led_pack()
    about = leadership_graph(story.events).graph
    assert ("timber", len(story.events), story.events[-1].at) == (about["den"], about["number"], about["at"])
    assert (1, "grey-2", "computing: term 1, alpha grey-2") == tuple(
        about["packs"]["computing"][key] for key in ("term", "alpha", "title")
    )


def test_the_title_at_a_crowning_names_term_alpha_and_time_and_the_subtitle_the_reason():
    about = leadership_graph(Story().crown("computing", 3, "grey-1", "grey-2", "highest rank").events).graph
    assert "timber - computing: term 3, alpha grey-1 - 14:03:23 UTC" == about["title"]
    assert "grey-1 follows grey-2: highest rank" == about["subtitle"]


def test_the_title_at_the_end_of_a_term_says_that_nobody_leads_and_why():
    story = Story().crown("computing", 3, "grey-1").depose("computing", 3, "grey-1", "silent for 1.0 s")
    about = leadership_graph(story.events).graph
    assert "timber - computing: term 3 ended, no alpha - 14:03:24 UTC" == about["title"]
    assert "grey-1 deposed: silent for 1.0 s" == about["subtitle"]


def test_between_changes_of_leadership_the_title_counts_the_packs():
    story = Story().crown("computing", 3, "grey-1").pack("monitoring")
    assert "timber - 2 packs - 14:03:24 UTC" == leadership_graph(story.events).graph["title"]


def test_the_time_in_the_title_is_that_of_the_event():
    assert leadership_graph(Story().events).graph["title"].endswith("14:03:22 UTC")


def test_no_events_give_an_empty_graph():
    graph = leadership_graph([])
    assert (0, None, {}) == (len(graph), graph.graph["at"], graph.graph["packs"])


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("grey-2", "grey-2"),
        ("exactly-12-c", "exactly-12-c"),
        ("monitoring-browser-7", "monitoring-\nbrowser-7"),
        ("abcdefghijklmnopqrst", "abcdefghij\nklmnopqrst"),
        (
            "a-name-much-too-long-to-be-shown-17",
            "a-name-much…\ne-shown-17"[:12] + "\no-be-shown-17"[:0] + "\n-be-shown-17",
        ),
    ],
)
def test_a_label_is_the_name_on_at_most_two_short_lines(name, label):
    assert label == short_label(name)


@given(st.text(min_size=1, max_size=60))
def test_no_line_of_a_label_is_longer_than_twelve(name):
    lines = short_label(name.replace("\n", "")).split("\n")
    assert len(lines) <= 2
    assert all(len(line) <= 12 for line in lines)
