"""Plans: the ladder, pending orders, explanations, who sleeps and who leaves."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wolfpack.core.recruiting import (
    Candidate,
    Member,
    Pending,
    Plan,
    Rester,
    StepKind,
    explain_unmet,
    find_rung,
    plan,
    who_leaves,
    who_sleeps,
)
from wolfpack.model import Card, Nature, Needs, Offer, Rank, Readiness, natural_key

CPU, GPU, BROWSER = Needs.parse("cpu"), Needs.parse("gpu"), Needs.parse("browser")
ASLEEP, WEREWOLF = {"readiness": Readiness.ASLEEP}, {"nature": Nature.WEREWOLF}


def offer(tags: str, **measures: float) -> Offer:
    return Offer(frozenset(tags.split()), tuple(sorted(measures.items())))


def unit(name: str, tags: str = "cpu", **facts: Any) -> Candidate:
    return Candidate(unit=name, offer=offer(tags), **facts)


def named(made: Plan) -> list[str]:
    """The steps, as `kind unit`."""
    return [f"{step.kind} {step.unit}" for step in made.steps]


# --- the ladder ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rung", "facts"),
    [
        (1, {}),
        (2, ASLEEP),
        (3, WEREWOLF),
        (4, {**ASLEEP, **WEREWOLF}),
        (3, {"place": "monitoring", "lendable": True}),
        (None, {"place": "monitoring"}),
        (None, {"place": "monitoring", "lendable": True, "tenure_left_s": 1.0}),
        (None, {"place": "monitoring", "lendable": True, "readiness": Readiness.DRAINING}),
        (None, {**WEREWOLF, "tenure_left_s": 0.1}),
        (None, {**WEREWOLF, **ASLEEP, "tenure_left_s": 0.1}),
        (1, {"tenure_left_s": 5.0}),
        (None, {"readiness": Readiness.WAKING, "place": "monitoring"}),
        (None, {"readiness": Readiness.WAKING}),
        (None, {"readiness": Readiness.DRAINING}),
        (None, {"readiness": Readiness.QUARANTINED}),
        (None, {"readiness": Readiness.GONE}),
    ],
)
def test_each_unit_stands_on_its_rung(rung: int | None, facts: dict[str, Any]) -> None:
    assert rung == find_rung(unit("grey-0", **facts))


LADDER = [
    unit("silver-1", **WEREWOLF, **ASLEEP),
    unit("silver-0", **WEREWOLF),
    unit("grey-1", **ASLEEP),
    unit("grey-0"),
]


def test_the_ladder_is_climbed_from_below() -> None:
    expected = ["summon grey-0", "wake grey-1", "summon silver-0", "wake silver-1"]
    assert expected == named(plan(wants={CPU: 4}, candidates=LADDER))


def test_steps_name_their_rung() -> None:
    assert [1, 2, 3, 4] == [step.rung for step in plan(wants={CPU: 4}, candidates=LADDER).steps]


def test_a_higher_rung_is_left_alone_while_a_lower_one_suffices() -> None:
    assert ["summon grey-0", "wake grey-1"] == named(plan(wants={CPU: 2}, candidates=LADDER))


def test_a_wide_unit_of_a_lower_rung_comes_before_a_narrow_one_of_a_higher() -> None:
    candidates = [unit("grey-0", **ASLEEP), unit("wide-0", "cpu gpu")]
    assert ["summon wide-0"] == named(plan(wants={CPU: 1}, candidates=candidates))


def test_within_a_rung_the_narrowest_unit_comes_first_then_the_cheapest_then_the_lowest_id() -> None:
    candidates = [
        unit("grey-10"),
        unit("grey-2"),
        unit("dear-0", cost_per_h=2.0),
        unit("wide-0", "cpu gpu"),
    ]
    expected = ["summon grey-2", "summon grey-10", "summon dear-0", "summon wide-0"]
    assert expected == named(plan(wants={CPU: 4}, candidates=candidates))


def test_of_two_equally_wide_units_the_one_that_others_need_less_comes_first() -> None:
    candidates = [unit("a-gpu", "cpu gpu"), unit("b-gpu", "cpu gpu"), unit("c-odd", "cpu odd")]
    made = plan(wants={CPU: 1, GPU: 1}, candidates=candidates)
    assert {"c-odd": CPU, "a-gpu": GPU} == {step.unit: step.needs for step in made.steps}


def test_a_rare_unit_is_not_spent_on_common_work_even_from_a_lower_rung() -> None:
    candidates = [unit("wide-0", "cpu gpu"), unit("grey-0", **ASLEEP)]
    made = plan(wants={CPU: 1, GPU: 1}, candidates=candidates)
    assert {"wide-0": GPU, "grey-0": CPU} == {step.unit: step.needs for step in made.steps}


def test_a_lent_member_is_summoned_with_the_name_of_its_pack() -> None:
    made = plan(wants={CPU: 1}, candidates=[unit("grey-0", place="monitoring", lendable=True, boot=7)])
    expected = "1 more wanted for cpu: grey-0 is the next member that pack monitoring lends."
    assert (expected, 7) == (made.steps[0].reason, made.steps[0].boot)


# --- all at once, never too many ----------------------------------------------------------------------------------


def test_P31_two_hundred_sleepers_are_woken_in_one_step() -> None:
    sleepers = [unit(f"grey-{n}", **ASLEEP) for n in range(200)]
    made = plan(wants={CPU: 200}, candidates=sleepers)
    assert [f"wake grey-{n}" for n in range(200)] == named(made)


def test_P37_no_more_are_called_than_asked() -> None:
    assert 3 == len(plan(wants={CPU: 3}, candidates=[unit(f"grey-{n}") for n in range(50)]).steps)


def test_P39_a_wish_below_nothing_calls_nobody() -> None:
    assert () == plan(wants={CPU: -9}, candidates=[unit("grey-0")]).steps


def test_units_on_their_way_count() -> None:
    pending = [Pending(unit="grey-0", offer=offer("cpu"))]
    candidates = [unit("grey-0", readiness=Readiness.WAKING, place="computing"), unit("grey-1", **ASLEEP)]
    assert ["wake grey-1"] == named(plan(wants={CPU: 2}, candidates=candidates, pending=pending))


def test_a_unit_that_was_summoned_is_not_summoned_twice() -> None:
    pending = [Pending(unit="grey-0", offer=offer("cpu"), kind=StepKind.SUMMON)]
    assert () == plan(wants={CPU: 2}, candidates=[unit("grey-0")], pending=pending).steps


def test_P34_a_wake_that_is_no_longer_wanted_is_called_off() -> None:
    pending = [Pending(unit=f"grey-{n}", offer=offer("cpu"), boot=4) for n in range(3)]
    made = plan(wants={CPU: 1}, candidates=[], pending=pending)
    assert [("call_off", "grey-1", 4), ("call_off", "grey-2", 4)] == [(s.kind, s.unit, s.boot) for s in made.steps]


def test_P34_a_summons_is_kept_and_the_wake_beside_it_called_off() -> None:
    pending = [
        Pending(unit="grey-0", offer=offer("cpu")),
        Pending(unit="grey-1", offer=offer("cpu"), kind=StepKind.SUMMON),
    ]
    assert ["call_off grey-0"] == named(plan(wants={CPU: 1}, candidates=[], pending=pending))


def test_a_summons_that_is_no_longer_wanted_is_not_called_off() -> None:
    pending = [Pending(unit="grey-0", offer=offer("cpu"), kind=StepKind.SUMMON)]
    assert () == plan(wants={}, candidates=[], pending=pending).steps


def test_P34_a_wake_for_work_that_is_gone_does_not_count_for_other_work() -> None:
    made = plan(
        wants={GPU: 1}, candidates=[unit("wide-0", "gpu")], pending=[Pending(unit="grey-0", offer=offer("cpu"))]
    )
    assert ["call_off grey-0", "summon wide-0"] == named(made)


def test_P06_a_source_recalled_a_thousand_times_is_still_used() -> None:
    silver = unit("silver-0", **WEREWOLF)
    for _ in range(1000):
        assert ["summon silver-0"] == named(plan(wants={CPU: 1}, candidates=[silver]))
        assert [] == named(plan(wants={CPU: 1}, candidates=[unit("silver-0", **WEREWOLF, tenure_left_s=5.0)]))


# --- reasons ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reasons", "wants", "candidates"),
    [
        (["Nothing missing: 4 of 4 members are there."], {}, []),
        (["Nothing missing: 4 of 4 members are there."], {CPU: 0}, []),
        (["1 more wanted for cpu: 1 awake wolf called."], {CPU: 1}, LADDER),
        (
            ["4 more wanted for cpu: 1 awake wolf called, 1 sleeping wolf woken, 1 awake werewolf called, "
             "1 sleeping werewolf woken."],
            {CPU: 4}, LADDER,
        ),
        (
            ["2 more wanted for cpu: 2 sleeping wolves woken."],
            {CPU: 2}, [unit("grey-0", **ASLEEP), unit("grey-1", **ASLEEP)],
        ),
        (
            ["5 more wanted for gpu: 2 awake wolves called. 3 of 5 could not be found: gpu is offered by 4 of 5 cards "
             "(a-0, a-1, x-0 and 1 more): 2 on the way, 2 in pack x."],
            {GPU: 5},
            [unit("a-0", "gpu"), unit("a-1", "gpu"), unit("x-0", "gpu", place="x"), unit("x-1", "gpu", place="x"),
             unit("b-0")],
        ),
        (
            ["1 more wanted for gpu: nobody can come. 1 of 1 could not be found: none of 1 cards offers gpu; "
             "the nearest, b-0, lacks tag 'gpu'."],
            {GPU: 1}, [unit("b-0")],
        ),
    ],
)  # fmt: skip
def test_each_plan_says_why(reasons: list[str], wants: dict[Needs, int], candidates: list[Candidate]) -> None:
    assert reasons == list(plan(wants=wants, candidates=candidates, members=4).reasons)


def test_units_on_their_way_are_told() -> None:
    made = plan(wants={CPU: 2}, candidates=[], pending=[Pending(unit="grey-0", offer=offer("cpu"))])
    expected = (
        "2 more wanted for cpu: 1 on the way. 1 of 2 could not be found: "
        "cpu is offered by 1 of 1 cards (grey-0): 1 on the way."
    )
    assert (expected,) == made.reasons


def test_what_could_not_be_found_is_counted() -> None:
    assert {GPU: 2} == plan(wants={CPU: 1, GPU: 3}, candidates=[unit("a", "gpu"), unit("b")]).unmet


def cards(*offers: Offer) -> list[Card]:
    return [Card(unit=f"grey-{n}", kind="grey", offer=one) for n, one in enumerate(offers)]


BIG = Needs.parse({"gpu": True, "memory_gb": 64})


@pytest.mark.parametrize(
    ("sentence", "needs", "pool", "facts"),
    [
        ("there is no card at all, so nobody offers gpu.", GPU, [], {}),
        ("none of 1 cards offers gpu; the nearest, grey-0, lacks tag 'gpu'.", GPU, [offer("cpu")], {}),
        (
            "none of 2 cards offers gpu, memory_gb>=64; the nearest, grey-1, lacks memory_gb of at least 64 (has 16).",
            BIG, [offer("cpu"), offer("gpu", memory_gb=16)], {},
        ),
        ("gpu is offered by 1 of 1 cards (grey-0): 1 asleep.", GPU, [offer("gpu")], ASLEEP),
        (
            "gpu is offered by 1 of 2 cards (grey-1): 1 waking for pack ours (waits for Ray resources: num_gpus 1).",
            GPU, [offer("cpu"), offer("gpu")],
            {"readiness": Readiness.WAKING, "place": "ours", "reason": "waits for Ray resources: num_gpus 1"},
        ),
        ("gpu is offered by 1 of 1 cards (grey-0): 1 in pack x.", GPU, [offer("gpu")], {"place": "x"}),
        ("gpu is offered by 1 of 1 cards (grey-0): 1 already in this pack.", GPU, [offer("gpu")], {"place": "ours"}),
        ("gpu is offered by 1 of 1 cards (grey-0): 1 awake and free.", GPU, [offer("gpu")], {}),
        ("gpu is offered by 1 of 1 cards (grey-0): 1 at its day job.", GPU, [offer("gpu")], WEREWOLF),
        (
            "gpu is offered by 1 of 1 cards (grey-0): 1 at its day job, to be lent in 4 s.",
            GPU, [offer("gpu")], {**WEREWOLF, "tenure_left_s": 4.0},
        ),
        (
            "gpu is offered by 1 of 1 cards (grey-0): 1 quarantined (three births failed).",
            GPU, [offer("gpu")], {"readiness": Readiness.QUARANTINED, "reason": "three births failed"},
        ),
        (
            "cpu is offered by 5 of 5 cards (grey-0, grey-1, grey-2 and 2 more): 5 in pack x.",
            CPU, [offer("cpu")] * 5, {"place": "x"},
        ),
    ],
)  # fmt: skip
def test_P57_one_sentence_with_numbers_says_why_a_need_is_not_served(
    sentence: str, needs: Needs, pool: list[Offer], facts: dict[str, Any]
) -> None:
    roster = [Candidate(unit=card.unit, offer=card.offer, **facts) for card in cards(*pool)]
    assert sentence == explain_unmet(needs, cards(*pool), roster, "ours")


def test_P57_a_card_without_a_unit_is_told() -> None:
    expected = "gpu is offered by 1 of 1 cards (grey-0): 1 without a unit."
    assert expected == explain_unmet(GPU, cards(offer("gpu")), [])


# --- who sleeps ---------------------------------------------------------------------------------------------------


def rester(name: str, tags: str = "cpu", **facts: Any) -> Rester:
    kind = name.rpartition("-")[0]
    return Rester(**{"unit": name, "kind": kind, "offer": offer(tags), "free_s": 60.0, "sleep_after_s": 10.0, **facts})


def sleepers(*resting: Rester, least: int = 0, due: dict[Needs, int] | None = None) -> list[str]:
    awake: dict[str, int] = {}
    for one in resting:
        awake[one.kind] = awake.get(one.kind, 0) + 1
    parting = who_sleeps(resting=resting, awake=awake, awake_min=dict.fromkeys(awake, least), due=due or {})
    return [pick.unit for pick in parting.go]


def test_P33_a_unit_sleeps_after_its_time_and_not_before() -> None:
    assert ["grey-1"] == sleepers(rester("grey-0", free_s=9.9), rester("grey-1", free_s=10.0))


def test_P33_a_unit_that_due_work_misses_does_not_sleep_to_be_woken() -> None:
    assert ["grey-0"] == sleepers(rester("grey-0"), rester("grey-1"), due={CPU: 1})


def test_the_only_unit_with_a_capability_stays_awake_while_such_work_is_due() -> None:
    assert ["grey-0", "grey-1"] == sleepers(
        rester("wide-0", "cpu gpu"), rester("grey-0"), rester("grey-1"), due={GPU: 1}
    )


def test_a_wide_unit_sleeps_where_a_narrow_one_can_do_the_work() -> None:
    assert ["wide-0"] == sleepers(rester("wide-0", "cpu gpu"), rester("grey-0"), due={CPU: 1})


def test_P35_a_unit_with_unconfirmed_reports_stays_awake() -> None:
    assert [] == sleepers(rester("grey-0", unacked=1))


def test_P65_of_two_free_wolves_exactly_one_sleeps() -> None:
    assert ["grey-0"] == sleepers(rester("grey-0"), rester("grey-1"), least=1)


def test_members_count_for_awake_min() -> None:
    parting = who_sleeps(resting=[rester("grey-0")], awake={"grey": 2}, awake_min={"grey": 1}, due={})
    assert ["grey-0"] == [pick.unit for pick in parting.go]


def test_the_dearest_sleeps_first_then_the_widest_then_the_longest_free() -> None:
    order = sleepers(
        rester("a-0", free_s=20.0),
        rester("b-0", free_s=30.0),
        rester("c-0", "cpu gpu"),
        rester("d-0", cost_per_h=1.0),
    )
    assert ["d-0", "c-0", "b-0", "a-0"] == order


@pytest.mark.parametrize(
    ("reason", "one", "least", "due"),
    [
        ("Free for 60.0 s, longer than sleep_after_s of 10 s.", rester("grey-0"), 0, {}),
        ("Free for 3.0 s only, sleep_after_s is 10 s.", rester("grey-0", free_s=3.0), 0, {}),
        ("2 of its reports are not yet confirmed.", rester("grey-0", unacked=2), 0, {}),
        ("awake_min keeps 1 of kind grey awake.", rester("grey-0"), 1, {}),
        ("Work for cpu is due and grey-0 can serve it.", rester("grey-0"), 0, {CPU: 1}),
    ],
)
def test_each_answer_about_sleep_has_a_reason(reason: str, one: Rester, least: int, due: dict[Needs, int]) -> None:
    parting = who_sleeps(resting=[one], awake={"grey": 1}, awake_min={"grey": least}, due=due)
    assert [("grey-0", reason)] == [*parting.go, *parting.stay]


# --- who leaves ---------------------------------------------------------------------------------------------------


def member(name: str, tags: str = "cpu", **facts: Any) -> Member:
    return Member(unit=name, offer=offer(tags), rank=Rank(0, natural_key(name)), **facts)


def leavers(surplus: int, *members: Member, due: dict[Needs, int] | None = None) -> list[str]:
    return [pick.unit for pick in who_leaves(members=members, surplus=surplus, due=due or {}).go]


def test_werewolves_leave_first_then_the_dearest_the_widest_the_idle_the_lowest_and_the_alpha_last() -> None:
    members = [
        member("grey-9", alpha=True, cost_per_h=9.0),
        member("grey-2"),
        member("grey-1"),
        member("busy-0", leases=3),
        member("wide-0", "cpu gpu"),
        member("dear-0", cost_per_h=1.0),
        member("silver-0", nature=Nature.WEREWOLF),
    ]
    expected = ["silver-0", "dear-0", "wide-0", "grey-1", "grey-2", "busy-0", "grey-9"]
    assert expected == leavers(7, *members)


@pytest.mark.parametrize("surplus", [0, -9])
def test_P39_nobody_leaves_a_pack_without_surplus(surplus: int) -> None:
    assert [] == leavers(surplus, member("grey-0"))


def test_no_more_leave_than_are_too_many() -> None:
    assert ["grey-0", "grey-1"] == leavers(2, *(member(f"grey-{n}") for n in range(5)))


def test_a_werewolf_is_not_sent_home_before_its_tenure_is_over() -> None:
    silver = member("silver-0", nature=Nature.WEREWOLF, tenure_left_s=3.0)
    assert ["grey-0"] == leavers(1, silver, member("grey-0"))


def test_the_alpha_stays_while_anybody_does() -> None:
    silver = member("silver-0", nature=Nature.WEREWOLF, tenure_left_s=3.0)
    assert [] == leavers(1, silver, member("grey-0", alpha=True))


def test_the_only_member_with_a_needed_capability_stays() -> None:
    members = [member("wide-0", "cpu gpu", cost_per_h=9.0, nature=Nature.WEREWOLF), member("grey-0"), member("grey-1")]
    assert ["grey-0"] == leavers(2, *members, due={CPU: 1, GPU: 1})


def test_a_member_held_by_its_tenure_frees_another_to_leave() -> None:
    silver = member("silver-0", nature=Nature.WEREWOLF, tenure_left_s=3.0)
    assert ["grey-0"] == leavers(1, silver, member("grey-0"), due={CPU: 1})


def test_each_answer_about_leaving_has_a_reason() -> None:
    members = [
        member("grey-9", alpha=True),
        member("grey-0", leases=2),
        member("wide-0", "gpu"),
        member("silver-0", nature=Nature.WEREWOLF, tenure_left_s=3.0),
    ]
    parting = who_leaves(members=members, surplus=4, due={GPU: 1})
    assert {
        "grey-0": "The pack has 4 too many; grey-0 is next to leave and holds 2 leases.",
        "wide-0": "Work for gpu is due and needs wide-0.",
        "silver-0": "Lent for too short a time: 3.0 s of its tenure are left.",
        "grey-9": "It is the alpha, and others stay.",
    } == dict([*parting.go, *parting.stay])


# --- properties ---------------------------------------------------------------------------------------------------

TAGS = st.sets(st.sampled_from(["cpu", "gpu", "browser"]), min_size=1).map(lambda tags: " ".join(sorted(tags)))
WANTS = st.dictionaries(st.sampled_from([CPU, GPU, BROWSER, BIG]), st.integers(-3, 6))


@st.composite
def pools(draw: st.DrawFn) -> list[Candidate]:
    return [
        unit(
            f"u-{n}",
            draw(TAGS),
            nature=draw(st.sampled_from(Nature)),
            readiness=draw(st.sampled_from(Readiness)),
            place=draw(st.sampled_from([None, "x"])),
            lendable=draw(st.booleans()),
            tenure_left_s=draw(st.sampled_from([0.0, 3.0])),
            cost_per_h=draw(st.sampled_from([0.0, 1.0])),
        )
        for n in range(draw(st.integers(0, 12)))
    ]


@settings(deadline=None)
@given(wants=WANTS, pool=pools(), on_the_way=st.lists(TAGS, max_size=4))
def test_P37_P39_a_plan_calls_fitting_units_once_each_and_never_too_many(
    wants: dict[Needs, int], pool: list[Candidate], on_the_way: list[str]
) -> None:
    pending = [Pending(unit=f"p-{n}", offer=offer(tags)) for n, tags in enumerate(on_the_way)]
    made = plan(wants=wants, candidates=pool, pending=pending)
    units = {candidate.unit: candidate for candidate in pool}
    called = [step for step in made.steps if step.kind is not StepKind.CALL_OFF]
    off = len(made.steps) - len(called)
    asked = sum(count for count in wants.values() if count > 0)
    assert len({step.unit for step in made.steps}) == len(made.steps)
    assert asked == len(called) + len(pending) - off + sum(made.unmet.values())
    for step in called:
        assert step.needs is not None
        assert step.needs.fits(units[step.unit].offer)
        assert step.rung == find_rung(units[step.unit])
    assert all(step.reason.endswith(".") for step in made.steps)
    assert len(made.reasons) == max(1, sum(count > 0 for count in wants.values()))


@settings(deadline=None)
@given(
    surplus=st.integers(-2, 9),
    facts=st.lists(st.tuples(TAGS, st.sampled_from(Nature), st.sampled_from([0.0, 3.0])), max_size=8),
    due=WANTS,
)
def test_leaving_costs_no_sub_pack_a_member_that_it_can_use(
    surplus: int, facts: list[tuple[str, Nature, float]], due: dict[Needs, int]
) -> None:
    members = [
        member(f"u-{n}", tags, nature=nature, tenure_left_s=tenure_s, alpha=n == 0)
        for n, (tags, nature, tenure_s) in enumerate(facts)
    ]
    gone = set(leavers(surplus, *members, due=due))
    staying = [m for m in members if m.unit not in gone]
    assert len(gone) <= max(0, surplus)
    assert served(due, staying) == served(due, members)
    assert not any(m.unit in gone for m in members if m.nature is Nature.WEREWOLF and m.tenure_left_s)
    assert "u-0" not in gone or not staying


def served(due: dict[Needs, int], members: list[Member]) -> int:
    """How many wanted members these can be, found without the code under test: by trying each seat in turn."""
    seats = [needs for needs, count in due.items() for _ in range(count)]
    taken: dict[int, int] = {}

    def find_seat(m: int, seen: set[int]) -> bool:
        for seat, needs in enumerate(seats):
            if seat not in seen and needs.fits(members[m].offer):
                seen.add(seat)
                if seat not in taken or find_seat(taken[seat], seen):
                    taken[seat] = m
                    return True
        return False

    return sum(find_seat(m, set()) for m in range(len(members)))
