"""The run goes on until the last fault was given and seen to be survived, and ends where it is stuck; on a fake den."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

import wolfpack
from wolfpack.chaos import run as run_module
from wolfpack.chaos.plan import Fault, Kind, plan_faults
from wolfpack.chaos.run import ChaosOptions, _Run, is_proven
from wolfpack.chaos.strike import Strike
from wolfpack.chaos.work import Gap, Work, see
from wolfpack.cli import cli
from wolfpack.cli.chaos import chaos_text
from wolfpack.future import Future
from wolfpack.model import Card, DenSpec, HandsSpec, TaskState

WOLF = Card(unit="a", kind="a")


class Pack:
    """Every task ends a moment after its submit, unless it is told to hold them."""

    def __init__(self, holds: bool = False) -> None:
        self.holds = holds
        self.keys: list[str] = []

    def submit(self, fn, record, key, seconds):
        self.keys.append(key)
        future = Future(None, f"c:{len(self.keys)}")
        if not self.holds:
            threading.Timer(0.001, future.set_result, (key,)).start()
        return future


class FakeStriker:
    def __init__(self, run: _Run, refuses: set[Kind] = frozenset(), term: int | None = None) -> None:
        self.run, self.refuses, self.term = run, refuses, term

    def strike(self, fault: Fault) -> Strike | None:
        if fault.kind in self.refuses:
            return None
        term = self.term if fault.kind is Kind.ALPHA else None
        return Strike(fault=fault, at=0.0, target="grey-0#1", pid=7, term=term)


class FakeListener:
    def __init__(self, leads_again_after: int = 0) -> None:
        self.left = leads_again_after

    def leader(self):
        return (1, "grey-0", 1)

    def led_again_at(self, term: int, since: float) -> float | None:
        self.left -= 1
        return since + 0.25 if self.left < 0 else None


class Silent:
    def __init__(self) -> None:
        self.notes: list[str] = []

    def __call__(self, settled: int, total: int, text: str) -> None: ...

    def note(self, text: str) -> None:
        self.notes.append(text)


def go(tasks=50, faults=None, *, pack=None, leads_again_after=0, refuses=frozenset(), cards=(WOLF,)):
    faults = {Kind.ALPHA: 3, Kind.UNIT: 4} if faults is None else faults
    spec = DenSpec(den="d", ledger="memory://", cards=cards)
    say = Silent()
    run = _Run(spec, ChaosOptions(tasks=tasks, faults=faults), Path("/nowhere"), say)
    run._due = list(plan_faults(run._possible(), 1))
    with Work(pack or Pack(), total=tasks, seed=1, record=Path("starts"), in_flight=20) as work:
        run._go_on(work, FakeStriker(run, refuses, term=1), FakeListener(leads_again_after), 7)
    return run, work, say


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(run_module, "LOOK_S", 0.001)


def test_all_faults_are_given_and_all_tasks_end():
    run, work, _ = go()
    assert ([], 7) == (run._due, len(run._given))
    assert work.submitted == work.settled >= 50
    assert [0.25] * 3 == run._times(Kind.ALPHA)


def test_more_work_is_submitted_while_faults_are_left():
    run, work, _ = go(tasks=3, leads_again_after=50)
    assert ([], 7) == (run._due, len(run._given))
    assert work.submitted == work.settled > 3


def test_a_kind_that_finds_no_target_is_given_up_and_that_is_said(monkeypatch):
    monkeypatch.setattr(run_module, "GIVE_UP_S", 0.05)
    run, _, say = go(refuses={Kind.UNIT})
    assert [Kind.ALPHA] * 3 == [strike.fault.kind for strike in run._given]
    assert ["4 faults kill_units were not given: no target for 0 s."] == say.notes == run._notes


def test_an_alpha_after_which_nobody_led_is_told(monkeypatch):
    monkeypatch.setattr(run_module, "FAILOVER_MOST_S", 0.05)
    _, _, say = go(faults={Kind.ALPHA: 1}, leads_again_after=10**9)
    assert ["No first lease for 0 s after grey-0#1 of term 1."] == say.notes


def test_a_stuck_den_ends_the_run(monkeypatch):
    monkeypatch.setattr(run_module, "STUCK_S", 0.05)
    _, work, say = go(pack=Pack(holds=True))
    assert ["Stuck: nothing has ended for 0 s."] == say.notes
    assert {None} == {each.state for each in work.seen()}


def test_a_den_that_takes_no_tasks_ends_the_run():
    class Closed:
        def submit(self, *_):
            raise wolfpack.DenClosed("It was closed.")

    _, _, say = go(pack=Closed())
    assert ["Nothing more could be submitted: It was closed."] == say.notes


def test_hands_that_are_threads_are_not_killed():
    cards = (Card(unit="a", kind="a", hands=HandsSpec(isolation="thread")),)
    run, _, say = go(faults={Kind.HANDS: 9}, cards=cards)
    assert ([], 1) == (run._given, len(say.notes))


def test_no_more_than_the_allowed_tasks_are_in_flight():
    pack = Pack(holds=True)
    with Work(pack, total=100, seed=1, record=Path("starts"), in_flight=20) as work:
        done = threading.Event()
        threading.Timer(0.05, done.set).start()
        done.wait()
        assert 20 == work.submitted


def test_the_longest_gap_names_the_faults_that_were_given_in_it():
    gap = Gap()
    for now in (10.0, 11.0, 14.0, 15.0):
        gap.note(now, 1000.0 + now)
    given = [
        Strike(fault=Fault(kind=Kind.UNIT, share=0.1, draw=0.0), at=1000.0 + at, target=f"grey-{at}", pid=1)
        for at in (9.5, 10.5, 13, 14.5)
    ]
    assert (3.0, ["kill_units: grey-10.5", "kill_units: grey-13"]) == (gap.longest_s, run_module.during(given, gap))


def ended(error=None, value=None, note=""):
    future = Future(None, "c:1")
    if error is None:
        future.set_result(value)
    else:
        if note:
            error.add_note(note)
        future.set_exception(error)
    return future


@pytest.mark.parametrize(
    ("future", "state"),
    [
        (Future(None, "c:1"), None),
        (ended(value=1), TaskState.DONE),
        (ended(wolfpack.TaskLost("lost", "LOST")), TaskState.DEAD),
        (ended(OSError("disk"), note="task c:1, attempt 3, on unit grey-0"), TaskState.DEAD),
        (ended(wolfpack.DenClosed("closed")), None),
        (ended(wolfpack.DenUnreachable("away")), None),
    ],
)
def test_only_an_end_of_the_task_itself_is_an_end(future, state):
    assert state == see("k", future).state


def test_a_cancelled_task_is_cancelled():
    future = Future(None, "c:1")
    future._settle("cancelled", "CANCELLED", "", b"", "", "", b"")
    assert TaskState.CANCELLED == see("k", future).state


FILE = """
den: d
units: {a: {offers: [cpu]}}
packs: {p: {size: [0, 1], needs: [cpu]}, q: {size: [0, 1], needs: [cpu]}}
"""

# --- what is shown ------------------------------------------------------------------------------------------------

RIGHT = {
    "submitted": 10, "done": 10, "dead": 0, "lost": 0, "double_committed": 0, "ghosts": 1, "refused_writes": 2,
    "failovers_s": [0.25, 0.75, 0.5], "longest_gap_s": 2.0,
    "longest_gap_after": ["kill_keeper: keeper of epoch 1"],
    "conservation": True, "double_started": 0, "starts": 12,
    "restarted": 2, "freeze_failovers_s": [], "faults": {"kill_alpha": 3, "freeze": 0},
    "asked": {"kill_alpha": 3, "freeze": 1}, "epochs": 1, "seed": 7, "seconds": 1.0, "problems": [], "notes": [],
}  # fmt: skip


def test_a_right_run_is_proven():
    assert is_proven(RIGHT)


@pytest.mark.parametrize(
    "wrong", [{"lost": 1}, {"double_committed": 1}, {"double_started": 1}, {"conservation": False}]
)
def test_each_wrong_fails_the_run(wrong):
    assert not is_proven({**RIGHT, **wrong})


def test_a_person_reads_what_was_given_and_what_came_of_it():
    text = chaos_text({**RIGHT, "problems": ["k1: gone"], "notes": ["no freeze"], "evidence": "/tmp/x"}, None)
    assert "faults: 3 kill alpha, 0 of 1 freeze" in text
    assert "longest time without a result: 2.00 s (after kill_keeper: keeper of epoch 1)" in text
    assert "failovers: 3, median 0.50 s, longest 0.75 s" in text
    unasked = dict.fromkeys(RIGHT["faults"], 0)
    calm = chaos_text({**RIGHT, "asked": unasked, "faults": unasked, "longest_gap_after": []}, None)
    assert "faults: none" in calm
    assert "2.00 s (no fault shortly before it)" in calm
    assert text.endswith(
        "every task is accounted for\nproblem: k1: gone\nnote: no freeze\n"
        "ledger and record of starts are kept in /tmp/x"
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--tasks", "0"], "0 is not in the range x>=1"),
        (["--kill-alpha", "-1"], "-1 is not in the range x>=0"),
        (["--freeze", "often"], "'often' is not a valid integer"),
        (["--kill-all", "1"], "No such option"),
        (["nowhere.yaml"], "nowhere.yaml"),
    ],
)
def test_wrong_options_are_told_at_once(words, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(cli, ["chaos", *words])
    assert 2 == found.exit_code
    assert told in found.output


def test_a_system_without_process_handles_is_told_so(tmp_path, monkeypatch):
    monkeypatch.delattr("os.pidfd_open")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pack.yaml").write_text(FILE)
    found = CliRunner().invoke(cli, ["chaos", "--pack", "p"])
    assert 2 == found.exit_code
    assert "Chaos needs Linux" in found.output


@pytest.mark.parametrize(
    ("words", "told"),
    [([], "This den has 2 packs, so name one: p, q."), (["--pack", "r"], "There is no pack named 'r'")],
)
def test_a_pack_that_is_not_named_or_not_there_is_told_before_a_den_is_opened(words, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pack.yaml").write_text(FILE)
    found = CliRunner().invoke(cli, ["chaos", *words])
    assert 2 == found.exit_code
    assert told in found.output


def test_the_den_of_a_run_has_a_name_and_a_ledger_of_its_own(tmp_path):
    spec = DenSpec(den="timber", ledger="sqlite:////live.db", graphs="/pictures", cards=(SimpleNamespace(unit="a"),))
    own = run_module._spec_of_its_own(spec, tmp_path / "wolfpack-chaos-abc", ChaosOptions())
    assert ("timber-chaos-abc", f"sqlite:///{tmp_path}/wolfpack-chaos-abc/ledger.db", None, spec.cards) == (
        own.den, own.ledger, own.graphs, own.cards
    )  # fmt: skip
