"""A future settles whatever its value or exception does when it is loaded."""

from __future__ import annotations

import pickle

import msgpack
import pytest

import wolfpack
from wolfpack.future import Future


class Evil:
    """Raises what is no Exception when it is unpickled."""

    def __reduce__(self):
        return (exit_at_once, ())


def exit_at_once():
    raise SystemExit(3)


def settled(state: str, cause: str, payload: bytes, text: str = "") -> Future:
    future = Future(None, "c:1")
    future._settle(state, cause, text, payload, "", "grey-0", b"")
    return future


def test_a_value_comes_back():
    assert [1, 2] == settled("done", "DONE", pickle.dumps([1, 2])).result(0)


@pytest.mark.parametrize("payload", [pickle.dumps(Evil()), b"\x80garbage", b""])
def test_a_value_that_cannot_be_loaded_is_a_fault_or_nothing(payload):
    future = settled("done", "DONE", payload)

    assert future.done()
    if payload:
        with pytest.raises(wolfpack.TaskFault, match="cannot be loaded here"):
            future.result(0)


def test_an_exception_that_cannot_be_loaded_arrives_as_text():
    payload = msgpack.packb([pickle.dumps(Evil()), "Traceback: here"])
    with pytest.raises(wolfpack.TaskFault, match="Evil: broken") as caught:
        settled("dead", "FAULT", payload, "Evil: broken").result(0)

    assert "Traceback: here" in str(caught.value.__cause__)


@pytest.mark.parametrize(
    ("expected", "cause"),
    [
        (wolfpack.TaskCrashed, "CRASH"),
        (wolfpack.TaskCrashed, "OOM"),
        (wolfpack.TaskTimeout, "TIMEOUT"),
        (wolfpack.TaskExpired, "EXPIRED"),
        (wolfpack.TaskLost, "LOST"),
    ],
)
def test_an_end_without_an_exception_names_its_cause(expected, cause):
    with pytest.raises(expected) as caught:
        settled("dead", cause, b"", "why").result(0)

    assert (cause, "c:1") == (caught.value.cause, caught.value.task_id)


def test_a_cancelled_task_is_a_cancelled_future():
    assert settled("cancelled", "CANCELLED", b"").cancelled()
