"""How a task's end becomes a message, without any process."""

import os
import pickle

import cloudpickle
import msgpack
import pytest

from tests.hands import tasks
from wolfpack.den.runner import Runner
from wolfpack.errors import PayloadNotPicklable, PayloadTooLarge, TaskFault
from wolfpack.model import Job


def run(function, *args, blobs="/nowhere", limit=1 << 30, **changes):
    runner = Runner(blobs=blobs, payload_max_bytes=limit)
    runner.learn("fn", cloudpickle.dumps(function))
    packed = cloudpickle.dumps((args, {})) if args else b""
    return runner.run(Job(5, "c:7", "fn", packed, "", "", 1, None, False, 1)._replace(**changes))


def fault(function, *args, **options):
    """Cause of the fault: the exception or None, its traceback, the text, the kinds, and the wish of a retry."""
    message = run(function, *args, **options)
    assert ["fault", 5] == message[:2]
    payload, text, kinds, after_s = message[4:]
    packed, trace = msgpack.unpackb(payload)
    return pickle.loads(packed) if packed else None, trace, text, kinds, after_s


def test_a_value_comes_back_pickled_with_the_times_of_its_run():
    lease_no, started_at, ended_at, payload, blob = run(tasks.echo, {"a": 1})

    assert (5, {"a": 1}, "") == (lease_no, pickle.loads(payload), blob)
    assert started_at <= ended_at


def test_a_value_of_a_class_made_in_main_goes_by_value():
    local = type("Local", (), {"x": 3})
    local.__module__ = "__main__"

    assert 3 == cloudpickle.loads(run(local)[3]).x


def test_P55_the_original_exception_comes_with_its_fields_and_the_authors_frames():
    exc, trace, text, kinds, after_s = fault(tasks.poison, 12)

    assert (tasks.Wolfsbane, 12) == (type(exc), exc.dose)
    assert "Wolfsbane: ('do not eat', 12)" == text
    assert [
        "tests.hands.tasks.Wolfsbane",
        "builtins.ValueError",
        "builtins.Exception",
        "builtins.BaseException",
    ] == kinds
    assert trace.index("in poison") < trace.index("raise Wolfsbane")
    assert "runner.py" not in trace
    assert after_s is None


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (tasks.raise_unloadable, "Unloadable: one way only"),
        (tasks.raise_with_lock, "ValueError: ('holds a lock', <unlocked"),
    ],
)
def test_P55_an_exception_that_cannot_travel_arrives_as_text(function, text):
    exc, trace, said, _, _ = fault(function)

    assert exc is None
    assert said.startswith(text)
    assert function.__name__ in trace


def test_P55_an_exception_that_cannot_be_shown_still_arrives():
    exc, _, said, _, _ = fault(tasks.raise_speechless)

    assert isinstance(exc, tasks.Speechless)
    assert "Speechless: (its text could not be read: RuntimeError)" == said


@pytest.mark.parametrize(
    ("function", "kind"),
    [(tasks.leave_by_exit, "builtins.SystemExit"), (tasks.interrupt, "builtins.KeyboardInterrupt")],
)
def test_P46_an_exit_is_a_fault_that_cannot_end_the_caller_either(function, kind):
    exc, _, _, kinds, _ = fault(function)

    assert exc is None
    assert kind == kinds[0]


@pytest.mark.parametrize("after_s", [None, 2.5])
def test_a_task_that_asks_for_a_retry_says_when(after_s):
    *_, kinds, got = fault(tasks.ask_again, after_s)

    assert "wolfpack.errors.Retry" == kinds[0]
    assert after_s == got


def test_a_value_that_cannot_be_pickled_is_a_fault_that_names_its_type():
    exc, _, text, _, _ = fault(tasks.make_lock)

    assert isinstance(exc, PayloadNotPicklable)
    assert "returned an object of type _thread.lock" in text


def test_a_value_above_the_limit_is_a_fault_that_names_the_limit():
    exc, _, text, _, _ = fault(tasks.make_bytes, 2000, limit=1000)

    assert isinstance(exc, PayloadTooLarge)
    assert "payload_max_bytes of pack.yaml allows 1,000" in text


def test_a_large_value_goes_to_a_file_named_by_task_and_lease(tmp_path):
    message = run(tasks.make_bytes, 2 << 20, blobs=str(tmp_path / "blobs"))

    assert (b"", str(tmp_path / "blobs" / "c_7-5")) == tuple(message[3:])
    assert b"x" * (2 << 20) == pickle.loads((tmp_path / "blobs" / "c_7-5").read_bytes())


def test_a_large_value_that_the_disk_does_not_take_is_a_fault_and_leaves_no_file(tmp_path):
    (tmp_path / "blobs").write_text("a file where a folder must be")

    exc, _, _, _, _ = fault(tasks.make_bytes, 2 << 20, blobs=str(tmp_path / "blobs"))

    assert isinstance(exc, TaskFault)
    assert ["blobs"] == os.listdir(tmp_path)


def test_large_arguments_are_read_from_their_file(tmp_path):
    path = tmp_path / "args"
    path.write_bytes(cloudpickle.dumps((("from a file",), {})))

    assert "from a file" == pickle.loads(run(tasks.echo, blob=str(path))[3])


def test_a_function_that_cannot_be_imported_here_is_a_fault():
    runner = Runner(blobs="", payload_max_bytes=1)
    runner.learn("fn", b"cno_such_module\nwork\n.")

    message = runner.run(Job(5, "c:7", "fn", b"", "", "", 1, None, False, 1))

    assert "ModuleNotFoundError: No module named 'no_such_module'" == message[5]


def test_an_endless_traceback_is_cut_in_its_middle():
    _, trace, _, _, _ = fault(tasks.shout, 200_000)

    assert "characters left out" in trace
    assert len(trace) < 70_000
