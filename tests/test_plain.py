"""Records go to JSON and come back equal, whatever is in them; what would change on the way is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wolfpack.model import Card, HandsSpec, Nature, Needs, Offer, PackSpec, RetryPolicy
from wolfpack.plain import (
    card_from_json,
    card_to_json,
    needs_from_plain,
    needs_to_plain,
    pack_from_json,
    pack_to_json,
    retry_from_plain,
    retry_to_plain,
)

TEXTS = st.text(max_size=6)
NUMBERS = st.floats(allow_nan=False) | st.integers(-(10**20), 10**20)
PAIRS = st.lists(st.tuples(TEXTS, NUMBERS), max_size=3).map(tuple)
TAGS = st.frozensets(TEXTS, max_size=3)
NEEDS = st.builds(Needs, TAGS, PAIRS)
OFFERS = st.builds(Offer, TAGS, PAIRS)
PLAIN = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda part: st.lists(part, max_size=3) | st.dictionaries(TEXTS, part, max_size=3),
    max_leaves=5,
)
WHOLE = st.integers(-5, 10**12)
RETRIES = st.builds(
    RetryPolicy,
    max_attempts=WHOLE,
    max_evictions=WHOLE,
    backoff_s=NUMBERS,
    backoff_max_s=NUMBERS,
    retry_on=st.lists(TEXTS, max_size=3).map(tuple),
    never_on=st.lists(TEXTS, max_size=3).map(tuple),
    on_oom=NEEDS,
)
HANDS = st.builds(
    HandsSpec,
    isolation=TEXTS,
    concurrency=WHOLE,
    setup=st.none() | TEXTS,
    recycle_after=st.none() | WHOLE,
)
CARDS = st.builds(
    Card,
    unit=TEXTS,
    kind=TEXTS,
    nature=st.sampled_from(Nature),
    offer=OFFERS,
    lead=WHOLE,
    can_lead=st.booleans(),
    cost_per_h=NUMBERS,
    sleep_after_s=NUMBERS,
    awake_min=WHOLE,
    day_job=st.none() | TEXTS,
    grace_s=NUMBERS,
    min_tenure_s=NUMBERS,
    max_loan_s=st.none() | NUMBERS,
    ray=st.dictionaries(TEXTS, PLAIN, max_size=3),
    hands=HANDS,
)
PACKS = st.builds(
    PackSpec,
    name=TEXTS,
    fewest=WHOLE,
    most=WHOLE,
    needs=NEEDS,
    drain_target_s=NUMBERS,
    queue_max=st.none() | WHOLE,
    submit_timeout_s=NUMBERS,
    rate_per_s=st.none() | NUMBERS,
    priority=WHOLE,
    lendable=st.booleans(),
    infeasible=TEXTS,
    retry=RETRIES,
)

# A busy machine is no fault of the records.
patient = settings(deadline=None)


@patient
@given(CARDS)
def test_any_card_comes_back_equal(card: Card) -> None:
    assert card == card_from_json(card_to_json(card))


@patient
@given(PACKS)
def test_any_pack_comes_back_equal(pack: PackSpec) -> None:
    assert pack == pack_from_json(pack_to_json(pack))


@patient
@given(RETRIES)
def test_any_retry_policy_comes_back_equal_through_json(retry: RetryPolicy) -> None:
    assert retry == retry_from_plain(json.loads(json.dumps(retry_to_plain(retry))))


def test_a_tag_and_a_minimum_of_one_name_both_survive() -> None:
    needs = Needs(frozenset({"gpu"}), (("gpu", 2.0),))
    assert needs == needs_from_plain(json.loads(json.dumps(needs_to_plain(needs))))


@patient
@given(CARDS)
def test_a_card_that_came_back_has_its_records_types(card: Card) -> None:
    back = card_from_json(card_to_json(card))
    assert [type(getattr(card, one.name)) for one in fields(Card)] == [
        type(getattr(back, one.name)) for one in fields(Card)
    ]


def test_equal_cards_give_equal_texts() -> None:
    one = Card(unit="a", kind="a", offer=Offer(frozenset({"x", "y", "z"})), ray={"num_cpus": 1, "memory": 2})
    two = Card(unit="a", kind="a", offer=Offer(frozenset({"z", "y", "x"})), ray={"memory": 2, "num_cpus": 1})
    assert card_to_json(one) == card_to_json(two)


@pytest.mark.parametrize("ray", [{1: "a"}, {"a": (1, 2)}, {"a": [{"b": {2: 3}}]}, {"a": object()}, {"a": {1, 2}}])
def test_ray_options_that_json_would_change_are_refused(ray: dict[Any, Any]) -> None:
    with pytest.raises(TypeError, match=r"^ray"):
        card_to_json(Card(unit="a", kind="a", ray=ray))


def test_a_field_that_the_text_lacks_gets_its_default() -> None:
    assert Card(unit="a", kind="b") == card_from_json('{"unit": "a", "kind": "b"}')


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{}",
        '{"unit": "a"}',
        '{"unit": "a", "kind": "b", "x": 1}',
        '{"unit":"a","kind":"b","offer":1}',
    ],
)
def test_a_text_that_is_no_card_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        card_from_json(text)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"name": "a", "colour": 1}', '{"name": "a", "retry": {"x": 1}}'])
def test_a_text_that_is_no_pack_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        pack_from_json(text)


def test_records_and_their_json_do_not_import_pydantic_or_yaml() -> None:
    code = "import sys, wolfpack.model, wolfpack.plain; print('pydantic' in sys.modules, 'yaml' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ["False", "False"] == ran.stdout.split()
