"""The fuzzer itself: the same seed gives the same inputs, and no trouble of a door passes for a refusal."""

from __future__ import annotations

import logging
import random
import time
from typing import Any

import pytest
from click.testing import CliRunner

from tests.fuzz import fuzzer
from tests.fuzz.__main__ import main
from tests.fuzz.fuzzer import Tally, campaign, spoil_bytes, spoil_value


class Toy:
    """Takes even numbers, refuses odd ones, and has something against 7."""

    name = "toy"
    refusals = (ValueError,)

    def __init__(self, trouble: BaseException | None = None) -> None:
        self.seen: list[Any] = []
        self._trouble = trouble

    def make(self, rng: random.Random) -> int:
        return rng.randrange(10)

    def attempt(self, given: int) -> None:
        self.seen.append(given)
        if given == 7 and self._trouble is not None:
            raise self._trouble
        if given % 2:
            raise ValueError("odd")


def test_every_input_is_counted_once() -> None:
    tally = campaign(Toy(), 1, inputs=100)
    assert (100, 100) == (tally.inputs, tally.refused + tally.accepted)
    assert min(tally.refused, tally.accepted) > 20


def test_the_same_seed_gives_the_same_inputs() -> None:
    first, again, other = Toy(), Toy(), Toy()
    campaign(first, 1, inputs=50)
    campaign(again, 1, inputs=50)
    campaign(other, 2, inputs=50)
    assert first.seen == again.seen != other.seen


@pytest.mark.parametrize("trouble", [KeyError("x"), RecursionError(), MemoryError(), ValueError("")])
def test_an_error_of_another_kind_is_a_failure_and_can_be_seen_again(trouble: BaseException) -> None:
    tally = campaign(Toy(trouble), 1, inputs=30)
    assert tally.failures
    number = tally.failures[0].number
    assert f"--only {number}" in tally.told()
    alone = campaign(Toy(trouble), 1, only=number)
    assert (1, "7") == (len(alone.failures), alone.failures[0].given)


def test_a_door_that_hangs_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(Toy):
        def attempt(self, given: int) -> None:
            time.sleep(5.0)

    monkeypatch.setattr(fuzzer, "PATIENCE_S", 0.01)
    tally = campaign(Slow(), 1, only=0)
    assert "Hung" in tally.failures[0].trouble


def test_a_tally_says_its_seed() -> None:
    assert "seed 9" in str(Tally("toy", 9))


@pytest.mark.parametrize("data", [b"", b"x", b"a longer text" * 50])
def test_spoiled_bytes_are_bytes_again_and_differ_mostly(data: bytes) -> None:
    spoiled = [spoil_bytes(random.Random(seed), data, b"other" * 9) for seed in range(200)]
    assert {bytes} == set(map(type, spoiled))
    assert sum(each != data for each in spoiled) > 100


def test_spoiled_values_differ_mostly_and_never_change_the_original() -> None:
    value = (1, "text", (2.5, (b"bytes", None)), ())
    spoiled = [spoil_value(random.Random(seed), value) for seed in range(200)]
    assert (1, "text", (2.5, (b"bytes", None)), ()) == value
    assert sum(repr(each) != repr(value) for each in spoiled) > 190


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--door", "howls", "--inputs", "1", "--seed", "7"], "the door 'howls', 1 input, --seed 7"),
        (["--door", "howls", "--door", "messages", "--seconds", "0", "--seed", "7"], "2 doors, 0 s at each, --seed 7"),
    ],
)
def test_a_campaign_says_at_once_how_long_it_takes(
    words: list[str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "disable", lambda level: None)  # it would last
    assert told == CliRunner().invoke(main, words).stderr.splitlines()[0]
