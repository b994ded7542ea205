"""The fold of events into the state of a den."""

from __future__ import annotations

from dataclasses import dataclass

from tests.viz.story import AFTERNOON, Story
from viz import Reign, fold
from wolfpack import events as ev
from wolfpack.model import Nature, Readiness, Role


@dataclass(frozen=True)
class Coffee:
    """An event of a user."""

    cups: int


def led_pack() -> Story:
    story = Story()
    return story.pack("computing", *story.cards("grey", 3)).crown("computing", 1, "grey-2")


def test_a_registered_card_sleeps_in_the_common_pool():
    story = Story()
    story.cards("silver", 1, nature="werewolf", offers=("cpu", "browser"))
    unit = fold(story.events).units["silver-0"]
    assert ("silver", Nature.WEREWOLF, ("cpu", "browser")) == (unit.kind, unit.nature, unit.offers)
    assert (Readiness.ASLEEP, Role.FREE, None) == (unit.readiness, unit.role, unit.pack)


def test_a_changed_card_keeps_where_the_unit_stands():
    story = led_pack().tell(ev.UnitRegistered(unit="grey-1", kind="grey", nature="wolf", offers=("gpu",)))
    unit = fold(story.events).units["grey-1"]
    assert (("gpu",), "computing", Readiness.AWAKE) == (unit.offers, unit.pack, unit.readiness)


def test_a_crowned_unit_is_alpha_and_the_others_are_members():
    view = fold(led_pack().events)
    assert {"grey-0": Role.MEMBER, "grey-1": Role.MEMBER, "grey-2": Role.ALPHA} == {
        name: unit.role for name, unit in view.units.items()
    }
    assert (1, "grey-2") == (view.packs["computing"].term, view.packs["computing"].alpha)


def test_a_crowned_unit_is_a_member_even_if_its_joining_was_never_told():
    view = fold(Story().crown("computing", 5, "grey-9").events)
    assert ["grey-9"] == [unit.name for unit in view.members("computing")]


def test_a_deposed_alpha_that_lives_is_a_member_again():
    view = fold(led_pack().depose("computing", 1, "grey-2").events)
    assert (Role.MEMBER, None) == (view.units["grey-2"].role, view.packs["computing"].alpha)


def test_the_end_of_an_older_term_does_not_depose_the_later_alpha():
    view = fold(led_pack().crown("computing", 2, "grey-1", "grey-2").depose("computing", 1, "grey-2").events)
    assert "grey-1" == view.packs["computing"].alpha


def test_the_history_tells_every_term_with_its_beginning_and_end():
    story = Story().crown("computing", 1, "grey-2")
    story.depose("computing", 1, "grey-2").crown("computing", 2, "grey-1", "grey-2", "highest rank")
    assert [
        Reign(term=1, alpha="grey-2", previous=None, since_at=AFTERNOON + 1, until_at=AFTERNOON + 2, reason="claimed"),
        Reign(term=2, alpha="grey-1", previous="grey-2", since_at=AFTERNOON + 3, reason="highest rank"),
    ] == list(fold(story.events).packs["computing"].reigns)


def test_a_new_alpha_whose_predecessor_is_not_named_follows_the_last_of_the_history():
    story = led_pack().depose("computing", 1, "grey-2").crown("computing", 2, "grey-0", previous=None)
    assert "grey-2" == fold(story.events).packs["computing"].reigns[-1].previous


def test_a_lost_unit_is_no_member_but_its_pack_is_remembered():
    view = fold(led_pack().lose("grey-2", "computing").events)
    unit = view.units["grey-2"]
    assert (True, "computing", Readiness.ASLEEP) == (unit.lost, unit.pack, unit.readiness)
    assert ["grey-0", "grey-1"] == [member.name for member in view.members("computing")]
    assert view.packs["computing"].alpha is None


def test_a_lost_unit_that_is_woken_again_starts_afresh_in_the_pool():
    story = led_pack().lose("grey-2", "computing")
    story.tell(ev.UnitWaking(unit="grey-2", boot=2, pack="computing", reason="work"))
    unit = fold(story.events).units["grey-2"]
    assert (False, None, Readiness.WAKING, 2) == (unit.lost, unit.pack, unit.readiness, unit.boot)


def test_a_unit_that_goes_to_sleep_leaves_its_pack():
    view = fold(led_pack().tell(ev.UnitSlept(unit="grey-0", boot=1, reason="free for 10 s")).events)
    assert (None, Readiness.ASLEEP) == (view.units["grey-0"].pack, view.units["grey-0"].readiness)


def test_a_lent_werewolf_is_a_member_until_it_is_returned():
    story = Story().tell(ev.UnitLent(unit="silver-0", boot=1, pack="computing"))
    assert "computing" == fold(story.events).units["silver-0"].pack
    story.tell(ev.UnitReturned(unit="silver-0", boot=1, pack="computing"))
    assert None is fold(story.events).units["silver-0"].pack


def test_a_late_word_of_leaving_does_not_pull_a_unit_out_of_its_next_pack():
    story = led_pack().join("monitoring", "grey-0")
    story.tell(ev.UnitLeft(unit="grey-0", boot=1, pack="computing", reason="released"))
    assert "monitoring" == fold(story.events).units["grey-0"].pack


def test_a_quarantined_unit_is_clean_again_once_it_wakes():
    story = led_pack().tell(ev.UnitQuarantined(unit="grey-0", reason="fails fast"))
    assert Readiness.QUARANTINED == fold(story.events).units["grey-0"].readiness
    assert Readiness.AWAKE == fold(story.wake("grey-0").events).units["grey-0"].readiness


def test_a_dropped_pack_frees_its_units_and_does_not_come_back_with_the_end_of_its_term():
    view = fold(
        led_pack().tell(ev.PackDropped(pack="computing", reason="asked")).depose("computing", 1, "grey-2").events
    )
    assert {} == view.packs
    assert {None} == {unit.pack for unit in view.units.values()}


def test_an_event_that_comes_twice_changes_nothing():
    story = led_pack()
    before = fold(story.events)
    for recorded in story.events:
        before.apply(recorded)
    assert fold(story.events) == before


def test_events_of_users_and_of_later_versions_only_move_the_number():
    story = led_pack()
    packs = fold(story.events).packs
    story.tell(Coffee(cups=2)).tell(ev.UnknownEvent("AlphaBlessed", {"pack": "computing"}))
    assert (len(story.events), packs) == (fold(story.events).number, fold(story.events).packs)


def test_seats_are_in_natural_order_and_stay_when_a_unit_leaves():
    story = Story().pack("computing", "grey-10", "grey-2", "grey-1")
    story.tell(ev.UnitLeft(unit="grey-2", boot=1, pack="computing", reason="released"))
    assert ["grey-1", "grey-2", "grey-10"] == fold(story.events).packs["computing"].seats


def test_empty_seats_are_cleared_once_they_outnumber_the_taken_ones():
    story = Story()
    units = story.cards("grey", 20)
    story.pack("computing", *units)
    for unit in units[:10]:
        story.tell(ev.UnitLeft(unit=unit, boot=1, pack="computing", reason="released"))
    assert 20 == len(fold(story.events).packs["computing"].seats)
    story.tell(ev.UnitLeft(unit=units[10], boot=1, pack="computing", reason="released"))
    assert units[11:] == fold(story.events).packs["computing"].seats
