"""The judge believes no single witness: each kind of wrong is seen, and what is right is not accused."""

from __future__ import annotations

import pytest

from wolfpack.chaos.judge import Kept, Seen, judge
from wolfpack.chaos.task import BEGAN, ENDED, Line, Result, answer_to, checked, note, parse, read_record
from wolfpack.model import TaskState

HERE = "here"


def result(key="k0", lease_no=1, host=HERE):
    return Result(answer_to(key), lease_no, host)


def seen(key="k0", value=None, state=TaskState.DONE, **fields):
    value = result(key) if value is None and state is TaskState.DONE else value
    return Seen(key=key, task_id=f"c:{key}", state=state, value=value, **fields)


def kept(key="k0", value=None, state=TaskState.DONE, leases=(1,)):
    value = result(key) if value is None and state is TaskState.DONE else value
    return {f"c:{key}": Kept(state=state, value=value, done_leases=leases)}


def ran(key="k0", lease_no=1, pid=5):
    return [Line(what, key, lease_no, "grey-0", pid) for what in (BEGAN, ENDED)]


def verdict(the_seen=None, the_kept=None, lines=None, last_settle_no=1):
    the_seen = [seen()] if the_seen is None else the_seen
    return judge(the_seen, kept() if the_kept is None else the_kept, ran() if lines is None else lines,
                 last_settle_no, HERE)  # fmt: skip


def counts(found):
    return len(found.lost), len(found.double_committed), len(found.double_started)


def test_a_task_that_ran_once_and_is_done_once_is_right():
    found = verdict()
    assert ((0, 0, 0), 1, 0) == (counts(found), found.starts, found.restarted)


def test_a_task_that_ran_twice_and_is_done_once_is_right():
    value = result(lease_no=2)
    lines = [Line(BEGAN, "k0", 1, "grey-0", 5), *ran(lease_no=2)]
    found = verdict([seen(value=value)], kept(value=value, leases=(2,)), lines)
    assert ((0, 0, 0), 2, 1) == (counts(found), found.starts, found.restarted)


def test_a_run_that_ended_and_was_not_committed_is_right():
    value = result(lease_no=2)
    found = verdict([seen(value=value)], kept(value=value, leases=(2,)), [*ran(), *ran(lease_no=2)])
    assert (0, 0, 0) == counts(found)


def test_a_dead_task_is_an_end():
    found = verdict([seen(state=TaskState.DEAD)], kept(state=TaskState.DEAD, leases=()))
    assert (0, 0, 0) == counts(found)


def test_a_result_of_another_machine_needs_no_trace_here():
    value = result(host="there")
    assert (0, 0, 0) == counts(verdict([seen(value=value)], kept(value=value), []))


@pytest.mark.parametrize(
    ("the_seen", "the_kept", "lines", "reason"),
    [
        ([seen(state=None, text="it has not ended")], {}, [], "never ended for its client: it has not ended"),
        ([seen(state=None, text="gone")], kept(), ran(), "never ended for its client"),
        ([seen()], {}, ran(), "is not in the ledger"),
        ([seen()], kept(state=TaskState.QUEUED), ran(), "but is queued in the ledger"),
        ([seen()], kept(state=TaskState.DEAD), ran(), "but is dead in the ledger"),
        ([seen(value=result("k1"))], kept(value=result("k1")), ran(), "belongs to another task"),
        ([seen()], kept(value=result("k1")), ran(), "belongs to another task"),
        ([seen(value="what?")], kept(value="what?"), ran(), "is none of ours"),
        ([seen()], kept(), [], "comes from a run that left no trace"),
        ([seen()], kept(), ran()[:1], "comes from a run that left no trace"),
        ([seen()], kept(), ran("k1"), "comes from a run that left no trace"),
        ([seen()], kept(), ran(lease_no=2), "comes from a run that left no trace"),
    ],
)
def test_each_kind_of_loss_is_seen(the_seen, the_kept, lines, reason):
    found = verdict(the_seen, the_kept, lines, last_settle_no=0)
    assert 1 == len(found.lost)
    assert reason in found.lost[0]


@pytest.mark.parametrize(
    ("the_seen", "the_kept", "last_settle_no", "reason"),
    [
        ([seen()], kept(leases=(1, 2)), 1, "done under the leases 1, 2"),
        ([seen()], kept(value=result(lease_no=2), leases=(2,)), 1, "the result of lease 1, the ledger holds that of 2"),
        ([seen()], kept(leases=(2,)), 1, "of lease 1, but lease 2 counts as done"),
        ([seen()], kept(), 2, "gave settle number 2, but 1 tasks ended"),
    ],
)
def test_each_kind_of_double_commit_is_seen(the_seen, the_kept, last_settle_no, reason):
    found = verdict(the_seen, the_kept, [*ran(), *ran(lease_no=2)], last_settle_no)
    assert 1 == len(found.double_committed)
    assert reason in found.double_committed[0]


def test_every_settle_number_too_many_counts():
    assert 3 == len(verdict(last_settle_no=4).double_committed)


def test_a_lease_that_began_twice_is_seen():
    found = verdict(lines=[*ran(pid=5), *ran(pid=6)])
    assert ("k0 began 2 times under lease 1",) == found.double_started


def test_a_record_is_read_as_it_was_written(tmp_path):
    record = tmp_path / "starts"
    record.touch()
    for line in ran():
        note(str(record), line)
    assert ran() == read_record(record) == list(parse(record.read_text().splitlines()))


def test_without_a_record_here_nothing_is_written(tmp_path):
    note(str(tmp_path / "starts"), ran()[0])
    assert [] == list(tmp_path.iterdir())


def test_a_checked_task_leaves_a_line_before_and_after(tmp_path, monkeypatch):
    import wolfpack

    class Now:
        lease_no, unit = 9, "grey-1"

    monkeypatch.setattr(wolfpack, "current", lambda: Now)
    record = tmp_path / "starts"
    record.touch()
    value = checked(str(record), "7-1", 0.0)

    assert (answer_to("7-1"), 9) == value[:2]
    assert [(BEGAN, "7-1", 9, "grey-1"), (ENDED, "7-1", 9, "grey-1")] == [line[:4] for line in read_record(record)]
