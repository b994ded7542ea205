"""The exhaustive model: what it proves within its bounds, and that it finds each invariant broken on purpose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from wolfpack.core.book.tasks import TaskDesk
from wolfpack.core.book.terms import TermDesk
from wolfpack.core.book.units import UnitDesk
from wolfpack.core.howls import Howl, HowlKind, Peer
from wolfpack.core.memory_ledger import MemoryLedger
from wolfpack.core.succession import Arbiter, Heard, Succession
from wolfpack.core.wire import KeeperReport, Turn
from wolfpack.model import Role
from wolfpack.sim.exhaustive import Explore, explore, main
from wolfpack.sim.exhaustive_cover import Cover, cover
from wolfpack.sim.exhaustive_keeper import Desk, first_keeper
from wolfpack.sim.exhaustive_process import Most, newborn
from wolfpack.sim.exhaustive_search import Bounds, Result
from wolfpack.sim.exhaustive_words import KEEPER, PACK, TIMING, Letter, Violation

SMALL = Bounds(alarms=1, terms=1)


def holds(result: Result) -> None:
    assert (None, True) == (result.finding, result.complete), str(result)


# --- what holds ----------------------------------------------------------------------------------------------------


def test_I1_to_I8_hold_in_every_history_of_one_term_and_one_alarm():
    """Larger bounds are searched by `.ci/run`: docs/exhaustive.md."""
    result = explore(SMALL)
    holds(result)
    assert (4411, 26994) == (result.states, result.transitions)


def test_both_searches_meet_the_same_keepers():
    one_by_one, everywhere = Explore(SMALL), Cover(SMALL, joined=False)
    holds(one_by_one.run())
    holds(everywhere.run())
    met = [{keeper.key for keeper in search.tables.keepers} for search in (one_by_one, everywhere)]
    assert met[0] <= met[1]
    assert len(met[0]) >= 10


def test_the_search_is_the_same_each_time():
    first, second = (replace(explore(SMALL), wall_s=0.0) for _ in range(2))
    assert first == second


@pytest.mark.parametrize(("states", "code"), [("50", 3), ("300", 0)])
def test_the_exit_code_tells_whether_all_was_searched(states, code, capsys):
    assert code == main(["--alarms", "0", "--terms", "1", "--states", states])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--alarms", "-1"], "argument --alarms must be at least 0, not -1"),
        (["--terms", "0"], "argument --terms must be at least 1, not 0"),
        (["--states", "0"], "argument --states must be at least 1, not 0"),
        (["--ticks", "1001"], "argument --ticks must be at most 1000, not 1001"),
        (["--births", "1"], "argument --births needs hints of at least 1"),
    ],
)
def test_bounds_within_which_nothing_can_happen_are_wrong_usage(words, told, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert 2 == ended.value.code
    assert told in capsys.readouterr().err


def test_the_help_tells_of_each_bound_what_it_is_and_its_default(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    told = " ".join(capsys.readouterr().out.split())
    for part in ("deaths of the keeper; the next one knows what was committed (default: 0)", "(default: 1000000)"):
        assert part in told


def test_ctrl_c_ends_a_search_with_one_line(monkeypatch, capsys):
    def interrupted(search: Explore, at: int) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(Explore, "_successors", interrupted)
    assert 130 == main([])
    assert "Interrupted after 1 states; the search is not complete.\n" == capsys.readouterr().err


def test_a_terminal_is_told_how_far_the_search_is(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("wolfpack.sim.exhaustive.PROGRESS_S", 0.0)
    assert 0 == main(["--alarms", "0", "--terms", "1"])
    told = capsys.readouterr().err
    assert "\r1 states so far" in told
    assert told.endswith("\r\x1b[K")


def test_a_search_that_gives_up_says_so():
    result = explore(Bounds(states=50))
    assert (False, None) == (result.complete, result.finding)
    assert "Not complete" in str(result)


# --- what is broken is found ----------------------------------------------------------------------------------------


def finding(search: Callable[[Bounds], Result], bounds: Bounds, invariant: str) -> str:
    """The story of the first broken invariant, which must be this one."""
    result = search(bounds)
    assert result.finding is not None, str(result)
    assert invariant == result.finding.invariant, str(result)
    assert "here it breaks" in result.finding.story[-1]
    return str(result)


@pytest.mark.parametrize("search", [explore, cover])
def test_I4_a_keeper_that_does_not_compare_the_previous_term_is_found(search, monkeypatch):
    claim = TermDesk.claim

    def careless(desk: TermDesk, at: Any, call: Any) -> Any:
        pack = desk._packs[call.pack]
        before = pack.term
        if pack.alpha != call.unit:
            pack.term = min(pack.term, call.prev_term)
        verdict = claim(desk, at, call)
        if not verdict.granted:
            pack.term = before
        return verdict

    monkeypatch.setattr(TermDesk, "claim", careless)
    story = finding(search, Bounds(), "I4")
    assert "term 1 was granted to" in story
    assert "the alpha being silent, claim(0)" in story


def test_I3_a_book_that_accepts_a_turn_of_an_old_term_is_found(monkeypatch):
    turn = TermDesk.turn

    def trusting(desk: TermDesk, at: Any, call: Turn) -> None:
        pack = desk._packs[call.pack]
        if pack.alpha is not None:
            call = call._replace(term=pack.term, unit=pack.alpha, boot=pack.alpha_boot)
        turn(desk, at, call)

    monkeypatch.setattr(TermDesk, "turn", trusting)
    assert "a turn of term 1 was accepted after term 2 began" in finding(explore, Bounds(alarms=1), "I3")


def test_I7_a_report_with_an_old_lease_number_that_settles_is_found(monkeypatch):
    settle = TaskDesk.settle

    def lax(desk: TaskDesk, at: Any, unit: Any, name: str, boot: int, reports: Any) -> list[int]:
        latest = [
            report._replace(lease_no=task.lease_no) if (task := desk.find(report.task_id)) is not None else report
            for report in reports
        ]
        return settle(desk, at, unit, name, boot, latest)

    monkeypatch.setattr(TaskDesk, "settle", lax)
    story = finding(explore, Bounds(alarms=0, terms=1, ticks=1, turns=2), "I7")
    assert "a report of lease 1 settled, the latest is 2" in story
    assert "ends leases that were not listed" in story


@pytest.mark.parametrize("search", [explore, cover])
def test_I6_a_coordinator_before_the_grant_is_found(search, monkeypatch):
    claim = Succession._claim

    def eager(machine: Succession, now: float) -> None:
        machine.term += 1
        machine._tell_all(HowlKind.COORDINATOR)
        machine.term -= 1
        claim(machine, now)

    monkeypatch.setattr(Succession, "_claim", eager)
    assert "says that it leads term 1, which nobody was granted" in finding(search, SMALL, "I6")


def test_I5_a_keeper_that_forgets_that_a_task_is_done_is_found(monkeypatch):
    opened = MemoryLedger.open

    def forgetful(ledger: MemoryLedger, *, create: bool) -> Any:
        loaded = opened(ledger, create=create)
        loaded.live = [
            row._replace(mutable=row.mutable._replace(state="queued", settle_no=0))
            for row in ledger.disk.tasks.values()
        ]
        return loaded

    monkeypatch.setattr(MemoryLedger, "open", forgetful)
    story = finding(explore, Bounds(alarms=0, terms=1, restarts=1, turns=2), "I5")
    assert "The keeper is born again" in story


def test_I2_a_term_that_is_not_durable_is_found(monkeypatch):
    commit = MemoryLedger.commit

    def leaky(ledger: MemoryLedger, writes: Any) -> int:
        if ledger.disk.packs:
            writes.packs.clear()
        return commit(ledger, writes)

    monkeypatch.setattr(MemoryLedger, "commit", leaky)
    assert "The keeper is born again" in finding(explore, Bounds(alarms=0, terms=1, restarts=1), "I2")


def test_I8_a_keeper_that_listens_to_an_old_boot_is_found(monkeypatch):
    """By one history: a search for it takes minutes."""
    current = UnitDesk._current
    monkeypatch.setattr(UnitDesk, "_current", lambda desk, name, boot: current(desk, name, desk._units[name].boot))
    keeper, _ = first_keeper("abc")
    keeper, _ = keeper.lose("c", 1)
    keeper, (hello,) = keeper.wake("c")
    keeper, _ = keeper.read(hello)
    report = KeeperReport("c", 1, 1, (), (), 0)
    with pytest.raises(Violation, match="I8: boot 1 of c was accepted, and boot 2 is known"):
        keeper.read(Letter(KEEPER, 0, report))


def test_I1_a_second_writer_in_a_term_is_found(monkeypatch):
    """No search gets there: the second grant, or the second COORDINATOR, is found before. So the judge by itself."""
    keeper, _ = first_keeper("abc")
    desk = Desk(keeper)
    monkeypatch.setattr(TermDesk, "turn", lambda desk, at, call: None)
    desk._note_grant(1, "c", 1)
    call = Turn(PACK, 1, "c", 1, 1, (), (), (), 0, (), None, 0)
    desk.turn(None, call)
    with pytest.raises(Violation, match=r"I1: b \(boot 1\) and .* wrote in term 1"):
        desk.turn(None, call._replace(unit="b"))


# --- the model says what the machine does ----------------------------------------------------------------------------


@pytest.mark.parametrize("role", list(Role)[1:])
def test_a_heartbeat_and_a_coordinator_are_the_same_news(role: Role):
    """The model keeps one of them."""
    views = []
    for kind in (HowlKind.HEARTBEAT, HowlKind.COORDINATOR):
        for term in (0, 1, 2):
            machine = Succession(
                me=Peer(unit="b", boot=1), pack=PACK, timing=TIMING, arbiter=Arbiter.KEEPER, rng=Most(0), now=0.0,
                term=1, alpha=None,
            )  # fmt: skip
            machine.role = role
            howl = Howl(kind=kind, pack=PACK, term=term, unit="c", boot=1)
            orders = machine.step(0.0, Heard(howl))
            views.append((term, orders, machine.role, machine.term, machine.alpha, machine._alarms))
    assert views[:3] == views[3:]


def test_two_processes_with_one_key_are_one():
    _, peers = first_keeper("abc")
    first, second = newborn("b", peers), newborn("b", peers)
    assert first.key == second.key
    rung, _ = first.ring(first.alarms()[0])
    assert rung.key != first.key == second.key  # a step leaves the process that it came from as it was


# --- by hand ---------------------------------------------------------------------------------------------------------


def test_the_command_prints_what_was_found_and_how_much_was_searched(capsys, monkeypatch):
    assert 0 == main(["--alarms", "0", "--terms", "1"])
    told = capsys.readouterr().out
    assert "states, " in told
    assert "Complete: I1 to I8 hold in every history within the bounds." in told
    monkeypatch.setattr(TermDesk, "turn", lambda desk, at, call: None)
    monkeypatch.setattr(TermDesk, "claim", lambda desk, at, call: desk._grant(desk._packs[call.pack]))
    assert 1 == main(["--terms", "1"])
    assert "Broken: I" in capsys.readouterr().out
