"""A view says what it was told, whatever base it rests on, and its digests follow."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wolfpack.core.membership_words import Status
from wolfpack.core.view import Base, Member, View, member_hash, name_hash, set_bits

ALIVE, SUSPECT, LEFT, DEAD = Status.ALIVE, Status.SUSPECT, Status.LEFT, Status.DEAD


def base_of(count: int = 20) -> Base:
    return Base(Member(f"grey-{i}", str(i), 1) for i in range(count))


def living_digest(view: View) -> int:
    digest = 0
    for member in view:
        if member.lives:
            digest ^= member_hash(member.unit, member.boot, member.counter, 0)
    return digest


def test_a_base_sorts_as_people_do_so_that_its_bits_mean_the_same_everywhere():
    forth, back = base_of(), Base(reversed(base_of().members))
    assert [m.unit for m in forth.members][9:11] == ["grey-9", "grey-10"]
    assert forth.digest == back.digest
    assert forth.members == back.members


def test_a_base_holds_no_suspects():
    with pytest.raises(ValueError, match="suspects"):
        Base([Member("a", "", 1, 0, SUSPECT)])


def test_names_hash_alike_in_every_process():
    assert name_hash("grey-17") == 4302851257957528147


def test_views_share_their_base_until_they_differ():
    base = base_of()
    one, other = View(base), View(base)
    one.put(base.members[3]._replace(status=DEAD))
    assert one.get("grey-3").status is DEAD
    assert other.get("grey-3").status is ALIVE
    assert (one.living, other.living) == (19, 20)
    assert one.digest != other.digest
    other.put(base.members[3]._replace(status=DEAD))
    assert one.digest == other.digest


def test_suspicion_changes_no_digest_and_death_does():
    view = View(base_of())
    before = view.digest
    view.put(view.get("grey-2")._replace(status=SUSPECT))
    assert view.suspects == ["grey-2"]
    assert view.digest == before
    view.put(view.get("grey-2")._replace(status=DEAD))
    assert view.suspects == []
    assert view.digest != before


def test_deaths_of_one_view_are_found_in_another_by_bits():
    base = base_of()
    one, other = View(base), View(base)
    for name in ("grey-0", "grey-9", "grey-19"):
        one.put(one.get(name)._replace(status=DEAD))
    other.put(other.get("grey-9")._replace(status=DEAD))
    assert [m.unit for m in other.newly_dead(0, one.dead_bits())] == ["grey-0", "grey-19"]
    assert [m.unit for m in other.newly_dead(2, one.dead_bits(2, 1))] == ["grey-19"]
    assert one.newly_dead(0, one.dead_bits()) == []
    with pytest.raises(ValueError, match="bitmap"):
        other.newly_dead(1, one.dead_bits())


def test_many_buried_at_once_are_as_each_put_by_itself():
    base = base_of()
    one, other = View(base), View(base)
    for view in (one, other):
        view.put(view.get("grey-4")._replace(counter=1))
        view.put(view.get("grey-6")._replace(status=SUSPECT))
    dead = [base.members[i] for i in (3, 4, 6, 19)]
    assert [m.unit for m in one.bury(dead)] == ["grey-4"]
    for i in (3, 6, 19):
        other.put(base.members[i]._replace(status=DEAD))
    assert list(one) == list(other)
    assert (one.digest, one.living, one.suspects) == (other.digest, other.living, [])
    assert one.settle()
    assert other.settle()
    assert one.base is other.base


def test_bits_tell_nothing_of_a_unit_that_changed_otherwise():
    view = View(base_of())
    view.put(view.get("grey-4")._replace(counter=1))
    view.put(view.get("grey-4")._replace(status=DEAD))
    assert view.slot_in_bits("grey-4") is None
    assert list(set_bits(view.dead_bits())) == []
    assert view.slot_in_bits("grey-5") == 5


def test_a_forgotten_unit_leaves_its_place_to_the_next():
    view = View(base_of(3))
    for i in range(3, 2000):
        view.put(Member(f"grey-{i}", str(i), 1, 0, LEFT))
        if i > 4:
            view.forget(f"grey-{i - 2}")
    assert len(view) == 5
    assert view.slots <= 6
    assert {m.unit for m in view} == {"grey-0", "grey-1", "grey-2", "grey-1998", "grey-1999"}
    assert view.unit_at("7") is None


def test_equal_views_settle_on_one_base_and_say_the_same_as_before():
    one, other = View(base_of()), View()
    one.put(Member("grey-30", "30", 4, 2))
    one.put(one.get("grey-1")._replace(status=DEAD))
    for member in one:
        other.put(member)
    before, digest = {m.unit: m for m in one}, one.digest
    assert one.settle()
    assert other.settle()
    assert one.base is other.base
    assert not one.differs
    assert {m.unit: m for m in one} == before
    assert one.digest == digest == other.digest
    assert one.living == 20


def test_a_view_with_suspects_does_not_settle():
    view = View(base_of())
    view.put(view.get("grey-2")._replace(status=SUSPECT))
    assert not view.settle()


def test_settling_can_forget_the_dead():
    view = View(base_of())
    view.put(view.get("grey-2")._replace(status=DEAD))
    assert view.settle(keep_dead=False)
    assert "grey-2" not in view
    assert len(view) == view.living == 19


members = st.builds(
    Member, st.sampled_from([f"grey-{i}" for i in range(12)]), st.sampled_from(["", "x", "y"]), st.integers(0, 3),
    st.integers(0, 3), st.sampled_from(Status),
)  # fmt: skip


@settings(max_examples=120, deadline=None)
@given(st.lists(st.one_of(members, st.sampled_from(["settle", "forget"])), max_size=40), st.integers(0, 8))
def test_a_view_is_what_was_last_put_whatever_base_it_rests_on(script, size):
    view, model = View(base_of(size)), {m.unit: m for m in base_of(size).members}
    for event in script:
        if event == "settle":
            view.settle()
        elif event == "forget":
            gone = next((u for u in model if u not in view.base.index), None)
            if gone is not None:
                view.forget(gone)
                del model[gone]
        else:
            view.put(event)
            model[event.unit] = event
        assert {m.unit: m for m in view} == model
        assert all(view.get(unit) == member for unit, member in model.items())
        assert view.living == sum(m.lives for m in model.values())
        assert view.digest == living_digest(view)
        assert len(view) == len(model)
        assert sorted(view.suspects) == sorted(u for u, m in model.items() if m.status is SUSPECT)
