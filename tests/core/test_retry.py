"""What the end of a lease costs its task: blame, budgets, back-off, pins."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wolfpack.core.retry import (
    Verdict,
    backoff_s,
    find_unpin_reason,
    judge,
    names_match,
    pinned_needs,
    pinned_offer,
    replay,
)
from wolfpack.core.tasks import TaskEvent, move
from wolfpack.model import Card, Cause, Nature, Needs, Offer, RetryPolicy, TaskState

CPU = Needs.parse("cpu")
COUNTED = [Cause.FAULT, Cause.CRASH, Cause.OOM, Cause.TIMEOUT, Cause.LOST]
FREE = [Cause.EVICTED, Cause.RETURNED]


def end(cause: Cause, **changes: Any) -> Verdict:
    """Judges one end of a fresh task that ran alone; `changes` says what is different."""
    facts: dict[str, Any] = {
        "started": cause is not Cause.RETURNED, "policy": RetryPolicy(), "attempts": 0, "failures": 0, "evictions": 0,
        "solo": False, "pinned": False, "alone": True, "cancel": False, "progressed": False, "kinds": (),
        "retry_after_s": None, "needs": CPU, "rng": random.Random(7),
    }  # fmt: skip
    return judge(cause=cause, **{**facts, **changes})


def again(before: Verdict, cause: Cause, **changes: Any) -> Verdict:
    """Judges the next end of the same task."""
    spent = {
        "attempts": before.attempts, "failures": before.failures, "evictions": before.evictions, "solo": before.solo,
        "pinned": before.pinned, "needs": before.needs,
    }  # fmt: skip
    return end(cause, **{**spent, **changes})


@pytest.mark.parametrize(
    ("event", "cause"),
    [
        ("settle_done", Cause.DONE),
        ("retry", Cause.FAULT),
        ("retry", Cause.CRASH),
        ("retry", Cause.OOM),
        ("retry", Cause.TIMEOUT),
        ("retry", Cause.LOST),
        ("give_back", Cause.EVICTED),
        ("give_back", Cause.RETURNED),
        ("cancel", Cause.CANCELLED),
        ("bury", Cause.EXPIRED),
    ],
)
def test_P05_each_cause_has_its_own_move(event: str, cause: Cause) -> None:
    assert event == end(cause).event


def test_P01_fifty_evictions_leave_a_task_with_three_attempts_alive() -> None:
    policy = RetryPolicy(max_attempts=3, max_evictions=100)
    state = end(Cause.EVICTED, policy=policy)
    for _ in range(49):
        state = again(state, Cause.EVICTED, policy=policy)
    last = again(state, Cause.DONE, policy=policy)
    assert (TaskEvent.SETTLE_DONE, 51, 0, 50, False) == (
        last.event, last.attempts, last.failures, last.evictions, last.pinned,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("attempts", "cause", "started"),
    [
        (3, Cause.FAULT, True),
        (3, Cause.EVICTED, True),
        (2, Cause.EVICTED, False),
        (2, Cause.RETURNED, False),
        (2, Cause.LOST, False),
        (3, Cause.DONE, True),
        (3, Cause.CANCELLED, True),
    ],
)
def test_P03_attempts_count_starts_of_user_code_and_nothing_else(attempts: int, cause: Cause, started: bool) -> None:
    assert attempts == end(cause, started=started, attempts=2).attempts


@pytest.mark.parametrize("cause", FREE)
def test_P04_scaling_in_fails_no_task_that_has_one_attempt(cause: Cause) -> None:
    verdict = end(cause, policy=RetryPolicy(max_attempts=1))
    assert (TaskEvent.GIVE_BACK, 0, 0.0) == (verdict.event, verdict.failures, verdict.not_before_delay_s)


@pytest.mark.parametrize(("cause", "started"), [(Cause.RETURNED, False), (Cause.EVICTED, False)])
def test_P07_releasing_a_unit_leaves_all_counters_of_its_waiting_tasks_untouched(cause: Cause, started: bool) -> None:
    verdict = end(cause, started=started, attempts=2, failures=1, evictions=4)
    assert (2, 1, 4, False) == (verdict.attempts, verdict.failures, verdict.evictions, verdict.pinned)


@pytest.mark.parametrize("cause", [Cause.LOST, Cause.CRASH])
def test_P08_a_lost_unit_or_a_dead_process_is_not_told_as_a_fault(cause: Cause) -> None:
    assert "the task raised no fault" in end(cause).reason


@pytest.mark.parametrize("cause", COUNTED)
def test_P09_each_cause_that_counts_ends_as_a_dead_letter_after_its_budget(cause: Cause) -> None:
    first = end(cause)
    second = again(first, cause)
    third = again(second, cause)
    assert (["retry", "retry", "bury"], 3) == ([v.event for v in (first, second, third)], third.failures)


def test_P09_a_dead_letter_says_that_its_budget_is_spent() -> None:
    expected = (
        "The process that ran the task died under it; the task raised no fault; "
        "its budget of failures is spent (3 of 3 allowed)."
    )
    assert expected == end(Cause.CRASH, failures=2).reason


@pytest.mark.parametrize("cause", COUNTED)
def test_P09_a_task_that_dies_before_its_start_is_seen_is_not_handed_out_for_ever(cause: Cause) -> None:
    assert 1 == end(cause, started=False).failures


def test_P09_a_unit_lost_with_several_leases_blames_none_and_each_runs_solo_next() -> None:
    verdict = end(Cause.LOST, alone=False, failures=2)
    assert (TaskEvent.GIVE_BACK, 2, True, 0.0) == (
        verdict.event, verdict.failures, verdict.solo, verdict.not_before_delay_s,
    )  # fmt: skip


def test_P09_a_task_that_kills_units_is_found_once_it_runs_solo() -> None:
    verdict = end(Cause.LOST, alone=False)
    events = []
    for _ in range(3):
        verdict = again(verdict, Cause.LOST, alone=verdict.solo)
        events.append(verdict.event)
    assert ["retry", "retry", "bury"] == events


def test_a_task_lost_alone_stays_solo_so_that_it_takes_no_other_along() -> None:
    assert end(Cause.LOST, alone=True).solo


@pytest.mark.parametrize("alone", [True, False])
def test_units_of_one_node_lost_at_once_blame_nobody(alone: bool) -> None:
    verdict = end(Cause.LOST, alone=alone, blameless=True, failures=2)
    assert (TaskEvent.GIVE_BACK, 2, False) == (verdict.event, verdict.failures, verdict.solo)


def test_a_node_that_is_blameless_does_not_excuse_a_fault() -> None:
    assert 1 == end(Cause.FAULT, blameless=True).failures


def test_P10_P53_the_retry_after_oom_asks_for_more() -> None:
    policy = RetryPolicy(on_oom=Needs.parse({"memory_gb": 16}))
    verdict = end(Cause.OOM, policy=policy, needs=Needs.parse({"cpu": True, "memory_gb": 4}))
    assert Needs.parse({"cpu": True, "memory_gb": 16}) == verdict.needs


def test_P10_on_oom_never_asks_for_less() -> None:
    policy = RetryPolicy(on_oom=Needs.parse({"memory_gb": 2}))
    needs = Needs.parse({"memory_gb": 4})
    assert needs == end(Cause.OOM, policy=policy, needs=needs).needs


def test_P10_the_needs_grow_after_oom_only() -> None:
    policy = RetryPolicy(on_oom=Needs.parse({"memory_gb": 16}))
    assert {CPU} == {end(cause, policy=policy).needs for cause in Cause if cause is not Cause.OOM}


def test_P10_the_reason_names_the_new_needs() -> None:
    policy = RetryPolicy(on_oom=Needs.parse({"memory_gb": 16}))
    assert "asks for cpu, memory_gb>=16" in end(Cause.OOM, policy=policy).reason


@pytest.mark.parametrize(("pinned", "before"), [(False, 3), (True, 4), (True, 5)])
def test_P11_at_the_end_of_its_evictions_a_task_is_pinned(pinned: bool, before: int) -> None:
    assert pinned == end(Cause.EVICTED, evictions=before).pinned


def test_P11_evictions_never_bury_a_task() -> None:
    assert TaskEvent.GIVE_BACK == end(Cause.EVICTED, evictions=10_000, policy=RetryPolicy(max_evictions=1)).event


def test_P11_an_eviction_after_progress_costs_nothing() -> None:
    verdict = end(Cause.EVICTED, evictions=4, progressed=True)
    assert (4, False) == (verdict.evictions, verdict.pinned)


@pytest.mark.parametrize("cause", [cause for cause in Cause if cause not in (Cause.DONE, Cause.CANCELLED)])
def test_P11_a_pin_stays_whatever_happens_next(cause: Cause) -> None:
    assert end(cause, pinned=True).pinned


def test_P11_a_pin_is_served_by_a_wolf_whose_pack_lends_nobody() -> None:
    offer = Offer(frozenset({"cpu"}))
    served = [
        (nature.value, lendable)
        for nature in Nature
        for lendable in (True, False)
        if pinned_needs(CPU, True).fits(pinned_offer(offer, nature, lendable))
    ]
    assert [("wolf", False)] == served


def test_P11_a_task_without_a_pin_asks_for_nothing_more() -> None:
    assert CPU == pinned_needs(CPU, False)


@pytest.mark.parametrize(
    ("reason", "nature", "offers", "lendable"),
    [
        (None, Nature.WOLF, "cpu", False),
        ("The pin is dropped: all 1 cards that offer cpu are werewolves.", Nature.WEREWOLF, "cpu", False),
        ("The pin is dropped: no card offers cpu.", Nature.WOLF, "gpu", False),
        (
            "The pin is dropped: the pack is lendable, so none of its members is safe from being lent.",
            Nature.WOLF, "cpu", True,
        ),
    ],
)  # fmt: skip
def test_P11_a_pin_that_no_card_can_honour_is_dropped_with_a_reason(
    reason: str | None, nature: Nature, offers: str, lendable: bool
) -> None:
    card = Card(unit="grey-0", kind="grey", nature=nature, offer=Offer(frozenset({offers})))
    assert reason == find_unpin_reason(CPU, [card], lendable)


def test_P11_the_pin_is_kept_while_one_card_of_many_can_honour_it() -> None:
    offer = Offer(frozenset({"cpu"}))
    cards = [
        Card(unit="silver-0", kind="silver", nature=Nature.WEREWOLF, offer=offer),
        Card(unit="grey-0", kind="grey", offer=offer),
    ]
    assert None is find_unpin_reason(CPU, cards, False)


# --- cancel -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cause", [cause for cause in Cause if cause is not Cause.DONE])
def test_a_marked_task_is_cancelled_however_its_lease_ends(cause: Cause) -> None:
    assert TaskEvent.CANCEL == end(cause, cancel=True).event


def test_a_task_that_was_done_before_the_cancel_reached_it_is_done() -> None:
    assert TaskEvent.SETTLE_DONE == end(Cause.DONE, cancel=True).event


def test_a_cancelled_task_spends_no_budget() -> None:
    verdict = end(Cause.FAULT, cancel=True, failures=1, evictions=2)
    assert (1, 2) == (verdict.failures, verdict.evictions)


# --- which faults are retried -------------------------------------------------------------------------------------

REFUSED = ("builtins.ConnectionRefusedError", "builtins.ConnectionError", "builtins.OSError", "builtins.Exception")


@pytest.mark.parametrize(
    ("event", "retry_on", "never_on"),
    [
        ("retry", (), ()),
        ("retry", ("ConnectionRefusedError",), ()),
        ("retry", ("OSError",), ()),
        ("retry", ("builtins.OSError",), ()),
        ("bury", ("ValueError",), ()),
        ("bury", ("socket.OSError",), ()),
        ("bury", (), ("ConnectionError",)),
        ("bury", (), ("builtins.Exception",)),
        ("bury", ("OSError",), ("ConnectionError",)),
        ("retry", ("OSError",), ("ValueError",)),
        ("bury", ("Error",), ()),
    ],
)
def test_retry_on_and_never_on_match_classes_in_full_or_bare(
    event: str, retry_on: tuple[str, ...], never_on: tuple[str, ...]
) -> None:
    policy = RetryPolicy(retry_on=retry_on, never_on=never_on)
    assert event == end(Cause.FAULT, policy=policy, kinds=REFUSED).event


def test_a_fault_that_must_not_be_retried_says_why() -> None:
    policy = RetryPolicy(never_on=("OSError",))
    expected = "The task raised builtins.ConnectionRefusedError; never_on names OSError."
    assert expected == end(Cause.FAULT, policy=policy, kinds=REFUSED).reason


@pytest.mark.parametrize("cause", [Cause.CRASH, Cause.OOM, Cause.TIMEOUT, Cause.LOST])
def test_lists_of_exceptions_say_nothing_about_ends_without_one(cause: Cause) -> None:
    policy = RetryPolicy(retry_on=("ValueError",), never_on=("Exception",))
    assert TaskEvent.RETRY == end(cause, policy=policy).event


def test_names_match_returns_the_entry_that_matched() -> None:
    assert "OSError" == names_match(("ValueError", "OSError"), REFUSED)


def test_a_nested_class_is_found_by_its_bare_name() -> None:
    assert "Broken" == names_match(("Broken",), ("jobs.Source.Broken",))


@pytest.mark.parametrize("kinds", [("wolfpack.errors.Retry",), ("jobs.Later", "wolfpack.errors.Retry")])
def test_a_task_that_asks_for_a_retry_gets_it_whatever_the_lists_say(kinds: tuple[str, ...]) -> None:
    policy = RetryPolicy(retry_on=("ValueError",), never_on=("Exception",))
    assert TaskEvent.RETRY == end(Cause.FAULT, policy=policy, kinds=(*kinds, "builtins.Exception")).event


def test_a_retry_that_was_asked_for_counts_like_any_fault() -> None:
    assert TaskEvent.BURY == end(Cause.FAULT, retry_after_s=1.0, failures=2).event


@pytest.mark.parametrize(("delay_s", "asked_s"), [(3600.0, 3600.0), (0.0, 0.0), (0.0, -5.0)])
def test_the_delay_a_task_asked_for_is_used(delay_s: float, asked_s: float) -> None:
    assert delay_s == end(Cause.FAULT, retry_after_s=asked_s).not_before_delay_s


@pytest.mark.parametrize("asked_s", [float("inf"), float("nan"), float("-inf")])
def test_a_delay_that_is_no_number_falls_back_to_the_back_off(asked_s: float) -> None:
    assert 0.0 <= end(Cause.FAULT, retry_after_s=asked_s).not_before_delay_s <= 0.2


# --- back-off -----------------------------------------------------------------------------------------------------


class Highest(random.Random):
    def uniform(self, a: float, b: float) -> float:
        return b


class Lowest(random.Random):
    def uniform(self, a: float, b: float) -> float:
        return a


@pytest.mark.parametrize(
    ("ceiling_s", "failures"), [(0.2, 1), (0.4, 2), (0.8, 3), (25.6, 8), (30.0, 9), (30.0, 5000), (0.2, 0), (0.2, -3)]
)
def test_the_ceiling_of_the_back_off_doubles_up_to_its_limit(ceiling_s: float, failures: int) -> None:
    assert ceiling_s == pytest.approx(backoff_s(RetryPolicy(), failures, Highest()))


def test_the_jitter_is_full() -> None:
    assert 0.0 == backoff_s(RetryPolicy(), 6, Lowest())


def test_the_first_retry_waits_by_the_count_after_this_failure() -> None:
    assert [0.2, 0.4] == [end(Cause.FAULT, failures=n, rng=Highest()).not_before_delay_s for n in (0, 1)]


@settings(deadline=None)
@given(
    base=st.floats(0, 1e308), limit=st.floats(0, 1e308), failures=st.integers(-(10**30), 10**30), seed=st.integers(0, 9)
)
def test_the_back_off_is_never_beyond_its_limit(base: float, limit: float, failures: int, seed: int) -> None:
    policy = RetryPolicy(backoff_s=base, backoff_max_s=limit)
    assert 0.0 <= backoff_s(policy, failures, random.Random(seed)) <= limit


# --- dead letters -------------------------------------------------------------------------------------------------


def test_P53_a_dead_letter_is_replayed_with_other_needs() -> None:
    big = Needs.parse({"memory_gb": 64})
    verdict = replay(attempts=3, solo=False, needs=CPU, other_needs=big)
    assert (TaskEvent.REPLAY, big) == (verdict.event, verdict.needs)


def test_P53_a_replay_has_a_fresh_budget_and_remembers_its_starts() -> None:
    verdict = replay(attempts=3, solo=True, needs=CPU)
    assert (3, 0, 0, True, False, CPU) == (
        verdict.attempts, verdict.failures, verdict.evictions, verdict.solo, verdict.pinned, verdict.needs,
    )  # fmt: skip


# --- properties ---------------------------------------------------------------------------------------------------

ENDS = st.tuples(st.sampled_from(list(Cause)), st.booleans(), st.booleans(), st.booleans(), st.booleans())


@settings(deadline=None)
@given(ends=st.lists(ENDS, max_size=40), most=st.integers(1, 4), seed=st.integers(0, 9))
def test_any_life_keeps_to_the_table_and_within_its_budget(
    ends: list[tuple[Cause, bool, bool, bool, bool]], most: int, seed: int
) -> None:
    policy, rng, state = RetryPolicy(max_attempts=most, max_evictions=2), random.Random(seed), TaskState.QUEUED
    now = Verdict(
        event=TaskEvent.GIVE_BACK, attempts=0, failures=0, evictions=0, not_before_delay_s=0, solo=False, pinned=False,
        needs=CPU, reason="",
    )  # fmt: skip
    for cause, started, alone, progressed, blameless in ends:
        state = move(state, TaskEvent.GRANT)
        before, now = now, again(
            now, cause, started=started, alone=alone, progressed=progressed, blameless=blameless, policy=policy, rng=rng
        )  # fmt: skip
        state = move(state, now.event)
        assert now.failures <= most
        assert (now.failures > before.failures) == (now.event in (TaskEvent.RETRY, TaskEvent.BURY)) or (
            cause is Cause.EXPIRED
        )
        assert now.attempts == before.attempts + started
        assert now.reason.endswith(".")
        if state is not TaskState.QUEUED:
            break
