"""What a call may say beside its arguments, and how calls are packed: bad input is refused at the call, by name."""

from __future__ import annotations

import pytest

import wolfpack
from wolfpack.call import Calls, fingerprint, plain_options
from wolfpack.model import Needs, RetryPolicy, TaskOptions


def options(**given):
    return plain_options(None, given)


def test_options_are_read_into_a_record():
    assert TaskOptions(needs=Needs.parse({"gpu"}), priority=2, timeout_s=3.0) == options(
        needs={"gpu"}, priority=2, timeout_s=3
    )


def test_the_options_of_the_call_win_over_those_of_the_function():
    of_function = TaskOptions(priority=1, timeout_s=5.0)

    assert TaskOptions(priority=7, timeout_s=5.0) == plain_options(of_function, None, over=TaskOptions(priority=7))


def test_retry_is_the_mapping_of_pack_yaml_and_takes_exception_classes():
    found = options(retry={"max_attempts": 5, "retry_on": [ValueError, "OSError"], "on_oom": {"memory_gb": 4}}).retry

    assert (
        RetryPolicy(max_attempts=5, retry_on=("builtins.ValueError", "OSError"), on_oom=Needs.parse({"memory_gb": 4}))
        == found
    )


@pytest.mark.parametrize(
    ("expected", "given"),
    [
        ("Did you mean 'priority'", {"priorty": 1}),
        ("priority must be a whole number", {"priority": 1.5}),
        ("priority must be a whole number", {"priority": True}),
        ("priority must be a whole number within", {"priority": 10**400}),
        ("key must be text", {"key": ""}),
        ("key must be text", {"key": 7}),
        ("key must be text", {"key": "k\ud800"}),
        ("key must be text", {"key": "k" * 2000}),
        ("timeout_s must be seconds", {"timeout_s": -1}),
        ("delay_s must be seconds", {"delay_s": float("inf")}),
        ("deadline_s must be seconds", {"deadline_s": "soon"}),
        ("delay_s must be seconds", {"delay_s": 10**400}),
        ("a need must be a tag", {"needs": {"": True}}),
        ("max_attempts", {"retry": {"max_attempts": "5"}}),
        ("max_attempts", {"retry": {"max_attempts": None}}),
        ("backoff_s", {"retry": {"backoff_s": "1"}}),
        ("Did you mean 'max_attempts'", {"retry": {"max_attempt": 5}}),
        ("retry must be a mapping", {"retry": 3}),
        ("retry_on", {"retry": {"retry_on": "ValueError"}}),
    ],
)
def test_what_cannot_be_is_refused_with_the_name_of_the_option(expected, given):
    with pytest.raises(wolfpack.CallerError, match=expected):
        options(**given)


class Multiplier:
    def __init__(self, k: int) -> None:
        self.k = k

    def __call__(self, x: int) -> int:
        return self.k * x


def code_of(calls: Calls, fn) -> bytes:
    return calls.pack(1, fn, (), {}, TaskOptions())[1]


def test_an_object_that_changed_between_two_submits_is_sent_anew(tmp_path):
    calls = Calls(1 << 20, str(tmp_path), "c")
    multiplier = Multiplier(2)
    first = code_of(calls, multiplier)
    multiplier.k = 3

    assert first != code_of(calls, multiplier)


def test_a_closure_that_changed_between_two_submits_is_sent_anew(tmp_path):
    calls = Calls(1 << 20, str(tmp_path), "c")
    k = 2

    def times(x):
        return k * x

    first = code_of(calls, times)
    k = 3

    assert first != code_of(calls, times)


def test_a_plain_function_is_packed_once(tmp_path):
    calls = Calls(1 << 20, str(tmp_path), "c")

    assert code_of(calls, options) is code_of(calls, options)


def test_a_function_that_carries_too_much_is_refused_by_name(tmp_path):
    calls = Calls(1000, str(tmp_path), "c")
    data = b"x" * 2000

    def carries():
        return data

    with pytest.raises(wolfpack.PayloadTooLarge, match="carries"):
        code_of(calls, carries)


SCRIPT = """
def work(x):
    return x in {"a", "b", "c"} and x
"""


def made_from(text: str, name: str):
    space: dict = {"__name__": "__main__"}
    exec(compile(text, name, "exec"), space)
    return space["work"]


def test_a_function_that_only_moved_in_its_file_is_the_same_for_its_key(tmp_path):
    first = made_from(SCRIPT, "one.py")
    moved = made_from("# a comment\n\n" + SCRIPT, "two.py")
    changed = made_from(SCRIPT.replace("and x", "or x"), "one.py")

    assert fingerprint(first) == fingerprint(moved) != ""
    assert fingerprint(first) != fingerprint(changed)
